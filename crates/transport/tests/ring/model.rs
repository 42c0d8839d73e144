//! Compares the ring with a simple model, which has cells that are used or free and a list of the
//! records. Also tests records that no ring can hold.

use std::collections::VecDeque;

use proptest::prelude::*;
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::ring::WriteFailure;

use crate::support::{self, MIN_RECORD_BYTES, RecordMark};

/// A ring of eight-byte cells.
struct ModelRing {
    used: Vec<bool>,
    cursor: usize,
    /// The cells of each record, and the record. If the record did not fit before the end of the
    /// ring, the unused cells there belong to it.
    records: VecDeque<(Vec<usize>, RecordMark)>,
    /// Cells of records that were read but not given back.
    read_cells: Vec<usize>,
    lost: u64,
}

impl ModelRing {
    fn new(ring_bytes: u32) -> Self {
        let used = vec![false; ring_bytes as usize / 8];
        Self { used, cursor: 0, records: VecDeque::new(), read_cells: Vec::new(), lost: 0 }
    }

    fn write(&mut self, mark: RecordMark) -> bool {
        // The prefix has 16 bytes.
        let cell_count = (16 + mark.length).div_ceil(8);
        let (mut cells, mut start) = (Vec::new(), self.cursor);
        // A record that would cross the end goes to the start, and takes the cells before the end
        // too.
        if start + cell_count > self.used.len() {
            cells.extend(start..self.used.len());
            start = 0;
        }
        cells.extend(start..start + cell_count);
        if cells.iter().any(|cell| self.used[*cell]) || cells.len() > self.used.len() {
            self.lost += 1;
            return false;
        }
        for cell in &cells {
            self.used[*cell] = true;
        }
        self.cursor = (start + cell_count) % self.used.len();
        self.records.push_back((cells, mark));
        true
    }

    fn read(&mut self) -> Option<RecordMark> {
        let (cells, mark) = self.records.pop_front()?;
        self.read_cells.extend(cells);
        Some(mark)
    }

    fn release(&mut self) {
        for cell in self.read_cells.drain(..) {
            self.used[cell] = false;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    Release,
}

fn steps(max_record_bytes: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (MIN_RECORD_BYTES..=max_record_bytes).prop_map(Step::Write),
        2 => (0..12usize).prop_map(Step::Read),
        1 => Just(Step::Release),
    ];
    proptest::collection::vec(step, 1..300)
}

/// Runs the steps on the ring and the model, on one CPU, so that one ring takes all records.
fn compare_with_model(clock: Counter, ring_bytes: u32, steps: &[Step]) {
    support::pin_to_cpu(0);
    let outlet = support::leak_outlet();
    let params = support::region_params(clock, ring_bytes);
    let (mut reader, ticket) = support::open_region(outlet, &params);
    let mut model = ModelRing::new(ring_bytes);
    let mut bytes = vec![0; 65536];
    let mut ring_index = None;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Write(length) => {
                let mark = RecordMark { writer: 0, number: number as u64, length };
                let written = mark.write(outlet, ticket);
                assert_eq!(written, if model.write(mark) { Ok(()) } else { Err(WriteFailure::Full) });
            }
            Step::Read(count) => {
                for ring in 0..reader.rings().len() {
                    if reader.rings()[ring].poll().unwrap() {
                        assert_eq!(*ring_index.get_or_insert(ring), ring, "two rings have records");
                    }
                }
                let Some(ring) = ring_index else { continue };
                let ring = &mut reader.rings()[ring];
                for _ in 0..count {
                    let prefix = ring.peek().unwrap();
                    let mark = prefix.map(|prefix| {
                        ring.take(&mut bytes[..prefix.length]);
                        RecordMark::check(prefix, &bytes[..prefix.length])
                    });
                    assert_eq!(mark, model.read());
                }
            }
            Step::Release => {
                reader.rings().iter_mut().for_each(|ring| ring.release());
                model.release();
            }
        }
    }
    assert_eq!(reader.lost(), model.lost);
    let mut remaining = Vec::new();
    support::drain_region(&mut reader, &mut Vec::new(), |mark| remaining.push(mark));
    assert_eq!(remaining, model.records.iter().map(|(_, mark)| *mark).collect::<Vec<_>>());
    let first_lock_ring = usize::from(cpu::possible());
    if let (Some(ring), Counter::Monotonic) = (ring_index, clock) {
        assert!(ring >= first_lock_ring, "a region without a cycle counter did not use the lock");
    }
    assert!(outlet.close());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ring_of_short_records_behaves_like_the_model(steps in steps(200)) {
        for clock in support::WRITER_CLOCKS {
            compare_with_model(clock, 4096, &steps);
        }
    }

    #[test]
    fn ring_of_long_records_behaves_like_the_model(steps in steps(2000)) {
        for clock in support::WRITER_CLOCKS {
            compare_with_model(clock, 8192, &steps);
        }
    }
}

#[test]
fn region_without_rings_counts_everything_as_lost() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (mut reader, ticket) = support::open_region(outlet, &support::region_params(clock, 0));
        for number in 0..100 {
            let mark = RecordMark { writer: 0, number, length: MIN_RECORD_BYTES };
            assert!(mark.write(outlet, ticket).is_err());
        }
        assert_eq!(reader.lost(), 100);
        support::drain_region(&mut reader, &mut Vec::new(), |mark| panic!("{mark:?} was written"));
        assert!(outlet.close());
    }
}

#[test]
fn too_large_records_are_refused_and_counted() {
    use traceweir_transport::ring::Gather;

    let outlet = support::leak_outlet();
    let mut params = support::region_params(Counter::Cycles, 4096);
    params.max_record = 64;
    let (mut reader, ticket) = support::open_region(outlet, &params);
    // The first two words are for the prefix, the others for the staged bytes.
    let write = |words: usize, staged_bytes: usize| {
        let mut staged = vec![0; words];
        outlet.write(
            ticket,
            1,
            &mut Gather { staged: &mut staged, staged_bytes, further_parts: &[], flags: 0 },
        )
    };
    // 64 bytes are the limit. Records without bytes, and records with fewer words than their bytes
    // need, get the same failure as records that are too large.
    assert_eq!(write(10, 64), Ok(()));
    assert_eq!(write(11, 65), Err(WriteFailure::TooLarge));
    assert_eq!(write(2, 0), Err(WriteFailure::TooLarge));
    assert_eq!(write(0, 0), Err(WriteFailure::TooLarge));
    assert_eq!(write(3, 9), Err(WriteFailure::TooLarge), "more bytes than are staged were accepted");
    assert_eq!(write(3, usize::MAX), Err(WriteFailure::TooLarge));
    assert_eq!(reader.lost(), 5);
    assert!(outlet.close());
}
