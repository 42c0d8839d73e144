//! Parses the records of a perf ring.
//!
//! ```text
//!   sample   header │ u64 id │ [u64 ip] │ u32 pid, tid │ u64 time │ [u64 addr]
//!                   │ [counts: u64 n, n × u64] │ [callchain: u64 n, n × u64]
//!                   │ [raw: u32 n, n bytes with padding] │ [user registers: u64 abi, u64 each]
//!                   │ [user stack: u64 n, n bytes, u64 copied bytes, absent if n is 0]
//!                   │ [registers at the moment of the event: u64 abi, u64 each]
//!   sideband header │ fields of the type │ u32 pid, tid │ u64 time │ u64 id
//! ```
//!
//! The attributes of the event determine which of the bracketed parts are present
//! ([`SampleParts`]). The id, first in a sample and last in a side-band record, identifies the
//! event.

use traceweir_format::wire::{u16_at, u32_at, u64_at};

use crate::perf_ring::RECORD_HEADER_BYTES;
use perf_event_open_sys::bindings as sys;

/// Bytes at the end of side-band records: pid, tid, time, id.
const TRAILER_BYTES: usize = 24;

/// The parts of a sample, as bits of `sample_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleParts(pub(crate) u64);

impl SampleParts {
    pub(crate) const IP: Self = Self(sys::PERF_SAMPLE_IP as u64);
    pub(crate) const ADDR: Self = Self(sys::PERF_SAMPLE_ADDR as u64);
    /// Counts of the event and of the counters in its group, in the layout of `PERF_FORMAT_GROUP`
    /// alone.
    pub(crate) const READ: Self = Self(sys::PERF_SAMPLE_READ as u64);
    pub(crate) const CALLCHAIN: Self = Self(sys::PERF_SAMPLE_CALLCHAIN as u64);
    pub(crate) const RAW: Self = Self(sys::PERF_SAMPLE_RAW as u64);
    pub(crate) const REGS_USER: Self = Self(sys::PERF_SAMPLE_REGS_USER as u64);
    pub(crate) const STACK_USER: Self = Self(sys::PERF_SAMPLE_STACK_USER as u64);
    pub(crate) const REGS_INTR: Self = Self(sys::PERF_SAMPLE_REGS_INTR as u64);
    /// The parts of all events.
    pub(crate) const ALWAYS: Self =
        Self(sys::PERF_SAMPLE_IDENTIFIER as u64 | sys::PERF_SAMPLE_TID as u64 | sys::PERF_SAMPLE_TIME as u64);

    pub(crate) const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub(crate) const fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerfSample<'a> {
    /// `CLOCK_MONOTONIC` time in nanoseconds.
    pub(crate) time: u64,
    pub(crate) cpu: u16,
    /// The running process and thread; 0 is idle.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) ip: u64,
    pub(crate) addr: u64,
    /// Counters that were read with the sample, 8 bytes each, in the requested order.
    pub(crate) counters: &'a [u8],
    /// Addresses, innermost first, 8 bytes each, with context markers between them.
    pub(crate) callchain: &'a [u8],
    /// The raw data of a tracepoint.
    pub(crate) raw: &'a [u8],
    /// User registers: those of `sample_regs_user`, 8 bytes each.
    pub(crate) user_regs: &'a [u8],
    /// A copy of the user stack, starting at the stack pointer.
    pub(crate) user_stack: &'a [u8],
    /// Registers at the moment of the event.
    pub(crate) regs: &'a [u8],
}

/// A record that is not a sample: perf calls these side-band records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SidebandRecord<'a> {
    /// `CLOCK_MONOTONIC` time in nanoseconds.
    pub(crate) time: u64,
    /// The process and thread that ran when the record was written.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) body: Sideband<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sideband<'a> {
    Mmap(Mmap<'a>),
    /// A thread has changed its name; `is_exec` means that its process has executed a program.
    Comm {
        pid: u32,
        tid: u32,
        name: &'a [u8],
        is_exec: bool,
    },
    /// Thread `ptid` of process `ppid` has created thread `tid` of process `pid`.
    Fork {
        pid: u32,
        ppid: u32,
        tid: u32,
        ptid: u32,
    },
    /// A thread has ended.
    Exit {
        pid: u32,
        ppid: u32,
        tid: u32,
    },
    /// This many records did not fit into the ring.
    Lost(u64),
    /// The running thread was switched in or out.
    Switch {
        is_out: bool,
        is_preempted: bool,
    },
}

/// A new mapping of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mmap<'a> {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) offset: u64,
    pub(crate) protection: u32,
    /// The inode or build id of the file.
    pub(crate) identity: MappingIdentity<'a>,
    pub(crate) name: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MappingIdentity<'a> {
    Inode(u64),
    BuildId(&'a [u8]),
}

fn record_kind(record: &[u8]) -> u32 {
    u32_at(record, 0)
}

fn record_misc(record: &[u8]) -> u32 {
    u32::from(u16_at(record, 4))
}

pub(crate) fn is_sample(record: &[u8]) -> bool {
    record_kind(record) == sys::PERF_RECORD_SAMPLE
}

/// Returns the id of the event that wrote a record.
pub(crate) fn event_id(record: &[u8]) -> u64 {
    if is_sample(record) {
        u64_at(record, RECORD_HEADER_BYTES)
    } else {
        u64_at(record, record.len().saturating_sub(8))
    }
}

pub(crate) fn sideband_time(record: &[u8]) -> u64 {
    u64_at(record, record.len().saturating_sub(16))
}

/// Returns the time of a sample with these parts.
pub(crate) fn sample_time(record: &[u8], parts: SampleParts) -> u64 {
    // Before the time: header, id, ip (optional), pid and tid, 8 bytes each.
    let offset = if parts.has(SampleParts::IP) { 32 } else { 24 };
    u64_at(record, offset)
}

/// Reads the parts of a record one after the other.
struct RecordCursor<'a> {
    remaining: &'a [u8],
}

impl<'a> RecordCursor<'a> {
    fn take_u64(&mut self) -> Option<u64> {
        let (word, remaining) = self.remaining.split_first_chunk::<8>()?;
        self.remaining = remaining;
        Some(u64::from_le_bytes(*word))
    }

    fn take_bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, remaining) = self.remaining.split_at_checked(length)?;
        self.remaining = remaining;
        Some(bytes)
    }

    fn take_words(&mut self, count: u64) -> Option<&'a [u8]> {
        self.take_bytes(usize::try_from(count.checked_mul(8)?).ok()?)
    }
}

/// The numbers of registers that an event was opened to sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegisterCounts {
    pub(crate) user: u32,
    /// Registers at the moment of the event.
    pub(crate) interrupted: u32,
}

/// Parses a sample. Returns `None` if the record does not contain the requested parts.
pub(crate) fn parse_sample<'a>(
    record: &'a [u8],
    parts: SampleParts,
    cpu: u16,
    registers: RegisterCounts,
) -> Option<PerfSample<'a>> {
    let mut cursor = RecordCursor { remaining: record.get(RECORD_HEADER_BYTES..)? };
    let mut sample = PerfSample { cpu, ..PerfSample::default() };
    cursor.take_u64()?;
    if parts.has(SampleParts::IP) {
        sample.ip = cursor.take_u64()?;
    }
    let ids = cursor.take_u64()?;
    (sample.pid, sample.tid) = ((ids & 0xFFFF_FFFF) as u32, (ids >> 32) as u32);
    sample.time = cursor.take_u64()?;
    if parts.has(SampleParts::ADDR) {
        sample.addr = cursor.take_u64()?;
    }
    if parts.has(SampleParts::READ) {
        let count = cursor.take_u64()?;
        // The first count is that of the event itself.
        sample.counters = cursor.take_words(count)?.get(8..).unwrap_or_default();
    }
    if parts.has(SampleParts::CALLCHAIN) {
        let count = cursor.take_u64()?;
        sample.callchain = cursor.take_words(count)?;
    }
    if parts.has(SampleParts::RAW) {
        let size = usize::try_from(u32_at(cursor.remaining, 0)).ok()?;
        // The size includes the padding that aligns size and data to eight bytes.
        cursor.take_bytes(4)?;
        sample.raw = cursor.take_bytes(size)?;
    }
    // ABI 0 means that no registers follow, for example because the thread is a kernel thread.
    if parts.has(SampleParts::REGS_USER) {
        let abi = cursor.take_u64()?;
        sample.user_regs = if abi == 0 { &[] } else { cursor.take_words(u64::from(registers.user))? };
    }
    if parts.has(SampleParts::STACK_USER) {
        let size = usize::try_from(cursor.take_u64()?).ok()?;
        let stack = cursor.take_bytes(size)?;
        let copied_bytes = if size == 0 { 0 } else { usize::try_from(cursor.take_u64()?).ok()? };
        sample.user_stack = stack.get(..copied_bytes.min(size))?;
    }
    if parts.has(SampleParts::REGS_INTR) {
        let abi = cursor.take_u64()?;
        sample.regs = if abi == 0 { &[] } else { cursor.take_words(u64::from(registers.interrupted))? };
    }
    Some(sample)
}

/// Returns the bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses a side-band record. Returns `None` for types that are not requested and for records that
/// are too short.
///
/// `requests_build_ids` is whether all events that report mappings request build ids. The kernel
/// reports one mapping to all interested events, and once it has set the build id flag for one of
/// them, the flag stays set for the following ones, even though these get device and inode. For an
/// event that requests build ids the flag is correct: the kernel has the build id of a file for all
/// events or for none.
pub(crate) fn parse_sideband(record: &[u8], requests_build_ids: bool) -> Option<SidebandRecord<'_>> {
    let end = record.len().checked_sub(TRAILER_BYTES)?;
    let fields = record.get(RECORD_HEADER_BYTES..end)?;
    let (pid, tid) = (u32_at(record, end), u32_at(record, end.saturating_add(4)));
    let misc = record_misc(record);
    let word = |index: usize| u32_at(fields, index.saturating_mul(4));
    let body = match record_kind(record) {
        sys::PERF_RECORD_MMAP2 => Sideband::Mmap(parse_mmap(fields, misc, requests_build_ids)?),
        sys::PERF_RECORD_COMM => Sideband::Comm {
            pid: word(0),
            tid: word(1),
            name: until_nul(fields.get(8..)?),
            is_exec: misc & sys::PERF_RECORD_MISC_COMM_EXEC != 0,
        },
        sys::PERF_RECORD_FORK => Sideband::Fork { pid: word(0), ppid: word(1), tid: word(2), ptid: word(3) },
        sys::PERF_RECORD_EXIT => Sideband::Exit { pid: word(0), ppid: word(1), tid: word(2) },
        sys::PERF_RECORD_LOST => Sideband::Lost(u64_at(fields, 8)),
        sys::PERF_RECORD_LOST_SAMPLES => Sideband::Lost(u64_at(fields, 0)),
        sys::PERF_RECORD_SWITCH | sys::PERF_RECORD_SWITCH_CPU_WIDE => Sideband::Switch {
            is_out: misc & sys::PERF_RECORD_MISC_SWITCH_OUT != 0,
            is_preempted: misc & sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0,
        },
        _ => return None,
    };
    Some(SidebandRecord { time: sideband_time(record), pid, tid, body })
}

fn parse_mmap(body: &[u8], misc: u32, requests_build_ids: bool) -> Option<Mmap<'_>> {
    /// `PERF_RECORD_MISC_MMAP_BUILD_ID`: a build id takes the place of device and inode.
    const WITH_BUILD_ID: u32 = 1 << 14;
    let field = body.get(32..56)?;
    let identity = if misc & WITH_BUILD_ID != 0 && requests_build_ids {
        // An invalid build id leaves the file unknown.
        parse_build_id(field).map_or(MappingIdentity::Inode(0), MappingIdentity::BuildId)
    } else {
        MappingIdentity::Inode(u64_at(field, 8))
    };
    Some(Mmap {
        pid: u32_at(body, 0),
        tid: u32_at(body, 4),
        start: u64_at(body, 8),
        length: u64_at(body, 16),
        offset: u64_at(body, 24),
        protection: u32_at(body, 56),
        identity,
        name: until_nul(body.get(64..)?),
    })
}

/// Returns the build id in a mapping record: its size, three zero bytes, up to twenty bytes.
fn parse_build_id(field: &[u8]) -> Option<&[u8]> {
    let ([size, 0, 0, 0], id) = field.split_first_chunk::<4>()? else { return None };
    id.get(..usize::from(*size)).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsing_arbitrary_bytes_does_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0_u8..20,
            parts in any::<u64>(),
            user in any::<u32>(),
            interrupted in any::<u32>(),
            requests_build_ids in any::<bool>(),
        ) {
            let mut record = vec![kind, 0, 0, 0];
            record.extend(bytes);
            let parts = SampleParts(parts);
            if let Some(sample) = parse_sample(&record, parts, 0, RegisterCounts { user, interrupted }) {
                prop_assert!(sample.counters.len() % 8 == 0 && sample.raw.len() <= record.len());
            }
            if let Some(SidebandRecord { body: Sideband::Mmap(mmap), .. }) = parse_sideband(&record, requests_build_ids) {
                prop_assert!(mmap.name.len() <= record.len());
            }
        }
    }

    /// Builds a sample from a header and these words.
    fn build_sample(words: &[u64]) -> Vec<u8> {
        let mut bytes = sys::PERF_RECORD_SAMPLE.to_le_bytes().to_vec();
        // Misc and size, which the parser does not use.
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn counters_follow_the_count_of_the_event() {
        let parts =
            SampleParts::ALWAYS.with(SampleParts::ADDR).with(SampleParts::READ).with(SampleParts::CALLCHAIN);
        // Id, ids of thread and process, time, address; three counts; one frame.
        let bytes = build_sample(&[7, 2 << 32 | 1, 99, 0xAD, 3, 5, 11, 12, 1, 0xCA]);
        let sample = parse_sample(&bytes, parts, 4, RegisterCounts::default()).expect("invalid sample");
        assert_eq!((sample.pid, sample.tid, sample.time, sample.addr, sample.cpu), (1, 2, 99, 0xAD, 4));
        let counters: Vec<u64> = sample.counters.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        assert_eq!(counters, [11, 12]);
        assert_eq!(sample.callchain, &0xCA_u64.to_le_bytes()[..]);
    }

    #[test]
    fn counts_beyond_the_end_of_a_sample_are_rejected() {
        let parts = SampleParts::ALWAYS.with(SampleParts::READ);
        for count in [3, u64::MAX, u64::MAX / 8, 1 << 61] {
            let bytes = build_sample(&[7, 1, 99, count, 5]);
            assert!(parse_sample(&bytes, parts, 0, RegisterCounts::default()).is_none(), "{count}");
        }
        let no_counts = build_sample(&[7, 1, 99, 0]);
        assert_eq!(
            parse_sample(&no_counts, parts, 0, RegisterCounts::default()).expect("invalid sample").counters,
            [0; 0]
        );
    }

    /// Builds a mapping with the build id flag and this field for device and inode or build id.
    fn build_mapping(field: [u8; 24]) -> Vec<u8> {
        let mut bytes = sys::PERF_RECORD_MMAP2.to_le_bytes().to_vec();
        // Misc, with the build id flag, and size.
        bytes.extend([0, 0x40, 0, 0]);
        bytes.extend([0; 32]);
        bytes.extend(field);
        bytes.extend([0; 8 + 8]);
        bytes.extend([0; TRAILER_BYTES]);
        bytes
    }

    #[test]
    fn build_id_is_used_only_if_requested() {
        let identity =
            |field, requests_build_ids| match parse_sideband(&build_mapping(field), requests_build_ids) {
                Some(SidebandRecord { body: Sideband::Mmap(mmap), .. }) => match mmap.identity {
                    MappingIdentity::Inode(inode) => Err(inode),
                    MappingIdentity::BuildId(id) => Ok(id.to_vec()),
                },
                _ => panic!("the record is not a mapping"),
            };
        let field_with_size = |first: [u8; 4]| {
            let mut field = [7; 24];
            field[..4].copy_from_slice(&first);
            field
        };
        assert_eq!(identity(field_with_size([20, 0, 0, 0]), true), Ok(vec![7; 20]));
        assert_eq!(identity(field_with_size([3, 0, 0, 0]), true), Ok(vec![7; 3]));
        // The major number of a device lies where the size would be.
        let mut inode = [0; 24];
        inode[0] = 8;
        inode[8..10].copy_from_slice(&[0x34, 0x12]);
        assert_eq!(identity(inode, false), Err(0x1234), "the flag was set for another event");
        for invalid in [[0; 4], [21, 0, 0, 0], [255, 0, 0, 0], [20, 1, 0, 0], [20, 0, 0, 1]] {
            assert_eq!(identity(field_with_size(invalid), true), Err(0), "{invalid:?}");
        }
    }
}
