//! Both endpoints of a socket.
//!
//! ```text
//!   kernel    addresses of 16 bytes, IPv4 as ::ffff:a.b.c.d │ ports in the machine's byte order
//!   payload   addresses of 4 or 16 bytes                    │ ports in network byte order
//! ```
//!
//! The types here hold ports as the kernel reports them. `put_kernel_event!` changes their byte
//! order.

/// Prefix of an IPv4 address in 16 bytes.
const IPV4_MAPPED_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

/// Address and port; an IPv4 address is in the first four bytes. Unknown values are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) address: [u8; 16],
    pub(super) port: u16,
}

impl Endpoint {
    pub(super) const fn ipv4_address(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.address;
        [a, b, c, d]
    }
}

/// Both endpoints of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) is_v6: bool,
    local: Endpoint,
    remote: Endpoint,
}

impl Endpoints {
    /// Builds endpoints of which only the address family is known.
    pub(super) fn with_unknown_addresses(is_v6: bool) -> Self {
        Self { is_v6, ..Self::default() }
    }

    /// Builds endpoints from two addresses of 16 bytes, each with its port.
    pub(super) fn new(local: (&[u8], u32), remote: (&[u8], u32)) -> Self {
        let is_v6 = !(is_ipv4_mapped(local.0) && is_ipv4_mapped(remote.0));
        let endpoint = |(address, port): (&[u8], u32)| {
            let bytes =
                if is_v6 { address } else { address.get(IPV4_MAPPED_PREFIX.len()..).unwrap_or_default() };
            let mut endpoint = Endpoint { port: u16::try_from(port).unwrap_or(0), ..Endpoint::default() };
            endpoint.address.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            endpoint
        };
        Self { is_v6, local: endpoint(local), remote: endpoint(remote) }
    }

    #[cfg(test)]
    pub(super) const fn local_port(&self) -> u16 {
        self.local.port
    }

    /// Returns the destination and the source. `is_from_remote`: whether the remote endpoint is the
    /// source.
    pub(super) const fn destination_and_source(&self, is_from_remote: bool) -> [Endpoint; 2] {
        if is_from_remote { [self.local, self.remote] } else { [self.remote, self.local] }
    }
}

/// Returns whether a 16-byte address is an IPv4 address.
fn is_ipv4_mapped(address: &[u8]) -> bool {
    address.starts_with(&IPV4_MAPPED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_ipv4(last: [u8; 4]) -> Vec<u8> {
        [&IPV4_MAPPED_PREFIX[..], &last].concat()
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let endpoints = Endpoints::new((&map_ipv4([127, 0, 0, 1]), 80), (&map_ipv4([10, 0, 0, 2]), 0x1234));
        assert!(!endpoints.is_v6);
        let values = |endpoint: Endpoint| (endpoint.ipv4_address(), endpoint.port);
        let (local, remote) = (([127, 0, 0, 1], 80), ([10, 0, 0, 2], 0x1234));
        assert_eq!(endpoints.destination_and_source(false).map(values), [remote, local]);
        assert_eq!(endpoints.destination_and_source(true).map(values), [local, remote]);
    }

    #[test]
    fn one_ipv6_address_makes_both_ipv6() {
        let endpoints = Endpoints::new((&[0; 16], 1), (&map_ipv4([1, 2, 3, 4]), 2));
        assert!(endpoints.is_v6);
        assert_eq!(endpoints.remote.address[..], map_ipv4([1, 2, 3, 4]));
    }

    #[test]
    fn short_addresses_are_accepted() {
        let endpoints = Endpoints::new((&[1, 2], 99_999), (&[], 1));
        assert_eq!((endpoints.is_v6, endpoints.local_port()), (true, 0));
    }
}
