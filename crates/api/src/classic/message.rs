//! WPP messages: a message number, which is unique within a GUID, and arguments that the program's
//! trace message format file describes.
//!
//! `traceweir_format::header::message` describes the record. Sequence number, time stamp and
//! process id are written as zero. The owner of the region fills them in; the sequence number only
//! if the session has a sequence mode.

use traceweir_format::Guid;
use traceweir_format::header::message::{
    SIZE, TRACE_MESSAGE_COMPONENTID, TRACE_MESSAGE_GUID, TRACE_MESSAGE_PERFORMANCE_TIMESTAMP,
    TRACE_MESSAGE_POINTER32, TRACE_MESSAGE_POINTER64, TRACE_MESSAGE_SEQUENCE, TRACE_MESSAGE_SYSTEMINFO,
    TRACE_MESSAGE_TIMESTAMP,
};

use super::TraceError;
use super::logger::{Logger, MAX_DATA_BLOCKS, PREFIX_WORDS};

/// Maximum number of arguments of one message.
pub const MAX_ARGUMENTS: usize = MAX_DATA_BLOCKS;

/// Flags that a caller may set. The pointer-size flags of the caller are ignored: every message
/// gets TRACE_MESSAGE_POINTER64.
const KNOWN_FLAGS: u32 = (TRACE_MESSAGE_SEQUENCE
    | TRACE_MESSAGE_GUID
    | TRACE_MESSAGE_COMPONENTID
    | TRACE_MESSAGE_TIMESTAMP
    | TRACE_MESSAGE_PERFORMANCE_TIMESTAMP
    | TRACE_MESSAGE_SYSTEMINFO
    | TRACE_MESSAGE_POINTER32
    | TRACE_MESSAGE_POINTER64) as u32;
/// Mask of the flags that are stored; flags beyond the low 16 bits are ignored.
const STORED_FLAGS: u32 = 0xFFFF;
/// Size of a header with all items: sequence number, GUID, time stamp, thread and process id.
const MAX_HEADER_BYTES: usize = SIZE + 4 + 16 + 8 + 8;
/// The maximum header size, rounded up to whole words.
const HEADER_BUFFER_BYTES: usize = MAX_HEADER_BYTES.next_multiple_of(8);
const RECORD_WORDS: usize = PREFIX_WORDS + HEADER_BUFFER_BYTES / 8;

/// Writes a message like `TraceMessage`.
///
/// With the flag TRACE_MESSAGE_COMPONENTID the first four bytes of `id` are the component id.
pub fn trace_message(
    logger: u64,
    flags: u32,
    id: &Guid,
    number: u16,
    arguments: &[&[u8]],
) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    let has = |flag: u16| flags & u32::from(flag) != 0;
    let is_known = flags & STORED_FLAGS & !KNOWN_FLAGS == 0;
    let has_two_ids = has(TRACE_MESSAGE_GUID) && has(TRACE_MESSAGE_COMPONENTID);
    if !is_known || has_two_ids || arguments.len() > MAX_ARGUMENTS {
        return Err(TraceError::InvalidParameter);
    }
    let thread = logger.thread()?;
    let stored = (flags & STORED_FLAGS) as u16 & !TRACE_MESSAGE_POINTER32 | TRACE_MESSAGE_POINTER64;
    let (number, stored) = (number.to_le_bytes(), stored.to_le_bytes());
    let mut header = MessageHeaderBuilder { bytes: [0; HEADER_BUFFER_BYTES], length: 0 };
    // 0x90 marks a message. `Logger::write` stores the size in the first two bytes.
    header.push(&[0, 0, 0, 0x90, number[0], number[1], stored[0], stored[1]]);
    if has(TRACE_MESSAGE_SEQUENCE) {
        header.push(&[0; 4]);
    }
    if has(TRACE_MESSAGE_GUID) {
        header.push(&id.to_bytes());
    } else if has(TRACE_MESSAGE_COMPONENTID) {
        header.push(&id.data1.to_le_bytes());
    }
    if has(TRACE_MESSAGE_TIMESTAMP | TRACE_MESSAGE_PERFORMANCE_TIMESTAMP) {
        header.push(&[0; 8]);
    }
    if has(TRACE_MESSAGE_SYSTEMINFO) {
        header.push(&thread.to_le_bytes());
        header.push(&[0; 4]);
    }
    logger.write(thread, &mut header.to_words(), header.length, arguments, 0)
}

/// The header of a message under construction.
struct MessageHeaderBuilder {
    bytes: [u8; HEADER_BUFFER_BYTES],
    length: usize,
}

impl MessageHeaderBuilder {
    fn push<const N: usize>(&mut self, more: &[u8; N]) {
        if let Some(target) = self.bytes.get_mut(self.length..self.length + N) {
            target.copy_from_slice(more);
            self.length += N;
        }
    }

    /// Returns the header, with free words for a prefix before it.
    fn to_words(&self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        for (word, bytes) in words.iter_mut().skip(PREFIX_WORDS).zip(self.bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    }
}
