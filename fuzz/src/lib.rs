//! Code shared by the fuzz targets: an allocation limit, and a renderer that turns records into
//! text and JSON and checks its guarantees. `arguments` reads the arguments of C functions from an
//! input, `schema` builds schemas from an input, and `code` checks code generated from manifests.
//!
//! ```text
//!   bytes ──▶ decoder under test ──▶ Record or Schema ──▶ Renderer: text, JSON, message; asserts
//! ```
//!
//! Besides panics, the renderer and the allocator detect output that is not JSON, more values than
//! a payload can hold, and a single allocation of more than 128 MiB.

pub mod arguments;
mod code;
pub mod kernel_trace;
mod limit;
mod render;
pub mod schema;

pub use code::{check_c, check_rust};
pub use render::{RecordRenderer, Renderer};
