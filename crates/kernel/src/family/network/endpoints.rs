//! Both endpoints of a socket, in the form of the payloads.
//!
//! ```text
//!   kernel    16 bytes an address, IPv4 as ::ffff:a.b.c.d │ ports in the machine's byte order
//!   payload   PID │ size │ daddr │ saddr │ dport │ sport   4 or 16 bytes an address,
//!                                                          ports big-endian
//! ```

use traceweir_format::wire::Put;

/// An address that is unknown.
const NONE: [u8; 16] = [0; 16];
/// Prefix of an IPv4 address in 16 bytes.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

/// Addresses and ports of both endpoints; an IPv4 address is in the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) is_v6: bool,
    local: ([u8; 16], u16),
    remote: ([u8; 16], u16),
}

impl Endpoints {
    /// Builds endpoints of which only the address family is known.
    pub(super) const fn unknown(is_v6: bool) -> Self {
        Self { is_v6, local: (NONE, 0), remote: (NONE, 0) }
    }

    /// Builds endpoints from addresses of 16 bytes each.
    pub(super) fn new((local, local_port): (&[u8], u32), (remote, remote_port): (&[u8], u32)) -> Self {
        let port = |port: u32| u16::try_from(port).unwrap_or(0);
        let is_v6 = !(is_v4(local) && is_v4(remote));
        let address = |from: &[u8]| {
            let from = if is_v6 { from } else { from.get(MAPPED.len()..).unwrap_or_default() };
            let mut address = NONE;
            address.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            address
        };
        Self {
            is_v6,
            local: (address(local), port(local_port)),
            remote: (address(remote), port(remote_port)),
        }
    }

    #[cfg(test)]
    pub(super) const fn local_port(&self) -> u16 {
        self.local.1
    }

    /// Writes the fields that transfers and connections have in common.
    pub(super) fn put(&self, payload: &mut Vec<u8>, process: u32, size: u32, is_from_remote: bool) {
        let (source, destination) =
            if is_from_remote { (self.remote, self.local) } else { (self.local, self.remote) };
        payload.put_u32(process).put_u32(size);
        let length = if self.is_v6 { 16 } else { 4 };
        for (address, _) in [destination, source] {
            payload.put(address.get(..length).unwrap_or_default());
        }
        payload.put(&destination.1.to_be_bytes()).put(&source.1.to_be_bytes());
    }
}

/// Whether a 16-byte address is an IPv4 address.
fn is_v4(address: &[u8]) -> bool {
    address.starts_with(&MAPPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(last: [u8; 4]) -> Vec<u8> {
        [&MAPPED[..], &last].concat()
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let endpoints = Endpoints::new((&mapped([127, 0, 0, 1]), 80), (&mapped([10, 0, 0, 2]), 0x1234));
        let mut payload = Vec::new();
        endpoints.put(&mut payload, 7, 9, false);
        assert_eq!(payload, [7, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 2, 127, 0, 0, 1, 0x12, 0x34, 0, 80]);
        payload.clear();
        endpoints.put(&mut payload, 7, 9, true);
        assert_eq!(payload[8..], [127, 0, 0, 1, 10, 0, 0, 2, 0, 80, 0x12, 0x34]);
    }

    #[test]
    fn one_ipv6_address_makes_both_ipv6() {
        let endpoints = Endpoints::new((&[0; 16], 1), (&mapped([1, 2, 3, 4]), 2));
        assert!(endpoints.is_v6);
        let mut payload = Vec::new();
        endpoints.put(&mut payload, 0, 0, false);
        assert_eq!(payload.len(), 44);
        assert_eq!(payload[8..24], mapped([1, 2, 3, 4]));
    }

    #[test]
    fn short_addresses_are_accepted() {
        let endpoints = Endpoints::new((&[1, 2], 99_999), (&[], 1));
        assert_eq!((endpoints.is_v6, endpoints.local_port()), (true, 0));
    }
}
