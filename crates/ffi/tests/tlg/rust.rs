//! Events of the table that Rust programs write through a session into a file: with the macros and
//! the builder of this project, and with the published crates that have the same interfaces.
//!
//! ```text
//!   declarations.txt ─▶ generate_rust ─┬─ cargo ─▶ traceweir ──────────────────────────┐
//!                                      └─ cargo ─▶ tracelogging, tracelogging_dynamic ──┤
//!                                                      └─▶ libtraceweir ───────────────┴─▶ session
//!
//!   the events in the session's file are equal, byte for byte
//! ```
//!
//! The published crates come unchanged from the registry. On systems other than Windows they write
//! nothing, so they are compiled with `--cfg windows`; the two libraries of Windows that they then
//! link with are this library under those names.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use traceweir_format::tracelogging::{EventMetadata, FieldMetadata};

use crate::compiler::SourceFolder;
use crate::generate_rust::{TracingCrates, generate_program, has_rust_form};
use crate::recorded::{RecordedEvent, TABLE_PROVIDER, check_all_but_metadata, record_program};
use crate::support::{ProgramFolder, crate_path, skip};
use crate::table::{self, EventDeclaration};

/// Rows for which the published macros use a different number of bytes for the same tags and
/// formats.
///
/// These macros write a field's tags for every `tag(…)`, even if it is 0, and have a form of three
/// bytes. The documented forms have 1, 2 and 4 bytes; the published builder and this project have
/// no other form. In the same way the macros write the byte of `format(Default)`, which is 0.
const MACROS_DIFFER: [&str; 4] = ["EventTag6", "FieldTags0", "FieldTags6", "FormatDefault"];
/// Rows for which the published builder uses a different number of bytes: it always writes a
/// field's tags in four bytes, and an event's tags in the fewest.
const BUILDER_DIFFERS: [&str; 4] = ["FieldTags1", "FieldTags2", "FieldTags3", "FieldTags4"];

/// Returns the events of the table that have a form in Rust.
fn events_with_rust_form() -> Vec<EventDeclaration> {
    let events: Vec<_> = table::read_declarations().into_iter().filter(has_rust_form).collect();
    assert!(events.len() >= 150, "{} declarations", events.len());
    events
}

/// Writes a package with one program and these dependencies.
fn write_package(folder: &Path, source: &str, dependencies: &str) {
    let manifest = format!(
        "[package]\nname = \"table\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[[bin]]\nname = \"table\"\npath = \"main.rs\"\n\
         [dependencies]\n{dependencies}\n[workspace]\n"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("cannot write the manifest");
    std::fs::write(folder.join("main.rs"), source).expect("cannot write the source");
}

fn run_cargo(folder: &Path, arguments: &[&str], target: &str, flags: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(folder).env_remove("RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", target_folder(target)).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // The package is built once, so incremental builds and debug information are off.
    command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.output().expect("cannot run cargo")
}

fn target_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[track_caller]
fn assert_built(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Compares recorded events, first those of the macros and then those of the builder, with the
/// table. Returns the rows whose metadata differ.
fn find_differing_metadata<'a>(
    events: &'a [EventDeclaration],
    recorded: &'a [RecordedEvent],
) -> [Vec<&'a str>; 2] {
    assert_eq!(recorded.len(), 2 * events.len());
    let (by_macro, by_builder) = recorded.split_at(events.len());
    [by_macro, by_builder].map(|recorded| {
        let mut differing = Vec::new();
        for (event, recorded_event) in events.iter().zip(recorded) {
            check_all_but_metadata(event, recorded_event);
            if recorded_event.metadata != event.metadata() {
                assert_eq!(
                    parse_metadata(&recorded_event.metadata),
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
    let event = EventMetadata::parse(metadata).expect("the metadata are invalid");
    (event.tags, event.name, event.fields().map(|field| field.expect("the field is invalid")).collect())
}

#[test]
fn metadata_from_the_rust_macros_and_the_builder_equal_those_of_c() {
    let (events, source_folder) = (events_with_rust_form(), SourceFolder::new());
    let folder = source_folder.path(".");
    let api = crate_path("../api");
    write_package(
        &folder,
        &generate_program(&events, TracingCrates::Traceweir),
        &format!("traceweir = {{ path = {api:?} }}"),
    );
    // The lock file selects the versions that the project uses, so that nothing is downloaded.
    std::fs::copy(crate_path("../../Cargo.lock"), folder.join("Cargo.lock"))
        .expect("cannot copy the lock file");
    assert_built(&run_cargo(&folder, &["build", "--offline"], "nested", &[]));
    let recorded = record_program(&target_folder("nested/debug/table"), TABLE_PROVIDER);
    assert_eq!(find_differing_metadata(&events, &recorded), [Vec::<&str>::new(), Vec::new()]);
}

#[test]
fn metadata_from_the_published_crates_differ_only_in_known_encodings() {
    let (events, source_folder, programs) =
        (events_with_rust_form(), SourceFolder::new(), ProgramFolder::new());
    let folder = source_folder.path(".");
    for library in ["libOneCore_apiset.so", "librpcrt4.so"] {
        symlink(programs.path("libtraceweir.so"), programs.path(library)).expect("cannot create a link");
    }
    let dependencies = "tracelogging = \"=1.2.4\"\ntracelogging_dynamic = \"=1.2.4\"";
    write_package(&folder, &generate_program(&events, TracingCrates::Published), dependencies);
    let fetch_attempts = [&["fetch", "--offline"][..], &["fetch"]]
        .map(|arguments| move |folder: &Path| run_cargo(folder, arguments, "published-table", &[]));
    if !fetch_attempts.iter().any(|fetch| fetch(&folder).status.success()) {
        return skip("registry", "the packages tracelogging and tracelogging_dynamic cannot be fetched");
    }
    let libraries = programs.path(".").display().to_string();
    let flags = [
        // Only the crates of this program are compiled for Windows, not those that run in the
        // compiler.
        "--cfg=windows".to_owned(),
        "-Aexplicit_builtin_cfgs_in_flags".to_owned(),
        format!("-Lnative={libraries}"),
        format!("-Clink-arg=-Wl,-rpath,{libraries},--disable-new-dtags"),
    ];
    let arguments = ["build", "--offline", "--target", &host_target()];
    assert_built(&run_cargo(&folder, &arguments, "published-table", &flags));
    let program_path = target_folder("published-table").join(host_target()).join("debug/table");
    let recorded = record_program(&program_path, TABLE_PROVIDER);
    assert_eq!(
        find_differing_metadata(&events, &recorded),
        [MACROS_DIFFER.to_vec(), BUILDER_DIFFERS.to_vec()]
    );
}

/// Returns the target triple of the system that the compiler runs on.
fn host_target() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("cannot run rustc").stdout;
    let output = String::from_utf8_lossy(&output);
    output
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("rustc did not print its host")
        .to_owned()
}
