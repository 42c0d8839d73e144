//! Formats network addresses, SIDs and dates.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use traceweir_format::time::{Civil, FileTime};
use traceweir_format::wire::{chunk, u16_at, u32_at};

use super::number::push_decimal;

/// The address family IPv4, on Windows and Linux.
const AF_INET: u16 = 2;
/// The address family IPv6 on Windows.
const AF_INET6_WINDOWS: u16 = 23;
/// The address family IPv6 on Linux. On Windows, 10 is a family without addresses of this form
/// (CCITT protocols).
const AF_INET6_LINUX: u16 = 10;
/// The number of 100-nanosecond units in a millisecond.
const UNITS_PER_MILLISECOND: u32 = 10_000;
/// The number of 100-nanosecond units in a second.
const UNITS_PER_SECOND: u32 = 10_000_000;

pub(super) fn push_ipv4(bytes: [u8; 4], out: &mut Vec<u8>) {
    let _ = write!(out, "{}", Ipv4Addr::from(bytes));
}

/// Appends an IPv6 address; returns `false` if there are fewer than 16 bytes.
pub(super) fn push_ipv6(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(address) = chunk::<16>(bytes, 0) else { return false };
    let _ = write!(out, "{}", Ipv6Addr::from(*address));
    true
}

/// Appends a SOCKADDR as `address:port`; returns `false` if it is too short or of a family other
/// than IPv4 and IPv6.
pub(super) fn push_socket_address(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let port = chunk::<2>(bytes, 2).map_or(0, |p| u16::from_be_bytes(*p));
    match (u16_at(bytes, 0), chunk::<4>(bytes, 4), chunk::<16>(bytes, 8)) {
        (AF_INET, Some(v4), _) => {
            push_ipv4(*v4, out);
        }
        (AF_INET6_WINDOWS | AF_INET6_LINUX, _, Some(v6)) => {
            out.push(b'[');
            push_ipv6(v6, out);
            out.push(b']');
        }
        _ => return false,
    }
    out.push(b':');
    push_decimal(port, out);
    true
}

/// Appends a SID as `S-1-5-…`; the authority is one big-endian number.
pub(super) fn push_sid(bytes: &[u8], out: &mut Vec<u8>) {
    let (revision, count) = (bytes.first().copied().unwrap_or(0), bytes.get(1).copied().unwrap_or(0));
    let authority =
        bytes.get(2..8).unwrap_or_default().iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    out.extend_from_slice(b"S-");
    push_decimal(revision, out);
    out.push(b'-');
    push_decimal(authority, out);
    for index in 0..usize::from(count) {
        let at = index.saturating_mul(4).saturating_add(8);
        if at >= bytes.len() {
            break;
        }
        out.push(b'-');
        push_decimal(u32_at(bytes, at), out);
    }
}

/// Converts a SYSTEMTIME to a date; returns `None` if the SYSTEMTIME is not valid.
pub(super) fn parse_system_time(words: [u16; 8]) -> Option<Civil> {
    let [year, month, _, day, hour, minute, second, milliseconds] = words;
    let to_u8 = |n: u16| u8::try_from(n).ok();
    let civil = Civil {
        year: i32::from(year),
        month: to_u8(month)?,
        day: to_u8(day)?,
        hour: to_u8(hour).filter(|h| *h < 24)?,
        minute: to_u8(minute).filter(|m| *m < 60)?,
        second: to_u8(second).filter(|s| *s < 60)?,
        units: u32::from(milliseconds)
            .checked_mul(UNITS_PER_MILLISECOND)
            .filter(|u| *u < UNITS_PER_SECOND)?,
    };
    FileTime::from_civil(&civil).map(|_| civil)
}

/// Appends a date in the form of ISO 8601, with `Z` if `is_utc`.
pub(super) fn push_date(civil: &Civil, is_utc: bool, out: &mut Vec<u8>) {
    let two_digits = |n: u8| [b'0'.saturating_add(n / 10), b'0'.saturating_add(n % 10)];
    // The fast path, for years of four digits.
    if (1000..=9999).contains(&civil.year) {
        push_decimal(civil.year, out);
        for (separator, part) in [
            (b'-', civil.month),
            (b'-', civil.day),
            (b'T', civil.hour),
            (b':', civil.minute),
            (b':', civil.second),
        ] {
            out.push(separator);
            out.extend_from_slice(&two_digits(part));
        }
        out.push(b'.');
        let mut digits = [b'0'; 7];
        let mut units = civil.units;
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.saturating_add(u8::try_from(units % 10).unwrap_or(0));
            units /= 10;
        }
        out.extend_from_slice(&digits);
    } else {
        let _ = write!(out, "{civil}");
    }
    if is_utc {
        out.push(b'Z');
    }
}
