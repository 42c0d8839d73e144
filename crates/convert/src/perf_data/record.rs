//! Parses samples and other records of the kernel.
//!
//! ```text
//!   sample   [identifier] ip pid,tid time addr id stream cpu period read callchain raw
//!            branches registers …          each part only if the attribute has it
//!   others   body │ pid,tid time id stream cpu identifier, likewise
//! ```
//!
//! Every size comes from the recording and is checked against the end of the record.

use traceweir_format::header::NO_ID;
use traceweir_format::wire::{Cursor, u32_at, u64_at};

use super::attr::{EventAttr, part};
use super::file::{RawRecord, kind};

/// Bits of `read_format`.
const READ_ENABLED: u64 = 1;
const READ_RUNNING: u64 = 2;
const READ_ID: u64 = 4;
const READ_GROUP: u64 = 8;
const READ_LOST: u64 = 16;
/// Bits of `branch_sample_type`: an index precedes the branches; counters follow them.
const BRANCH_HW_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;
const BRANCH_BYTES: usize = 24;
/// Number of the instruction pointer among the user registers, by architecture. On both, no
/// register of the other has this number and a meaning as an address of code.
const X86_IP: u32 = 8;
const ARM64_PC: u32 = 32;
/// `PROT_EXEC`.
const PROTECTION_EXECUTE: u32 = 4;

// Bits of `misc`.
const MISC_CPU_MODE_MASK: u16 = 7;
const MISC_MODE_KERNEL: u16 = 1;
const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_PREEMPTED: u16 = 1 << 14;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
/// The samples did not pass a filter (`perf record --filter`).
const MISC_LOST_BY_FILTER: u16 = 1 << 15;

/// Process, thread, time and processor of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordOrigin {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// The time in nanoseconds; 0 if perf made the record up from the state before the recording.
    pub(super) time: u64,
    pub(super) cpu: u32,
}

impl Default for RecordOrigin {
    fn default() -> Self {
        Self { pid: NO_ID, tid: NO_ID, time: 0, cpu: 0 }
    }
}

/// A sample, as far as an import needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample<'b> {
    pub(super) origin: RecordOrigin,
    pub(super) ip: u64,
    pub(super) period: u64,
    /// Addresses with markers between them, eight bytes each, innermost first.
    pub(super) callchain: &'b [u8],
    /// The data of a tracepoint.
    pub(super) raw: &'b [u8],
    /// The instruction pointer in user mode, if the sample has user registers.
    pub(super) user_ip: Option<u64>,
    /// Whether the sample has a copy of the user stack.
    pub(super) has_user_stack: bool,
}

/// Parses a sample; `None` if it lacks parts that its attribute lists.
pub(super) fn parse_sample<'b>(record: &RawRecord<'b>, attr: &EventAttr) -> Option<Sample<'b>> {
    let mut cursor = Cursor::new("perf sample", record.body());
    let mut sample = Sample::default();
    let mut take = |is_present: bool| if is_present { cursor.u64().ok() } else { Some(0) };
    take(attr.has(part::IDENTIFIER))?;
    sample.ip = take(attr.has(part::IP))?;
    if attr.has(part::TID) {
        (sample.origin.pid, sample.origin.tid) = split_word(take(true)?);
    }
    sample.origin.time = take(attr.has(part::TIME))?;
    take(attr.has(part::ADDR))?;
    take(attr.has(part::ID))?;
    take(attr.has(part::STREAM_ID))?;
    sample.origin.cpu = split_word(take(attr.has(part::CPU))?).0;
    sample.period = take(attr.has(part::PERIOD))?;
    if attr.has(part::READ) {
        skip_read(&mut cursor, attr.read_format)?;
    }
    if attr.has(part::CALLCHAIN) {
        let count = cursor.u64().ok()?;
        sample.callchain = take_items(&mut cursor, count, 8)?;
    }
    if attr.has(part::RAW) {
        let size = cursor.u32().ok()?;
        sample.raw = cursor.bytes(usize::try_from(size).ok()?).ok()?;
    }
    if attr.has(part::BRANCH_STACK) {
        skip_branches(&mut cursor, attr.branch_type)?;
    }
    if attr.has(part::REGS_USER) {
        sample.user_ip = take_user_ip(&mut cursor, attr.user_registers)?;
    }
    if attr.has(part::STACK_USER) {
        sample.has_user_stack = cursor.u64().ok()? > 0;
    }
    Some(sample)
}

/// Returns the lower and the upper half of a word.
fn split_word(word: u64) -> (u32, u32) {
    let bytes = word.to_le_bytes();
    (u32_at(&bytes, 0), u32_at(&bytes, 4))
}

fn take_items<'b>(cursor: &mut Cursor<'b>, count: u64, item_bytes: usize) -> Option<&'b [u8]> {
    cursor.bytes(usize::try_from(count).ok()?.checked_mul(item_bytes)?).ok()
}

fn skip_read(cursor: &mut Cursor<'_>, format: u64) -> Option<()> {
    let words = |bits: u64| u64::from((format & bits).count_ones());
    let times = words(READ_ENABLED | READ_RUNNING);
    let per_value = words(READ_ID | READ_LOST).saturating_add(1);
    if format & READ_GROUP == 0 {
        return take_items(cursor, times.saturating_add(per_value), 8).map(drop);
    }
    let count = cursor.u64().ok()?;
    take_items(cursor, count.checked_mul(per_value)?.checked_add(times)?, 8).map(drop)
}

fn skip_branches(cursor: &mut Cursor<'_>, branch_type: u64) -> Option<()> {
    let count = cursor.u64().ok()?;
    if branch_type & BRANCH_HW_INDEX != 0 {
        cursor.u64().ok()?;
    }
    take_items(cursor, count, BRANCH_BYTES)?;
    if branch_type & BRANCH_COUNTERS != 0 {
        take_items(cursor, count, 8)?;
    }
    Some(())
}

/// Reads the user registers and returns the instruction pointer; `Some(None)` if it is not among
/// them.
fn take_user_ip(cursor: &mut Cursor<'_>, mask: u64) -> Option<Option<u64>> {
    let abi = cursor.u64().ok()?;
    if abi == 0 {
        return Some(None);
    }
    let registers = take_items(cursor, u64::from(mask.count_ones()), 8)?;
    let number = if mask >> ARM64_PC & 1 != 0 { ARM64_PC } else { X86_IP };
    if mask >> number & 1 == 0 {
        return Some(None);
    }
    // Registers are in the order of their numbers.
    let below = mask & 1_u64.checked_shl(number)?.wrapping_sub(1);
    let at = usize::try_from(below.count_ones()).ok()?.checked_mul(8)?;
    Some(registers.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word)))
}

/// Parses the end of a record other than a sample.
pub(super) fn parse_origin(record: &RawRecord<'_>, attr: &EventAttr) -> RecordOrigin {
    let mut origin = RecordOrigin::default();
    if !attr.has_sample_id() {
        return origin;
    }
    // From the end to the start.
    let mut remaining = record.body();
    let mut take = |is_present: bool| {
        if !is_present {
            return 0;
        }
        let (rest, word) = remaining.split_last_chunk::<8>().unwrap_or((&[], &[0; 8]));
        remaining = rest;
        u64::from_le_bytes(*word)
    };
    take(attr.has(part::IDENTIFIER));
    origin.cpu = split_word(take(attr.has(part::CPU))).0;
    take(attr.has(part::STREAM_ID));
    take(attr.has(part::ID));
    origin.time = take(attr.has(part::TIME));
    if attr.has(part::TID) {
        (origin.pid, origin.tid) = split_word(take(true));
    }
    origin
}

/// What a record other than a sample reports.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sideband<'b> {
    Mapping(Mapping<'b>),
    /// A thread has changed its name; `is_exec` means that its process has executed a program.
    Comm {
        pid: u32,
        tid: u32,
        name: &'b [u8],
        is_exec: bool,
    },
    /// Thread `ptid` of process `ppid` has created thread `tid` of process `pid`.
    Fork {
        pid: u32,
        ppid: u32,
        tid: u32,
        ptid: u32,
    },
    Exit {
        pid: u32,
        tid: u32,
    },
    /// This many records did not fit into the ring.
    Lost(u64),
    /// This many samples of an event were lost.
    LostSamples(u64),
    /// The kernel reduced the rate of samples.
    Throttled,
    /// A thread was switched in or out. The other thread is known if the recording was of whole
    /// processors.
    Switch {
        is_out: bool,
        is_preempted: bool,
        other: Option<u32>,
    },
}

/// A new executable mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping<'b> {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) is_kernel: bool,
    /// The build id of the file; empty if the record has none.
    pub(super) build_id: &'b [u8],
    pub(super) name: &'b [u8],
}

/// Returns the bytes before the first NUL.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses a record other than a sample; `None` for types that an import does not need, and for
/// records that are too short.
pub(super) fn parse_sideband<'b>(record: &RawRecord<'b>) -> Option<Sideband<'b>> {
    let (body, misc) = (record.body(), record.misc);
    let word = |index: usize| u32_at(body, index.saturating_mul(4));
    let has_bytes = |count: usize| (body.len() >= count).then_some(());
    Some(match record.kind {
        kind::MMAP | kind::MMAP2 => Sideband::Mapping(parse_mapping(record)?),
        kind::COMM => Sideband::Comm {
            pid: word(0),
            tid: word(1),
            name: until_nul(body.get(8..)?),
            is_exec: misc & MISC_COMM_EXEC != 0,
        },
        kind::FORK => {
            has_bytes(24)?;
            Sideband::Fork { pid: word(0), ppid: word(1), tid: word(2), ptid: word(3) }
        }
        kind::EXIT => {
            has_bytes(24)?;
            Sideband::Exit { pid: word(0), tid: word(2) }
        }
        kind::LOST => Sideband::Lost(u64_at(body, 8)),
        kind::LOST_SAMPLES if misc & MISC_LOST_BY_FILTER != 0 => return None,
        kind::LOST_SAMPLES => Sideband::LostSamples(u64_at(body, 0)),
        kind::THROTTLE => Sideband::Throttled,
        kind::SWITCH | kind::SWITCH_CPU_WIDE => Sideband::Switch {
            is_out: misc & MISC_SWITCH_OUT != 0,
            is_preempted: misc & MISC_SWITCH_PREEMPTED != 0,
            other: (record.kind == kind::SWITCH_CPU_WIDE && body.len() >= 8).then(|| word(1)),
        },
        kind::KSYMBOL => Sideband::Mapping(parse_kernel_symbol(body)?),
        _ => return None,
    })
}

/// Parses a mapping; `None` if it is not executable.
fn parse_mapping<'b>(record: &RawRecord<'b>) -> Option<Mapping<'b>> {
    let (body, misc) = (record.body(), record.misc);
    let is_second_form = record.kind == kind::MMAP2;
    let is_code = match is_second_form {
        true => u32_at(body, 56) & PROTECTION_EXECUTE != 0,
        false => misc & MISC_MMAP_DATA == 0,
    };
    let has_build_id = is_second_form && misc & MISC_MMAP_BUILD_ID != 0;
    let build_id = if has_build_id { parse_build_id(body.get(32..56)?) } else { &[] };
    is_code.then_some(Mapping {
        pid: u32_at(body, 0),
        tid: u32_at(body, 4),
        start: u64_at(body, 8),
        length: u64_at(body, 16),
        offset: u64_at(body, 24),
        is_kernel: misc & MISC_CPU_MODE_MASK == MISC_MODE_KERNEL,
        build_id,
        name: until_nul(body.get(if is_second_form { 64 } else { 32 }..)?),
    })
}

/// Parses the build id of a mapping: its size, three zero bytes, up to twenty bytes.
fn parse_build_id(field: &[u8]) -> &[u8] {
    match field.split_first_chunk::<4>() {
        Some(([size, 0, 0, 0], id)) => id.get(..usize::from(*size)).unwrap_or_default(),
        _ => &[],
    }
}

/// Parses the start of a function that the kernel has generated, such as a BPF program.
fn parse_kernel_symbol(body: &[u8]) -> Option<Mapping<'_>> {
    /// The flag of a function that was removed.
    const UNREGISTERED: u8 = 1;
    let is_new = body.get(14)? & UNREGISTERED == 0;
    is_new.then_some(Mapping {
        pid: u32::MAX,
        tid: 0,
        start: u64_at(body, 0),
        length: u64::from(u32_at(body, 8)),
        offset: 0,
        is_kernel: true,
        build_id: &[],
        name: until_nul(body.get(16..)?),
    })
}
