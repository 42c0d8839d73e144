//! SYSTEM and COMPACT headers: kernel events that name thread and process.
//!
//! ```text
//! 00 u8 Version │ 01 u8 flags │ 02 u8 type 1..4 │ 03 u8 C0 │ 04 u16 Size │ 06 u8 Type │ 07 u8 Group
//! 08 u32 ThreadId │ 0C u32 ProcessId │ 10 i64 TimeStamp │ 18 u32 KernelTime, u32 UserTime (not in COMPACT)
//! ```
//!
//! Source: Observed on real traces (SYSTEM); COMPACT from public headers.

use alloc::vec::Vec;

use super::{finish_record, patch};
use crate::Result;
use crate::spec::event::HeaderType;
use crate::wire::Put;

/// Bytes of a SYSTEM header.
pub const SIZE: usize = 0x20;
/// Bytes of a COMPACT header.
pub const COMPACT_SIZE: usize = 0x18;

/// What goes into the header of a kernel event to be written.
#[derive(Clone, Copy, Debug)]
pub struct SystemHeader {
    /// 4 or 8: pointers in the payload.
    pub pointer_size: u8,
    /// Layout version of the payload.
    pub version: u8,
    /// Group and type.
    pub hook: u16,
    /// Writing thread.
    pub thread_id: u32,
    /// Writing process.
    pub process_id: u32,
    /// Stamp in the session's clock.
    pub time: i64,
    /// CPU times in ticks; without them the header is a COMPACT one.
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
