//! Parsers for numbers on the command line, with their error messages.

use std::ops::RangeInclusive;

use anstream::eprintln;
use traceweir_daemon::settings::MAX_SESSIONS;

/// Buffer sizes that a session accepts, in KiB.
const BUFFER_KIB: RangeInclusive<u32> = 4..=16384;

/// Parses a buffer size in KiB; [`buffer_size`] clamps it later.
pub(super) fn kib(text: &str) -> Result<u32, String> {
    number(text, 0, u32::MAX, "whole KiB, such as 64")
}

/// Returns the buffer size in KiB that a session will have: the nearest valid one, with a note if
/// that differs from `asked`. 0 means the default size.
pub(crate) fn buffer_size(asked: Option<u32>) -> u32 {
    let Some(asked) = asked.filter(|kib| *kib != 0) else { return 0 };
    let kib = asked.clamp(*BUFFER_KIB.start(), *BUFFER_KIB.end());
    if kib != asked {
        eprintln!(
            "note: the buffer size is {kib} KiB, not {asked}: a buffer has {} to {} KiB",
            BUFFER_KIB.start(),
            BUFFER_KIB.end()
        );
    }
    kib
}

/// Parses a file size in MiB.
pub(super) fn mib(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "whole MiB, such as 100")
}

/// Parses a number of buffers.
pub(super) fn buffers(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "a number of buffers, such as 64")
}

/// Parses a timer in seconds; 0 turns it off.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    number(text, 0, u32::MAX, "whole seconds, such as 1")
}

/// Parses a process id.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    number(text, 1, u32::MAX, "the id of a process, such as 1234")
}

/// Parses the maximum number of sessions of a daemon.
pub(super) fn sessions(text: &str) -> Result<u32, String> {
    let (least, most) = (*MAX_SESSIONS.start(), *MAX_SESSIONS.end());
    number(text, least, most, &format!("a number of sessions from {least} to {most}"))
}

fn number(text: &str, least: u32, most: u32, wanted: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("give {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_size_is_clamped_to_valid_range() {
        for (asked, kib) in
            [(0, 0), (1, 4), (4, 4), (64, 64), (16384, 16384), (16385, 16384), (u32::MAX, 16384)]
        {
            assert_eq!(buffer_size(Some(asked)), kib, "{asked}");
        }
        assert_eq!(buffer_size(None), 0);
        assert!(kib("-1").is_err() && kib("many").is_err());
    }
}
