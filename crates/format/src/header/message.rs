//! WPP message headers: a message number and the optional fields that flags select.
//!
//! ```text
//! 00 u16 Size │ 02 u8 0 │ 03 u8 90 │ 04 u16 MessageNumber │ 06 u16 OptionFlags
//! 08 in this order, each field if its flag (the number before it) is set:
//!    01 u32 sequence │ 02 GUID (not with 04) │ 04 u32 component │ 08 or 10 i64 time, unaligned
//!    20 u32 ThreadId, u32 ProcessId
//!    40 / 80 no field: a 32-bit / 64-bit program wrote the message
//! ```
//!
//! Source: Documented ("TraceMessage"), Observed on service logs with flags 0xAA.

use alloc::vec::Vec;

use super::{finish_record, patch};
use crate::Result;
use crate::guid::Guid;
use crate::wire::{Put, guid_at, i64_at, u16_at, u32_at};

/// Size of the header before the optional fields, in bytes.
pub const SIZE: usize = 8;

/// A sequence number is present.
pub const TRACE_MESSAGE_SEQUENCE: u16 = 0x0001;
/// The message GUID is present, unless a component id is.
pub const TRACE_MESSAGE_GUID: u16 = 0x0002;
/// A component id is present and replaces the GUID.
pub const TRACE_MESSAGE_COMPONENTID: u16 = 0x0004;
/// A time stamp of the session's clock is present.
pub const TRACE_MESSAGE_TIMESTAMP: u16 = 0x0008;
/// A more precise time stamp on old systems, in the same eight bytes.
pub const TRACE_MESSAGE_PERFORMANCE_TIMESTAMP: u16 = 0x0010;
/// Thread id and process id are present.
pub const TRACE_MESSAGE_SYSTEMINFO: u16 = 0x0020;
/// Pointers in the arguments are four bytes wide.
pub const TRACE_MESSAGE_POINTER32: u16 = 0x0040;
/// Pointers in the arguments are eight bytes wide.
pub const TRACE_MESSAGE_POINTER64: u16 = 0x0080;

const TIME_FLAGS: u16 = TRACE_MESSAGE_TIMESTAMP | TRACE_MESSAGE_PERFORMANCE_TIMESTAMP;

/// Offsets of the optional fields.
#[derive(Clone, Copy, Default)]
struct FieldOffsets {
    sequence: Option<usize>,
    guid: Option<usize>,
    time: Option<usize>,
    ids: Option<usize>,
    end: usize,
}

const fn field_offsets(flags: u16) -> FieldOffsets {
    let mut offsets = FieldOffsets { sequence: None, guid: None, time: None, ids: None, end: SIZE };
    if flags & TRACE_MESSAGE_SEQUENCE != 0 {
        offsets.sequence = Some(offsets.end);
        offsets.end = offsets.end.saturating_add(4);
    }
    if flags & TRACE_MESSAGE_COMPONENTID != 0 {
        offsets.end = offsets.end.saturating_add(4);
    } else if flags & TRACE_MESSAGE_GUID != 0 {
        offsets.guid = Some(offsets.end);
        offsets.end = offsets.end.saturating_add(16);
    }
    if flags & TIME_FLAGS != 0 {
        offsets.time = Some(offsets.end);
        offsets.end = offsets.end.saturating_add(8);
    }
    if flags & TRACE_MESSAGE_SYSTEMINFO != 0 {
        offsets.ids = Some(offsets.end);
        offsets.end = offsets.end.saturating_add(8);
    }
    offsets
}

fn read_flags(record: &[u8]) -> u16 {
    u16_at(record, 6)
}

pub(super) const fn header_size(flags: u16) -> usize {
    field_offsets(flags).end
}

pub(super) const fn pointer_size(flags: u16) -> u8 {
    if flags & TRACE_MESSAGE_POINTER32 != 0 { 4 } else { 8 }
}

pub(super) fn time_of(record: &[u8]) -> Option<i64> {
    field_offsets(read_flags(record)).time.map(|at| i64_at(record, at))
}

pub(super) fn time_offset(record: &[u8]) -> Option<usize> {
    field_offsets(read_flags(record)).time
}

pub(super) fn guid_offset(record: &[u8]) -> Option<usize> {
    field_offsets(read_flags(record)).guid
}

/// Returns the offset of the thread id; the process id follows four bytes later.
pub(super) fn ids_offset(record: &[u8]) -> Option<usize> {
    field_offsets(read_flags(record)).ids
}

pub(super) fn guid(record: &[u8]) -> Option<Guid> {
    field_offsets(read_flags(record)).guid.map(|at| guid_at(record, at))
}

/// Returns thread id and process id, in this order.
pub(super) fn ids(record: &[u8]) -> Option<(u32, u32)> {
    field_offsets(read_flags(record)).ids.map(|at| (u32_at(record, at), u32_at(record, at.saturating_add(4))))
}

/// Returns the sequence number of a message, if it has one.
#[must_use]
pub fn sequence(record: &[u8]) -> Option<u32> {
    field_offsets(read_flags(record)).sequence.map(|at| u32_at(record, at))
}

/// Sets the sequence number of a message that has the field.
pub fn set_sequence(record: &mut [u8], number: u32) {
    if let Some(at) = field_offsets(read_flags(record)).sequence {
        patch(record, at, &number.to_le_bytes());
    }
}

/// Time stamp and writer of a message.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Time stamp in the session's clock; `None` keeps the one in the record.
    pub time: Option<i64>,
    /// Id of the thread that writes the message.
    pub thread_id: u32,
    /// Id of the process that writes the message.
    pub process_id: u32,
}

/// Sets the stamp and the ids of a message, if its flags include these fields.
pub fn set_origin(record: &mut [u8], origin: &Origin) {
    let offsets = field_offsets(read_flags(record));
    if let (Some(at), Some(time)) = (offsets.time, origin.time) {
        patch(record, at, &time.to_le_bytes());
    }
    if let Some(at) = offsets.ids {
        patch(record, at, &origin.thread_id.to_le_bytes());
        patch(record, at.saturating_add(4), &origin.process_id.to_le_bytes());
    }
}

/// Header fields of a WPP message to be written.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeader {
    /// The number of the message within its GUID.
    pub number: u16,
    /// Size of pointers in the arguments: 4 or 8.
    pub pointer_size: u8,
    /// Sequence number, if the field is present.
    pub sequence: Option<u32>,
    /// Message GUID, if the field is present.
    pub guid: Option<Guid>,
    /// Time stamp in the session's clock, if the field is present.
    pub time: Option<i64>,
    /// Thread id and process id, if the fields are present.
    pub ids: Option<(u32, u32)>,
}

impl MessageHeader {
    fn flags(&self) -> u16 {
        let mut flags =
            if self.pointer_size == 4 { TRACE_MESSAGE_POINTER32 } else { TRACE_MESSAGE_POINTER64 };
        for (is_present, flag) in [
            (self.sequence.is_some(), TRACE_MESSAGE_SEQUENCE),
            (self.guid.is_some(), TRACE_MESSAGE_GUID),
            (self.time.is_some(), TRACE_MESSAGE_TIMESTAMP),
            (self.ids.is_some(), TRACE_MESSAGE_SYSTEMINFO),
        ] {
            flags |= if is_present { flag } else { 0 };
        }
        flags
    }

    /// Appends the record, padded to a multiple of eight.
    pub fn encode(&self, arguments: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.put_u16(0).put_u8(0).put_u8(0x90).put_u16(self.number).put_u16(self.flags());
        if let Some(sequence) = self.sequence {
            out.put_u32(sequence);
        }
        if let Some(guid) = &self.guid {
            out.put_guid(guid);
        }
        if let Some(time) = self.time {
            out.put_i64(time);
        }
        if let Some((thread, process)) = self.ids {
            out.put_u32(thread).put_u32(process);
        }
        out.put(arguments);
        let size = finish_record(out, start)?;
        patch(out, start, &size.to_le_bytes());
        Ok(())
    }
}
