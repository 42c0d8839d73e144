//! Tests the text and the JSON of values of each type, and that the JSON of any value parses.

use std::sync::Arc;

use proptest::prelude::*;
use traceweir_format::Guid;
use traceweir_format::spec::types::InType;
use traceweir_format::time::UNIX_EPOCH_AS_FILETIME;
use traceweir_format::wire::Put;

use super::*;
use crate::schema::{Length, Schema};
use crate::walk::{Visitor, Walker};

#[derive(Default)]
struct TextAndJson {
    style: Style,
    text: Vec<u8>,
    json: Vec<u8>,
}

impl<'p> Visitor<'p> for TextAndJson {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        push_text(field, &value, self.style, &mut self.text);
        push_json(field, &value, self.style, &mut self.json);
    }
}

fn format_field(field: Field, bytes: &[u8], style: Style) -> (String, String) {
    let schema = Schema::default().seal(vec![field], 1).unwrap();
    let mut output = TextAndJson { style, ..TextAndJson::default() };
    let remaining = Walker::default().walk(&schema, bytes, 8, &mut output).unwrap();
    assert!(remaining.is_empty(), "the value must take all bytes");
    (String::from_utf8(output.text).unwrap(), String::from_utf8(output.json).unwrap())
}

/// Returns the text and JSON of a value that takes all the bytes.
fn format_value(input: InType, output: OutType, bytes: &[u8]) -> (String, String) {
    let length = match input {
        InType::BINARY | InType::ANSISTRING => Length::Fixed(bytes.len() as u16),
        InType::UNICODESTRING => Length::Fixed(bytes.len() as u16 / 2),
        _ => Length::Natural,
    };
    format_field(Field::value("f", input, output).with_length(length), bytes, Style::default())
}

#[track_caller]
fn assert_formats(input: InType, output: OutType, bytes: &[u8], text: &str, json: &str) {
    let (actual_text, actual_json) = format_value(input, output, bytes);
    assert_eq!((&*actual_text, &*actual_json), (text, json), "{input:?} {output:?} {bytes:x?}");
    serde_json::from_str::<serde_json::Value>(json).unwrap();
}

const DEFAULT: OutType = OutType::NULL;

#[test]
fn integers_are_decimal_by_default() {
    assert_formats(InType::INT8, DEFAULT, &[0xFE], "-2", "-2");
    assert_formats(InType::UINT8, DEFAULT, &[0xFE], "254", "254");
    assert_formats(InType::INT16, DEFAULT, &[0, 0x80], "-32768", "-32768");
    assert_formats(InType::UINT16, DEFAULT, &[0, 0x80], "32768", "32768");
    assert_formats(InType::INT32, DEFAULT, &[0xFF; 4], "-1", "-1");
    assert_formats(InType::UINT32, DEFAULT, &[0xFF; 4], "4294967295", "4294967295");
    assert_formats(InType::UINT32, OutType::PID, &[0xFF; 4], "4294967295", "4294967295");
    assert_formats(InType::UINT32, OutType::TID, &[7, 0, 0, 0], "7", "7");
    assert_formats(InType::UINT32, OutType::NOPRINT, &[7, 0, 0, 0], "7", "7");
}

#[test]
fn out_types_choose_the_sign() {
    assert_formats(InType::UINT8, OutType::BYTE, &[0xFF], "-1", "-1");
    assert_formats(InType::UINT16, OutType::SHORT, &[0xFF; 2], "-1", "-1");
    assert_formats(InType::UINT32, OutType::INT, &[0xFF; 4], "-1", "-1");
    assert_formats(InType::UINT64, OutType::LONG, &[0xFF; 8], "-1", "-1");
    assert_formats(InType::INT8, OutType::UNSIGNEDBYTE, &[0xFF], "255", "255");
    assert_formats(InType::INT16, OutType::UNSIGNEDSHORT, &[0xFF; 2], "65535", "65535");
    assert_formats(InType::INT32, OutType::UNSIGNEDINT, &[0xFF; 4], "4294967295", "4294967295");
    assert_formats(
        InType::INT64,
        OutType::UNSIGNEDLONG,
        &[0xFF; 8],
        "18446744073709551615",
        "\"18446744073709551615\"",
    );
    assert_formats(InType::INT32, OutType::PID, &[0xFF; 4], "4294967295", "4294967295");
}

#[test]
fn json_integers_beyond_2_to_the_53_are_strings() {
    let exact = 1_u64 << 53;
    let assert_unsigned =
        |v: u64, json: &str| assert_formats(InType::UINT64, DEFAULT, &v.to_le_bytes(), &v.to_string(), json);
    assert_unsigned(exact - 1, "9007199254740991");
    assert_unsigned(exact, "9007199254740992");
    assert_unsigned(exact + 1, "\"9007199254740993\"");
    assert_unsigned(u64::MAX, "\"18446744073709551615\"");
    let assert_signed =
        |v: i64, json: &str| assert_formats(InType::INT64, DEFAULT, &v.to_le_bytes(), &v.to_string(), json);
    assert_signed(-(1 << 53), "-9007199254740992");
    assert_signed(-(1 << 53) - 1, "\"-9007199254740993\"");
    assert_signed(i64::MIN, "\"-9223372036854775808\"");
    assert_formats(InType::FILETIME, OutType::ETWTIME, &u64::MAX.to_le_bytes(), "-1", "-1");
    assert_formats(
        InType::FILETIME,
        OutType::ETWTIME,
        &(1_u64 << 54).to_le_bytes(),
        "18014398509481984",
        "\"18014398509481984\"",
    );
    assert_formats(InType::INT64, OutType::ETWTIME, &5_u64.to_le_bytes(), "5", "5");
}

#[test]
fn hexadecimal_is_upper_case_in_text_and_a_string_in_json_when_64_bits_wide() {
    assert_formats(InType::UINT8, OutType::HEXINT8, &[0xAB], "0xAB", "171");
    assert_formats(InType::INT8, OutType::HEXINT8, &[0xFF], "0xFF", "-1");
    assert_formats(InType::UINT16, OutType::HEXINT16, &[0xCD, 0xAB], "0xABCD", "43981");
    assert_formats(InType::UINT32, OutType::HEXINT32, &[0x1F, 0, 0, 0], "0x1F", "31");
    assert_formats(InType::HEXINT32, DEFAULT, &[0, 0, 0, 0], "0x0", "0");
    assert_formats(InType::HEXINT32, OutType::HEXINT32, &[0xFE, 0, 0, 0xF0], "0xF00000FE", "4026532094");
    assert_formats(InType::HEXINT64, DEFAULT, &0x1F_u64.to_le_bytes(), "0x1F", "\"0x1f\"");
    assert_formats(InType::HEXINT64, OutType::NOPRINT, &0x1F_u64.to_le_bytes(), "0x1F", "\"0x1f\"");
    assert_formats(
        InType::UINT64,
        OutType::HEXINT64,
        &u64::MAX.to_le_bytes(),
        "0xFFFFFFFFFFFFFFFF",
        "\"0xffffffffffffffff\"",
    );
    assert_formats(
        InType::INT64,
        OutType::HEXINT64,
        &u64::MAX.to_le_bytes(),
        "0xFFFFFFFFFFFFFFFF",
        "\"0xffffffffffffffff\"",
    );
    assert_formats(InType::POINTER, DEFAULT, &0xFFFF_8000_u64.to_le_bytes(), "0xFFFF8000", "\"0xffff8000\"");
    assert_formats(InType::POINTER, OutType::CODE_POINTER, &[0; 8], "0x0", "\"0x0\"");
    assert_formats(InType::SIZET, DEFAULT, &[1, 0, 0, 0, 0, 0, 0, 0], "0x1", "\"0x1\"");
    assert_formats(InType::SIZET, OutType::UNSIGNEDLONG, &[10, 0, 0, 0, 0, 0, 0, 0], "10", "10");
    assert_formats(InType::HEXINT64, OutType::CODE_POINTER, &[0x10, 0, 0, 0, 0, 0, 0, 0], "0x10", "\"0x10\"");
    assert_formats(InType::HEXINT32, OutType::UNSIGNEDINT, &[0x10, 0, 0, 0], "16", "16");
}

#[test]
fn hexadecimal_types_ignore_unsuitable_out_types() {
    for output in [OutType::STRING, OutType::XML, OutType::GUID, OutType::REDUCEDSTRING, OutType(299)] {
        assert_formats(InType::HEXINT32, output, &[0x10, 0, 0, 0], "0x10", "16");
        assert_formats(InType::HEXINT64, output, &[0x10, 0, 0, 0, 0, 0, 0, 0], "0x10", "\"0x10\"");
    }
}

#[test]
fn floats_keep_all_digits_and_non_finite_numbers_have_names() {
    let assert_float = |v: f64, text: &str, json: &str| {
        assert_formats(InType::DOUBLE, DEFAULT, &v.to_le_bytes(), text, json)
    };
    assert_float(0.1, "0.1", "0.1");
    assert_float(1.0, "1", "1");
    assert_float(-0.0, "-0", "-0");
    assert_float(1e300, "1e300", "1e300");
    assert_float(5e-324, "5e-324", "5e-324");
    assert_float(f64::MAX, "1.7976931348623157e308", "1.7976931348623157e308");
    assert_float(f64::NAN, "NaN", "\"NaN\"");
    assert_float(f64::INFINITY, "inf", "\"Infinity\"");
    assert_float(f64::NEG_INFINITY, "-inf", "\"-Infinity\"");
    assert_formats(InType::FLOAT, DEFAULT, &0.1_f32.to_le_bytes(), "0.1", "0.1");
    assert_formats(InType::FLOAT, DEFAULT, &f32::MAX.to_le_bytes(), "3.4028235e38", "3.4028235e38");
    assert_formats(InType::FLOAT, DEFAULT, &f32::NAN.to_le_bytes(), "NaN", "\"NaN\"");
    assert_formats(InType::FLOAT, OutType::HEXINT32, &1.5_f32.to_le_bytes(), "1.5", "1.5");
}

#[test]
fn booleans_are_words_whatever_their_width() {
    assert_formats(InType::BOOLEAN, DEFAULT, &[0, 0, 0, 0], "false", "false");
    assert_formats(InType::BOOLEAN, DEFAULT, &[0, 0, 1, 0], "true", "true");
    assert_formats(InType::UINT8, OutType::BOOLEAN, &[2], "true", "true");
    assert_formats(InType::UINT32, OutType::BOOLEAN, &[0, 0, 0, 0], "false", "false");
}

#[test]
fn dates_cover_the_whole_range() {
    let assert_date = |v: i64, output, text: &str| {
        let json = format!("\"{}Z\"", text.trim_end_matches('Z'));
        assert_formats(InType::FILETIME, output, &v.to_le_bytes(), text, &json);
    };
    assert_date(UNIX_EPOCH_AS_FILETIME, DEFAULT, "1970-01-01T00:00:00.0000000");
    assert_date(UNIX_EPOCH_AS_FILETIME + 1, OutType::DATETIME, "1970-01-01T00:00:00.0000001");
    assert_date(UNIX_EPOCH_AS_FILETIME, OutType::DATETIME_UTC, "1970-01-01T00:00:00.0000000Z");
    assert_date(UNIX_EPOCH_AS_FILETIME, OutType::CIMDATETIME, "1970-01-01T00:00:00.0000000");
    assert_date(UNIX_EPOCH_AS_FILETIME, OutType::CULTURE_INSENSITIVE_DATETIME, "1970-01-01T00:00:00.0000000");
    assert_date(132_404_764_206_212_345, DEFAULT, "2020-07-29T06:07:00.6212345");
    assert_date(0, DEFAULT, "1601-01-01T00:00:00.0000000");
    assert_date(-1, DEFAULT, "1600-12-31T23:59:59.9999999");
    assert_date(2_650_467_743_999_999_999, DEFAULT, "9999-12-31T23:59:59.9999999");
    assert_date(2_650_467_744_000_000_000, DEFAULT, "10000-01-01T00:00:00.0000000");
    assert_date(i64::MAX, DEFAULT, "30828-09-14T02:48:05.4775807");
    assert_date(i64::MIN, OutType::DATETIME_UTC, "-27627-04-19T21:11:54.5224192Z");
    assert_formats(
        InType::INT64,
        OutType::DATETIME,
        &UNIX_EPOCH_AS_FILETIME.to_le_bytes(),
        "1970-01-01T00:00:00.0000000",
        "\"1970-01-01T00:00:00.0000000Z\"",
    );
}

/// Encodes year, month, day of the week, day, hour, minute, second, milliseconds.
fn system_time_bytes(words: [u16; 8]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn system_times_are_dates_unless_they_are_invalid() {
    let valid_time = system_time_bytes([2024, 2, 4, 29, 23, 59, 58, 999]);
    assert_formats(
        InType::SYSTEMTIME,
        DEFAULT,
        &valid_time,
        "2024-02-29T23:59:58.9990000",
        "\"2024-02-29T23:59:58.9990000Z\"",
    );
    assert_formats(
        InType::SYSTEMTIME,
        OutType::DATETIME_UTC,
        &valid_time,
        "2024-02-29T23:59:58.9990000Z",
        "\"2024-02-29T23:59:58.9990000Z\"",
    );
    // Each has one value out of range; the last is all zeros.
    for invalid_time in [
        [2023, 2, 0, 29, 0, 0, 0, 0],
        [2024, 0, 0, 1, 0, 0, 0, 0],
        [2024, 13, 0, 1, 0, 0, 0, 0],
        [2024, 1, 0, 0, 0, 0, 0, 0],
        [2024, 1, 0, 1, 24, 0, 0, 0],
        [2024, 1, 0, 1, 0, 60, 0, 0],
        [2024, 1, 0, 1, 0, 0, 60, 0],
        [2024, 1, 0, 1, 0, 0, 0, 1000],
        [2024, 257, 0, 1, 0, 0, 0, 0],
        [0; 8],
    ] {
        assert_formats(InType::SYSTEMTIME, DEFAULT, &system_time_bytes(invalid_time), "(no date)", "null");
    }
}

#[test]
fn guids_and_sids_have_their_usual_forms() {
    let guid = Guid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff).to_bytes();
    let text = "{00112233-4455-6677-8899-AABBCCDDEEFF}";
    assert_formats(InType::GUID, DEFAULT, &guid, text, "\"00112233-4455-6677-8899-aabbccddeeff\"");
    let mut sid = vec![1, 2, 0, 0, 0, 0, 0, 5];
    sid.put_u32(32).put_u32(544);
    assert_formats(InType::SID, DEFAULT, &sid, "S-1-5-32-544", "\"S-1-5-32-544\"");
    let sid_with_large_authority = [1, 1, 0xFF, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
    assert_formats(
        InType::SID,
        DEFAULT,
        &sid_with_large_authority,
        "S-1-280375465082880-4294967295",
        "\"S-1-280375465082880-4294967295\"",
    );
    assert_formats(InType::WBEMSID, DEFAULT, &[0; 4], "", "null");
}

#[test]
fn addresses_are_in_memory_order_and_ports_are_big_endian() {
    assert_formats(InType::UINT32, OutType::IPV4, &[192, 168, 0, 1], "192.168.0.1", "\"192.168.0.1\"");
    assert_formats(InType::UINT16, OutType::PORT, &[0x1F, 0x90], "8080", "8080");
    let mut v6 = [0; 16];
    (v6[0], v6[1], v6[15]) = (0x20, 1, 1);
    assert_formats(InType::BINARY, OutType::IPV6, &v6, "2001::1", "\"2001::1\"");
    assert_formats(InType::BINARY, OutType::IPV6, &[1, 2, 3], "0x010203", "\"010203\"");
    // Family (2 is IPv4; IPv6 is 23 on Windows and 10 on Linux), port, address; IPv6 has a flow label
    // before its address and a scope after it.
    let v4_socket = [2, 0, 0x1F, 0x90, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_formats(InType::BINARY, OutType::SOCKETADDRESS, &v4_socket, "10.0.0.1:8080", "\"10.0.0.1:8080\"");
    for family in [23, 10] {
        let v6_socket = [&[family, 0, 0, 80, 0, 0, 0, 0], &v6[..], &[0; 4]].concat();
        assert_formats(
            InType::BINARY,
            OutType::SOCKETADDRESS,
            &v6_socket,
            "[2001::1]:80",
            "\"[2001::1]:80\"",
        );
    }
    assert_formats(InType::BINARY, OutType::SOCKETADDRESS, &[10, 0, 0, 80], "0x0A000050", "\"0a000050\"");
    assert_formats(InType::BINARY, OutType::SOCKETADDRESS, &[1, 0, b'/'], "0x01002F", "\"01002f\"");
    assert_formats(InType::BINARY, OutType::SOCKETADDRESS, &[2, 0, 1], "0x020001", "\"020001\"");
    assert_formats(InType::BINARY, OutType::SOCKETADDRESS, &[], "", "\"\"");
}

#[test]
fn out_types_of_narrow_numbers_do_not_apply_to_wide_ones() {
    let wide = 0x1_0000_0050_u64.to_le_bytes();
    for output in [OutType::PORT, OutType::IPV4, OutType::NTSTATUS, OutType::HRESULT, OutType::STRING] {
        assert_formats(InType::UINT64, output, &wide, "4294967376", "4294967376");
    }
    assert_formats(InType::UINT32, OutType::PORT, &[0, 0, 1, 0], "65536", "65536");
    assert_formats(InType::UINT32, OutType::STRING, &[65, 0, 0, 0], "65", "65");
}

#[test]
fn bytes_are_hexadecimal() {
    assert_formats(InType::BINARY, DEFAULT, &[0x1F, 0x8B, 0], "0x1F8B00", "\"1f8b00\"");
    assert_formats(InType::BINARY, OutType::HEXBINARY, &[0xA], "0x0A", "\"0a\"");
    assert_formats(InType::BINARY, OutType::PKCS7_WITH_TYPE_INFO, &[0xA], "0x0A", "\"0a\"");
    assert_formats(InType::BINARY, DEFAULT, &[], "", "\"\"");
    assert_formats(InType::HEXDUMP, DEFAULT, &[2, 0, 0, 0, 1, 2], "0x0102", "\"0102\"");
    assert_formats(InType::COUNTEDBINARY, DEFAULT, &[2, 0, 1, 2], "0x0102", "\"0102\"");
    assert_formats(InType::BINARY, OutType::STRING, b"text", "text", "\"text\"");
}

#[test]
fn codes_are_shown_with_their_meanings_in_text() {
    assert_formats(InType::UINT32, OutType::WIN32ERROR, &[2, 0, 0, 0], "2: no such file", "2");
    assert_formats(InType::UINT32, OutType::WIN32ERROR, &[0xFF; 4], "4294967295", "4294967295");
    assert_formats(InType::UINT32, OutType::NTSTATUS, &[0; 4], "0x00000000: completed", "0");
    assert_formats(InType::UINT32, OutType::NTSTATUS, &[5, 0, 0, 0xC0], "0xC0000005", "3221225477");
    assert_formats(
        InType::UINT32,
        OutType::NTSTATUS,
        &[0x22, 0, 0, 0xC0],
        "0xC0000022: permission refused",
        "3221225506",
    );
    assert_formats(InType::UINT32, OutType::NTSTATUS, &[5, 0, 0, 0], "0x00000005", "5");
    assert_formats(
        InType::INT32,
        OutType::HRESULT,
        &[3, 0x40, 0, 0x80],
        "0x80004003: pointer is missing",
        "-2147467261",
    );
    assert_formats(
        InType::INT32,
        OutType::HRESULT,
        &[5, 0, 7, 0x80],
        "0x80070005: permission refused",
        "-2147024891",
    );
    assert_formats(InType::INT32, OutType::HRESULT, &[5, 0, 4, 0x80], "0x80040005", "-2147221499");
    assert_formats(InType::UINT32, OutType::ERRORCODE, &[87, 0, 0, 0], "0x00000057", "87");
    assert_formats(InType::UINT32, OutType::ERRORCODE, &[0x22, 0, 0, 0xC0], "0xC0000022", "3221225506");
}

#[test]
fn characters_are_text() {
    assert_formats(InType::UINT8, OutType::STRING, b"A", "A", "\"A\"");
    assert_formats(InType::UINT8, OutType::STRING, &[0x80], "€", "\"€\"");
    assert_formats(InType::INT8, OutType::STRING, &[0], "", "\"\"");
    assert_formats(InType::UINT16, OutType::STRING, &[0xAC, 0x20], "€", "\"€\"");
    assert_formats(InType::UINT16, OutType::STRING, &[0, 0], "", "\"\"");
    assert_formats(InType::UINT16, OutType::STRING, &[0, 0xD8], "\u{FFFD}", "\"\u{FFFD}\"");
    assert_formats(InType::UINT16, OutType::STRING, b"\"\0", "\"", "\"\\\"\"");
    assert_formats(InType::UNICODECHAR, DEFAULT, &[0xAC, 0x20], "€", "\"€\"");
    assert_formats(InType::ANSICHAR, DEFAULT, &[0xE9], "é", "\"é\"");
    assert_formats(InType::ANSICHAR, DEFAULT, &[0], "", "\"\"");
}

fn utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn strings_are_escaped_in_json_and_raw_in_text() {
    let raw = "a\"b\\c\n\r\t\u{1}\u{1f} \u{7f}\u{9b}\u{a0}€😀/";
    let json = "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001f \\u007f\\u009b\u{a0}€😀/\"";
    assert_formats(InType::UNICODESTRING, DEFAULT, &utf16_bytes(raw), raw, json);
    assert_formats(InType::ANSISTRING, OutType::UTF8, raw.as_bytes(), raw, json);
    assert_formats(InType::ANSISTRING, OutType::JSON, b"{\"a\":1}", "{\"a\":1}", "\"{\\\"a\\\":1}\"");
    assert_formats(InType::UNICODESTRING, OutType::XML, &utf16_bytes("<a/>"), "<a/>", "\"<a/>\"");
    assert_formats(InType::UNICODESTRING, DEFAULT, &[], "", "\"\"");
    assert_formats(InType::ANSISTRING, DEFAULT, &[], "", "\"\"");
}

#[test]
fn invalid_text_is_replaced_or_read_as_windows_1252() {
    assert_formats(
        InType::UNICODESTRING,
        DEFAULT,
        &[0x41, 0, 0, 0xD8, 0x42, 0],
        "A\u{FFFD}B",
        "\"A\u{FFFD}B\"",
    );
    assert_formats(InType::UNICODESTRING, DEFAULT, &[0, 0xDC], "\u{FFFD}", "\"\u{FFFD}\"");
    assert_formats(InType::COUNTEDSTRING, DEFAULT, &[3, 0, 0x41, 0, 0x42], "A", "\"A\"");
    assert_formats(InType::ANSISTRING, DEFAULT, b"caf\xe9\x01", "café\u{1}", "\"café\\u0001\"");
    assert_formats(InType::ANSISTRING, DEFAULT, b"\x93\"\x94", "“\"”", "\"“\\\"”\"");
    for output in [OutType::UTF8, OutType::JSON, OutType::XML] {
        assert_formats(InType::ANSISTRING, output, b"caf\xe9", "caf\u{FFFD}", "\"caf\u{FFFD}\"");
    }
}

#[test]
fn compressed_text_is_decompressed() {
    // The decompressed size, then one uncompressed LZNT1 chunk of four bytes.
    let compressed = [&[4, 0, 0, 0][..], &[3, 0x30], &utf16_bytes("hi")].concat();
    assert_formats(InType::BINARY, OutType::XML, &compressed, "hi", "\"hi\"");
    assert_formats(InType::BINARY, OutType::XML, b"<a/>", "<a/>", "\"<a/>\"");
}

#[test]
fn unknown_and_unsuitable_out_types_behave_as_the_default() {
    for output in [OutType(39), OutType(299), OutType(u16::MAX), OutType::GUID, OutType::XML] {
        assert_formats(InType::UINT32, output, &[5, 0, 0, 0], "5", "5");
        assert_formats(InType::BOOLEAN, output, &[5, 0, 0, 0], "true", "true");
        assert_formats(InType::POINTER, output, &[5, 0, 0, 0, 0, 0, 0, 0], "0x5", "\"0x5\"");
    }
}

fn value_map(is_bit_map: bool, entries: &[(u64, &str)]) -> Option<Arc<ValueMap>> {
    Some(Arc::new(ValueMap::new("m", is_bit_map, entries.iter().map(|(v, t)| (*v, (*t).to_owned())))))
}

#[track_caller]
fn assert_mapped_as(map: Option<Arc<ValueMap>>, value: u32, text: &str, json: &str) {
    let field = Field::value("f", InType::UINT32, DEFAULT).with_map(map);
    let (actual_text, actual_json) = format_field(field.clone(), &value.to_le_bytes(), Style::default());
    assert_eq!((&*actual_text, &*actual_json), (text, json));
    assert_eq!(
        format_field(field, &value.to_le_bytes(), Style { numeric: true }),
        (value.to_string(), value.to_string()),
        "the numeric style must ignore maps"
    );
}

#[test]
fn mapped_values_are_shown_as_names() {
    // Texts of maps may end with a blank, which is not shown.
    let names = || value_map(false, &[(7, "Seven "), (0, "None"), (u64::from(u32::MAX), "a\"b")]);
    assert_mapped_as(names(), 7, "Seven", "\"Seven\"");
    assert_mapped_as(names(), 0, "None", "\"None\"");
    assert_mapped_as(names(), u32::MAX, "a\"b", "\"a\\\"b\"");
    assert_mapped_as(names(), 8, "8", "8");
    assert_mapped_as(value_map(false, &[]), 8, "8", "8");
    let signed = Field::value("f", InType::INT32, DEFAULT).with_map(names());
    assert_eq!(
        format_field(signed, &[0xFF; 4], Style::default()).0,
        "a\"b",
        "the map must apply to the 32 bits of the value"
    );
}

#[test]
fn bit_maps_join_names_and_keep_unknown_bits() {
    let bits = || value_map(true, &[(4, "Four"), (1, "One "), (3, "Three")]);
    assert_mapped_as(bits(), 5, "Four|One", "\"Four|One\"");
    assert_mapped_as(bits(), 7, "Four|One|Three", "\"Four|One|Three\"");
    assert_mapped_as(bits(), 0xF4, "Four|0xf0", "\"Four|0xf0\"");
    assert_mapped_as(bits(), 8, "8", "8");
    assert_mapped_as(bits(), 0, "0", "0");
    assert_mapped_as(value_map(true, &[(0, "None"), (1, "One")]), 0, "None", "\"None\"");
    assert_mapped_as(value_map(true, &[(0, "None"), (1, "One")]), 1, "One", "\"One\"");
}

#[test]
fn texts_ignore_maps() {
    let field = Field::value("f", InType::ANSISTRING, DEFAULT).with_map(value_map(false, &[(0, "None")]));
    assert_eq!(format_field(field, b"x\0", Style::default()), ("x".into(), "\"x\"".into()));
}

fn any_value() -> impl Strategy<Value = (u16, u16, Vec<u8>)> {
    let in_type = prop_oneof![0_u16..26, 300_u16..311];
    let out_type = prop_oneof![0_u16..40, 299_u16..303];
    let byte = prop_oneof![2 => any::<u8>(), 1 => Just(0), 1 => Just(b'"'), 1 => 0x20_u8..0x7F];
    (in_type, out_type, prop::collection::vec(byte, 0..64))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn json_of_any_value_parses_and_text_is_utf8(
        (in_type, out_type, bytes) in any_value(),
        length in prop_oneof![Just(Length::Natural), (0_u16..20).prop_map(Length::Fixed)],
        has_map: bool,
        is_bit_map: bool,
    ) {
        let map = if has_map { value_map(is_bit_map, &[(1, "one\""), (2, "two\n"), (0x40, "\\")]) } else { None };
        let field = Field::value("f", InType(in_type), OutType(out_type)).with_length(length).with_map(map);
        let schema = Schema::default().seal(vec![field], 1).unwrap();
        let mut formatted = TextAndJson::default();
        let is_decoded = Walker::default().walk(&schema, &bytes, 8, &mut formatted).is_ok();
        if is_decoded && !bytes.is_empty() {
            let value: Result<serde_json::Value, _> = serde_json::from_slice(&formatted.json);
            prop_assert!(value.is_ok(), "{}", String::from_utf8_lossy(&formatted.json));
        }
        prop_assert!(std::str::from_utf8(&formatted.text).is_ok());
    }

    #[test]
    fn floats_read_back_equal(bits: u64, narrow: u32) {
        let (wide, narrow) = (f64::from_bits(bits), f32::from_bits(narrow));
        let (text, json) = format_value(InType::DOUBLE, DEFAULT, &wide.to_le_bytes());
        if wide.is_finite() {
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), wide.to_bits());
            prop_assert_eq!(json.parse::<f64>().unwrap().to_bits(), wide.to_bits());
        }
        let (text, _) = format_value(InType::FLOAT, DEFAULT, &narrow.to_le_bytes());
        if narrow.is_finite() {
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), narrow.to_bits());
        }
    }

    #[test]
    fn any_text_survives_json(text: String) {
        let mut out = Vec::new();
        push_json_string(&text, &mut out);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
        let (raw, json) = format_value(InType::COUNTEDSTRING, DEFAULT, &{
            let mut bytes = Vec::new();
            bytes.put_u16(text.encode_utf16().count() as u16 * 2).put(&utf16_bytes(&text));
            bytes
        });
        prop_assert_eq!(&raw, &text);
        prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
