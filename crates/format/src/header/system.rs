//! SYSTEM and COMPACT headers: kernel events with thread id and process id.
//!
//! ```text
//! 00 u8 Version │ 01 u8 flags │ 02 u8 type 1 to 4 │ 03 u8 C0
//! 04 u16 Size │ 06 u8 Type │ 07 u8 Group │ 08 u32 ThreadId │ 0C u32 ProcessId
//! 10 i64 TimeStamp │ 18 u32 KernelTime, u32 UserTime (not in COMPACT)
//! ```
//!
//! Source: Observed on real traces (SYSTEM); COMPACT from public headers.

use alloc::vec::Vec;

use super::{finish_record, patch};
use crate::Result;
use crate::spec::event::HeaderType;
use crate::wire::Put;

/// Size of a SYSTEM header in bytes.
pub const SIZE: usize = 0x20;
/// Size of a COMPACT header in bytes.
pub const COMPACT_SIZE: usize = 0x18;

/// Header fields of a kernel event to be written.
#[derive(Clone, Copy, Debug)]
pub struct SystemHeader {
    /// Size of pointers in the payload: 4 or 8.
    pub pointer_size: u8,
    /// Layout version of the payload.
    pub version: u8,
    /// Hook id: group and type.
    pub hook: u16,
    /// Id of the thread that the event belongs to.
    pub thread_id: u32,
    /// Id of the process that the event belongs to.
    pub process_id: u32,
    /// Time stamp in the session's clock.
    pub time: i64,
    /// CPU times in timer ticks: kernel, user. Without them the record has a COMPACT header.
    pub cpu_times: Option<(u32, u32)>,
}

impl SystemHeader {
    /// Appends the record, padded to a multiple of eight.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let kind = match (self.cpu_times, self.pointer_size) {
            (Some(_), 4) => HeaderType::SYSTEM32,
            (Some(_), _) => HeaderType::SYSTEM64,
            (None, 4) => HeaderType::COMPACT32,
            (None, _) => HeaderType::COMPACT64,
        };
        out.put_u8(self.version).put_u8(0).put_u8(kind.0).put_u8(0xC0).put_u16(0).put_u16(self.hook);
        out.put_u32(self.thread_id).put_u32(self.process_id).put_i64(self.time);
        if let Some((kernel, user)) = self.cpu_times {
            out.put_u32(kernel).put_u32(user);
        }
        out.put(payload);
        let size = finish_record(out, start)?;
        patch(out, start.saturating_add(4), &size.to_le_bytes());
        Ok(())
    }
}
