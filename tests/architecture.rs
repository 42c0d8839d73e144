//! ARCHITECTURE.md is true: the folders it shows are there, and its edges between crates are those of the manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::util::root;

/// Crate, and what of ours it is built of.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// The lines of an indented block: from behind one that begins so, to the first that is not indented.
fn block<'a>(page: &'a str, behind: &str) -> impl Iterator<Item = &'a str> {
    let (_, rest) = page.split_once(behind).unwrap_or_else(|| panic!("{behind:?} is on the page"));
    let rest = rest.lines().skip(1).skip_while(|line| line.is_empty());
    rest.take_while(|line| line.starts_with("    "))
}

fn page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there")
}

/// The folder of a package of ours; its package is called like the folder, but for `api`.
fn folder(package: &str) -> Option<&str> {
    if package == "traceweir" { Some("api") } else { package.strip_prefix("traceweir-") }
}

/// What a manifest says that a program or library is built of, tests left aside.
fn built_of(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
    let is_building = |table: &str| {
        let table = table.rsplit('.').next().unwrap_or_default();
        table == "dependencies" || table == "build-dependencies"
    };
    let mut found = BTreeSet::new();
    let mut counts = false;
    for line in text.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_matches(['[', ']']);
            counts = is_building(table);
            // `[dependencies.NAME]`
            if let Some((kind, name)) = table.rsplit_once('.')
                && is_building(kind)
            {
                found.extend(folder(name).map(str::to_owned));
            }
        } else if counts {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend(folder(name).map(str::to_owned));
        }
    }
    found
}

/// What the manifests say.
fn edges_of_manifests() -> Edges {
    let mut edges = Edges::new();
    for crates in ["crates", "compat", "examples"] {
        for entry in std::fs::read_dir(root().join(crates)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let manifest = path.join("Cargo.toml");
            if !manifest.is_file() {
                continue;
            }
            let own = path.file_name().unwrap().to_string_lossy().into_owned();
            let name = if crates == "crates" { own } else { crates.to_owned() };
            edges.entry(name).or_default().extend(built_of(&manifest));
        }
    }
    for name in ["benches", "fuzz"] {
        edges.insert(name.to_owned(), built_of(&root().join(name).join("Cargo.toml")));
    }
    edges
}

#[test]
fn the_edges_between_crates_are_those_of_the_manifests() {
    let page = page();
    let mut told = Edges::new();
    for line in block(&page, "an edge that is not listed needs") {
        let (from, to) = line.split_once('→').unwrap_or_else(|| panic!("an edge: {line}"));
        let from = from.split_whitespace().last().expect("a crate").to_owned();
        let to =
            to.split(',').map(|it| it.trim().to_owned()).filter(|it| it != "(nothing of ours)").collect();
        assert!(told.insert(from, to).is_none(), "told twice: {line}");
    }
    assert_eq!(told, edges_of_manifests());
}

#[test]
fn every_folder_that_is_shown_is_there_and_shown_once() {
    let page = page();
    let mut shown = BTreeSet::new();
    for line in block(&page, "Folder names; the package is") {
        let name = line.split_whitespace().next().expect("a folder");
        let is_crate = line.starts_with("      ");
        let path = if is_crate { format!("crates/{name}") } else { name.to_owned() };
        assert!(root().join(&path).is_dir(), "{path} is no folder");
        assert!(shown.insert(path), "{name} is shown twice");
    }
    for entry in std::fs::read_dir(root().join("crates")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let path = format!("crates/{}/", name.to_string_lossy());
        assert!(shown.contains(&path), "{path} is not shown");
    }
}
