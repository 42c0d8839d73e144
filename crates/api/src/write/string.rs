//! Texts as events: UTF-16 with its terminator, no id, the thread's activity.

use traceweir_format::header::MAX_RECORD_BYTES;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor};

use super::scratch::ScratchClaim;
use super::stack::WorkBuffer;
use super::{Options, WriteError, staged};
use crate::event::CallerEvent;
use crate::registration::RegistrationSlot;

/// Maximum size in bytes of a text that is written from the stack.
const SHORT_TEXT_BYTES: usize = 256;

/// Writes a text as an event, which has passed the check of level and keyword.
#[inline(never)]
pub(crate) fn write_string(
    slot: &RegistrationSlot,
    level: u8,
    keyword: u64,
    text: &str,
) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let bytes = text.encode_utf16().count().saturating_add(1).saturating_mul(2);
    let (mut short, mut scratch, long);
    let data = if bytes <= SHORT_TEXT_BYTES {
        short = [0; SHORT_TEXT_BYTES];
        encode_utf16(&mut short, text)
    } else if bytes <= WorkBuffer::BYTES {
        let Some(claim) = ScratchClaim::new() else {
            return staged::count_lost_in_all(slot, &CallerEvent::new(&descriptor, &[]));
        };
        scratch = claim;
        encode_utf16(scratch.unwinding.work.bytes(), text)
    } else {
        // One byte more than a record can have is enough to be refused by size, so a text of any
        // length needs no more memory than that.
        long = utf16_bytes(text).take(MAX_RECORD_BYTES + 1).collect::<Vec<u8>>();
        &long
    };
    super::write(slot, &CallerEvent { flags, ..CallerEvent::new(&descriptor, &[data]) })
}

/// Like [`write_string`], for UTF-16 text from a function of the C interface.
#[inline(never)]
pub(crate) fn write_wide_string(
    slot: &RegistrationSlot,
    level: u8,
    keyword: u64,
    text: &[u8],
) -> Result<(), WriteError> {
    let descriptor = EventDescriptor { level, keyword, ..EventDescriptor::default() };
    let flags = EVENT_HEADER_FLAG_STRING_ONLY;
    let data = [text];
    let event = CallerEvent { flags, ..CallerEvent::new(&descriptor, &data) };
    super::write_with_options(slot, &event, &Options { skipped_frames: 1, ..Options::NONE })
}

/// Encodes a text as UTF-16 with its terminator, as far as it fits into the buffer.
#[inline(always)]
fn encode_utf16<'a>(buffer: &'a mut [u8], text: &str) -> &'a [u8] {
    let mut length = 0;
    for (to, from) in buffer.iter_mut().zip(utf16_bytes(text)) {
        *to = from;
        length += 1;
    }
    buffer.get(..length).unwrap_or(&[])
}

fn utf16_bytes(text: &str) -> impl Iterator<Item = u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)
}
