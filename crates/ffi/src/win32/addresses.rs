//! Text of IP addresses: `RtlIpv4AddressToString` and `RtlIpv6AddressToString`, and of addresses
//! with a port: `RtlIpv4AddressToStringEx` and `RtlIpv6AddressToStringEx`.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::text::{self, TextUnit};
use crate::{boundary, ptr};

/// Units of the longest text of an IPv4 address with its terminator.
const IPV4_UNITS: usize = 16;
/// Units of the longest text of an IPv6 address with its terminator.
const IPV6_UNITS: usize = 46;

// NTSTATUS codes.
const STATUS_SUCCESS: i32 = 0;
const STATUS_INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();

/// Formats an IPv6 address: the first longest row of zero groups becomes `::`, and the last four
/// bytes of an address that contains one of IPv4 (mapped, compatible, translated or ISATAP) are
/// decimal.
fn format_ipv6(bytes: [u8; 16]) -> String {
    let groups = Ipv6Addr::from(bytes).segments();
    let contains_ipv4 = match groups {
        [0, 0, 0, 0, 0, 0, high, _] => high != 0,
        [0, 0, 0, 0, 0, 0xFFFF, ..] | [0, 0, 0, 0, 0xFFFF, 0, ..] => true,
        // The bit for a global identifier may be set.
        [.., universal, 0x5EFE, _, _] => universal & 0xFDFF == 0,
        _ => false,
    };
    let hexadecimal = groups.get(..if contains_ipv4 { 6 } else { 8 }).unwrap_or_default();
    let mut longest = 0..0;
    let mut start = 0_usize;
    for row in hexadecimal.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
        let end = start.saturating_add(row.len());
        if row.first() == Some(&0) && row.len() > 1 && row.len() > longest.len() {
            longest = start..end;
        }
        start = end;
    }
    let mut out = String::new();
    for (index, group) in hexadecimal.iter().enumerate() {
        if longest.contains(&index) {
            if index == longest.start {
                out.push_str("::");
            }
            continue;
        }
        if !out.is_empty() && !out.ends_with(':') {
            out.push(':');
        }
        let _ = write!(out, "{group:x}");
    }
    if let (true, [.., a, b, c, d]) = (contains_ipv4, bytes) {
        let separator = if out.ends_with(':') { "" } else { ":" };
        let _ = write!(out, "{separator}{}", Ipv4Addr::new(a, b, c, d));
    }
    out
}

/// Stores the text of an address, and returns the address of its terminator.
///
/// # Safety
///
/// `address` is NULL or has `N` bytes; `to` is NULL or has `units` units.
unsafe fn write_address<U: TextUnit, const N: usize>(
    address: *const [u8; N],
    to: *mut U,
    units: usize,
    format: impl FnOnce([u8; N]) -> String,
) -> *mut U {
    boundary::catch_panic(to, || {
        // SAFETY: the caller passes NULL or a readable `address`.
        let Some(bytes) = (unsafe { ptr::read_value(address) }).filter(|_| !to.is_null()) else {
            return to;
        };
        let formatted = format(bytes);
        // SAFETY: the caller guarantees that `to` has as many units as the longest text.
        unsafe { text::write(to, units, formatted.as_ref()) };
        to.wrapping_add(formatted.len())
    })
}

/// Formats an IPv4 address. Returns the address of the terminator of the text.
///
/// # Safety
///
/// `address` is NULL or has 4 bytes; `to` is NULL or has 16 units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv4AddressToStringW(address: *const [u8; 4], to: *mut u16) -> *mut u16 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_address(address, to, IPV4_UNITS, |bytes| Ipv4Addr::from(bytes).to_string()) }
}

/// Like [`RtlIpv4AddressToStringW`], in ASCII.
///
/// # Safety
///
/// As [`RtlIpv4AddressToStringW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv4AddressToStringA(address: *const [u8; 4], to: *mut u8) -> *mut u8 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_address(address, to, IPV4_UNITS, |bytes| Ipv4Addr::from(bytes).to_string()) }
}

/// Formats an IPv6 address. Returns the address of the terminator of the text.
///
/// # Safety
///
/// `address` is NULL or has 16 bytes; `to` is NULL or has 46 units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv6AddressToStringW(address: *const [u8; 16], to: *mut u16) -> *mut u16 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_address(address, to, IPV6_UNITS, format_ipv6) }
}

/// Like [`RtlIpv6AddressToStringW`], in ASCII.
///
/// # Safety
///
/// As [`RtlIpv6AddressToStringW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv6AddressToStringA(address: *const [u8; 16], to: *mut u8) -> *mut u8 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_address(address, to, IPV6_UNITS, format_ipv6) }
}

/// Formats an IPv4 address and a port, if it is not 0.
fn format_ipv4_endpoint(bytes: [u8; 4], port: u16) -> String {
    let address = Ipv4Addr::from(bytes);
    if port == 0 { address.to_string() } else { format!("{address}:{port}") }
}

/// Formats an IPv6 address with its scope and a port, if they are not 0.
fn format_ipv6_endpoint(bytes: [u8; 16], scope: u32, port: u16) -> String {
    let mut out = format_ipv6(bytes);
    if scope != 0 {
        let _ = write!(out, "%{scope}");
    }
    if port == 0 { out } else { format!("[{out}]:{port}") }
}

/// Stores the text of an address, and the number of its units with the terminator. If it does not
/// fit, only stores the number of units that it needs.
///
/// # Safety
///
/// `address` is NULL or has `N` bytes; `units` is NULL or can be read and written, and then `to` is
/// NULL or has as many units.
unsafe fn write_endpoint<U: TextUnit, const N: usize>(
    address: *const [u8; N],
    to: *mut U,
    units: *mut u32,
    format: impl FnOnce([u8; N]) -> String,
) -> i32 {
    boundary::catch_panic(STATUS_INVALID_PARAMETER, || {
        // SAFETY: the caller passes NULL or a readable `address` and `units`.
        let (Some(bytes), Some(capacity)) = (unsafe { (ptr::read_value(address), ptr::read_value(units)) })
        else {
            return STATUS_INVALID_PARAMETER;
        };
        if to.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let formatted = format(bytes);
        let needed = u32::try_from(formatted.len().saturating_add(1)).unwrap_or(u32::MAX);
        // SAFETY: the caller passes NULL or a writable `units`.
        unsafe { ptr::store(units, needed) };
        if needed > capacity {
            return STATUS_INVALID_PARAMETER;
        }
        // SAFETY: the caller guarantees that `to` has `capacity` units.
        unsafe { text::write(to, capacity as usize, formatted.as_ref()) };
        STATUS_SUCCESS
    })
}

/// Formats an IPv4 address and a port in network byte order.
///
/// # Safety
///
/// `address` is NULL or has 4 bytes; `units` is NULL or can be read and written, and then `to` is
/// NULL or has as many units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv4AddressToStringExW(
    address: *const [u8; 4],
    port: u16,
    to: *mut u16,
    units: *mut u32,
) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_endpoint(address, to, units, |bytes| format_ipv4_endpoint(bytes, u16::from_be(port))) }
}

/// Like [`RtlIpv4AddressToStringExW`], in ASCII.
///
/// # Safety
///
/// As [`RtlIpv4AddressToStringExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv4AddressToStringExA(
    address: *const [u8; 4],
    port: u16,
    to: *mut u8,
    units: *mut u32,
) -> i32 {
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_endpoint(address, to, units, |bytes| format_ipv4_endpoint(bytes, u16::from_be(port))) }
}

/// Formats an IPv6 address with its scope and a port in network byte order.
///
/// # Safety
///
/// `address` is NULL or has 16 bytes; `units` is NULL or can be read and written, and then `to` is
/// NULL or has as many units.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv6AddressToStringExW(
    address: *const [u8; 16],
    scope: u32,
    port: u16,
    to: *mut u16,
    units: *mut u32,
) -> i32 {
    let port = u16::from_be(port);
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_endpoint(address, to, units, |bytes| format_ipv6_endpoint(bytes, scope, port)) }
}

/// Like [`RtlIpv6AddressToStringExW`], in ASCII.
///
/// # Safety
///
/// As [`RtlIpv6AddressToStringExW`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RtlIpv6AddressToStringExA(
    address: *const [u8; 16],
    scope: u32,
    port: u16,
    to: *mut u8,
    units: *mut u32,
) -> i32 {
    let port = u16::from_be(port);
    // SAFETY: the caller fulfils the `# Safety` section.
    unsafe { write_endpoint(address, to, units, |bytes| format_ipv6_endpoint(bytes, scope, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_are_formatted_as_documented() {
        for (address, text) in [
            ("::", "::"),
            ("::1", "::1"),
            ("1::", "1::"),
            ("fe80::1:0:0:2", "fe80::1:0:0:2"),
            ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
            ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
            ("::ffff:10.1.2.3", "::ffff:10.1.2.3"),
            ("::ffff:0:10.1.2.3", "::ffff:0:10.1.2.3"),
            ("::10.1.2.3", "::10.1.2.3"),
            ("fe80::5efe:10.1.2.3", "fe80::5efe:10.1.2.3"),
            ("fe80::200:5efe:10.1.2.3", "fe80::200:5efe:10.1.2.3"),
            ("1:2:3:4:0:5efe:10.1.2.3", "1:2:3:4:0:5efe:10.1.2.3"),
            ("cdcd:cdcd:cdcd:cdcd:cdcd:cdcd:cdcd:cdcd", "cdcd:cdcd:cdcd:cdcd:cdcd:cdcd:cdcd:cdcd"),
        ] {
            let bytes = address.parse::<Ipv6Addr>().unwrap().octets();
            assert_eq!(format_ipv6(bytes), text);
        }
    }
}
