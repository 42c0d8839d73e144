//! Reads compiled manifests from the programs that a trace names.
//!
//! ```text
//!   Decoder::take_tracked ──path──▶ regular file? ──▶ open ──▶ Decoder::add_tracked (same build?)
//! ```
//!
//! The author of the trace chose the paths, so [`open_program`] opens them with care.
//! `--no-binaries` turns this off.

use std::path::Path;

use anstream::eprintln;
use traceweir::consumer::open_program;
use traceweir_decode::{Decoder, Error};

/// Loads the manifests of the programs that the trace has named since the last call.
pub(crate) fn load(decoder: &mut Decoder) {
    for tracked in decoder.take_tracked() {
        let Some(file) = open_program(Path::new(&tracked.path)) else { continue };
        // Most programs contain no manifest. A program with another manifest than the traced one is
        // worth a warning.
        if let Err(Error::Binary(reason)) = decoder.add_tracked(&tracked, file) {
            eprintln!(
                "warning: {}: {reason}; events of its providers may lack their names",
                tracked.path.escape_debug()
            );
        }
    }
}
