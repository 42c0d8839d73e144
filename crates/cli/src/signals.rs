//! Ctrl-C and its relatives, told to a thread that may take its time.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──one byte each──▶ socket pair ──▶ thread ──▶ each(1), each(2), …
//! ```

use std::io::Read;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit status of a program that Ctrl-C ended: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Calls `each` with the number of requests to end so far, from a thread of its own, instead of ending the process.
pub(crate) fn on_interrupt(mut each: impl FnMut(u32) + Send + 'static) -> Result<()> {
    let (mut requests, told) = UnixStream::pair().context("cannot take over Ctrl-C")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let told = told.try_clone().context("cannot take over Ctrl-C")?;
        signal_hook::low_level::pipe::register(signal, told).context("cannot take over Ctrl-C")?;
    }
    let wait = move || {
        let mut byte = [0];
        let mut count = 0;
        while requests.read_exact(&mut byte).is_ok() {
            count += 1;
            each(count);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("cannot take over Ctrl-C")?;
    Ok(())
}
