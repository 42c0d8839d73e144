//! Regions as a process may leave them: complete records, a marker at the end, a head without
//! records.

use traceweir_format::wire::Put;

use crate::Seeds;

/// The steps in the encoding that the target reads. A stored data word is usually the prefix of a
/// record, whose low half is the length. Data is addressed in words; the head counts bytes.
struct RegionSteps(Vec<u8>);

impl RegionSteps {
    fn new(flags: u8) -> Self {
        Self(vec![flags])
    }

    /// Stores a word of the first ring's bytes.
    fn store_data(mut self, word: u16, value: u64) -> Self {
        self.0.put(&[0]).put_u16(word).put_u64(value);
        self
    }

    /// Stores the first ring's head.
    fn store_head(mut self, value: u64) -> Self {
        self.0.put(&[3]).put_u16(0).put_u64(value);
        self
    }

    /// Drains the first ring.
    fn drain_ring(mut self) -> Self {
        self.0.put(&[6]).put_u16(0).put_u64(0);
        self
    }
}

pub(crate) fn region_seeds() -> Seeds {
    // Records of 24, 8 and 100 bytes. With prefix and padding they take 40, 24 and 120 bytes.
    let records = RegionSteps::new(0)
        .store_data(0, 24)
        .store_data(5, 1 << 48 | 8)
        .store_head(64)
        .drain_ring()
        .store_data(8, 100)
        .store_head(184)
        .drain_ring();
    // Four records of 992 bytes with their prefixes end at 3968 in the ring of 4096 bytes. The next
    // record does not fit before the ring's end: a marker, and the record at the start of the ring.
    let marker = RegionSteps::new(0)
        .store_data(0, 976)
        .store_data(124, 976)
        .store_data(248, 976)
        .store_data(372, 976)
        .store_head(3968)
        .drain_ring()
        .store_data(496, 0xFFFF_FFFF)
        .store_data(0, 200)
        .store_head(4096 + 216)
        .drain_ring();
    // One record, and a head far after it. Flags 3: two CPUs, and rings of 32768 bytes.
    let hole = RegionSteps::new(3).store_data(0, 24).store_head(8192).drain_ring();
    vec![("records", records.0), ("marker", marker.0), ("hole", hole.0)]
}
