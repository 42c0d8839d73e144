//! Texts as events: UTF-16 with its terminator, no id, the thread's activity.

use traceweir_format::header::MAX_RECORD;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor};

use super::scratch::Claim;
use super::stack::Work;
use super::{Options, WriteError, staged};
use crate::event::Event;
use crate::registration::Slot;

/// Maximum size in bytes of a text that is written from the stack.
const SHORT_TEXT: usize = 256;

/// Writes a text that passed level and keyword.
#[inline(never)]
pub(crate) fn write_string(slot: &Slot, level: u8, keyword: u64, text: &str) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let bytes = text.encode_utf16().count().saturating_add(1).saturating_mul(2);
    let (mut short, mut scratch, long);
    let data = if bytes <= SHORT_TEXT {
        short = [0; SHORT_TEXT];
        encode(&mut short, text)
    } else if bytes <= Work::BYTES {
        let Some(claim) = Claim::new() else { return staged::lose(slot, &Event::new(&descriptor, &[])) };
        scratch = claim;
        encode(scratch.unwinding.work.bytes(), text)
    } else {
        // One byte more than a record can have is enough to be refused by size, so a text of any
        // length needs no more memory than that.
        long = utf16_bytes(text).take(MAX_RECORD + 1).collect::<Vec<u8>>();
        &long
    };
    super::write(slot, &Event { flags, ..Event::new(&descriptor, &[data]) })
}

/// Like [`write_string`], for UTF-16 text from a façade whose function calls this.
#[inline(never)]
pub(crate) fn write_wide_string(slot: &Slot, level: u8, keyword: u64, text: &[u8]) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let data = [text];
    let event = Event { flags, ..Event::new(&descriptor, &data) };
    super::write_with(slot, &event, &Options { frames: 1, ..Options::NONE })
}

/// Encodes a text as UTF-16 with its terminator, as far as there is room.
#[inline(always)]
fn encode<'a>(room: &'a mut [u8], text: &str) -> &'a [u8] {
    let mut length = 0;
    for (to, from) in room.iter_mut().zip(utf16_bytes(text)) {
        *to = from;
        length += 1;
    }
    room.get(..length).unwrap_or(&[])
}

fn utf16_bytes(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)
}
