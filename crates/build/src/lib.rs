//! The manifest compiler: what a program needs to write the events that an instrumentation manifest describes.
//!
//! ```text
//!   FILE.man ──▶ Manifest ──┬─ rust_module ─▶ a module with typed write functions and enable checks
//!                           ├─ c_header ────▶ the same as a C and C++ header, in the manner of the message compiler
//!                           └─ resource ────▶ WEVT_TEMPLATE and messages, for section .etw_manifest of the program
//! ```
//!
//! The resource travels in the program. A provider that was registered by generated code tells each session which
//! file it lives in, so whoever reads the trace on the same machine finds names, fields and messages there, and
//! nothing has to be registered.
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
//! A manifest is hostile input as everywhere: its texts reach generated code only as identifiers, numbers, quoted
//! literals and comments that they cannot leave.
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

pub use error::{Error, Result};
pub use manifest::{COptions, Manifest};
pub use traceweir_decode::source::manifest::Mistake;
