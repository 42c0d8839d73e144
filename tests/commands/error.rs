//! Tests of `weir error`, which explains status codes.

use crate::util::weir;

#[test]
fn code_is_printed_with_number_name_text_and_advice() {
    let run = weir(["error", "4201"]).expect(0);
    let text = run.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("4201 (0x1069) ERROR_WMI_INSTANCE_NOT_FOUND: session is not running"));
    assert!(
        lines.next().is_some_and(|advice| advice.starts_with("  ") && advice.contains("weir list")),
        "the second line is not the advice: {text}"
    );
    assert_eq!(lines.next(), None);
    assert!(run.stderr.is_empty());
}

#[test]
fn every_spelling_of_a_code_gives_the_same_text() {
    // A hexadecimal number, an HRESULT (also as a signed number), an NTSTATUS, and two names.
    let spellings = [
        "0x1069",
        "0x80071069",
        "-2147020695",
        "0xC0000296",
        "error_wmi_instance_not_found",
        "STATUS_WMI_INSTANCE_NOT_FOUND",
    ];
    for spelling in spellings {
        let text = weir(["error", spelling]).expect(0).text();
        assert!(
            text.contains("4201 (0x1069) ERROR_WMI_INSTANCE_NOT_FOUND: session is not running"),
            "{spelling}: {text}"
        );
    }
    let text = weir(["error", "0xC0000296"]).expect(0).text();
    assert!(text.starts_with("0xC0000296 STATUS_WMI_INSTANCE_NOT_FOUND is 4201"), "{text}");
}

#[test]
fn several_codes_are_printed_as_objects_in_order() {
    let objects = weir(["error", "--json", "5", "0x8007000E", "0xC0000188"]).expect(0).json();
    let printed: Vec<_> = objects
        .iter()
        .map(|code| (&code["given"], &code["code"], &code["status"], &code["status_name"]))
        .collect();
    let expected = [
        ("5".into(), 5.into(), 5.into(), "ERROR_ACCESS_DENIED".into()),
        ("0x8007000E".into(), 0x8007_000E_u32.into(), 14.into(), "ERROR_OUTOFMEMORY".into()),
        ("0xC0000188".into(), 0xC000_0188_u32.into(), 0xC000_0188_u32.into(), "STATUS_LOG_FILE_FULL".into()),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(given, code, status, name): &(serde_json::Value, _, _, _)| (given, code, status, name))
        .collect();
    assert_eq!(printed, expected);
    assert_eq!((&objects[1]["alias"], &objects[1]["hex"]), (&"E_OUTOFMEMORY".into(), &"0x8007000E".into()));
    assert!(objects.iter().all(|code| code["text"].is_string() && code["advice"].is_string()));
}

#[test]
fn unknown_codes_fail_and_known_codes_are_printed() {
    // 57005 is 0xDEAD.
    let run = weir(["error", "57005", "112", "0x8007DEAD"]).expect(1);
    assert!(run.text().starts_with("112 (0x70) ERROR_DISK_FULL"), "{}", run.text());
    for unknown in ["57005: unknown status 0x0000DEAD", "0x8007DEAD: unknown status 0x8007DEAD"] {
        assert!(run.stderr.contains(unknown), "{}", run.stderr);
    }
    let run = weir(["error", "ERROR_NONSENSE"]).expect(2);
    assert!(run.stderr.contains("nor the name of a status"), "{}", run.stderr);
    weir(["error", "0x100000000"]).expect(2);
    weir(["error"]).expect(2);
}

#[test]
fn options_may_precede_or_follow_codes() {
    let before = weir(["error", "--json", "ERROR_WMI_INSTANCE_NOT_FOUND"]).expect(0).json();
    let after = weir(["error", "ERROR_WMI_INSTANCE_NOT_FOUND", "--json"]).expect(0).json();
    assert_eq!(before, after);
    assert_eq!(after[0]["status"], 4201);
    // The negative numbers are the HRESULTs 0x80070057 and 0x80071069.
    let codes = weir(["error", "5", "--json", "-2147024809", "-2147020695"]).expect(0).json();
    assert_eq!(codes.iter().map(|code| code["status"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 87, 4201]);
    let text = weir(["error", "5", "--", "-2147024809"]).expect(0).text();
    assert!(
        text.contains("5 (0x5) ERROR_ACCESS_DENIED") && text.contains("ERROR_INVALID_PARAMETER"),
        "{text}"
    );
    for help in [["error", "4201", "-h"], ["error", "4201", "--help"]] {
        assert!(weir(help).expect(0).text().contains("Examples:"), "{help:?}");
    }
    let run = weir(["error", "5", "--jsn"]).expect(2);
    assert!(run.stderr.contains("--json"), "{}", run.stderr);
}

#[test]
fn name_sharing_its_number_with_another_code_keeps_its_name() {
    let text = weir(["error", "S_FALSE"]).expect(0).text();
    assert!(text.starts_with("1 (0x1) S_FALSE: completed") && text.contains("success"), "{text}");
    let object = &weir(["error", "s_false", "--json"]).expect(0).json()[0];
    assert_eq!((&object["code"], &object["status_name"]), (&1.into(), &"S_FALSE".into()));
    assert!(weir(["error", "1"]).expect(0).text().contains("ERROR_INVALID_FUNCTION"));
}
