//! Tests of standard output, standard error and output files.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use traceweir_format::etl::Options;
use traceweir_format::header::extended::Item;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::session::LogFileMode;
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{arg, dump_jsonl, five_events, five_events_with, fixture_path, make_folder, write_file};
use crate::golden::{SelfDescribing, TraceMaker, run_to_end, session_options};
use crate::util::{weir, weir_command};

#[test]
fn only_data_goes_to_standard_output() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let run = dump_jsonl(&path, &[]).expect(0);
    // The header event and five events.
    assert_eq!((run.json().len(), run.stderr.as_str()), (6, ""));
}

#[test]
fn missing_folder_of_an_output_is_named() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let run = weir(["dump", arg(&path), "-o", "/nosuch/x"]).expect(1);
    assert!(run.stderr.contains("cannot write: /nosuch/x: folder /nosuch does not exist"), "{}", run.stderr);
}

#[test]
fn output_option_writes_the_same_bytes_to_a_file() {
    let folder = make_folder();
    let out = folder.path().join("out");
    for format in ["text", "jsonl", "csv", "xml"] {
        let printed = weir(["dump", "--format", format, arg(&fixture_path("tracelogging"))]).expect(0).stdout;
        let run = weir([
            "dump",
            "--format",
            format,
            arg(&fixture_path("tracelogging")),
            "-o",
            arg(&out),
            "--force",
        ])
        .expect(0);
        assert!(run.stdout.is_empty());
        assert_eq!(std::fs::read(&out).unwrap(), printed, "{format}");
    }
}

#[test]
fn output_option_never_overwrites_an_input() {
    let folder = make_folder();
    let bytes = five_events();
    let path = write_file(&folder, "five.etl", &bytes);
    let link = folder.path().join("link.etl");
    std::fs::hard_link(&path, &link).unwrap();
    for out in [&path, &link] {
        let run = weir(["dump", arg(&path), "-o", arg(out)]).expect(1);
        assert!(run.stderr.contains("is an input"), "{}", run.stderr);
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn unwritable_output_is_named() {
    let folder = make_folder();
    let out = folder.path().join("missing/out.txt");
    let run = weir(["dump", arg(&fixture_path("tracelogging")), "-o", arg(&out)]).expect(1);
    assert!(run.stderr.contains("cannot write") && run.stderr.contains("missing/out.txt"), "{}", run.stderr);
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let folder = make_folder();
    let mut maker = TraceMaker::new(session_options("long"));
    let event = SelfDescribing::new("Shop.Long");
    for _ in 0..20_000 {
        event.write(&mut maker, 0, &mut MetadataBuilder::new("Tick", 0), &[], &[]);
    }
    let path = write_file(&folder, "long.etl", &maker.finish());
    for format in ["text", "jsonl", "csv", "xml"] {
        let mut child = weir_command(["dump", "--format", format, arg(&path)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let status = child.wait().unwrap();
        let mut messages = String::new();
        child.stderr.take().unwrap().read_to_string(&mut messages).unwrap();
        assert_eq!((status.code(), messages.as_str()), (Some(0), ""), "{format}");
    }
}

/// Returns the beginning of each line of a dump: the columns of time and level.
fn dump_columns(path: &std::path::Path, options: &[&str]) -> Vec<String> {
    let mut command = weir_command([&["dump", arg(path)], options].concat());
    let text = run_to_end(command.env("TZ", "IST-5:30")).expect(0).text();
    text.lines().map(|line| line.split_once(" [").unwrap().0.to_owned()).collect()
}

#[test]
fn level_is_printed_as_a_letter() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let letters: Vec<String> =
        dump_columns(&path, &[]).iter().map(|columns| columns.chars().last().unwrap().to_string()).collect();
    assert_eq!(letters, ["C", "W", "I", "V", "-"]);
    // Kernel events have no level; their columns are aligned with those of other events.
    let columns = dump_columns(&fixture_path("kernel"), &[]);
    assert!(columns.iter().all(|columns| columns.ends_with("  ") && columns.len() == 29), "{columns:?}");
}

#[test]
fn time_is_printed_in_the_requested_style() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for (style, expected) in [
        ("abs", ["2024-05-01 10:00:00.0001000 C", "2024-05-01 10:00:00.0002000 W"]),
        ("local", ["2024-05-01 15:30:00.0001000 C", "2024-05-01 15:30:00.0002000 W"]),
        ("rel", ["    0.0001000 C", "    0.0002000 W"]),
        ("delta", ["    0.0000000 C", "    0.0001000 W"]),
    ] {
        assert_eq!(dump_columns(&path, &["--time", style])[..2], expected, "{style}");
    }
    // The time of a line is what --from takes.
    let skipped = dump_columns(&path, &["--time", "rel", "--from", "300us"]);
    assert_eq!(skipped[0], "    0.0003000 I");
}

#[test]
fn tail_prints_the_last_events_in_every_format() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for (format, other_lines) in [("text", 0), ("jsonl", 0), ("csv", 1)] {
        let text = weir(["dump", "--format", format, "--tail", "2", arg(&path)]).expect(0).text();
        assert_eq!(text.lines().count(), 2 + other_lines, "{format}: {text}");
        assert!(
            text.contains("Gamma") && text.contains("Delta") && !text.contains("Beta"),
            "{format}: {text}"
        );
    }
    let xml = weir(["dump", "--format", "xml", "--tail", "1", arg(&path)]).expect(0).text();
    assert!(xml.matches("<Event ").count() == 1 && xml.trim_end().ends_with("</Events>"), "{xml}");
    let text = weir(["dump", "--stacks", "--tail", "2", "--event", "Alpha", arg(&path)]).expect(0).text();
    assert_eq!(text.lines().count(), 2, "{text}");
    weir(["dump", "--tail", "2", "--head", "2", arg(&path)]).expect(2);
    assert_eq!(weir(["dump", "--tail", "100", arg(&path)]).expect(0).text().lines().count(), 5);
}

#[test]
fn follow_reads_only_files_that_a_session_may_write() {
    let folder = make_folder();
    // Following a finalised file ends after its last event.
    let path = write_file(&folder, "five.etl", &five_events());
    let text = weir(["dump", "--follow", arg(&path)]).expect(0).text();
    assert_eq!(text, weir(["dump", arg(&path)]).expect(0).text());
    let text = weir(["dump", "--follow", "--tail", "1", arg(&path)]).expect(0).text();
    assert!(text.lines().count() == 1 && text.contains("Delta"), "{text}");
    let options = Options { log_file_mode: LogFileMode::CIRCULAR.bits(), ..session_options("circular") };
    let circular = write_file(&folder, "circular.etl", &five_events_with(options));
    let run = weir(["dump", "--follow", arg(&circular)]).expect(1);
    assert!(run.stderr.contains("circular") && run.stderr.contains("weir watch"), "{}", run.stderr);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&five_events()).unwrap();
    let packed = write_file(&folder, "five.etl.gz", &packed.finish().unwrap());
    let run = weir(["dump", "--follow", arg(&packed)]).expect(1);
    assert!(run.stderr.contains("not an archive"), "{}", run.stderr);
    let run = weir(["dump", "--follow", arg(&path), arg(&path)]).expect(1);
    assert!(run.stderr.contains("one file"), "{}", run.stderr);
}

#[test]
fn control_characters_in_names_are_escaped() {
    let folder = make_folder();
    let mut maker = TraceMaker::new(session_options("hostile"));
    let event = SelfDescribing::new("Shop\x1b]0;owned\x07");
    let mut metadata = MetadataBuilder::new("Evil\r\n\u{9b}2J", 0);
    // A byte that is printed as a character, and a text in UTF-8.
    metadata.add_field("na\x1bme", 4, 2, 0).add_field("text", 2, 35, 0);
    event.write(&mut maker, 0, &mut metadata, b"\x1b\xC2\x9B2J\x08\0", &[]);
    let path = write_file(&folder, "hostile.etl", &maker.finish());
    for verb in ["dump", "stats", "info"] {
        let printed = weir([verb, arg(&path)]).expect(0).text();
        let is_unsafe = |c: char| c.is_control() && c != '\n';
        assert!(!printed.contains(is_unsafe), "{verb}: {printed:?}");
    }
    let lines = weir(["dump", arg(&path)]).expect(0).text().lines().count();
    assert_eq!(lines, 1, "an event has more than one line");
}

#[test]
fn undecoded_events_are_counted_by_reason_in_every_format() {
    for format in ["text", "jsonl", "csv", "xml"] {
        let run = weir(["dump", "--format", format, arg(&fixture_path("undecodable"))]).expect(0);
        let messages: Vec<_> = run.stderr.lines().map(str::trim).collect();
        assert_eq!(messages[0], "13 of 15 events could not be decoded:", "{format}");
        for reason in [
            "4  no schema: give the provider's manifest or binary with --manifest",
            "3  damaged metadata in the event",
            "4  payloads that do not fit their schema",
            "1  kernel events without a published layout",
            "1  WPP messages without a format: give --tmf or --pdb",
        ] {
            assert!(messages.contains(&reason), "{format}: no {reason} in {messages:?}");
        }
        let provider_lines: Vec<_> = messages.iter().filter(|line| line.starts_with("no ")).collect();
        assert!(provider_lines.iter().any(|line| line.starts_with("no schema of provider ")
            && line.ends_with("--manifest FILE, its manifest or the program that contains it")));
        assert!(provider_lines.iter().any(|line| line.starts_with("no formats of WPP messages {")
            && line.ends_with(" (1 message): --tmf FILE or --pdb FILE")));
        let unique: BTreeSet<_> = provider_lines.iter().collect();
        assert_eq!(unique.len(), provider_lines.len(), "{format}: a provider comes twice: {messages:?}");
    }
    let run = weir(["dump", arg(&fixture_path("undecodable")), "--event", "Long"]).expect(0);
    assert!(
        !run.stderr.contains("could not be decoded"),
        "events that were not printed are counted: {}",
        run.stderr
    );
    assert!(
        run.stderr.contains("were not compared by name"),
        "the filter by name does not report undecoded events: {}",
        run.stderr
    );
}

#[test]
fn numeric_option_prints_numbers_instead_of_names() {
    let manifest = crate::util::root().join("fixtures/manifests/everything.man");
    let states = |arguments: &[&str]| {
        let mut options = vec!["--manifest", arg(&manifest), "--event", "MapsEvent"];
        options.extend(arguments);
        let events = dump_jsonl(&fixture_path("manifest"), &options).expect(0).json();
        events.iter().map(|event| event["fields"]["State"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(states(&[]), [serde_json::json!("Open"), "Closed".into(), 3.into(), 7.into()]);
    assert_eq!(states(&["--numeric"]), [serde_json::json!(1), 2.into(), 3.into(), 7.into()]);
}

/// Builds a trace of one event with a call stack, after an event that records where a program was
/// loaded.
fn trace_with_one_stack() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("stack"));
    let mut image = Vec::new();
    // Base, size, process, …, default base, …, name.
    image.put_u64(0x7FF6_0000_0000).put_u64(0x4_0000).put_u32(1200).put(&[0; 12]).put_u64(0x7FF6_0000_0000);
    image.put(&[0; 16]).put_wide_z("\\Device\\HarddiskVolume1\\shop.exe");
    maker.write_system(0, hook::IMAGE_LOAD, 3, (1200, 1204), &image);
    let mut event = SelfDescribing::new("Shop.Stack");
    (event.header.process_id, event.header.thread_id) = (1200, 1204);
    let mut stack = Vec::new();
    // The match id and two frames.
    stack.put_u64(0).put_u64(0x7FF6_0000_1234).put_u64(0x7FFB_0000_3000);
    let items = [
        Item { kind: ExtType::STACK_TRACE64, data: &stack },
        Item { kind: ExtType::TS_ID, data: &[3, 0, 0, 0] },
        Item { kind: ExtType::PROCESS_START_KEY, data: &[9, 0, 0, 0, 0, 0, 0, 0] },
    ];
    event.write(&mut maker, 0, &mut MetadataBuilder::new("Sold", 0), &[], &items);
    maker.finish()
}

#[test]
fn requested_stacks_are_printed_below_their_event() {
    let folder = make_folder();
    let path = write_file(&folder, "stack.etl", &trace_with_one_stack());
    let plain = weir(["dump", arg(&path), "--event", "Sold"]).expect(0).text();
    assert_eq!(plain.lines().count(), 1, "{plain}");
    let run = weir(["dump", arg(&path), "--event", "Sold", "--stacks"]).expect(0).text();
    assert_eq!(run, format!("{plain}    shop.exe+0x1234\n    0x7ffb00003000\n"));
}

#[test]
fn csv_has_columns_for_requested_extended_data_items() {
    let folder = make_folder();
    let path = write_file(&folder, "items.etl", &trace_with_one_stack());
    let csv = |options: &[&str]| {
        let mut command = vec!["dump", "--format", "csv", "--event", "Sold", arg(&path)];
        command.extend(options);
        let lines = weir(&command).expect(0).text();
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (plain, with_items) = (csv(&[]), csv(&["--items"]));
    assert!(plain[0].ends_with(",related,stack"), "{}", plain[0]);
    assert_eq!(with_items[0], format!("{},sid,session,app,start_key,event_key,container", plain[0]));
    assert_eq!(with_items[1], format!("{},,3,,0x9,,", plain[1]));
}
