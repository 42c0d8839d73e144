//! Record headers: recognising, measuring and viewing events.
//!
//! Each record starts with a marker, a dword `m`. Its high byte and its type byte `tt` select the
//! header family. The table shows `m` from its high byte to its low byte: `ss ss` is the size, `ff`
//! flags and `vv` a version. Values of `tt` are decimal.
//!
//! ```text
//!   m = FF FF FF FF          filler: the records end here
//!   m = C0 tt ss ss          tt = 18/19 EVENT · 10/20 FULL · 11/21 INSTANCE · others: size = ss ss
//!   m = C0 tt ff vv, ss ss   tt = 1/2 SYSTEM · 3/4 COMPACT · 16/17 PERFINFO: size after the marker
//!   m = 90 00 ss ss          WPP message
//!   m = Bx .. ss ss          old header with a 32-bit time
//! ```
//!
//! Except in filler, only the upper four bits of the high byte count, and C to F mean the same.
//!
//! A [`Record`] borrows the bytes of one event from its buffer and decodes fields on demand;
//! nothing is copied. The accessors cannot fail: parsing checks that the fixed header lies inside
//! the record, and records whether the extended data items do. Fields that a family does not have
//! read as zero, absent ids as [`NO_ID`].
//!
//! Source: marker and types Observed on real traces; EVENT_HEADER and EVENT_TRACE_HEADER
//! Documented.

pub mod classic;
pub mod edit;
pub mod event;
pub mod extended;
pub mod message;
pub mod perfinfo;
pub mod system;

use crate::guid::Guid;
use crate::kernel::hook::class_of;
use crate::spec::event::{EventDescriptor, HeaderType};
use crate::wire::{align8, chunk, guid_at, i64_at, u8_at, u16_at, u32_at};
use crate::{Error, Result};

use extended::ExtendedItems;

/// The process or thread id returned for a header that has none.
pub const NO_ID: u32 = u32::MAX;

/// The largest record in bytes: sizes are 16-bit numbers.
pub const MAX_RECORD_BYTES: usize = 0xFFFF;

/// A family of record headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Kernel event with thread, process and CPU times.
    System,
    /// Kernel event without CPU times.
    Compact,
    /// Kernel event with a time stamp only.
    PerfInfo,
    /// Classic event (EVENT_TRACE_HEADER).
    Full,
    /// Classic event of an instance (EVENT_INSTANCE_GUID_HEADER).
    Instance,
    /// Manifest, TraceLogging or EventSource event (EVENT_HEADER).
    Event,
    /// WPP message (TraceMessage).
    Message,
    /// A record type without a published layout.
    Other(u8),
}

impl Family {
    /// Returns whether records of the family are kernel events identified by a hook id.
    #[must_use]
    pub const fn has_hook(self) -> bool {
        matches!(self, Self::System | Self::Compact | Self::PerfInfo)
    }
}

/// Family and sizes of a record, from its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The header family.
    pub family: Family,
    /// Pointer size of the payload: 4 or 8.
    pub pointer_size: u8,
    /// Size of the fixed header in bytes.
    pub header: usize,
    /// Size of the whole record in bytes, not rounded.
    pub size: usize,
}

/// Offset of the time stamp in EVENT, FULL, INSTANCE, SYSTEM and COMPACT headers.
pub(crate) const EVENT_TIME_OFFSET: usize = 0x10;

/// Bytes from the start of a record that include the time stamp in every family.
pub(crate) const MAX_STAMP_END: usize = 0x40;

/// Returns family and sizes from the first eight bytes of a record; `None` for an unknown marker.
#[inline]
fn classify(head: &[u8; 8], has_short_instance_headers: bool) -> Option<Measure> {
    let (size_in_marker, size_after_marker) =
        (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[4], head[5]]));
    let (family, pointer_size, header, size) = match head[3] >> 4 {
        0xC..=0xF => match HeaderType(head[2]) {
            HeaderType::EVENT_HEADER64 => (Family::Event, 8, event::SIZE, size_in_marker),
            HeaderType::EVENT_HEADER32 => (Family::Event, 4, event::SIZE, size_in_marker),
            HeaderType::PERFINFO64 => {
                (Family::PerfInfo, 8, perfinfo::header_size(head[1]), size_after_marker)
            }
            HeaderType::PERFINFO32 => {
                (Family::PerfInfo, 4, perfinfo::header_size(head[1]), size_after_marker)
            }
            HeaderType::SYSTEM64 => (Family::System, 8, system::SIZE, size_after_marker),
            HeaderType::SYSTEM32 => (Family::System, 4, system::SIZE, size_after_marker),
            HeaderType::COMPACT64 => (Family::Compact, 8, system::COMPACT_SIZE, size_after_marker),
            HeaderType::COMPACT32 => (Family::Compact, 4, system::COMPACT_SIZE, size_after_marker),
            HeaderType::FULL_HEADER64 => (Family::Full, 8, classic::SIZE, size_in_marker),
            HeaderType::FULL_HEADER32 => (Family::Full, 4, classic::SIZE, size_in_marker),
            HeaderType::INSTANCE64 => {
                (Family::Instance, 8, classic::instance_size(has_short_instance_headers), size_in_marker)
            }
            HeaderType::INSTANCE32 => {
                (Family::Instance, 4, classic::instance_size(has_short_instance_headers), size_in_marker)
            }
            HeaderType(other) => (Family::Other(other), 8, 8, size_in_marker),
        },
        0x9 => {
            let flags = u16::from_le_bytes([head[6], head[7]]);
            (Family::Message, message::pointer_size(flags), message::header_size(flags), size_in_marker)
        }
        0xB => (Family::Other(0xB0), 8, 8, size_in_marker),
        _ => return None,
    };
    Some(Measure { family, pointer_size, header, size: usize::from(size) })
}

/// Returns the family of the record that begins with these eight bytes; `None` at filler or an
/// unknown marker.
pub(crate) fn family_of(head: &[u8; 8]) -> Option<Family> {
    if head.starts_with(&[0xFF; 4]) { None } else { classify(head, false).map(|measure| measure.family) }
}

/// Reads the marker of an EVENT or a PERFINFO event, by far the most common families; `None` for
/// any other family and for an invalid size.
#[inline(always)]
pub(crate) fn measure_common(bytes: &[u8]) -> Option<Measure> {
    const EVENT_64: u16 = u16::from_le_bytes([HeaderType::EVENT_HEADER64.0, 0xC0]);
    const EVENT_32: u16 = u16::from_le_bytes([HeaderType::EVENT_HEADER32.0, 0xC0]);
    const PERFINFO_64: u16 = u16::from_le_bytes([HeaderType::PERFINFO64.0, 0xC0]);
    let (family, pointer_size, header, size) = match u16_at(bytes, 2) {
        EVENT_64 => (Family::Event, 8, event::SIZE, u16_at(bytes, 0)),
        PERFINFO_64 => (Family::PerfInfo, 8, perfinfo::header_size(u8_at(bytes, 1)), u16_at(bytes, 4)),
        EVENT_32 => (Family::Event, 4, event::SIZE, u16_at(bytes, 0)),
        _ => return None,
    };
    let size = usize::from(size);
    let is_complete = size >= header && size <= bytes.len();
    is_complete.then_some(Measure { family, pointer_size, header, size })
}

/// Returns the time stamp of a record that [`measure_common`] measured.
#[inline(always)]
pub(crate) fn time_of_common(bytes: &[u8], family: Family) -> i64 {
    i64_at(bytes, if family == Family::Event { EVENT_TIME_OFFSET } else { perfinfo::TIME_OFFSET })
}

/// Reads the marker at the start of `bytes`, which extend to the end of the buffer; `None` at
/// filler or at the end.
///
/// `offset` is the offset of `bytes`, for errors; `has_short_instance_headers` selects the short
/// INSTANCE header of layouts before 1.1.
#[inline]
pub fn measure(bytes: &[u8], offset: u64, has_short_instance_headers: bool) -> Result<Option<Measure>> {
    match measure_common(bytes) {
        Some(measure) => Ok(Some(measure)),
        None => measure_any(bytes, offset, has_short_instance_headers),
    }
}

fn measure_any(bytes: &[u8], offset: u64, has_short_instance_headers: bool) -> Result<Option<Measure>> {
    let Some(head) = chunk::<8>(bytes, 0).filter(|h| !h.starts_with(&[0xFF; 4])) else {
        return Ok(None);
    };
    let Some(measure) = classify(head, has_short_instance_headers) else {
        return Err(Error::Invalid { what: "record", offset, reason: "unknown marker" });
    };
    if measure.size < measure.header {
        return Err(Error::Invalid { what: "record", offset, reason: "size is smaller than its header" });
    }
    if measure.size > bytes.len() {
        let (needed, available) = (measure.size as u64, bytes.len() as u64);
        return Err(Error::Truncated { what: "record", offset, needed, available });
    }
    Ok(Some(measure))
}

/// Returns the raw time stamp of a record, if its header has one.
#[inline]
#[must_use]
pub fn time_of(bytes: &[u8], family: Family) -> Option<i64> {
    match family {
        Family::PerfInfo => Some(i64_at(bytes, perfinfo::TIME_OFFSET)),
        Family::Message => message::time_of(bytes),
        Family::Other(_) => None,
        _ => Some(i64_at(bytes, EVENT_TIME_OFFSET)),
    }
}

/// One event, borrowed from its buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record<'b> {
    bytes: &'b [u8],
    time: i64,
    family: Family,
    pointer_size: u8,
    items_damaged: bool,
    is_old_instance: bool,
    cpu: u16,
    payload_offset: u16,
}

impl<'b> Record<'b> {
    /// Views the record at the start of `bytes`, whose marker was read as `measure`.
    ///
    /// `inherited_time` is used where the header has no time stamp.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // A record has at most 65,535 bytes.
    pub fn new(bytes: &'b [u8], measure: Measure, cpu: u16, inherited_time: i64) -> Self {
        let Measure { family, pointer_size, header, size } = measure;
        let bytes = bytes.get(..size).unwrap_or(bytes);
        let mut payload_offset = header.min(bytes.len());
        let mut items_damaged = false;
        if family == Family::Event && event::has_items(bytes) {
            match extended::end_of_items(bytes, event::SIZE) {
                Some(end) => payload_offset = end,
                None => items_damaged = true,
            }
        }
        let time = if family == Family::Event {
            i64_at(bytes, EVENT_TIME_OFFSET)
        } else {
            time_of(bytes, family).unwrap_or(inherited_time)
        };
        let is_old_instance = family == Family::Instance && header == classic::OLD_INSTANCE_SIZE;
        let payload_offset = payload_offset as u16;
        Self { bytes, time, family, pointer_size, items_damaged, is_old_instance, cpu, payload_offset }
    }

    /// Parses a single record, for example in a test or a real-time stream.
    pub fn parse(bytes: &'b [u8], cpu: u16) -> Result<Self> {
        let measure = measure(bytes, 0, false)?;
        let measure = measure.ok_or(Error::Invalid {
            what: "record",
            offset: 0,
            reason: "filler instead of a marker",
        })?;
        Ok(Self::new(bytes, measure, cpu, 0))
    }

    /// Returns the same record in a copy of its bytes.
    ///
    /// `bytes` must be as long as those of the record.
    #[inline]
    #[must_use]
    pub(crate) const fn with_bytes<'c>(&self, bytes: &'c [u8]) -> Record<'c> {
        let Self { time, family, pointer_size, items_damaged, is_old_instance, cpu, payload_offset, .. } =
            *self;
        Record { bytes, time, family, pointer_size, items_damaged, is_old_instance, cpu, payload_offset }
    }

    /// Returns the bytes of the record in the file.
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        self.bytes
    }

    /// Returns the header family.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Returns the stamp in the session's raw clock. A record without a stamp has the stamp of the
    /// previous record.
    #[must_use]
    pub const fn time(&self) -> i64 {
        self.time
    }

    /// Returns the processor index of the buffer.
    #[must_use]
    pub const fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Returns the size of pointers in the payload: 4 or 8.
    #[must_use]
    pub fn pointer_size(&self) -> usize {
        usize::from(self.pointer_size)
    }

    /// Returns the payload, without extended data items and optional fields.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'b [u8] {
        self.bytes.get(usize::from(self.payload_offset)..).unwrap_or_default()
    }

    /// Returns whether the extended data items do not fit the record; the payload then includes
    /// their bytes.
    #[must_use]
    pub const fn has_damaged_items(&self) -> bool {
        self.items_damaged
    }

    /// Returns the id of the writing thread, or [`NO_ID`].
    #[inline]
    #[must_use]
    pub fn thread_id(&self) -> u32 {
        match self.family {
            Family::PerfInfo | Family::Other(_) => NO_ID,
            Family::Message => message::ids(self.bytes).map_or(NO_ID, |ids| ids.0),
            _ => u32_at(self.bytes, 0x08),
        }
    }

    /// Returns the id of the writing process, or [`NO_ID`].
    #[inline]
    #[must_use]
    pub fn process_id(&self) -> u32 {
        match self.family {
            Family::PerfInfo | Family::Other(_) => NO_ID,
            Family::Message => message::ids(self.bytes).map_or(NO_ID, |ids| ids.1),
            _ => u32_at(self.bytes, 0x0C),
        }
    }

    /// Returns the hook id (group and type) of a kernel event.
    #[inline]
    #[must_use]
    pub fn hook(&self) -> Option<u16> {
        self.family.has_hook().then(|| u16_at(self.bytes, 0x06))
    }

    /// Returns the provider id, class GUID or message GUID; null if the record has none.
    #[inline]
    #[must_use]
    pub fn provider(&self) -> Guid {
        match self.family {
            Family::System | Family::Compact | Family::PerfInfo => class_of(u16_at(self.bytes, 0x06)),
            Family::Full | Family::Event => guid_at(self.bytes, 0x18),
            Family::Instance if self.is_old_instance => Guid::NULL,
            Family::Instance => guid_at(self.bytes, 0x18),
            Family::Message => message::guid(self.bytes).unwrap_or(Guid::NULL),
            Family::Other(_) => Guid::NULL,
        }
    }

    /// Returns the descriptor fields (id, version, level, …) that the family has.
    #[inline]
    #[must_use]
    pub fn descriptor(&self) -> EventDescriptor {
        let b = self.bytes;
        match self.family {
            Family::Event => {
                chunk(b, 0x28).map_or_else(EventDescriptor::default, EventDescriptor::from_bytes)
            }
            Family::System | Family::Compact | Family::PerfInfo => {
                EventDescriptor { version: u8_at(b, 0), opcode: u8_at(b, 6), ..EventDescriptor::default() }
            }
            Family::Full | Family::Instance => EventDescriptor {
                opcode: u8_at(b, 4),
                level: u8_at(b, 5),
                version: u8::try_from(u16_at(b, 6)).unwrap_or(u8::MAX),
                ..EventDescriptor::default()
            },
            Family::Message => EventDescriptor { id: u16_at(b, 4), ..EventDescriptor::default() },
            Family::Other(_) => EventDescriptor::default(),
        }
    }

    /// Returns the header flags as stored; only EVENT headers have flags.
    #[must_use]
    pub fn flags(&self) -> u16 {
        if self.family == Family::Event { u16_at(self.bytes, 4) } else { 0 }
    }

    /// Returns the activity id, if it is not null.
    #[must_use]
    pub fn activity(&self) -> Option<Guid> {
        let id = if self.family == Family::Event { guid_at(self.bytes, 0x40) } else { Guid::NULL };
        (!id.is_null()).then_some(id)
    }

    /// Returns the CPU times of the thread in timer ticks: kernel, then user.
    #[must_use]
    pub fn cpu_times(&self) -> Option<(u32, u32)> {
        let at = match self.family {
            Family::System => 0x18_usize,
            Family::Full => 0x28,
            Family::Instance => 0x28,
            Family::Event => 0x38,
            _ => return None,
        };
        Some((u32_at(self.bytes, at), u32_at(self.bytes, at.saturating_add(4))))
    }

    /// Returns the extended data items; empty if there are none or they are damaged.
    #[inline]
    #[must_use]
    pub fn items(&self) -> ExtendedItems<'b> {
        if self.family == Family::Event && !self.items_damaged {
            let items = self.bytes.get(event::SIZE..usize::from(self.payload_offset));
            ExtendedItems::new(items.unwrap_or_default())
        } else {
            ExtendedItems::new(&[])
        }
    }

    /// Returns instance and parent instance of an INSTANCE event.
    #[must_use]
    pub fn instance(&self) -> Option<classic::Instance> {
        (self.family == Family::Instance).then(|| classic::Instance::read(self.bytes, self.is_old_instance))
    }

    /// Returns the PMC counter values between a PERFINFO header and its payload.
    #[must_use]
    pub fn pmc_counters(&self) -> &'b [u8] {
        if self.family == Family::PerfInfo { perfinfo::counters(self.bytes) } else { &[] }
    }
}

/// Checks the size of the record that begins at `start` and pads it with zeros to a multiple of
/// eight.
///
/// Returns the unrounded size for the header's size field.
pub(crate) fn finish_record(out: &mut alloc::vec::Vec<u8>, start: usize) -> Result<u16> {
    let size = out.len().saturating_sub(start);
    let Ok(size_field) = u16::try_from(size) else {
        out.truncate(start);
        return Err(Error::TooLarge { what: "record", size: size as u64, limit: MAX_RECORD_BYTES as u64 });
    };
    out.resize(start.saturating_add(align8(size)), 0);
    Ok(size_field)
}

/// Overwrites the bytes at an offset; does nothing if `out` is too short.
pub(crate) fn patch(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = out.get_mut(at..at.saturating_add(bytes.len())) {
        to.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
