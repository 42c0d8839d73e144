//! The field types: their names in the macro, the types of their values, their in and out types,
//! and how values are encoded.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueEncoding {
    /// The bytes of the value.
    Scalar,
    /// The number of elements, then their bytes.
    Slice,
    /// A text or binary value: the number of bytes, then the bytes.
    Counted,
    /// Like `Counted`, for a value of fixed size.
    CountedScalar,
    /// The value up to its first zero, then a zero.
    Terminated,
    /// As many bytes as the header of the SID announces.
    Sid,
    /// A point in time as FILETIME, converted by this function.
    Time(&'static str),
    /// A structure, which has members and no value.
    Struct,
    /// A type given by the caller, with bytes that are written unchanged.
    RawField { is_array: bool },
    /// A type given by the caller, without a value.
    RawMeta { is_array: bool },
    /// A structure whose number of members the caller gives.
    RawStruct { is_array: bool },
    /// Bytes without a type.
    RawData,
}

impl ValueEncoding {
    /// Returns the number of data blocks that the documented interface counts for the field.
    pub(crate) const fn blocks(self) -> usize {
        match self {
            Self::Struct | Self::RawStruct { .. } | Self::RawMeta { .. } => 0,
            Self::Scalar | Self::Sid | Self::Time(_) | Self::RawField { .. } | Self::RawData => 1,
            Self::Slice | Self::Counted | Self::CountedScalar | Self::Terminated => 2,
        }
    }

    pub(crate) const fn is_array(self) -> bool {
        matches!(
            self,
            Self::Slice
                | Self::RawField { is_array: true }
                | Self::RawMeta { is_array: true }
                | Self::RawStruct { is_array: true }
        )
    }
}

/// One field type of the macro.
#[derive(Clone, Copy)]
pub(crate) struct FieldType {
    /// The type of a value, or of an element of a slice.
    value: &'static str,
    pub(crate) input: &'static str,
    pub(crate) out: &'static str,
    pub(crate) kind: ValueEncoding,
}

/// Types that also exist as slices, with `_slice` after the name: name, type of the value, in type,
/// out type.
#[rustfmt::skip]
const TYPES_WITH_SLICES: &[(&str, &str, &str, &str)] = &[
    ("u8", "u8", "U8", "Default"), ("u16", "u16", "U16", "Default"), ("u32", "u32", "U32", "Default"), ("u64", "u64", "U64", "Default"),
    ("i8", "i8", "I8", "Default"), ("i16", "i16", "I16", "Default"), ("i32", "i32", "I32", "Default"), ("i64", "i64", "I64", "Default"),
    ("usize", "usize", "USize", "Default"), ("isize", "isize", "ISize", "Default"),
    ("f32", "f32", "F32", "Default"), ("f64", "f64", "F64", "Default"),
    ("u8_hex", "u8", "U8", "Hex"), ("u16_hex", "u16", "U16", "Hex"), ("u32_hex", "u32", "Hex32", "Default"), ("u64_hex", "u64", "Hex64", "Default"),
    ("i8_hex", "i8", "U8", "Hex"), ("i16_hex", "i16", "U16", "Hex"), ("i32_hex", "i32", "Hex32", "Default"), ("i64_hex", "i64", "Hex64", "Default"),
    ("usize_hex", "usize", "HexSize", "Default"), ("isize_hex", "isize", "HexSize", "Default"),
    ("bool8", "bool", "U8", "Boolean"), ("bool32", "i32", "Bool32", "Default"),
    ("char8_cp1252", "u8", "U8", "String"), ("char16", "u16", "U16", "String"),
    ("pointer", "usize", "HexSize", "Default"), ("codepointer", "usize", "HexSize", "CodePointer"),
    ("guid", "Guid", "Guid", "Default"),
    ("pid", "u32", "U32", "Pid"), ("tid", "u32", "U32", "Tid"), ("port", "u16", "U16", "Port"), ("ipv4", "[u8; 4]", "U32", "IPv4"),
    ("errno", "i32", "I32", "Default"), ("win_error", "u32", "U32", "Win32Error"), ("hresult", "i32", "I32", "HResult"),
    ("win_ntstatus", "i32", "Hex32", "NtStatus"), ("win_filetime", "i64", "FileTime", "Default"),
    ("win_systemtime", "[u16; 8]", "SystemTime", "Default"), ("win_systemtime_utc", "[u16; 8]", "SystemTime", "DateTimeUtc"),
];

/// All other types: the same columns, then the encoding.
#[rustfmt::skip]
const OTHER_TYPES: &[(&str, &str, &str, &str, ValueEncoding)] = &[
    ("ipv6", "[u8; 16]", "Binary", "IPv6", ValueEncoding::CountedScalar), ("ipv6c", "[u8; 16]", "BinaryC", "IPv6", ValueEncoding::CountedScalar),
    ("socketaddress", "u8", "Binary", "SocketAddress", ValueEncoding::Counted), ("socketaddressc", "u8", "BinaryC", "SocketAddress", ValueEncoding::Counted),
    ("binary", "u8", "Binary", "Default", ValueEncoding::Counted), ("binaryc", "u8", "BinaryC", "Default", ValueEncoding::Counted),
    ("str8", "u8", "Str8", "Utf8", ValueEncoding::Counted), ("str8_cp1252", "u8", "Str8", "Default", ValueEncoding::Counted),
    ("str8_json", "u8", "Str8", "Json", ValueEncoding::Counted), ("str8_xml", "u8", "Str8", "Xml", ValueEncoding::Counted),
    ("cstr8", "u8", "CStr8", "Utf8", ValueEncoding::Terminated), ("cstr8_cp1252", "u8", "CStr8", "Default", ValueEncoding::Terminated),
    ("cstr8_json", "u8", "CStr8", "Json", ValueEncoding::Terminated), ("cstr8_xml", "u8", "CStr8", "Xml", ValueEncoding::Terminated),
    ("str16", "u16", "Str16", "Default", ValueEncoding::Counted),
    ("str16_json", "u16", "Str16", "Json", ValueEncoding::Counted), ("str16_xml", "u16", "Str16", "Xml", ValueEncoding::Counted),
    ("cstr16", "u16", "CStr16", "Default", ValueEncoding::Terminated),
    ("cstr16_json", "u16", "CStr16", "Json", ValueEncoding::Terminated), ("cstr16_xml", "u16", "CStr16", "Xml", ValueEncoding::Terminated),
    ("systemtime", "i64", "FileTime", "Default", ValueEncoding::Time("filetime_from_systemtime")),
    ("time32", "i64", "FileTime", "Default", ValueEncoding::Time("filetime_from_time32")),
    ("time64", "i64", "FileTime", "Default", ValueEncoding::Time("filetime_from_time64")),
    ("win_sid", "u8", "Sid", "Default", ValueEncoding::Sid),
    ("struct", "", "Struct", "Default", ValueEncoding::Struct),
    ("raw_field", "u8", "", "Default", ValueEncoding::RawField { is_array: false }), ("raw_field_slice", "u8", "", "Default", ValueEncoding::RawField { is_array: true }),
    ("raw_meta", "", "", "Default", ValueEncoding::RawMeta { is_array: false }), ("raw_meta_slice", "", "", "Default", ValueEncoding::RawMeta { is_array: true }),
    ("raw_struct", "", "Struct", "Default", ValueEncoding::RawStruct { is_array: false }), ("raw_struct_slice", "", "Struct", "Default", ValueEncoding::RawStruct { is_array: true }),
    ("raw_data", "u8", "", "", ValueEncoding::RawData),
];

impl FieldType {
    pub(crate) fn find(name: &str) -> Option<Self> {
        let other = OTHER_TYPES.iter().find(|o| o.0 == name);
        if let Some(&(_, value, input, out, kind)) = other {
            return Some(Self { value, input, out, kind });
        }
        let (base, kind) = match name.strip_suffix("_slice") {
            Some(base) => (base, ValueEncoding::Slice),
            None => (name, ValueEncoding::Scalar),
        };
        let &(_, value, input, out) = TYPES_WITH_SLICES.iter().find(|s| s.0 == base)?;
        Some(Self { value, input, out, kind })
    }

    /// Returns the type of a value, or of an element of a slice. `tlg` is the path of the module
    /// `__tlg`, whose items the emitted code uses.
    pub(crate) fn emit_value_type(&self, tlg: &TokenStream, at: Span) -> TokenStream {
        let array =
            self.value.strip_prefix('[').and_then(|v| v.strip_suffix(']')).and_then(|v| v.split_once("; "));
        if let Some((element, count)) = array {
            let element = Ident::new(element, at);
            let count = proc_macro2::Literal::usize_unsuffixed(count.parse().unwrap_or(0));
            return quote_spanned!(at=> [::core::primitive::#element; #count]);
        }
        let name = Ident::new(self.value, at);
        if self.value == "Guid" {
            quote_spanned!(at=> #tlg::#name)
        } else {
            quote_spanned!(at=> ::core::primitive::#name)
        }
    }

    /// Converts the value to its type; errors about a wrong type point to `at`.
    pub(crate) fn convert(&self, tlg: &TokenStream, tokens: &TokenStream, at: Span) -> TokenStream {
        let value = if self.value.is_empty() { quote!() } else { self.emit_value_type(tlg, at) };
        match self.kind {
            ValueEncoding::Scalar | ValueEncoding::CountedScalar => {
                quote_spanned!(at=> ::core::convert::identity::<&#value>(#tokens))
            }
            ValueEncoding::Time(function) => {
                let function = Ident::new(function, at);
                quote_spanned!(at=> #tlg::#function(#tokens))
            }
            ValueEncoding::Slice
            | ValueEncoding::Counted
            | ValueEncoding::Terminated
            | ValueEncoding::Sid
            | ValueEncoding::RawField { .. }
            | ValueEncoding::RawData => {
                quote_spanned!(at=> ::core::convert::AsRef::<[#value]>::as_ref(#tokens))
            }
            ValueEncoding::Struct | ValueEncoding::RawMeta { .. } | ValueEncoding::RawStruct { .. } => {
                quote!()
            }
        }
    }
}

/// Finds a known name similar to an unknown one, for the error text.
pub(crate) fn find_similar_name(name: &str) -> Option<&'static str> {
    let names = OTHER_TYPES.iter().map(|o| o.0).chain(TYPES_WITH_SLICES.iter().map(|s| s.0));
    let lower = name.to_ascii_lowercase();
    let mut similar = names.filter(|known| lower.starts_with(known) || known.starts_with(&lower));
    similar.by_ref().max_by_key(|known| known.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_name_and_as_a_slice() {
        for (name, ..) in TYPES_WITH_SLICES {
            assert_eq!(FieldType::find(name).map(|t| t.kind), Some(ValueEncoding::Scalar));
            let slice = FieldType::find(&format!("{name}_slice")).unwrap();
            assert_eq!((slice.kind, slice.kind.is_array()), (ValueEncoding::Slice, true));
        }
        for (name, .., kind) in OTHER_TYPES {
            assert_eq!(FieldType::find(name).map(|t| t.kind), Some(*kind));
        }
        for unknown in ["str8_slice", "ipv6_slice", "u8_slice_slice", "U32", "", "float"] {
            assert!(FieldType::find(unknown).is_none(), "{unknown}");
        }
        assert_eq!(TYPES_WITH_SLICES.len() * 2 + OTHER_TYPES.len(), 112);
    }
}
