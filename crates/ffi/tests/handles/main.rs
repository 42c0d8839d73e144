//! Handles of every kind, wrong in every way and used by many threads at once: what is said about them, and what sanitizers find.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;

use support::{Daemon, Link, SANITIZE, Workshop, expect_success, has_sanitizers, here, rows};

/// A program of this folder; its output.
fn run(workshop: &Workshop, name: &str, flags: &[&str]) -> String {
    let program =
        workshop.build("gcc", &here("tests/handles").join(name), &[flags, &["-pthread"]].concat(), Link::Shared);
    run_built(&program)
}

/// The same of one that was built, with a daemon and a trace to read.
fn run_built(program: &Path) -> String {
    let (daemon, folder) = (Daemon::new(), tempfile::tempdir().unwrap());
    std::fs::copy(here("../../fixtures/etl/manifest.etl"), folder.path().join("manifest.etl")).unwrap();
    let mut command = daemon.command(program);
    command.arg(folder.path()).arg(here("../../fixtures/manifests/everything.man"));
    expect_success(command.env("TRACEWEIR_MANIFESTS", "/nowhere"))
}

#[test]
fn a_wrong_handle_is_told_what_is_wrong_and_nothing_else_happens() {
    let output = run(&Workshop::new(), "table.c", &[]);
    assert!(rows(&output) > 3000, "{output}");
}

#[test]
fn sanitizers_find_nothing() {
    if has_sanitizers("gcc") {
        let workshop = Workshop::new();
        run(&workshop, "table.c", &SANITIZE);
    }
}
