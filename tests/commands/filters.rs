//! Filters, each alone and combined.

use super::{five_events, fixture, folder, names, store, text};
use crate::util::weir;

const HEADER: &str = "EventTrace/Header";

#[track_caller]
fn check(arguments: &[&str], expected: &[&str]) {
    let folder = folder();
    let path = store(&folder, "five.etl", &five_events());
    assert_eq!(names(&path, arguments), expected, "{arguments:?}");
}

#[test]
fn without_filters_every_event_is_printed() {
    check(&[], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn provider_filter_takes_names_patterns_and_guids_in_any_case() {
    check(&["--provider", "Shop.A"], &["Alpha", "Beta"]);
    check(&["--provider", "shop.a"], &["Alpha", "Beta"]);
    check(&["--provider", "*.b", "--provider", "Shop.C"], &["Alpha", "Gamma", "Delta"]);
    check(&["--provider", "Shop.?"], &["Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
    check(&["--provider", "Shop"], &[]);
    check(&["--provider", "68fdd900-4a3e-11d1-84f4-0000f80464e3"], &[HEADER]);
    check(&["--provider", "{68FDD900-4A3E-11D1-84F4-0000F80464E3}"], &[HEADER]);
}

#[test]
fn event_filter_takes_names_patterns_and_ids() {
    check(&["--event", "alpha"], &["Alpha", "Alpha"]);
    check(&["--event", "*ta"], &["Beta", "Delta"]);
    check(&["--event", "Beta", "--event", "Gamma"], &["Beta", "Gamma"]);
    check(&["--event", "77"], &[]);
    assert_eq!(names(&fixture("tracelogging"), &["--event", "3"]), ["NoFields"]);
}

#[test]
fn level_filter_keeps_more_severe_and_level_0_events() {
    check(&["--level", "warning"], &[HEADER, "Alpha", "Beta", "Delta"]);
    check(&["--level", "1"], &[HEADER, "Alpha", "Delta"]);
    check(&["--level", "Verbose"], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn keyword_filter_matches_any_bit_of_its_mask() {
    check(&["--keyword", "0x3"], &["Alpha", "Beta", "Delta"]);
    check(&["--keyword", "4"], &["Alpha"]);
    check(&["--keyword", "0xFFFFFFFFFFFFFFFF"], &["Alpha", "Beta", "Alpha", "Delta"]);
}

#[test]
fn process_thread_and_processor_filters_take_numbers() {
    check(&["--pid", "10"], &["Alpha", "Beta"]);
    check(&["--pid", "10", "--pid", "30"], &["Alpha", "Beta", "Delta"]);
    check(&["--tid", "22"], &["Gamma"]);
    check(&["--cpu", "1"], &["Beta", "Gamma"]);
    check(&["--cpu", "0", "--cpu", "1", "--pid", "20"], &["Alpha", "Gamma"]);
    check(&["--pid", "99"], &[]);
}

#[test]
fn process_filter_matches_process_ids_in_payloads() {
    let kernel = fixture("kernel");
    let found = names(&kernel, &["--pid", "3000"]);
    for name in ["Process/Start", "PerfInfo/SampleProf", "DiskIo/Read", "TcpIp/Send"] {
        assert!(found.iter().any(|n| n == name), "{name} in {found:?}");
    }
    assert!(!found.iter().any(|n| n == "SystemConfig/CPU"), "{found:?}");
    assert!(names(&kernel, &["--tid", "3004"]).contains(&"Thread/ReadyThread".to_owned()));
}

#[test]
fn times_are_utc_or_offsets_from_the_start() {
    check(&["--from", "200us"], &["Beta", "Alpha", "Gamma", "Delta"]);
    check(&["--to", "0.0002s"], &[HEADER, "Alpha", "Beta"]);
    check(&["--from", "0.2ms", "--to", "400000ns"], &["Beta", "Alpha", "Gamma"]);
    check(&["--from", "2024-05-01T10:00:00.0003Z"], &["Alpha", "Gamma", "Delta"]);
    check(&["--to", "2024-05-01 10:00:00.0001"], &[HEADER, "Alpha"]);
    check(&["--from", "2024-05-02"], &[]);
    check(&["--from", "-1s", "--to", "-1ms"], &[]);
}

#[test]
fn head_counts_events_that_passed_the_other_filters() {
    check(&["--head", "2"], &[HEADER, "Alpha"]);
    check(&["--head", "1", "--provider", "Shop.B"], &["Alpha"]);
    check(&["--head", "99"], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn filters_of_different_kinds_must_all_match() {
    check(
        &["--provider", "Shop.*", "--level", "4", "--keyword", "0x7", "--cpu", "0", "--from", "150us"],
        &["Alpha", "Delta"],
    );
    check(&["--provider", "Shop.A", "--pid", "20"], &[]);
    check(&["--event", "alpha", "--grep", "THREE", "--head", "1"], &["Alpha"]);
}

#[test]
fn grep_finds_text_in_every_format_in_any_case() {
    let folder = folder();
    let path = store(&folder, "five.etl", &five_events());
    for format in ["text", "jsonl", "csv", "xml"] {
        for (wanted, says, other) in
            [("four", "FOUR", "three"), ("CRÈME BRÛLÉE", "crème brûlée", "FOUR"), ("says=TWO", "two", "FOUR")]
        {
            let printed = weir(["dump", text(&path), "--format", format, "--grep", wanted]).expect(0).text();
            assert!(printed.contains(says) && !printed.contains(other), "{format} {wanted}: {printed}");
        }
        let nothing = weir(["dump", text(&path), "--format", format, "--grep", "nowhere"]).expect(0).text();
        assert!(!nothing.contains("Shop"), "{format}: {nothing}");
    }
    check(&["--grep", "Shop.B/gamma"], &["Gamma"]);
}

#[test]
fn grep_searches_values_not_their_escaped_output() {
    // The value holds a quote and a line feed, which every output format escapes.
    let path = fixture("tracelogging");
    for wanted in ["b \"c\" <d>", "one\r\ntwo", "\u{1b}[31m"] {
        for format in ["text", "jsonl", "csv", "xml"] {
            let run = weir(["dump", text(&path), "--format", format, "--grep", wanted]).expect(0);
            assert!(run.text().contains("HardTexts"), "{format}: {wanted:?}");
        }
    }
    // Without the manifest no schema describes these events; their bytes are searched as 8-bit and
    // as 16-bit characters.
    for wanted in ["Ünïcode", "ver1.2"] {
        let run = weir(["dump", text(&fixture("manifest")), "--format", "jsonl", "--grep", wanted]).expect(0);
        let found = run.json();
        assert!(!found.is_empty() && found.iter().all(|e| e["undecoded"].is_string()), "{wanted}");
    }
}

#[test]
fn names_of_other_views_and_parts_of_names_select_events() {
    let kernel = fixture("kernel");
    let count = |arguments: &[&str]| {
        let mut all = vec!["dump", text(&kernel), "--format", "jsonl"];
        all.extend(arguments);
        weir(&all).expect(0).json().len()
    };
    let processes = count(&["--event", "Process/*"]);
    assert!(processes > 0);
    assert_eq!(count(&["--provider", "Windows Kernel (Process)"]), processes);
    assert!(count(&["--event", "Start"]) > 0, "the last part of a name");
    assert_eq!(
        count(&["--event", "80"]),
        count(&["--event", "PartitionInfoExtension"]),
        "the type of a kernel event"
    );
    assert!(weir(["dump", text(&kernel), "--grep=-nowhere"]).expect(0).stderr.contains("no event matched"));
}

#[test]
fn stats_count_only_filtered_events() {
    let folder = folder();
    let path = store(&folder, "five.etl", &five_events());
    for (arguments, events) in [
        (&["--provider", "Shop.A"][..], 2),
        (&["--grep", "four"], 1),
        (&["--level", "3", "--pid", "10"], 2),
        (&["--head", "3"], 3),
        (&["--cpu", "1", "--from", "300us"], 1),
    ] {
        let mut all = vec!["stats", "--json", "--by", "provider", text(&path)];
        all.extend(arguments);
        let counted: u64 =
            weir(&all).expect(0).json().iter().map(|row| row["events"].as_u64().unwrap()).sum();
        assert_eq!(counted, events, "{arguments:?}");
    }
}

#[test]
fn invalid_values_are_refused_with_valid_alternatives() {
    let folder = folder();
    let path = store(&folder, "five.etl", &five_events());
    for (arguments, code, hint) in [
        (["--level", "loud"], 2, "critical, error, warning"),
        (["--level", "256"], 2, "0 to 255"),
        (["--keyword", "network"], 2, "0x"),
        (["--from", "yesterday"], 2, "1.5s"),
        (["--to", "12"], 2, "200ms"),
        (["--from", "2024-02-30"], 2, "2020-07-29T"),
        (["--pid", "shell"], 2, "--pid"),
        (["--cpu", "70000"], 2, "--cpu"),
        (["--head", "0"], 2, "--head"),
        (["--format", "yaml"], 2, "text, jsonl, csv, xml"),
        (["--colour", "no"], 2, "--help"),
    ] {
        let run = weir(["dump", text(&path), arguments[0], arguments[1]]).expect(code);
        assert!(run.stderr.contains(hint), "{arguments:?}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{arguments:?} prints no data");
    }
}
