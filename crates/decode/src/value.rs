//! A decoded value, borrowed from its payload.

use traceweir_format::Guid;
use traceweir_format::wire::u16_at;

/// One decoded value. Strings and bytes are borrowed from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the types.
pub enum Value<'p> {
    Null,
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// A pointer or pointer-sized number.
    Pointer(u64),
    Guid(Guid),
    /// 100 ns units since 1601.
    FileTime(i64),
    /// Year, month, weekday, day, hour, minute, second, millisecond.
    SystemTime([u16; 8]),
    /// Revision, count, authority and sub-authorities.
    Sid(&'p [u8]),
    /// UTF-16LE, without terminator.
    Text16(&'p [u8]),
    /// 8-bit text, without terminator.
    Text8(&'p [u8]),
    Bytes(&'p [u8]),
}

impl Value<'_> {
    /// Returns an integer as an unsigned number, sign-extended. Counts and lengths use this form.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_sign_loss)] // Keeps the two's complement.
    pub fn as_u64(&self) -> Option<u64> {
        Some(match *self {
            Self::I8(v) => i64::from(v) as u64,
            Self::U8(v) => u64::from(v),
            Self::I16(v) => i64::from(v) as u64,
            Self::U16(v) => u64::from(v),
            Self::I32(v) => i64::from(v) as u64,
            Self::U32(v) => u64::from(v),
            Self::I64(v) | Self::FileTime(v) => v as u64,
            Self::U64(v) | Self::Pointer(v) => v,
            Self::Bool(v) => u64::from(v),
            _ => return None,
        })
    }

    /// Returns the bits of an integer in the width of its type, without sign extension. Hexadecimal
    /// forms and map lookups use these bits.
    #[must_use]
    pub fn bits(&self) -> Option<u64> {
        Some(match *self {
            Self::I8(v) => u64::from(v.cast_unsigned()),
            Self::I16(v) => u64::from(v.cast_unsigned()),
            Self::I32(v) => u64::from(v.cast_unsigned()),
            _ => return self.as_u64(),
        })
    }

    /// Returns whether the type is a signed integer.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        matches!(self, Self::I8(_) | Self::I16(_) | Self::I32(_) | Self::I64(_))
    }
}

/// Splits a SYSTEMTIME into its eight words.
pub(crate) fn split_system_time(bytes: &[u8; 16]) -> [u16; 8] {
    core::array::from_fn(|i| u16_at(bytes, i.saturating_mul(2)))
}
