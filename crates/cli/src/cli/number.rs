//! Parsers for numbers on the command line, with their error messages.

use std::ops::RangeInclusive;

use anstream::eprintln;
use traceweir_daemon::settings::MAX_SESSIONS;

const UNITS_100NS_PER_SECOND: u32 = 10_000_000;
/// Buffer sizes that a session accepts.
const VALID_BUFFER_KIB: RangeInclusive<u32> = 4..=16384;

/// Parses a buffer size in KiB; [`clamp_buffer_kib`] clamps it later.
pub(super) fn parse_kib(text: &str) -> Result<u32, String> {
    parse_in_range(text, 0, u32::MAX, "a size in whole KiB, such as 64")
}

/// Returns the nearest valid buffer size in KiB, and warns if that differs from
/// `requested`. 0 means the default size.
pub(crate) fn clamp_buffer_kib(requested: Option<u32>) -> u32 {
    let Some(requested) = requested.filter(|kib| *kib != 0) else { return 0 };
    let kib = requested.clamp(*VALID_BUFFER_KIB.start(), *VALID_BUFFER_KIB.end());
    if kib != requested {
        eprintln!(
            "warning: the buffer size is {kib} KiB, not {requested}: a buffer has {} to {} KiB",
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

/// A size as typed: a number without a unit, which means MiB in most places, or KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeLimit {
    Bare(u32),
    Kib(u64),
}

impl SizeLimit {
    /// Returns the size in KiB; a number without a unit is in MiB.
    pub(crate) fn kib(self) -> u64 {
        match self {
            Self::Bare(mib) => u64::from(mib) << 10,
            Self::Kib(kib) => kib,
        }
    }
}

/// Parses a size: 100 (MiB), 512K, 100M or 2G.
pub(super) fn parse_size(text: &str) -> Result<SizeLimit, String> {
    const EXPECTED: &str = "a size such as 100 (MiB), 512K, 100M or 2G";
    let text = text.trim();
    if let Ok(mib) = parse_in_range(text, 1, u32::MAX, EXPECTED) {
        return Ok(SizeLimit::Bare(mib));
    }
    let shift = match text.chars().last() {
        Some('k' | 'K') => 0,
        Some('m' | 'M') => 10,
        Some('g' | 'G') => 20,
        _ => return Err(format!("give {EXPECTED}")),
    };
    let digits = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    let number = parse_in_range(digits, 1, u32::MAX, EXPECTED)?;
    Ok(SizeLimit::Kib(u64::from(number) << shift))
}

/// Parses a sampling frequency, and returns the interval in units of 100 ns.
pub(super) fn parse_frequency(text: &str) -> Result<u32, String> {
    let hz = parse_in_range(text, 1, 1_000_000, "samples per second, such as 999")?;
    Ok(UNITS_100NS_PER_SECOND / hz)
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
    fn sizes_take_units_and_bare_numbers_are_mib() {
        for (text, kib) in
            [("1", 1 << 10), ("100", 100 << 10), ("512K", 512), ("64m", 64 << 10), ("2G", 2 << 20)]
        {
            assert_eq!(parse_size(text).map(SizeLimit::kib), Ok(kib), "{text}");
        }
        for wrong in ["", "0", "K", "-1M", "1T", "1.5G", "99999999999", "0K", "é"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!([parse_frequency("1000"), parse_frequency("99")], [Ok(10_000), Ok(101_010)]);
        assert!(parse_frequency("0").is_err() && parse_frequency("1ms").is_err());
    }

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
