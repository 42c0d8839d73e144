//! `weir relog`: rewrites one or more files to one without losing events.

use serde_json::Value;
use traceweir_format::etl::Summary;
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::{dump, five, five_events, five_with, fixture, folder, names, store, text};
use crate::golden::{Maker, finish, session, start_time};
use crate::util::{eventually, sample, weir, weir_command};

/// Returns the events of a file without the log-file header.
fn events(path: &std::path::Path) -> Vec<Value> {
    dump(path, &[]).json().into_iter().skip(1).collect()
}

fn entries(folder: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<String> =
        folder.path().read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_sound_fixture_is_relogged_to_a_sound_file_with_the_same_events() {
    let folder = folder();
    for name in ["compressed", "eventsource", "kernel", "manifest", "merged", "narrow", "tracelogging", "wpp"]
    {
        for flag in ["--compress", "--decompress"] {
            let (input, out) = (fixture(name), folder.path().join("out.etl"));
            let run = weir(["relog", text(&input), "-o", text(&out), "--force", flag]).expect(0);
            assert!(run.stdout.is_empty(), "words go to standard error");
            let check = weir(["check", text(&out)]).expect(0);
            assert!(check.stderr.contains(": sound: "), "{name} {flag}: {}", check.stderr);
            assert_eq!(events(&out), events(&input), "{name} {flag}");
        }
    }
    assert_eq!(entries(&folder), ["out.etl"]);
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
        let folder = folder();
        let out = folder.path().join("out.etl");
        weir(["relog", text(&input), "-o", text(&out)]);
        let check = weir(["check", text(&out)]);
        assert!(check.stderr.contains(": sound: "), "{name}: {}", check.stderr);
        let text_of = |path| {
            let lines = finish(&mut weir_command(["dump", text(path)])).text();
            lines.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(text_of(&out) == text_of(&input), "{name} reads the same");
    }
}

#[test]
fn crashed_file_becomes_a_sound_one_and_the_damage_is_reported() {
    let folder = folder();
    let (input, out) = (fixture("crashed"), folder.path().join("out.etl"));
    let run = weir(["relog", text(&input), "-o", text(&out)]).expect(3);
    assert!(run.stderr.contains("57 events in 5 buffers"), "{}", run.stderr);
    assert!(run.stderr.contains("warning:"), "{}", run.stderr);
    weir(["check", text(&out)]).expect(0);
    assert_eq!(events(&out), events(&input));
}

#[test]
fn filters_select_the_same_events_as_for_dump() {
    let folder = folder();
    let input = store(&folder, "five.etl", &five_events());
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
        let mut relog = vec!["relog", text(&input), "-o", text(&out), "--force", "--bare"];
        relog.extend(filters);
        weir(&relog).expect(0);
        // For dump, the header is an event too.
        let wanted: Vec<_> = match filters {
            ["--head", _] => names(&input, &["--head", "3"]).into_iter().skip(1).collect(),
            _ => names(&input, filters).into_iter().filter(|name| name != "EventTrace/Header").collect(),
        };
        let found: Vec<_> = names(&out, &[]).into_iter().skip(1).collect();
        assert_eq!(found, wanted, "{filters:?}");
        weir(["check", text(&out)]).expect(0);
    }
}

#[test]
fn providers_are_dropped_by_name_and_by_guid() {
    let folder = folder();
    let input = store(&folder, "five.etl", &five_events());
    let guid = events(&input)[0]["guid"].as_str().unwrap().to_owned();
    for (dropped, wanted) in [
        (vec!["shop.b"], vec!["Alpha", "Beta", "Delta"]),
        (vec![guid.as_str(), "Shop.C"], vec!["Alpha", "Gamma"]),
        (vec!["*"], vec![]),
    ] {
        let out = folder.path().join("out.etl");
        let mut relog = vec!["relog", text(&input), "-o", text(&out), "--force"];
        dropped.iter().for_each(|name| relog.extend(["--drop", name]));
        let run = weir(&relog).expect(0);
        assert!(run.stderr.contains("left out"), "{}", run.stderr);
        assert_eq!(names(&out, &[])[1..], wanted, "{dropped:?}");
    }
}

#[test]
fn schema_events_are_kept_unless_bare() {
    let folder = folder();
    let (input, out) = (fixture("eventsource"), folder.path().join("out.etl"));
    let all = events(&input);
    let manifests = all.iter().filter(|e| e["id"] == 0xFFFE).count();
    assert!(manifests > 0 && manifests < all.len());
    let count = |arguments: &[&str]| {
        let mut relog = vec!["relog", text(&input), "-o", text(&out), "--force", "--provider", "none.such"];
        relog.extend(arguments);
        weir(&relog).expect(0);
        events(&out).len()
    };
    assert_eq!((count(&[]), count(&["--bare"])), (manifests, 0));
}

#[test]
fn several_files_become_one_with_one_clock_and_all_losses() {
    let folder = folder();
    let lossy = |mut maker: Maker, events_lost| {
        five(&mut maker);
        let end_time = FileTime(start_time().0 + 99_999);
        maker.finish_with(Summary { end_time, events_lost, buffers_lost: 1 })
    };
    let first = store(&folder, "first.etl", &lossy(Maker::new(session("first")), 3));
    let mut options = session("second");
    options.perf_freq = 20_000_000;
    options.start_time = FileTime(start_time().0 + 1250);
    let second = store(&folder, "second.etl", &lossy(Maker::new(options), 4));
    let out = folder.path().join("out.etl");
    weir(["relog", text(&second), text(&first), "-o", text(&out)]).expect(4);
    let merged = dump(&out, &[]).expect(4).json();
    let fields = &merged[0]["fields"];
    assert_eq!((fields["EventsLost"].as_u64(), fields["BuffersLost"].as_u64()), (Some(7), Some(2)));
    let seen = |events: &[Value]| -> Vec<(String, String, u64, u64)> {
        let summary = |e: &Value| {
            let word = |key: &str| e[key].as_str().unwrap().to_owned();
            (word("time"), word("event"), e["pid"].as_u64().unwrap(), e["cpu"].as_u64().unwrap())
        };
        events.iter().filter(|e| e["event"] != "EventTrace/Header").map(summary).collect()
    };
    let before = weir(["dump", "--format", "jsonl", text(&first), text(&second)]).expect(4).json();
    assert_eq!(seen(&merged), seen(&before));
    assert!(weir(["check", text(&out)]).stderr.contains(": sound: "));
}

#[test]
fn files_are_replaced_only_on_request_and_inputs_never() {
    let folder = folder();
    let bytes = five_events();
    let input = store(&folder, "in.etl", &bytes);
    let there = store(&folder, "precious.etl", b"precious");
    let run = weir(["relog", text(&input), "-o", text(&there)]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(std::fs::read(&there).unwrap(), b"precious");
    let soft = folder.path().join("soft.etl");
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    for out in [&input, &soft] {
        let run = weir(["relog", text(&input), "-o", text(out), "--force"]).expect(1);
        assert!(run.stderr.contains("is an input"), "{}", run.stderr);
        assert!(run.stderr.contains("32 ERROR_SHARING_VIOLATION"), "{}", run.stderr);
    }
    assert_eq!(std::fs::read(&input).unwrap(), bytes);
    weir(["relog", text(&input), "-o", text(&there), "--force"]).expect(0);
    assert_eq!(events(&there), events(&input));
    assert_eq!(entries(&folder), ["in.etl", "precious.etl", "soft.etl"]);
}

#[test]
fn failed_relog_leaves_no_files() {
    let folder = folder();
    let junk = store(&folder, "junk.etl", b"this is no trace");
    let out = folder.path().join("out.etl");
    weir(["relog", text(&junk), "-o", text(&out)]).expect(1);
    let good = store(&folder, "good.etl", &five_events());
    let run = weir(["relog", text(&good), "-o", text(&folder.path().join("none/out.etl"))]).expect(1);
    assert!(run.stderr.contains("3 ERROR_PATH_NOT_FOUND"), "{}", run.stderr);
    let run = weir(["relog", text(&good), "-o", "/dev/null", "--force"]).expect(1);
    assert!(run.stderr.contains("must be a regular file"), "{}", run.stderr);
    weir(["relog", text(&good)]).expect(2);
    weir(["relog", text(&good), "-o", text(&out), "--compress", "--decompress"]).expect(2);
    assert_eq!(entries(&folder), ["good.etl", "junk.etl"]);
}

#[test]
fn cut_trace_has_the_start_and_end_of_its_remaining_events() {
    let folder = folder();
    let input = store(&folder, "five.etl", &five_with(session("five")));
    let out = folder.path().join("out.etl");
    weir(["relog", text(&input), "-o", text(&out), "--to", "300us"]).expect(0);
    let header = &dump(&out, &["--head", "1"]).expect(0).json()[0];
    assert_eq!(header["fields"]["EndTime"], "2024-05-01T10:00:00.0003000Z");
    assert_eq!(header["fields"]["BuffersWritten"], 3);
}

#[test]
fn marks_are_inserted_at_their_time() {
    let folder = folder();
    let input = store(&folder, "five.etl", &five_events());
    let out = folder.path().join("out.etl");
    let mut relog = vec!["relog", text(&input), "-o", text(&out)];
    relog.extend(["--mark", "9s=the end, über", "--mark", "250us=2=two"]);
    weir(&relog).expect(0);
    assert_eq!(names(&out, &[])[1..], ["Alpha", "Beta", "Mark", "Alpha", "Gamma", "Delta", "Mark"]);
    let marks = dump(&out, &["--provider", "Traceweir.Relog"]).expect(0).json();
    let printed: Vec<_> =
        marks.iter().map(|m| (m["time"].as_str().unwrap(), m["fields"]["text"].as_str())).collect();
    let wanted = [
        ("2024-05-01T10:00:00.0002500Z", Some("2=two")),
        ("2024-05-01T10:00:09.0000000Z", Some("the end, über")),
    ];
    assert_eq!(printed, wanted);
    assert!(weir(["check", text(&out)]).expect(0).stderr.contains(": sound: "));
    for wrong in ["soon=x", "5s", &format!("5s={}", "x".repeat(513))] {
        weir(["relog", text(&input), "-o", text(&out), "--force", "--mark", wrong]).expect(2);
    }
}

#[test]
fn full_disk_is_reported_and_leaves_no_files() {
    let folder = folder();
    let input = store(&folder, "in.etl", &five_events());
    let out = folder.path().join("out.etl");
    // A file size limit stands in for a full disk; ignored signals stay ignored in the program.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" relog \"$1\" -o \"$2\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_weir"), text(&input), text(&out)]);
    let run = finish(&mut shell).expect(1);
    assert!(run.stderr.contains("112 ERROR_DISK_FULL"), "{}", run.stderr);
    assert!(run.stderr.contains("out.etl"), "{}", run.stderr);
    assert!(run.stderr.contains("free some space"), "{}", run.stderr);
    assert_eq!(entries(&folder), ["in.etl"]);
}

#[test]
fn ctrl_c_leaves_no_files() {
    let folder = folder();
    let mut maker = Maker::new(session("many"));
    (0..20_000).for_each(|_| five(&mut maker));
    let input = store(&folder, "in.etl", &maker.finish());
    let out = folder.path().join("out.etl");
    let mut command = weir_command(["relog", text(&input), "-o", text(&out), "--grep", "no such text"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    eventually("the output to be begun", || (entries(&folder).len() > 1).then_some(()));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(entries(&folder), ["in.etl"]);
}

/// Returns the start time in the header of a file and the times of its events, of which the
/// log-file header is the first.
fn times(path: &std::path::Path) -> (String, Vec<String>) {
    let events = finish(&mut weir_command(["dump", "--format", "jsonl", text(path)])).json();
    assert_eq!(
        events[0]["event"],
        "EventTrace/Header",
        "the header is the first event of {}",
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
            let folder = folder();
            let out = folder.path().join("out.etl");
            let mut relog = vec!["relog", text(&input), "-o", text(&out), "--from", from, "--to", to];
            relog.extend(bare);
            weir(&relog);
            let (start, times) = times(&out);
            // Stamps have one text form, so they sort like their texts.
            assert!(
                times.iter().all(|time| *time >= start),
                "{name} {bare:?}: {start} and {:?}",
                times.iter().min()
            );
            let check = weir(["check", text(&out)]);
            assert!(check.stderr.contains(": sound: "), "{name} {bare:?}: {}", check.stderr);
            let remarks = format!("{}{}", check.text(), check.stderr);
            assert!(!remarks.contains("time-in-buffer"), "{name} {bare:?}: {remarks}");
        }
    }
}

#[test]
fn cut_moves_the_start_no_later_than_the_first_kept_event() {
    let folder = folder();
    let (input, out) = (fixture("eventsource"), folder.path().join("out.etl"));
    let (start, all) = times(&input);
    // The manifests of the trace are kept, whenever they were written.
    weir(["relog", text(&input), "-o", text(&out), "--from", "1h"]).expect(0);
    assert_eq!(times(&out).0, start);
    weir(["relog", text(&input), "-o", text(&out), "--force", "--from", "1h", "--bare"]).expect(0);
    assert!(times(&out).0 > *all.last().unwrap(), "nothing is left");
    // A mark before the start moves the start back.
    weir(["relog", text(&input), "-o", text(&out), "--force", "--mark", "-1.5s=before"]).expect(0);
    let (start_with_mark, times) = times(&out);
    assert!(start_with_mark < start && times.iter().all(|time| *time >= start_with_mark));
    assert!(weir(["check", text(&out)]).expect(0).stderr.contains(": sound: "));
}

#[test]
fn output_is_readable_by_no_more_users_than_the_input() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let input = store(&folder, "in.etl", &five_events());
    let out = folder.path().join("out.etl");
    let relogged = |of_input: u32, more: &[&str]| {
        std::fs::set_permissions(&input, std::fs::Permissions::from_mode(of_input)).unwrap();
        let script = format!("umask 022; exec \"$0\" relog \"$1\" -o \"$2\" {}", more.join(" "));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir"), text(&input), text(&out)]);
        finish(&mut shell).expect(0);
        out.metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!(relogged(0o644, &[]), 0o640, "as files of sessions are");
    assert_eq!(relogged(0o600, &["--force"]), 0o600);
    assert_eq!(relogged(0o644, &["--force"]), 0o600, "what it replaces was for its owner alone");
    std::fs::remove_file(&out).unwrap();
    assert_eq!(relogged(0o444, &[]), 0o640, "it can be written by its owner");
}

#[test]
fn impossible_output_is_refused_without_suggesting_force() {
    let folder = folder();
    let input = store(&folder, "in.etl", &five_events());
    let run = weir(["relog", text(&input), "-o", text(&input)]).expect(1);
    assert!(
        run.stderr.contains("32 ERROR_SHARING_VIOLATION") && !run.stderr.contains("--force"),
        "{}",
        run.stderr
    );
    for device in ["/dev/null", "/dev/full"] {
        let run = weir(["relog", text(&input), "-o", device]).expect(1);
        assert!(
            run.stderr.contains("must be a regular file") && !run.stderr.contains("--force"),
            "{}",
            run.stderr
        );
    }
    let mut dash = weir_command(["relog", text(&input), "-o", "-"]);
    let run = finish(dash.current_dir(folder.path())).expect(1);
    assert!(run.stderr.contains("not standard output"), "{}", run.stderr);
    let dangling = folder.path().join("link.etl");
    std::os::unix::fs::symlink("/nowhere/at/all", &dangling).unwrap();
    let run = weir(["relog", text(&input), "-o", text(&dangling)]).expect(1);
    assert!(run.stderr.contains("--force") && dangling.is_symlink(), "{}", run.stderr);
    weir(["relog", text(&input), "-o", text(&dangling), "--force"]).expect(0);
    assert_eq!(events(&dangling), events(&input));
    assert_eq!(entries(&folder), ["in.etl", "link.etl"]);
    let missing = folder.path().join("missing.etl");
    let run = weir(["relog", text(&missing), "-o", text(&folder.path().join("out.etl"))]).expect(1);
    assert!(run.stderr.contains("missing.etl: No such file"), "{}", run.stderr);
    assert!(run.stderr.contains("2 ERROR_FILE_NOT_FOUND"), "{}", run.stderr);
}

#[test]
fn filters_and_marks_without_effect_are_reported() {
    let folder = folder();
    let input = store(&folder, "five.etl", &five_events());
    let out = folder.path().join("out.etl");
    let stderr_of = |more: &[&str], code: i32| {
        let mut relog = vec!["relog", text(&input), "-o", text(&out), "--force"];
        relog.extend(more);
        weir(&relog).expect(code).stderr
    };
    let run = stderr_of(&["--from", "10s", "--to", "5s"], 1);
    assert!(run.contains("1901 ERROR_INVALID_TIME") && run.contains("later than --to"), "{run}");
    assert!(!out.exists());
    let run = stderr_of(&["--from", "10s", "--to", "12s"], 0);
    assert!(
        run.contains("warning: no event is in the range of --from and --to: the events are from 2024-05-01"),
        "{run}"
    );
    for nothing in [&["--provider", "none.such"][..], &["--level", "0", "--cpu", "1"], &["--drop", "*"]] {
        let run = stderr_of(nothing, 0);
        assert!(run.contains("warning: no event passed the filters"), "{nothing:?}: {run}");
    }
    let run = stderr_of(&["--mark", "1h=late", "--mark", "-1h=early", "--mark", "200us=inside"], 0);
    assert_eq!(run.matches("is outside the trace").count(), 2, "{run}");
    assert!(run.contains("\"late\"") && run.contains("\"early\""), "{run}");
    assert!(!stderr_of(&["--provider", "Shop.A"], 0).contains("warning"), "what was found needs no words");
}

#[test]
fn kept_and_dropped_events_add_up() {
    let folder = folder();
    let out = folder.path().join("out.etl");
    let counts = |inputs: &[&str], more: &[&str]| -> (u64, u64) {
        let mut relog = vec!["relog"];
        relog.extend(inputs.iter().chain(&["-o", text(&out), "--force"]).chain(more));
        let stderr = weir(&relog).stderr;
        let number = |before: &str| {
            let number = stderr.split(before).next().unwrap().split([' ', '\n']).next_back().unwrap();
            number.replace(',', "").parse::<u64>().unwrap()
        };
        (number(" event"), if stderr.contains(" left out") { number(" left out") } else { 0 })
    };
    let five = store(&folder, "five.etl", &five_events());
    let of_five = |more: &[&str]| counts(&[text(&five)], more);
    assert_eq!((of_five(&[]), of_five(&["--provider", "Shop.A"])), ((6, 0), (3, 3)));
    assert_eq!((of_five(&["--cpu", "1"]), of_five(&["--drop", "*"])), ((3, 3), (1, 5)));
    assert_eq!(of_five(&["--mark", "200us=here", "--cpu", "1"]), (4, 3), "a mark was never read");
    assert_eq!(counts(&[text(&five), text(&five)], &[]), (11, 0), "two headers become one");
    for name in ["AMSITrace.etl", "gcevents.etl"] {
        let Some(input) = sample(name) else { return };
        let all = dump(&input, &[]).json().len() as u64;
        for more in [
            &[][..],
            &["--bare"],
            &["--provider", "none.such"],
            &["--provider", "none.such", "--bare"],
            &["--cpu", "9999"],
        ] {
            let (kept, dropped) = counts(&[text(&input)], more);
            assert_eq!(kept + dropped, all, "{name} {more:?}");
            assert_eq!(kept, dump(&out, &[]).json().len() as u64, "{name} {more:?}");
        }
    }
}

#[test]
fn merged_file_describes_the_machine_of_the_earliest_input() {
    let Some(windows) = sample("AMSITrace.etl") else { return };
    let folder = folder();
    let mut linux = Maker::new(session("linux"));
    linux.system(0, hook::BUILD_INFO, 2, (0, 0), b"Linux 6.18.5\0");
    five(&mut linux);
    let linux = store(&folder, "linux.etl", &linux.finish());
    let out = folder.path().join("out.etl");
    weir(["relog", text(&linux), text(&windows), "-o", text(&out)]);
    let info = |path| weir(["info", "--json", text(path)]).json().remove(0);
    let (first, second, both) = (info(&windows), info(&linux), info(&out));
    assert!(first["start"].as_str() < second["start"].as_str(), "that of Windows starts first");
    for field in ["system", "os", "build", "cpus", "cpu_mhz", "boot", "start", "clock_hz"] {
        assert_eq!(both[field], first[field], "{field}");
    }
}
