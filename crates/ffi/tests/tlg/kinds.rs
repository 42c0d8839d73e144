//! The kinds of fields in the table of declarations: their types, and the values that they are
//! written with.
//!
//! A value is given twice: in C, for the programs that are compiled, and as the bytes that must be
//! in the event. Kinds of a fixed size have three values; a field that is not an array has the
//! first.

/// How values of a kind are given in C and in bytes.
#[derive(Clone, Copy)]
pub(crate) enum FieldSample {
    /// Integers of a size in bytes.
    Int(usize, [i128; 3]),
    Float(&'static [f64; 3]),
    Double(&'static [f64; 3]),
    /// A structure: the text between the braces, and its bytes.
    Struct([(&'static str, &'static [u8]); 3]),
    /// The arguments of the macro before the name, and the bytes in the event. There are no arrays
    /// of such a kind.
    Argument(&'static str, &'static [u8]),
}

/// A kind of field: a macro and its types.
#[derive(Clone, Copy)]
pub(crate) struct FieldKind {
    /// The suffix of the macro's name.
    pub(crate) name: &'static str,
    /// The number of the in type. `numbers` has the names of in types and out types.
    pub(crate) in_type: u8,
    pub(crate) out_type: u8,
    /// The type in C; empty for a kind without arrays.
    pub(crate) c_type: &'static str,
    pub(crate) sample: FieldSample,
}

const fn integer_kind(
    name: &'static str,
    in_type: u8,
    out_type: u8,
    c_type: &'static str,
    size: usize,
    values: [i128; 3],
) -> FieldKind {
    FieldKind { name, in_type, out_type, c_type, sample: FieldSample::Int(size, values) }
}

const fn structure_kind(
    name: &'static str,
    in_type: u8,
    out_type: u8,
    c_type: &'static str,
    values: [(&'static str, &'static [u8]); 3],
) -> FieldKind {
    FieldKind { name, in_type, out_type, c_type, sample: FieldSample::Struct(values) }
}

const fn argument_kind(
    name: &'static str,
    in_type: u8,
    out_type: u8,
    c_arguments: &'static str,
    bytes: &'static [u8],
) -> FieldKind {
    FieldKind { name, in_type, out_type, c_type: "", sample: FieldSample::Argument(c_arguments, bytes) }
}

const POINTERS: [i128; 3] = [0x1122_3344_5566_7788, 0, 0xFFFF_8000_0000_0001];
const FILE_TIMES: [(&str, &[u8]); 3] = [
    ("0x44332211, 0x01d55667", b"\x11\x22\x33\x44\x67\x56\xd5\x01"),
    ("0, 0", &[0; 8]),
    ("1, 2", b"\x01\0\0\0\x02\0\0\0"),
];
const SYSTEM_TIMES: [(&str, &[u8]); 3] = [
    ("2024, 5, 3, 1, 10, 20, 30, 456", b"\xe8\x07\x05\0\x03\0\x01\0\x0a\0\x14\0\x1e\0\xc8\x01"),
    ("1601, 1, 1, 1, 0, 0, 0, 0", b"\x41\x06\x01\0\x01\0\x01\0\0\0\0\0\0\0\0\0"),
    ("2099, 12, 4, 31, 23, 59, 59, 999", b"\x33\x08\x0c\0\x04\0\x1f\0\x17\0\x3b\0\x3b\0\xe7\x03"),
];
const GUIDS: [(&str, &[u8]); 3] = [
    (
        "0x00112233, 0x4455, 0x6677, {8, 9, 10, 11, 12, 13, 14, 15}",
        b"\x33\x22\x11\0\x55\x44\x77\x66\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
    ),
    ("0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}", &[0; 16]),
    ("0xffffffff, 0xffff, 0xffff, {255, 255, 255, 255, 255, 255, 255, 255}", &[0xFF; 16]),
];

/// All kinds. An array has the kind of its elements.
pub(crate) const FIELD_KINDS: &[FieldKind] = &[
    integer_kind("Int8", 3, 0, "INT8", 1, [-128, 127, -1]),
    integer_kind("UInt8", 4, 0, "UINT8", 1, [255, 0, 1]),
    integer_kind("Int16", 5, 0, "INT16", 2, [-32768, 32767, -1]),
    integer_kind("UInt16", 6, 0, "UINT16", 2, [65535, 0, 258]),
    integer_kind("Int32", 7, 0, "INT32", 4, [-2_147_483_647, 2_147_483_647, -1]),
    integer_kind("UInt32", 8, 0, "UINT32", 4, [4_294_967_295, 0, 0x0102_0304]),
    integer_kind("Int64", 9, 0, "INT64", 8, [-9_223_372_036_854_775_807, 9_223_372_036_854_775_807, -1]),
    integer_kind("UInt64", 10, 0, "UINT64", 8, [0xFFFF_FFFF_FFFF_FFFF, 0, 0x0102_0304_0506_0708]),
    integer_kind("IntPtr", 9, 0, "INT_PTR", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer_kind("UIntPtr", 10, 0, "UINT_PTR", 8, POINTERS),
    integer_kind("Long", 9, 0, "long", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer_kind("ULong", 10, 0, "unsigned long", 8, POINTERS),
    integer_kind("HexInt8", 4, 4, "INT8", 1, [-1, 127, 0]),
    integer_kind("HexUInt8", 4, 4, "UINT8", 1, [255, 0, 1]),
    integer_kind("HexInt16", 6, 4, "INT16", 2, [-1, 32767, 0]),
    integer_kind("HexUInt16", 6, 4, "UINT16", 2, [65535, 0, 258]),
    integer_kind("HexInt32", 20, 0, "INT32", 4, [-1, 2_147_483_647, 0]),
    integer_kind("HexUInt32", 20, 0, "UINT32", 4, [4_294_967_295, 0, 0x0102_0304]),
    integer_kind("HexInt64", 21, 0, "INT64", 8, [-1, 9_223_372_036_854_775_807, 0]),
    integer_kind("HexUInt64", 21, 0, "UINT64", 8, POINTERS),
    integer_kind("HexIntPtr", 21, 0, "INT_PTR", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer_kind("HexUIntPtr", 21, 0, "UINT_PTR", 8, POINTERS),
    integer_kind("HexLong", 21, 0, "long", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer_kind("HexULong", 21, 0, "unsigned long", 8, POINTERS),
    integer_kind("Pointer", 21, 0, "const void *", 8, POINTERS),
    integer_kind("CodePointer", 21, 37, "const void *", 8, POINTERS),
    FieldKind {
        name: "Float32",
        in_type: 11,
        out_type: 0,
        c_type: "float",
        sample: FieldSample::Float(&[1.5, -0.25, 0.0]),
    },
    FieldKind {
        name: "Float64",
        in_type: 12,
        out_type: 0,
        c_type: "double",
        sample: FieldSample::Double(&[-2.5, 1e300, 0.0]),
    },
    integer_kind("Boolean", 4, 3, "BOOLEAN", 1, [1, 0, 1]),
    integer_kind("Bool", 13, 0, "BOOL", 4, [1, 0, -1]),
    integer_kind("Char", 4, 2, "char", 1, [66, 65, 122]),
    integer_kind("Char16", 6, 2, "WCHAR", 2, [0x20AC, 65, 0xFFFF]),
    integer_kind("WChar", 6, 2, "WCHAR", 2, [0x20AC, 65, 0xFFFF]),
    integer_kind("Pid", 8, 5, "UINT32", 4, [4242, 0, 4_194_304]),
    integer_kind("Tid", 8, 6, "UINT32", 4, [4243, 0, 4_194_304]),
    integer_kind("Port", 6, 7, "UINT16", 2, [0x5000, 0, 65535]),
    integer_kind("IPv4Address", 8, 8, "UINT32", 4, [0x0100_007F, 0, 0xFFFF_FFFF]),
    integer_kind("WinError", 8, 13, "UINT32", 4, [5, 0, 87]),
    integer_kind("NTStatus", 8, 14, "INT32", 4, [-1_073_741_811, 0, 1]),
    integer_kind("HResult", 7, 15, "INT32", 4, [-2_147_024_891, 0, 1]),
    structure_kind("FileTime", 17, 0, "FILETIME", FILE_TIMES),
    structure_kind("FileTimeUtc", 17, 38, "FILETIME", FILE_TIMES),
    structure_kind("SystemTime", 18, 0, "SYSTEMTIME", SYSTEM_TIMES),
    structure_kind("SystemTimeUtc", 18, 38, "SYSTEMTIME", SYSTEM_TIMES),
    structure_kind("Guid", 15, 0, "GUID", GUIDS),
    argument_kind("IPv6Address", 14, 9, "\"0123456789abcdef\"", b"\x10\x000123456789abcdef"),
    argument_kind(
        "SocketAddress",
        14,
        10,
        "\"\\2\\0\\0\\120\\177\\0\\0\\1\", 8",
        b"\x08\0\x02\0\0\x50\x7f\0\0\x01",
    ),
    argument_kind("Sid", 19, 0, "sample_sid", b"\x01\x02\0\0\0\0\0\x05\x20\0\0\0\x20\x02\0\0"),
    argument_kind("String", 2, 0, "\"text\"", b"text\0"),
    argument_kind("Utf8String", 2, 35, "\"\\xc3\\xa4\"", b"\xc3\xa4\0"),
    argument_kind("String16", 1, 0, "u\"te\"", b"t\0e\0\0\0"),
    argument_kind("WideString", 1, 0, "u\"\\u20ac\"", b"\xac\x20\0\0"),
    argument_kind("CountedString", 23, 0, "\"text\", 3", b"\x03\0tex"),
    argument_kind("CountedUtf8String", 23, 35, "\"text\", 4", b"\x04\0text"),
    argument_kind("CountedString16", 22, 0, "u\"text\", 2", b"\x04\0t\0e\0"),
    argument_kind("CountedWideString", 22, 0, "u\"text\", 1", b"\x02\0t\0"),
    argument_kind("AnsiString", 23, 0, "&sample_ansi", b"\x04\0ansi"),
    argument_kind("UnicodeString", 22, 0, "&sample_unicode", b"\x04\0u\0n\0"),
    argument_kind("Binary", 14, 0, "\"\\1\\2\\3\", 3", b"\x03\0\x01\x02\x03"),
    argument_kind("BinaryEx", 14, 36, "\"\\1\\2\", 2, TlgOutPKCS7_WITH_TYPE_INFO", b"\x02\0\x01\x02"),
    argument_kind("BinaryBuffer", 14, 0, "&sample_ansi, struct ansi_string", b"\x04\0ansi"),
    argument_kind("BinaryBufferEx", 14, 12, "&sample_ansi, struct ansi_string, TlgOutJSON", b"\x04\0ansi"),
    // The in type of a custom field is its protocol.
    argument_kind("Custom", 7, 0, "\"\\1\\2\\3\\4\", 4, 7, (0x12, 0x23, 0x34), 3", b"\x04\0\x01\x02\x03\x04"),
];

/// The schema of the custom fields above.
pub(crate) const CUSTOM_SCHEMA: &[u8] = &[0x12, 0x23, 0x34];
/// The data of packed fields.
pub(crate) const PACKED_BYTES: &[u8] = b"\x02\0ab\0\0\0\0";

impl FieldKind {
    pub(crate) fn find(name: &str) -> Self {
        *FIELD_KINDS
            .iter()
            .find(|kind| kind.name == name)
            .unwrap_or_else(|| panic!("no field kind is called {name}"))
    }

    /// Returns the three values as C initializers; none for kinds without arrays.
    pub(crate) fn c_initializers(&self) -> Vec<String> {
        let is_pointer = self.c_type.ends_with('*');
        match self.sample {
            FieldSample::Int(_, values) if is_pointer => {
                values.map(|value| format!("(const void *){value}ull")).to_vec()
            }
            FieldSample::Int(_, values) => {
                values.map(|value| if value < 0 { format!("{value}") } else { format!("{value}u") }).to_vec()
            }
            FieldSample::Float(values) => values.map(|value| format!("{value:?}f")).to_vec(),
            FieldSample::Double(values) => values.map(|value| format!("{value:?}")).to_vec(),
            FieldSample::Struct(values) => values.map(|(members, _)| format!("{{{members}}}")).to_vec(),
            FieldSample::Argument(..) => Vec::new(),
        }
    }

    /// Returns the bytes of the three values in an event, or of the one value of a kind without
    /// arrays.
    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        match self.sample {
            FieldSample::Int(size, values) => {
                values.map(|value| value.to_le_bytes()[..size].to_vec()).to_vec()
            }
            FieldSample::Float(values) => values.map(|value| (value as f32).to_le_bytes().to_vec()).to_vec(),
            FieldSample::Double(values) => values.map(|value| value.to_le_bytes().to_vec()).to_vec(),
            FieldSample::Struct(values) => values.map(|(_, bytes)| bytes.to_vec()).to_vec(),
            FieldSample::Argument(_, bytes) => vec![bytes.to_vec()],
        }
    }
}
