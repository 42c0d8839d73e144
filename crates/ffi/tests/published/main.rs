//! The headers against what others say that Windows has: layouts, constants and prototypes against the windows-sys crate, examples against the headers of mingw-w64, and
//! the table in `docs/c-coverage.md` against the published names.

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
