//! EVENT_HEADER: manifest, TraceLogging and EventSource events.
//!
//! ```text
//! 00 u16 Size │ 02 u8 type 18/19 │ 03 u8 C0 │ 04 u16 Flags │ 06 u16 EventProperty
//! 08 u32 ThreadId │ 0C u32 ProcessId │ 10 i64 TimeStamp │ 18 GUID ProviderId
//! 28 EVENT_DESCRIPTOR │ 38 u32 KernelTime, u32 UserTime │ 40 GUID ActivityId │ 50 items, payload
//! ```
//!
//! On disk only flag 0x1 (extended data items follow) and 0x4 (string only) occur; a consumer adds
//! the other flags. Source: Documented ("EVENT_HEADER"), Observed on real traces.

use alloc::vec::Vec;

use super::extended::Item;
use super::{extended, finish_record, patch};
use crate::Result;
use crate::guid::Guid;
use crate::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, EventDescriptor, HeaderType};
use crate::wire::{Put, u16_at};

/// Size of the fixed header in bytes.
pub const SIZE: usize = 0x50;

#[inline]
pub(super) fn has_items(bytes: &[u8]) -> bool {
    u16_at(bytes, 4) & EVENT_HEADER_FLAG_EXTENDED_INFO != 0
}

/// Header fields of an event to be written.
#[derive(Clone, Copy, Debug)]
pub struct EventHeader<'a> {
    /// Size of pointers in the payload: 4 or 8.
    pub pointer_size: u8,
    /// Flags other than "extended data items follow", which is set as needed.
    pub flags: u16,
    /// Id of the thread that writes the event.
    pub thread_id: u32,
    /// Id of the process that writes the event.
    pub process_id: u32,
    /// Time stamp in the session's clock.
    pub time: i64,
    /// GUID of the provider.
    pub provider: Guid,
    /// Id, version, level and the other descriptor fields.
    pub descriptor: EventDescriptor,
    /// CPU times of the thread in timer ticks: kernel, user.
    pub cpu_times: (u32, u32),
    /// Activity id, or null.
    pub activity: Guid,
    /// Extended data items; provider traits come before the schema.
    pub items: &'a [Item<'a>],
}

impl Default for EventHeader<'_> {
    fn default() -> Self {
        Self {
            pointer_size: 8,
            flags: 0,
            thread_id: 0,
            process_id: 0,
            time: 0,
            provider: Guid::NULL,
            descriptor: EventDescriptor::default(),
            cpu_times: (0, 0),
            activity: Guid::NULL,
            items: &[],
        }
    }
}

impl EventHeader<'_> {
    /// Appends the record, padded to a multiple of eight.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let kind =
            if self.pointer_size == 4 { HeaderType::EVENT_HEADER32 } else { HeaderType::EVENT_HEADER64 };
        let extended = if self.items.is_empty() { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
        out.put_u16(0).put_u8(kind.0).put_u8(0xC0).put_u16(self.flags | extended).put_u16(0);
        out.put_u32(self.thread_id).put_u32(self.process_id).put_i64(self.time).put_guid(&self.provider);
        out.put(&self.descriptor.to_bytes()).put_u32(self.cpu_times.0).put_u32(self.cpu_times.1);
        out.put_guid(&self.activity);
        extended::encode(self.items, out)?;
        out.put(payload);
        let size = finish_record(out, start)?;
        patch(out, start, &size.to_le_bytes());
        Ok(())
    }
}
