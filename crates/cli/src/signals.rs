//! Handles Ctrl-C and similar signals in a thread, because a signal handler may call only few
//! functions.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──one byte each──▶ socket pair ──▶ thread ──▶ on_signal(1), (2), …
//! ```

use std::io::Read;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit status after Ctrl-C: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Calls `on_signal` with the number of signals so far, in a separate thread. The signals no longer
/// end the process.
pub(crate) fn handle_interrupts(mut on_signal: impl FnMut(u32) + Send + 'static) -> Result<()> {
    let (mut receiver, sender) = UnixStream::pair().context("cannot handle Ctrl-C")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let sender = sender.try_clone().context("cannot handle Ctrl-C")?;
        signal_hook::low_level::pipe::register(signal, sender).context("cannot handle Ctrl-C")?;
    }
    let read_signals = move || {
        let mut byte = [0];
        let mut count = 0;
        while receiver.read_exact(&mut byte).is_ok() {
            count += 1;
            on_signal(count);
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(read_signals)
        .context("cannot handle Ctrl-C")?;
    Ok(())
}
