use super::*;

/// How many names are sure when everything up to a moment has been handled.
fn confirmed(openings: &mut Openings, time: u64) -> usize {
    std::iter::from_fn(|| openings.next_sure(time).map(drop)).count()
}

/// A process that does not exist: nothing is found in /proc.
const NOBODY: u32 = u32::MAX - 1;
const CHILD: u32 = u32::MAX - 2;

fn opened(openings: &mut Openings, descriptor: u32, flags: i32, path: Option<&str>) -> u64 {
    let key = openings.next_key();
    openings.opened((NOBODY, descriptor), key, Some(u32::try_from(flags).unwrap()), 100, path);
    key
}

#[test]
fn the_last_descriptor_ends_an_opening() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, libc::O_CLOEXEC, None);
    openings.share(NOBODY, (4, 3), false, 110);
    openings.fork(NOBODY, CHILD);
    assert_eq!(openings.of(CHILD, 4), Some(key));
    assert!(openings.unbind(NOBODY, 3, 120).is_none());
    assert!(openings.unbind(NOBODY, 4, 130).is_none());
    // The child had both; one of them does not survive another program, and another has it still.
    assert!(openings.exec(CHILD).is_empty());
    assert_eq!(openings.of(CHILD, 4), Some(key));
    let ended = openings.exit(CHILD);
    assert_eq!(ended.iter().map(|it| it.key).collect::<Vec<_>>(), [key]);
    assert!(openings.openings.is_empty() && openings.tables.descriptors() == 0);
}

#[test]
fn positions_are_shared_and_lost_at_the_end_of_a_file() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, libc::O_RDWR, None);
    assert_eq!(openings.position(key, true), Some(0));
    openings.moved(key, true, 10);
    assert_eq!(openings.position(key, false), Some(10));
    openings.set_position(key, 5);
    openings.moved(key, false, 1);
    assert_eq!(openings.position(key, true), Some(6));
    let log = opened(&mut openings, 4, libc::O_APPEND | libc::O_WRONLY, None);
    assert_eq!((openings.position(log, true), openings.position(log, false)), (None, Some(0)));
    openings.moved(log, true, 10);
    assert_eq!(openings.position(log, false), None);
}

#[test]
fn what_nobody_watches_is_not_known() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, libc::O_RDWR, Some("/tmp/x"));
    openings.forget_positions();
    assert_eq!(openings.position(key, false), None);
    openings.moved(key, false, 10);
    assert_eq!(openings.position(key, false), None);
    openings.forget(None);
    assert_eq!(openings.of(NOBODY, 3), None);
    assert!(openings.next_key() > key);
}

#[test]
fn a_name_is_told_when_it_is_sure() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, 0, Some("/tmp/x"));
    assert_eq!(confirmed(&mut openings, 100), 0);
    assert_eq!(confirmed(&mut openings, 101), 1);
    assert_eq!(openings.named().collect::<Vec<_>>(), [(key, "/tmp/x")]);
    assert_eq!(openings.unbind(NOBODY, 3, 200).unwrap().name.as_deref(), Some("/tmp/x"));
    assert_eq!(openings.name_bytes, 0);
    // A path that depends on a folder is no name.
    opened(&mut openings, 3, 0, Some("x"));
    assert_eq!(confirmed(&mut openings, 300), 0);
}

#[test]
fn what_was_read_after_a_close_is_not_believed() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, 0, None);
    openings.share(NOBODY, (4, 3), false, 100);
    openings.suppose(key, "/tmp/x".into(), 500, (NOBODY, 3));
    assert!(openings.unbind(NOBODY, 3, 400).is_none());
    assert_eq!(confirmed(&mut openings, 1000), 0);
    assert_eq!(openings.named().count(), 0);
    // It is believed of one that was not closed.
    openings.share(NOBODY, (5, 4), false, 100);
    openings.suppose(key, "/tmp/x".into(), 500, (NOBODY, 4));
    assert!(openings.unbind(NOBODY, 5, 400).is_none());
    assert_eq!(confirmed(&mut openings, 1000), 1);
}

#[test]
fn a_close_that_is_older_than_what_was_found_was_of_something_else() {
    let mut openings = Openings::default();
    openings.found(NOBODY, 3, "/tmp/x".into());
    assert!(openings.unbind(NOBODY, 3, 1).is_none());
    openings.found(NOBODY, 3, "/tmp/x".into());
    assert!(openings.unbind(NOBODY, 3, u64::MAX).is_some());
}

#[test]
fn too_much_is_forgotten() {
    let mut openings = Openings::default();
    for descriptor in 0..MAX_DESCRIPTORS as u32 + 10 {
        openings.found(NOBODY, descriptor, "/tmp/x".into());
    }
    assert!(openings.tables.descriptors() <= 11 && openings.openings.len() <= 11);
    let name: Box<str> = "/".repeat(4096).into();
    for descriptor in 0..10_000 {
        openings.found(NOBODY, descriptor, name.clone());
        assert!(openings.name_bytes <= MAX_NAMES + name.len());
    }
    assert!(openings.last_key > MAX_DESCRIPTORS as u64);
}

#[test]
fn names_that_are_not_sure_are_bounded_too() {
    let mut openings = Openings::default();
    let name = "/".repeat(4096);
    for descriptor in 0..20_000 {
        opened(&mut openings, descriptor, 0, Some(&name));
        assert!(openings.name_bytes <= MAX_NAMES + 2 * name.len());
        assert_eq!(openings.unsure.len(), openings.openings.len());
    }
    let kept: usize = openings.openings.values().map(Opening::name_bytes).sum();
    assert_eq!((openings.name_bytes, kept > 0), (kept, true));
    // Each is closed before its name is sure.
    for _ in 0..MAX_DESCRIPTORS + 10 {
        opened(&mut openings, 3, 0, Some("/x"));
        openings.unbind(NOBODY, 3, 100);
        assert!(openings.unsure.len() <= MAX_DESCRIPTORS + 1);
    }
    confirmed(&mut openings, u64::MAX);
    assert!(openings.unsure.is_empty() && openings.unsure.capacity() <= KEPT_UNSURE);
    let kept: usize = openings.openings.values().map(Opening::name_bytes).sum();
    assert_eq!(openings.name_bytes, kept);
}

#[test]
fn a_table_that_is_shared_is_one() {
    let mut openings = Openings::default();
    let key = opened(&mut openings, 3, 0, None);
    let private = opened(&mut openings, 4, libc::O_CLOEXEC, None);
    // The record of its start is like that of any other child.
    openings.fork(NOBODY, CHILD);
    openings.share_all(NOBODY, CHILD);
    let younger = opened(&mut openings, 5, 0, None);
    assert_eq!(openings.of(CHILD, 5), Some(younger), "what one opens, the other has");
    assert_eq!(openings.unbind(CHILD, 5, 200).map(|it| it.key), Some(younger), "and may close");
    assert_eq!(openings.tables.get(NOBODY, 5).map(|it| it.key), None);
    assert!(
        openings.exec(CHILD).is_empty(),
        "another program has a table of its own, and the parent all of its"
    );
    assert_eq!((openings.of(NOBODY, 4), openings.of(NOBODY, 3)), (Some(private), Some(key)));
    assert_eq!((openings.of(CHILD, 3), openings.tables.get(CHILD, 4).map(|it| it.key)), (Some(key), None));
    openings.share_all(NOBODY, CHILD);
    assert!(openings.exit(NOBODY).is_empty(), "another process has them");
    assert_eq!(openings.exit(CHILD).len(), 2);
    assert!(openings.openings.is_empty() && openings.tables.descriptors() == 0);
}

#[test]
fn a_shared_table_of_which_nothing_is_known_is_shared_still() {
    let mut openings = Openings::default();
    openings.share_all(NOBODY, CHILD);
    let key = opened(&mut openings, 3, 0, None);
    assert_eq!(openings.of(CHILD, 3), Some(key));
    openings.forget(None);
    let key = opened(&mut openings, 3, 0, None);
    assert_eq!(openings.of(CHILD, 3), Some(key), "also when all else is forgotten");
    openings.unshare(CHILD);
    assert!(openings.unbind(CHILD, 3, 200).is_none() && openings.of(NOBODY, 3) == Some(key));
    openings.share_all(NOBODY, CHILD);
    openings.forget_all();
    opened(&mut openings, 3, 0, None);
    assert_eq!(openings.of(CHILD, 3), None, "an exec may be among what is lost");
}

#[test]
fn a_huge_table_is_not_copied() {
    let mut openings = Openings::default();
    for descriptor in 0..MAX_INHERITED as u32 {
        openings.found(NOBODY, descriptor, "/x".into());
    }
    openings.fork(NOBODY, CHILD);
    assert_eq!(openings.tables.descriptors(), 2 * MAX_INHERITED);
    openings.found(NOBODY, u32::MAX, "/x".into());
    for child in 0..10_000 {
        openings.fork(NOBODY, 1_000_000_000 + child);
    }
    assert_eq!(openings.tables.descriptors(), 2 * MAX_INHERITED + 1);
    assert_eq!(openings.named().count(), MAX_INHERITED + 1, "and nothing is forgotten");
}

#[test]
fn a_child_gets_no_openings_that_are_forgotten() {
    let mut openings = Openings::default();
    for descriptor in 0..4 {
        openings.found(NOBODY, descriptor, "/x".into());
    }
    assert_eq!(openings.of(NOBODY, 4), None, "no file");
    // The first that is bound makes room.
    openings.name_bytes = MAX_NAMES;
    openings.fork(NOBODY, CHILD);
    assert_eq!(openings.between(CHILD, 0, u32::MAX), [0, 4]);
    let keys: Vec<_> = [0, 4].iter().filter_map(|it| openings.tables.get(CHILD, *it)?.key).collect();
    assert_eq!(keys, openings.openings.keys().copied().collect::<Vec<_>>());
    let ended = openings.unbind(CHILD, 0, u64::MAX).expect("its only use");
    assert_eq!((ended.name.as_deref(), openings.name_bytes), (Some("/x"), 0));
}
