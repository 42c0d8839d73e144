//! Buffers of callers, and text from C.

use traceweir::Status;
use traceweir_decode::tdh::Answer;

use crate::ptr;

/// A caller's buffer, and the address of its size.
pub(super) struct Room {
    buffer: *mut u8,
    bytes: u32,
    size: *mut u32,
}

impl Room {
    /// Checks a buffer. Returns `None` if `size` is NULL, or if the buffer is NULL and has a size.
    ///
    /// # Safety
    ///
    /// Pointers are NULL or valid while the `Room` is used: `buffer` has `*size` bytes.
    pub(super) unsafe fn new<T>(buffer: *mut T, size: *mut u32) -> Option<Self> {
        // SAFETY: by the contract.
        let bytes = unsafe { ptr::copied(size.cast_const()) }?;
        (bytes == 0 || !buffer.is_null()).then_some(Self { buffer: buffer.cast(), bytes, size })
    }

    /// Writes bytes, then the parts in `over` at their offsets, and stores the size. Stores only
    /// the size if the buffer is too small.
    pub(super) fn put(&self, bytes: &[u8], over: &[(usize, &[u8])]) -> Status {
        let Ok(needed) = u32::try_from(bytes.len()) else { return Status::ERROR_NOT_ENOUGH_MEMORY };
        // SAFETY: the address of the size is valid by the contract of `new`.
        unsafe { ptr::store(self.size, needed) };
        if needed > self.bytes || self.buffer.is_null() {
            return Status::ERROR_INSUFFICIENT_BUFFER;
        }
        // SAFETY: the buffer has at least as many bytes, by the contract of `new`.
        unsafe { ptr::put(self.buffer, bytes) };
        for (at, part) in over {
            if at.checked_add(part.len()).is_some_and(|end| end <= bytes.len()) {
                // SAFETY: the part lies within the bytes that were just written.
                unsafe { ptr::put(self.buffer.wrapping_add(*at), part) };
            }
        }
        Status::ERROR_SUCCESS
    }

    /// Writes an answer, or returns the status of its refusal.
    pub(super) fn answer(&self, answer: Answer<Vec<u8>>) -> Status {
        answer.map_or_else(|refusal| refusal.status(), |bytes| self.put(&bytes, &[]))
    }
}

/// Reads a text of at most `most` characters. Returns `None` if it is NULL, longer, or not valid
/// UTF-16.
///
/// # Safety
///
/// `at` is NULL, or characters can be read there up to a NUL.
pub(super) unsafe fn text(at: *const u16, most: usize) -> Option<String> {
    // SAFETY: by the contract.
    let units = unsafe { ptr::text(at, most.saturating_add(1)) }?;
    String::from_utf16(&units).ok()
}
