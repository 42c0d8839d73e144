//! Reads and writes little-endian values without panics: a checked cursor, accessors that return 0
//! past the end, and a growing writer.

use alloc::vec::Vec;

use crate::guid::Guid;
use crate::{Error, Result};

/// Rounds up to the next multiple of eight, the alignment of every record and extended item.
///
/// Wraps near `usize::MAX`, which record and memory sizes never reach.
#[inline]
#[must_use]
pub const fn align8(n: usize) -> usize {
    n.wrapping_add(7) & !7
}

/// Returns the `N` bytes at `offset`, or `None` if fewer than `N` bytes are there.
#[inline]
#[must_use]
pub fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// Returns the byte at `offset`, or 0 if the bytes end before it.
#[inline]
#[must_use]
pub fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

/// Returns the 16-bit number at `offset`, or 0 if the bytes end before or inside it.
#[inline]
#[must_use]
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    chunk(bytes, offset).map_or(0, |b| u16::from_le_bytes(*b))
}

/// Returns the 32-bit number at `offset`, or 0 if the bytes end before or inside it.
#[inline]
#[must_use]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    chunk(bytes, offset).map_or(0, |b| u32::from_le_bytes(*b))
}

/// Returns the 64-bit number at `offset`, or 0 if the bytes end before or inside it.
#[inline]
#[must_use]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    chunk(bytes, offset).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Returns the signed 64-bit number at `offset`, or 0 if the bytes end before or inside it.
#[inline]
#[must_use]
pub fn i64_at(bytes: &[u8], offset: usize) -> i64 {
    chunk(bytes, offset).map_or(0, |b| i64::from_le_bytes(*b))
}

/// Returns the GUID at `offset`, or the null GUID if the bytes end before or inside it.
#[inline]
#[must_use]
pub fn guid_at(bytes: &[u8], offset: usize) -> Guid {
    chunk(bytes, offset).map_or(Guid::NULL, Guid::from_bytes)
}

/// A read position in a byte slice. Every read is bounds-checked.
///
/// Errors name the structure passed to [`Cursor::new`]; offsets count from the start of the bytes.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte of `bytes`, which hold the structure `what`.
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, what }
    }

    /// Returns the offset of the next byte.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Moves to an offset from the start. Fails past the end.
    pub fn seek(&mut self, position: usize) -> Result<()> {
        if position > self.bytes.len() {
            return Err(self.truncated(position.saturating_sub(self.position)));
        }
        self.position = position;
        Ok(())
    }

    /// Returns the bytes that have not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Returns whether all bytes have been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// Reads the next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self.position.checked_add(n).ok_or_else(|| self.truncated(n))?;
        let out = self.bytes.get(self.position..end).ok_or_else(|| self.truncated(n))?;
        self.position = end;
        Ok(out)
    }

    /// Reads the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        self.bytes(N)?.first_chunk().ok_or_else(|| self.truncated(N))
    }

    /// Reads the next byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(*self.array()?))
    }

    /// Reads the next 16-bit number.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(*self.array()?))
    }

    /// Reads the next 32-bit number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    /// Reads the next 64-bit number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(*self.array()?))
    }

    /// Reads the next signed 64-bit number.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(*self.array()?))
    }

    /// Reads the next GUID.
    pub fn guid(&mut self) -> Result<Guid> {
        Ok(Guid::from_bytes(self.array()?))
    }

    /// Returns the bytes before the next NUL and skips the NUL; an unterminated string ends with
    /// the bytes.
    pub fn ansi_z(&mut self) -> &'a [u8] {
        let text = crate::text::until_nul8(self.rest());
        self.position = self.position.saturating_add(text.len()).saturating_add(1).min(self.bytes.len());
        text
    }

    /// Returns the bytes before the next 16-bit NUL and skips the NUL; an unterminated string ends
    /// with the bytes.
    pub fn wide_z(&mut self) -> &'a [u8] {
        let text = crate::text::until_nul16(self.rest());
        self.position = self.position.saturating_add(text.len()).saturating_add(2).min(self.bytes.len());
        text
    }

    /// Builds an error for the current position.
    #[must_use]
    pub fn invalid(&self, reason: &'static str) -> Error {
        Error::Invalid { what: self.what, offset: self.position as u64, reason }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> Error {
        Error::Truncated {
            what: self.what,
            offset: self.position as u64,
            needed: needed as u64,
            available: self.bytes.len().saturating_sub(self.position) as u64,
        }
    }
}

/// Appends little-endian values to a vector.
pub trait Put {
    /// Appends bytes unchanged.
    fn put(&mut self, bytes: &[u8]) -> &mut Self;

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }
    /// Appends a 16-bit number.
    fn put_u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
    /// Appends a 32-bit number.
    fn put_u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
    /// Appends a signed 32-bit number.
    fn put_i32(&mut self, value: i32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
    /// Appends a 64-bit number.
    fn put_u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
    /// Appends a signed 64-bit number.
    fn put_i64(&mut self, value: i64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
    /// Appends a GUID.
    fn put_guid(&mut self, value: &Guid) -> &mut Self {
        self.put(&value.to_bytes())
    }
    /// Appends text as UTF-16 with a terminating NUL.
    fn put_wide_z(&mut self, text: &str) -> &mut Self {
        for unit in text.encode_utf16() {
            self.put_u16(unit);
        }
        self.put_u16(0)
    }
    /// Appends text as UTF-8 with a terminating NUL.
    fn put_ansi_z(&mut self, text: &str) -> &mut Self {
        self.put(text.as_bytes());
        self.put_u8(0)
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_past_the_end_names_the_structure() {
        let mut cursor = Cursor::new("structure", &[1, 2, 3]);
        assert_eq!(cursor.u16(), Ok(0x0201));
        assert_eq!(
            cursor.u32(),
            Err(Error::Truncated { what: "structure", offset: 2, needed: 4, available: 1 })
        );
        assert_eq!(
            cursor.seek(5),
            Err(Error::Truncated { what: "structure", offset: 2, needed: 3, available: 1 })
        );
        assert_eq!(cursor.u8(), Ok(3), "a failed read or seek moved the cursor");
        assert!(cursor.is_empty());
    }

    #[test]
    fn strings_end_at_the_nul_or_with_the_bytes() {
        let mut cursor = Cursor::new("text", b"ab\0cd");
        assert_eq!((cursor.ansi_z(), cursor.ansi_z(), cursor.ansi_z()), (&b"ab"[..], &b"cd"[..], &b""[..]));
        let mut cursor = Cursor::new("text", b"a\0\0\0b\0c");
        assert_eq!((cursor.wide_z(), cursor.wide_z()), (&b"a\0"[..], &b"b\0"[..]));
    }

    #[test]
    fn accessors_return_zero_past_the_end() {
        assert_eq!((u16_at(&[1], 0), u32_at(&[1, 0, 0, 0], 0), u64_at(&[1], usize::MAX)), (0, 1, 0));
    }
}
