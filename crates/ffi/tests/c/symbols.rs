//! What the shared library shows the world.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Workshop, expect_success, here};

/// The functions that headers declare, apart from those that they define.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in ["windows.h", "evntprov.h", "evntrace.h"] {
        let text = std::fs::read_to_string(here("include").join(header)).unwrap();
        for line in text.lines() {
            let words = line.split_once('(').map(|(front, _)| front.split_whitespace().collect::<Vec<_>>());
            if let Some([_, "WINAPI" | "EVNTAPI" | "WMIAPI", name]) = words.as_deref() {
                names.insert((*name).to_owned());
            }
        }
    }
    names
}

#[test]
fn exactly_what_the_headers_declare_is_exported() {
    let workshop = Workshop::new();
    let listed = expect_success(
        Command::new("nm").args(["-D", "--defined-only"]).arg(workshop.path("libtraceweir.so")),
    );
    let exported: BTreeSet<String> =
        listed.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect();
    let declared = declared();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_library_has_its_name_and_stays_loaded() {
    let workshop = Workshop::new();
    let dynamic = expect_success(Command::new("readelf").arg("-d").arg(workshop.path("libtraceweir.so")));
    assert!(dynamic.contains("[libtraceweir.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}
