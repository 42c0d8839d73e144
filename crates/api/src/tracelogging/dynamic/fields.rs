//! The field types: `add_TYPE(name, value, out, tag)` and `add_TYPE_sequence`.

use super::super::types::{InType, OutType};
use super::super::values::Id;
use super::builder::EventBuilderWithId;

/// Defines the methods for types whose bytes in memory are written unchanged. Values are passed by
/// value, sequences by reference.
macro_rules! plain_fields {
    ($($(#[$doc:meta])* $add:ident, $sequence:ident: $value:ty, $in_type:ident;)*) => {
        impl<G: Id> EventBuilderWithId<G> {
            $(
                $(#[$doc])*
                pub fn $add(&mut self, name: &str, value: $value, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_scalar(name, InType::$in_type, out, tag).append_value(&value);
                    self
                }

                #[doc = concat!("Like [`", stringify!($add), "`](Self::", stringify!($add), "), for a sequence of at most 65,535 values; the rest is dropped.")]
                pub fn $sequence<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a $value>, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_vcount(name, InType::$in_type, out, tag).append_all(values, |to, value| to.append_value(value));
                    self
                }
            )*
        }
    };
}

/// Defines the methods for types whose values are slices, appended by the builder's method `$put`.
macro_rules! slice_fields {
    ($($(#[$doc:meta])* $add:ident, $sequence:ident: $unit:ty, $in_type:ident, $put:ident;)*) => {
        impl<G: Id> EventBuilderWithId<G> {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $add(&mut self, name: &str, value: impl AsRef<[$unit]>, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_scalar(name, InType::$in_type, out, tag).$put(value.as_ref());
                    self
                }

                #[doc = concat!("Like [`", stringify!($add), "`](Self::", stringify!($add), "), for a sequence of at most 65,535 values; the rest is dropped.")]
                #[track_caller]
                pub fn $sequence<T: IntoIterator>(&mut self, name: &str, values: T, out: OutType, tag: u32) -> &mut Self
                where
                    T::Item: AsRef<[$unit]>,
                {
                    self.raw_add_meta_vcount(name, InType::$in_type, out, tag).append_all(values, |to, value| to.$put(value.as_ref()));
                    self
                }
            )*
        }
    };
}

plain_fields! {
    /// Adds a signed 8-bit integer.
    add_i8, add_i8_sequence: i8, I8;
    /// Adds an unsigned 8-bit integer.
    add_u8, add_u8_sequence: u8, U8;
    /// Adds a signed 16-bit integer.
    add_i16, add_i16_sequence: i16, I16;
    /// Adds an unsigned 16-bit integer.
    add_u16, add_u16_sequence: u16, U16;
    /// Adds a signed 32-bit integer.
    add_i32, add_i32_sequence: i32, I32;
    /// Adds an unsigned 32-bit integer.
    add_u32, add_u32_sequence: u32, U32;
    /// Adds a signed 64-bit integer.
    add_i64, add_i64_sequence: i64, I64;
    /// Adds an unsigned 64-bit integer.
    add_u64, add_u64_sequence: u64, U64;
    /// Adds a signed pointer-size integer.
    add_isize, add_isize_sequence: isize, ISize;
    /// Adds an unsigned pointer-size integer.
    add_usize, add_usize_sequence: usize, USize;
    /// Adds a 32-bit floating-point number.
    add_f32, add_f32_sequence: f32, F32;
    /// Adds a 64-bit floating-point number.
    add_f64, add_f64_sequence: f64, F64;
    /// Adds a 32-bit boolean, true if any bit is set.
    add_bool32, add_bool32_sequence: i32, Bool32;
    /// Adds a FILETIME: units of 100 ns since 1601.
    add_filetime, add_filetime_sequence: i64, FileTime;
    /// Adds a 32-bit integer, shown as hexadecimal.
    add_hex32, add_hex32_sequence: u32, Hex32;
    /// Adds a 64-bit integer, shown as hexadecimal.
    add_hex64, add_hex64_sequence: u64, Hex64;
    /// Adds a pointer-size integer, shown as hexadecimal.
    add_hexsize, add_hexsize_sequence: usize, HexSize;
}

slice_fields! {
    /// Adds UTF-16 text up to its first zero, zero-terminated.
    add_cstr16, add_cstr16_sequence: u16, CStr16, append_terminated;
    /// Adds 8-bit text up to its first zero, zero-terminated.
    add_cstr8, add_cstr8_sequence: u8, CStr8, append_terminated;
    /// Adds UTF-16 text, preceded by its length in bytes. Text beyond 65,534 bytes is cut off.
    add_str16, add_str16_sequence: u16, Str16, append_counted;
    /// Adds 8-bit text, preceded by its length. Text beyond 65,535 bytes is cut off.
    add_str8, add_str8_sequence: u8, Str8, append_counted;
    /// Adds bytes, preceded by their count, in a form that only newer readers know. Bytes beyond
    /// 65,535 are cut off.
    add_binaryc, add_binaryc_sequence: u8, BinaryC, append_counted;
    /// Adds a security identifier. Panics if the slice is shorter than the identifier's count of
    /// sub-authorities requires.
    add_sid, add_sid_sequence: u8, Sid, append_sid;
}

/// Methods for GUIDs and SYSTEMTIMEs, whose values are passed by reference, and for `binary`, which
/// has no sequence.
impl<G: Id> EventBuilderWithId<G> {
    /// Adds bytes, preceded by their count. Bytes beyond 65,535 are cut off.
    pub fn add_binary(&mut self, name: &str, value: impl AsRef<[u8]>, out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::Binary, out, tag).append_counted(value.as_ref());
        self
    }

    /// Adds a GUID.
    pub fn add_guid(&mut self, name: &str, value: &G, out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::Guid, out, tag).append_value(value);
        self
    }

    /// Adds a sequence of GUIDs like [`add_guid`](Self::add_guid); those beyond 65,535 are dropped.
    pub fn add_guid_sequence<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'a G>,
        out: OutType,
        tag: u32,
    ) -> &mut Self {
        self.raw_add_meta_vcount(name, InType::Guid, out, tag)
            .append_all(values, |to, value| to.append_value(value));
        self
    }

    /// Adds a SYSTEMTIME: year, month, day of week, day, hour, minute, second, millisecond.
    pub fn add_systemtime(&mut self, name: &str, value: &[u16; 8], out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::SystemTime, out, tag).append_value(value);
        self
    }

    /// Adds a sequence of times like [`add_systemtime`](Self::add_systemtime); those beyond 65,535
    /// are dropped.
    pub fn add_systemtime_sequence<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'a [u16; 8]>,
        out: OutType,
        tag: u32,
    ) -> &mut Self {
        self.raw_add_meta_vcount(name, InType::SystemTime, out, tag)
            .append_all(values, |to, value| to.append_value(value));
        self
    }
}
