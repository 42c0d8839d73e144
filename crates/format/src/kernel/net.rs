//! TCP and UDP transfers and connections (groups 0x06 and 0x08).
//!
//! ```text
//!   common part   0 PID │ 4 size │ 8 daddr │ saddr │ dport (big-endian) │ sport
//!                 20 bytes for IPv4, 44 for IPv6
//!   version 2     common part │ fields of the type │ seqnum │ connid (pointer-sized)
//! ```
//!
//! The process id is in the payload, because the header has none. For TCP, `daddr` and `dport` are
//! the remote end in both directions; for UDP, `saddr` is the sender of the packet. `startime` and
//! `endtime` count units of 100 ms since the system started. Only version 0 of UDP has `context`
//! and `dsize`.
//!
//! Source: Documented ("TcpIp class", "UdpIp class" and their types); IPv6 send and receive of TCP,
//! and UDP, Observed in version 2.

use super::Ty::{I16, Ip4, Ip6, Pid, Port, Ptr, U16, U32};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn tcp(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::TCP_IP, version, types, fields)
}

const fn udp(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::UDP_IP, version, types, fields)
}

/// The common part of versions 1 and 2 with IPv4 or IPv6 addresses, and the fields after it.
macro_rules! common {
    ($address:ident $(, $extra:expr)*) => {
        &[
            f("PID", Pid),
            f("size", U32),
            f("daddr", $address),
            f("saddr", $address),
            f("dport", Port),
            f("sport", Port),
            $($extra),*
        ]
    };
}

/// The common part, the options of a connection, and the two fields at the end.
macro_rules! connection {
    ($address:ident, $last:expr, $end:expr) => {
        common!(
            $address,
            f("mss", U16),
            f("sackopt", U16),
            f("tsopt", U16),
            f("wsopt", U16),
            f("rcvwin", U32),
            f("rcvwinscale", I16),
            f("sndwinscale", I16),
            $last,
            $end
        )
    };
}

const SEQUENCE: FieldShape = f("seqnum", U32);
const CONNECTION: FieldShape = f("connid", Ptr);

const TCP_SEND: &[(u8, &str)] = &[(0x0A, "Send")];
const TCP_CONNECT: &[(u8, &str)] = &[(0x0C, "Connect"), (0x0F, "Accept")];
const TCP_PLAIN: &[(u8, &str)] =
    &[(0x0B, "Recv"), (0x0D, "Disconnect"), (0x0E, "Retransmit"), (0x10, "Reconnect"), (0x12, "TCPCopy")];
const TCP_PLAIN_6: &[(u8, &str)] = &[
    (0x1B, "RecvIPV6"),
    (0x1D, "DisconnectIPV6"),
    (0x1E, "RetransmitIPV6"),
    (0x20, "ReconnectIPV6"),
    (0x22, "TCPCopyIPV6"),
];
const TCP_ALL_4: &[(u8, &str)] = &[
    (0x0A, "Send"),
    (0x0B, "Recv"),
    (0x0C, "Connect"),
    (0x0D, "Disconnect"),
    (0x0E, "Retransmit"),
    (0x0F, "Accept"),
    (0x10, "Reconnect"),
    (0x12, "TCPCopy"),
];
const UDP_4: &[(u8, &str)] = &[(0x0A, "Send"), (0x0B, "Recv")];
const UDP_6: &[(u8, &str)] = &[(0x1A, "SendIPV6"), (0x1B, "RecvIPV6")];
const FAIL: &[(u8, &str)] = &[(0x11, "Fail")];

pub(super) static SHAPES: &[Shape] = &[
    tcp(
        0,
        TCP_ALL_4,
        &[
            f("daddr", Ip4),
            f("saddr", Ip4),
            f("dport", Port),
            f("sport", Port),
            f("size", U32),
            f("PID", Pid),
        ],
    ),
    // Version 1 has the last two fields of version 2 in the reverse order. The documentation
    // differs: it ends version 1 after the common part.
    tcp(1, TCP_SEND, common!(Ip4, f("startime", U32), f("endtime", U32), CONNECTION, SEQUENCE)),
    tcp(1, TCP_PLAIN, common!(Ip4, CONNECTION, SEQUENCE)),
    tcp(1, TCP_CONNECT, connection!(Ip4, CONNECTION, SEQUENCE)),
    tcp(1, FAIL, &[f("Proto", U32)]),
    tcp(2, TCP_SEND, common!(Ip4, f("startime", U32), f("endtime", U32), SEQUENCE, CONNECTION)),
    tcp(2, TCP_PLAIN, common!(Ip4, SEQUENCE, CONNECTION)),
    tcp(2, TCP_CONNECT, connection!(Ip4, SEQUENCE, CONNECTION)),
    tcp(2, FAIL, &[f("Proto", U16), f("FailureCode", U16)]),
    tcp(2, &[(0x1A, "SendIPV6")], common!(Ip6, f("startime", U32), f("endtime", U32), SEQUENCE, CONNECTION)),
    tcp(2, TCP_PLAIN_6, common!(Ip6, SEQUENCE, CONNECTION)),
    tcp(2, &[(0x1C, "ConnectIPV6"), (0x1F, "AcceptIPV6")], connection!(Ip6, SEQUENCE, CONNECTION)),
    udp(
        0,
        UDP_4,
        &[
            f("context", Ptr),
            f("saddr", Ip4),
            f("sport", Port),
            f("size", U16),
            f("daddr", Ip4),
            f("dport", Port),
            f("dsize", U16),
        ],
    ),
    udp(1, UDP_4, common!(Ip4)),
    udp(2, UDP_4, common!(Ip4, SEQUENCE, CONNECTION)),
    udp(2, UDP_6, common!(Ip6, SEQUENCE, CONNECTION)),
    udp(2, FAIL, &[f("Proto", U16), f("FailureCode", U16)]),
];
