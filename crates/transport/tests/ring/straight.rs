//! Tests of straight writes, which copy the pieces of a record directly into the ring: the record
//! has the same bytes as if it had been assembled first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{
    Block, Blocks, Header, Outlet, RegionReader, Straight, Ticket, supports_rseq,
};

use crate::support;

/// The pieces of a record.
struct Pieces {
    first: u64,
    thread: u32,
    provider: [AtomicU64; 2],
    descriptor: [u8; 16],
    activity: [u8; 16],
    items: Vec<u64>,
    schema: Option<(u64, Vec<u8>)>,
    blocks: Vec<Vec<u8>>,
    flags: u16,
}

/// A generator of pseudo-random numbers that are the same in every run.
struct NumberGenerator(u64);

impl NumberGenerator {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

impl Pieces {
    fn random(numbers: &mut NumberGenerator) -> Self {
        let word = |numbers: &mut NumberGenerator| u64::from_le_bytes(numbers.bytes(8).try_into().unwrap());
        let sizes = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 511, 512, 513, 700];
        let has_schema = numbers.below(3) != 0;
        Self {
            // The low 16 bits become the size of the record.
            first: word(numbers) & !0xFFFF,
            thread: numbers.below(1 << 31) as u32,
            provider: [word(numbers).into(), word(numbers).into()],
            descriptor: numbers.bytes(16).try_into().unwrap(),
            activity: numbers.bytes(16).try_into().unwrap(),
            // No items, or at least the header of an item and a word of data.
            items: (0..[0, 2, 3, 4, 5, 9, 12][numbers.below(7)]).map(|_| word(numbers)).collect(),
            schema: has_schema.then(|| {
                let length = 16 + numbers.below(120);
                (word(numbers) | 1, numbers.bytes(length))
            }),
            blocks: (0..numbers.below(6))
                .map(|_| {
                    let size = sizes[numbers.below(sizes.len())];
                    numbers.bytes(size)
                })
                .collect(),
            flags: numbers.below(2) as u16,
        }
    }

    /// Returns the bytes that a reader must find: the event header of 80 bytes, the extended data
    /// items, the schema, and the blocks of the payload.
    fn expected_bytes(&self) -> Vec<u8> {
        // The first word is set at the end, when the size is known.
        let mut record = vec![0; 8];
        record.extend(u64::from(self.thread).to_le_bytes());
        // The owner fills in the time.
        record.extend([0; 8]);
        self.provider.iter().for_each(|word| record.extend(word.load(Ordering::Relaxed).to_le_bytes()));
        record.extend(self.descriptor);
        record.extend([0; 8]);
        record.extend(self.activity);
        self.items.iter().for_each(|word| record.extend(word.to_le_bytes()));
        if let Some((header, bytes)) = &self.schema {
            record.extend(header.to_le_bytes());
            record.extend(bytes);
            record.resize(record.len().next_multiple_of(8), 0);
        }
        self.blocks.iter().for_each(|block| record.extend(block));
        let first = self.first | record.len() as u64;
        record[..8].copy_from_slice(&first.to_le_bytes());
        record
    }

    fn write(&self, outlet: &Outlet, ticket: Ticket) -> bool {
        let slices: Vec<&[u8]> = self.blocks.iter().map(Vec::as_slice).collect();
        let blocks = Blocks::from_slices(Block::from_slices(&slices)).unwrap();
        let header = Header {
            first: self.first,
            thread: self.thread,
            provider: &self.provider,
            descriptor: &self.descriptor,
            activity: &self.activity,
        };
        let schema = self.schema.as_ref().map(|(header, bytes)| (*header, bytes.as_slice()));
        let mut record = Straight::new(&header, &self.items, schema, blocks, self.flags).unwrap();
        outlet.write_straight(ticket, &mut record)
    }
}

/// Returns all records of a region with their flags.
fn take_records(reader: &mut RegionReader) -> Vec<(u16, Vec<u8>)> {
    let mut records = Vec::new();
    for ring in reader.rings() {
        ring.poll().unwrap();
        while let Some(prefix) = ring.peek().unwrap() {
            let mut bytes = vec![0; prefix.length];
            ring.take(&mut bytes);
            records.push((prefix.flags, bytes));
        }
        ring.release();
    }
    records
}

#[test]
fn direct_write_has_the_bytes_of_its_pieces_at_any_position() {
    // The record is written in a sequence with one clock, and under a lock with the other.
    support::WRITER_CLOCKS.into_iter().for_each(check_bytes_of_direct_writes);
}

fn check_bytes_of_direct_writes(clock: Counter) {
    let outlet = support::leak_outlet();
    let (mut reader, ticket) = support::open_region(outlet, &support::region_params(clock, 8192));
    support::pin_to_cpu(0);
    let mut numbers = NumberGenerator(7);
    for _ in 0..4000 {
        let count = 1 + numbers.below(2);
        let records: Vec<Pieces> = (0..count).map(|_| Pieces::random(&mut numbers)).collect();
        let expected: Vec<_> = records
            .iter()
            .filter(|pieces| pieces.write(outlet, ticket))
            .map(|pieces| (pieces.flags, pieces.expected_bytes()))
            .collect();
        assert!(!expected.is_empty(), "no record was written to an empty ring");
        assert_eq!(take_records(&mut reader), expected);
    }
    assert_eq!(reader.lost(), 0, "a direct write counted a loss");
    assert!(outlet.close());
}

#[test]
fn invalid_tickets_and_unsuitable_records_are_not_written_directly() {
    let pieces = Pieces::random(&mut NumberGenerator(3));
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (mut reader, ticket) = support::open_region(outlet, &support::region_params(clock, 4096));
        assert!(!pieces.write(outlet, Ticket(0)) && !pieces.write(outlet, Ticket(ticket.0 + 2)));
        assert!(!pieces.write(outlet, Ticket(ticket.0 + 1)), "an even number was accepted as a ticket");
        assert!(take_records(&mut reader).is_empty());
        assert!(outlet.close());
        assert!(!pieces.write(outlet, ticket), "a closed outlet took a record");
        assert_eq!(reader.lost(), 0);
    }
    let (long, short) = (vec![0; 70_000], vec![0; 40_000]);
    assert!(Blocks::from_slices(Block::from_slices(&[&long])).is_none());
    let header = Header {
        first: 0,
        thread: 1,
        provider: &pieces.provider,
        descriptor: &pieces.descriptor,
        activity: &pieces.activity,
    };
    let two_blocks = [Block::new(&short), Block::new(&short)];
    let too_large = Straight::new(&header, &[], None, Blocks::new(&two_blocks), 0);
    assert!(too_large.is_none(), "blocks that are too large together were accepted");
    assert!(Straight::new(&header, &[], Some((1, &long)), Blocks::new(&[]), 0).is_none());
    assert!(Straight::new(&header, &[], Some((1, &short[..15])), Blocks::new(&[]), 0).is_none());
    assert!(Straight::new(&header, &[], Some((1, &short[..16])), Blocks::new(&[]), 0).is_some());
    let one_word = Straight::new(&header, &[1], None, Blocks::new(&[]), 0);
    assert!(one_word.is_none(), "items of one word were accepted");
    assert_eq!(two_blocks[0].bytes().len(), 40_000);
}

#[test]
fn no_record_of_migrating_threads_is_torn() {
    if !supports_rseq() {
        return;
    }
    static DONE: AtomicBool = AtomicBool::new(false);
    let outlet = support::leak_outlet();
    let (mut reader, ticket) =
        support::open_region(outlet, &support::region_params(Counter::Cycles, 1 << 16));
    let writers: Vec<_> = (0..6_u64)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut numbers = NumberGenerator(writer);
                let mut written = Vec::new();
                for _ in 0..3000 {
                    let mut pieces = Pieces::random(&mut numbers);
                    pieces.thread = writer as u32;
                    // A full ring refuses the record until the collector has drained it.
                    while !pieces.write(outlet, ticket) {
                        std::thread::yield_now();
                    }
                    written.push(pieces.expected_bytes());
                }
                written
            })
        })
        .collect();
    let collector = std::thread::spawn(move || {
        let mut records = Vec::new();
        while !DONE.load(Ordering::Acquire) {
            records.extend(take_records(&mut reader));
        }
        records.extend(take_records(&mut reader));
        records
    });
    let mut written: Vec<Vec<u8>> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    DONE.store(true, Ordering::Release);
    let mut arrived: Vec<Vec<u8>> = collector.join().unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    written.sort();
    arrived.sort();
    // Six writers with 3,000 records each.
    assert_eq!(written.len(), 18_000);
    assert!(written == arrived, "{} written, {} arrived", written.len(), arrived.len());
    assert!(outlet.close());
}
