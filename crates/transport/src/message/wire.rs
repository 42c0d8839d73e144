//! The encoding of messages: the header, and the basic types.
//!
//! A packet is one message; little-endian, without alignment or padding:
//!
//! ```text
//!   00 u32 MAGIC "TWM1" │ 04 u16 kind │ 06 u16 zero │ 08 u32 request │ 0C u32 bytes of the body
//!   10 the body
//!
//!   u8 u16 u32 u64      as they are                      bool      u8, 0 or 1
//!   Guid                16 bytes, as in a record         Option    u8 0, or u8 1 and the value
//!   text                u16 length in bytes, UTF-8       list      u16 count, then the entries
//!   path                u16 length in bytes, raw bytes   bytes     u32 length, then the bytes
//! ```
//!
//! 1. Decoding consumes the body exactly: a byte too few or too many is an error, and so is any
//!    invalid value.
//! 2. A count of entries is accepted only if the remaining bytes can hold them, so a false count
//!    allocates no memory.
//! 3. Text and paths hold no NUL and at most [`MAX_NAME_UNITS`] UTF-16 units, so that each fits the
//!    header of a log.
//! 4. An encoded message decodes to the same message. Texts for people (`Refused::reason`,
//!    `Failed::reason`, `PrivateState::reason`, `Hello::program`) are shortened first if needed.
//!
//! `message/layout.rs` has the fields of each message. This module does not know which message may
//! be sent when.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use traceweir_format::Guid;
use traceweir_format::wire::{Cursor, Put};

use super::{MAX_MESSAGE_BYTES, MAX_NAME_UNITS, Message};
use crate::error::{Error, Result};

/// First word of each message: `TWM1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TWM1");
/// Size of the header before the body, in bytes.
pub const HEADER_BYTES: usize = 16;

pub(super) type WireResult<T> = traceweir_format::Result<T>;

/// A value that can be encoded in a message.
pub(super) trait Wire: Sized {
    /// Smallest encoded size; limits the number of entries that a received list can have.
    const MIN_BYTES: usize;

    /// Appends the encoded value.
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()>;
    /// Decodes a value at the cursor.
    fn get(from: &mut Cursor<'_>) -> WireResult<Self>;
}

/// A value that can be an entry of a list.
pub(super) trait ListEntry: Wire {
    /// Largest number of entries in one list.
    const MAX_ENTRIES: usize = u16::MAX as usize;
}

impl Message {
    /// Appends the message with its header: request number, kind, length.
    ///
    /// Leaves `out` unchanged if the message is too large or one of its texts or paths is not
    /// allowed.
    pub fn encode(&self, request: u32, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let result = self.put_packet(request, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn put_packet(&self, request: u32, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.put_u32(MAGIC).put_u16(self.kind()).put_u16(0).put_u32(request).put_u32(0);
        let body = out.len();
        match self.with_short_texts() {
            Some(shortened) => shortened.put_body(out)?,
            None => self.put_body(out)?,
        }
        let (size, limit) = (out.len().saturating_sub(start), MAX_MESSAGE_BYTES);
        if size > limit {
            return Err(too_large("message", size, limit).into());
        }
        let length = out.len().saturating_sub(body) as u32;
        if let Some(field) = body.checked_sub(4).and_then(|at| out.get_mut(at..body)) {
            field.copy_from_slice(&length.to_le_bytes());
        }
        Ok(())
    }

    /// Decodes one packet into request number and message.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self)> {
        let mut from = Cursor::new("message", bytes);
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(from.invalid("longer than any message").into());
        }
        if from.u32()? != MAGIC {
            return Err(from.invalid("does not begin with the message magic").into());
        }
        let (kind, reserved, request, length) = (from.u16()?, from.u16()?, from.u32()?, from.u32()?);
        if reserved != 0 || length as usize != from.rest().len() {
            return Err(from.invalid("header contradicts the packet").into());
        }
        let message = Self::get_body(kind, &mut from)?.ok_or(Error::Unexpected(kind))?;
        if !from.is_empty() {
            return Err(from.invalid("bytes after the message").into());
        }
        Ok((request, message))
    }

    /// Returns a copy with shortened texts for people; `None` if the message needs no shortening.
    fn with_short_texts(&self) -> Option<Self> {
        match self {
            Self::Refused { status, reason } if !is_sendable_text(reason) => {
                Some(Self::Refused { status: *status, reason: shorten_text(reason) })
            }
            Self::Failed { order, registration, session, status, reason } if !is_sendable_text(reason) => {
                let (order, registration, session, status) = (*order, *registration, *session, *status);
                Some(Self::Failed { order, registration, session, status, reason: shorten_text(reason) })
            }
            Self::PrivateState { order, session, status, reason, properties }
                if !is_sendable_text(reason) =>
            {
                Some(Self::PrivateState {
                    order: *order,
                    session: *session,
                    status: *status,
                    reason: shorten_text(reason),
                    properties: properties.clone(),
                })
            }
            Self::Hello { versions, role, instance, program } if !is_sendable_text(program) => {
                Some(Self::Hello {
                    versions: *versions,
                    role: *role,
                    instance: *instance,
                    program: shorten_text(program),
                })
            }
            _ => None,
        }
    }
}

/// Returns whether a text may be sent unchanged.
fn is_sendable_text(text: &str) -> bool {
    !text.contains('\0') && text.encode_utf16().count() <= MAX_NAME_UNITS
}

/// Returns the longest beginning of a text that may be sent.
pub(super) fn shorten_text(text: &str) -> String {
    let mut units = 0_usize;
    text.chars()
        .take_while(|c| {
            units = units.saturating_add(c.len_utf16());
            *c != '\0' && units <= MAX_NAME_UNITS
        })
        .collect()
}

#[cold]
fn too_large(what: &'static str, size: usize, limit: usize) -> traceweir_format::Error {
    traceweir_format::Error::TooLarge { what, size: size as u64, limit: limit as u64 }
}

/// Returns the error for a text at `offset` that may not be sent.
#[cold]
fn unsendable(what: &'static str, text: &str, offset: usize) -> traceweir_format::Error {
    if text.contains('\0') {
        return traceweir_format::Error::Invalid { what, offset: offset as u64, reason: "contains NUL" };
    }
    too_large(what, text.encode_utf16().count(), MAX_NAME_UNITS)
}

macro_rules! numbers {
    ($($type:ty, $put:ident, $get:ident;)*) => {$(
        impl Wire for $type {
            const MIN_BYTES: usize = size_of::<$type>();
            fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
                out.$put(*self);
                Ok(())
            }
            fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
                from.$get()
            }
        }
    )*};
}

numbers! {
    u8, put_u8, u8;
    u16, put_u16, u16;
    u32, put_u32, u32;
    u64, put_u64, u64;
}

impl Wire for bool {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        u8::from(*self).put(out)
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.invalid("not a boolean")),
        }
    }
}

impl Wire for Guid {
    const MIN_BYTES: usize = 16;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        out.put_guid(self);
        Ok(())
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        from.guid()
    }
}

/// Appends bytes after their 16-bit count.
fn put_length_prefixed(what: &'static str, bytes: &[u8], out: &mut Vec<u8>) -> WireResult<()> {
    let length =
        u16::try_from(bytes.len()).map_err(|_| too_large(what, bytes.len(), usize::from(u16::MAX)))?;
    out.put_u16(length).put(bytes);
    Ok(())
}

fn get_length_prefixed<'a>(from: &mut Cursor<'a>) -> WireResult<&'a [u8]> {
    let length = from.u16()?;
    from.bytes(usize::from(length))
}

impl Wire for String {
    const MIN_BYTES: usize = 2;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        if !is_sendable_text(self) {
            return Err(unsendable("text", self, out.len()));
        }
        put_length_prefixed("text", self.as_bytes(), out)
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        let bytes = get_length_prefixed(from)?;
        match str::from_utf8(bytes) {
            Ok(text) if is_sendable_text(text) => Ok(text.to_owned()),
            _ => Err(from.invalid("not a text")),
        }
    }
}

impl Wire for PathBuf {
    const MIN_BYTES: usize = 2;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        let text = self.to_string_lossy();
        if !is_sendable_text(&text) {
            return Err(unsendable("path", &text, out.len()));
        }
        put_length_prefixed("path", self.as_os_str().as_bytes(), out)
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        let path = Self::from(OsStr::from_bytes(get_length_prefixed(from)?));
        if is_sendable_text(&path.to_string_lossy()) { Ok(path) } else { Err(from.invalid("not a path")) }
    }
}

impl<T: Wire> Wire for Box<T> {
    const MIN_BYTES: usize = T::MIN_BYTES;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        T::put(self, out)
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        T::get(from).map(Self::new)
    }
}

impl<T: Wire> Wire for Option<T> {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        self.is_some().put(out)?;
        self.as_ref().map_or(Ok(()), |value| value.put(out))
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: ListEntry> Wire for Vec<T> {
    const MIN_BYTES: usize = 2;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        if self.len() > T::MAX_ENTRIES {
            return Err(too_large("list", self.len(), T::MAX_ENTRIES));
        }
        (self.len() as u16).put(out)?;
        self.iter().try_for_each(|value| value.put(out))
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        let count = usize::from(from.u16()?);
        if count > T::MAX_ENTRIES || count.saturating_mul(T::MIN_BYTES) > from.rest().len() {
            return Err(from.invalid("more entries than there can be"));
        }
        let mut values = Self::with_capacity(count);
        for _ in 0..count {
            values.push(T::get(from)?);
        }
        Ok(values)
    }
}

/// Encodes bytes with a length of 32 bits; lists have a count of 16 bits.
impl Wire for Vec<u8> {
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) -> WireResult<()> {
        if self.len() > MAX_MESSAGE_BYTES {
            return Err(too_large("bytes", self.len(), MAX_MESSAGE_BYTES));
        }
        out.put_u32(self.len() as u32).put(self);
        Ok(())
    }
    fn get(from: &mut Cursor<'_>) -> WireResult<Self> {
        let length = from.u32()?;
        Ok(from.bytes(length as usize)?.to_vec())
    }
}
