//! Tests of `weir convert`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use traceweir_format::tracelogging::MetadataBuilder;

use super::{arg, five_events, fixture_path, make_folder, write_file};
use crate::golden::{SelfDescribing, TraceMaker, session_options};
use crate::util::{Process, eventually, weir, weir_command};

/// Returns the names of the files in a folder, hidden files included.
fn list_names(folder: &Path) -> BTreeSet<String> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn printed_formats_are_those_of_dump() {
    let folder = make_folder();
    let trace = fixture_path("kernel");
    for (format, ending) in [("text", "txt"), ("jsonl", "jsonl"), ("csv", "csv"), ("xml", "xml")] {
        let printed = weir(["dump", "--format", format, arg(&trace)]).expect(0).stdout;
        assert_eq!(weir(["convert", "--to", format, arg(&trace)]).expect(0).stdout, printed, "{format}");
        let out = folder.path().join(format!("out.{ending}"));
        let run = weir(["convert", arg(&trace), "-o", arg(&out), "--threads", "2"]).expect(0);
        assert!(run.stdout.is_empty() && run.stderr.contains("bytes"), "{}", run.stderr);
        assert_eq!(fs::read(&out).unwrap(), printed, "{format}");
    }
    assert_eq!(list_names(folder.path()).len(), 4, "{:?}", list_names(folder.path()));
}

#[test]
fn filters_are_those_of_dump_with_until_for_the_end() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    for options in [
        &["--provider", "Shop.A"][..],
        &["--event", "Alpha", "--level", "info"],
        &["--pid", "20", "--cpu", "0"],
        &["--keyword", "0x2"],
        &["--head", "2"],
        &["--grep", "crème"],
        &["--tid", "21"],
    ] {
        let dump = weir([&["dump", "--format", "jsonl", arg(&path)], options].concat()).expect(0);
        let convert = weir([&["convert", "--to", "jsonl", arg(&path)], options].concat()).expect(0);
        assert_eq!(convert.stdout, dump.stdout, "{options:?}");
    }
    let span = ["--from", "150us", "--to", "350us"];
    let dump = weir([&["dump", arg(&path)], &span[..]].concat()).expect(0);
    let span = ["--from", "150us", "--until", "350us"];
    let convert = weir([&["convert", "--to", "text", arg(&path)], &span[..]].concat()).expect(0);
    assert_eq!(convert.stdout, dump.stdout);
    assert_eq!(convert.text().lines().count(), 2);
    for format in ["jsonl", "ctf", "collapsed"] {
        let run =
            weir(["convert", arg(&path), "--to", format, "--from", "2s", "--until", "1s", "-o", "unused"]);
        assert!(run.expect(2).stderr.contains("--from is later than --until"), "{format}");
    }
}

#[test]
fn format_follows_from_the_name_or_is_asked_for() {
    let folder = make_folder();
    let trace = fixture_path("tracelogging");
    let out = folder.path().join("out");
    let run = weir(["convert", arg(&trace), "-o", arg(&out)]).expect(2);
    assert!(
        run.stderr.contains("--to FORMAT") && run.stderr.contains("Usage: weir convert"),
        "{}",
        run.stderr
    );
    let run = weir(["convert", arg(&trace)]).expect(2);
    assert!(run.stderr.contains("--to FORMAT"), "{}", run.stderr);
    let run = weir(["convert", arg(&trace), "--to", "speedscop"]).expect(2);
    assert!(run.stderr.contains("'speedscope'"), "{}", run.stderr);
    let run = weir(["convert", arg(&trace), "--to", "CSV", "-o", arg(&out)]).expect(0);
    assert!(run.stderr.contains("bytes"), "{}", run.stderr);
    assert!(fs::read_to_string(&out).unwrap().starts_with("time,"), "--to comes before the name");
}

#[test]
fn inputs_and_existing_files_are_kept() {
    let folder = make_folder();
    let bytes = five_events();
    let path = write_file(&folder, "five.etl", &bytes);
    let run = weir(["convert", arg(&path), "--to", "csv", "-o", arg(&path), "--force"]).expect(1);
    assert!(run.stderr.contains("is an input"), "{}", run.stderr);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let out = write_file(&folder, "out.csv", b"mine");
    let run = weir(["convert", arg(&path), "-o", arg(&out)]).expect(1);
    assert!(run.stderr.contains("--force replaces it"), "{}", run.stderr);
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    weir(["convert", arg(&path), "-o", arg(&out), "--force"]).expect(0);
    assert!(fs::read_to_string(&out).unwrap().starts_with("time,"));
    let missing = folder.path().join("missing/out.csv");
    let run = weir(["convert", arg(&path), "-o", arg(&missing)]).expect(1);
    let message =
        format!("cannot write: {0}/out.csv: folder {0} does not exist", missing.parent().unwrap().display());
    assert!(run.stderr.contains(&message), "{}", run.stderr);
    assert_eq!(list_names(folder.path()).len(), 2);
}

#[test]
fn failure_leaves_no_file() {
    let folder = make_folder();
    let trace = fixture_path("tracelogging");
    let old = write_file(&folder, "old.collapsed", b"old");
    for name in ["new.collapsed", "old.collapsed"] {
        let out = folder.path().join(name);
        let run = weir(["convert", arg(&trace), "-o", arg(&out), "--force"]).expect(1);
        assert!(run.stderr.contains("no samples"), "{}", run.stderr);
    }
    assert_eq!(fs::read(&old).unwrap(), b"old");
    assert_eq!(list_names(folder.path()).len(), 1);
}

#[test]
fn interrupted_conversion_leaves_no_file() {
    let folder = make_folder();
    let mut maker = TraceMaker::new(session_options("long"));
    let event = SelfDescribing::new("Shop.Long");
    for _ in 0..20_000 {
        event.write(&mut maker, 0, &mut MetadataBuilder::new("Tick", 0), &[], &[]);
    }
    let path = write_file(&folder, "long.etl", &maker.finish());
    for name in ["out.jsonl", "out.ctf"] {
        let out = folder.path().join(name);
        let mut command = weir_command(["convert", "-o", arg(&out)]);
        // So many copies take seconds.
        command.args(std::iter::repeat_n(&path, 50)).stderr(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::start(&mut command);
        let is_hidden = |name: &String| name.starts_with(".out.");
        let find_hidden = || list_names(folder.path()).iter().any(is_hidden).then_some(());
        eventually("the hidden output exists", find_hidden);
        process.signal(Signal::INT);
        let run = process.finish().expect(130);
        assert!(run.stderr.contains("interrupted; nothing was written"), "{}", run.stderr);
        assert_eq!(list_names(folder.path()), BTreeSet::from(["long.etl".to_owned()]));
    }
}

#[test]
fn damaged_trace_is_converted_with_status_3() {
    let folder = make_folder();
    for (format, name) in [("jsonl", "out.jsonl"), ("ctf", "out.ctf")] {
        let out = folder.path().join(name);
        let run = weir(["convert", arg(&fixture_path("crashed")), "--to", format, "-o", arg(&out)]).expect(3);
        assert!(out.exists() && run.stderr.contains("warning:"), "{}", run.stderr);
    }
}

#[test]
fn devices_and_links_are_written_in_place() {
    let folder = make_folder();
    let trace = fixture_path("tracelogging");
    let printed = weir(["dump", arg(&trace)]).expect(0).stdout;
    let run = weir(["convert", arg(&trace), "--to", "text", "-o", "/dev/stdout"]).expect(0);
    assert_eq!(run.stdout, printed);
    weir(["convert", arg(&trace), "--to", "text", "-o", "/dev/null"]).expect(0);
    assert!(!Path::new("/dev/null").is_file());
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    weir(["convert", arg(&trace), "--to", "text", "-o", arg(&link)]).expect(0);
    assert_eq!(fs::read(&target).unwrap(), printed);
}

#[test]
fn ctf_is_a_folder_that_only_its_own_kind_replaces() {
    let folder = make_folder();
    let trace = fixture_path("kernel");
    let out = folder.path().join("trace.ctf");
    let run = weir(["convert", arg(&trace), "--to", "ctf"]).expect(2);
    assert!(run.stderr.contains("ctf is a folder: name it with -o OUT"), "{}", run.stderr);
    let run = weir(["convert", arg(&trace), "-o", arg(&out)]).expect(0);
    assert!(run.stderr.contains("events, "), "{}", run.stderr);
    let names = list_names(&out);
    assert!(names.contains("metadata") && names.contains("stream_0"), "{names:?}");
    let run = weir(["convert", arg(&trace), "-o", arg(&out)]).expect(1);
    assert!(run.stderr.contains("--force replaces it"), "{}", run.stderr);
    weir(["convert", arg(&trace), "-o", arg(&out), "--force"]).expect(0);
    assert_eq!(list_names(&out), names);
    fs::write(out.join("stream_ideas.txt"), "mine").unwrap();
    let run = weir(["convert", arg(&trace), "-o", arg(&out), "--force"]).expect(1);
    assert!(run.stderr.contains("stream_ideas.txt"), "{}", run.stderr);
    assert_eq!(fs::read_to_string(out.join("stream_ideas.txt")).unwrap(), "mine");
    let file = write_file(&folder, "file", b"text");
    let run = weir(["convert", arg(&trace), "--to", "ctf", "-o", arg(&file), "--force"]).expect(1);
    assert!(run.stderr.contains("is not a folder"), "{}", run.stderr);
    assert_eq!(list_names(folder.path()).len(), 2, "{:?}", list_names(folder.path()));
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    weir(["convert", arg(&trace), "--to", "ctf", "-o", arg(&empty)]).expect(0);
    assert_eq!(list_names(&empty), names);
}

#[test]
fn recording_in_a_folder_is_an_input() {
    let folder = make_folder();
    let recording = write_file(&folder, "data", b"recording");
    let run =
        weir(["convert", arg(folder.path()), "--to", "etl", "-o", arg(&recording), "--force"]).expect(1);
    assert!(run.stderr.contains("is an input"), "{}", run.stderr);
    assert_eq!(fs::read(&recording).unwrap(), b"recording");
}

#[test]
fn option_that_the_format_does_not_take_is_refused() {
    let trace = fixture_path("kernel");
    for (format, option, formats) in [
        ("collapsed", &["--level", "info"][..], "all except collapsed, speedscope, etl"),
        ("csv", &["--symbol-path", "."], "all except csv, xml, pcapng"),
        ("ctf", &["--numeric"], "text, jsonl, csv, xml"),
        ("otlp", &["--layout", "events"], "parquet, arrow"),
        ("etl", &["--pid", "1"], "all except etl"),
    ] {
        let run = weir([&["convert", arg(&trace), "--to", format, "-o", "unused"], option].concat());
        let message = format!("{format} does not take {}; formats that do: {formats}", option[0]);
        assert!(run.expect(2).stderr.contains(&message), "{format}");
    }
    let run =
        weir(["convert", arg(&trace), "--to", "parquet", "-o", "unused", "--layout", "kernel", "--cpu", "0"]);
    assert!(run.expect(2).stderr.contains("--layout kernel does not take --cpu"));
}

#[test]
fn recording_of_perf_is_to_be_imported_first() {
    let folder = make_folder();
    let recording = write_file(&folder, "perf.data", b"PERFILE2\x68\0\0\0\0\0\0\0");
    for command in [&["convert", "--to", "csv"][..], &["info"]] {
        let run = weir([command, &[arg(&recording)]].concat()).expect(1);
        let hint = format!("import it first: weir convert {} --to etl -o perf.etl", recording.display());
        assert!(run.stderr.contains("is a recording of perf, not a trace"), "{}", run.stderr);
        assert!(run.stderr.contains(&hint), "{}", run.stderr);
    }
}

#[test]
fn failure_to_write_names_the_output() {
    let folder = make_folder();
    let recording = write_file(&folder, "perf.data", &small_recording(b""));
    for (input, format) in
        [(&fixture_path("kernel"), "jsonl"), (&fixture_path("kernel"), "chrome"), (&recording, "etl")]
    {
        let run = weir(["convert", arg(input), "--to", format, "-o", "/dev/full"]).expect(1);
        let message = "error: cannot write /dev/full: No space left on device";
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
}

#[test]
fn recording_of_perf_in_a_pipe_is_to_be_piped_again() {
    let mut command = weir_command(["dump", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&small_recording(b"")).unwrap();
    let stderr = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(stderr.contains("perf record -o - … | weir convert - -o perf.etl"), "{stderr}");
}

/// Returns a recording of perf, as written to a pipe: one event, one sample, and `rest`.
fn small_recording(rest: &[u8]) -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let header = |kind: u64, size: u64| kind | size << 48;
    // The processor clock at 1000 Hz; samples have thread and time.
    let mut recording = b"PERFILE2".to_vec();
    recording.extend(words(&[16, header(64, 72), 1 | 64 << 32, 0, 1000, 2 | 4, 0, 1 << 10 | 1 << 18, 0, 0]));
    recording.extend(words(&[header(9, 24), 100 | 100 << 32, 1000]));
    recording.extend(rest);
    recording
}

#[test]
fn recording_of_perf_can_be_piped() {
    let folder = make_folder();
    for (name, rest, status) in [("whole.etl", b"".as_slice(), 0), ("cut.etl", &[9, 0, 0, 0, 0, 0, 24, 0], 3)]
    {
        let out = folder.path().join(name);
        let mut command = weir_command(["convert", "-", "-o", arg(&out)]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&small_recording(rest)).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(&format!("{name}: etl, ")), "{stderr}");
        assert!(stderr.contains("end when it was imported"), "{stderr}");
        assert!(stderr.contains("perf record --sample-cpu adds it"), "{stderr}");
        assert_eq!(stderr.contains("ends within a record"), status == 3, "{stderr}");
        assert!(!stderr.contains("weir repair"), "{stderr}");
        assert!(weir(["dump", arg(&out)]).expect(0).text().contains("SampleProf"));
    }
}

#[test]
fn result_names_the_format_and_other_commands_name_convert() {
    let folder = make_folder();
    let trace = fixture_path("kernel");
    let out = folder.path().join("out.chrome.json");
    let run = weir(["convert", arg(&trace), "-o", arg(&out)]).expect(0);
    assert!(run.stderr.contains("out.chrome.json: jsonl, "), "{}", run.stderr);
    let out = folder.path().join("out.pftrace");
    let run = weir(["dump", arg(&trace), "-o", arg(&out)]).expect(0);
    let note = "has the format text, not perfetto, which weir convert writes";
    assert!(run.stderr.contains(note), "{}", run.stderr);
    let run = weir(["dump", arg(&trace), "-o", arg(&out), "--format", "text", "--force"]).expect(0);
    assert!(!run.stderr.contains("note"), "{}", run.stderr);
    let run = weir(["dump", arg(&trace), "--format", "perfetto"]).expect(2);
    assert!(run.stderr.contains("weir convert --to perfetto"), "{}", run.stderr);
    let run = weir(["convert", arg(&trace), "--to", "jsonl", "-o", arg(folder.path())]).expect(1);
    assert!(run.stderr.contains("it is a folder; name a file"), "{}", run.stderr);
    assert!(!run.stderr.contains("session"), "{}", run.stderr);
}

#[test]
fn trace_that_is_named_twice_gives_a_warning() {
    let trace = fixture_path("tracelogging");
    let run = weir(["convert", "--to", "jsonl", arg(&trace), arg(&trace), arg(&trace)]).expect(0);
    assert_eq!(run.stderr.matches("is named more than once").count(), 1, "{}", run.stderr);
    let run = weir(["convert", "--to", "jsonl", arg(&trace), arg(&fixture_path("kernel"))]).expect(0);
    assert!(!run.stderr.contains("more than once"), "{}", run.stderr);
}

#[test]
fn piped_input_can_be_read_twice() {
    let trace = fs::read(fixture_path("tracelogging")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = weir_command([&["convert", "--to", "jsonl"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&trace).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(run(&["-", "-"]), 2 * run(&["-"]));
}

#[test]
fn file_of_standard_input_is_not_replaced() {
    let folder = make_folder();
    let trace = folder.path().join("trace.etl");
    fs::copy(fixture_path("tracelogging"), &trace).unwrap();
    let before = fs::read(&trace).unwrap();
    let mut command = weir_command(["convert", "-", "--to", "jsonl", "-o", arg(&trace), "--force"]);
    let output = command.stdin(fs::File::open(&trace).unwrap()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("is an input"), "{stderr}");
    assert_eq!(fs::read(&trace).unwrap(), before);
}

#[test]
fn profile_without_samples_and_waits_is_an_error() {
    let folder = make_folder();
    let out = folder.path().join("out.pprof");
    let run = weir(["convert", arg(&fixture_path("tracelogging")), "-o", arg(&out)]).expect(1);
    assert!(run.stderr.contains("no samples and no waits"), "{}", run.stderr);
    let run =
        weir(["convert", arg(&fixture_path("tracelogging")), "-o", arg(&out), "--event", "*"]).expect(1);
    assert!(run.stderr.contains("--to collapsed writes"), "{}", run.stderr);
    assert!(list_names(folder.path()).is_empty());
}

#[test]
fn filters_are_named_as_the_cause_only_if_there_are_any() {
    let trace = fixture_path("tracelogging");
    let run = weir(["convert", arg(&trace), "--to", "otlp-spans", "--event", "Nothing"]).expect(0);
    assert!(run.stderr.contains("no event matched"), "{}", run.stderr);
    let run = weir(["convert", arg(&trace), "--to", "otlp-spans", "--event", "*"]).expect(0);
    assert!(!run.stderr.contains("no event matched"), "{}", run.stderr);
    let run = weir(["convert", arg(&fixture_path("kernel")), "--to", "otlp-spans"]).expect(0);
    assert!(run.stderr.contains("0 spans") && !run.stderr.contains("no event matched"), "{}", run.stderr);
}

#[test]
fn collapsed_stacks_are_those_of_flame() {
    let trace = fixture_path("kernel");
    let flame = weir(["flame", arg(&trace), "--collapsed"]);
    let convert = weir(["convert", arg(&trace), "--to", "collapsed"]);
    assert_eq!((convert.code, convert.stdout), (flame.code, flame.stdout));
    let flame = weir(["flame", arg(&trace), "--speedscope"]);
    let convert = weir(["convert", arg(&trace), "--to", "speedscope"]);
    assert_eq!((convert.code, convert.stdout), (flame.code, flame.stdout));
}

#[test]
fn build_without_tables_says_how_to_get_them() {
    if cfg!(feature = "table") {
        return;
    }
    let folder = make_folder();
    for output in ["dataset", "file.parquet"] {
        let output = folder.path().join(output);
        let run = weir(["convert", arg(&fixture_path("kernel")), "--to", "parquet", "-o", arg(&output)]);
        let stderr = run.expect(1).stderr;
        assert!(stderr.contains("cargo install --path crates/cli --features table"), "{stderr}");
        assert!(!output.exists(), "{}", output.display());
    }
}
