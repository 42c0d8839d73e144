//! Checks that no files of a crate import each other in a circle. Imports between a module and its
//! ancestors are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::modules::{Crate, Import, Sources};
use crate::util::root;

/// Files of one crate that import each other in a circle, and the imports between them.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    files: BTreeSet<String>,
    imports: Vec<Import>,
}

/// Finds the cycles in a graph of imports.
fn find_cycles(imports: &BTreeSet<Import>) -> Vec<Cycle> {
    let mut reachable_files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        reachable_files.entry(&import.from).or_default().insert(&import.to);
    }
    // Follows the imports of imports until nothing is added.
    loop {
        let mut has_grown = false;
        for file in reachable_files.keys().copied().collect::<Vec<_>>() {
            let next =
                reachable_files[file].iter().filter_map(|next| reachable_files.get(next)).flatten().copied();
            let next: BTreeSet<&str> = next.collect();
            let reachable = reachable_files.entry(file).or_default();
            let count_before = reachable.len();
            reachable.extend(next);
            has_grown |= reachable.len() > count_before;
        }
        if !has_grown {
            break;
        }
    }
    let reaches = |from: &str, to: &str| reachable_files.get(from).is_some_and(|files| files.contains(to));
    let mut cycles: Vec<Cycle> = Vec::new();
    for file in reachable_files.keys().copied().filter(|file| reaches(file, file)) {
        if cycles.iter().any(|cycle| cycle.files.contains(file)) {
            continue;
        }
        let files = reachable_files[file].iter().filter(|other| reaches(other, file));
        let files: BTreeSet<String> = files.map(|other| (*other).to_owned()).collect();
        let mut imports: Vec<Import> = imports
            .iter()
            .filter(|import| files.contains(&import.from) && files.contains(&import.to))
            .cloned()
            .collect();
        // One import is enough to show an edge.
        imports.dedup_by(|next, first| (&next.from, &next.to) == (&first.from, &first.to));
        cycles.push(Cycle { files, imports });
    }
    cycles
}

/// Finds the cycles in the crate whose root is the file `root`.
fn find_crate_cycles(sources: &Sources, root: &str) -> Vec<Cycle> {
    find_cycles(&Crate::read(sources, root).imports())
}

/// Adds the source files below a folder; `prefix` is its path in the result.
fn add_sources(folder: &Path, prefix: &str, sources: &mut Sources) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("the entry is not readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let key = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if path.is_dir() {
            add_sources(&path, &key, sources);
        } else if key.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            sources.insert(key, text);
        }
    }
}

/// Returns the folders of the workspace's crates by name.
fn crate_folders() -> BTreeMap<String, std::path::PathBuf> {
    let mut folders = BTreeMap::from([("benches".to_owned(), root().join("benches"))]);
    for parent in ["crates", "compat", "examples", "tables", "bindings"] {
        for entry in std::fs::read_dir(root().join(parent)).expect("the folder is not readable") {
            let path = entry.expect("the entry is not readable").path();
            if path.join("Cargo.toml").is_file() {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let name = if parent == "crates" { name } else { format!("{parent}/{name}") };
                folders.insert(name, path);
            }
        }
    }
    folders
}

/// Lists the imports of each cycle.
fn describe_cycles(cycles: &[(String, Cycle)]) -> String {
    let mut report = String::new();
    for (name, cycle) in cycles {
        let _ = writeln!(report, "\nThese files of {name} import each other in a circle:");
        for Import { from, to, path } in &cycle.imports {
            let _ = writeln!(report, "  {from} -> {to}: {path}");
        }
    }
    report
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut cycles = Vec::new();
    for (name, folder) in crate_folders() {
        let mut sources = Sources::new();
        add_sources(&folder.join("src"), "", &mut sources);
        let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root));
        let crate_cycles = roots.flat_map(|root| find_crate_cycles(&sources, root));
        cycles.extend(crate_cycles.map(|cycle| (name.clone(), cycle)));
    }
    assert!(cycles.is_empty(), "{}", describe_cycles(&cycles));
}

/// Returns the cycles of a made-up crate, each as the names of its files.
fn cycles_of_files(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let cycles = find_crate_cycles(&sources, "lib.rs");
    cycles.into_iter().map(|cycle| cycle.files.into_iter().collect()).collect()
}

/// Returns the imports of a made-up crate as "from -> to: path".
fn imports_of_files(files: &[(&str, &str)]) -> Vec<String> {
    let sources = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let imports = Crate::read(&sources, "lib.rs").imports();
    imports.into_iter().map(|Import { from, to, path }| format!("{from} -> {to}: {path}")).collect()
}

#[test]
fn cycle_through_an_inline_path_is_found() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { if true { super::c::g(); } }"),
        ("c.rs", "pub fn g() { let _ = matches!(x, crate::a::A(_)); }"),
    ];
    assert_eq!(cycles_of_files(&files), [["a.rs", "b.rs", "c.rs"]]);
    let imports = ["a.rs -> b.rs: crate::b::B", "b.rs -> c.rs: super::c::g", "c.rs -> a.rs: crate::a::A"];
    assert_eq!(imports_of_files(&files), imports);
}

#[test]
fn cycle_through_an_imported_module_is_found() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b; pub fn f() { b::g::<u8>() }"),
        ("b.rs", "use super::{a as other}; pub fn g<T>() { other::f() }"),
    ];
    assert_eq!(cycles_of_files(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn separate_cycles_are_reported_separately() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::A; use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::d::D; pub struct C;"),
        ("d.rs", "use crate::c::C; pub struct D;"),
    ];
    assert_eq!(cycles_of_files(&files), [["a.rs", "b.rs"], ["c.rs", "d.rs"]]);
}

#[test]
fn re_export_leads_to_the_defining_file() {
    let files = [
        ("lib.rs", "mod a; mod front; pub use front::Deep as Renamed;"),
        ("front/mod.rs", "mod deep; mod all; pub use deep::Deep; pub use all::*;"),
        ("front/deep.rs", "pub struct Deep;"),
        ("front/all.rs", "pub fn each() {}"),
        ("a.rs", "use crate::{Renamed, front::{self, Deep}}; fn f() { front::each(); }"),
    ];
    let imports = [
        "a.rs -> front/all.rs: front::each",
        "a.rs -> front/deep.rs: crate::Renamed",
        "a.rs -> front/deep.rs: crate::front::Deep",
    ];
    assert_eq!(imports_of_files(&files), imports);
}

#[test]
fn item_and_module_may_share_a_name() {
    let files = [
        ("lib.rs", "mod a; mod front;"),
        ("front.rs", "mod table; pub use table::table;"),
        ("front/table.rs", "pub fn table() {}"),
        ("a.rs", "use crate::front::table; fn f() { table() }"),
    ];
    assert_eq!(imports_of_files(&files), ["a.rs -> front/table.rs: crate::front::table"]);
}

#[test]
fn glob_import_leads_to_the_files_of_the_names_that_are_used() {
    let files = [
        ("lib.rs", "mod a; mod b; mod prelude;"),
        ("prelude.rs", "pub use crate::a::A; pub use crate::b::B;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::prelude::*; pub struct B(A);"),
    ];
    // `b.rs` imports `prelude.rs`, which re-exports `B` of `b.rs`.
    assert_eq!(cycles_of_files(&files), [["b.rs", "prelude.rs"]]);
    assert!(imports_of_files(&files).contains(&"b.rs -> a.rs: crate::prelude".to_owned()));
}

#[test]
fn module_and_its_ancestors_may_import_each_other() {
    let files = [
        ("lib.rs", "mod a; pub struct Root; use a::child::Child;"),
        ("a.rs", "pub mod child; pub struct A; use child::Child;"),
        ("a/child.rs", "use super::A; use crate::Root; pub struct Child;"),
    ];
    assert_eq!(imports_of_files(&files), [""; 0]);
}

#[test]
fn modules_of_different_parents_may_not_import_each_other() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub mod x;"),
        ("a/x.rs", "use crate::b::y::Y; pub struct X;"),
        ("b.rs", "pub mod y;"),
        ("b/y.rs", "use crate::a::x::X; pub struct Y;"),
    ];
    assert_eq!(cycles_of_files(&files), [["a/x.rs", "b/y.rs"]]);
}

#[test]
fn imports_of_tests_do_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A; #[cfg(test)] mod tests;"),
        (
            "b.rs",
            "pub struct B; #[cfg(test)] use crate::{a::A, a}; #[cfg(all(test, unix))] fn f<T, U>() { crate::a::f() }
             #[cfg(test)] mod tests { use crate::a::A; } struct C { #[cfg(test)] a: crate::a::A, b: u8 }
             #[cfg(any(test, unix))] fn g() { crate::b::B; }",
        ),
    ];
    assert_eq!(imports_of_files(&files), ["a.rs -> b.rs: crate::b::B"]);
}

#[test]
fn inline_modules_belong_to_their_file() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub mod inner { pub fn f() { super::super::b::g() } }"),
        ("b.rs", "pub fn g() { crate::a::inner::f() }"),
    ];
    assert_eq!(cycles_of_files(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn exported_macro_is_found_at_the_root() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "#[macro_export] macro_rules! m { ($e:expr) => { $crate::b::g($e) } }"),
        ("b.rs", "pub fn g(n: u8) { crate::m!(n) }"),
    ];
    assert_eq!(cycles_of_files(&files), [["a.rs", "b.rs"]]);
}
