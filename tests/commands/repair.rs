//! Tests of `weir repair`, which writes a finalised copy and never damages existing files.

use traceweir_format::tracelogging::MetadataBuilder;

use super::{arg, dump_jsonl, five_events, fixture_path, make_folder, write_file};
use crate::golden::{SelfDescribing, TraceMaker, session_options};
use crate::util::weir;

#[test]
fn crashed_file_is_repaired_to_a_sound_one_with_the_same_events() {
    let folder = make_folder();
    let broken = fixture_path("crashed");
    let before = std::fs::read(&broken).unwrap();
    let out = folder.path().join("repaired.etl");
    weir(["check", arg(&broken)]).expect(3);
    let run = weir(["repair", arg(&broken), "-o", arg(&out)]).expect(0);
    assert!(run.stderr.contains("57 records in 5 buffers"), "{}", run.stderr);
    assert!(run.stderr.contains("events that it still had in memory are missing"), "{}", run.stderr);
    assert!(run.stdout.is_empty(), "messages were printed to standard output");
    let check = weir(["check", arg(&out)]).expect(0);
    assert!(check.stderr.contains("sound"), "{}", check.stderr);
    let events = |run: crate::util::Run| run.json().into_iter().skip(1).collect::<Vec<_>>();
    assert_eq!(events(dump_jsonl(&out, &[]).expect(0)), events(dump_jsonl(&broken, &[]).expect(3)));
    assert_eq!(std::fs::read(&broken).unwrap(), before, "repair changed its input");
}

#[test]
fn file_with_trailing_zeros_is_repaired() {
    let folder = make_folder();
    let mut bytes = std::fs::read(fixture_path("crashed")).unwrap();
    // Four complete buffers, then zeros.
    bytes.truncate(0x4000);
    bytes.resize(0x9000, 0);
    let path = write_file(&folder, "preallocated.etl", &bytes);
    let out = folder.path().join("out.etl");
    weir(["repair", arg(&path), "-o", arg(&out)]).expect(0);
    weir(["check", arg(&out)]).expect(0);
    assert_eq!(std::fs::metadata(&out).unwrap().len(), 0x4000);
}

#[test]
fn repair_reports_buffers_that_a_finalised_file_no_longer_has() {
    let folder = make_folder();
    let (repaired, out) = (folder.path().join("whole.etl"), folder.path().join("out.etl"));
    weir(["repair", arg(&fixture_path("crashed")), "-o", arg(&repaired)]).expect(0);
    let mut bytes = std::fs::read(&repaired).unwrap();
    bytes.truncate(0x3000);
    let cut = write_file(&folder, "cut.etl", &bytes);
    let run = weir(["repair", arg(&cut), "-o", arg(&out)]).expect(3);
    assert!(run.stderr.contains("wrote 5 buffers and the file has 3"), "{}", run.stderr);
    weir(["check", arg(&out)]).expect(0);
}

#[test]
fn repair_refuses_to_replace_a_file_unless_forced() {
    let folder = make_folder();
    let out = write_file(&folder, "precious.etl", b"precious");
    let run = weir(["repair", arg(&fixture_path("crashed")), "-o", arg(&out)]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    weir(["repair", arg(&fixture_path("crashed")), "-o", arg(&out), "--force"]).expect(0);
    weir(["check", arg(&out)]).expect(0);
}

#[test]
fn repair_never_writes_to_its_input_even_when_forced() {
    let folder = make_folder();
    let bytes = std::fs::read(fixture_path("crashed")).unwrap();
    let path = write_file(&folder, "crashed.etl", &bytes);
    let (hard, soft) = (folder.path().join("hard.etl"), folder.path().join("soft.etl"));
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    for out in [&path, &hard, &soft] {
        let run = weir(["repair", arg(&path), "-o", arg(out), "--force"]).expect(1);
        assert!(run.stderr.contains("is the input"), "{}", run.stderr);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn sound_file_is_copied_unchanged() {
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let out = folder.path().join("copy.etl");
    weir(["repair", arg(&path), "-o", arg(&out)]).expect(0);
    assert_eq!(std::fs::read(&out).unwrap(), five_events());
}

#[test]
fn file_that_is_not_a_trace_leaves_no_output() {
    let folder = make_folder();
    let path = write_file(&folder, "note.etl", b"Dear reader");
    let out = folder.path().join("out.etl");
    weir(["repair", arg(&path), "-o", arg(&out)]).expect(1);
    assert!(!out.exists());
}

/// Builds a trace of many buffers. Returns it with the number of its events.
fn long_trace() -> (Vec<u8>, usize) {
    let mut maker = TraceMaker::new(session_options("long"));
    let event = SelfDescribing::new("Shop.Long");
    for _ in 0..500 {
        event.write(&mut maker, 0, &mut MetadataBuilder::new("Tick", 0), &[], &[]);
    }
    (maker.finish(), 500)
}

#[test]
fn holes_are_reported_and_the_events_after_them_are_kept() {
    const BUFFER_BYTES: usize = 4096;
    let folder = make_folder();
    let (mut bytes, events) = long_trace();
    assert!(bytes.len() > 8 * BUFFER_BYTES);
    bytes[2 * BUFFER_BYTES..4 * BUFFER_BYTES].fill(0);
    let path = write_file(&folder, "holes.etl", &bytes);
    let hole = "hole at offset 0x2000: 8192 bytes of zeros";
    let dumped = dump_jsonl(&path, &[]).expect(3);
    assert!(dumped.stderr.contains(hole), "{}", dumped.stderr);
    let remaining = dumped.json().len() - 1;
    assert!(remaining < events && remaining > events / 2, "{remaining} of {events} events");
    let check = weir(["check", arg(&path)]).expect(3);
    assert!(check.text().contains(hole), "{}", check.text());
    let out = folder.path().join("out.etl");
    let run = weir(["repair", arg(&path), "-o", arg(&out)]).expect(3);
    assert!(run.stderr.contains(hole), "{}", run.stderr);
    weir(["check", arg(&out)]).expect(0);
    assert_eq!(dump_jsonl(&out, &[]).expect(0).json().len() - 1, remaining);
}

#[test]
fn log_emptied_and_continued_as_a_sparse_file_is_read() {
    use std::os::unix::fs::FileExt;
    const BUFFER_BYTES: u64 = 4096;
    const HOLE_BYTES: u64 = 1 << 40;
    let folder = make_folder();
    let (bytes, _) = long_trace();
    // The file has the first buffer, a hole, and the fifth and later buffers of the trace. So three
    // buffers are missing.
    let path = write_file(&folder, "sparse.etl", &bytes[..BUFFER_BYTES as usize]);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    if file.write_all_at(&bytes[4 * BUFFER_BYTES as usize..], BUFFER_BYTES + HOLE_BYTES).is_err() {
        crate::util::skip("sparse", "the file system has no sparse files of a terabyte");
        return;
    }
    let check = weir(["check", arg(&path)]).expect(3);
    assert!(check.text().contains("hole at offset 0x1000: 1099511627776 bytes of zeros"), "{}", check.text());
    let expected = (bytes.len() as u64 / BUFFER_BYTES - 3).to_string();
    assert!(check.stderr.contains(&format!("in {expected} buffers")), "{}", check.stderr);
}

#[test]
fn outputs_are_not_written_through_links_that_others_can_change() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = make_folder();
    let path = write_file(&folder, "five.etl", &five_events());
    let precious = write_file(&folder, "precious.txt", b"precious");
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    let link = shared.join("out");
    symlink(&precious, &link).unwrap();
    for verb in ["dump", "repair", "relog"] {
        let force = &["--force"][..];
        let run = weir([&[verb, arg(&path), "-o", arg(&link)], force].concat()).expect(77);
        assert!(run.stderr.contains("symbolic link"), "{verb}: {}", run.stderr);
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious", "{verb}");
        // A path through a link to a folder.
        let folder_link = shared.join(format!("folder-link-{verb}"));
        symlink(folder.path(), &folder_link).unwrap();
        let target = folder_link.join("precious.txt");
        let run = weir([&[verb, arg(&path), "-o", arg(&target)], force].concat()).expect(77);
        assert!(run.stderr.contains("symbolic link"), "{verb}: {}", run.stderr);
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious", "{verb}");
        // A new file in the linked folder, and the target of a dangling link.
        let new = format!("new-{verb}");
        symlink(folder.path().join(&new), shared.join(&new)).unwrap();
        for target in [folder_link.join(&new), shared.join(&new)] {
            let run = weir([&[verb, arg(&path), "-o", arg(&target)], force].concat()).expect(77);
            assert!(run.stderr.contains("symbolic link"), "{verb}: {}", run.stderr);
            assert!(!folder.path().join(&new).exists(), "{verb}");
        }
    }
    // A hard link, which another user may have created.
    let hard = shared.join("hard");
    std::fs::hard_link(&precious, &hard).unwrap();
    for arguments in [&["dump", "--force"][..], &["repair", "--force"]] {
        let run = weir([arguments, &[arg(&path), "-o", arg(&hard)]].concat()).expect(77);
        assert!(run.stderr.contains("only a file of your own"), "{arguments:?}: {}", run.stderr);
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious", "{arguments:?}");
    }
    // In a folder that only this user can change, a link is followed.
    let own_link = folder.path().join("own");
    symlink(&precious, &own_link).unwrap();
    weir(["dump", arg(&path), "-o", arg(&own_link)]).expect(1);
    weir(["dump", arg(&path), "-o", arg(&own_link), "--force"]).expect(0);
    assert_ne!(std::fs::read(&precious).unwrap(), b"precious");
}
