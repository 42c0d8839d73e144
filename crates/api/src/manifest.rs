//! Support for code generated from an instrumentation manifest: builds one event's payload field by
//! field.
//!
//! ```text
//!   generated write function ──▶ Payload: concatenated fields ──▶ Provider::write_transfer
//! ```
//!
//! `traceweir-build` and `weir mc` generate such code; other programs do not need this module. A
//! payload is on the stack up to 1 KiB, and in allocated memory beyond; it never grows past the
//! maximum size of an event. If a value does not fit its field (a text longer than the field, or
//! two arrays with a common count field and different lengths), the write fails with
//! [`WriteError::InvalidParameter`]: a reader would misread all fields after it.
//!
//! `unsafe` has one purpose here: the bytes on the stack need not be cleared for each event.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use crate::provider::{Provider, WriteError};

/// Maximum size of an event in bytes, which the payload alone must not exceed.
const MAX_EVENT_BYTES: usize = 64 << 10;
/// Maximum size in bytes of a payload that needs no allocation.
const SHORT_BYTES: usize = 1024;

/// The payload of one event.
#[derive(Debug)]
pub struct Payload {
    short: [MaybeUninit<u8>; SHORT_BYTES],
    /// Number of bytes of `short` that were written. Invariant: at most [`SHORT_BYTES`], and all of
    /// them are initialised.
    used: usize,
    /// All bytes, once they do not fit into `short`.
    long: Vec<u8>,
    refusal: Option<WriteError>,
}

impl Default for Payload {
    fn default() -> Self {
        Self::new()
    }
}

impl Payload {
    /// Creates an empty payload.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { short: [MaybeUninit::uninit(); SHORT_BYTES], used: 0, long: Vec::new(), refusal: None }
    }

    /// Appends bytes unchanged.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        match self.short.get_mut(self.used..).and_then(|free| free.get_mut(..bytes.len())) {
            Some(place) if self.long.is_empty() => {
                // SAFETY: u8 and MaybeUninit<u8> have the same layout, and initialised bytes are
                // valid as MaybeUninit.
                place.copy_from_slice(unsafe { &*(std::ptr::from_ref(bytes) as *const [MaybeUninit<u8>]) });
                self.used += bytes.len();
            }
            _ => self.put_long(bytes),
        }
    }

    #[cold]
    fn put_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long = self.bytes().to_vec();
        }
        if self.long.len().saturating_add(bytes.len()) > MAX_EVENT_BYTES {
            self.refusal.get_or_insert(WriteError::TooLarge);
        } else {
            self.long.extend_from_slice(bytes);
        }
    }

    /// Returns the bytes appended so far.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            let written = self.short.get(..self.used).unwrap_or_default();
            // SAFETY: `put` initialised the first `used` bytes.
            unsafe { &*(std::ptr::from_ref(written) as *const [u8]) }
        } else {
            &self.long
        }
    }

    /// Refuses the event if `condition`, which the caller's values must fulfil, is false.
    #[inline]
    pub fn require(&mut self, condition: bool) {
        if !condition && self.refusal.is_none() {
            self.refusal.get_or_insert(WriteError::InvalidParameter);
        }
    }

    /// Converts a count or length to the type of its field; refuses the event if it does not fit.
    #[inline]
    pub fn count_to_field<T: TryFrom<usize> + Default>(&mut self, n: usize) -> T {
        let number = T::try_from(n);
        self.require(number.is_ok());
        number.unwrap_or_default()
    }

    /// Converts a caller's count or length to `usize`; refuses the event if it does not fit.
    #[inline]
    pub fn count_from_field<T: TryInto<usize>>(&mut self, n: T) -> usize {
        let size = n.try_into();
        self.require(size.is_ok());
        size.unwrap_or_default()
    }

    /// Appends a UTF-16 text with its NUL; a NUL inside ends it.
    pub fn text16(&mut self, text: &str) {
        self.put_units(text.encode_utf16().take_while(|unit| *unit != 0).chain([0]));
    }

    /// Appends a text of 8-bit characters with its NUL; a NUL inside ends it.
    pub fn text8(&mut self, text: &[u8]) {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        self.put(text.get(..end).unwrap_or_default());
        self.put(&[0]);
    }

    /// Appends a UTF-16 text of exactly `units` units, padded with NUL.
    pub fn text16_of(&mut self, text: &str, units: usize) {
        let length = utf16_len(text);
        self.require(length <= units);
        self.put_units(text.encode_utf16().chain(std::iter::repeat(0)).take(units));
    }

    /// Appends a text of exactly `bytes` bytes, padded with NUL.
    pub fn text8_of(&mut self, text: &[u8], bytes: usize) {
        self.require(text.len() <= bytes);
        self.put(text.get(..bytes).unwrap_or(text));
        for _ in text.len()..bytes {
            self.put(&[0]);
        }
    }

    /// Appends the size of a UTF-16 text in bytes, then the text.
    pub fn counted16(&mut self, text: &str) {
        let size: u16 = self.count_to_field(utf16_len(text).saturating_mul(2));
        self.put(&size.to_le_bytes());
        self.put_units(text.encode_utf16());
    }

    /// Appends the number of bytes, then the bytes.
    pub fn counted8(&mut self, bytes: &[u8]) {
        let size: u16 = self.count_to_field(bytes.len());
        self.put(&size.to_le_bytes());
        self.put(bytes);
    }

    /// Appends a security identifier: 8 bytes and 4 for each subauthority, whose number is the
    /// second byte.
    pub fn sid(&mut self, sid: &[u8]) {
        let size = sid.get(1).map(|count| usize::from(*count) * 4 + 8);
        self.require(size == Some(sid.len()));
        self.put(sid);
    }

    fn put_units(&mut self, units: impl Iterator<Item = u16>) {
        for unit in units {
            self.put(&unit.to_le_bytes());
        }
    }

    /// Writes the event.
    #[inline(always)]
    pub fn write(
        &self,
        provider: &Provider,
        descriptor: &EventDescriptor,
        activity: Option<&Guid>,
        related: Option<&Guid>,
    ) -> Result<(), WriteError> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => provider.write_transfer(descriptor, activity, related, &[self.bytes()]),
        }
    }
}

/// Returns the number of UTF-16 units of a text.
#[must_use]
pub fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_concatenated_on_stack_and_heap() {
        let mut payload = Payload::new();
        let mut expected = Vec::new();
        for n in 0..2000_u32 {
            payload.put(&n.to_le_bytes());
            expected.extend_from_slice(&n.to_le_bytes());
            assert_eq!(payload.bytes(), expected);
        }
        assert_eq!(payload.refusal, None);
    }

    #[test]
    fn payload_stops_growing_at_maximum_event_size() {
        let mut payload = Payload::new();
        for _ in 0..200 {
            payload.put(&[7; 1000]);
        }
        assert_eq!((payload.bytes().len(), payload.refusal), (65_000, Some(WriteError::TooLarge)));
    }

    #[test]
    fn texts_have_the_requested_form() {
        let mut payload = Payload::new();
        payload.text16("é\0x");
        payload.text8(b"ab\0c");
        payload.text16_of("a", 2);
        payload.text8_of(b"b", 3);
        payload.counted16("c");
        payload.counted8(b"de");
        assert_eq!(payload.bytes(), b"\xe9\0\0\0ab\0a\0\0\0b\0\0\x02\0c\0\x02\0de");
        assert_eq!(payload.refusal, None);
    }

    #[test]
    fn value_that_does_not_fit_refuses_the_event() {
        let assert_refused = |put: &dyn Fn(&mut Payload)| {
            let mut payload = Payload::new();
            put(&mut payload);
            assert_eq!(payload.refusal, Some(WriteError::InvalidParameter));
        };
        assert_refused(&|p| p.text16_of("abc", 2));
        assert_refused(&|p| p.text8_of(b"abc", 2));
        assert_refused(&|p| p.counted8(&[0; 65_536]));
        assert_refused(&|p| p.sid(&[1, 2, 3]));
        assert_refused(&|p| p.sid(b""));
        assert_refused(&|p| _ = p.count_to_field::<u8>(256));
        assert_refused(&|p| _ = p.count_from_field(-1_i32));
    }
}
