//! The blocks of a pcapng file.
//!
//! ```text
//!   block    u32 type │ u32 length │ body, options │ u32 length again      padded to four bytes
//!   option   u16 code │ u16 length │ value, padded to four bytes           ends with code 0
//!
//!   section header ── interface … ── packet … ── interface … ── statistics for each interface
//! ```
//!
//! An interface is described before its first packet. Times count units of 100 ns since 1970.
//! Texts have a length, so no text can end its option; control characters are escaped.
//!
//! Source: the Internet draft "PCAP Now Generic (pcapng) Capture File Format".

use traceweir_analysis::text::escape;
use traceweir_format::time::FileTime;
use traceweir_format::wire::Put;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// The length of a section that is not known.
const UNKNOWN_LENGTH: u64 = u64::MAX;

// Options of all blocks.
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
// Options of the section header.
const SECTION_APPLICATION: u16 = 4;
// Options of interfaces.
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TEXT: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
// Options of packets.
const PACKET_FLAGS: u16 = 2;
// Options of statistics.
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_LOST_BY_SYSTEM: u16 = 7;

/// The resolution of times: 10⁻⁷ seconds.
const RESOLUTION: u8 = 7;
/// The longest text of an option, in characters.
const MAX_TEXT_CHARS: usize = 2000;

/// The type of a link (`LINKTYPE_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LinkType(pub(super) u16);

impl LinkType {
    pub(super) const ETHERNET: Self = Self(1);
    /// Packets begin with an IPv4 or IPv6 header.
    pub(super) const RAW: Self = Self(101);
    pub(super) const IEEE_802_11: Self = Self(105);
    /// Reserved for private use: packets of an unknown type.
    pub(super) const USER_0: Self = Self(147);
}

/// The direction of a packet, as the flags of a packet block have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Direction {
    #[default]
    Unknown = 0,
    Inbound = 1,
    Outbound = 2,
}

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketBlock<'p> {
    pub(super) interface: u32,
    pub(super) time: FileTime,
    /// The captured bytes.
    pub(super) bytes: &'p [u8],
    /// The length of the packet on the link.
    pub(super) original_length: u32,
    pub(super) direction: Direction,
    pub(super) comment: &'p str,
}

/// Statistics of an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatisticsBlock<'p> {
    pub(super) interface: u32,
    pub(super) start: FileTime,
    pub(super) end: FileTime,
    pub(super) packets: u64,
    /// Number of events that the session lost, if the interface stands for all of them.
    pub(super) lost: Option<u64>,
    pub(super) comment: &'p str,
}

/// Begins a block. Returns where it begins.
fn begin(kind: u32, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u32(kind).put_u32(0);
    start
}

/// Ends a block, and writes its length at both ends.
fn end(start: usize, out: &mut Vec<u8>) {
    out.put_u16(OPTION_END).put_u16(0);
    let length = u32::try_from(out.len().saturating_sub(start).saturating_add(4)).unwrap_or(u32::MAX);
    out.put_u32(length);
    if let Some(field) = out.get_mut(start.saturating_add(4)..start.saturating_add(8)) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.put_u16(code).put_u16(length).put(value);
    pad(out);
}

/// Appends an option with a text, unless the text is empty. This is the one function that writes
/// names.
fn put_text(code: u16, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        let text: String = escape(text).chars().take(MAX_TEXT_CHARS).collect();
        put_option(code, text.as_bytes(), out);
    }
}

/// Returns the units of 100 ns since 1970; 0 for times before.
fn unix_units(time: FileTime) -> u64 {
    u64::try_from(time.unix_ns() / 100).unwrap_or(0)
}

/// Appends a time: the upper half first.
fn put_time(time: FileTime, out: &mut Vec<u8>) {
    let [a, b, c, d, e, f, g, h] = unix_units(time).to_le_bytes();
    out.put(&[e, f, g, h, a, b, c, d]);
}

pub(super) fn put_section_header(application: &str, out: &mut Vec<u8>) {
    let start = begin(SECTION_HEADER, out);
    out.put_u32(BYTE_ORDER_MAGIC).put_u16(1).put_u16(0).put_u64(UNKNOWN_LENGTH);
    put_text(SECTION_APPLICATION, application, out);
    end(start, out);
}

/// Appends the description of an interface; `max_length` is the largest captured length.
pub(super) fn put_interface(link: LinkType, max_length: u32, name: &str, text: &str, out: &mut Vec<u8>) {
    let start = begin(INTERFACE_DESCRIPTION, out);
    out.put_u16(link.0).put_u16(0).put_u32(max_length);
    put_text(INTERFACE_NAME, name, out);
    put_text(INTERFACE_TEXT, text, out);
    put_option(INTERFACE_RESOLUTION, &[RESOLUTION], out);
    end(start, out);
}

pub(super) fn put_packet(packet: &PacketBlock<'_>, out: &mut Vec<u8>) {
    let start = begin(ENHANCED_PACKET, out);
    out.put_u32(packet.interface);
    put_time(packet.time, out);
    let captured = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
    out.put_u32(captured).put_u32(packet.original_length.max(captured)).put(packet.bytes);
    pad(out);
    if packet.direction != Direction::Unknown {
        put_option(PACKET_FLAGS, &(packet.direction as u32).to_le_bytes(), out);
    }
    put_text(OPTION_COMMENT, packet.comment, out);
    end(start, out);
}

pub(super) fn put_statistics(statistics: &StatisticsBlock<'_>, out: &mut Vec<u8>) {
    let start = begin(INTERFACE_STATISTICS, out);
    out.put_u32(statistics.interface);
    put_time(statistics.end, out);
    put_text(OPTION_COMMENT, statistics.comment, out);
    for (code, time) in [(STATISTICS_START, statistics.start), (STATISTICS_END, statistics.end)] {
        let mut value = Vec::with_capacity(8);
        put_time(time, &mut value);
        put_option(code, &value, out);
    }
    put_option(STATISTICS_RECEIVED, &statistics.packets.to_le_bytes(), out);
    if let Some(lost) = statistics.lost {
        put_option(STATISTICS_LOST_BY_SYSTEM, &lost.to_le_bytes(), out);
    }
    end(start, out);
}

#[cfg(test)]
mod tests {
    use traceweir_format::time::UNIX_EPOCH_AS_FILETIME;

    use super::*;

    const ONE_SECOND: FileTime = FileTime(UNIX_EPOCH_AS_FILETIME + 10_000_000);

    #[test]
    fn blocks_have_the_published_bytes() {
        let mut out = Vec::new();
        put_section_header("", &mut out);
        assert_eq!(
            out,
            [
                0x0A, 0x0D, 0x0D, 0x0A, 32, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 255, 255, 255, 255,
                255, 255, 255, 255, 0, 0, 0, 0, 32, 0, 0, 0
            ]
        );
        out.clear();
        put_interface(LinkType::ETHERNET, 0x40000, "a", "", &mut out);
        assert_eq!(
            out,
            [
                1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 2, 0, 1, 0, b'a', 0, 0, 0, 9, 0, 1, 0, 7, 0,
                0, 0, 0, 0, 0, 0, 40, 0, 0, 0
            ]
        );
        out.clear();
        put_packet(
            &PacketBlock {
                interface: 3,
                time: ONE_SECOND,
                bytes: &[0xAA; 5],
                original_length: 9,
                direction: Direction::Outbound,
                comment: "",
            },
            &mut out,
        );
        assert_eq!(
            out,
            [
                6, 0, 0, 0, 52, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x96, 0x98, 0, 5, 0, 0, 0, 9, 0, 0, 0,
                0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0, 0, 0, 2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0
            ]
        );
    }

    #[test]
    fn hostile_text_stays_in_its_option() {
        let text = format!("a\u{202E}\n\0{}", "x".repeat(70_000));
        let mut out = Vec::new();
        put_interface(LinkType::ETHERNET, 0, &text, &text, &mut out);
        let length = u32::from_le_bytes(out[4..8].try_into().unwrap());
        assert_eq!(usize::try_from(length).unwrap(), out.len());
        assert!(!out[20..2000].contains(&b'\n') && out.len() < 10_000);
    }

    #[test]
    fn time_before_1970_is_0() {
        assert_eq!((unix_units(FileTime(0)), unix_units(FileTime(i64::MIN))), (0, 0));
        assert_eq!(unix_units(ONE_SECOND), 10_000_000);
    }
}
