//! Tests of `weir info`, `stats`, `check` and `demo`, and of the exit codes for loss and damage.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use traceweir_format::etl::Summary;
use traceweir_format::time::FileTime;

use super::{arg, dump_jsonl, five_events, fixture_path, make_folder, write_file, write_five_events};
use crate::golden::{TraceMaker, run_to_end, session_options, start_time};
use crate::util::{Daemon, Run, weir, weir_command};

fn lossy_trace() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("lossy"));
    write_five_events(&mut maker);
    let end_time = FileTime(start_time().0 + 10_000_000);
    maker.finish_with(Summary { end_time, events_lost: 41, buffers_lost: 2 })
}

/// Makes the first record of the second buffer longer than its buffer. Buffers have 0x1000 bytes
/// and a header of 0x48 bytes; a record begins with its size.
fn damage_second_buffer(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[0x1048..0x104A].copy_from_slice(&0xF000_u16.to_le_bytes());
    bytes
}

#[test]
fn loss_of_a_trace_is_reported_once_and_is_no_failure() {
    let folder = make_folder();
    let path = write_file(&folder, "lossy.etl", &lossy_trace());
    for command in
        [&["dump"][..], &["dump", "--format", "jsonl"], &["stats"], &["check"], &["info", "--json"]]
    {
        let run = weir([command, &[arg(&path)]].concat()).expect(0);
        let warnings: Vec<_> = run.stderr.lines().filter(|line| line.contains("lost")).collect();
        assert_eq!(warnings.len(), 1, "{command:?}: {}", run.stderr);
        assert!(
            warnings[0].starts_with("warning: ") && warnings[0].ends_with("lost 41 events and 2 buffers")
        );
    }
    // The page contains the losses, so there is no warning.
    let info = weir(["info", arg(&path)]).expect(0);
    assert!(info.text().contains("Lost         41 events, 2 buffers\n"), "{}", info.text());
    assert_eq!(info.stderr, "");
    assert_eq!(dump_jsonl(&path, &[]).expect(0).json().len(), 6, "events in the file are not printed");
}

#[test]
fn strict_check_exits_with_4_if_events_were_lost() {
    let folder = make_folder();
    let path = write_file(&folder, "lossy.etl", &lossy_trace());
    weir(["check", arg(&path)]).expect(0);
    weir(["check", "--strict", arg(&path)]).expect(4);
    weir(["check", "--strict", arg(&fixture_path("kernel"))]).expect(0);
    let damaged = write_file(&folder, "both.etl", &damage_second_buffer(lossy_trace()));
    weir(["check", "--strict", arg(&damaged)]).expect(3);
}

#[test]
fn counts_do_not_include_the_events_of_the_file_itself() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    assert_eq!(weir(["dump", arg(&path)]).expect(0).text().lines().count(), 5);
    assert_eq!(weir(["dump", "--all", arg(&path)]).expect(0).text().lines().count(), 6);
    let stats = weir(["stats", arg(&path)]).expect(0).text();
    assert!(stats.starts_with("5 events and 1 of the file itself, "), "{stats}");
    let info = weir(["info", arg(&path)]).expect(0).text();
    assert!(
        info.contains("\nEvents       5 from ") && info.contains(", and 1 of the file itself\n"),
        "{info}"
    );
    let info = weir(["info", "--json", arg(&path)]).expect(0).json().remove(0);
    assert_eq!((info["events"].as_u64(), info["file_events"].as_u64()), (Some(5), Some(1)));
    let check = weir(["check", arg(&path)]).expect(0);
    assert!(check.stderr.contains(": sound: 6 records in "), "{}", check.stderr);
}

#[test]
fn header_event_is_printed_as_text_only_on_request() {
    let path = fixture_path("tracelogging");
    let header = "Windows Kernel/EventTrace/Header";
    assert!(!weir(["dump", arg(&path)]).expect(0).text().contains(header));
    for option in [&["--all"][..], &["--event", "EventTrace/Header"]] {
        let text = weir([&["dump", arg(&path)], option].concat()).expect(0).text();
        assert_eq!(text.matches(header).count(), 1, "{option:?}");
    }
    // --head counts printed events.
    let text = weir(["dump", "--head", "2", arg(&path)]).expect(0).text();
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn damage_exits_with_3_and_costs_only_the_damaged_buffer() {
    let folder = make_folder();
    // The second buffer has the events of processor 0: Alpha, Alpha and Delta.
    let path = write_file(&folder, "damaged.etl", &damage_second_buffer(five_events()));
    let run = dump_jsonl(&path, &[]).expect(3);
    assert!(run.stderr.contains("warning:") && run.stderr.contains("0x1048"), "{}", run.stderr);
    let events = run.json();
    let remaining: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(
        remaining,
        ["EventTrace/Header", "Beta", "Gamma"],
        "events of the undamaged buffer are missing"
    );
    let check = weir(["check", arg(&path)]).expect(3);
    assert!(check.text().contains("0x00001048: record:"), "{}", check.text());
}

#[test]
fn damage_takes_precedence_over_loss() {
    let folder = make_folder();
    let path = write_file(&folder, "both.etl", &damage_second_buffer(lossy_trace()));
    for verb in ["info", "dump", "stats", "check"] {
        weir([verb, arg(&path)]).expect(3);
    }
}

#[test]
fn info_describes_a_trace() {
    let page = weir(["info", arg(&fixture_path("compressed"))]).expect(0).text();
    for fact in [
        "fixture-compressed",
        "2 CPUs at 2400 MHz",
        "10,000,000 Hz",
        "4 compressed",
        "0 events, 0 buffers",
        "Traceweir.Fixture.Counter",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let object = weir(["info", "--json", arg(&fixture_path("compressed"))]).expect(0).json().remove(0);
    assert_eq!(object["compressed"], true);
    assert_eq!((object["events"].as_u64(), object["cpus"].as_u64()), (Some(60), Some(2)));
    assert_eq!(object["start"], "2024-05-01T10:00:00.0000000Z");
    assert_eq!(object["providers"].as_array().unwrap().len(), 1);
    let crashed = weir(["info", "--json", arg(&fixture_path("crashed"))]).expect(3).json().remove(0);
    assert_eq!((&crashed["finalised"], &crashed["end"]), (&false.into(), &serde_json::Value::Null));
}

#[test]
fn stats_count_events_by_provider_event_and_process() {
    let path = fixture_path("kernel");
    let page = weir(["stats", arg(&path)]).expect(0).text();
    for fact in [
        "43 events and 1 of the file itself, ",
        "Windows Kernel (Thread)",
        "Windows Kernel/Thread/CSwitch",
        "child.exe (3000)",
        "more (--top 0 shows all)",
    ] {
        assert!(page.contains(fact), "no {fact} in {page}");
    }
    let rows = weir(["stats", "--json", "--top", "0", arg(&path)]).expect(0).json();
    for by in ["provider", "event", "process"] {
        let rows_of_kind = rows.iter().filter(|row| row["by"] == by);
        let sum: u64 = rows_of_kind.map(|row| row["events"].as_u64().unwrap()).sum();
        assert_eq!(sum, 43, "each event is not counted once by {by}");
    }
    let top_process = weir(["stats", "--json", "--by", "process", "--top", "1", arg(&path)]).expect(0).json();
    assert_eq!((top_process.len(), &top_process[0]["pid"]), (1, &3000.into()));
}

#[test]
fn check_is_quiet_about_sound_files_and_prints_offsets_of_defects() {
    for name in ["tracelogging", "kernel", "compressed", "merged"] {
        let run = weir(["check", arg(&fixture_path(name))]).expect(0);
        assert!(run.stdout.is_empty() && run.stderr.contains("sound"), "{name}: {}", run.stderr);
    }
    let findings = weir(["check", "--json", arg(&fixture_path("crashed"))]).expect(3).json();
    let rules: Vec<_> = findings.iter().map(|finding| finding["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["not-finalised", "buffers-written", "buffer-sequence", "record"]);
    assert!(findings.iter().all(|finding| {
        finding["offset"].is_u64() && finding["detail"].is_string() && finding["remark"] == false
    }));
}

#[test]
fn decreasing_time_stamps_are_a_remark_not_a_fault() {
    let folder = make_folder();
    let mut bytes = five_events();
    // The second record of the second buffer gets a lower stamp than the first, as if a provider
    // had supplied the stamp. The stamp is at offset 0x10 of a record.
    let second = 0x1048 + usize::from(u16::from_le_bytes([bytes[0x1048], bytes[0x1049]])).next_multiple_of(8);
    bytes[second + 0x10..second + 0x18].copy_from_slice(&1_000_i64.to_le_bytes());
    let path = write_file(&folder, "supplied.etl", &bytes);
    let run = weir(["check", arg(&path)]).expect(0);
    let remark = format!("{second:#010x}: remark: time-in-buffer: stamp 1000 after");
    assert!(run.text().contains(&remark), "{}", run.text());
    assert!(run.stderr.contains("sound: 6 records") && run.stderr.contains("1 remark"), "{}", run.stderr);
    let remarks = weir(["check", "--json", arg(&path)]).expect(0).json();
    assert_eq!((remarks.len(), &remarks[0]["remark"]), (1, &true.into()));
    assert_eq!(dump_jsonl(&path, &[]).expect(0).json().len(), 6, "the file is not read completely");

    // In a file with a fault, the decreasing stamp is still reported as a remark.
    bytes.truncate(bytes.len() - 100);
    let run = weir(["check", arg(&write_file(&folder, "cut.etl", &bytes))]).expect(3);
    assert!(run.stderr.contains("finding") && run.stderr.contains("1 remark"), "{}", run.stderr);
}

#[test]
fn several_files_are_checked_one_by_one() {
    let run = weir(["check", arg(&fixture_path("kernel")), arg(&fixture_path("crashed"))]).expect(3);
    assert!(
        run.stderr.contains("kernel.etl: sound") && run.stderr.contains("crashed.etl: 4 findings"),
        "{}",
        run.stderr
    );
}

#[test]
fn demo_writes_a_sound_trace_and_prints_it() {
    let folder = make_folder();
    let path = folder.path().join("demo.etl");
    let run = weir(["demo", "-o", arg(&path)]).expect(0);
    let text = run.text();
    assert_eq!(text.lines().filter(|line| line.contains("Traceweir.Demo.CoffeeShop/Brew")).count(), 4);
    for verb in ["info", "dump", "stats", "check"] {
        assert!(
            run.stderr.contains(&format!("weir {verb}")),
            "the output does not mention weir {verb}: {}",
            run.stderr
        );
    }
    weir(["check", arg(&path)]).expect(0);
    assert_eq!(dump_jsonl(&path, &["--provider", "Traceweir.Demo.*"]).expect(0).json().len(), 12);
}

/// Runs the demo without `-o`, as a user with this environment.
fn run_demo(environment: &[(&str, &Path)]) -> Run {
    let mut command = weir_command(["demo"]);
    command.env_remove("XDG_STATE_HOME").envs(environment.iter().copied());
    run_to_end(&mut command).expect(0)
}

#[test]
fn demo_writes_to_a_folder_of_the_user_and_replaces_its_trace() {
    let home = make_folder();
    let file = home.path().join(".local/state/traceweir/weir-demo.etl");
    for _ in 0..2 {
        run_demo(&[("HOME", home.path())]);
        weir(["check", arg(&file)]).expect(0);
    }
    let mode = file.parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "other users can enter the folder");
    // A home that cannot be used gives way to a temporary folder.
    let temporary = make_folder();
    let run = run_demo(&[("HOME", Path::new("/dev/null")), ("TMPDIR", temporary.path())]);
    assert!(run.stderr.contains(arg(temporary.path())), "{}", run.stderr);
}

#[test]
fn commands_that_the_demo_prints_work_as_printed() {
    let home = make_folder();
    let daemon = Daemon::start();
    // The path has to be quoted.
    let state = home.path().join("my state");
    let run = run_demo(&[("XDG_STATE_HOME", &state)]);
    let commands: Vec<&str> = run.stderr.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|line| line.contains("weir ")).collect();
    assert_eq!(commands.len(), 5, "{}", run.stderr);
    for command in commands {
        assert!(command.starts_with('/') || command.starts_with('\''), "not this program: {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(home.path()).stdin(Stdio::null());
        shell.env("TRACEWEIR_RUNTIME_DIR", daemon.folder());
        let run = run_to_end(&mut shell);
        assert_eq!(run.code, 0, "{command}: {}", run.stderr);
    }
    let recorded = dump_jsonl(&home.path().join("shop.etl"), &["--provider", "Traceweir.Demo.*"]);
    assert_eq!(recorded.expect(0).json().len(), 6);
}

#[test]
fn demo_names_weir_where_the_shell_finds_it() {
    let folder = make_folder();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), folder.path().join("weir")).unwrap();
    let path = format!("{}:/usr/bin:/bin", arg(folder.path()));
    let run = run_demo(&[("XDG_STATE_HOME", folder.path()), ("PATH", Path::new(&path))]);
    assert!(run.stderr.contains("\n  weir info "), "{}", run.stderr);
}

#[test]
fn one_file_that_cannot_be_opened_does_not_hide_the_others() {
    for verb in ["info", "check"] {
        let files =
            [arg(&fixture_path("kernel")), "no-such.etl", arg(&fixture_path("wpp"))].map(str::to_owned);
        let run = weir([verb, &files[0], &files[1], &files[2]]).expect(1);
        let output = run.text() + &run.stderr;
        for name in ["kernel.etl", "no-such.etl", "wpp.etl"] {
            assert!(output.contains(name), "{verb}: no {name} in {output}");
        }
    }
}

#[test]
fn file_truncated_between_two_buffers_is_reported_as_incomplete() {
    let folder = make_folder();
    let bytes = std::fs::read(fixture_path("kernel")).unwrap();
    let path = write_file(&folder, "cut.etl", &bytes[..0x2000]);
    for verb in ["dump", "info", "stats", "check"] {
        let run = weir([verb, arg(&path)]).expect(3);
        assert!(run.text().contains("buffers") || run.stderr.contains("buffers"), "{verb}: {}", run.stderr);
    }
}

#[test]
fn output_of_an_event_does_not_depend_on_the_filter() {
    let path = fixture_path("kernel");
    let events = dump_jsonl(&path, &[]).expect(0).json();
    for filter in [["--cpu", "0"], ["--event", "Process/*"], ["--grep", "explorer"], ["--head", "3"]] {
        let filtered = dump_jsonl(&path, &filter).expect(0).json();
        assert!(filtered.iter().all(|event| events.contains(event)), "{filter:?} changed an event");
    }
}
