//! Classic events: EVENT_TRACE_HEADER in, a FULL record out.
//!
//! ```text
//!   a caller's header (48 bytes)      00 u16 Size, header and data │ 02 – │ 04 u8 type │
//!                                     05 u8 level │ 06 u16 version │ 08 – │ 10 i64 TimeStamp
//!                                     18 GUID class, or its address │ 28 – │ 2C u32 flags │
//!                                     30 data, or MOF_FIELDs
//!   MOF_FIELD (16 bytes)              00 u64 address │ 08 u32 length │ 0C u32 type
//! ```
//!
//! The record is that of `traceweir_format::header::classic`; the owner of the session fills in
//! process and time stamp.
//!
//! Addresses are not followed here: the data that they point to is passed in [`PointerTargets`],
//! and compared with the header.

use traceweir_format::Guid;
use traceweir_format::header::classic;
use traceweir_format::spec::event::HeaderType;
use traceweir_format::wire::{guid_at, i64_at, u16_at, u32_at};
use traceweir_transport::abi::KEEP_STAMP;

use super::TraceError;
use super::logger::{Logger, PREFIX_WORDS};

/// Maximum number of fields of one event.
pub const MAX_FIELDS: usize = 16;
/// Bytes of a MOF_FIELD.
const MOF_FIELD_BYTES: usize = 16;

/// Flags of a header (`Wnode.Flags`).
pub mod flag {
    /// Marks the header of an event; required.
    pub const WNODE_FLAG_TRACED_GUID: u32 = 0x0002_0000;
    /// Marks a call for the header only; events are written nevertheless.
    pub const WNODE_FLAG_LOG_WNODE: u32 = 0x0004_0000;
    /// The class is passed by its address.
    pub const WNODE_FLAG_USE_GUID_PTR: u32 = 0x0008_0000;
    /// The data are MOF_FIELDs.
    pub const WNODE_FLAG_USE_MOF_PTR: u32 = 0x0010_0000;
    /// The time stamp of the header, which is one of the session's clock, is kept.
    pub const WNODE_FLAG_USE_TIMESTAMP: u32 = 0x0000_0200;
}

use flag::{
    WNODE_FLAG_TRACED_GUID, WNODE_FLAG_USE_GUID_PTR, WNODE_FLAG_USE_MOF_PTR, WNODE_FLAG_USE_TIMESTAMP,
};

/// The header of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Class GUID of the event.
    pub class: Guid,
    /// Type of the event: 1 start, 2 end, ….
    pub kind: u8,
    /// Severity of the event.
    pub level: u8,
    /// Version of the class.
    pub version: u16,
    /// A time stamp of the session's clock, instead of the time of writing.
    pub time: Option<i64>,
}

/// The data that the addresses in a header point to.
#[derive(Clone, Copy, Debug, Default)]
pub struct PointerTargets<'a> {
    /// The class, with [`flag::WNODE_FLAG_USE_GUID_PTR`].
    pub class: Option<&'a Guid>,
    /// The data of each field, with [`flag::WNODE_FLAG_USE_MOF_PTR`].
    pub fields: &'a [&'a [u8]],
}

/// The part that all headers have in common.
pub(super) struct ClassicHead {
    pub(super) kind: u8,
    pub(super) level: u8,
    pub(super) version: u16,
    /// The time stamp to keep.
    pub(super) time: Option<i64>,
}

impl ClassicHead {
    /// Returns the first three words of a record without its size, and the flags of its prefix.
    pub(super) fn words(&self, header: HeaderType, thread: u32) -> ([u64; 3], u16) {
        let first = u64::from(header.0) << 16
            | 0xC0 << 24
            | u64::from(self.kind) << 32
            | u64::from(self.level) << 40
            | u64::from(self.version) << 48;
        let stamp = u64::from_le_bytes(self.time.unwrap_or(0).to_le_bytes());
        let flags = if self.time.is_some() { KEEP_STAMP } else { 0 };
        ([first.to_le(), u64::from(thread).to_le(), stamp.to_le()], flags)
    }
}

/// A caller's block: header and data up to its size.
pub(super) struct CallerBlock<'a> {
    pub(super) head: ClassicHead,
    pub(super) flags: u32,
    /// The bytes after the header.
    data: &'a [u8],
}

impl<'a> CallerBlock<'a> {
    /// Returns the flags of a block that is long enough.
    pub(super) fn flags_of(block: &[u8], header: usize) -> Result<u32, TraceError> {
        if block.len() < header { Err(TraceError::InvalidParameter) } else { Ok(u32_at(block, 0x2C)) }
    }

    /// Reads a block whose header has `header` bytes.
    pub(super) fn read(block: &'a [u8], header: usize) -> Result<Self, TraceError> {
        let flags = Self::flags_of(block, header)?;
        let size = usize::from(u16_at(block, 0));
        let data = block.get(header..size).ok_or(TraceError::InvalidParameter)?;
        let time = (flags & WNODE_FLAG_USE_TIMESTAMP != 0).then(|| i64_at(block, 0x10));
        let &[kind, level, low, high] = block.get(4..8).and_then(|b| b.first_chunk()).unwrap_or(&[0; 4]);
        let head = ClassicHead { kind, level, version: u16::from_le_bytes([low, high]), time };
        Ok(Self { head, flags, data })
    }

    /// Calls `write` with the data: the block's own, or the fields that it describes.
    pub(super) fn with_data<T>(
        &self,
        fields: &[&[u8]],
        write: impl FnOnce(&[&[u8]]) -> Result<T, TraceError>,
    ) -> Result<T, TraceError> {
        if self.flags & WNODE_FLAG_USE_MOF_PTR == 0 {
            return write(&[self.data]);
        }
        let (described, incomplete) = self.data.as_chunks::<MOF_FIELD_BYTES>();
        let fits = |(field, data): (&[u8; MOF_FIELD_BYTES], &&[u8])| u32_at(field, 8) as usize == data.len();
        let agree = described.len() == fields.len() && described.iter().zip(fields).all(fits);
        if !incomplete.is_empty() || described.len() > MAX_FIELDS || !agree {
            return Err(TraceError::InvalidParameter);
        }
        write(fields)
    }
}

/// Writes an event whose data is the concatenation of the blocks, [`MAX_FIELDS`] at most.
pub fn trace(logger: u64, event: &Event, data: &[&[u8]]) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if data.len() > MAX_FIELDS {
        return Err(TraceError::InvalidParameter);
    }
    let Event { class, kind, level, version, time } = *event;
    write(&logger, &ClassicHead { kind, level, version, time }, &class, data)
}

/// Writes an event like `TraceEvent`: an EVENT_TRACE_HEADER of 48 bytes, then the data, or the
/// MOF_FIELDs that describe them.
///
/// The checks come in this order: logger, flags, sizes.
pub fn trace_event(logger: u64, block: &[u8], targets: &PointerTargets<'_>) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if CallerBlock::flags_of(block, classic::SIZE)? & WNODE_FLAG_TRACED_GUID == 0 {
        return Err(TraceError::InvalidFlagNumber);
    }
    let block_class = guid_at(block, 0x18);
    let block = CallerBlock::read(block, classic::SIZE)?;
    let class = match block.flags & WNODE_FLAG_USE_GUID_PTR {
        0 => block_class,
        _ => *targets.class.ok_or(TraceError::InvalidParameter)?,
    };
    block.with_data(targets.fields, |data| write(&logger, &block.head, &class, data))
}

fn write(logger: &Logger, head: &ClassicHead, class: &Guid, data: &[&[u8]]) -> Result<(), TraceError> {
    let thread = logger.thread()?;
    let ([first, second, third], flags) = head.words(HeaderType::FULL_HEADER64, thread);
    let [low, high] = class.to_words().map(u64::to_le);
    let mut words = [0, 0, first, second, third, low, high, 0];
    const { assert!(PREFIX_WORDS == 2 && classic::SIZE == 6 * 8) };
    logger.write(thread, &mut words, classic::SIZE, data, flags)
}
