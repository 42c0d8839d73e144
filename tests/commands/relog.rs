//! Tests of `weir relog`, which writes one sound file from one or more files, and cuts, filters or
//! merges their events.

use serde_json::Value;
use traceweir_format::etl::Summary;
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::{
    arg, dump_jsonl, dumped_event_names, five_events, five_events_with, fixture_path, make_folder,
    write_file, write_five_events,
};
use crate::golden::{TraceMaker, run_to_end, session_options, start_time};
use crate::util::{eventually, sample, weir, weir_command};

/// Returns the events of a file without the log-file header.
fn dumped_events(path: &std::path::Path) -> Vec<Value> {
    dump_jsonl(path, &[]).json().into_iter().skip(1).collect()
}

fn folder_entries(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = folder.path().read_dir().unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_sound_fixture_is_relogged_to_a_sound_file_with_the_same_events() {
    let folder = make_folder();
    for name in ["compressed", "eventsource", "kernel", "manifest", "merged", "narrow", "tracelogging", "wpp"]
    {
        for flag in ["--compress", "--decompress"] {
            let (input, out) = (fixture_path(name), folder.path().join("out.etl"));
            let run = weir(["relog", arg(&input), "-o", arg(&out), "--force", flag]).expect(0);
            assert!(run.stdout.is_empty(), "messages were printed to standard output");
            let check = weir(["check", arg(&out)]).expect(0);
            assert!(check.stderr.contains(": sound: "), "{name} {flag}: {}", check.stderr);
            assert_eq!(dumped_events(&out), dumped_events(&input), "{name} {flag}");
        }
    }
    assert_eq!(folder_entries(&folder), ["out.etl"]);
}

#[test]
fn real_traces_are_relogged_completely() {
    for name in [
        "AMSITrace.etl",
        "SelfDescribingSingleEvent.etl",
        "ShutdownPerfDiagLogger.etl",
        "WindowsUpdate.20251008.etl",
        "gcevents.etl",
    ] {
        let Some(input) = sample(name) else { return };
        let folder = make_folder();
        let out = folder.path().join("out.etl");
        weir(["relog", arg(&input), "-o", arg(&out)]);
        let check = weir(["check", arg(&out)]);
        assert!(check.stderr.contains(": sound: "), "{name}: {}", check.stderr);
        let text_of = |path| {
            let lines = run_to_end(&mut weir_command(["dump", "--all", arg(path)])).text();
            lines.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(text_of(&out) == text_of(&input), "{name}: the relogged file has other events");
    }
}

#[test]
fn crashed_file_becomes_a_sound_one_and_the_damage_is_reported() {
    let folder = make_folder();
    let (input, out) = (fixture_path("crashed"), folder.path().join("out.etl"));
    let run = weir(["relog", arg(&input), "-o", arg(&out)]).expect(3);
    assert!(run.stderr.contains("57 records in 5 buffers"), "{}", run.stderr);
    assert!(run.stderr.contains("warning:"), "{}", run.stderr);
    weir(["check", arg(&out)]).expect(0);
    assert_eq!(dumped_events(&out), dumped_events(&input));
}

#[test]
fn filters_select_the_same_events_as_for_dump() {
    let folder = make_folder();
    let input = write_file(&folder, "five.etl", &five_events());
    let cases: [&[&str]; 13] = [
        &["--provider", "shop.a"],
        &["--provider", "Shop.*", "--event", "Alpha"],
        &["--level", "warning"],
        &["--keyword", "0x3"],
        &["--pid", "20"],
        &["--tid", "12", "--tid", "31"],
        &["--cpu", "1"],
        &["--from", "150us", "--to", "400us"],
        &["--from", "2024-05-01T10:00:00.0003"],
        &["--head", "2"],
        &["--grep", "CRÈME"],
        &["--grep", "no such text"],
        &["--event", "Delta", "--level", "1"],
    ];
    for filters in cases {
        let out = folder.path().join("out.etl");
        let mut relog = vec!["relog", arg(&input), "-o", arg(&out), "--force", "--bare"];
        relog.extend(filters);
        weir(&relog).expect(0);
        // `weir dump` prints the header as an event too.
        let dumped = dumped_event_names(&input, filters).into_iter();
        let expected: Vec<_> = dumped.filter(|name| name != "EventTrace/Header").collect();
        let relogged: Vec<_> = dumped_event_names(&out, &[]).into_iter().skip(1).collect();
        assert_eq!(relogged, expected, "{filters:?}");
        weir(["check", arg(&out)]).expect(0);
    }
}

#[test]
fn providers_are_dropped_by_name_and_by_guid() {
    let folder = make_folder();
    let input = write_file(&folder, "five.etl", &five_events());
    let guid = dumped_events(&input)[0]["guid"].as_str().unwrap().to_owned();
    for (dropped, expected) in [
        (vec!["shop.b"], vec!["Alpha", "Beta", "Delta"]),
        (vec![guid.as_str(), "Shop.C"], vec!["Alpha", "Gamma"]),
        (vec!["*"], vec![]),
    ] {
        let out = folder.path().join("out.etl");
        let mut relog = vec!["relog", arg(&input), "-o", arg(&out), "--force"];
        dropped.iter().for_each(|name| relog.extend(["--drop", name]));
        let run = weir(&relog).expect(0);
        assert!(run.stderr.contains("left out"), "{}", run.stderr);
        assert_eq!(dumped_event_names(&out, &[])[1..], expected, "{dropped:?}");
    }
}

#[test]
fn schema_events_are_kept_unless_bare() {
    let folder = make_folder();
    let (input, out) = (fixture_path("eventsource"), folder.path().join("out.etl"));
    let events = dumped_events(&input);
    // EventSource writes its manifest in events with this id.
    let manifests = events.iter().filter(|event| event["id"] == 0xFFFE).count();
    assert!(manifests > 0 && manifests < events.len());
    let count = |arguments: &[&str]| {
        let mut relog = vec!["relog", arg(&input), "-o", arg(&out), "--force", "--provider", "none.such"];
        relog.extend(arguments);
        weir(&relog).expect(0);
        dumped_events(&out).len()
    };
    assert_eq!((count(&[]), count(&["--bare"])), (manifests, 0));
}

#[test]
fn several_files_become_one_with_one_clock_and_all_losses() {
    let folder = make_folder();
    let finish_lossy = |mut maker: TraceMaker, events_lost| {
        write_five_events(&mut maker);
        let end_time = FileTime(start_time().0 + 99_999);
        maker.finish_with(Summary { end_time, events_lost, buffers_lost: 1 })
    };
    let first = write_file(&folder, "first.etl", &finish_lossy(TraceMaker::new(session_options("first")), 3));
    // The clock of the second trace is twice as fast, and the trace starts 125 µs after the first.
    let mut options = session_options("second");
    options.perf_freq = 20_000_000;
    options.start_time = FileTime(start_time().0 + 1250);
    let second = write_file(&folder, "second.etl", &finish_lossy(TraceMaker::new(options), 4));
    let out = folder.path().join("out.etl");
    weir(["relog", arg(&second), arg(&first), "-o", arg(&out)]).expect(0);
    let merged = dump_jsonl(&out, &[]).expect(0).json();
    let fields = &merged[0]["fields"];
    assert_eq!((fields["EventsLost"].as_u64(), fields["BuffersLost"].as_u64()), (Some(7), Some(2)));
    let summarise = |events: &[Value]| -> Vec<(String, String, u64, u64)> {
        let summary = |event: &Value| {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            (text("time"), text("event"), event["pid"].as_u64().unwrap(), event["cpu"].as_u64().unwrap())
        };
        events.iter().filter(|event| event["event"] != "EventTrace/Header").map(summary).collect()
    };
    let before = weir(["dump", "--format", "jsonl", arg(&first), arg(&second)]).expect(0).json();
    assert_eq!(summarise(&merged), summarise(&before));
    assert!(weir(["check", arg(&out)]).stderr.contains(": sound: "));
}

#[test]
fn files_are_replaced_only_on_request_and_inputs_never() {
    let folder = make_folder();
    let bytes = five_events();
    let input = write_file(&folder, "in.etl", &bytes);
    let existing = write_file(&folder, "precious.etl", b"precious");
    let run = weir(["relog", arg(&input), "-o", arg(&existing)]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(std::fs::read(&existing).unwrap(), b"precious");
    let symbolic_link = folder.path().join("soft.etl");
    std::os::unix::fs::symlink(&input, &symbolic_link).unwrap();
    for out in [&input, &symbolic_link] {
        let run = weir(["relog", arg(&input), "-o", arg(out), "--force"]).expect(1);
        assert!(run.stderr.contains("is an input"), "{}", run.stderr);
        assert!(run.stderr.contains("32 ERROR_SHARING_VIOLATION"), "{}", run.stderr);
    }
    assert_eq!(std::fs::read(&input).unwrap(), bytes);
    weir(["relog", arg(&input), "-o", arg(&existing), "--force"]).expect(0);
    assert_eq!(dumped_events(&existing), dumped_events(&input));
    assert_eq!(folder_entries(&folder), ["in.etl", "precious.etl", "soft.etl"]);
}

#[test]
fn failed_relog_leaves_no_files() {
    let folder = make_folder();
    let junk = write_file(&folder, "junk.etl", b"this is no trace");
    let out = folder.path().join("out.etl");
    weir(["relog", arg(&junk), "-o", arg(&out)]).expect(1);
    let good = write_file(&folder, "good.etl", &five_events());
    let run = weir(["relog", arg(&good), "-o", arg(&folder.path().join("none/out.etl"))]).expect(1);
    assert!(run.stderr.contains("3 ERROR_PATH_NOT_FOUND"), "{}", run.stderr);
    let run = weir(["relog", arg(&good), "-o", "/dev/null", "--force"]).expect(1);
    assert!(run.stderr.contains("must be a regular file"), "{}", run.stderr);
    weir(["relog", arg(&good)]).expect(2);
    weir(["relog", arg(&good), "-o", arg(&out), "--compress", "--decompress"]).expect(2);
    assert_eq!(folder_entries(&folder), ["good.etl", "junk.etl"]);
}

#[test]
fn header_of_a_cut_trace_has_the_end_time_and_buffer_count_of_the_kept_events() {
    let folder = make_folder();
    let input = write_file(&folder, "five.etl", &five_events_with(session_options("five")));
    let out = folder.path().join("out.etl");
    weir(["relog", arg(&input), "-o", arg(&out), "--to", "300us"]).expect(0);
    let header = &dump_jsonl(&out, &["--head", "1"]).expect(0).json()[0];
    assert_eq!(header["fields"]["EndTime"], "2024-05-01T10:00:00.0003000Z");
    // The buffer of the header, and one buffer for each of the two processors.
    assert_eq!(header["fields"]["BuffersWritten"], 3);
}

#[test]
fn marks_are_inserted_at_their_time() {
    let folder = make_folder();
    let input = write_file(&folder, "five.etl", &five_events());
    let out = folder.path().join("out.etl");
    let mut relog = vec!["relog", arg(&input), "-o", arg(&out)];
    relog.extend(["--mark", "9s=the end, über", "--mark", "250us=2=two"]);
    weir(&relog).expect(0);
    assert_eq!(
        dumped_event_names(&out, &[])[1..],
        ["Alpha", "Beta", "Mark", "Alpha", "Gamma", "Delta", "Mark"]
    );
    let marks = dump_jsonl(&out, &["--provider", "Traceweir.Marks"]).expect(0).json();
    let printed: Vec<_> =
        marks.iter().map(|mark| (mark["time"].as_str().unwrap(), mark["fields"]["text"].as_str())).collect();
    let expected = [
        ("2024-05-01T10:00:00.0002500Z", Some("2=two")),
        ("2024-05-01T10:00:09.0000000Z", Some("the end, über")),
    ];
    assert_eq!(printed, expected);
    assert!(weir(["check", arg(&out)]).expect(0).stderr.contains(": sound: "));
    for wrong in ["soon=x", "5s", &format!("5s={}", "x".repeat(513))] {
        weir(["relog", arg(&input), "-o", arg(&out), "--force", "--mark", wrong]).expect(2);
    }
}

#[test]
fn full_disk_is_reported_and_leaves_no_files() {
    let folder = make_folder();
    let input = write_file(&folder, "in.etl", &five_events());
    let out = folder.path().join("out.etl");
    // A file size limit of 8 blocks simulates a full disk. SIGXFSZ would end `weir` at the limit,
    // so the shell ignores the signal, which stays ignored after the `exec`.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" relog \"$1\" -o \"$2\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_weir"), arg(&input), arg(&out)]);
    let run = run_to_end(&mut shell).expect(1);
    assert!(run.stderr.contains("112 ERROR_DISK_FULL"), "{}", run.stderr);
    assert!(run.stderr.contains("out.etl"), "{}", run.stderr);
    assert!(run.stderr.contains("free some space"), "{}", run.stderr);
    assert_eq!(folder_entries(&folder), ["in.etl"]);
}

#[test]
fn ctrl_c_leaves_no_files() {
    let folder = make_folder();
    let mut maker = TraceMaker::new(session_options("many"));
    (0..20_000).for_each(|_| write_five_events(&mut maker));
    let input = write_file(&folder, "in.etl", &maker.finish());
    let out = folder.path().join("out.etl");
    let mut command = weir_command(["relog", arg(&input), "-o", arg(&out), "--grep", "no such text"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    eventually("the output file exists", || (folder_entries(&folder).len() > 1).then_some(()));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder_entries(&folder), ["in.etl"]);
}

/// Returns the start time in the header of a file and the times of its events. The first event is
/// the log-file header.
fn start_and_event_times(path: &std::path::Path) -> (String, Vec<String>) {
    let events = run_to_end(&mut weir_command(["dump", "--format", "jsonl", arg(path)])).json();
    assert_eq!(
        events[0]["event"],
        "EventTrace/Header",
        "the first event of {} is not the header",
        path.display()
    );
    let start = events[0]["fields"]["StartTime"].as_str().unwrap().to_owned();
    (start, events.iter().map(|event| event["time"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn cut_of_a_real_trace_has_no_event_before_its_header_and_start() {
    for (name, from, to) in [
        ("ShutdownPerfDiagLogger.etl", "29520s", "29521s"),
        ("net.4.5.2.x64.etl.zip", "3s", "5s"),
        ("AMSITrace.etl", "5s", "9s"),
    ] {
        let Some(input) = sample(name) else { return };
        for bare in [&[][..], &["--bare"]] {
            let folder = make_folder();
            let out = folder.path().join("out.etl");
            let mut relog = vec!["relog", arg(&input), "-o", arg(&out), "--from", from, "--to", to];
            relog.extend(bare);
            weir(&relog);
            let (start, times) = start_and_event_times(&out);
            // All times have the same text form, so their texts can be compared.
            assert!(
                times.iter().all(|time| *time >= start),
                "{name} {bare:?}: {start} and {:?}",
                times.iter().min()
            );
            let check = weir(["check", arg(&out)]);
            assert!(check.stderr.contains(": sound: "), "{name} {bare:?}: {}", check.stderr);
            let remarks = format!("{}{}", check.text(), check.stderr);
            assert!(!remarks.contains("time-in-buffer"), "{name} {bare:?}: {remarks}");
        }
    }
}

#[test]
fn cut_moves_the_start_no_later_than_the_first_kept_event() {
    let folder = make_folder();
    let (input, out) = (fixture_path("eventsource"), folder.path().join("out.etl"));
    let (start, input_times) = start_and_event_times(&input);
    // All events are earlier than `--from`. The manifests in the trace are kept nevertheless, so
    // the start stays. With `--bare` nothing is kept, and the start moves past the last event.
    weir(["relog", arg(&input), "-o", arg(&out), "--from", "1h"]).expect(0);
    assert_eq!(start_and_event_times(&out).0, start);
    weir(["relog", arg(&input), "-o", arg(&out), "--force", "--from", "1h", "--bare"]).expect(0);
    assert!(start_and_event_times(&out).0 > *input_times.last().unwrap(), "an event was kept");
    // A mark before the start moves the start back.
    weir(["relog", arg(&input), "-o", arg(&out), "--force", "--mark", "-1.5s=before"]).expect(0);
    let (start_with_mark, times) = start_and_event_times(&out);
    assert!(start_with_mark < start && times.iter().all(|time| *time >= start_with_mark));
    assert!(weir(["check", arg(&out)]).expect(0).stderr.contains(": sound: "));
}

#[test]
fn output_is_readable_by_no_more_users_than_the_input() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = make_folder();
    let input = write_file(&folder, "in.etl", &five_events());
    let out = folder.path().join("out.etl");
    let output_mode = |input_mode: u32, options: &[&str]| {
        std::fs::set_permissions(&input, std::fs::Permissions::from_mode(input_mode)).unwrap();
        let script = format!("umask 022; exec \"$0\" relog \"$1\" -o \"$2\" {}", options.join(" "));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir"), arg(&input), arg(&out)]);
        run_to_end(&mut shell).expect(0);
        out.metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!(output_mode(0o644, &[]), 0o640, "the mode is not that of session files");
    assert_eq!(output_mode(0o600, &["--force"]), 0o600);
    assert_eq!(output_mode(0o644, &["--force"]), 0o600, "the mode of the replaced file was not kept");
    std::fs::remove_file(&out).unwrap();
    assert_eq!(output_mode(0o444, &[]), 0o640, "the owner cannot write the file");
}

#[test]
fn force_is_suggested_only_where_it_helps() {
    let folder = make_folder();
    let input = write_file(&folder, "in.etl", &five_events());
    let run = weir(["relog", arg(&input), "-o", arg(&input)]).expect(1);
    assert!(
        run.stderr.contains("32 ERROR_SHARING_VIOLATION") && !run.stderr.contains("--force"),
        "{}",
        run.stderr
    );
    for device in ["/dev/null", "/dev/full"] {
        let run = weir(["relog", arg(&input), "-o", device]).expect(1);
        assert!(
            run.stderr.contains("must be a regular file") && !run.stderr.contains("--force"),
            "{}",
            run.stderr
        );
    }
    let mut to_stdout = weir_command(["relog", arg(&input), "-o", "-"]);
    let run = run_to_end(to_stdout.current_dir(folder.path())).expect(1);
    assert!(run.stderr.contains("not standard output"), "{}", run.stderr);
    let dangling = folder.path().join("link.etl");
    std::os::unix::fs::symlink("/nowhere/at/all", &dangling).unwrap();
    let run = weir(["relog", arg(&input), "-o", arg(&dangling)]).expect(1);
    assert!(run.stderr.contains("--force") && dangling.is_symlink(), "{}", run.stderr);
    weir(["relog", arg(&input), "-o", arg(&dangling), "--force"]).expect(0);
    assert_eq!(dumped_events(&dangling), dumped_events(&input));
    assert_eq!(folder_entries(&folder), ["in.etl", "link.etl"]);
    let missing = folder.path().join("missing.etl");
    let run = weir(["relog", arg(&missing), "-o", arg(&folder.path().join("out.etl"))]).expect(1);
    assert!(run.stderr.contains("missing.etl: No such file"), "{}", run.stderr);
    assert!(run.stderr.contains("2 ERROR_FILE_NOT_FOUND"), "{}", run.stderr);
}

#[test]
fn filters_and_marks_without_effect_are_reported() {
    let folder = make_folder();
    let input = write_file(&folder, "five.etl", &five_events());
    let out = folder.path().join("out.etl");
    let relog_stderr = |options: &[&str], code: i32| {
        let mut relog = vec!["relog", arg(&input), "-o", arg(&out), "--force"];
        relog.extend(options);
        weir(&relog).expect(code).stderr
    };
    let stderr = relog_stderr(&["--from", "10s", "--to", "5s"], 1);
    assert!(stderr.contains("1901 ERROR_INVALID_TIME") && stderr.contains("later than --to"), "{stderr}");
    assert!(!out.exists());
    let stderr = relog_stderr(&["--from", "10s", "--to", "12s"], 0);
    assert!(
        stderr
            .contains("warning: no event is in the range of --from and --to: the events are from 2024-05-01"),
        "{stderr}"
    );
    for nothing in [&["--provider", "none.such"][..], &["--level", "0", "--cpu", "1"], &["--drop", "*"]] {
        let stderr = relog_stderr(nothing, 0);
        assert!(stderr.contains("warning: no event passed the filters"), "{nothing:?}: {stderr}");
    }
    let stderr = relog_stderr(&["--mark", "1h=late", "--mark", "-1h=early", "--mark", "200us=inside"], 0);
    assert_eq!(stderr.matches("is outside the trace").count(), 2, "{stderr}");
    assert!(stderr.contains("\"late\"") && stderr.contains("\"early\""), "{stderr}");
    assert!(
        !relog_stderr(&["--provider", "Shop.A"], 0).contains("warning"),
        "a filter with matches is reported"
    );
}

#[test]
fn kept_and_dropped_events_add_up() {
    let folder = make_folder();
    let out = folder.path().join("out.etl");
    // Returns the numbers of kept records, including the header, and of events left out.
    let counts = |inputs: &[&str], options: &[&str]| -> (u64, u64) {
        let mut relog = vec!["relog"];
        relog.extend(inputs.iter().chain(&["-o", arg(&out), "--force"]).chain(options));
        let stderr = weir(&relog).stderr;
        let number = |before: &str| {
            let number = stderr.split(before).next().unwrap().split([' ', '\n']).next_back().unwrap();
            number.replace(',', "").parse::<u64>().unwrap()
        };
        (number(" record"), if stderr.contains(" left out") { number(" left out") } else { 0 })
    };
    let five = write_file(&folder, "five.etl", &five_events());
    let counts_of_five = |options: &[&str]| counts(&[arg(&five)], options);
    assert_eq!((counts_of_five(&[]), counts_of_five(&["--provider", "Shop.A"])), ((6, 0), (3, 3)));
    assert_eq!((counts_of_five(&["--cpu", "1"]), counts_of_five(&["--drop", "*"])), ((3, 3), (1, 5)));
    assert_eq!(
        counts_of_five(&["--mark", "200us=here", "--cpu", "1"]),
        (4, 3),
        "an inserted mark counts as a read event"
    );
    assert_eq!(counts(&[arg(&five), arg(&five)], &[]), (11, 0), "the two headers did not become one");
    for name in ["AMSITrace.etl", "gcevents.etl"] {
        let Some(input) = sample(name) else { return };
        let event_count = dump_jsonl(&input, &[]).json().len() as u64;
        for options in [
            &[][..],
            &["--bare"],
            &["--provider", "none.such"],
            &["--provider", "none.such", "--bare"],
            &["--cpu", "9999"],
        ] {
            let (kept, dropped) = counts(&[arg(&input)], options);
            assert_eq!(kept + dropped, event_count, "{name} {options:?}");
            assert_eq!(kept, dump_jsonl(&out, &[]).json().len() as u64, "{name} {options:?}");
        }
    }
}

#[test]
fn merged_file_describes_the_machine_of_the_earliest_input() {
    let Some(windows) = sample("AMSITrace.etl") else { return };
    let folder = make_folder();
    let mut linux = TraceMaker::new(session_options("linux"));
    linux.write_system(0, hook::BUILD_INFO, 2, (0, 0), b"Linux 6.18.5\0");
    write_five_events(&mut linux);
    let linux = write_file(&folder, "linux.etl", &linux.finish());
    let out = folder.path().join("out.etl");
    weir(["relog", arg(&linux), arg(&windows), "-o", arg(&out)]);
    let info = |path| weir(["info", "--json", arg(path)]).json().remove(0);
    let (windows, linux, merged) = (info(&windows), info(&linux), info(&out));
    assert!(windows["start"].as_str() < linux["start"].as_str(), "the Windows trace does not start first");
    for field in ["system", "os", "build", "cpus", "cpu_mhz", "boot", "start", "clock_hz"] {
        assert_eq!(merged[field], windows[field], "{field} is not that of the earliest input");
    }
}
