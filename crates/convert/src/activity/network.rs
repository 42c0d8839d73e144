//! Names and fields of network transfers.

use std::sync::Arc;

use traceweir_analysis::report::{NetworkKind, NetworkProtocol, NetworkTransfer};

use super::fields::FieldValue;

/// Returns the name of a network event for people, such as "TCP send".
pub fn network_name(transfer: &NetworkTransfer) -> String {
    let protocol = match transfer.protocol {
        NetworkProtocol::Tcp => "TCP",
        NetworkProtocol::Udp => "UDP",
    };
    let kind = match transfer.kind {
        NetworkKind::Send => "send",
        NetworkKind::Receive => "receive",
        NetworkKind::Connect => "connect",
        NetworkKind::Accept => "accept",
        NetworkKind::Disconnect => "disconnect",
        NetworkKind::Retransmit => "retransmit",
        NetworkKind::Fail => "fail",
    };
    format!("{protocol} {kind}")
}

/// Returns bytes and addresses of a network event.
pub fn network_fields(transfer: &NetworkTransfer) -> Vec<(Arc<str>, FieldValue)> {
    let mut fields = vec![(Arc::from("bytes"), FieldValue::Unsigned(transfer.bytes))];
    if let Some((local, remote)) = transfer.ends {
        for (name, address) in [("local", local), ("remote", remote)] {
            fields.push((Arc::from(name), FieldValue::Text(address.to_string().into())));
        }
    }
    fields
}

/// Returns the number of bytes that a network event moves: 0 unless it is a packet.
pub fn network_bytes(transfer: &NetworkTransfer) -> u64 {
    match transfer.kind {
        NetworkKind::Send | NetworkKind::Receive => transfer.bytes,
        _ => 0,
    }
}
