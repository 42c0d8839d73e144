//! The manifest compiler: generates the code that a program needs to write the events of an
//! instrumentation manifest.
//!
//! ```text
//!   FILE.man ─▶ Manifest ─┬─ rust_module ─▶ module with write functions and enable checks;
//!                         │                 `write_rust` writes it to a file
//!                         ├─ c_header ────▶ C and C++ header in message compiler style
//!                         └─ resource ────▶ WEVT_TEMPLATE and messages, for section .etw_manifest
//! ```
//!
//! The resource is part of the program. A provider registered by generated code announces the
//! program's file to each session. A reader of the trace on the same machine finds names, fields
//! and messages in this file, so the manifest need not be installed.
//!
//! In a build script:
//!
//! ```no_run
//! // build.rs, with traceweir-build among the build-dependencies
//! fn main() -> Result<(), traceweir_build::Error> {
//!     println!("cargo::rerun-if-changed=workshop.man");
//!     let out = std::env::var_os("OUT_DIR").unwrap_or_default();
//!     traceweir_build::Manifest::open("workshop.man")?.write_rust(&out)?;
//!     Ok(())
//! }
//! ```
//!
//! In the program, with `traceweir` among the dependencies:
//!
//! ```ignore
//! mod workshop {
//!     include!(concat!(env!("OUT_DIR"), "/workshop.rs"));
//! }
//!
//! let provider = workshop::example_workshop::Provider::register()?;
//! provider.mapped(workshop::example_workshop::map::tool::TOOL_SAW, 0x3)?;
//! ```
//!
//! A manifest may be hostile: its texts reach generated code only as identifiers, numbers, quoted
//! literals and comments, and cannot break out of a literal or comment.
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

mod c;
mod code;
mod error;
mod ident;
mod manifest;
mod plan;
mod rust;

pub use c::COptions;
pub use error::{Error, Result};
pub use manifest::Manifest;
pub use traceweir_decode::source::manifest::ManifestMistake;
