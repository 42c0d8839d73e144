//! FULL (EVENT_TRACE_HEADER) and INSTANCE headers: classic events.
//!
//! ```text
//! FULL      00 u16 Size │ 02 u8 type │ 03 u8 C0 │ 04 u8 opcode │ 05 u8 level │ 06 u16 version
//!           08 u32 ThreadId │ 0C u32 ProcessId │ 10 i64 TimeStamp │ 18 GUID class
//!           28 u32 KernelTime, u32 UserTime │ 30 payload
//! INSTANCE  as FULL up to 30, then
//!           30 u32 InstanceId │ 34 u32 ParentInstanceId │ 38 GUID ParentGuid │ 48 payload
//! INSTANCE before layout 1.1: as FULL up to 18, then
//!           18 u64 RegHandle │ 20 u32 InstanceId │ 24 u32 ParentInstanceId │ 28 times
//!           30 u64 ParentRegHandle │ 38 payload
//! ```
//!
//! Source: Documented ("EVENT_TRACE_HEADER", "EVENT_INSTANCE_HEADER"), FULL Observed on real
//! traces, INSTANCE from public headers.

use alloc::vec::Vec;

use super::{finish_record, patch};
use crate::Result;
use crate::guid::Guid;
use crate::spec::event::HeaderType;
use crate::wire::{Put, guid_at, u32_at};

/// Size of a FULL header in bytes.
pub const SIZE: usize = 0x30;
/// Size of an INSTANCE header in bytes.
pub const INSTANCE_SIZE: usize = 0x48;
/// Size of an INSTANCE header in layouts before 1.1, in bytes.
pub const OLD_INSTANCE_SIZE: usize = 0x38;

pub(super) const fn instance_size(is_old: bool) -> usize {
    if is_old { OLD_INSTANCE_SIZE } else { INSTANCE_SIZE }
}

/// The instance part of an INSTANCE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Id of this instance.
    pub id: u32,
    /// Id of the parent instance, or 0.
    pub parent_id: u32,
    /// Class of the parent. Null in the old layout, which stores a handle instead.
    pub parent_class: Guid,
}

impl Instance {
    pub(super) fn read(record: &[u8], is_old: bool) -> Self {
        if is_old {
            return Self {
                id: u32_at(record, 0x20),
                parent_id: u32_at(record, 0x24),
                parent_class: Guid::NULL,
            };
        }
        Self {
            id: u32_at(record, 0x30),
            parent_id: u32_at(record, 0x34),
            parent_class: guid_at(record, 0x38),
        }
    }
}

/// Header fields of a classic event to be written.
#[derive(Clone, Copy, Debug)]
pub struct ClassicHeader {
    /// Size of pointers in the payload: 4 or 8.
    pub pointer_size: u8,
    /// Event type within the class.
    pub opcode: u8,
    /// Severity of the event.
    pub level: u8,
    /// Layout version of the payload.
    pub version: u16,
    /// Id of the thread that writes the event.
    pub thread_id: u32,
    /// Id of the process that writes the event.
    pub process_id: u32,
    /// Time stamp in the session's clock.
    pub time: i64,
    /// GUID of the event class.
    pub class: Guid,
    /// CPU times of the thread in timer ticks: kernel, user.
    pub cpu_times: (u32, u32),
    /// Instance fields; if present, the record is an INSTANCE record.
    pub instance: Option<Instance>,
}

impl Default for ClassicHeader {
    /// Returns the header of an event of 64-bit code; all other fields are zero.
    fn default() -> Self {
        Self {
            pointer_size: 8,
            opcode: 0,
            level: 0,
            version: 0,
            thread_id: 0,
            process_id: 0,
            time: 0,
            class: Guid::NULL,
            cpu_times: (0, 0),
            instance: None,
        }
    }
}

impl ClassicHeader {
    /// Appends the record, padded to a multiple of eight.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let kind = match (self.instance, self.pointer_size) {
            (None, 4) => HeaderType::FULL_HEADER32,
            (None, _) => HeaderType::FULL_HEADER64,
            (Some(_), 4) => HeaderType::INSTANCE32,
            (Some(_), _) => HeaderType::INSTANCE64,
        };
        out.put_u16(0)
            .put_u8(kind.0)
            .put_u8(0xC0)
            .put_u8(self.opcode)
            .put_u8(self.level)
            .put_u16(self.version);
        out.put_u32(self.thread_id).put_u32(self.process_id).put_i64(self.time).put_guid(&self.class);
        out.put_u32(self.cpu_times.0).put_u32(self.cpu_times.1);
        if let Some(instance) = &self.instance {
            out.put_u32(instance.id).put_u32(instance.parent_id).put_guid(&instance.parent_class);
        }
        out.put(payload);
        let size = finish_record(out, start)?;
        patch(out, start, &size.to_le_bytes());
        Ok(())
    }
}
