//! Regions as a process may leave them: whole records, a marker at the end, a head without records.

use traceweir_format::wire::Put;

use crate::Seeds;

/// The steps in the encoding that the target reads.
struct Steps(Vec<u8>);

impl Steps {
    fn new(flags: u8) -> Self {
        Self(vec![flags])
    }

    /// Stores a word of the first ring's bytes.
    fn data(mut self, word: u16, value: u64) -> Self {
        self.0.put(&[0]).put_u16(word).put_u64(value);
        self
    }

    /// Stores the first ring's head.
    fn head(mut self, value: u64) -> Self {
        self.0.put(&[3]).put_u16(0).put_u64(value);
        self
    }

    /// Drains the first ring.
    fn drain(mut self) -> Self {
        self.0.put(&[6]).put_u16(0).put_u64(0);
        self
    }
}

pub(crate) fn all() -> Seeds {
    let records =
        Steps::new(0).data(0, 24).data(5, 1 << 48 | 8).head(64).drain().data(8, 100).head(184).drain();
    let marker = Steps::new(0)
        .data(0, 976)
        .data(124, 976)
        .data(248, 976)
        .data(372, 976)
        .head(3968)
        .drain()
        .data(496, 0xFFFF_FFFF)
        .data(0, 200)
        .head(4096 + 216)
        .drain();
    let hole = Steps::new(3).data(0, 24).head(8192).drain();
    vec![("records", records.0), ("marker", marker.0), ("hole", hole.0)]
}
