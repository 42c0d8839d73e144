//! What code that was made from an instrumentation manifest stands on: one event's payload, put together field by field.
//!
//! ```text
//!   generated write function ──▶ Payload: fields one behind the other ──▶ Provider::write_transfer
//! ```
//!
//! `traceweir-build` and `weir mc` make such code; others have no need of this module. A payload is on the stack up to 1 KiB, and in memory that
//! is allocated beyond; it never grows past the size that no event can have. What a field cannot take (a text longer than its place, an array whose
//! count does not agree with that of another) makes the whole event [`WriteError::InvalidParameter`]: a reader would misread all that follows.
//!
//! `unsafe` is here for one thing: bytes of the stack that were never written need not be cleared for each event.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use crate::provider::{Provider, WriteError};

/// The most bytes that an event can have.
const MAX_BYTES: usize = 64 << 10;
/// Bytes of a payload that needs no allocation.
const SHORT: usize = 1024;

/// The payload of one event.
#[derive(Debug)]
pub struct Payload {
    short: [MaybeUninit<u8>; SHORT],
    /// Bytes of `short` that were written. Invariant: at most [`SHORT`], and those before it are initialised.
    used: usize,
    /// All bytes, from the moment on at which `short` has no room.
    long: Vec<u8>,
    wrong: Option<WriteError>,
}

impl Default for Payload {
    fn default() -> Self {
        Self::new()
    }
}

impl Payload {
    /// An empty payload.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { short: [MaybeUninit::uninit(); SHORT], used: 0, long: Vec::new(), wrong: None }
    }

    /// Adds bytes as they are.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        match self.short.get_mut(self.used..).and_then(|free| free.get_mut(..bytes.len())) {
            Some(place) if self.long.is_empty() => {
                // SAFETY: u8 and MaybeUninit<u8> have the same layout, and initialised bytes may stand where none need be.
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
        if self.long.len().saturating_add(bytes.len()) > MAX_BYTES {
            self.wrong.get_or_insert(WriteError::TooLarge);
        } else {
            self.long.extend_from_slice(bytes);
        }
    }

    /// What was put so far.
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

    /// Refuses the event unless what its caller gave agrees.
    #[inline]
    pub fn agree(&mut self, does: bool) {
        if !does && self.wrong.is_none() {
            self.wrong.get_or_insert(WriteError::InvalidParameter);
        }
    }

    /// A count or length in the type of its field; one that does not fit refuses the event.
    #[inline]
    pub fn number<T: TryFrom<usize> + Default>(&mut self, n: usize) -> T {
        let number = T::try_from(n);
        self.agree(number.is_ok());
        number.unwrap_or_default()
    }

    /// A count or length that a caller gave.
    #[inline]
    pub fn size<T: TryInto<usize>>(&mut self, n: T) -> usize {
        let size = n.try_into();
        self.agree(size.is_ok());
        size.unwrap_or_default()
    }

    /// A UTF-16 text with its NUL; a NUL inside ends it.
    pub fn text16(&mut self, text: &str) {
        self.units(text.encode_utf16().take_while(|unit| *unit != 0).chain([0]));
    }

    /// A text of 8-bit characters with its NUL; a NUL inside ends it.
    pub fn text8(&mut self, text: &[u8]) {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        self.put(text.get(..end).unwrap_or_default());
        self.put(&[0]);
    }

    /// A UTF-16 text of exactly so many units, filled up with NUL.
    pub fn text16_of(&mut self, text: &str, units: usize) {
        let length = utf16_len(text);
        self.agree(length <= units);
        self.units(text.encode_utf16().chain(std::iter::repeat(0)).take(units));
    }

    /// A text of exactly so many bytes, filled up with NUL.
    pub fn text8_of(&mut self, text: &[u8], bytes: usize) {
        self.agree(text.len() <= bytes);
        self.put(text.get(..bytes).unwrap_or(text));
        for _ in text.len()..bytes {
            self.put(&[0]);
        }
    }

    /// A UTF-16 text behind its size in bytes.
    pub fn counted16(&mut self, text: &str) {
        let size: u16 = self.number(utf16_len(text).saturating_mul(2));
        self.put(&size.to_le_bytes());
        self.units(text.encode_utf16());
    }

    /// Bytes behind their number.
    pub fn counted8(&mut self, bytes: &[u8]) {
        let size: u16 = self.number(bytes.len());
        self.put(&size.to_le_bytes());
        self.put(bytes);
    }

    /// A security identifier: 8 bytes and 4 for each sub-authority, whose number is the second byte.
    pub fn sid(&mut self, sid: &[u8]) {
        let size = sid.get(1).map(|count| usize::from(*count) * 4 + 8);
        self.agree(size == Some(sid.len()));
        self.put(sid);
    }

    fn units(&mut self, units: impl Iterator<Item = u16>) {
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
        match self.wrong {
            Some(wrong) => Err(wrong),
            None => provider.write_transfer(descriptor, activity, related, &[self.bytes()]),
        }
    }
}

/// How many UTF-16 units a text has.
#[must_use]
pub fn utf16_len(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_one_behind_the_other_wherever_the_bytes_are() {
        let mut payload = Payload::new();
        let mut expected = Vec::new();
        for n in 0..2000_u32 {
            payload.put(&n.to_le_bytes());
            expected.extend_from_slice(&n.to_le_bytes());
            assert_eq!(payload.bytes(), expected);
        }
        assert_eq!(payload.wrong, None);
    }

    #[test]
    fn a_payload_stops_growing_where_no_event_can_be_larger() {
        let mut payload = Payload::new();
        for _ in 0..200 {
            payload.put(&[7; 1000]);
        }
        assert_eq!((payload.bytes().len(), payload.wrong), (65_000, Some(WriteError::TooLarge)));
    }

    #[test]
    fn texts_have_the_form_that_was_asked_for() {
        let mut payload = Payload::new();
        payload.text16("é\0x");
        payload.text8(b"ab\0c");
        payload.text16_of("a", 2);
        payload.text8_of(b"b", 3);
        payload.counted16("c");
        payload.counted8(b"de");
        assert_eq!(payload.bytes(), b"\xe9\0\0\0ab\0a\0\0\0b\0\0\x02\0c\0\x02\0de");
        assert_eq!(payload.wrong, None);
    }

    #[test]
    fn what_a_field_cannot_take_refuses_the_event() {
        let wrong = |put: &dyn Fn(&mut Payload)| {
            let mut payload = Payload::new();
            put(&mut payload);
            assert_eq!(payload.wrong, Some(WriteError::InvalidParameter));
        };
        wrong(&|p| p.text16_of("abc", 2));
        wrong(&|p| p.text8_of(b"abc", 2));
        wrong(&|p| p.counted8(&[0; 65_536]));
        wrong(&|p| p.sid(&[1, 2, 3]));
        wrong(&|p| p.sid(b""));
        wrong(&|p| _ = p.number::<u8>(256));
        wrong(&|p| _ = p.size(-1_i32));
    }
}
