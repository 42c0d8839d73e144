//! Checks the claims of ARCHITECTURE.md: its folders and modules exist, its edges between crates are
//! those of the manifests, no files import each other in a circle, and a program that only writes
//! events links no decoder.

mod cycles;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::util::root;

/// The crates of this workspace that each crate depends on.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Returns the lines of the indented block that follows the line containing `marker`.
fn indented_block<'a>(page: &'a str, marker: &str) -> impl Iterator<Item = &'a str> {
    let (_, after_marker) =
        page.split_once(marker).unwrap_or_else(|| panic!("ARCHITECTURE.md does not contain {marker:?}"));
    let lines = after_marker.lines().skip(1).skip_while(|line| line.is_empty());
    lines.take_while(|line| line.starts_with("    "))
}

fn read_page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is not readable")
}

/// Returns the folder of a package of this workspace: `decode` for `traceweir-decode`, and `api`
/// for `traceweir`.
fn folder_of_package(package: &str) -> Option<&str> {
    if package == "traceweir" { Some("api") } else { package.strip_prefix("traceweir-") }
}

/// Returns the crates of this workspace that a manifest lists as dependencies, without
/// dev-dependencies.
fn read_dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
    let is_dependency_table = |table: &str| {
        let table = table.rsplit('.').next().unwrap_or_default();
        table == "dependencies" || table == "build-dependencies"
    };
    let mut dependencies = BTreeSet::new();
    let mut is_in_table = false;
    for line in text.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_matches(['[', ']']);
            is_in_table = is_dependency_table(table);
            // `[dependencies.NAME]`
            if let Some((kind, name)) = table.rsplit_once('.')
                && is_dependency_table(kind)
            {
                dependencies.extend(folder_of_package(name).map(str::to_owned));
            }
        } else if is_in_table {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            dependencies.extend(folder_of_package(name).map(str::to_owned));
        }
    }
    dependencies
}

/// Returns the edges that the manifests declare. All packages of `compat` are one node, and those
/// of `examples` another.
fn edges_of_manifests() -> Edges {
    let mut edges = Edges::new();
    for parent in ["crates", "compat", "examples"] {
        for entry in std::fs::read_dir(root().join(parent)).expect("the folder is not readable") {
            let path = entry.expect("the entry is not readable").path();
            let manifest = path.join("Cargo.toml");
            if !manifest.is_file() {
                continue;
            }
            let folder_name = path.file_name().unwrap().to_string_lossy().into_owned();
            let name = if parent == "crates" { folder_name } else { parent.to_owned() };
            edges.entry(name).or_default().extend(read_dependencies(&manifest));
        }
    }
    for (name, folder) in [
        ("benches", "benches"),
        ("fuzz", "fuzz"),
        ("table", "tables/table"),
        ("sql", "tables/sql"),
        ("python", "bindings/python"),
    ] {
        edges.insert(name.to_owned(), read_dependencies(&root().join(folder).join("Cargo.toml")));
    }
    edges
}

#[test]
fn documented_edges_match_the_manifests() {
    let page = read_page();
    let mut documented = Edges::new();
    for line in indented_block(&page, "an edge that is not listed needs") {
        let (from, to) = line.split_once('→').unwrap_or_else(|| panic!("not an edge: {line}"));
        let from = from.split_whitespace().last().expect("a line names no crate").to_owned();
        let to = to
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| name != "(nothing of ours)")
            .collect();
        assert!(documented.insert(from, to).is_none(), "documented twice: {line}");
    }
    assert_eq!(documented, edges_of_manifests());
}

/// Returns the names that a pattern such as `input`, `output/{files,live}` or `queue/…` stands for.
fn expand_braces(pattern: &str) -> Vec<String> {
    let pattern = pattern.trim_end_matches("/…");
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (names, after) = rest.split_once('}').unwrap_or_else(|| panic!("no closing brace: {pattern}"));
    names.split(',').flat_map(|name| expand_braces(&format!("{before}{name}{after}"))).collect()
}

#[test]
fn modules_of_the_tables_exist() {
    let page = read_page();
    let (_, sections) = page.split_once("\n## Modules\n").expect("no section of modules");
    let sections = sections.split("\n## ").next().unwrap_or_default();
    let mut documented = BTreeSet::new();
    for section in sections.split("\n### ").skip(1) {
        let (name, section) = section.split_once('\n').expect("a section is empty");
        let folder = match name {
            "table" | "sql" => format!("tables/{name}"),
            "python" => "bindings/python".to_owned(),
            _ => format!("crates/{name}"),
        };
        let source = root().join(&folder).join("src");
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cell = row.split(" | ").next().unwrap_or_default();
            for module in cell.split('`').skip(1).step_by(2).flat_map(expand_braces) {
                let paths = [format!("{module}.rs"), format!("{module}/mod.rs"), module.clone()];
                let exists = paths.iter().any(|path| source.join(path).exists())
                    || root().join(&folder).join(&module).is_dir();
                assert!(exists, "{name}: there is no module {module}");
            }
        }
        documented.insert(folder);
    }
    for name in ["crates/cli", "crates/format", "tables/table", "tables/sql", "bindings/python"] {
        assert!(documented.contains(name), "{name} has no table of modules");
    }
}

#[test]
fn program_that_only_writes_events_links_no_decoder() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "-p",
            "traceweir",
            "--no-default-features",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
        .current_dir(root())
        .output()
        .expect("cargo did not run");
    assert!(tree.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("package names are not UTF-8");
    let packages: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains("traceweir-transport"), "the list of packages is incomplete: {packages:?}");
    for parser in ["traceweir-decode", "quick-xml", "object", "pdb2", "gimli"] {
        assert!(!packages.contains(parser), "{parser} is linked: {packages:?}");
    }
}

#[test]
fn shown_folders_exist_and_every_crate_is_shown_once() {
    let page = read_page();
    let mut shown = BTreeSet::new();
    for line in indented_block(&page, "Folder names; the package is") {
        let name = line.split_whitespace().next().expect("the line does not name a folder");
        // The crates are indented further than the folders of the root.
        let is_crate = line.starts_with("      ");
        let path = if is_crate { format!("crates/{name}") } else { name.to_owned() };
        assert!(root().join(&path).is_dir(), "{path} is not a folder");
        assert!(shown.insert(path), "{name} is shown twice");
    }
    for entry in std::fs::read_dir(root().join("crates")).expect("the folder is not readable") {
        let name = entry.expect("the entry is not readable").file_name();
        let path = format!("crates/{}/", name.to_string_lossy());
        assert!(shown.contains(&path), "{path} is not shown");
    }
}
