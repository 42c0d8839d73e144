//! Numbers as typed, and what is said where they are none.

use std::ops::RangeInclusive;

use anstream::eprintln;
use traceweir_daemon::settings::MAX_SESSIONS;

/// Kibibytes that a buffer may have.
const BUFFER_KIB: RangeInclusive<u32> = 4..=16384;

/// Kibibytes of a buffer; what is too little or too much is put right later.
pub(super) fn kib(text: &str) -> Result<u32, String> {
    number(text, 0, u32::MAX, "whole KiB, such as 64")
}

/// The size of a buffer as sessions have it: the nearest there is, with a note where it is another than was asked for. 0: the usual one.
pub(crate) fn buffer_size(asked: Option<u32>) -> u32 {
    let Some(asked) = asked.filter(|kib| *kib != 0) else { return 0 };
    let kib = asked.clamp(*BUFFER_KIB.start(), *BUFFER_KIB.end());
    if kib != asked {
        eprintln!(
            "note: a buffer has {} to {} KiB: {kib} it is, not {asked}",
            BUFFER_KIB.start(),
            BUFFER_KIB.end()
        );
    }
    kib
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_buffer_is_the_nearest_there_is() {
        for (asked, kib) in
            [(0, 0), (1, 4), (4, 4), (64, 64), (16384, 16384), (16385, 16384), (u32::MAX, 16384)]
        {
            assert_eq!(buffer_size(Some(asked)), kib, "{asked}");
        }
        assert_eq!(buffer_size(None), 0);
        assert!(kib("-1").is_err() && kib("many").is_err());
    }
}
