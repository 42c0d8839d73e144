use super::*;

/// Counts the names that are confirmed when all records up to `time` have been handled.
fn count_confirmed_names(files: &mut OpenFiles, time: u64) -> usize {
    std::iter::from_fn(|| files.confirm_next_name(time).map(drop)).count()
}

// Processes that do not exist: `/proc` shows nothing of them.
const PARENT: u32 = u32::MAX - 1;
const CHILD: u32 = u32::MAX - 2;

/// Opens a file in the parent at time 100. Returns its key.
fn open_in_parent(files: &mut OpenFiles, descriptor: u32, flags: i32, path: Option<&str>) -> u64 {
    let key = files.next_key();
    files.add_opened(PARENT, descriptor, key, Some(u32::try_from(flags).unwrap()), 100, path);
    key
}

#[test]
fn last_descriptor_closes_the_file() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, libc::O_CLOEXEC, None);
    files.duplicate_descriptor(PARENT, 3, 4, false, 110);
    files.fork(PARENT, CHILD);
    assert_eq!(files.resolve_descriptor(CHILD, 4), Some(key));
    assert!(files.close_descriptor(PARENT, 3, 120).is_none());
    assert!(files.close_descriptor(PARENT, 4, 130).is_none());
    // The child has both descriptors. Exec closes one of them, and the other still refers to the
    // file.
    assert!(files.exec(CHILD).is_empty());
    assert_eq!(files.resolve_descriptor(CHILD, 4), Some(key));
    let closed = files.exit(CHILD);
    assert_eq!(closed.iter().map(|file| file.key).collect::<Vec<_>>(), [key]);
    assert!(files.files.is_empty() && files.tables.descriptor_count() == 0);
}

#[test]
fn positions_are_shared_and_unknown_after_an_append() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, libc::O_RDWR, None);
    assert_eq!(files.position(key, true), Some(0));
    files.advance_position(key, true, 10);
    assert_eq!(files.position(key, false), Some(10));
    files.set_position(key, 5);
    files.advance_position(key, false, 1);
    assert_eq!(files.position(key, true), Some(6));
    let log = open_in_parent(&mut files, 4, libc::O_APPEND | libc::O_WRONLY, None);
    assert_eq!((files.position(log, true), files.position(log, false)), (None, Some(0)));
    files.advance_position(log, true, 10);
    assert_eq!(files.position(log, false), None);
}

#[test]
fn dropped_state_is_unknown() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, libc::O_RDWR, Some("/tmp/x"));
    files.forget_positions();
    assert_eq!(files.position(key, false), None);
    files.advance_position(key, false, 10);
    assert_eq!(files.position(key, false), None);
    files.clear_except(None);
    assert_eq!(files.resolve_descriptor(PARENT, 3), None);
    assert!(files.next_key() > key);
}

#[test]
fn name_is_confirmed_by_later_records() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, 0, Some("/tmp/x"));
    assert_eq!(count_confirmed_names(&mut files, 100), 0);
    assert_eq!(count_confirmed_names(&mut files, 101), 1);
    assert_eq!(files.confirmed_names().collect::<Vec<_>>(), [(key, "/tmp/x")]);
    assert_eq!(files.close_descriptor(PARENT, 3, 200).unwrap().name.as_deref(), Some("/tmp/x"));
    assert_eq!(files.name_bytes, 0);
    // A relative path is not a name.
    open_in_parent(&mut files, 3, 0, Some("x"));
    assert_eq!(count_confirmed_names(&mut files, 300), 0);
}

#[test]
fn name_read_after_a_close_is_discarded() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, 0, None);
    files.duplicate_descriptor(PARENT, 3, 4, false, 100);
    files.add_unconfirmed_name(key, "/tmp/x".into(), 500, PARENT, 3);
    assert!(files.close_descriptor(PARENT, 3, 400).is_none());
    assert_eq!(count_confirmed_names(&mut files, 1000), 0);
    assert_eq!(files.confirmed_names().count(), 0);
    // A name read for a descriptor that is still open is kept.
    files.duplicate_descriptor(PARENT, 4, 5, false, 100);
    files.add_unconfirmed_name(key, "/tmp/x".into(), 500, PARENT, 4);
    assert!(files.close_descriptor(PARENT, 5, 400).is_none());
    assert_eq!(count_confirmed_names(&mut files, 1000), 1);
}

#[test]
fn close_older_than_a_scanned_file_is_of_another_file() {
    let mut files = OpenFiles::default();
    files.add_existing(PARENT, 3, "/tmp/x".into());
    assert!(files.close_descriptor(PARENT, 3, 1).is_none());
    files.add_existing(PARENT, 3, "/tmp/x".into());
    assert!(files.close_descriptor(PARENT, 3, u64::MAX).is_some());
}

#[test]
fn full_state_is_dropped() {
    let mut files = OpenFiles::default();
    for descriptor in 0..MAX_DESCRIPTORS as u32 + 10 {
        files.add_existing(PARENT, descriptor, "/tmp/x".into());
    }
    // All state was dropped once, before one of the last 11 descriptors was added.
    assert!(files.tables.descriptor_count() <= 11 && files.files.len() <= 11);
    let name: Box<str> = "/".repeat(4096).into();
    for descriptor in 0..10_000 {
        files.add_existing(PARENT, descriptor, name.clone());
        assert!(files.name_bytes <= MAX_NAME_BYTES + name.len());
    }
    assert!(files.last_key > MAX_DESCRIPTORS as u64);
}

#[test]
fn unconfirmed_names_are_bounded_too() {
    let mut files = OpenFiles::default();
    let name = "/".repeat(4096);
    for descriptor in 0..20_000 {
        open_in_parent(&mut files, descriptor, 0, Some(&name));
        assert!(files.name_bytes <= MAX_NAME_BYTES + 2 * name.len());
        assert_eq!(files.unconfirmed.len(), files.files.len());
    }
    let name_bytes: usize = files.files.values().map(OpenFile::name_bytes).sum();
    assert_eq!((files.name_bytes, name_bytes > 0), (name_bytes, true));
    // Each file is closed before its name is confirmed.
    for _ in 0..MAX_DESCRIPTORS + 10 {
        open_in_parent(&mut files, 3, 0, Some("/x"));
        files.close_descriptor(PARENT, 3, 100);
        assert!(files.unconfirmed.len() <= MAX_DESCRIPTORS + 1);
    }
    count_confirmed_names(&mut files, u64::MAX);
    assert!(files.unconfirmed.is_empty() && files.unconfirmed.capacity() <= KEPT_UNCONFIRMED);
    let name_bytes: usize = files.files.values().map(OpenFile::name_bytes).sum();
    assert_eq!(files.name_bytes, name_bytes);
}

#[test]
fn processes_share_one_table() {
    let mut files = OpenFiles::default();
    let key = open_in_parent(&mut files, 3, 0, None);
    let cloexec_key = open_in_parent(&mut files, 4, libc::O_CLOEXEC, None);
    // A FORK record does not show that the child shares the table, so `share_table` follows.
    files.fork(PARENT, CHILD);
    files.share_table(PARENT, CHILD);
    let younger = open_in_parent(&mut files, 5, 0, None);
    assert_eq!(files.resolve_descriptor(CHILD, 5), Some(younger), "not valid in both processes");
    assert_eq!(
        files.close_descriptor(CHILD, 5, 200).map(|file| file.key),
        Some(younger),
        "the child did not close the file"
    );
    assert_eq!(files.tables.get(PARENT, 5).map(|target| target.key), None);
    assert!(files.exec(CHILD).is_empty(), "exec of the child closed files that the parent has open");
    assert_eq!(
        (files.resolve_descriptor(PARENT, 4), files.resolve_descriptor(PARENT, 3)),
        (Some(cloexec_key), Some(key))
    );
    let cloexec_in_child = files.tables.get(CHILD, 4).map(|target| target.key);
    assert_eq!((files.resolve_descriptor(CHILD, 3), cloexec_in_child), (Some(key), None));
    files.share_table(PARENT, CHILD);
    assert!(files.exit(PARENT).is_empty(), "closed files that another process has open");
    assert_eq!(files.exit(CHILD).len(), 2);
    assert!(files.files.is_empty() && files.tables.descriptor_count() == 0);
}

#[test]
fn empty_shared_table_stays_shared() {
    let mut files = OpenFiles::default();
    files.share_table(PARENT, CHILD);
    let key = open_in_parent(&mut files, 3, 0, None);
    assert_eq!(files.resolve_descriptor(CHILD, 3), Some(key));
    files.clear_except(None);
    let key = open_in_parent(&mut files, 3, 0, None);
    assert_eq!(files.resolve_descriptor(CHILD, 3), Some(key), "dropping everything else ended the sharing");
    files.unshare_table(CHILD);
    assert!(
        files.close_descriptor(CHILD, 3, 200).is_none() && files.resolve_descriptor(PARENT, 3) == Some(key)
    );
    files.share_table(PARENT, CHILD);
    files.clear();
    open_in_parent(&mut files, 3, 0, None);
    assert_eq!(files.resolve_descriptor(CHILD, 3), None, "the table is shared after lost records");
}

#[test]
fn huge_table_is_not_copied() {
    let mut files = OpenFiles::default();
    for descriptor in 0..MAX_INHERITED as u32 {
        files.add_existing(PARENT, descriptor, "/x".into());
    }
    files.fork(PARENT, CHILD);
    assert_eq!(files.tables.descriptor_count(), 2 * MAX_INHERITED);
    files.add_existing(PARENT, u32::MAX, "/x".into());
    for child in 0..10_000 {
        files.fork(PARENT, 1_000_000_000 + child);
    }
    assert_eq!(files.tables.descriptor_count(), 2 * MAX_INHERITED + 1);
    assert_eq!(files.confirmed_names().count(), MAX_INHERITED + 1, "files were dropped");
}

#[test]
fn child_inherits_no_dropped_files() {
    let mut files = OpenFiles::default();
    for descriptor in 0..4 {
        files.add_existing(PARENT, descriptor, "/x".into());
    }
    assert_eq!(files.resolve_descriptor(PARENT, 4), None, "a process that does not exist has a file");
    // Names have no space left, so binding the first descriptor drops all other files. Descriptor 4
    // refers to no file, so the child inherits it.
    files.name_bytes = MAX_NAME_BYTES;
    files.fork(PARENT, CHILD);
    assert_eq!(files.descriptors_between(CHILD, 0, u32::MAX), [0, 4]);
    let keys = [0, 4].iter().filter_map(|descriptor| files.tables.get(CHILD, *descriptor)?.key);
    let keys: Vec<_> = keys.collect();
    assert_eq!(keys, files.files.keys().copied().collect::<Vec<_>>());
    let closed = files.close_descriptor(CHILD, 0, u64::MAX).expect("another descriptor refers to the file");
    assert_eq!((closed.name.as_deref(), files.name_bytes), (Some("/x"), 0));
}
