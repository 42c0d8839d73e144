//! Parsers for numbers on the command line, with their error messages.

use std::ops::RangeInclusive;

use anstream::eprintln;
use traceweir_daemon::settings::MAX_SESSIONS;

/// Buffer sizes that a session accepts.
const VALID_BUFFER_KIB: RangeInclusive<u32> = 4..=16384;

/// Parses a buffer size in KiB; [`clamp_buffer_kib`] clamps it later.
pub(super) fn parse_kib(text: &str) -> Result<u32, String> {
    parse_in_range(text, 0, u32::MAX, "a size in whole KiB, such as 64")
}

/// Returns the nearest valid buffer size in KiB, and prints a note if that differs from
/// `requested`. 0 means the default size.
pub(crate) fn clamp_buffer_kib(requested: Option<u32>) -> u32 {
    let Some(requested) = requested.filter(|kib| *kib != 0) else { return 0 };
    let kib = requested.clamp(*VALID_BUFFER_KIB.start(), *VALID_BUFFER_KIB.end());
    if kib != requested {
        eprintln!(
            "note: the buffer size is {kib} KiB, not {requested}: a buffer has {} to {} KiB",
            VALID_BUFFER_KIB.start(),
            VALID_BUFFER_KIB.end()
        );
    }
    kib
}

/// Parses a file size in MiB.
pub(super) fn parse_mib(text: &str) -> Result<u32, String> {
    parse_in_range(text, 1, u32::MAX, "a size in whole MiB, such as 100")
}

pub(super) fn parse_buffer_count(text: &str) -> Result<u32, String> {
    parse_in_range(text, 1, u32::MAX, "a number of buffers, such as 64")
}

/// Parses a timer in seconds; 0 turns it off.
pub(super) fn parse_seconds(text: &str) -> Result<u32, String> {
    parse_in_range(text, 0, u32::MAX, "a time in whole seconds, such as 1")
}

pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    parse_in_range(text, 1, u32::MAX, "the id of a process, such as 1234")
}

/// Parses the maximum number of sessions of a daemon.
pub(super) fn parse_max_sessions(text: &str) -> Result<u32, String> {
    let (least, most) = (*MAX_SESSIONS.start(), *MAX_SESSIONS.end());
    parse_in_range(text, least, most, &format!("a number of sessions from {least} to {most}"))
}

fn parse_in_range(text: &str, least: u32, most: u32, expected: &str) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("give {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_size_is_clamped_to_valid_range() {
        for (requested, kib) in
            [(0, 0), (1, 4), (4, 4), (64, 64), (16384, 16384), (16385, 16384), (u32::MAX, 16384)]
        {
            assert_eq!(clamp_buffer_kib(Some(requested)), kib, "{requested}");
        }
        assert_eq!(clamp_buffer_kib(None), 0);
        assert!(parse_kib("-1").is_err() && parse_kib("many").is_err());
    }
}
