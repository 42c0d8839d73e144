//! Reads events of the network and of files.
//!
//! ```text
//!   TcpIp, UdpIp         PID, size, daddr, saddr, dport, sport ──▶ NetworkTransfer
//!   FileIo               IrpPtr, TTID, FileObject, FileKey, IoSize, OpenPath ──▶ FileFields
//!   FileIo/OperationEnd  IrpPtr, ExtraInfo ──▶ FileFields
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;

use super::event::ReportEvent;
use super::io_event::{FileOperationKind, NetworkKind, NetworkProtocol, NetworkTransfer};

/// Maximum number of characters of a path.
const MAX_PATH_CHARS: usize = 400;

/// Returns whether a hook id is that of a network event in a report.
pub fn is_network_event(hook: u16) -> bool {
    network_kind(hook).is_some()
}

/// Returns whether a hook id is that of a completed disk operation.
pub const fn is_disk_event(hook: u16) -> bool {
    matches!(
        hook,
        hook::DISK_READ
            | hook::DISK_WRITE
            | hook::DISK_FLUSH
            | hook::OPTICAL_READ
            | hook::OPTICAL_WRITE
            | hook::OPTICAL_FLUSH
    )
}

/// Returns whether a hook id is that of a file operation or its end.
pub fn is_file_event(hook: u16) -> bool {
    hook == hook::FILE_OPERATION_END || FileOperationKind::from_hook(hook).is_some()
}

/// Returns the protocol and kind of a network event, for IPv4 and IPv6.
fn network_kind(hook: u16) -> Option<(NetworkProtocol, NetworkKind)> {
    const EVENTS: [(u16, NetworkProtocol, NetworkKind); 10] = [
        (hook::TCP_SEND, NetworkProtocol::Tcp, NetworkKind::Send),
        (hook::TCP_RECEIVE, NetworkProtocol::Tcp, NetworkKind::Receive),
        (hook::TCP_CONNECT, NetworkProtocol::Tcp, NetworkKind::Connect),
        (hook::TCP_ACCEPT, NetworkProtocol::Tcp, NetworkKind::Accept),
        (hook::TCP_DISCONNECT, NetworkProtocol::Tcp, NetworkKind::Disconnect),
        (hook::TCP_RETRANSMIT, NetworkProtocol::Tcp, NetworkKind::Retransmit),
        (hook::TCP_FAIL, NetworkProtocol::Tcp, NetworkKind::Fail),
        (hook::UDP_SEND, NetworkProtocol::Udp, NetworkKind::Send),
        (hook::UDP_RECEIVE, NetworkProtocol::Udp, NetworkKind::Receive),
        (hook::UDP_FAIL, NetworkProtocol::Udp, NetworkKind::Fail),
    ];
    let is_event = |event: &&(u16, NetworkProtocol, NetworkKind)| {
        // A failure names no addresses, so it has no event for IPv6.
        hook == event.0 || (event.2 != NetworkKind::Fail && hook == hook::to_ipv6(event.0))
    };
    EVENTS.iter().find(is_event).map(|(_, protocol, kind)| (*protocol, *kind))
}

#[derive(Default)]
struct NetworkFields {
    pid: Option<u32>,
    bytes: u64,
    source: (Option<IpAddr>, u16),
    destination: (Option<IpAddr>, u16),
}

impl<'p> Visitor<'p> for NetworkFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        // Ports are in network byte order.
        let to_port = || value.bits().and_then(|bits| u16::try_from(bits).ok()).unwrap_or(0).swap_bytes();
        match &*field.name {
            "PID" => self.pid = value.bits().and_then(|pid| u32::try_from(pid).ok()),
            "size" => self.bytes = value.bits().unwrap_or(0),
            "saddr" => self.source.0 = parse_address(&value),
            "daddr" => self.destination.0 = parse_address(&value),
            "sport" => self.source.1 = to_port(),
            "dport" => self.destination.1 = to_port(),
            _ => {}
        }
    }
}

/// Returns an address: four bytes as a number, or 16 bytes, in network byte order.
fn parse_address(value: &Value<'_>) -> Option<IpAddr> {
    match value {
        Value::U32(bits) => Some(Ipv4Addr::from(bits.to_le_bytes()).into()),
        Value::Bytes(bytes) => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical()),
        _ => None,
    }
}

/// Reads an event of TCP or UDP.
pub(super) fn read_network_event(
    walker: &mut Walker,
    hook: u16,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> Option<NetworkTransfer> {
    let (protocol, kind) = network_kind(hook)?;
    let mut fields = NetworkFields::default();
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
    let to_end = |(address, port): (Option<IpAddr>, u16)| Some(SocketAddr::new(address?, port));
    // The source of a UDP packet is its sender. The destination of TCP is always the remote end.
    let (local, remote) = if protocol == NetworkProtocol::Udp && kind == NetworkKind::Receive {
        (fields.destination, fields.source)
    } else {
        (fields.source, fields.destination)
    };
    let pid = fields.pid.filter(|pid| *pid != NO_ID);
    let ends = to_end(local).zip(to_end(remote));
    Some(NetworkTransfer { protocol, kind, bytes: fields.bytes, pid, ends })
}

/// The fields of the start or the end of a file operation; 0 or empty if the event does not have them.
#[derive(Clone, Debug, Default)]
pub struct FileFields {
    /// The number that start and end of an operation share.
    pub irp: u64,
    /// The thread, if the event contains it.
    pub thread: Option<u32>,
    /// The number of the open file.
    pub file_object: u64,
    /// The number of the file.
    pub file_key: u64,
    /// The number of bytes that the caller requested.
    pub requested_bytes: u64,
    /// The number of transferred bytes, at the end of a read or write.
    pub transferred_bytes: u64,
    /// The path.
    pub path: String,
}

impl<'p> Visitor<'p> for FileFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let to_number = || value.bits().unwrap_or(0);
        match &*field.name {
            "IrpPtr" => self.irp = to_number(),
            "TTID" => self.thread = u32::try_from(to_number()).ok(),
            "FileObject" => self.file_object = to_number(),
            "FileKey" => self.file_key = to_number(),
            "IoSize" => self.requested_bytes = to_number(),
            "ExtraInfo" => self.transferred_bytes = to_number(),
            "OpenPath" => {
                let mut path = Vec::new();
                push_text(field, &value, Style::default(), &mut path);
                self.path = String::from_utf8_lossy(&path).chars().take(MAX_PATH_CHARS).collect();
            }
            _ => {}
        }
    }
}

/// Reads the start or the end of a file operation.
pub(super) fn read_file_fields(
    walker: &mut Walker,
    record: &Record<'_>,
    schema: &SchemaMatch<'_, '_>,
) -> FileFields {
    let mut fields = FileFields::default();
    // If the payload ends early, the fields before its end have been read.
    let _ = walker.walk(&schema.prepared.schema, schema.payload, record.pointer_size(), &mut fields);
    fields
}

/// Returns nanoseconds from one event to another.
pub fn elapsed_ns(from_ns: i64, to: &ReportEvent) -> u64 {
    u64::try_from(to.time_ns.saturating_sub(from_ns)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_network_byte_order() {
        assert_eq!(
            parse_address(&Value::U32(u32::from_le_bytes([10, 0, 0, 1]))).unwrap().to_string(),
            "10.0.0.1"
        );
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xFF, 0xFF, 192, 0, 2, 7]);
        assert_eq!(parse_address(&Value::Bytes(&mapped)).unwrap().to_string(), "192.0.2.7");
        assert_eq!(parse_address(&Value::Bytes(&mapped[..15])), None);
    }

    #[test]
    fn every_network_event_has_one_kind() {
        let ipv6 = hook::to_ipv6(hook::TCP_RECEIVE);
        assert_eq!(network_kind(ipv6), Some((NetworkProtocol::Tcp, NetworkKind::Receive)));
        assert_eq!(network_kind(hook::UDP_FAIL), Some((NetworkProtocol::Udp, NetworkKind::Fail)));
        assert_eq!(network_kind(hook::to_ipv6(hook::TCP_FAIL)), None);
        assert_eq!(network_kind(hook::DISK_READ), None);
    }
}
