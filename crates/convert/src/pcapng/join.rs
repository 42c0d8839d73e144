//! Joins the fragments of packets.
//!
//! ```text
//!   fragment (start) ── fragment … ── fragment (end)     of one processor and one capture point
//! ```
//!
//! The memory of unfinished packets is bounded. A packet whose start or end is missing is counted
//! and left out.

use std::collections::BTreeMap;

use super::packet::{CapturePoint, Fragment};

/// The largest packet in bytes, as readers of pcapng accept it.
pub(super) const MAX_PACKET_BYTES: usize = 256 << 10;
/// The most bytes of all unfinished packets.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// The most unfinished packets.
const MAX_PENDING_PACKETS: usize = 4096;

/// Trace, processor and capture point of a packet.
type FragmentKey = (usize, u16, CapturePoint);

/// Joins fragments.
#[derive(Debug, Default)]
pub(super) struct FragmentJoiner {
    pending: BTreeMap<FragmentKey, Vec<u8>>,
    bytes: usize,
    /// Number of packets that lack a fragment or are too large.
    pub(super) incomplete: u64,
}

impl FragmentJoiner {
    /// Adds a fragment, and appends the packet to `packet` if it is complete. Returns whether it is.
    pub(super) fn add(
        &mut self,
        (file, cpu): (usize, u16),
        fragment: &Fragment<'_>,
        packet: &mut Vec<u8>,
    ) -> bool {
        let is_whole = fragment.is_start && fragment.is_end;
        if is_whole && self.pending.is_empty() {
            return self.complete(fragment.bytes, packet);
        }
        let key = (file, cpu, fragment.point.clone());
        let earlier = self.pending.remove(&key);
        self.bytes = self.bytes.saturating_sub(earlier.as_ref().map_or(0, Vec::len));
        let mut joined = match (earlier, fragment.is_start) {
            (None, true) => Vec::new(),
            (Some(earlier), false) => earlier,
            // The end of the packet before is missing.
            (Some(_), true) => {
                self.incomplete = self.incomplete.saturating_add(1);
                Vec::new()
            }
            // The start is missing; the packet is counted at its end.
            (None, false) => {
                self.incomplete = self.incomplete.saturating_add(fragment.is_end.into());
                return false;
            }
        };
        joined.extend_from_slice(fragment.bytes);
        if fragment.is_end {
            return self.complete(&joined, packet);
        }
        if joined.len() > MAX_PACKET_BYTES {
            self.incomplete = self.incomplete.saturating_add(1);
            return false;
        }
        self.keep(key, joined);
        false
    }

    fn complete(&mut self, bytes: &[u8], packet: &mut Vec<u8>) -> bool {
        let fits = bytes.len() <= MAX_PACKET_BYTES;
        if fits {
            packet.extend_from_slice(bytes);
        } else {
            self.incomplete = self.incomplete.saturating_add(1);
        }
        fits
    }

    fn keep(&mut self, key: FragmentKey, joined: Vec<u8>) {
        let bytes = self.bytes.saturating_add(joined.len());
        if bytes > MAX_PENDING_BYTES || self.pending.len() >= MAX_PENDING_PACKETS {
            self.drop_pending();
        }
        self.bytes = self.bytes.saturating_add(joined.len());
        self.pending.insert(key, joined);
    }

    fn drop_pending(&mut self) {
        self.incomplete = self.incomplete.saturating_add(self.pending.len() as u64);
        self.pending.clear();
        self.bytes = 0;
    }

    /// Counts the packets that are still unfinished.
    pub(super) fn finish(&mut self) {
        self.drop_pending();
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::{Direction, LinkType};
    use super::*;

    fn fragment(lower: u32, bytes: &[u8], is_start: bool, is_end: bool) -> Fragment<'_> {
        Fragment {
            point: CapturePoint::Adapter { miniport: 1, lower },
            link: LinkType::ETHERNET,
            direction: Direction::Unknown,
            bytes,
            is_start,
            is_end,
            details: String::new(),
        }
    }

    /// Adds fragments, and returns the packets.
    fn join(fragments: &[(u16, Fragment<'_>)]) -> (Vec<Vec<u8>>, u64) {
        let (mut joiner, mut packets) = (FragmentJoiner::default(), Vec::new());
        for (cpu, fragment) in fragments {
            let mut packet = Vec::new();
            if joiner.add((0, *cpu), fragment, &mut packet) {
                packets.push(packet);
            }
        }
        joiner.finish();
        (packets, joiner.incomplete)
    }

    #[test]
    fn fragments_of_one_processor_and_layer_are_joined() {
        let fragments = [
            (0, fragment(1, b"a", true, false)),
            (1, fragment(1, b"x", true, false)),
            (0, fragment(2, b"whole", true, true)),
            (0, fragment(1, b"b", false, false)),
            (1, fragment(1, b"y", false, true)),
            (0, fragment(1, b"c", false, true)),
        ];
        let packets = [b"whole".to_vec(), b"xy".to_vec(), b"abc".to_vec()];
        assert_eq!(join(&fragments), (packets.to_vec(), 0));
    }

    #[test]
    fn packet_without_start_or_end_is_counted() {
        let fragments = [
            (0, fragment(1, b"no start", false, false)),
            (0, fragment(1, b"no start", false, true)),
            (0, fragment(1, b"no end", true, false)),
            (0, fragment(1, b"good", true, true)),
            (0, fragment(1, b"unfinished", true, false)),
        ];
        assert_eq!(join(&fragments), (vec![b"good".to_vec()], 3));
    }

    #[test]
    fn memory_of_unfinished_packets_is_bounded() {
        let mut joiner = FragmentJoiner::default();
        let bytes = vec![0; 60_000];
        for lower in 0..5000 {
            joiner.add((0, 0), &fragment(lower, &bytes, true, false), &mut Vec::new());
            assert!(joiner.bytes <= MAX_PENDING_BYTES && joiner.pending.len() <= MAX_PENDING_PACKETS);
        }
        for _ in 0..100 {
            let mut packet = Vec::new();
            joiner.add((0, 0), &fragment(0, &bytes, false, false), &mut packet);
            assert!(packet.is_empty() && joiner.bytes <= MAX_PENDING_BYTES);
        }
    }
}
