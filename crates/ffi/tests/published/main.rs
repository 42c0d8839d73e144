//! Compares the headers of this project with descriptions of those of Windows: layouts, constants
//! and prototypes with the windows-sys crate, examples with the headers of mingw-w64, and the table
//! in `docs/c-coverage.md` with the published names.

mod constants;
mod coverage;
mod examples;
mod functions;
mod headers;
mod layout;
mod names;
mod structures;
#[path = "../support/mod.rs"]
mod support;
