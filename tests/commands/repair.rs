//! Repair: a finalised copy, never at the expense of what is there.

use super::{dump, five_events, fixture, folder, store, text};
use crate::util::weir;

#[test]
fn a_crashed_file_is_repaired_to_a_sound_one_with_the_same_events() {
    let folder = folder();
    let broken = fixture("crashed");
    let before = std::fs::read(&broken).unwrap();
    let out = folder.path().join("repaired.etl");
    weir(["check", text(&broken)]).expect(3);
    let run = weir(["repair", text(&broken), "-o", text(&out)]).expect(0);
    assert!(run.stderr.contains("57 events in 5 buffers"), "{}", run.stderr);
    assert!(run.stdout.is_empty(), "words go to standard error");
    let check = weir(["check", text(&out)]).expect(0);
    assert!(check.stderr.contains("sound"), "{}", check.stderr);
    let events = |run: crate::util::Run| run.json().into_iter().skip(1).collect::<Vec<_>>();
    assert_eq!(events(dump(&out, &[]).expect(0)), events(dump(&broken, &[]).expect(3)));
    assert_eq!(std::fs::read(&broken).unwrap(), before, "the input is as it was");
}

#[test]
fn a_file_full_of_zeros_behind_its_last_buffer_is_repaired() {
    let folder = folder();
    let mut bytes = std::fs::read(fixture("crashed")).unwrap();
    bytes.truncate(0x4000);
    bytes.resize(0x9000, 0);
    let path = store(&folder, "preallocated.etl", &bytes);
    let out = folder.path().join("out.etl");
    weir(["repair", text(&path), "-o", text(&out)]).expect(0);
    weir(["check", text(&out)]).expect(0);
    assert_eq!(std::fs::metadata(&out).unwrap().len(), 0x4000);
}

#[test]
fn repair_refuses_to_replace_a_file_unless_forced() {
    let folder = folder();
    let out = store(&folder, "precious.etl", b"precious");
    let run = weir(["repair", text(&fixture("crashed")), "-o", text(&out)]).expect(1);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    weir(["repair", text(&fixture("crashed")), "-o", text(&out), "--force"]).expect(0);
    weir(["check", text(&out)]).expect(0);
}

#[test]
fn repair_never_writes_to_its_input_even_when_forced() {
    let folder = folder();
    let bytes = std::fs::read(fixture("crashed")).unwrap();
    let path = store(&folder, "crashed.etl", &bytes);
    let (hard, soft) = (folder.path().join("hard.etl"), folder.path().join("soft.etl"));
    std::fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink(&path, &soft).unwrap();
    for out in [&path, &hard, &soft] {
        let run = weir(["repair", text(&path), "-o", text(out), "--force"]).expect(1);
        assert!(run.stderr.contains("is the input"), "{}", run.stderr);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_sound_file_is_copied_as_it_is() {
    let folder = folder();
    let path = store(&folder, "five.etl", &five_events());
    let out = folder.path().join("copy.etl");
    weir(["repair", text(&path), "-o", text(&out)]).expect(0);
    assert_eq!(std::fs::read(&out).unwrap(), five_events());
}

#[test]
fn what_is_no_trace_leaves_no_output() {
    let folder = folder();
    let path = store(&folder, "note.etl", b"Dear reader");
    let out = folder.path().join("out.etl");
    weir(["repair", text(&path), "-o", text(&out)]).expect(1);
    assert!(!out.exists());
}
