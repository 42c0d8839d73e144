//! Numbers as typed, and what is said where they are none.

use traceweir_daemon::settings::MAX_SESSIONS;

/// Kibibytes of a buffer.
pub(super) fn kib(text: &str) -> Result<u32, String> {
    number(text, 4, 16384, "whole KiB from 4 to 16384, such as 64")
}

/// Mebibytes of a file.
pub(super) fn mib(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "whole MiB, such as 100")
}

/// A number of buffers.
pub(super) fn buffers(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "a number of buffers, such as 64")
}

/// Seconds of a timer; 0 is none.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    number(text, 0, u32::MAX, "whole seconds, such as 1")
}

/// The id of a process.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "the id of a process, such as 1234")
}

/// The most sessions of a daemon.
pub(super) fn sessions(text: &str) -> Result<u32, String> {
    let (least, most) = (*MAX_SESSIONS.start(), *MAX_SESSIONS.end());
    number(text, least, most, &format!("a number of sessions from {least} to {most}"))
}

fn number(text: &str, least: u32, most: u32, wanted: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("give {wanted}"))
}
