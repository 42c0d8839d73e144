//! TdhFormatProperty: formats one value as text.

use std::mem::offset_of;

use traceweir::{Guid, Status};
use traceweir_decode::tdh::{Answer, DecodedValue, Refusal, decode_value, map_names};
use traceweir_format::spec::types::{InType, OutType};

use super::MAX_NAME;
use super::answer::{Room, text};
use super::event::pointer_size;
use crate::types::tdh::{EventMapEntry, EventMapInfo, TraceEventInfo};
use crate::{boundary, ptr};

/// Flags of maps whose entries are bits: of manifests, of classic classes, and flags of these.
const MAP_BITS: u32 = 0x02 | 0x10 | 0x20;
/// Maps that match text patterns.
const MAP_PATTERN: u32 = 0x04;
/// Names of classic classes by their index: they have no numbers.
const MAP_WBEM_NO_MAP: u32 = 0x40;
/// The most entries of a map that are read.
const MAX_ENTRIES: u32 = 1 << 20;

/// Formats one value as text; [`decode_value`].
///
/// `LoggerName` and `LogFileName` of the log-file header event are shown as the names that follow
/// them, where `data` reaches to the end of the event. They still consume the bytes of a pointer.
///
/// # Safety
///
/// Pointers are NULL or valid: `info` and `map` are complete structures, `data` has
/// `length_of_data` bytes, `buffer` has `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhFormatProperty(
    info: *const TraceEventInfo,
    map: *const EventMapInfo,
    bytes_of_pointer: u32,
    in_type: u16,
    out_type: u16,
    length: u16,
    length_of_data: u16,
    data: *const u8,
    size: *mut u32,
    buffer: *mut u16,
    consumed: *mut u16,
) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (data, room) = unsafe { (ptr::array(data, length_of_data.into()), Room::new(buffer, size)) };
        let pointer_size = pointer_size(bytes_of_pointer.into());
        let (Some(data), Some(room), Some(pointer_size)) = (data, room, pointer_size) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        if info.is_null() || consumed.is_null() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        let made =
            decode_value(InType(in_type), OutType(out_type), length, pointer_size, data).and_then(|one| {
                // SAFETY: by the contract; `info` is not NULL, as checked above.
                let (class, opcode) = unsafe { class_and_opcode(info) };
                let one = one.shown_in(&class, opcode, pointer_size, data);
                // SAFETY: by the contract.
                let text = if map.is_null() { plain(&one) } else { unsafe { mapped(map, &one.value) }? };
                Ok((text, one.consumed))
            });
        let (text, used) = match made {
            Ok(made) => made,
            Err(refusal) => return refusal.status(),
        };
        let status = room.put(&text, &[]);
        if status == Status::ERROR_SUCCESS {
            // SAFETY: by the contract.
            unsafe { ptr::store(consumed, u16::try_from(used).unwrap_or(u16::MAX)) };
        }
        status
    })
}

/// Returns the class and opcode of an event.
///
/// # Safety
///
/// `info` is a complete TRACE_EVENT_INFO; one without properties ends before the list of them.
unsafe fn class_and_opcode(info: *const TraceEventInfo) -> (Guid, u8) {
    // SAFETY: by the contract both lie in the structure; only they are read, and at any alignment.
    unsafe {
        let class = (&raw const (*info).event_guid).read_unaligned();
        let descriptor = (&raw const (*info).event_descriptor).read_unaligned();
        (class, descriptor.opcode)
    }
}

fn plain(one: &DecodedValue<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    one.text(&mut out);
    wide(&String::from_utf8_lossy(&out))
}

pub(super) fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Returns the names that a map has for a value, without trailing spaces.
///
/// # Safety
///
/// `map` is a complete EVENT_MAP_INFO: entries, and texts at their offsets.
unsafe fn mapped(map: *const EventMapInfo, value: &traceweir_decode::value::Value<'_>) -> Answer<Vec<u8>> {
    let base = map.cast::<u8>();
    // SAFETY: by the contract; a map without entries ends after its head.
    let [_name, flag, count, value_type] = unsafe { base.cast::<[u32; 4]>().read_unaligned() };
    if flag & (MAP_PATTERN | MAP_WBEM_NO_MAP) != 0 || value_type != 0 || count > MAX_ENTRIES {
        return Err(Refusal::Invalid("the map has no names for numbers"));
    }
    let first = base.wrapping_add(offset_of!(EventMapInfo, map_entry_array)).cast::<EventMapEntry>();
    let entries = (0..count).map(|index| {
        // SAFETY: by the contract the map has `count` entries.
        let entry = unsafe { first.wrapping_add(index as usize).read_unaligned() };
        (entry.value, entry.output_offset)
    });
    let mut joined = String::new();
    for offset in map_names(flag & MAP_BITS != 0, entries, value)? {
        let at = base.wrapping_add(offset as usize).cast();
        // SAFETY: by the contract.
        let name = unsafe { text(at, MAX_NAME) }.filter(|_| offset != 0).unwrap_or_default();
        if !joined.is_empty() {
            joined.push('|');
        }
        joined.push_str(name.trim_end());
    }
    Ok(wide(&joined))
}
