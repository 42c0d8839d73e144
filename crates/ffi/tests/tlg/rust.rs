//! The table from Rust, through a session into a file: with the macros and the builder of this
//! project, and with the published crates that they follow.
//!
//! ```text
//!   declarations.txt ─▶ generate_rust ─┬─ cargo ─▶ traceweir ──────────────────────────┐
//!                                      └─ cargo ─▶ tracelogging, tracelogging_dynamic ──┤
//!                                                      └─▶ libtraceweir ───────────────┴─▶ session
//!
//!   the events in the session's file are equal, byte for byte
//! ```
//!
//! The published crates come unchanged from the registry. On other systems than Windows they write
//! nothing, so they are compiled with `--cfg windows`; the two libraries of Windows that they then
//! link with are this library under those names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use traceweir_format::tracelogging::{EventMetadata, FieldMetadata};

use crate::compiler::Workbench;
use crate::generate_rust::{Crates, has_rust_form, program};
use crate::recorded::{Recorded, TABLE, check_all_but_metadata, record_program};
use crate::support::{Workshop, here, skip};
use crate::table::{self, Declaration};

/// Rows for which the published macros use another number of bytes for the same tags and formats.
///
/// They write a field's tags for every `tag(…)`, even if it is 0, and have a form of three bytes.
/// The contract has 1, 2 and 4 bytes; the published builder and this project have no other. In the
/// same way they write the byte of `format(Default)`, which is 0.
const MACROS_DIFFER: [&str; 4] = ["EventTag6", "FieldTags0", "FieldTags6", "FormatDefault"];
/// Rows for which the published builder does: it always writes a field's tags in four bytes, and an
/// event's in the fewest.
const BUILDER_DIFFERS: [&str; 4] = ["FieldTags1", "FieldTags2", "FieldTags3", "FieldTags4"];

/// Returns the events of the table that have a form in Rust.
fn events() -> Vec<Declaration> {
    let events: Vec<_> = table::read().into_iter().filter(has_rust_form).collect();
    assert!(events.len() >= 150, "{} declarations", events.len());
    events
}

/// Writes a package that depends on these crates.
fn package(folder: &Path, source: &str, dependencies: &str) {
    let manifest = format!(
        "[package]\nname = \"table\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[[bin]]\nname = \"table\"\npath = \"main.rs\"\n\
         [dependencies]\n{dependencies}\n[workspace]\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("the manifest can be written");
    std::fs::write(folder.join("main.rs"), source).expect("the source can be written");
}

fn cargo(folder: &Path, arguments: &[&str], target: &str, flags: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(folder).env_remove("RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", target_folder(target)).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // The package is built once: skip what only helps later builds.
    command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.output().expect("cargo runs")
}

fn target_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[track_caller]
fn expect_built(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compares what was recorded, first by the macros and then by the builder, with the table. Returns
/// the rows whose metadata differ.
fn differing<'a>(events: &'a [Declaration], recorded: &'a [Recorded]) -> [Vec<&'a str>; 2] {
    assert_eq!(recorded.len(), 2 * events.len());
    let (by_macro, by_builder) = recorded.split_at(events.len());
    [by_macro, by_builder].map(|recorded| {
        let mut differing = Vec::new();
        for (event, got) in events.iter().zip(recorded) {
            check_all_but_metadata(event, got);
            if got.metadata != event.metadata() {
                assert_eq!(
                    parse_metadata(&got.metadata),
                    parse_metadata(&event.metadata()),
                    "{}",
                    event.name
                );
                differing.push(event.name.as_str());
            }
        }
        differing
    })
}

/// Returns the contents of metadata, which can be encoded in several ways.
fn parse_metadata(metadata: &[u8]) -> (u32, &[u8], Vec<FieldMetadata<'_>>) {
    let event = EventMetadata::parse(metadata).expect("metadata");
    (event.tags, event.name, event.fields().map(|f| f.expect("a field")).collect())
}

#[test]
fn metadata_from_the_rust_macros_and_the_builder_equal_those_of_c() {
    let (events, workbench) = (events(), Workbench::new());
    let folder = workbench.path(".");
    let api = here("../api");
    package(&folder, &program(&events, Crates::Ours), &format!("traceweir = {{ path = {api:?} }}"));
    // The versions that the project uses, so that nothing is downloaded.
    std::fs::copy(here("../../Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file can be copied");
    expect_built(&cargo(&folder, &["build", "--offline"], "nested", &[]));
    let recorded = record_program(&target_folder("nested/debug/table"), TABLE);
    assert_eq!(differing(&events, &recorded), [Vec::<&str>::new(), Vec::new()]);
}

#[test]
fn metadata_from_the_published_crates_are_the_same() {
    let (events, workbench, workshop) = (events(), Workbench::new(), Workshop::new());
    let folder = workbench.path(".");
    for library in ["libOneCore_apiset.so", "librpcrt4.so"] {
        symlink(workshop.path("libtraceweir.so"), workshop.path(library)).expect("a link can be made");
    }
    let dependencies = "tracelogging = \"=1.2.4\"\ntracelogging_dynamic = \"=1.2.4\"";
    package(&folder, &program(&events, Crates::Published), dependencies);
    let fetched = [&["fetch", "--offline"][..], &["fetch"]]
        .map(|a| move |f: &Path| cargo(f, a, "published-table", &[]));
    if !fetched.iter().any(|fetch| fetch(&folder).status.success()) {
        return skip("registry", "the packages tracelogging and tracelogging_dynamic cannot be fetched");
    }
    let libraries = workshop.path(".").display().to_string();
    let flags = [
        // Only the crates of this program are compiled for Windows, not those that run in the
        // compiler.
        "--cfg=windows".to_owned(),
        "-Aexplicit_builtin_cfgs_in_flags".to_owned(),
        format!("-Lnative={libraries}"),
        format!("-Clink-arg=-Wl,-rpath,{libraries},--disable-new-dtags"),
    ];
    let arguments = ["build", "--offline", "--target", &host()];
    expect_built(&cargo(&folder, &arguments, "published-table", &flags));
    let built = target_folder("published-table").join(host()).join("debug/table");
    let recorded = record_program(&built, TABLE);
    assert_eq!(differing(&events, &recorded), [MACROS_DIFFER.to_vec(), BUILDER_DIFFERS.to_vec()]);
}

/// Returns the system that the compiler runs on.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let output = String::from_utf8_lossy(&output);
    output.lines().find_map(|l| l.strip_prefix("host: ")).expect("a host").to_owned()
}
