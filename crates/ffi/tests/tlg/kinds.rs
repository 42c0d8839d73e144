//! The kinds of fields in the table: their types, and the values that they are written with.
//!
//! A value is given twice: in C, for the programs that are compiled, and as the bytes that must be
//! in the event. Kinds of a fixed size have three values; a field that is not an array has the
//! first.

/// How values of a kind are given in C and in bytes.
#[derive(Clone, Copy)]
pub(crate) enum Sample {
    /// Integers of a size in bytes.
    Int(usize, [i128; 3]),
    Float(&'static [f64; 3]),
    Double(&'static [f64; 3]),
    /// A structure: the text between the braces, and its bytes.
    Struct([(&'static str, &'static [u8]); 3]),
    /// The arguments of the macro before the name, and the bytes in the event. There are no arrays
    /// of it.
    Argument(&'static str, &'static [u8]),
}

/// A kind of field: a macro and its types.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The suffix of the macro's name.
    pub(crate) name: &'static str,
    pub(crate) in_type: u8,
    pub(crate) out: u8,
    /// The type in C.
    pub(crate) c_type: &'static str,
    pub(crate) sample: Sample,
}

const fn integer(
    name: &'static str,
    in_type: u8,
    out: u8,
    c_type: &'static str,
    size: usize,
    values: [i128; 3],
) -> Kind {
    Kind { name, in_type, out, c_type, sample: Sample::Int(size, values) }
}

const fn structure(
    name: &'static str,
    in_type: u8,
    out: u8,
    c_type: &'static str,
    values: [(&'static str, &'static [u8]); 3],
) -> Kind {
    Kind { name, in_type, out, c_type, sample: Sample::Struct(values) }
}

const fn argument(name: &'static str, in_type: u8, out: u8, c: &'static str, bytes: &'static [u8]) -> Kind {
    Kind { name, in_type, out, c_type: "", sample: Sample::Argument(c, bytes) }
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

/// Every macro of the field table, without arrays.
pub(crate) const KINDS: &[Kind] = &[
    integer("Int8", 3, 0, "INT8", 1, [-128, 127, -1]),
    integer("UInt8", 4, 0, "UINT8", 1, [255, 0, 1]),
    integer("Int16", 5, 0, "INT16", 2, [-32768, 32767, -1]),
    integer("UInt16", 6, 0, "UINT16", 2, [65535, 0, 258]),
    integer("Int32", 7, 0, "INT32", 4, [-2_147_483_647, 2_147_483_647, -1]),
    integer("UInt32", 8, 0, "UINT32", 4, [4_294_967_295, 0, 0x0102_0304]),
    integer("Int64", 9, 0, "INT64", 8, [-9_223_372_036_854_775_807, 9_223_372_036_854_775_807, -1]),
    integer("UInt64", 10, 0, "UINT64", 8, [0xFFFF_FFFF_FFFF_FFFF, 0, 0x0102_0304_0506_0708]),
    integer("IntPtr", 9, 0, "INT_PTR", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer("UIntPtr", 10, 0, "UINT_PTR", 8, POINTERS),
    integer("Long", 9, 0, "long", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer("ULong", 10, 0, "unsigned long", 8, POINTERS),
    integer("HexInt8", 4, 4, "INT8", 1, [-1, 127, 0]),
    integer("HexUInt8", 4, 4, "UINT8", 1, [255, 0, 1]),
    integer("HexInt16", 6, 4, "INT16", 2, [-1, 32767, 0]),
    integer("HexUInt16", 6, 4, "UINT16", 2, [65535, 0, 258]),
    integer("HexInt32", 20, 0, "INT32", 4, [-1, 2_147_483_647, 0]),
    integer("HexUInt32", 20, 0, "UINT32", 4, [4_294_967_295, 0, 0x0102_0304]),
    integer("HexInt64", 21, 0, "INT64", 8, [-1, 9_223_372_036_854_775_807, 0]),
    integer("HexUInt64", 21, 0, "UINT64", 8, POINTERS),
    integer("HexIntPtr", 21, 0, "INT_PTR", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer("HexUIntPtr", 21, 0, "UINT_PTR", 8, POINTERS),
    integer("HexLong", 21, 0, "long", 8, [-1, 1, 0x7FFF_FFFF_FFFF_FFFF]),
    integer("HexULong", 21, 0, "unsigned long", 8, POINTERS),
    integer("Pointer", 21, 0, "const void *", 8, POINTERS),
    integer("CodePointer", 21, 37, "const void *", 8, POINTERS),
    Kind { name: "Float32", in_type: 11, out: 0, c_type: "float", sample: Sample::Float(&[1.5, -0.25, 0.0]) },
    Kind {
        name: "Float64",
        in_type: 12,
        out: 0,
        c_type: "double",
        sample: Sample::Double(&[-2.5, 1e300, 0.0]),
    },
    integer("Boolean", 4, 3, "BOOLEAN", 1, [1, 0, 1]),
    integer("Bool", 13, 0, "BOOL", 4, [1, 0, -1]),
    integer("Char", 4, 2, "char", 1, [66, 65, 122]),
    integer("Char16", 6, 2, "WCHAR", 2, [0x20AC, 65, 0xFFFF]),
    integer("WChar", 6, 2, "WCHAR", 2, [0x20AC, 65, 0xFFFF]),
    integer("Pid", 8, 5, "UINT32", 4, [4242, 0, 4_194_304]),
    integer("Tid", 8, 6, "UINT32", 4, [4243, 0, 4_194_304]),
    integer("Port", 6, 7, "UINT16", 2, [0x5000, 0, 65535]),
    integer("IPv4Address", 8, 8, "UINT32", 4, [0x0100_007F, 0, 0xFFFF_FFFF]),
    integer("WinError", 8, 13, "UINT32", 4, [5, 0, 87]),
    integer("NTStatus", 8, 14, "INT32", 4, [-1_073_741_811, 0, 1]),
    integer("HResult", 7, 15, "INT32", 4, [-2_147_024_891, 0, 1]),
    structure("FileTime", 17, 0, "FILETIME", FILE_TIMES),
    structure("FileTimeUtc", 17, 38, "FILETIME", FILE_TIMES),
    structure("SystemTime", 18, 0, "SYSTEMTIME", SYSTEM_TIMES),
    structure("SystemTimeUtc", 18, 38, "SYSTEMTIME", SYSTEM_TIMES),
    structure("Guid", 15, 0, "GUID", GUIDS),
    argument("IPv6Address", 14, 9, "\"0123456789abcdef\"", b"\x10\x000123456789abcdef"),
    argument(
        "SocketAddress",
        14,
        10,
        "\"\\2\\0\\0\\120\\177\\0\\0\\1\", 8",
        b"\x08\0\x02\0\0\x50\x7f\0\0\x01",
    ),
    argument("Sid", 19, 0, "sample_sid", b"\x01\x02\0\0\0\0\0\x05\x20\0\0\0\x20\x02\0\0"),
    argument("String", 2, 0, "\"text\"", b"text\0"),
    argument("Utf8String", 2, 35, "\"\\xc3\\xa4\"", b"\xc3\xa4\0"),
    argument("String16", 1, 0, "u\"te\"", b"t\0e\0\0\0"),
    argument("WideString", 1, 0, "u\"\\u20ac\"", b"\xac\x20\0\0"),
    argument("CountedString", 23, 0, "\"text\", 3", b"\x03\0tex"),
    argument("CountedUtf8String", 23, 35, "\"text\", 4", b"\x04\0text"),
    argument("CountedString16", 22, 0, "u\"text\", 2", b"\x04\0t\0e\0"),
    argument("CountedWideString", 22, 0, "u\"text\", 1", b"\x02\0t\0"),
    argument("AnsiString", 23, 0, "&sample_ansi", b"\x04\0ansi"),
    argument("UnicodeString", 22, 0, "&sample_unicode", b"\x04\0u\0n\0"),
    argument("Binary", 14, 0, "\"\\1\\2\\3\", 3", b"\x03\0\x01\x02\x03"),
    argument("BinaryEx", 14, 36, "\"\\1\\2\", 2, TlgOutPKCS7_WITH_TYPE_INFO", b"\x02\0\x01\x02"),
    argument("BinaryBuffer", 14, 0, "&sample_ansi, struct ansi_string", b"\x04\0ansi"),
    argument("BinaryBufferEx", 14, 12, "&sample_ansi, struct ansi_string, TlgOutJSON", b"\x04\0ansi"),
    // The in type of a custom field is its protocol.
    argument("Custom", 7, 0, "\"\\1\\2\\3\\4\", 4, 7, (0x12, 0x23, 0x34), 3", b"\x04\0\x01\x02\x03\x04"),
];

/// The schema of the custom fields above.
pub(crate) const CUSTOM_SCHEMA: &[u8] = &[0x12, 0x23, 0x34];
/// The data of packed fields.
pub(crate) const PACKED_BYTES: &[u8] = b"\x02\0ab\0\0\0\0";

impl Kind {
    pub(crate) fn named(name: &str) -> Self {
        *KINDS.iter().find(|k| k.name == name).unwrap_or_else(|| panic!("there is no kind {name}"))
    }

    /// Returns the three values as C initializers; none for kinds without arrays.
    pub(crate) fn initialisers(&self) -> Vec<String> {
        let pointer = self.c_type.ends_with('*');
        match self.sample {
            Sample::Int(_, values) if pointer => values.map(|v| format!("(const void *){v}ull")).to_vec(),
            Sample::Int(_, values) => {
                values.map(|v| if v < 0 { format!("{v}") } else { format!("{v}u") }).to_vec()
            }
            Sample::Float(values) => values.map(|v| format!("{v:?}f")).to_vec(),
            Sample::Double(values) => values.map(|v| format!("{v:?}")).to_vec(),
            Sample::Struct(values) => values.map(|(c, _)| format!("{{{c}}}")).to_vec(),
            Sample::Argument(..) => Vec::new(),
        }
    }

    /// Returns the bytes of the three values in an event, or of the one value of a kind without
    /// arrays.
    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        match self.sample {
            Sample::Int(size, values) => values.map(|v| v.to_le_bytes()[..size].to_vec()).to_vec(),
            Sample::Float(values) => values.map(|v| (v as f32).to_le_bytes().to_vec()).to_vec(),
            Sample::Double(values) => values.map(|v| v.to_le_bytes().to_vec()).to_vec(),
            Sample::Struct(values) => values.map(|(_, bytes)| bytes.to_vec()).to_vec(),
            Sample::Argument(_, bytes) => vec![bytes.to_vec()],
        }
    }
}
