//! Every field type: the bytes of the documented encoding, from the macro and from the builder.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use traceweir::tracelogging::dynamic::{EventBuilder, Provider};
use traceweir::tracelogging::{InType, Level, OutType};
use traceweir::{Guid, define_provider, write_event};

use super::{encode_metadata, record_events};

define_provider!(STATIC_PROVIDER, "Traceweir.Test.Fields");

/// The macro's name of a field type, the type bytes of the field (in, out, tags), and its data.
type FieldRow = (&'static str, Vec<u8>, Vec<u8>);

/// Writes each row with the macro and the builder, and records the expected result. A row has the
/// form `MACRO_FIELD = BUILDER_CALL [TYPE_BYTES] [DATA]`, with the expected bytes.
macro_rules! rows {
    ($rows:ident, $builder:ident, $provider:ident: $($field:ident($name:literal, $($value:tt)*) = $add:ident($($argument:expr),*) [$($types:expr),*] [$($data:expr),*])*) => {$(
        assert_eq!(write_event!(STATIC_PROVIDER, "E", $field($name, $($value)*)), 0, "{}", stringify!($field));
        $builder.reset("E", Level::Verbose, 1, 0);
        assert_eq!($builder.$add($name, $($argument),*).write(&$provider, None, None), 0);
        $rows.push((stringify!($field), vec![$($types),*], Vec::<u8>::from([$(ExpectedBytes::bytes($data)),*].concat())));
    )*};
}

/// Expected data given as a byte or as an array of bytes.
trait ExpectedBytes {
    fn bytes(self) -> Vec<u8>;
}

impl ExpectedBytes for u8 {
    fn bytes(self) -> Vec<u8> {
        vec![self]
    }
}

impl<const N: usize> ExpectedBytes for &[u8; N] {
    fn bytes(self) -> Vec<u8> {
        self.to_vec()
    }
}

/// The default output type, with a short name for the tables.
const D: OutType = OutType::Default;
const GUID: Guid = Guid::from_u128(0xa3a2a1a0_b1b0_c1c0_d7d6_d5d4d3d2d1d0);
const GUID_BYTES: &[u8; 16] =
    &[0xa0, 0xa1, 0xa2, 0xa3, 0xb0, 0xb1, 0xc0, 0xc1, 0xd7, 0xd6, 0xd5, 0xd4, 0xd3, 0xd2, 0xd1, 0xd0];
/// S-1-5-18.
const SID: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];
/// A SYSTEMTIME: year, month, day of the week, day, hour, minute, second, milliseconds.
const DATE: [u16; 8] = [2022, 8, 1, 22, 5, 6, 7, 8];
const DATE_BYTES: &[u8; 16] = &[0xE6, 7, 8, 0, 1, 0, 22, 0, 5, 0, 6, 0, 7, 0, 8, 0];
/// The start of 1970 as FILETIME.
const EPOCH: i64 = 0x19D_B1DE_D53E_8000;
const EPOCH_BYTES: &[u8; 8] = &[0x00, 0x80, 0x3E, 0xD5, 0xDE, 0xB1, 0x9D, 0x01];
const IPV6_ADDRESS: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

#[rustfmt::skip]
fn add_number_rows(rows: &mut Vec<FieldRow>, b: &mut EventBuilder, p: &Provider) {
    rows! { rows, b, p:
        u8("f", &7) = add_u8(7, D, 0) [4] [7]
        u8_slice("f", &[1, 2]) = add_u8_sequence(&[1, 2], D, 0) [0x44] [2, 0, 1, 2]
        u8_slice("f", &[]) = add_u8_sequence(&[], D, 0) [0x44] [0, 0]
        u16("f", &0x102) = add_u16(0x102, D, 0) [6] [2, 1]
        u16_slice("f", &[0x102]) = add_u16_sequence(&[0x102], D, 0) [0x46] [1, 0, 2, 1]
        u32("f", &0x1020304) = add_u32(0x1020304, D, 0) [8] [4, 3, 2, 1]
        u32_slice("f", &[1]) = add_u32_sequence(&[1], D, 0) [0x48] [1, 0, 1, 0, 0, 0]
        u64("f", &1) = add_u64(1, D, 0) [10] [1, &[0; 7]]
        u64_slice("f", &[1]) = add_u64_sequence(&[1], D, 0) [0x4A] [1, 0, 1, &[0; 7]]
        i8("f", &-1) = add_i8(-1, D, 0) [3] [0xFF]
        i8_slice("f", &[-1]) = add_i8_sequence(&[-1], D, 0) [0x43] [1, 0, 0xFF]
        i16("f", &-2) = add_i16(-2, D, 0) [5] [0xFE, 0xFF]
        i16_slice("f", &[-2]) = add_i16_sequence(&[-2], D, 0) [0x45] [1, 0, 0xFE, 0xFF]
        i32("f", &-2) = add_i32(-2, D, 0) [7] [0xFE, &[0xFF; 3]]
        i32_slice("f", &[-2]) = add_i32_sequence(&[-2], D, 0) [0x47] [1, 0, 0xFE, &[0xFF; 3]]
        i64("f", &-2) = add_i64(-2, D, 0) [9] [0xFE, &[0xFF; 7]]
        i64_slice("f", &[-2]) = add_i64_sequence(&[-2], D, 0) [0x49] [1, 0, 0xFE, &[0xFF; 7]]
        usize("f", &1) = add_usize(1, D, 0) [10] [1, &[0; 7]]
        usize_slice("f", &[1]) = add_usize_sequence(&[1], D, 0) [0x4A] [1, 0, 1, &[0; 7]]
        isize("f", &-1) = add_isize(-1, D, 0) [9] [&[0xFF; 8]]
        isize_slice("f", &[-1]) = add_isize_sequence(&[-1], D, 0) [0x49] [1, 0, &[0xFF; 8]]
        f32("f", &1.0) = add_f32(1.0, D, 0) [11] [0, 0, 0x80, 0x3F]
        f32_slice("f", &[1.0]) = add_f32_sequence(&[1.0], D, 0) [0x4B] [1, 0, 0, 0, 0x80, 0x3F]
        f64("f", &1.0) = add_f64(1.0, D, 0) [12] [&[0; 6], 0xF0, 0x3F]
        f64_slice("f", &[1.0]) = add_f64_sequence(&[1.0], D, 0) [0x4C] [1, 0, &[0; 6], 0xF0, 0x3F]
        u8_hex("f", &7) = add_u8(7, OutType::Hex, 0) [0x84, 4] [7]
        u8_hex_slice("f", &[7]) = add_u8_sequence(&[7], OutType::Hex, 0) [0xC4, 4] [1, 0, 7]
        i8_hex("f", &-1) = add_u8(255, OutType::Hex, 0) [0x84, 4] [0xFF]
        i8_hex_slice("f", &[-1]) = add_u8_sequence(&[255], OutType::Hex, 0) [0xC4, 4] [1, 0, 0xFF]
        u16_hex("f", &7) = add_u16(7, OutType::Hex, 0) [0x86, 4] [7, 0]
        u16_hex_slice("f", &[7]) = add_u16_sequence(&[7], OutType::Hex, 0) [0xC6, 4] [1, 0, 7, 0]
        i16_hex("f", &-1) = add_u16(0xFFFF, OutType::Hex, 0) [0x86, 4] [0xFF, 0xFF]
        i16_hex_slice("f", &[-1]) = add_u16_sequence(&[0xFFFF], OutType::Hex, 0) [0xC6, 4] [1, 0, 0xFF, 0xFF]
        u32_hex("f", &7) = add_hex32(7, D, 0) [20] [7, 0, 0, 0]
        u32_hex_slice("f", &[7]) = add_hex32_sequence(&[7], D, 0) [0x54] [1, 0, 7, 0, 0, 0]
        i32_hex("f", &-1) = add_hex32(u32::MAX, D, 0) [20] [&[0xFF; 4]]
        i32_hex_slice("f", &[-1]) = add_hex32_sequence(&[u32::MAX], D, 0) [0x54] [1, 0, &[0xFF; 4]]
        u64_hex("f", &7) = add_hex64(7, D, 0) [21] [7, &[0; 7]]
        u64_hex_slice("f", &[7]) = add_hex64_sequence(&[7], D, 0) [0x55] [1, 0, 7, &[0; 7]]
        i64_hex("f", &-1) = add_hex64(u64::MAX, D, 0) [21] [&[0xFF; 8]]
        i64_hex_slice("f", &[-1]) = add_hex64_sequence(&[u64::MAX], D, 0) [0x55] [1, 0, &[0xFF; 8]]
        usize_hex("f", &7) = add_hexsize(7, D, 0) [21] [7, &[0; 7]]
        usize_hex_slice("f", &[7]) = add_hexsize_sequence(&[7], D, 0) [0x55] [1, 0, 7, &[0; 7]]
        isize_hex("f", &7) = add_hexsize(7, D, 0) [21] [7, &[0; 7]]
        isize_hex_slice("f", &[7]) = add_hexsize_sequence(&[7], D, 0) [0x55] [1, 0, 7, &[0; 7]]
        pointer("f", &7) = add_hexsize(7, D, 0) [21] [7, &[0; 7]]
        pointer_slice("f", &[7]) = add_hexsize_sequence(&[7], D, 0) [0x55] [1, 0, 7, &[0; 7]]
        codepointer("f", &7) = add_hexsize(7, OutType::CodePointer, 0) [0x95, 37] [7, &[0; 7]]
        codepointer_slice("f", &[7]) = add_hexsize_sequence(&[7], OutType::CodePointer, 0) [0xD5, 37] [1, 0, 7, &[0; 7]]
        bool8("f", &true) = add_u8(1, OutType::Boolean, 0) [0x84, 3] [1]
        bool8_slice("f", &[true, false]) = add_u8_sequence(&[1, 0], OutType::Boolean, 0) [0xC4, 3] [2, 0, 1, 0]
        bool32("f", &1) = add_bool32(1, D, 0) [13] [1, 0, 0, 0]
        bool32_slice("f", &[1]) = add_bool32_sequence(&[1], D, 0) [0x4D] [1, 0, 1, 0, 0, 0]
        char8_cp1252("f", &65) = add_u8(65, OutType::String, 0) [0x84, 2] [65]
        char8_cp1252_slice("f", b"AB") = add_u8_sequence(b"AB", OutType::String, 0) [0xC4, 2] [2, 0, 65, 66]
        char16("f", &65) = add_u16(65, OutType::String, 0) [0x86, 2] [65, 0]
        char16_slice("f", &[65]) = add_u16_sequence(&[65], OutType::String, 0) [0xC6, 2] [1, 0, 65, 0]
    }
}

#[rustfmt::skip]
fn add_other_rows(rows: &mut Vec<FieldRow>, b: &mut EventBuilder, p: &Provider) {
    rows! { rows, b, p:
        guid("f", &GUID) = add_guid(&GUID, D, 0) [15] [GUID_BYTES]
        guid_slice("f", &[GUID]) = add_guid_sequence(&[GUID], D, 0) [0x4F] [1, 0, GUID_BYTES]
        pid("f", &7) = add_u32(7, OutType::Pid, 0) [0x88, 5] [7, 0, 0, 0]
        pid_slice("f", &[7]) = add_u32_sequence(&[7], OutType::Pid, 0) [0xC8, 5] [1, 0, 7, 0, 0, 0]
        tid("f", &7) = add_u32(7, OutType::Tid, 0) [0x88, 6] [7, 0, 0, 0]
        tid_slice("f", &[7]) = add_u32_sequence(&[7], OutType::Tid, 0) [0xC8, 6] [1, 0, 7, 0, 0, 0]
        port("f", &80_u16.to_be()) = add_u16(80_u16.to_be(), OutType::Port, 0) [0x86, 7] [0, 80]
        port_slice("f", &[0x5000]) = add_u16_sequence(&[0x5000], OutType::Port, 0) [0xC6, 7] [1, 0, 0, 80]
        ipv4("f", &[127, 0, 0, 1]) = add_u32(0x0100007F, OutType::IPv4, 0) [0x88, 8] [127, 0, 0, 1]
        ipv4_slice("f", &[[127, 0, 0, 1]]) = add_u32_sequence(&[0x0100007F], OutType::IPv4, 0) [0xC8, 8] [1, 0, 127, 0, 0, 1]
        ipv6("f", &IPV6_ADDRESS) = add_binary(IPV6_ADDRESS, OutType::IPv6, 0) [0x8E, 9] [16, 0, &IPV6_ADDRESS]
        ipv6c("f", &IPV6_ADDRESS) = add_binaryc(IPV6_ADDRESS, OutType::IPv6, 0) [0x99, 9] [16, 0, &IPV6_ADDRESS]
        socketaddress("f", &[2, 0, 0, 80]) = add_binary([2, 0, 0, 80], OutType::SocketAddress, 0) [0x8E, 10] [4, 0, 2, 0, 0, 80]
        socketaddressc("f", &[2, 0, 0, 80]) = add_binaryc([2, 0, 0, 80], OutType::SocketAddress, 0) [0x99, 10] [4, 0, 2, 0, 0, 80]
        binary("f", "0123") = add_binary("0123", D, 0) [14] [4, 0, b"0123"]
        binaryc("f", "0123") = add_binaryc("0123", D, 0) [25] [4, 0, b"0123"]
        errno("f", &2) = add_i32(2, D, 0) [7] [2, 0, 0, 0]
        errno_slice("f", &[2]) = add_i32_sequence(&[2], D, 0) [0x47] [1, 0, 2, 0, 0, 0]
        win_error("f", &5) = add_u32(5, OutType::Win32Error, 0) [0x88, 13] [5, 0, 0, 0]
        win_error_slice("f", &[5]) = add_u32_sequence(&[5], OutType::Win32Error, 0) [0xC8, 13] [1, 0, 5, 0, 0, 0]
        hresult("f", &-1) = add_i32(-1, OutType::HResult, 0) [0x87, 15] [&[0xFF; 4]]
        hresult_slice("f", &[-1]) = add_i32_sequence(&[-1], OutType::HResult, 0) [0xC7, 15] [1, 0, &[0xFF; 4]]
        win_ntstatus("f", &-1) = add_hex32(u32::MAX, OutType::NtStatus, 0) [0x94, 14] [&[0xFF; 4]]
        win_ntstatus_slice("f", &[-1]) = add_hex32_sequence(&[u32::MAX], OutType::NtStatus, 0) [0xD4, 14] [1, 0, &[0xFF; 4]]
        systemtime("f", &SystemTime::UNIX_EPOCH) = add_filetime(EPOCH, D, 0) [17] [EPOCH_BYTES]
        time32("f", &0) = add_filetime(EPOCH, D, 0) [17] [EPOCH_BYTES]
        time64("f", &0) = add_filetime(EPOCH, D, 0) [17] [EPOCH_BYTES]
        time64("f", &i64::MIN) = add_filetime(0, D, 0) [17] [&[0; 8]]
        time64("f", &i64::MAX) = add_filetime(0x7FFF35F4F06C7FFF, D, 0) [17] [0xFF, 0x7F, 0x6C, 0xF0, 0xF4, 0x35, 0xFF, 0x7F]
        win_filetime("f", &EPOCH) = add_filetime(EPOCH, D, 0) [17] [EPOCH_BYTES]
        win_filetime_slice("f", &[EPOCH]) = add_filetime_sequence(&[EPOCH], D, 0) [0x51] [1, 0, EPOCH_BYTES]
        win_systemtime("f", &DATE) = add_systemtime(&DATE, D, 0) [18] [DATE_BYTES]
        win_systemtime_slice("f", &[DATE]) = add_systemtime_sequence(&[DATE], D, 0) [0x52] [1, 0, DATE_BYTES]
        win_systemtime_utc("f", &DATE) = add_systemtime(&DATE, OutType::DateTimeUtc, 0) [0x92, 38] [DATE_BYTES]
        win_systemtime_utc_slice("f", &[DATE]) = add_systemtime_sequence(&[DATE], OutType::DateTimeUtc, 0) [0xD2, 38] [1, 0, DATE_BYTES]
        win_sid("f", &SID) = add_sid(SID, D, 0) [19] [&SID]
        win_sid("f", &[1, 0, 0, 0, 0, 0, 0, 5, 99, 99]) = add_sid([1, 0, 0, 0, 0, 0, 0, 5, 99, 99], D, 0) [19] [1, 0, 0, 0, 0, 0, 0, 5]
    }
}

#[rustfmt::skip]
fn add_text_rows(rows: &mut Vec<FieldRow>, b: &mut EventBuilder, p: &Provider) {
    let (string, wide) = (String::from("ab"), vec![0x61_u16, 0x62]);
    rows! { rows, b, p:
        str8("f", "ab") = add_str8("ab", OutType::Utf8, 0) [0x97, 35] [2, 0, b"ab"]
        str8("f", &string) = add_str8(&string, OutType::Utf8, 0) [0x97, 35] [2, 0, b"ab"]
        str8("f", "") = add_str8("", OutType::Utf8, 0) [0x97, 35] [0, 0]
        str8_cp1252("f", b"ab") = add_str8(b"ab", D, 0) [23] [2, 0, b"ab"]
        str8_json("f", "{}") = add_str8("{}", OutType::Json, 0) [0x97, 12] [2, 0, b"{}"]
        str8_xml("f", "<x/>") = add_str8("<x/>", OutType::Xml, 0) [0x97, 11] [4, 0, b"<x/>"]
        cstr8("f", "ab\0cd") = add_cstr8("ab\0cd", OutType::Utf8, 0) [0x82, 35] [b"ab\0"]
        cstr8_cp1252("f", "ab") = add_cstr8("ab", D, 0) [2] [b"ab\0"]
        cstr8_json("f", "{}") = add_cstr8("{}", OutType::Json, 0) [0x82, 12] [b"{}\0"]
        cstr8_xml("f", "<x/>") = add_cstr8("<x/>", OutType::Xml, 0) [0x82, 11] [b"<x/>\0"]
        str16("f", &wide) = add_str16(&wide, D, 0) [22] [4, 0, b"a\0b\0"]
        str16_json("f", &wide) = add_str16(&wide, OutType::Json, 0) [0x96, 12] [4, 0, b"a\0b\0"]
        str16_xml("f", &wide) = add_str16(&wide, OutType::Xml, 0) [0x96, 11] [4, 0, b"a\0b\0"]
        cstr16("f", &[97, 0, 98]) = add_cstr16([97, 0, 98], D, 0) [1] [b"a\0\0\0"]
        cstr16_json("f", &wide) = add_cstr16(&wide, OutType::Json, 0) [0x81, 12] [b"a\0b\0\0\0"]
        cstr16_xml("f", &wide) = add_cstr16(&wide, OutType::Xml, 0) [0x81, 11] [b"a\0b\0\0\0"]
        u8("f", &65, format(String)) = add_u8(65, OutType::String, 0) [0x84, 2] [65]
        u8("f", &65, format(OutType::String)) = add_u8(65, OutType::String, 0) [0x84, 2] [65]
        u8("f", &65, format(2)) = add_u8(65, OutType::String, 0) [0x84, 2] [65]
        str8("f", "ab", format(Default)) = add_str8("ab", D, 0) [23] [2, 0, b"ab"]
        u8("f", &65, tag(0x0FE0_0000)) = add_u8(65, D, 0x0FE0_0000) [0x84, 0x80, 0x7F] [65]
        u8("f", &65, tag(0x0FF0_0000), format(Hex)) = add_u8(65, OutType::Hex, 0x0FF0_0000) [0x84, 0x84, 0xFF, 0x40] [65]
        u8("f", &65, format(Hex), tag(0x1000_0000 - 1)) = add_u8(65, OutType::Hex, 0x0FFF_FFFF) [0x84, 0x84, 0xFF, 0xFF, 0xFF, 0x7F] [65]
    }
}

#[test]
fn macro_and_builder_encode_every_type_as_documented() {
    let provider = pin!(Provider::new("Traceweir.Test.Fields.Dynamic", &Provider::options()));
    let ids = [*STATIC_PROVIDER.id(), *provider.id()];
    let mut rows = Vec::new();
    let written = record_events(&ids, || {
        // SAFETY: one provider is a static; the other is a local that is dropped before its memory
        // is freed.
        let registered = unsafe { [STATIC_PROVIDER.register(), provider.as_ref().register()] };
        assert_eq!(registered, [0, 0]);
        let mut builder = EventBuilder::new();
        add_number_rows(&mut rows, &mut builder, &provider);
        add_other_rows(&mut rows, &mut builder, &provider);
        add_text_rows(&mut rows, &mut builder, &provider);
        assert_eq!([STATIC_PROVIDER.unregister(), provider.unregister()], [0, 0]);
    });
    assert_eq!((rows.len(), written.len()), (117, 234));
    for ((name, types, data), pair) in rows.iter().zip(written.chunks(2)) {
        let expected = encode_metadata("E", &[b"f\0", &types[..]].concat());
        for (event, writer) in pair.iter().zip(["macro", "builder"]) {
            assert_eq!(event.metadata, expected, "metadata of {name} by the {writer}");
            assert_eq!(&event.payload, data, "data of {name} by the {writer}");
        }
    }
}

#[test]
fn value_larger_than_its_count_is_truncated_at_an_element() {
    let mut builder = EventBuilder::new();
    let long = vec![0x4142_u16; 40_000];
    let data = builder.reset("E", Level::Verbose, 1, 0).add_str16("f", &long, OutType::Default, 0).raw_data();
    assert_eq!((data.len(), &data[..2]), (2 + 65_534, &[0xFE, 0xFF][..]));
    let data = builder
        .reset("E", Level::Verbose, 1, 0)
        .add_u8_sequence("f", &[7; 70_000], OutType::Default, 0)
        .raw_data();
    assert_eq!((data.len(), &data[..2]), (2 + 65_535, &[0xFF, 0xFF][..]));
    let data =
        builder.reset("E", Level::Verbose, 1, 0).add_cstr8("f", [7; 70_000], OutType::Default, 0).raw_data();
    assert_eq!(data.len(), 65_536);
    let texts = builder
        .reset("E", Level::Verbose, 1, 0)
        .add_str8_sequence("f", ["a", "bc"], OutType::Utf8, 0)
        .raw_data();
    assert_eq!(texts, b"\x02\0\x01\0a\x02\0bc");
}

#[test]
fn times_outside_the_calendar_are_clamped() {
    use traceweir::tracelogging::filetime_from_systemtime as filetime;
    let epoch = SystemTime::UNIX_EPOCH;
    assert_eq!(filetime(&(epoch + Duration::from_nanos(199))), EPOCH + 1);
    assert_eq!(filetime(&(epoch - Duration::from_nanos(1))), EPOCH - 1, "the time is not rounded down");
    assert_eq!(filetime(&(epoch - Duration::from_secs(20_000_000_000))), 0);
    // The last FILETIME that has a SYSTEMTIME, at the end of the year 30827.
    assert_eq!(filetime(&(epoch + Duration::from_secs(1_000_000_000_000))), 0x7FFF_35F4_F06C_7FFF);
}

#[test]
#[should_panic(expected = "a SID has 8 bytes")]
fn short_sid_panics_as_documented() {
    EventBuilder::new().add_sid("f", [1, 2, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0], OutType::Default, 0);
}

#[test]
fn raw_parts_are_written_unchanged() {
    let mut builder = EventBuilder::new();
    // The member count of a structure has seven bits, so 0x81 becomes 1.
    builder
        .reset("E", Level::Verbose, 1, 0)
        .raw_add_meta_scalar("a", InType::U32, OutType::Hex, 0)
        .raw_add_meta_vcount("b", InType::U8, OutType::Default, 0)
        .add_struct("s", 0x81, 0)
        .raw_add_data_value(&0x0102_u16)
        .raw_add_data_slice(&[3_u16, 4]);
    assert_eq!(builder.raw_meta().unwrap(), encode_metadata("E", b"a\0\x88\x04b\0\x44s\0\x98\x01"));
    assert_eq!(builder.raw_data(), [2, 1, 3, 0, 4, 0]);
}
