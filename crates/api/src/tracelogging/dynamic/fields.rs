//! The types of fields: `add_TYPE(name, value, format, tag)` and `add_TYPE_sequence`.

use super::super::types::{InType, OutType};
use super::super::values::Id;
use super::builder::BuilderOf;

/// Types whose values are their bytes. Values that are given by value, and sequences of references.
macro_rules! plain_fields {
    ($($(#[$doc:meta])* $add:ident, $sequence:ident: $value:ty, $of:ident;)*) => {
        impl<G: Id> BuilderOf<G> {
            $(
                $(#[$doc])*
                pub fn $add(&mut self, name: &str, value: $value, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_scalar(name, InType::$of, out, tag).put_value(&value);
        self
                }

                #[doc = concat!("As [`", stringify!($add), "`](Self::", stringify!($add), "), any number of them; beyond 65,535 they are left out.")]
                pub fn $sequence<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a $value>, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_vcount(name, InType::$of, out, tag).put_all(values, |to, value| to.put_value(value));
                    self
                }
            )*
        }
    };
}

/// Types whose values are slices, written by one of the builder's methods.
macro_rules! slice_fields {
    ($($(#[$doc:meta])* $add:ident, $sequence:ident: $unit:ty, $of:ident, $put:ident;)*) => {
        impl<G: Id> BuilderOf<G> {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $add(&mut self, name: &str, value: impl AsRef<[$unit]>, out: OutType, tag: u32) -> &mut Self {
                    self.raw_add_meta_scalar(name, InType::$of, out, tag).$put(value.as_ref());
                    self
                }

                #[doc = concat!("As [`", stringify!($add), "`](Self::", stringify!($add), "), any number of them; beyond 65,535 they are left out.")]
                #[track_caller]
                pub fn $sequence<T: IntoIterator>(&mut self, name: &str, values: T, out: OutType, tag: u32) -> &mut Self
                where
                    T::Item: AsRef<[$unit]>,
                {
                    self.raw_add_meta_vcount(name, InType::$of, out, tag).put_all(values, |to, value| to.$put(value.as_ref()));
                    self
                }
            )*
        }
    };
}

plain_fields! {
    /// 8 bits with a sign.
    add_i8, add_i8_sequence: i8, I8;
    /// 8 bits.
    add_u8, add_u8_sequence: u8, U8;
    /// 16 bits with a sign.
    add_i16, add_i16_sequence: i16, I16;
    /// 16 bits.
    add_u16, add_u16_sequence: u16, U16;
    /// 32 bits with a sign.
    add_i32, add_i32_sequence: i32, I32;
    /// 32 bits.
    add_u32, add_u32_sequence: u32, U32;
    /// 64 bits with a sign.
    add_i64, add_i64_sequence: i64, I64;
    /// 64 bits.
    add_u64, add_u64_sequence: u64, U64;
    /// As wide as a pointer, with a sign.
    add_isize, add_isize_sequence: isize, ISize;
    /// As wide as a pointer.
    add_usize, add_usize_sequence: usize, USize;
    /// 32 bits, floating point.
    add_f32, add_f32_sequence: f32, F32;
    /// 64 bits, floating point.
    add_f64, add_f64_sequence: f64, F64;
    /// True where any of 32 bits is set.
    add_bool32, add_bool32_sequence: i32, Bool32;
    /// Units of 100 ns since 1601.
    add_filetime, add_filetime_sequence: i64, FileTime;
    /// 32 bits, hexadecimal.
    add_hex32, add_hex32_sequence: u32, Hex32;
    /// 64 bits, hexadecimal.
    add_hex64, add_hex64_sequence: u64, Hex64;
    /// As wide as a pointer, hexadecimal.
    add_hexsize, add_hexsize_sequence: usize, HexSize;
}

slice_fields! {
    /// UTF-16 up to the first zero, with a zero behind.
    add_cstr16, add_cstr16_sequence: u16, CStr16, put_terminated;
    /// Bytes of text up to the first zero, with a zero behind.
    add_cstr8, add_cstr8_sequence: u8, CStr8, put_terminated;
    /// UTF-16 behind its count of bytes, 65,534 at most.
    add_str16, add_str16_sequence: u16, Str16, put_counted;
    /// Bytes of text behind their count, 65,535 at most.
    add_str8, add_str8_sequence: u8, Str8, put_counted;
    /// Bytes behind their count, 65,535 at most, in the form that newer readers know.
    add_binaryc, add_binaryc_sequence: u8, BinaryC, put_counted;
    /// A security id. Panics where the bytes are fewer than it says.
    add_sid, add_sid_sequence: u8, Sid, put_sid;
}

/// Types that are given by reference, and the one without sequences.
impl<G: Id> BuilderOf<G> {
    /// Bytes behind their count, 65,535 at most.
    pub fn add_binary(&mut self, name: &str, value: impl AsRef<[u8]>, out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::Binary, out, tag).put_counted(value.as_ref());
        self
    }

    /// A GUID.
    pub fn add_guid(&mut self, name: &str, value: &G, out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::Guid, out, tag).put_value(value);
        self
    }

    /// As [`add_guid`](Self::add_guid), any number of them; beyond 65,535 they are left out.
    pub fn add_guid_sequence<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'a G>,
        out: OutType,
        tag: u32,
    ) -> &mut Self {
        self.raw_add_meta_vcount(name, InType::Guid, out, tag)
            .put_all(values, |to, value| to.put_value(value));
        self
    }

    /// Year, month, day of week, day, hour, minute, second, millisecond.
    pub fn add_systemtime(&mut self, name: &str, value: &[u16; 8], out: OutType, tag: u32) -> &mut Self {
        self.raw_add_meta_scalar(name, InType::SystemTime, out, tag).put_value(value);
        self
    }

    /// As [`add_systemtime`](Self::add_systemtime), any number of them; beyond 65,535 they are left out.
    pub fn add_systemtime_sequence<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'a [u16; 8]>,
        out: OutType,
        tag: u32,
    ) -> &mut Self {
        self.raw_add_meta_vcount(name, InType::SystemTime, out, tag)
            .put_all(values, |to, value| to.put_value(value));
        self
    }
}
