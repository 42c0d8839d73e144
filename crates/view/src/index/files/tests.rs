//! Names files whose keys are used again, up to the limits.

use super::*;

fn name_of(files: &Files, file: u32) -> Option<&str> {
    files.names[file as usize].as_deref()
}

#[test]
fn key_that_is_used_again_stands_for_another_file() {
    let mut files = Files::default();
    let first = files.find_or_add([7, 0]);
    assert_eq!(name_of(&files, first), None);
    files.set_name(7, "first");
    assert_eq!((files.find_or_add([7, 0]), name_of(&files, first)), (first, Some("first")));
    // The same name again is the same file.
    files.set_name(7, "first");
    assert_eq!(files.find_or_add([7, 0]), first);
    files.set_name(7, "second");
    let second = files.find_or_add([7, 0]);
    assert_ne!(second, first);
    assert_eq!((name_of(&files, first), name_of(&files, second)), (Some("first"), Some("second")));
}

#[test]
fn second_key_finds_the_file_too() {
    let mut files = Files::default();
    files.set_name(9, "opened");
    let file = files.find_or_add([8, 9]);
    assert_eq!(name_of(&files, file), Some("opened"));
    assert_eq!(files.find_or_add([0, 9]), file);
    assert_eq!(files.find_or_add([0, 0]), 0, "no key is the unknown file");
    files.set_name(0, "nothing");
    files.set_name(9, "");
    assert_eq!(files.names.len(), 2);
}

#[test]
fn files_and_connections_beyond_the_limits_are_counted() {
    let mut files = Files::with_limit(3);
    let file = files.find_or_add([1, 0]);
    let connection = files.find_or_add_connection("a");
    assert_eq!((file, connection, files.merged), (1, 2, 0));
    assert_eq!((files.find_or_add([2, 0]), files.find_or_add_connection("b")), (0, 0));
    assert_eq!(files.merged, 2);
    assert_eq!((files.find_or_add([1, 0]), files.find_or_add_connection("a")), (file, connection));
    assert_eq!(files.merged, 2);
}

#[test]
fn names_are_cut_and_limited_together() {
    let mut files = Files::default();
    let long = "x".repeat(10 * MAX_NAME_CHARS);
    files.set_name(1, &long);
    assert_eq!(name_of(&files, 1).unwrap().len(), MAX_NAME_CHARS);
    for key in 2..=(MAX_TOTAL_NAME_BYTES / MAX_NAME_CHARS) as u64 + 10 {
        files.set_name(key, &format!("{key}{long}"));
    }
    assert!(files.merged > 0);
    let bytes: usize = files.names.iter().flatten().map(|name| name.len()).sum();
    assert!(bytes <= MAX_TOTAL_NAME_BYTES);
}
