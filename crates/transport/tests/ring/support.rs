//! Records whose bytes can be checked, and functions that open and drain regions.

use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;
use rustix::thread::CpuSet;
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::ring::{
    Block, Damaged, Gather, Outlet, RecordPrefix, RegionReader, RegionSource, RingReader, Ticket,
    WriteFailure,
};

/// Clocks that select the kind of writer: regions with the cycle counter use restartable sequences,
/// if available; regions with the monotonic clock always use locks.
pub(crate) const WRITER_CLOCKS: [Counter; 2] = [Counter::Cycles, Counter::Monotonic];

pub(crate) fn region_params(clock: Counter, ring_bytes: u32) -> RegionParams {
    let layout = Layout::new(cpu::possible(), ring_bytes).unwrap();
    RegionParams {
        layout,
        clock,
        wake_at: (ring_bytes / 2).max(1),
        max_record: 65535.min(ring_bytes.max(8) / 2),
    }
}

pub(crate) fn create_eventfd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

/// Creates an outlet for one test. It is never freed, as the type requires.
pub(crate) fn leak_outlet() -> &'static Outlet {
    Box::leak(Box::new(Outlet::new()))
}

/// Creates a region and opens it with an outlet.
pub(crate) fn open_region(outlet: &Outlet, params: &RegionParams) -> (RegionReader, Ticket) {
    let (reader, memory) = RegionReader::create(params).unwrap();
    let ticket = outlet.open(RegionSource::File { memory, wake: create_eventfd() }, params).unwrap();
    (reader, ticket)
}

/// Writer, number and length of a record: enough to check every byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordMark {
    pub(crate) writer: u32,
    pub(crate) number: u64,
    pub(crate) length: usize,
}

/// Length of the shortest record that carries a mark.
pub(crate) const MIN_RECORD_BYTES: usize = 16;
const MAX_RECORD_BYTES: usize = 4096;

fn filler_byte(number: u64, index: usize) -> u8 {
    (number as u8).wrapping_mul(31).wrapping_add(index as u8)
}

impl RecordMark {
    /// Creates a mark. The number determines its length, from [`MIN_RECORD_BYTES`] to `max_bytes`.
    pub(crate) fn new(writer: u32, number: u64, max_bytes: usize) -> Self {
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let length = MIN_RECORD_BYTES + (hash as usize) % (max_bytes - MIN_RECORD_BYTES + 1);
        Self { writer, number, length }
    }

    /// Writes the record as a staged part and two blocks. Safe in signal handlers.
    pub(crate) fn write(self, outlet: &Outlet, ticket: Ticket) -> Result<(), WriteFailure> {
        let mut body = [0u8; MAX_RECORD_BYTES];
        let body = &mut body[..self.length];
        body[..8].copy_from_slice(&self.number.to_le_bytes());
        body[8..12].copy_from_slice(&self.writer.to_le_bytes());
        body[12..16].copy_from_slice(&(self.length as u32).to_le_bytes());
        for (index, byte) in body.iter_mut().enumerate().skip(16) {
            *byte = filler_byte(self.number, index);
        }
        let staged_bytes = self.length.min(16 + (self.number % 40) as usize);
        let mut staged = [0u64; 10];
        for (word, bytes) in staged[2..].iter_mut().zip(body[..staged_bytes].chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        let (first, second) = body[staged_bytes..].split_at((self.length - staged_bytes) / 3);
        let rest = [Block::new(first), Block::new(second)];
        let mut record = Gather {
            staged: &mut staged,
            staged_bytes,
            further_parts: &rest,
            flags: u16::from(self.number.is_multiple_of(2)),
        };
        outlet.write(ticket, self.writer + 1, &mut record)
    }

    /// Checks every byte of a record and returns its mark.
    pub(crate) fn check(prefix: RecordPrefix, record: &[u8]) -> Self {
        let number = u64::from_le_bytes(record[..8].try_into().unwrap());
        let writer = u32::from_le_bytes(record[8..12].try_into().unwrap());
        let length = u32::from_le_bytes(record[12..16].try_into().unwrap()) as usize;
        assert_eq!(record.len(), length, "a record of writer {writer}, number {number} has another length");
        assert_eq!(prefix.flags, u16::from(number.is_multiple_of(2)));
        let torn =
            record.iter().enumerate().skip(16).find(|(index, byte)| **byte != filler_byte(number, *index));
        assert_eq!(torn, None, "record {number} of writer {writer} is torn");
        Self { writer, number, length }
    }
}

/// Takes all records that are in a ring now.
pub(crate) fn drain_ring(
    ring: &mut RingReader,
    mut each: impl FnMut(RecordPrefix, RecordMark),
) -> Result<(), Damaged> {
    let mut bytes = vec![0; 65536];
    ring.poll()?;
    while let Some(prefix) = ring.peek()? {
        let record = &mut bytes[..prefix.length];
        ring.take(record);
        each(prefix, RecordMark::check(prefix, record));
    }
    ring.release();
    Ok(())
}

/// The number of ticks by which a stamp may be lower than an earlier stamp of the same ring. This
/// happens because a CPU may read its counter before it executes the instruction that takes the
/// lock. Invalid stamps differ by more.
const MAX_BACKWARD_TICKS: u64 = 100_000_000;

/// Takes all records that are in a ring now without checking them. Returns their number.
pub(crate) fn discard_records(ring: &mut RingReader) -> u64 {
    let mut bytes = vec![0; 65536];
    let mut records = 0;
    ring.poll().unwrap();
    while ring.peek().unwrap().is_some() {
        ring.take(&mut bytes);
        records += 1;
    }
    ring.release();
    records
}

/// Takes all records that are in a region now. Checks that stamps decrease within a ring by at most
/// [`MAX_BACKWARD_TICKS`]. `stamps` holds the highest stamp of each ring between calls.
pub(crate) fn drain_region(
    reader: &mut RegionReader,
    stamps: &mut Vec<u64>,
    mut each: impl FnMut(RecordMark),
) {
    stamps.resize(reader.rings().len(), 0);
    for (ring, highest) in reader.rings().iter_mut().zip(stamps) {
        drain_ring(ring, |prefix, mark| {
            assert!(prefix.stamp + MAX_BACKWARD_TICKS >= *highest, "a stamp went back within a ring");
            *highest = prefix.stamp.max(*highest);
            each(mark);
        })
        .unwrap();
    }
}

/// Pins this thread to one of its allowed CPUs, chosen by a number.
pub(crate) fn pin_to_cpu(number: usize) {
    let mut set = CpuSet::new();
    ALLOWED.with(|allowed| set.set(allowed[number % allowed.len()]));
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

thread_local! {
    /// The CPUs that this thread could run on when it first called [`pin_to_cpu`].
    static ALLOWED: Vec<usize> = {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
    };
}

/// A deterministic generator of pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}
