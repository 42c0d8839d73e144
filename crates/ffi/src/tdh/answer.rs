//! Buffers of callers, and texts from C.

use traceweir::Status;
use traceweir_decode::tdh::Answer;

use crate::ptr;

/// A caller's buffer with the place of its size.
pub(super) struct Room {
    buffer: *mut u8,
    bytes: u32,
    size: *mut u32,
}

impl Room {
    /// A buffer; `None` if its size is nowhere, or if it has a size and is nowhere itself.
    ///
    /// # Safety
    ///
    /// Pointers are NULL or valid for as long as this is: `buffer` has `*size` bytes.
    pub(super) unsafe fn new<T>(buffer: *mut T, size: *mut u32) -> Option<Self> {
        // SAFETY: by the contract.
        let bytes = unsafe { ptr::copied(size.cast_const()) }?;
        (bytes == 0 || !buffer.is_null()).then_some(Self { buffer: buffer.cast(), bytes, size })
    }

    /// Puts bytes there, then others over them, and says the size; only the size where there is no room.
    pub(super) fn put(&self, bytes: &[u8], over: &[(usize, &[u8])]) -> Status {
        let Ok(needed) = u32::try_from(bytes.len()) else { return Status::ERROR_NOT_ENOUGH_MEMORY };
        // SAFETY: the place of the size is valid by the contract of `new`.
        unsafe { ptr::store(self.size, needed) };
        if needed > self.bytes || self.buffer.is_null() {
            return Status::ERROR_INSUFFICIENT_BUFFER;
        }
        // SAFETY: the buffer has at least as many bytes, by the contract of `new`.
        unsafe { ptr::put(self.buffer, bytes) };
        for (at, part) in over {
            if at.checked_add(part.len()).is_some_and(|end| end <= bytes.len()) {
                // SAFETY: within what was just written.
                unsafe { ptr::put(self.buffer.wrapping_add(*at), part) };
            }
        }
        Status::ERROR_SUCCESS
    }

    /// Puts what was answered.
    pub(super) fn answer(&self, answer: Answer<Vec<u8>>) -> Status {
        answer.map_or_else(|refusal| refusal.status(), |bytes| self.put(&bytes, &[]))
    }
}

/// A text of at most `most` characters; `None` if it is NULL, longer, or none.
///
/// # Safety
///
/// `at` is NULL, or characters can be read there up to a NUL.
pub(super) unsafe fn text(at: *const u16, most: usize) -> Option<String> {
    // SAFETY: by the contract.
    let units = unsafe { ptr::text(at, most.saturating_add(1)) }?;
    String::from_utf16(&units).ok()
}
