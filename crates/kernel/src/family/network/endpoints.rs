//! Both endpoints of a socket.
//!
//! ```text
//!   kernel    16 bytes an address, IPv4 as ::ffff:a.b.c.d │ ports in the machine's byte order
//!   payload   4 or 16 bytes an address
//! ```

/// Prefix of an IPv4 address in 16 bytes.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

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
    pub(super) fn unknown(is_v6: bool) -> Self {
        Self { is_v6, ..Self::default() }
    }

    /// Builds endpoints from addresses of 16 bytes each.
    pub(super) fn new((local, local_port): (&[u8], u32), (remote, remote_port): (&[u8], u32)) -> Self {
        let is_v6 = !(is_v4(local) && is_v4(remote));
        let endpoint = |from: &[u8], port: u32| {
            let from = if is_v6 { from } else { from.get(MAPPED.len()..).unwrap_or_default() };
            let mut endpoint = Endpoint { port: u16::try_from(port).unwrap_or(0), ..Endpoint::default() };
            endpoint.address.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            endpoint
        };
        Self { is_v6, local: endpoint(local, local_port), remote: endpoint(remote, remote_port) }
    }

    #[cfg(test)]
    pub(super) const fn local_port(&self) -> u16 {
        self.local.port
    }

    /// Returns the destination and the source of data or of a connection.
    pub(super) const fn destination_and_source(&self, is_from_remote: bool) -> [Endpoint; 2] {
        if is_from_remote { [self.local, self.remote] } else { [self.remote, self.local] }
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
        assert!(!endpoints.is_v6);
        let values = |endpoint: Endpoint| (endpoint.ipv4_address(), endpoint.port);
        let (local, remote) = (([127, 0, 0, 1], 80), ([10, 0, 0, 2], 0x1234));
        assert_eq!(endpoints.destination_and_source(false).map(values), [remote, local]);
        assert_eq!(endpoints.destination_and_source(true).map(values), [local, remote]);
    }

    #[test]
    fn one_ipv6_address_makes_both_ipv6() {
        let endpoints = Endpoints::new((&[0; 16], 1), (&mapped([1, 2, 3, 4]), 2));
        assert!(endpoints.is_v6);
        assert_eq!(endpoints.remote.address[..], mapped([1, 2, 3, 4]));
    }

    #[test]
    fn short_addresses_are_accepted() {
        let endpoints = Endpoints::new((&[1, 2], 99_999), (&[], 1));
        assert_eq!((endpoints.is_v6, endpoints.local_port()), (true, 0));
    }
}
