//! Handles Ctrl-C and similar signals in a thread, where any code may run.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──one byte each──▶ socket pair ──▶ thread ──▶ each(1), each(2), …
//! ```

use std::io::Read;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit status after Ctrl-C: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Calls `each` with the number of signals so far, in its own thread, instead of ending the
/// process.
pub(crate) fn on_interrupt(mut each: impl FnMut(u32) + Send + 'static) -> Result<()> {
    let (mut requests, sender) = UnixStream::pair().context("cannot handle Ctrl-C")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let sender = sender.try_clone().context("cannot handle Ctrl-C")?;
        signal_hook::low_level::pipe::register(signal, sender).context("cannot handle Ctrl-C")?;
    }
    let wait = move || {
        let mut byte = [0];
        let mut count = 0;
        while requests.read_exact(&mut byte).is_ok() {
            count += 1;
            each(count);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("cannot handle Ctrl-C")?;
    Ok(())
}
