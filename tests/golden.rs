//! Golden outputs: `fixtures/expected/<trace>.<view>` is the output of that view for
//! `fixtures/etl/<trace>.etl`.
//!
//! `BLESS=1 cargo test -p traceweir-cli --test e2e golden` rewrites traces and outputs; review the
//! differences before you commit them.

mod make;
mod tables;
mod wellformed;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::util::{Run, root, weir_command};

pub(crate) use make::kernel;
pub(crate) use make::{
    ANCHOR, SelfDescribing, TICKS_PER_MICROSECOND, TraceMaker, session_options, start_time,
};

/// The views, each with the arguments that print it.
const VIEWS: [(&str, &[&str]); 7] = [
    ("text", &["dump"]),
    ("jsonl", &["dump", "--format", "jsonl"]),
    ("csv", &["dump", "--format", "csv"]),
    ("xml", &["dump", "--format", "xml"]),
    ("info", &["info"]),
    ("stats", &["stats", "--top", "0"]),
    ("check", &["check"]),
];

/// Returns the arguments that locate the schemas of a trace that does not contain them.
fn schema_arguments(trace: &str) -> &'static [&'static str] {
    match trace {
        "manifest" | "narrow" => &["--manifest", "fixtures/manifests/everything.man"],
        "wpp" => &["--tmf", "fixtures/tmf/sample.tmf"],
        _ => &[],
    }
}

/// Returns the expected exit code of a view.
fn exit_code(trace: &str, view: &str) -> i32 {
    match (trace, view) {
        // The last buffer is truncated, and the header does not mark the file complete.
        ("crashed", _) => 3,
        // Extended data items extend beyond their record: only `check` reports that as a defect of
        // the file.
        ("undecodable", "check") => 3,
        _ => 0,
    }
}

fn is_blessing() -> bool {
    std::env::var_os("BLESS").is_some_and(|value| value == "1")
}

fn run_view(trace: &str, view: &str) -> Run {
    let Some((_, arguments)) = VIEWS.iter().find(|(name, _)| *name == view) else {
        panic!("`{view}` is not in VIEWS");
    };
    let file = format!("fixtures/etl/{trace}.etl");
    let mut command_line: Vec<&str> = arguments.to_vec();
    command_line.push(&file);
    if matches!(arguments[0], "dump" | "stats") {
        command_line.extend(schema_arguments(trace));
    }
    // Relative paths keep machine-specific paths out of the output.
    finish(weir_command(&command_line).current_dir(root())).expect(exit_code(trace, view))
}

/// Runs a prepared command and waits for its end.
pub(crate) fn finish(command: &mut Command) -> Run {
    let output = command.output().expect("weir cannot be started");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code =
        output.status.code().unwrap_or_else(|| panic!("weir was killed ({}): {stderr}", output.status));
    Run { code, stdout: output.stdout, stderr }
}

/// Returns whether a file differs from `new`, and prints the first difference. With `BLESS=1`,
/// rewrites the file and returns false.
pub(crate) fn differs(path: &Path, new: &[u8]) -> bool {
    let old = std::fs::read(path);
    if old.as_ref().is_ok_and(|old| old == new) {
        return false;
    }
    if is_blessing() {
        // Other tests may read the file at the same time. Renaming a complete file into its place
        // lets them see the old file or the new one, never a part.
        let mut file = tempfile::NamedTempFile::new_in(root().join("fixtures")).unwrap();
        file.write_all(new).unwrap();
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
        file.persist(path).unwrap();
        return false;
    }
    let old = old.unwrap_or_default();
    let (old, new) = (String::from_utf8_lossy(&old), String::from_utf8_lossy(new));
    let line = old
        .lines()
        .zip(new.lines())
        .position(|(old_line, new_line)| old_line != new_line)
        .unwrap_or(old.lines().count().min(new.lines().count()));
    let show = |text: &str| text.lines().nth(line).unwrap_or("(no such line)").to_owned();
    eprintln!(
        "{} differs in line {}:\n  expected {}\n  got      {}",
        path.display(),
        line + 1,
        show(&old),
        show(&new)
    );
    true
}

#[test]
fn fixtures_match_their_generator() {
    let differing = make::make_fixtures()
        .iter()
        .filter(|(name, bytes)| differs(&root().join(format!("fixtures/etl/{name}.etl")), bytes))
        .count();
    assert_eq!(differing, 0, "fixtures differ from their generator; BLESS=1 rewrites them");
}

#[test]
fn each_view_of_each_trace_matches_its_golden_output() {
    let expected = root().join("fixtures/expected");
    let mut differing = 0;
    for (trace, bytes) in make::make_fixtures() {
        // The tests may run in any order, and the views need the current trace: rewrite it first.
        let _ = is_blessing() && differs(&root().join(format!("fixtures/etl/{trace}.etl")), &bytes);
        for (view, _) in VIEWS {
            let path = expected.join(format!("{trace}.{view}"));
            differing += usize::from(differs(&path, &run_view(trace, view).stdout));
        }
    }
    assert_eq!(differing, 0, "outputs differ from the golden outputs; BLESS=1 rewrites them");
}

#[test]
fn every_expected_output_belongs_to_a_trace_and_a_view() {
    let traces: Vec<_> = make::make_fixtures().into_iter().map(|(name, _)| name).collect();
    for entry in root().join("fixtures/expected").read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (trace, view) = name.rsplit_once('.').unwrap();
        assert!(
            traces.contains(&trace) && VIEWS.iter().any(|(name, _)| *name == view),
            "{name} belongs to no trace and view"
        );
    }
}
