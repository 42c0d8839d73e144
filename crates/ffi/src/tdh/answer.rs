//! Buffers of callers, and text from C.

use traceweir::Status;
use traceweir_decode::tdh::Answer;

use crate::ptr;

/// A caller's buffer, and the address of its size.
pub(super) struct OutputBuffer {
    buffer: *mut u8,
    capacity_bytes: u32,
    size: *mut u32,
}

impl OutputBuffer {
    /// Checks a buffer. Returns `None` if `size` is NULL, or if the buffer is NULL and `*size` is
    /// not 0.
    ///
    /// # Safety
    ///
    /// Pointers are NULL or valid while the `OutputBuffer` is used: `buffer` has `*size` bytes.
    pub(super) unsafe fn new<T>(buffer: *mut T, size: *mut u32) -> Option<Self> {
        // SAFETY: the caller passes NULL or a readable `size`.
        let capacity_bytes = unsafe { ptr::read_value(size.cast_const()) }?;
        (capacity_bytes == 0 || !buffer.is_null()).then_some(Self {
            buffer: buffer.cast(),
            capacity_bytes,
            size,
        })
    }

    /// Writes bytes and stores their size; stores only the size if the buffer is too small.
    ///
    /// The parts in `replacements` replace the bytes at their offsets, for callers that change a
    /// field of an answer. Parts that do not lie within the bytes are ignored.
    pub(super) fn write(&self, bytes: &[u8], replacements: &[(usize, &[u8])]) -> Status {
        let Ok(needed) = u32::try_from(bytes.len()) else { return Status::ERROR_NOT_ENOUGH_MEMORY };
        // SAFETY: the address of the size is valid by the contract of `new`.
        unsafe { ptr::store(self.size, needed) };
        if needed > self.capacity_bytes || self.buffer.is_null() {
            return Status::ERROR_INSUFFICIENT_BUFFER;
        }
        // SAFETY: the buffer has `capacity_bytes` by the contract of `new`; no more are written.
        unsafe { ptr::write_bytes(self.buffer, bytes) };
        for (at, part) in replacements {
            if at.checked_add(part.len()).is_some_and(|end| end <= bytes.len()) {
                // SAFETY: the part lies within the bytes that were just written.
                unsafe { ptr::write_bytes(self.buffer.wrapping_add(*at), part) };
            }
        }
        Status::ERROR_SUCCESS
    }

    /// Writes an answer, or returns the status of its refusal.
    pub(super) fn write_answer(&self, answer: Answer<Vec<u8>>) -> Status {
        answer.map_or_else(|refusal| refusal.status(), |bytes| self.write(&bytes, &[]))
    }
}

/// Reads a text of at most `max_chars` UTF-16 units. Returns `None` if it is NULL, longer, or not
/// valid UTF-16.
///
/// # Safety
///
/// `at` is NULL, or units can be read there up to a NUL.
pub(super) unsafe fn read_utf16(at: *const u16, max_chars: usize) -> Option<String> {
    // SAFETY: the caller passes NULL or a readable `at`.
    let units = unsafe { ptr::read_text(at, max_chars.saturating_add(1)) }?;
    String::from_utf16(&units).ok()
}
