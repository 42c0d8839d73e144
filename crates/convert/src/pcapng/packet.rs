//! The payloads of events that hold packets.
//!
//! ```text
//!   Microsoft-Windows-NDIS-PacketCapture
//!   1001 fragment     0 u32 miniport │ 4 u32 lower layer │ 8 u32 size │ bytes
//!   1002 metadata     0 u32 miniport │ 4 u32 lower layer │ 8 u32 size │ what a wireless adapter says
//!   1003 of a switch  0 u32 miniport │ 4 u32 lower layer │ 8 u32 source port │ names of port and
//!                     adapter, type │ u32 count, 8 bytes each │ u32 size, bytes │ u32 size, details
//!
//!   Microsoft-Windows-PktMon
//!   160 frame, 170 dropped frame
//!                     0 u64 group │ 8 u16 number │ A u16 appearance │ C u16 direction │ E u16 type
//!                     10 u16 component │ 12 u16 edge │ 14 u16 filter │ 16 u32 drop reason
//!                     1A u32 drop location │ 1E u16 original size │ 20 u16 logged size │ bytes
//! ```
//!
//! Keywords of the first provider say whether a fragment begins or ends a packet, its direction and
//! its link.
//!
//! Source: the manifest of the first provider; Microsoft's page "NetMon parsers for PacketMon" for
//! the second; "DOT11_EXTSTA_RECV_CONTEXT" and "NDIS_NET_BUFFER_LIST_8021Q_INFO" (Documented).

use std::fmt::Write as _;

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::text::chars16;
use traceweir_format::wire::{Cursor, u8_at, u16_at, u32_at, u64_at};

use super::block::{Direction, LinkType};

pub(super) const NDIS_CAPTURE: Guid = Guid::from_u128(0x2ED6006E_4729_4609_B423_3EE7BCD678EF);
pub(super) const PACKET_MONITOR: Guid = Guid::from_u128(0x4D4F80D9_C8BD_4D73_BB5B_19C90402C5AC);
/// Microsoft-Windows-Kernel-Network, whose events count bytes and hold no packets.
pub(super) const KERNEL_NETWORK: Guid = Guid::from_u128(0x7DD42A49_5329_4832_8DFD_43D979153A88);

const FRAGMENT: u16 = 1001;
const METADATA: u16 = 1002;
const SWITCH_FRAGMENT: u16 = 1003;
const FRAME: u16 = 160;
const DROPPED_FRAME: u16 = 170;

const KEYWORD_WIRELESS_WAN: u64 = 0x200;
const KEYWORD_802_11: u64 = 0x1_0000;
const KEYWORD_START: u64 = 0x4000_0000;
const KEYWORD_END: u64 = 0x8000_0000;
const KEYWORD_SEND: u64 = 0x1_0000_0000;
const KEYWORD_RECEIVE: u64 = 0x2_0000_0000;

/// The longest name that is kept, in characters.
const MAX_NAME_CHARS: usize = 256;
/// Size of what a wireless adapter says about a packet.
const WIRELESS_BYTES: usize = 48;
/// Index of VLAN and priority in the details of a packet, which are a list of pointers.
const VLAN_INDEX: usize = 4;
/// The IEEE 802.11 flag of an encrypted frame, in its second byte.
const PROTECTED: u8 = 0x40;

/// The adapter or component that a packet was captured at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CapturePoint {
    /// Indexes of the adapter and of the layer below the capture.
    Adapter { miniport: u32, lower: u32 },
    /// A port of a virtual switch.
    SwitchPort { lower: u32, port: u32, name: String },
    /// A component of the packet monitor.
    Component(u16),
}

/// A fragment of a packet, or a whole packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment<'b> {
    pub(super) point: CapturePoint,
    pub(super) link: LinkType,
    pub(super) direction: Direction,
    pub(super) bytes: &'b [u8],
    pub(super) is_start: bool,
    pub(super) is_end: bool,
    /// What the event says besides, for the comment.
    pub(super) details: String,
}

/// A packet at one component of the packet monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MonitoredFrame<'b> {
    /// Group and number, which are the same at all components.
    pub(super) id: (u64, u16),
    pub(super) appearance: u16,
    pub(super) direction: Direction,
    pub(super) link: LinkType,
    pub(super) component: u16,
    pub(super) drop: Option<Drop>,
    pub(super) original_length: u16,
    pub(super) bytes: &'b [u8],
}

/// Where and why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drop {
    pub(super) component: u16,
    pub(super) reason: u32,
    pub(super) location: u32,
}

/// What an event with packets holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PacketEvent<'b> {
    Fragment(Fragment<'b>),
    /// What an adapter says about its next packet.
    Wireless {
        point: CapturePoint,
        text: String,
    },
    Frame(MonitoredFrame<'b>),
    /// The event is too short for its type.
    Malformed,
}

/// Returns whether a record may hold a packet.
pub(super) fn is_packet_event(record: &Record<'_>) -> bool {
    let id = record.descriptor().id;
    match record.provider() {
        NDIS_CAPTURE => matches!(id, FRAGMENT | METADATA | SWITCH_FRAGMENT),
        PACKET_MONITOR => matches!(id, FRAME | DROPPED_FRAME),
        _ => false,
    }
}

/// Parses an event for which [`is_packet_event`] holds.
pub(super) fn parse<'b>(record: &Record<'b>) -> PacketEvent<'b> {
    let (payload, descriptor) = (record.payload(), record.descriptor());
    let parsed = match descriptor.id {
        FRAGMENT => parse_fragment(payload, descriptor.keyword),
        METADATA => parse_metadata(payload),
        SWITCH_FRAGMENT => parse_switch_fragment(payload, descriptor.keyword, record.pointer_size()),
        _ => parse_frame(payload, descriptor.id == DROPPED_FRAME).map(PacketEvent::Frame),
    };
    parsed.unwrap_or(PacketEvent::Malformed)
}

fn link_of(keyword: u64) -> LinkType {
    match keyword {
        _ if keyword & KEYWORD_802_11 != 0 => LinkType::IEEE_802_11,
        _ if keyword & KEYWORD_WIRELESS_WAN != 0 => LinkType::RAW,
        _ => LinkType::ETHERNET,
    }
}

fn direction_of(keyword: u64) -> Direction {
    match keyword {
        _ if keyword & KEYWORD_SEND != 0 => Direction::Outbound,
        _ if keyword & KEYWORD_RECEIVE != 0 => Direction::Inbound,
        _ => Direction::Unknown,
    }
}

fn parse_fragment(payload: &[u8], keyword: u64) -> Option<PacketEvent<'_>> {
    let (miniport, lower) = (u32_at(payload, 0), u32_at(payload, 4));
    let size = usize::try_from(u32_at(payload, 8)).ok()?;
    Some(PacketEvent::Fragment(Fragment {
        point: CapturePoint::Adapter { miniport, lower },
        link: link_of(keyword),
        direction: direction_of(keyword),
        bytes: payload.get(12..)?.get(..size)?,
        is_start: keyword & KEYWORD_START != 0,
        is_end: keyword & KEYWORD_END != 0,
        details: String::new(),
    }))
}

fn parse_metadata(payload: &[u8]) -> Option<PacketEvent<'_>> {
    let point = CapturePoint::Adapter { miniport: u32_at(payload, 0), lower: u32_at(payload, 4) };
    let size = usize::try_from(u32_at(payload, 8)).ok()?;
    let context = payload.get(12..)?.get(..size)?;
    let mut text = String::new();
    if context.len() == WIRELESS_BYTES {
        let signal = u32_at(context, 20).cast_signed();
        let (channel, rate) = (u32_at(context, 12), u32::from(u8_at(context, 24)));
        // The rate counts 500 kbit/s.
        let (whole, half) = (rate / 2, if rate % 2 == 0 { "" } else { ".5" });
        let _ = write!(text, "{channel} MHz, {signal} dBm, {whole}{half} Mbit/s");
        if let Some(standard) = wireless_standard(u32_at(context, 8)) {
            let _ = write!(text, ", {standard}");
        }
    }
    Some(PacketEvent::Wireless { point, text })
}

/// Returns the name of a DOT11_PHY_TYPE.
const fn wireless_standard(kind: u32) -> Option<&'static str> {
    Some(match kind {
        4 => "802.11a",
        5 => "802.11b",
        6 => "802.11g",
        7 => "802.11n",
        8 => "802.11ac",
        9 => "802.11ad",
        10 => "802.11ax",
        _ => return None,
    })
}

fn parse_switch_fragment(payload: &[u8], keyword: u64, pointer_size: usize) -> Option<PacketEvent<'_>> {
    let mut cursor = Cursor::new("packet of a switch", payload);
    let (_, lower, port) = (cursor.u32().ok()?, cursor.u32().ok()?, cursor.u32().ok()?);
    let port_name = to_text(cursor.wide_z());
    let (adapter, kind) = (to_text(cursor.wide_z()), to_text(cursor.wide_z()));
    let destinations = cursor.u32().ok()?;
    cursor.bytes(usize::try_from(destinations).ok()?.checked_mul(8)?).ok()?;
    let size = cursor.u32().ok()?;
    let bytes = cursor.bytes(usize::try_from(size).ok()?).ok()?;
    let mut details = format!("switch port {port} of {kind} {adapter}");
    // The details may be missing.
    let size = cursor.u32().unwrap_or(0);
    let list = usize::try_from(size).ok().and_then(|size| cursor.bytes(size).ok()).unwrap_or_default();
    let vlan = u32_at(list, VLAN_INDEX.checked_mul(pointer_size)?);
    if vlan != 0 {
        let _ = write!(details, ", VLAN {} priority {}", vlan >> 4 & 0xFFF, vlan & 7);
    }
    Some(PacketEvent::Fragment(Fragment {
        point: CapturePoint::SwitchPort { lower, port, name: port_name },
        link: link_of(keyword),
        direction: direction_of(keyword),
        bytes,
        is_start: keyword & KEYWORD_START != 0,
        is_end: keyword & KEYWORD_END != 0,
        details,
    }))
}

fn to_text(utf16: &[u8]) -> String {
    chars16(utf16).take(MAX_NAME_CHARS).collect()
}

fn parse_frame(payload: &[u8], is_drop: bool) -> Option<MonitoredFrame<'_>> {
    let logged = usize::from(u16_at(payload, 0x20));
    let bytes = payload.get(0x22..)?.get(..logged)?;
    let component = u16_at(payload, 0x10);
    let (reason, location) = (u32_at(payload, 0x16), u32_at(payload, 0x1A));
    Some(MonitoredFrame {
        id: (u64_at(payload, 0), u16_at(payload, 8)),
        appearance: u16_at(payload, 0xA),
        direction: match u16_at(payload, 0xC) {
            // In, receive, ingress.
            1 | 3 | 5 => Direction::Inbound,
            // Out, transmit, egress.
            2 | 4 | 6 => Direction::Outbound,
            _ => Direction::Unknown,
        },
        link: match u16_at(payload, 0xE) {
            1 => LinkType::ETHERNET,
            2 => LinkType::IEEE_802_11,
            3 => LinkType::RAW,
            _ if begins_with_ip(bytes) => LinkType::RAW,
            _ => LinkType::USER_0,
        },
        component,
        drop: is_drop.then_some(Drop { component, reason, location }),
        original_length: u16_at(payload, 0x1E),
        bytes,
    })
}

/// Returns whether bytes look like an IPv4 or IPv6 header.
fn begins_with_ip(bytes: &[u8]) -> bool {
    let length =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|b| u16::from_be_bytes(*b));
    match u8_at(bytes, 0) >> 4 {
        4 => length(2).is_some_and(|total| total >= 20),
        6 => length(4).is_some() && bytes.len() >= 40,
        _ => false,
    }
}

/// Clears the mark of encryption in an 802.11 frame: captures hold frames after decryption.
pub(super) fn clear_protection(frame: &mut [u8]) {
    if let Some(flags) = frame.get_mut(1) {
        *flags &= !PROTECTED;
    }
}

/// Returns the length of a packet on its link by its IP header, which a truncated capture keeps;
/// 0 if the packet does not begin with an IP header.
pub(super) fn length_by_header(link: LinkType, bytes: &[u8]) -> u32 {
    const IPV4: [u8; 2] = [0x08, 0x00];
    const IPV6: [u8; 2] = [0x86, 0xDD];
    const VLAN_TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xA8]];
    let mut at = 0_usize;
    if link == LinkType::ETHERNET {
        at = 14;
        let mut kind = bytes.get(12..14);
        while let Some([a, b]) = kind
            && VLAN_TAGS.contains(&[*a, *b])
            && at < 22
        {
            kind = bytes.get(at.saturating_add(2)..at.saturating_add(4));
            at = at.saturating_add(4);
        }
        if kind != Some(&IPV4[..]) && kind != Some(&IPV6[..]) {
            return 0;
        }
    } else if link != LinkType::RAW {
        return 0;
    }
    let header = bytes.get(at..).unwrap_or_default();
    let length =
        |at: usize| header.get(at..).and_then(|rest| rest.first_chunk()).map(|b| u16::from_be_bytes(*b));
    let ip_length = match u8_at(header, 0) >> 4 {
        4 => length(2).filter(|length| *length > 0).map(u32::from),
        6 => length(4).filter(|length| *length > 0).map(|length| u32::from(length).saturating_add(40)),
        _ => None,
    };
    let link_bytes = u32::try_from(at).unwrap_or(0);
    ip_length.map_or(0, |length| length.saturating_add(link_bytes))
}

/// Returns the name of a reason for a drop. Source: as for the layout.
pub(super) const fn drop_reason(reason: u32) -> Option<&'static str> {
    Some(match reason {
        0 => "unspecified",
        1 => "invalid data",
        2 => "invalid packet",
        3 => "insufficient resources",
        4 => "adapter not ready",
        5 => "media disconnected",
        6 => "not accepted",
        7 => "device busy",
        8 => "filtered",
        9 => "filtered VLAN",
        10 => "unauthorized VLAN",
        11 => "unauthorized MAC",
        12 => "failed security policy",
        13 => "failed private VLAN setting",
        14 => "dropped by QoS",
        15 => "dropped by IPsec",
        16 => "spoofed MAC address",
        17 => "failed DHCP guard",
        18 => "failed router guard",
        19 => "bridge inside a virtual machine",
        20 => "other virtual subnet",
        21 => "missing extension of the switch",
        22 => "failed switch configuration",
        23 => "MTU mismatch",
        24 => "native forwarding required",
        25 => "invalid VLAN format",
        26 => "invalid destination MAC",
        27 => "invalid source MAC",
        28 => "first buffer too small",
        29 => "network virtualization error",
        30 => "storm limit exceeded",
        31 => "ICMP request injected by the switch",
        32 => "failed to update the destinations",
        33 => "destination adapter disabled",
        34 => "not in the packet filter of the destination",
        35 => "data flow of the switch disabled",
        36 => "untagged traffic not allowed",
        37 => "invalid queue",
        38 => "adapter in low power state",
        101 => "adapter paused",
        102 => "adapter reset in progress",
        103 => "send aborted",
        104 => "unsupported EtherType",
        201 => "microport error",
        202 => "virtual function not ready",
        203 => "microport not ready",
        204 => "VMBus error",
        _ => return None,
    })
}
