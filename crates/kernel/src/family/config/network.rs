//! Network interfaces, their addresses, and how TCP is set.
//!
//! ```text
//!   /sys/class/net/NAME, addresses by rtnetlink, /etc/resolv.conf ──▶ 0x0B0D NIC        /proc/sys/net/ipv4 ──▶ 0x0B11 Network
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use traceweir_format::wire::{Put, chunk, u8_at, u16_at, u32_at};

use super::Fact;
use super::source::Source;

/// Addresses that are taken of the machine.
const MAX_ADDRESSES: usize = 4096;
/// Addresses that are told of an interface, and name servers.
const MAX_TOLD: usize = 256;
/// Answers that are read before it is given up.
const MAX_ANSWERS: usize = 1024;
/// The kind of an interface that leads back.
const LOOPBACK: u64 = 772;
/// How long a closed connection is remembered: a constant of the kernel, in seconds.
const TIME_WAIT: u32 = 60;
/// A table's size that is not set.
const NOT_SET: u32 = u32::MAX;

/// An address and the number of its interface.
type Address = (u32, IpAddr);

/// How TCP is set; what comes first in a session.
pub(super) fn settings(source: &Source) -> Vec<u8> {
    let range = source.text("/proc/sys/net/ipv4/ip_local_port_range");
    let last = range.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut out = Vec::new();
    // The table of connections is one, for all processors.
    out.put_u32(0).put_u32(NOT_SET).put_u32(last).put_u32(TIME_WAIT);
    out
}

pub(super) fn tell(source: &Source, facts: &mut Vec<Fact>) {
    let addresses = if source.is_here() { addresses().unwrap_or_default() } else { Vec::new() };
    let servers = source.text("/etc/resolv.conf");
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    let servers: Vec<IpAddr> = servers.lines().filter_map(server).take(MAX_TOLD).collect();
    for name in source.names("/sys/class/net") {
        facts.extend(interface(source, &name, &addresses, &servers));
    }
}

fn interface(source: &Source, name: &str, addresses: &[Address], servers: &[IpAddr]) -> Option<Fact> {
    let at = |file: &str| format!("/sys/class/net/{name}/{file}");
    let index = u32::try_from(source.number(&at("ifindex"))).ok().filter(|index| *index > 0)?;
    let is_loopback = source.number(&at("type")) == LOOPBACK;
    let hardware = source.text(&at("address"));
    let hardware = hardware.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok());
    let hardware: Vec<u8> = hardware.take(if is_loopback { 0 } else { 8 }).collect();
    let own: Vec<IpAddr> =
        addresses.iter().filter(|it| it.0 == index).map(|it| it.1).take(MAX_TOLD).collect();
    let has = |is_kind: fn(&IpAddr) -> bool| if own.iter().any(is_kind) { index } else { 0 };
    let joined = |them: &[IpAddr]| them.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(";");
    let mut out = Vec::new();
    out.put(&hardware).put(&[0; 8]).truncate(8);
    out.put_u32(u32::try_from(hardware.len()).unwrap_or(0));
    out.put_u32(has(IpAddr::is_ipv4)).put_u32(has(IpAddr::is_ipv6));
    out.put_wide_z(name).put_wide_z(&joined(&own));
    out.put_wide_z(&if is_loopback { String::new() } else { joined(servers) });
    Some(Fact::new(0x0B0D, 2, out))
}

/// All addresses of this machine, as the kernel answers by rtnetlink.
fn addresses() -> Option<Vec<Address>> {
    const GET_ADDRESSES: u16 = 22;
    const REQUEST_DUMP: u16 = 0x301;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    );
    let socket = socket.ok()?;
    let mut request = Vec::new();
    request.put_u32(24).put_u16(GET_ADDRESSES).put_u16(REQUEST_DUMP).put_u32(1).put_u32(0).put_u64(0);
    rustix::net::send(&socket, &request, SendFlags::empty()).ok()?;
    let (mut found, mut buffer) = (Vec::new(), vec![0_u8; 64 << 10]);
    for _ in 0..MAX_ANSWERS {
        // Answers are there when they are asked for: nothing waits.
        let (length, _) = rustix::net::recv(&socket, &mut *buffer, RecvFlags::empty()).ok()?;
        if !take_answers(buffer.get(..length)?, &mut found) || found.len() >= MAX_ADDRESSES {
            break;
        }
    }
    Some(found)
}

/// Takes the addresses of one answer; whether there is more to come.
fn take_answers(mut rest: &[u8], found: &mut Vec<Address>) -> bool {
    const NEW_ADDRESS: u16 = 20;
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    while rest.len() >= 16 {
        let length = usize::try_from(u32_at(rest, 0)).unwrap_or(0);
        let Some(message) = rest.get(16..length) else { return false };
        match u16_at(rest, 4) {
            NEW_ADDRESS => found.extend(address_in(message)),
            ERROR | DONE => return false,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

/// `u8 family, prefix, flags, scope │ u32 interface │ attributes: u16 length, u16 type, value, padded to 4`
fn address_in(message: &[u8]) -> Option<Address> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let (family, index) = (u8_at(message, 0), u32_at(message, 4));
    let mut rest = message.get(8..)?;
    let (mut address, mut local) = (None, None);
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 0));
        let value = rest.get(4..length)?;
        let read = match i32::from(family) {
            libc::AF_INET => chunk(value, 0).map(|it| IpAddr::from(Ipv4Addr::from(*it))),
            libc::AF_INET6 => chunk(value, 0).map(|it| IpAddr::from(Ipv6Addr::from(*it))),
            _ => None,
        };
        match u16_at(rest, 2) {
            ADDRESS => address = read,
            LOCAL => local = read,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // Of a connection between two, the address is the other's.
    Some((index, local.or(address)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        let found = addresses().expect("an answer");
        if std::path::Path::new("/sys/class/net/lo").exists() && !found.is_empty() {
            assert!(found.iter().any(|(_, address)| address.is_loopback()), "{found:?}");
        }
    }

    #[test]
    fn broken_answers_end() {
        let mut answer = Vec::new();
        answer.put_u32(36).put_u16(20).put_u16(2).put_u32(1).put_u32(0);
        answer.put_u8(2).put_u8(8).put_u8(0).put_u8(0).put_u32(7);
        answer.put_u16(8).put_u16(2).put(&[10, 0, 0, 1]).put_u16(3).put_u16(1);
        for length in 0..=answer.len() {
            let mut found = Vec::new();
            let _ = take_answers(&answer[..length], &mut found);
            assert!(found.len() <= 1);
        }
        let mut found = Vec::new();
        answer[16 + 8 + 8] = 0;
        assert!(take_answers(&answer, &mut found));
        assert!(found.is_empty(), "an attribute that is shorter than its head");
        assert!(!take_answers(&[0; 64], &mut found), "a message that is shorter than its head");
    }
}
