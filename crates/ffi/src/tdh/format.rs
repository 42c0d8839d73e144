//! TdhFormatProperty: formats one value as text.

use std::mem::offset_of;

use traceweir::{Guid, Status};
use traceweir_decode::tdh::{Answer, DecodedValue, Refusal, decode_value, map_names};
use traceweir_format::spec::types::{InType, OutType};

use super::MAX_NAME_CHARS;
use super::answer::{OutputBuffer, read_utf16};
use super::event::check_pointer_size;
use crate::types::tdh::{EventMapEntry, EventMapInfo, TraceEventInfo};
use crate::{boundary, ptr};

/// EVENTMAP_INFO_FLAG_MANIFEST_BITMAP, …_WBEM_BITMAP and …_WBEM_FLAG: the entries are bits.
const MAP_BITS: u32 = 0x02 | 0x10 | 0x20;
/// EVENTMAP_INFO_FLAG_MANIFEST_PATTERNMAP: the map matches text patterns.
const MAP_PATTERN: u32 = 0x04;
/// EVENTMAP_INFO_FLAG_WBEM_NO_MAP: the entries have names, but no values.
const MAP_WBEM_NO_MAP: u32 = 0x40;
/// The most entries of a map that are read.
const MAX_ENTRIES: u32 = 1 << 20;

/// Formats one value as text; [`decode_value`].
///
/// `LoggerName` and `LogFileName` of the log-file header event are pointers, but the names that
/// they stand for follow later in the event. If `data` reaches to the end of the event, these names
/// are shown; the consumed bytes are those of the pointer.
///
/// # Safety
///
/// Pointers are NULL or valid: `info` and `map` are complete structures, `data` has
/// `data_bytes` bytes, `buffer` has `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhFormatProperty(
    info: *const TraceEventInfo,
    map: *const EventMapInfo,
    pointer_bytes: u32,
    in_type: u16,
    out_type: u16,
    length: u16,
    data_bytes: u16,
    data: *const u8,
    size: *mut u32,
    buffer: *mut u16,
    consumed: *mut u16,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller guarantees that `data`, `buffer` and `size` are NULL or valid.
        let (data, output) =
            unsafe { (ptr::read_array(data, data_bytes.into()), OutputBuffer::new(buffer, size)) };
        let pointer_size = check_pointer_size(pointer_bytes.into());
        let (Some(data), Some(output), Some(pointer_size)) = (data, output, pointer_size) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if info.is_null() || consumed.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let formatted = decode_value(InType(in_type), OutType(out_type), length, pointer_size, data)
            .and_then(|decoded| {
                // SAFETY: `info` is not NULL, so the caller guarantees a complete structure.
                let (class, opcode) = unsafe { read_class_and_opcode(info) };
                let shown = decoded.shown_in(&class, opcode, pointer_size, data);
                let text = if map.is_null() {
                    format_plain(&shown)
                } else {
                    // SAFETY: `map` is not NULL, so the caller guarantees a complete structure.
                    unsafe { format_mapped(map, &shown.value) }?
                };
                Ok((text, shown.consumed))
            });
        let (text, used) = match formatted {
            Ok(formatted) => formatted,
            Err(refusal) => return refusal.status(),
        };
        let status = output.write(&text, &[]);
        if status == Status::ERROR_SUCCESS {
            // SAFETY: the caller passes NULL or a writable `consumed`.
            unsafe { ptr::store(consumed, u16::try_from(used).unwrap_or(u16::MAX)) };
        }
        status
    })
}

/// Returns the class and opcode of an event.
///
/// # Safety
///
/// `info` is a complete TRACE_EVENT_INFO. One without properties is shorter than the Rust
/// structure: it ends before the property list.
unsafe fn read_class_and_opcode(info: *const TraceEventInfo) -> (Guid, u8) {
    // SAFETY: both members lie in the structure that the caller guarantees; only they are read, at
    // any alignment.
    unsafe {
        let class = (&raw const (*info).event_guid).read_unaligned();
        let descriptor = (&raw const (*info).event_descriptor).read_unaligned();
        (class, descriptor.opcode)
    }
}

fn format_plain(decoded: &DecodedValue<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    decoded.text(&mut out);
    encode_utf16_bytes(&String::from_utf8_lossy(&out))
}

pub(super) fn encode_utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Returns the names that a map has for a value, without trailing spaces and joined by `|`, as
/// UTF-16 with a terminator.
///
/// # Safety
///
/// `map` is a complete EVENT_MAP_INFO: entries, and texts at their offsets.
unsafe fn format_mapped(
    map: *const EventMapInfo,
    value: &traceweir_decode::value::Value<'_>,
) -> Answer<Vec<u8>> {
    let base = map.cast::<u8>();
    // SAFETY: the caller guarantees a complete structure; a map without entries ends after these
    // four members.
    let [_name, flag, count, value_type] = unsafe { base.cast::<[u32; 4]>().read_unaligned() };
    if flag & (MAP_PATTERN | MAP_WBEM_NO_MAP) != 0 || value_type != 0 || count > MAX_ENTRIES {
        return Err(Refusal::Invalid("the map has no names for numbers"));
    }
    let first = base.wrapping_add(offset_of!(EventMapInfo, map_entry_array)).cast::<EventMapEntry>();
    let entries = (0..count).map(|index| {
        // SAFETY: the caller guarantees that the map has `count` entries.
        let entry = unsafe { first.wrapping_add(index as usize).read_unaligned() };
        (entry.value, entry.output_offset)
    });
    let mut joined = String::new();
    for offset in map_names(flag & MAP_BITS != 0, entries, value)? {
        // An entry without a text has offset 0.
        let name = if offset == 0 {
            String::new()
        } else {
            let text = base.wrapping_add(offset as usize).cast();
            // SAFETY: the caller guarantees a text with a terminator at each other offset.
            unsafe { read_utf16(text, MAX_NAME_CHARS) }.unwrap_or_default()
        };
        if !joined.is_empty() {
            joined.push('|');
        }
        joined.push_str(name.trim_end());
    }
    Ok(encode_utf16_bytes(&joined))
}
