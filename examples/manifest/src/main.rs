//! A program whose events are described by an instrumentation manifest, `greenhouse.man`.
//!
//! ```text
//!   greenhouse.man ──build.rs──▶ greenhouse.rs: Provider::measured, Provider::watered
//!                            └─▶ greenhouse.etw: names, fields and messages, which travel in the program
//! ```
//!
//! ```sh
//! cargo build -p traceweir-example-manifest
//! weir record --manifest examples/manifest/greenhouse.man -p Example-Greenhouse -o greenhouse.etl -- target/debug/traceweir-example-manifest
//! weir dump greenhouse.etl        # decoded, though nothing was registered: the trace names the program
//! ```

mod greenhouse {
    include!(concat!(env!("OUT_DIR"), "/greenhouse.rs"));
}

use greenhouse::example_greenhouse::{Provider, map::valve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greenhouse = Provider::register()?;
    greenhouse.measured("tomatoes", &[21.5, 22.0, 24.25])?;
    if greenhouse.watered_enabled() {
        // Only now is it worth to compute what the event says.
        greenhouse.watered("tomatoes", valve::OPEN as u8, 12.5)?;
    }
    Ok(())
}
