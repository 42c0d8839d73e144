//! Handles Ctrl-C and similar signals in a thread, because a signal handler may call only few
//! functions.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──one byte each──▶ socket pair ──▶ thread ──▶ on_signal(1), (2), …
//! ```

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// Exit status after Ctrl-C: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Calls `on_signal` with the number of signals so far, in a separate thread. The signals no longer
/// end the process.
pub(crate) fn handle_interrupts(on_signal: impl FnMut(u32) + Send + 'static) -> Result<()> {
    handle_signals(&[SIGINT, SIGTERM, SIGHUP], on_signal).context("cannot handle Ctrl-C")
}

/// A signal without a meaning of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserSignal {
    First = SIGUSR1 as isize,
    Second = SIGUSR2 as isize,
}

/// Calls `on_signal` for each such signal, in a separate thread.
pub(crate) fn handle_user_signal(signal: UserSignal, on_signal: impl Fn() + Send + 'static) -> Result<()> {
    handle_signals(&[signal as i32], move |_| on_signal()).context("cannot handle signals")
}

/// Calls `on_signal` with the number of these signals so far, in a separate thread.
pub(crate) fn handle_signals(
    signals: &[i32],
    mut on_signal: impl FnMut(u32) + Send + 'static,
) -> io::Result<()> {
    let (mut receiver, sender) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, sender.try_clone()?)?;
    }
    let read_signals = move || {
        let mut byte = [0];
        let mut count = 0;
        while receiver.read_exact(&mut byte).is_ok() {
            count += 1;
            on_signal(count);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(read_signals)?;
    Ok(())
}
