//! Classic events: EVENT_TRACE_HEADER in, a FULL record out.
//!
//! ```text
//!   EVENT_TRACE_HEADER (48 bytes)     00 u16 Size, header and data │ 02 – │ 04 u8 type │
//!                                     05 u8 level │ 06 u16 version │ 08 – │ 10 i64 TimeStamp
//!                                     18 GUID class, or its address │ 28 – │ 2C u32 flags │
//!                                     30 data, or MOF_FIELDs
//!   MOF_FIELD (16 bytes)              00 u64 address │ 08 u32 length │ 0C u32 type
//! ```
//!
//! Bytes marked with – are ignored. `traceweir_format::header::classic` describes the record. The
//! owner of the region fills in the process id and, unless the caller passed a time stamp
//! (`KEEP_STAMP`), the time stamp.
//!
//! Addresses are not followed here: [`PointerTargets`] holds the data that they point to. The
//! number and lengths of its fields must equal those of the MOF_FIELDs.

use traceweir_format::Guid;
use traceweir_format::header::classic;
use traceweir_format::spec::event::HeaderType;
use traceweir_format::wire::{guid_at, i64_at, u16_at, u32_at};
use traceweir_transport::abi::KEEP_STAMP;

use super::TraceError;
use super::logger::{Logger, PREFIX_WORDS};

/// Maximum number of fields of one event.
pub const MAX_FIELDS: usize = 16;
const MOF_FIELD_BYTES: usize = 16;

/// Flags of an EVENT_TRACE_HEADER (`Wnode.Flags`).
pub mod flag {
    /// Required in every event.
    pub const WNODE_FLAG_TRACED_GUID: u32 = 0x0002_0000;
    /// Has no effect: an event with this flag is written like any other.
    pub const WNODE_FLAG_LOG_WNODE: u32 = 0x0004_0000;
    /// The header contains the address of the class GUID instead of the GUID.
    pub const WNODE_FLAG_USE_GUID_PTR: u32 = 0x0008_0000;
    /// MOF_FIELDs follow the header instead of data.
    pub const WNODE_FLAG_USE_MOF_PTR: u32 = 0x0010_0000;
    /// The record keeps the header's time stamp, in ticks of the session's clock.
    pub const WNODE_FLAG_USE_TIMESTAMP: u32 = 0x0000_0200;
}

use flag::{
    WNODE_FLAG_TRACED_GUID, WNODE_FLAG_USE_GUID_PTR, WNODE_FLAG_USE_MOF_PTR, WNODE_FLAG_USE_TIMESTAMP,
};

/// The class, type, level, version and time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The class GUID.
    pub class: Guid,
    /// The event type, such as 1 (start) or 2 (end).
    pub kind: u8,
    /// The severity, from 1 (critical) to 5 (verbose).
    pub level: u8,
    /// The version of the class.
    pub version: u16,
    /// The time stamp in ticks of the session's clock; `None` for the time of writing.
    pub time: Option<i64>,
}

/// The data that the addresses in an EVENT_TRACE_HEADER and its MOF_FIELDs point to.
#[derive(Clone, Copy, Debug, Default)]
pub struct PointerTargets<'a> {
    /// The class GUID; used with [`flag::WNODE_FLAG_USE_GUID_PTR`].
    pub class: Option<&'a Guid>,
    /// The data of each MOF_FIELD; used with [`flag::WNODE_FLAG_USE_MOF_PTR`].
    pub fields: &'a [&'a [u8]],
}

/// The header fields that events and instance events share.
pub(super) struct CommonFields {
    pub(super) kind: u8,
    pub(super) level: u8,
    pub(super) version: u16,
    /// The time stamp that the caller passed.
    pub(super) time: Option<i64>,
}

impl CommonFields {
    /// Returns the first three words of the record, with a size of 0, and the flags for its prefix.
    pub(super) fn to_words(&self, header_type: HeaderType, thread: u32) -> ([u64; 3], u16) {
        // 0xC0 marks a trace header.
        let first = u64::from(header_type.0) << 16
            | 0xC0 << 24
            | u64::from(self.kind) << 32
            | u64::from(self.level) << 40
            | u64::from(self.version) << 48;
        let stamp = u64::from_le_bytes(self.time.unwrap_or(0).to_le_bytes());
        let flags = if self.time.is_some() { KEEP_STAMP } else { 0 };
        ([first.to_le(), u64::from(thread).to_le(), stamp.to_le()], flags)
    }
}

/// The bytes that a caller passes: a header, then data or MOF_FIELDs.
pub(super) struct CallerBlock<'a> {
    pub(super) common: CommonFields,
    pub(super) flags: u32,
    /// The bytes after the header, up to the size that the header states.
    data: &'a [u8],
}

impl<'a> CallerBlock<'a> {
    /// Returns the header's flags; fails if `block` is shorter than the header.
    pub(super) fn read_flags(block: &[u8], header_bytes: usize) -> Result<u32, TraceError> {
        if block.len() < header_bytes { Err(TraceError::InvalidParameter) } else { Ok(u32_at(block, 0x2C)) }
    }

    /// Parses a block with a header of `header_bytes` bytes.
    pub(super) fn parse(block: &'a [u8], header_bytes: usize) -> Result<Self, TraceError> {
        let flags = Self::read_flags(block, header_bytes)?;
        let size = usize::from(u16_at(block, 0));
        let data = block.get(header_bytes..size).ok_or(TraceError::InvalidParameter)?;
        let time = (flags & WNODE_FLAG_USE_TIMESTAMP != 0).then(|| i64_at(block, 0x10));
        let &[kind, level, low, high] = block.get(4..8).and_then(|b| b.first_chunk()).unwrap_or(&[0; 4]);
        let common = CommonFields { kind, level, version: u16::from_le_bytes([low, high]), time };
        Ok(Self { common, flags, data })
    }

    /// Calls `write` with the bytes after the header or, with WNODE_FLAG_USE_MOF_PTR, with `fields`.
    pub(super) fn with_data<T>(
        &self,
        fields: &[&[u8]],
        write: impl FnOnce(&[&[u8]]) -> Result<T, TraceError>,
    ) -> Result<T, TraceError> {
        if self.flags & WNODE_FLAG_USE_MOF_PTR == 0 {
            return write(&[self.data]);
        }
        let (described, incomplete) = self.data.as_chunks::<MOF_FIELD_BYTES>();
        let has_length =
            |(field, data): (&[u8; MOF_FIELD_BYTES], &&[u8])| u32_at(field, 8) as usize == data.len();
        let do_lengths_match =
            described.len() == fields.len() && described.iter().zip(fields).all(has_length);
        if !incomplete.is_empty() || described.len() > MAX_FIELDS || !do_lengths_match {
            return Err(TraceError::InvalidParameter);
        }
        write(fields)
    }
}

/// Writes an event whose data is the concatenation of the slices, [`MAX_FIELDS`] at most.
pub fn trace(logger: u64, event: &Event, data: &[&[u8]]) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if data.len() > MAX_FIELDS {
        return Err(TraceError::InvalidParameter);
    }
    let Event { class, kind, level, version, time } = *event;
    write(&logger, &CommonFields { kind, level, version, time }, &class, data)
}

/// Writes an event like `TraceEvent`. `block` is an EVENT_TRACE_HEADER of 48 bytes, then the data
/// or the MOF_FIELDs that describe it.
///
/// The checks come in this order: logger, length of the header, flags, other sizes.
pub fn trace_event(logger: u64, block: &[u8], targets: &PointerTargets<'_>) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if CallerBlock::read_flags(block, classic::SIZE)? & WNODE_FLAG_TRACED_GUID == 0 {
        return Err(TraceError::InvalidFlagNumber);
    }
    let header_class = guid_at(block, 0x18);
    let block = CallerBlock::parse(block, classic::SIZE)?;
    let class = match block.flags & WNODE_FLAG_USE_GUID_PTR {
        0 => header_class,
        _ => *targets.class.ok_or(TraceError::InvalidParameter)?,
    };
    block.with_data(targets.fields, |data| write(&logger, &block.common, &class, data))
}

fn write(logger: &Logger, common: &CommonFields, class: &Guid, data: &[&[u8]]) -> Result<(), TraceError> {
    let thread = logger.thread()?;
    let ([first, second, third], flags) = common.to_words(HeaderType::FULL_HEADER64, thread);
    let [low, high] = class.to_words().map(u64::to_le);
    // Two free words for the prefix, then the header, whose last word (the times) stays 0.
    let mut words = [0, 0, first, second, third, low, high, 0];
    const { assert!(PREFIX_WORDS == 2 && classic::SIZE == 6 * 8) };
    logger.write(thread, &mut words, classic::SIZE, data, flags)
}
