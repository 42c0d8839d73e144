//! PERFINFO headers: kernel events with a time stamp only.
//!
//! ```text
//! 00 u8 Version │ 01 u8 bits 0-2 number of PMC counters, bit 7: has a PEBS index
//! 02 u8 type 16/17 │ 03 u8 C0
//! 04 u16 Size │ 06 u8 Type │ 07 u8 Group
//! 08 i64 TimeStamp │ 10 optional u64 PEBS index, optional u64 counters, payload
//! ```
//!
//! Source: Observed on real traces; the option bits from public headers.

use alloc::vec::Vec;

use super::{finish_record, patch};
use crate::spec::event::HeaderType;
use crate::wire::{Put, u8_at};
use crate::{Error, Result};

/// Offset of the time stamp.
pub(super) const TIME_OFFSET: usize = 0x08;
/// Size of the header without optional fields, in bytes.
pub const SIZE: usize = 0x10;

const COUNTERS_MASK: u8 = 0x07;
const PEBS_FLAG: u8 = 0x80;

/// Returns the size of a header with the optional fields that its flag byte selects.
#[inline]
pub(super) const fn header_size(flags: u8) -> usize {
    let counters = (flags & COUNTERS_MASK) as usize;
    let pebs = (flags & PEBS_FLAG != 0) as usize;
    SIZE.saturating_add(counters.saturating_mul(8)).saturating_add(pebs.saturating_mul(8))
}

pub(super) fn counters(record: &[u8]) -> &[u8] {
    let flags = u8_at(record, 1);
    record.get(header_size(flags & PEBS_FLAG)..header_size(flags)).unwrap_or_default()
}

/// Header fields of a kernel event to be written.
#[derive(Clone, Copy, Debug)]
pub struct PerfInfoHeader<'a> {
    /// Size of pointers in the payload: 4 or 8.
    pub pointer_size: u8,
    /// Layout version of the payload.
    pub version: u8,
    /// Hook id: group and type.
    pub hook: u16,
    /// Time stamp in the session's clock.
    pub time: i64,
    /// PMC counter values, at most seven.
    pub counters: &'a [u64],
}

impl PerfInfoHeader<'_> {
    /// Appends the record, padded to a multiple of eight.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let kind = if self.pointer_size == 4 { HeaderType::PERFINFO32 } else { HeaderType::PERFINFO64 };
        let flags = match u8::try_from(self.counters.len()) {
            Ok(n) if n <= COUNTERS_MASK => n,
            _ => {
                let (size, limit) = (self.counters.len() as u64, u64::from(COUNTERS_MASK));
                return Err(Error::TooLarge { what: "list of PMC counters", size, limit });
            }
        };
        out.put_u8(self.version).put_u8(flags).put_u8(kind.0).put_u8(0xC0).put_u16(0).put_u16(self.hook);
        out.put_i64(self.time);
        for counter in self.counters {
            out.put_u64(*counter);
        }
        out.put(payload);
        let size = finish_record(out, start)?;
        patch(out, start.saturating_add(4), &size.to_le_bytes());
        Ok(())
    }
}
