//! A program whose events are described by an instrumentation manifest, `greenhouse.man`.
//!
//! ```text
//!   greenhouse.man ──build.rs──▶ greenhouse.rs: Provider::measured, Provider::watered
//!                            └─▶ greenhouse.etw: names, fields and messages, part of the program
//! ```
//!
//! ```sh
//! cargo build -p traceweir-example-manifest
//! weir record --manifest examples/manifest/greenhouse.man -p Example-Greenhouse \
//!     -o greenhouse.etl -- target/debug/traceweir-example-manifest
//! weir dump greenhouse.etl        # reads the manifest from the program that the trace names
//! ```

mod greenhouse {
    include!(concat!(env!("OUT_DIR"), "/greenhouse.rs"));
}

use greenhouse::example_greenhouse::{Provider, map::valve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greenhouse = Provider::register()?;
    greenhouse.measured("tomatoes", &[21.5, 22.0, 24.25])?;
    if greenhouse.watered_enabled() {
        // Values are computed only if a session enables the event.
        greenhouse.watered("tomatoes", valve::OPEN as u8, 12.5)?;
    }
    Ok(())
}
