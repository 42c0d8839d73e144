//! Tests of giving pages back on machines with pages larger than the unit of the region layout.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::abi::{Layout, PAGE};
use crate::clock::Counter;

const CPUS: u16 = 2;
const RING: u32 = 1 << 20;
const LARGE: usize = 1 << 16;
const LENGTH: usize = 1000;
/// Fills everything outside the ring under test: its neighbours, and the rest of the pages around
/// it.
const OTHERS: u8 = 0xA5;

struct Stage {
    reader: RegionReader,
    map: Mapping,
    memory: OwnedFd,
    ring: usize,
    head: u64,
    written: u64,
    seen: u64,
}

impl Stage {
    /// Creates a region in which all other rings are filled with bytes that must stay.
    fn new(page: usize, ring: usize) -> Self {
        let layout = Layout::new(CPUS, RING).unwrap();
        let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 1, max_record: 2000 };
        let bytes = layout.region_bytes();
        let memory = map::memory_file(c"traceweir-test", bytes).unwrap();
        let map = Mapping::from_file(memory.as_fd(), bytes, true).unwrap();
        for other in (0..layout.rings()).filter(|other| *other != ring) {
            assert!(map.copy_in(layout.data_offset(other), &vec![OTHERS; RING as usize]));
        }
        let owned = Mapping::from_file(memory.as_fd(), bytes, true).unwrap().with_page(page);
        let reader = RegionReader::from_mapping(owned, &params).unwrap();
        Self { reader, map, memory, ring, head: 0, written: 0, seen: 0 }
    }

    fn layout(&self) -> Layout {
        self.reader.params().layout
    }

    /// Writes one record of known bytes, like the process. Returns whether there was room.
    fn write(&mut self) -> bool {
        let (control, data) = (self.layout().control_offset(self.ring), self.layout().data_offset(self.ring));
        let tail = self.map.word(control + abi::control::TAIL).unwrap().load(Ordering::Acquire);
        let size = abi::size_in_ring(LENGTH) as u64;
        let Some(slot) = crate::ring::words::RecordSlot::find(self.head, tail, size, u64::from(RING)) else {
            return false;
        };
        if let Some(marker) = slot.marker {
            assert!(self.map.copy_in(data + marker, &abi::SKIP.to_le_bytes()));
        }
        let cpu = (self.ring % usize::from(CPUS)) as u16;
        let prefix = [abi::prefix_word(LENGTH as u32, cpu, 0), self.written];
        assert!(self.map.copy_in(data + slot.offset, prefix.map(u64::to_le_bytes).as_flattened()));
        assert!(self.map.copy_in(data + slot.offset + 16, &[self.written as u8 | 1; LENGTH]));
        self.map.word(control + abi::control::HEAD).unwrap().store(slot.end, Ordering::Release);
        (self.head, self.written) = (slot.end, self.written + 1);
        true
    }

    /// Reads up to `most` records and gives them back.
    fn read(&mut self, most: u64) {
        let ring = &mut self.reader.rings[self.ring];
        ring.poll().unwrap();
        let mut bytes = [0; LENGTH];
        for _ in 0..most {
            let Some(head) = ring.peek().unwrap() else { break };
            assert_eq!((head.stamp, head.length), (self.seen, LENGTH));
            ring.take(&mut bytes);
            assert!(bytes.iter().all(|byte| *byte == self.seen as u8 | 1), "record {} was wiped", self.seen);
            self.seen += 1;
        }
        ring.release();
        self.reader.give_back();
    }

    fn check_neighbours(&self) {
        let layout = self.layout();
        let mut bytes = vec![0; RING as usize];
        for other in (0..layout.rings()).filter(|other| *other != self.ring) {
            assert!(self.map.copy_out(layout.data_offset(other), &mut bytes));
            assert!(
                bytes.iter().all(|byte| *byte == OTHERS),
                "ring {other} lost bytes to ring {}",
                self.ring
            );
        }
        let mut header = [0; abi::HEADER_BYTES];
        assert!(self.map.copy_out(0, &mut header));
        assert_eq!(header, self.reader.params().header());
    }

    /// Returns the bytes of memory that the ring under test takes.
    fn held(&self) -> u64 {
        let all = rustix::fs::fstat(&self.memory).unwrap().st_blocks as u64 * 512;
        all.saturating_sub(u64::from(RING) * (self.layout().rings() as u64 - 1))
    }
}

#[test]
fn pages_of_any_size_are_given_back_and_neighbours_keep_theirs() {
    for page in [map::page_size(), 4 * map::page_size(), LARGE.max(map::page_size())] {
        for ring in 0..2 * usize::from(CPUS) {
            let mut stage = Stage::new(page, ring);
            assert!(stage.reader.rings[ring].can_return_pages);
            let mut most = 0;
            for round in 0..600 {
                for _ in 0..8 {
                    assert!(stage.write());
                }
                // Some records stay, so that the position differs from the writer's.
                stage.read(7 + round % 3);
                most = most.max(stage.held());
            }
            assert!(stage.head > 4 * u64::from(RING), "the ring came around");
            stage.read(u64::MAX);
            assert_eq!(stage.seen, stage.written);
            stage.check_neighbours();
            // Pages being written, held back, and the two that neighbours share.
            assert!(most <= 5 * page as u64 + 16 * PAGE as u64, "{most} bytes with pages of {page}");
        }
    }
}

#[test]
fn full_ring_gets_its_room_back_with_any_page_size() {
    for page in [map::page_size(), LARGE.max(map::page_size())] {
        let mut stage = Stage::new(page, 1);
        for _ in 0..3 {
            while stage.write() {}
            stage.read(1);
            while stage.write() {}
            stage.read(u64::MAX);
            assert_eq!(stage.seen, stage.written);
            // The largest record finds room even while a page is held back.
            assert!(stage.write());
        }
        stage.check_neighbours();
    }
}

#[test]
fn small_rings_do_not_return_pages() {
    let layout = Layout::new(1, 1 << 16).unwrap();
    let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 1, max_record: 2000 };
    for (page, returns_pages) in [(1 << 12, true), (1 << 13, true), (1 << 14, false), (1 << 16, false)] {
        if page < map::page_size() {
            continue;
        }
        let memory = map::memory_file(c"traceweir-test", layout.region_bytes()).unwrap();
        let map = Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).unwrap().with_page(page);
        let reader = RegionReader::from_mapping(map, &params).unwrap();
        assert_eq!(reader.rings[0].can_return_pages, returns_pages, "pages of {page}");
    }
}
