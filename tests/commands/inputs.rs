//! Tests of the input files that commands accept, and of the errors for all other files.

use std::fs::{File, Permissions};
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use traceweir_format::time::FileTime;
use zip::write::SimpleFileOptions;

use super::{arg, dumped_event_names, five_events, five_events_with, fixture_path, make_folder, write_file};
use crate::golden::{run_to_end, session_options, start_time};
use crate::util::{skip, weir, weir_command};

fn gzip_compress(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zip_archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(*name, SimpleFileOptions::default().compression_level(Some(9))).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn several_traces_are_merged_by_time_whatever_their_clocks() {
    let folder = make_folder();
    let first = write_file(&folder, "first.etl", &five_events());
    // The clock of the second trace is twice as fast, so its events are 50 µs apart. The trace
    // starts 125 µs after the first trace.
    let mut options = session_options("second");
    options.perf_freq = 20_000_000;
    options.start_time = FileTime(start_time().0 + 1250);
    let second = write_file(&folder, "second.etl", &five_events_with(options));
    let events = weir(["dump", "--format", "jsonl", arg(&second), arg(&first)]).expect(0).json();
    let times: Vec<_> = events.iter().map(|event| event["ms"].as_f64().unwrap()).collect();
    assert_eq!(times, [0.0, 0.1, 0.125, 0.175, 0.2, 0.225, 0.275, 0.3, 0.325, 0.375, 0.4, 0.5]);
    let wall_times: Vec<_> = events.iter().map(|event| event["time"].as_str().unwrap()).collect();
    assert!(wall_times.is_sorted(), "events are not in time order: {wall_times:?}");
}

#[test]
fn archives_are_recognised_by_content_not_by_name() {
    let folder = make_folder();
    let plain = dumped_event_names(&write_file(&folder, "five.etl", &five_events()), &[]);
    // The header event and five events.
    assert_eq!(plain.len(), 6);
    let gz = gzip_compress(&five_events());
    for name in ["five.etl.gz", "five.etlgz", "five.bin"] {
        assert_eq!(dumped_event_names(&write_file(&folder, name, &gz), &[]), plain, "{name}");
    }
    let zip = zip_archive(&[("readme.txt", b"not a trace"), ("sub/FIVE.ETL", &five_events())]);
    assert_eq!(dumped_event_names(&write_file(&folder, "five.etl.zip", &zip), &[]), plain);
}

#[test]
fn all_traces_of_a_zip_are_merged_and_named_by_their_members() {
    let folder = make_folder();
    let zip = zip_archive(&[("a.etl", &five_events()), ("b.etl", &five_events())]);
    let path = write_file(&folder, "two.zip", &zip);
    assert_eq!(dumped_event_names(&path, &[]).len(), 12);
    let infos = weir(["info", "--json", arg(&path)]).expect(0).json();
    let files: Vec<_> =
        infos.iter().map(|info| info["file"].as_str().unwrap().rsplit_once(':').unwrap().1).collect();
    assert_eq!(files, ["a.etl", "b.etl"]);
}

#[test]
fn archives_that_expand_too_much_are_refused() {
    let folder = make_folder();
    // Small archives may expand to 64 MiB.
    let zeros = vec![0; 65 << 20];
    let gz = write_file(&folder, "bomb.etl.gz", &gzip_compress(&zeros));
    let one_member = write_file(&folder, "one.etl.zip", &zip_archive(&[("bomb.etl", &zeros)]));
    // Neither member alone exceeds the limit.
    let below_limit = five_events_before(&zeros[..33 << 20]);
    let two_members =
        write_file(&folder, "two.etl.zip", &zip_archive(&[("a.etl", &below_limit), ("b.etl", &below_limit)]));
    for bomb in [&gz, &one_member, &two_members] {
        let run = weir(["info", arg(bomb)]).expect(1);
        assert!(
            run.stderr.contains("expands to more than") && run.stderr.contains("refusing"),
            "{}",
            run.stderr
        );
        assert!(run.stderr.contains(arg(bomb)), "{}", run.stderr);
    }
}

/// Builds a preallocated trace: the events are followed by zeros.
fn five_events_before(zeros: &[u8]) -> Vec<u8> {
    let mut file = five_events();
    file.extend_from_slice(zeros);
    file
}

#[test]
fn truncated_archive_is_read_as_far_as_possible_and_reported() {
    let folder = make_folder();
    let archive = gzip_compress(&five_events());
    // Without the end of its trailer, the archive has all its data, but `weir` cannot check that
    // the data is intact.
    let path = write_file(&folder, "cut.etl.gz", &archive[..archive.len() - 4]);
    let run = weir(["dump", "--format", "jsonl", arg(&path)]).expect(3);
    assert_eq!(run.json().len(), 6);
    assert!(run.stderr.contains("the archive is damaged"), "{}", run.stderr);
    weir(["check", arg(&path)]).expect(3);
}

#[test]
fn file_that_is_not_a_trace_fails_with_a_reason() {
    let folder = make_folder();
    let folder_path = folder.path().join("folder.etl");
    std::fs::create_dir(&folder_path).unwrap();
    let zip = zip_archive(&[("readme.txt", b"hello")]);
    for (path, reason) in [
        (write_file(&folder, "empty.etl", b""), "the file is empty"),
        (write_file(&folder, "note.etl", &b"Dear reader, ".repeat(40)), "is a text file, not a trace"),
        (write_file(&folder, "short.etl", &[0xFF; 7]), "shorter than a buffer header"),
        (write_file(&folder, "zeros.etl", &[0; 8192]), "log-file header"),
        (write_file(&folder, "empty.gz", &gzip_compress(b"")), "the file is empty"),
        (write_file(&folder, "half.zip", &zip[..zip.len() / 2]), "unreadable ZIP archive"),
        (write_file(&folder, "other.zip", &zip), "no .etl file"),
        (folder.path().join("missing.etl"), "No such file"),
        (folder_path, "is a folder"),
    ] {
        for verb in ["info", "dump", "stats", "check"] {
            let run = weir([verb, arg(&path)]).expect(1);
            assert!(
                run.stderr.starts_with("error: ") && run.stderr.contains(reason),
                "{verb}: {}",
                run.stderr
            );
            assert!(run.stderr.contains(arg(&path)), "the error does not name the file: {}", run.stderr);
            assert!(run.stdout.is_empty(), "a failed command printed data");
        }
    }
}

#[test]
fn error_names_the_invalid_file_among_several() {
    let folder = make_folder();
    let valid = write_file(&folder, "good.etl", &five_events());
    let empty = write_file(&folder, "bad.etl", b"");
    let run = weir(["dump", arg(&valid), arg(&empty)]).expect(1);
    assert!(run.stderr.contains("bad.etl"), "{}", run.stderr);
}

#[test]
fn unreadable_file_exits_with_77() {
    let folder = make_folder();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let path = write_file(&folder, "secret.etl", &five_events());
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    let mut command = weir_command(["info", arg(&path)]);
    if File::open(&path).is_ok() {
        // Root can read everything, so the test runs the command as the user nobody.
        command.uid(65_534).gid(65_534);
        if command.output().is_err() {
            return skip("unprivileged", "the user nobody cannot start weir here");
        }
    }
    let run = run_to_end(&mut command).expect(77);
    assert!(run.stderr.contains("secret.etl") && run.stderr.contains("ermission"), "{}", run.stderr);
}

#[test]
fn trace_can_be_read_from_a_pipe() {
    for bytes in [five_events(), gzip_compress(&five_events()), zip_archive(&[("five.etl", &five_events())])]
    {
        let mut child = weir_command(["dump", "--format", "jsonl", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 6);
    }
}

#[test]
fn unpacking_leaves_no_temporary_files() {
    let folder = make_folder();
    let temporary = make_folder();
    let path = write_file(&folder, "five.etl.gz", &gzip_compress(&five_events()));
    run_to_end(weir_command(["info", arg(&path)]).env("TMPDIR", temporary.path())).expect(0);
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0);
}

#[test]
fn schemas_are_read_from_files_and_folders() {
    let manifests = crate::util::root().join("fixtures/manifests");
    let trace = fixture_path("manifest");
    let with_file = dumped_event_names(&trace, &["--manifest", arg(&manifests.join("everything.man"))]);
    assert!(with_file.contains(&"Connecting/Start".to_owned()), "{with_file:?}");
    assert_eq!(dumped_event_names(&trace, &["--manifest", arg(&manifests)]), with_file);
    let mut command = weir_command(["dump", arg(&trace)]);
    let installed = run_to_end(command.env("TRACEWEIR_MANIFESTS", &manifests)).expect(0).text();
    assert!(installed.contains("Connecting/Start"), "installed manifests are not read: {installed}");
    let formats = crate::util::root().join("fixtures/tmf");
    assert!(
        dumped_event_names(&fixture_path("wpp"), &["--tmf", arg(&formats)]).contains(&"queue_c41".to_owned())
    );
}

#[test]
fn unusable_schema_file_is_named_in_the_error() {
    let folder = make_folder();
    let note = write_file(&folder, "note.man", b"no XML at all");
    let missing = folder.path().join("missing.man");
    for (option, path) in [
        ("--manifest", note.as_path()),
        ("--pdb", note.as_path()),
        ("--manifest", missing.as_path()),
        ("--tmf", missing.as_path()),
        ("--pdb", missing.as_path()),
    ] {
        let run = weir([Path::new("dump"), &fixture_path("manifest"), Path::new(option), path]).expect(1);
        assert!(run.stderr.contains(arg(path)), "{option}: {}", run.stderr);
    }
}
