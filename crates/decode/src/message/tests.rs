use proptest::prelude::*;

use super::*;

/// Expands a message with `values` as the inserts: as four-byte numbers if the format is numeric,
/// otherwise as text.
fn expand_with_integers(message: &str, values: &[i128]) -> String {
    // The expanded message must be appended to this.
    let mut out = b">".to_vec();
    EventMessage::parse(message).expand(&mut out, &mut |number, format, out| {
        let Some(value) = values.get(number - 1) else {
            out.extend_from_slice(b"text that expand() must remove");
            return false;
        };
        match format {
            Some(format) if format.is_text() => format.push_text(&value.to_string(), out),
            Some(format) => format.push_number(*value, 4, out),
            None => out.extend_from_slice(value.to_string().as_bytes()),
        }
        true
    });
    String::from_utf8(out).unwrap().split_off(1)
}

#[test]
fn messages_expand_as_documented() {
    for (message, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("%1", "7"),
        ("%1%2", "7-1"),
        ("a%1b%2c", "a7b-1c"),
        ("%12", "%12"),
        ("%123", "%123"),
        ("%2x%9", "-1x%9"),
        ("%9!08x!.", "%9!08x!."),
        ("100%% of %1", "100% of 7"),
        ("a%nb%tc%rd%be% f%.g%!h", "a\nb\tc\rd e f.g!h"),
        ("over%0 and out", "over"),
        ("over %1%01", "over 7"),
        ("odd %q %", "odd q %"),
        ("%é", "é"),
        ("Hello %1!", "Hello 7!"),
        ("%1! and %2!", "7! and -1!"),
        ("%1!!", "7!!"),
        ("%1!*s!", "7!*s!"),
        ("text\r\n", "text"),
        ("text%n\r\n\0\0", "text\n"),
        ("line\r\nline", "line\r\nline"),
    ] {
        assert_eq!(expand_with_integers(message, &[7, -1]), expected, "{message:?}");
    }
}

#[test]
fn formats_are_honoured() {
    for (format, value, expected) in [
        ("s", 7, "7"),
        ("S", -7, "-7"),
        ("5s", 7, "    7"),
        ("-5s", 7, "7    "),
        ("05s", 7, "    7"),
        (".2s", 1234, "12"),
        ("4.2S", 1234, "  12"),
        ("d", -1, "-1"),
        ("i", 42, "42"),
        ("5d", -42, "  -42"),
        ("05d", -42, "-0042"),
        ("-5d", -42, "-42  "),
        ("+d", 42, "+42"),
        ("0+5d", 42, "+0042"),
        (" d", 42, " 42"),
        (".4d", -42, "-0042"),
        ("06.4d", 42, "  0042"),
        (".0d", 0, ""),
        ("u", -1, "4294967295"),
        ("I64u", 1 << 31, "2147483648"),
        ("I64d", -5, "-5"),
        ("lld", 5, "5"),
        ("hu", 5, "5"),
        ("x", 0xBEEF, "beef"),
        ("X", 0xBEEF, "BEEF"),
        ("08x", 0xBEEF, "0000beef"),
        ("8x", 0xBEEF, "    beef"),
        ("-8X", 0xBEEF, "BEEF    "),
        ("#x", 0xBEEF, "0xbeef"),
        ("#x", 0, "0"),
        ("#010X", 0xBEEF, "0X0000BEEF"),
        ("I64x", -1, "ffffffff"),
        ("lX", -1, "FFFFFFFF"),
        ("o", 8, "10"),
        ("#o", 8, "010"),
        ("p", 0xBEEF, "0000BEEF"),
        ("c", 0x263A, "☺"),
        ("3c", 65, "  A"),
        ("c", -1, "\u{FFFD}"),
    ] {
        assert_eq!(
            expand_with_integers(&format!("%1!{format}!"), &[value]),
            expected,
            "{format:?} of {value}"
        );
    }
}

#[test]
fn numbers_of_eight_bytes_keep_all_digits() {
    let format_number = |format: &str, value: i128| {
        let mut out = Vec::new();
        InsertFormat::parse(format).unwrap().push_number(value, 8, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(format_number("d", i128::from(u64::MAX)), "18446744073709551615");
    assert_eq!(format_number("d", i128::from(i64::MIN)), "-9223372036854775808");
    assert_eq!(format_number("x", -1), "ffffffffffffffff");
    assert_eq!(format_number("p", 1), "0000000000000001");
    assert_eq!(format_number(".300d", 1).len(), 255);
}

#[test]
fn padding_counts_characters_and_is_bounded() {
    let format_text = |format: &str, text: &str| {
        let mut out = Vec::new();
        InsertFormat::parse(format).unwrap().push_text(text, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(format_text("4s", "äö"), "  äö");
    assert_eq!(format_text(".1s", "äö"), "ä");
    assert_eq!(format_text("99999s", "").len(), 255);
}

#[test]
fn invalid_formats_are_refused() {
    for format in ["", "q", "5", "-", "s ", "ds", "*d", ".*s", "%d", "5.5.5d", "I65d", "ä"] {
        assert_eq!(InsertFormat::parse(format), None, "{format:?}");
    }
}

proptest! {
    #[test]
    fn any_text_expands_in_the_same_way_twice(message in any::<String>(), values in prop::collection::vec(any::<i64>(), 0..4)) {
        let values: Vec<_> = values.into_iter().map(i128::from).collect();
        let expanded = expand_with_integers(&message, &values);
        prop_assert_eq!(expanded, expand_with_integers(&message, &values));
    }

    #[test]
    fn expansion_of_any_escapes_is_bounded(
        message in "(%[0-9a-z%!. ]?|![-+0 #]?[0-9*]{0,4}(I64)?[sdxXupc]!|[a\r\n]){0,12}"
    ) {
        let out = expand_with_integers(&message, &[1, -2, i128::from(u64::MAX)]);
        prop_assert!(out.len() <= message.len().saturating_mul(64));
    }

    #[test]
    fn text_without_percent_signs_is_unchanged(message in "[^%\r\n\0]*") {
        prop_assert_eq!(expand_with_integers(&message, &[]), message);
    }

    #[test]
    fn numbers_are_padded_as_in_the_standard_library(value in any::<i64>(), width in 0..40_usize) {
        let mut out = Vec::new();
        InsertFormat::parse(&format!("{width}d")).unwrap().push_number(value.into(), 8, &mut out);
        out.push(b' ');
        InsertFormat::parse(&format!("0{width}x")).unwrap().push_number(value.into(), 8, &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{value:width$} {value:0width$x}"));
    }
}
