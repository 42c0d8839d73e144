//! Tests of giving pages back on machines with pages larger than the unit of the region layout.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::abi::{Layout, PAGE};
use crate::clock::Counter;

const CPUS: u16 = 2;
const RING_BYTES: u32 = 1 << 20;
const LARGE_PAGE_BYTES: usize = 1 << 16;
const RECORD_BYTES: usize = 1000;
/// Value of all data bytes of the rings that are not under test.
const NEIGHBOUR_BYTE: u8 = 0xA5;

struct RegionFixture {
    reader: RegionReader,
    map: Mapping,
    memory: OwnedFd,
    ring: usize,
    head: u64,
    written: u64,
    seen: u64,
}

impl RegionFixture {
    /// Creates a region for a test of `ring`. All other rings are filled with bytes that must stay.
    fn new(page: usize, ring: usize) -> Self {
        let layout = Layout::new(CPUS, RING_BYTES).unwrap();
        let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 1, max_record: 2000 };
        let bytes = layout.region_bytes();
        let memory = map::memory_file(c"traceweir-test", bytes).unwrap();
        let map = Mapping::from_file(memory.as_fd(), bytes, true).unwrap();
        for other in (0..layout.rings()).filter(|other| *other != ring) {
            assert!(map.copy_in(layout.data_offset(other), &vec![NEIGHBOUR_BYTE; RING_BYTES as usize]));
        }
        let owned = Mapping::from_file(memory.as_fd(), bytes, true).unwrap().with_page_bytes(page);
        let reader = RegionReader::from_mapping(owned, &params).unwrap();
        Self { reader, map, memory, ring, head: 0, written: 0, seen: 0 }
    }

    fn layout(&self) -> Layout {
        self.reader.params().layout
    }

    /// Writes one record of known bytes, like the process. Returns whether the record fitted.
    fn write_record(&mut self) -> bool {
        let (control, data) = (self.layout().control_offset(self.ring), self.layout().data_offset(self.ring));
        let tail = self.map.word(control + abi::control::TAIL).unwrap().load(Ordering::Acquire);
        let size = abi::size_in_ring(RECORD_BYTES) as u64;
        let Some(slot) = crate::ring::words::RecordSlot::find(self.head, tail, size, u64::from(RING_BYTES))
        else {
            return false;
        };
        if let Some(marker) = slot.marker {
            assert!(self.map.copy_in(data + marker, &abi::SKIP.to_le_bytes()));
        }
        let cpu = (self.ring % usize::from(CPUS)) as u16;
        let prefix = [abi::prefix_word(RECORD_BYTES as u32, cpu, 0), self.written];
        assert!(self.map.copy_in(data + slot.offset, prefix.map(u64::to_le_bytes).as_flattened()));
        // The bytes are never zero, so that a page that was given back too early is noticed.
        assert!(self.map.copy_in(data + slot.offset + 16, &[self.written as u8 | 1; RECORD_BYTES]));
        self.map.word(control + abi::control::HEAD).unwrap().store(slot.end, Ordering::Release);
        (self.head, self.written) = (slot.end, self.written + 1);
        true
    }

    /// Reads up to `max_records` records and frees their bytes.
    fn read_records(&mut self, max_records: u64) {
        let ring = &mut self.reader.rings[self.ring];
        ring.poll().unwrap();
        let mut bytes = [0; RECORD_BYTES];
        for _ in 0..max_records {
            let Some(prefix) = ring.peek().unwrap() else { break };
            assert_eq!((prefix.stamp, prefix.length), (self.seen, RECORD_BYTES));
            ring.take(&mut bytes);
            assert!(bytes.iter().all(|byte| *byte == self.seen as u8 | 1), "record {} was wiped", self.seen);
            self.seen += 1;
        }
        ring.release();
        self.reader.measure_rates();
    }

    fn assert_neighbours_unchanged(&self) {
        let layout = self.layout();
        let mut bytes = vec![0; RING_BYTES as usize];
        for other in (0..layout.rings()).filter(|other| *other != self.ring) {
            assert!(self.map.copy_out(layout.data_offset(other), &mut bytes));
            assert!(
                bytes.iter().all(|byte| *byte == NEIGHBOUR_BYTE),
                "ring {other} lost bytes to ring {}",
                self.ring
            );
        }
        let mut header = [0; abi::HEADER_BYTES];
        assert!(self.map.copy_out(0, &mut header));
        assert_eq!(header, self.reader.params().header());
    }

    /// Returns the bytes of memory that the ring under test takes.
    fn allocated_bytes(&self) -> u64 {
        let file_bytes = rustix::fs::fstat(&self.memory).unwrap().st_blocks as u64 * 512;
        file_bytes.saturating_sub(u64::from(RING_BYTES) * (self.layout().rings() as u64 - 1))
    }
}

#[test]
fn pages_of_any_size_are_given_back_and_neighbours_keep_theirs() {
    for page in [map::page_size(), 4 * map::page_size(), LARGE_PAGE_BYTES.max(map::page_size())] {
        for ring in 0..2 * usize::from(CPUS) {
            let mut fixture = RegionFixture::new(page, ring);
            assert!(fixture.reader.rings[ring].can_return_pages);
            let mut max_allocated = 0;
            for round in 0..600 {
                for _ in 0..8 {
                    assert!(fixture.write_record());
                }
                // Some records stay unread, so that reader and writer are at different positions.
                fixture.read_records(7 + round % 3);
                max_allocated = max_allocated.max(fixture.allocated_bytes());
            }
            assert!(fixture.head > 4 * u64::from(RING_BYTES), "the writer did not come around");
            fixture.read_records(u64::MAX);
            assert_eq!(fixture.seen, fixture.written);
            fixture.assert_neighbours_unchanged();
            // Allowed are the pages being written, the page held back, and the two pages that the
            // ring shares with its neighbours; and the header with the control blocks.
            assert!(
                max_allocated <= 5 * page as u64 + 16 * PAGE as u64,
                "{max_allocated} bytes with pages of {page}"
            );
        }
    }
}

#[test]
fn full_ring_gets_its_space_back_with_any_page_size() {
    for page in [map::page_size(), LARGE_PAGE_BYTES.max(map::page_size())] {
        let mut fixture = RegionFixture::new(page, 1);
        for _ in 0..3 {
            while fixture.write_record() {}
            fixture.read_records(1);
            while fixture.write_record() {}
            fixture.read_records(u64::MAX);
            assert_eq!(fixture.seen, fixture.written);
            // A record fits even while a page is held back.
            assert!(fixture.write_record());
        }
        fixture.assert_neighbours_unchanged();
    }
}

#[test]
fn small_rings_do_not_return_pages() {
    let layout = Layout::new(1, 1 << 16).unwrap();
    let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 1, max_record: 2000 };
    // A ring must have at least eight pages.
    for (page, returns_pages) in [(1 << 12, true), (1 << 13, true), (1 << 14, false), (1 << 16, false)] {
        if page < map::page_size() {
            continue;
        }
        let memory = map::memory_file(c"traceweir-test", layout.region_bytes()).unwrap();
        let map =
            Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).unwrap().with_page_bytes(page);
        let reader = RegionReader::from_mapping(map, &params).unwrap();
        assert_eq!(reader.rings[0].can_return_pages, returns_pages, "pages of {page}");
    }
}
