//! Tests of filters, each alone and combined. `write_five_events` has a table of the events that
//! they select from.

use super::{arg, dumped_event_names, five_events, fixture_path, make_folder, write_file};
use crate::util::weir;

const HEADER: &str = "EventTrace/Header";

#[track_caller]
fn assert_dumped(arguments: &[&str], expected: &[&str]) {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    assert_eq!(dumped_event_names(&path, arguments), expected, "{arguments:?}");
}

#[test]
fn without_filters_every_event_is_printed() {
    assert_dumped(&[], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn provider_filter_takes_names_patterns_and_guids_in_any_case() {
    assert_dumped(&["--provider", "Shop.A"], &["Alpha", "Beta"]);
    assert_dumped(&["--provider", "shop.a"], &["Alpha", "Beta"]);
    assert_dumped(&["--provider", "*.b", "--provider", "Shop.C"], &["Alpha", "Gamma", "Delta"]);
    assert_dumped(&["--provider", "Shop.?"], &["Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
    assert_dumped(&["--provider", "Shop"], &[]);
    // The GUID of the class EventTrace, to which the log-file header belongs.
    assert_dumped(&["--provider", "68fdd900-4a3e-11d1-84f4-0000f80464e3"], &[HEADER]);
    assert_dumped(&["--provider", "{68FDD900-4A3E-11D1-84F4-0000F80464E3}"], &[HEADER]);
}

#[test]
fn event_filter_takes_names_patterns_and_ids() {
    assert_dumped(&["--event", "alpha"], &["Alpha", "Alpha"]);
    assert_dumped(&["--event", "*ta"], &["Beta", "Delta"]);
    assert_dumped(&["--event", "Beta", "--event", "Gamma"], &["Beta", "Gamma"]);
    assert_dumped(&["--event", "77"], &[]);
    assert_eq!(dumped_event_names(&fixture_path("tracelogging"), &["--event", "3"]), ["NoFields"]);
}

#[test]
fn level_filter_keeps_more_severe_and_level_0_events() {
    assert_dumped(&["--level", "warning"], &[HEADER, "Alpha", "Beta", "Delta"]);
    assert_dumped(&["--level", "1"], &[HEADER, "Alpha", "Delta"]);
    assert_dumped(&["--level", "Verbose"], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn keyword_filter_matches_any_bit_of_its_mask() {
    assert_dumped(&["--keyword", "0x3"], &["Alpha", "Beta", "Delta"]);
    assert_dumped(&["--keyword", "4"], &["Alpha"]);
    assert_dumped(&["--keyword", "0xFFFFFFFFFFFFFFFF"], &["Alpha", "Beta", "Alpha", "Delta"]);
}

#[test]
fn process_thread_and_processor_filters_take_numbers() {
    assert_dumped(&["--pid", "10"], &["Alpha", "Beta"]);
    assert_dumped(&["--pid", "10", "--pid", "30"], &["Alpha", "Beta", "Delta"]);
    assert_dumped(&["--tid", "22"], &["Gamma"]);
    assert_dumped(&["--cpu", "1"], &["Beta", "Gamma"]);
    assert_dumped(&["--cpu", "0", "--cpu", "1", "--pid", "20"], &["Alpha", "Gamma"]);
    assert_dumped(&["--pid", "99"], &[]);
}

#[test]
fn process_filter_matches_process_ids_in_payloads() {
    let kernel = fixture_path("kernel");
    let names = dumped_event_names(&kernel, &["--pid", "3000"]);
    for expected in ["Process/Start", "PerfInfo/SampleProf", "DiskIo/Read", "TcpIp/Send"] {
        assert!(names.iter().any(|name| name == expected), "no {expected} in {names:?}");
    }
    assert!(!names.iter().any(|name| name == "SystemConfig/CPU"), "an event of no process: {names:?}");
    assert!(dumped_event_names(&kernel, &["--tid", "3004"]).contains(&"Thread/ReadyThread".to_owned()));
}

#[test]
fn times_are_utc_or_offsets_from_the_start() {
    assert_dumped(&["--from", "200us"], &["Beta", "Alpha", "Gamma", "Delta"]);
    assert_dumped(&["--to", "0.0002s"], &[HEADER, "Alpha", "Beta"]);
    assert_dumped(&["--from", "0.2ms", "--to", "400000ns"], &["Beta", "Alpha", "Gamma"]);
    assert_dumped(&["--from", "2024-05-01T10:00:00.0003Z"], &["Alpha", "Gamma", "Delta"]);
    assert_dumped(&["--to", "2024-05-01 10:00:00.0001"], &[HEADER, "Alpha"]);
    assert_dumped(&["--from", "2024-05-02"], &[]);
    assert_dumped(&["--from", "-1s", "--to", "-1ms"], &[]);
}

#[test]
fn head_counts_events_that_passed_the_other_filters() {
    assert_dumped(&["--head", "2"], &[HEADER, "Alpha", "Beta"]);
    assert_dumped(&["--head", "1", "--provider", "Shop.B"], &["Alpha"]);
    assert_dumped(&["--head", "99"], &[HEADER, "Alpha", "Beta", "Alpha", "Gamma", "Delta"]);
}

#[test]
fn filters_of_different_kinds_must_all_match() {
    assert_dumped(
        &["--provider", "Shop.*", "--level", "4", "--keyword", "0x7", "--cpu", "0", "--from", "150us"],
        &["Alpha", "Delta"],
    );
    assert_dumped(&["--provider", "Shop.A", "--pid", "20"], &[]);
    assert_dumped(&["--event", "alpha", "--grep", "THREE", "--head", "1"], &["Alpha"]);
}

#[test]
fn grep_finds_text_in_every_format_in_any_case() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for format in ["text", "jsonl", "csv", "xml"] {
        for (pattern, matching, not_matching) in
            [("four", "FOUR", "three"), ("CRÈME BRÛLÉE", "crème brûlée", "FOUR"), ("says=TWO", "two", "FOUR")]
        {
            let printed = weir(["dump", arg(&path), "--format", format, "--grep", pattern]).expect(0).text();
            assert!(
                printed.contains(matching) && !printed.contains(not_matching),
                "{format} {pattern}: {printed}"
            );
        }
        let nothing = weir(["dump", arg(&path), "--format", format, "--grep", "nowhere"]).expect(0).text();
        assert!(!nothing.contains("Shop"), "{format}: {nothing}");
    }
    assert_dumped(&["--grep", "Shop.B/gamma"], &["Gamma"]);
}

#[test]
fn grep_searches_values_not_their_escaped_output() {
    // Quotes, line ends, angle brackets and control characters: some output formats escape them.
    let path = fixture_path("tracelogging");
    for pattern in ["b \"c\" <d>", "one\r\ntwo", "\u{1b}[31m"] {
        for format in ["text", "jsonl", "csv", "xml"] {
            let run = weir(["dump", arg(&path), "--format", format, "--grep", pattern]).expect(0);
            assert!(run.text().contains("HardTexts"), "{format}: {pattern:?} is not found");
        }
    }
    // Without the manifest no schema describes these events; their bytes are searched as 8-bit and
    // as 16-bit characters.
    for pattern in ["Ünïcode", "ver1.2"] {
        let run =
            weir(["dump", arg(&fixture_path("manifest")), "--format", "jsonl", "--grep", pattern]).expect(0);
        let events = run.json();
        assert!(!events.is_empty(), "{pattern} is not found");
        assert!(events.iter().all(|event| event["undecoded"].is_string()), "{pattern}: an event is decoded");
    }
}

#[test]
fn events_are_selected_by_alternative_and_partial_names() {
    let kernel = fixture_path("kernel");
    let count = |arguments: &[&str]| {
        let mut command = vec!["dump", arg(&kernel), "--format", "jsonl"];
        command.extend(arguments);
        weir(&command).expect(0).json().len()
    };
    let processes = count(&["--event", "Process/*"]);
    assert!(processes > 0);
    assert_eq!(count(&["--provider", "Windows Kernel (Process)"]), processes);
    assert!(count(&["--event", "Start"]) > 0, "no event matches the last part of a name");
    assert_eq!(count(&["--event", "ProcessStart"]), count(&["--event", "Process/Start"]));
    assert_eq!(
        count(&["--event", "80"]),
        count(&["--event", "PartitionInfoExtension"]),
        "the type of a kernel event selects other events than its name"
    );
}

#[test]
fn grep_without_a_match_is_reported() {
    // The pattern begins with a dash, like an option.
    let run = weir(["dump", arg(&fixture_path("kernel")), "--grep=-nowhere"]).expect(0);
    assert!(run.stderr.contains("no event matched"), "{}", run.stderr);
}

#[test]
fn filters_without_a_match_are_explained() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for (arguments, words) in [
        (&["--event", "Nothing"][..], "no event matched; weir stats lists the names"),
        (&["--from", "1h"], "no event matched; weir info shows the times"),
        (&["-p", "Shop.A:0x1:4"], "; --provider takes one name or GUID"),
        (&["--level", "warning"], "note: 1 event of level 0, which --level always shows"),
    ] {
        let run = weir([&["dump", arg(&path)], arguments].concat()).expect(0);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    }
    let run = weir(["stats", arg(&path), "--event", "Nothing"]).expect(0);
    assert!(run.stderr.contains("no event matched"), "{}", run.stderr);
    let run = weir(["dump", arg(&path), "--symbols"]).expect(0);
    assert!(run.stderr.contains("--kernel image_load"), "{}", run.stderr);
}

#[test]
fn provider_without_events_is_reported_with_those_of_the_trace() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let stderr = |arguments: &[&str]| weir([&["dump", arg(&path)], arguments].concat()).expect(0).stderr;
    let text = stderr(&["-p", "Shop.AA"]);
    assert!(text.contains("no event matched: the trace has events of Shop.A"), "{text}");
    assert!(text.contains(". Did you mean Shop.A"), "{text}");
    let text = stderr(&["-p", "0adbd5b5-0b3a-4f0e-9bb7-6b5a5f3e0001"]);
    assert!(text.contains("the trace has events of "), "{text}");
    // The provider has events, which another filter rejects.
    let text = stderr(&["-p", "Shop.A", "--grep", "nowhere"]);
    assert!(text.contains("no event matched") && !text.contains("the trace has"), "{text}");
    let text = weir(["dump", arg(&fixture_path("kernel")), "-p", "Nothing"]).expect(0).stderr;
    assert!(text.contains("Windows Kernel (") && text.contains(" more"), "{text}");
}

#[test]
fn stats_count_only_filtered_events() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for (arguments, events) in [
        (&["--provider", "Shop.A"][..], 2),
        (&["--grep", "four"], 1),
        (&["--level", "3", "--pid", "10"], 2),
        (&["--head", "3"], 3),
        (&["--cpu", "1", "--from", "300us"], 1),
    ] {
        let mut command = vec!["stats", "--json", "--by", "provider", arg(&path)];
        command.extend(arguments);
        let counted: u64 =
            weir(&command).expect(0).json().iter().map(|row| row["events"].as_u64().unwrap()).sum();
        assert_eq!(counted, events, "{arguments:?}");
    }
}

#[test]
fn invalid_values_are_refused_with_valid_alternatives() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for (arguments, code, hint) in [
        (["--level", "loud"], 2, "critical, error, warning"),
        (["--level", "256"], 2, "0 to 255"),
        (["--keyword", "network"], 2, "0x"),
        (["--from", "yesterday"], 2, "1.5s"),
        (["--to", "12x"], 2, "200ms"),
        (["--from", "2024-02-30"], 2, "2020-07-29T"),
        (["--pid", "shell"], 2, "--pid"),
        (["--cpu", "70000"], 2, "--cpu"),
        (["--head", "0"], 2, "--head"),
        (["--format", "yaml"], 2, "text, jsonl, csv, xml"),
        (["--colour", "no"], 2, "--help"),
    ] {
        let run = weir(["dump", arg(&path), arguments[0], arguments[1]]).expect(code);
        assert!(run.stderr.contains(hint), "{arguments:?}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{arguments:?} prints data");
    }
}
