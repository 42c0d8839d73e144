//! Network interfaces, their addresses, and TCP settings.
//!
//! ```text
//!   /sys/class/net/NAME, addresses by rtnetlink, /etc/resolv.conf ──▶ 0x0B0D NIC
//!   /proc/sys/net/ipv4 ──▶ 0x0B11 Network
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;
use traceweir_format::wire::{Put, chunk, u8_at, u16_at, u32_at};

use super::event::ConfigEvent;
use super::machine_files::MachineFiles;

/// The most addresses of the machine that are read.
const MAX_ADDRESSES: usize = 4096;
/// The most addresses of an interface, and the most name servers, in one event.
const MAX_ADDRESSES_PER_EVENT: usize = 256;
/// The most netlink answers that are read.
const MAX_ANSWERS: usize = 1024;
/// The type of loopback interfaces.
const ARPHRD_LOOPBACK: u64 = 772;
/// Seconds that a closed connection stays in TIME_WAIT: a constant of the kernel.
const TIME_WAIT_SECONDS: u32 = 60;
/// The size of a table that has no configured size.
const TABLE_SIZE_NOT_SET: u32 = u32::MAX;

pub(super) const SETTINGS_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_NETWORK, 2);
const INTERFACE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_NIC, 2);

#[derive(Debug)]
struct InterfaceAddress {
    interface: u32,
    address: IpAddr,
}

/// Returns the payload of the TCP settings, which a session writes at its start.
pub(super) fn build_settings(files: &MachineFiles) -> Vec<u8> {
    let range = files.read_text("/proc/sys/net/ipv4/ip_local_port_range");
    let last_port: u32 = range.split_whitespace().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let mut out = Vec::new();
    // `TcbTablePartitions` is 0: Linux has one connection table for all processors.
    put_kernel_event!(&mut out, SETTINGS_LAYOUT, {
        MaxHashTableSize: TABLE_SIZE_NOT_SET,
        MaxUserPort: last_port,
        TcpTimedWaitDelay: TIME_WAIT_SECONDS,
    });
    out
}

pub(super) fn add_events(files: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    let addresses = if files.is_this_machine() { read_addresses().unwrap_or_default() } else { Vec::new() };
    let servers = files.read_text("/etc/resolv.conf");
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    let servers: Vec<IpAddr> = servers.lines().filter_map(server).take(MAX_ADDRESSES_PER_EVENT).collect();
    for name in files.list_names("/sys/class/net") {
        events.extend(build_interface_event(files, &name, &addresses, &servers));
    }
}

fn build_interface_event(
    files: &MachineFiles,
    name: &str,
    addresses: &[InterfaceAddress],
    servers: &[IpAddr],
) -> Option<ConfigEvent> {
    let path = |file: &str| format!("/sys/class/net/{name}/{file}");
    let index = u32::try_from(files.read_number(&path("ifindex"))).ok().filter(|index| *index > 0)?;
    let is_loopback = files.read_number(&path("type")) == ARPHRD_LOOPBACK;
    let hardware = files.read_text(&path("address"));
    let hardware = hardware.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok());
    let (mut address, mut length) = ([0_u8; 8], 0_u32);
    for (to, byte) in address.iter_mut().zip(hardware.filter(|_| !is_loopback)) {
        *to = byte;
        length = length.saturating_add(1);
    }
    let interface_addresses =
        addresses.iter().filter(|entry| entry.interface == index).map(|entry| entry.address);
    let interface_addresses: Vec<IpAddr> = interface_addresses.take(MAX_ADDRESSES_PER_EVENT).collect();
    // The index of the interface for IPv4 or IPv6; 0 if it has no address of this kind.
    let index_if_any =
        |is_kind: fn(&IpAddr) -> bool| if interface_addresses.iter().any(is_kind) { index } else { 0 };
    let join = |list: &[IpAddr]| list.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(";");
    let mut out = Vec::new();
    put_kernel_event!(
        &mut out,
        INTERFACE_LAYOUT,
        {
            PhysicalAddr: address,
            PhysicalAddrLen: length,
            Ipv4Index: index_if_any(IpAddr::is_ipv4),
            Ipv6Index: index_if_any(IpAddr::is_ipv6),
        },
        {
            NICDescription: name,
            IpAddresses: join(&interface_addresses).as_str(),
            DnsServerAddresses: join(if is_loopback { &[] } else { servers }).as_str(),
        }
    );
    Some(ConfigEvent::new(hook::CONFIG_NIC, &INTERFACE_LAYOUT, out))
}

/// Reads all addresses of this machine from the kernel by rtnetlink.
fn read_addresses() -> Option<Vec<InterfaceAddress>> {
    const RTM_GETADDR: u16 = 22;
    const NLM_F_REQUEST_AND_DUMP: u16 = 0x301;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    );
    let socket = socket.ok()?;
    // Length, type, flags, sequence number, port; then an `ifaddrmsg` of zeros.
    let mut request = Vec::new();
    request.put_u32(24).put_u16(RTM_GETADDR).put_u16(NLM_F_REQUEST_AND_DUMP).put_u32(1).put_u32(0).put_u64(0);
    rustix::net::send(&socket, &request, SendFlags::empty()).ok()?;
    let (mut addresses, mut buffer) = (Vec::new(), vec![0_u8; 64 << 10]);
    for _ in 0..MAX_ANSWERS {
        // The kernel answers synchronously, so this does not wait.
        let (length, _) = rustix::net::recv(&socket, &mut *buffer, RecvFlags::empty()).ok()?;
        let has_more = parse_answer(buffer.get(..length)?, &mut addresses);
        if !has_more || addresses.len() >= MAX_ADDRESSES {
            break;
        }
    }
    Some(addresses)
}

/// Adds the addresses of one answer. Returns whether more answers follow.
fn parse_answer(mut remaining: &[u8], addresses: &mut Vec<InterfaceAddress>) -> bool {
    const RTM_NEWADDR: u16 = 20;
    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    while remaining.len() >= 16 {
        let length = usize::try_from(u32_at(remaining, 0)).unwrap_or(0);
        let Some(message) = remaining.get(16..length) else { return false };
        match u16_at(remaining, 4) {
            RTM_NEWADDR => addresses.extend(parse_address(message)),
            NLMSG_ERROR | NLMSG_DONE => return false,
            _ => {}
        }
        remaining = remaining.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

/// Parses `u8 family, prefix, flags, scope │ u32 interface │ attributes: u16 length, u16 type,
/// value, padded to 4`.
fn parse_address(message: &[u8]) -> Option<InterfaceAddress> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let (family, interface) = (u8_at(message, 0), u32_at(message, 4));
    let mut remaining = message.get(8..)?;
    let (mut address, mut local) = (None, None);
    while remaining.len() >= 4 {
        let length = usize::from(u16_at(remaining, 0));
        let value = remaining.get(4..length)?;
        let ip = match i32::from(family) {
            libc::AF_INET => chunk(value, 0).map(|bytes| IpAddr::from(Ipv4Addr::from(*bytes))),
            libc::AF_INET6 => chunk(value, 0).map(|bytes| IpAddr::from(Ipv6Addr::from(*bytes))),
            _ => None,
        };
        match u16_at(remaining, 2) {
            IFA_ADDRESS => address = ip,
            IFA_LOCAL => local = ip,
            _ => {}
        }
        remaining = remaining.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // For a point-to-point link IFA_ADDRESS is that of the peer.
    Some(InterfaceAddress { interface, address: local.or(address)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        let addresses = read_addresses().expect("the kernel does not answer");
        if std::path::Path::new("/sys/class/net/lo").exists() && !addresses.is_empty() {
            assert!(addresses.iter().any(|entry| entry.address.is_loopback()), "{addresses:?}");
        }
    }

    #[test]
    fn malformed_answers_yield_no_addresses() {
        // A valid address attribute, then an attribute whose length 3 is smaller than its header.
        let mut answer = Vec::new();
        answer.put_u32(36).put_u16(20).put_u16(2).put_u32(1).put_u32(0);
        answer.put_u8(2).put_u8(8).put_u8(0).put_u8(0).put_u32(7);
        answer.put_u16(8).put_u16(2).put(&[10, 0, 0, 1]).put_u16(3).put_u16(1);
        for length in 0..=answer.len() {
            let mut addresses = Vec::new();
            let _ = parse_answer(&answer[..length], &mut addresses);
            assert!(addresses.is_empty());
        }
        let mut addresses = Vec::new();
        // The length of the second attribute.
        answer[16 + 8 + 8] = 0;
        assert!(parse_answer(&answer, &mut addresses));
        assert!(addresses.is_empty(), "an attribute that is shorter than its header");
        assert!(!parse_answer(&[0; 64], &mut addresses), "a message that is shorter than its header");
    }
}
