//! Hash tables whose slots hold numbers of nodes only: the nodes themselves are the keys, so a slot
//! takes 8 bytes.
//!
//! ```text
//!   slot   upper half of the hash │ node, 0 in a free slot
//! ```

/// Slots of a table with its first node.
const FIRST_SLOTS: usize = 1 << 10;
/// Slots of [`RecentNodes`].
const RECENT_SLOTS: usize = 1 << 14;

const fn to_slot(hash: u64, node: u32) -> u64 {
    hash & !0xFFFF_FFFF | node as u64
}

/// Returns the node of a slot.
const fn node_of(slot: u64) -> u32 {
    slot as u32
}

const fn has_hash(slot: u64, hash: u64) -> bool {
    slot >> 32 == hash >> 32
}

/// Returns the first slot of a hash, in a table whose size is a power of two of at most 32 bits.
const fn first_place(hash: u64, slots: usize) -> usize {
    (hash >> 32) as usize & slots.wrapping_sub(1)
}

/// All nodes by a hash of their keys. A node that does not fit its slot is in one of the next.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    slots: Vec<u64>,
    used: usize,
}

impl NodeTable {
    /// Returns the node with a hash for which `is_equal` is true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_equal: impl Fn(u32) -> bool) -> Option<u32> {
        let mut place = first_place(hash, self.slots.len());
        loop {
            // One slot in four is free, so the loop ends.
            let slot = *self.slots.get(place)?;
            if node_of(slot) == 0 {
                return None;
            }
            if has_hash(slot, hash) && is_equal(node_of(slot)) {
                return Some(node_of(slot));
            }
            place = place.wrapping_add(1) & self.slots.len().wrapping_sub(1);
        }
    }

    /// Adds a node that is not in the table.
    pub(super) fn insert(&mut self, hash: u64, node: u32) {
        if self.used >= self.slots.len() / 4 * 3 {
            let larger = vec![0; (self.slots.len() * 2).max(FIRST_SLOTS)];
            let smaller = std::mem::replace(&mut self.slots, larger);
            for slot in smaller.into_iter().filter(|slot| node_of(*slot) != 0) {
                self.fill_slot(slot);
            }
        }
        self.fill_slot(to_slot(hash, node));
        self.used += 1;
    }

    fn fill_slot(&mut self, slot: u64) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut place = first_place(slot, self.slots.len());
        while self.slots.get(place).is_some_and(|known| node_of(*known) != 0) {
            place = place.wrapping_add(1) & mask;
        }
        if let Some(free) = self.slots.get_mut(place) {
            *free = slot;
        }
    }
}

/// The nodes of recent stacks by the hash of all frames; a new one replaces one in its slot.
#[derive(Debug, Default)]
pub(super) struct RecentNodes {
    slots: Vec<u64>,
}

impl RecentNodes {
    /// Returns a node whose stack probably has this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<u32> {
        let slot = *self.slots.get(first_place(hash, self.slots.len()))?;
        (has_hash(slot, hash) && node_of(slot) != 0).then_some(node_of(slot))
    }

    pub(super) fn insert(&mut self, hash: u64, node: u32) {
        if self.slots.is_empty() {
            self.slots = vec![0; RECENT_SLOTS];
        }
        let place = first_place(hash, self.slots.len());
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = to_slot(hash, node);
        }
    }
}
