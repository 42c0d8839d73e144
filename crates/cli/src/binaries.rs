//! Programs that a trace names: opened to find the compiled manifests of their providers.
//!
//! ```text
//!   Decoder::take_tracked ──path──▶ what is it? ──a plain file──▶ open ──▶ Decoder::add_tracked: same build id?
//! ```
//!
//! Whoever wrote the trace chose the paths: [`open_program`] takes the care that needs. `--no-binaries` is for those who do not want to be led at all.

use std::path::Path;

use anstream::eprintln;
use traceweir::consumer::open_program;
use traceweir_decode::{Decoder, Error};

/// Takes in what the programs say that the trace has named since the last time.
pub(crate) fn load(decoder: &mut Decoder) {
    for told in decoder.take_tracked() {
        let Some(file) = open_program(Path::new(&told.path)) else { continue };
        // Most programs have no manifest to embed; one that has, and is another, is worth a word.
        if let Err(Error::Binary(why)) = decoder.add_tracked(&told, file) {
            eprintln!(
                "warning: {}: {why}; events of its providers may lack their names",
                told.path.escape_debug()
            );
        }
    }
}
