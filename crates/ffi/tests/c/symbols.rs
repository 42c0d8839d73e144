//! What the shared library shows the world.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{STRICT, Workshop, expect_success, has, here};

/// The functions that headers declare, apart from those that they define.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in [
        "windows.h",
        "evntprov.h",
        "evntrace.h",
        "traceweir/evntrace_control.h",
        "traceweir/evntrace_info.h",
        "traceweir/evntcons_access.h",
        "traceweir/evntrace_consumer.h",
        "traceweir/tlg_send.h",
        "tdh.h",
    ] {
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

#[test]
fn what_is_installed_is_found_by_pkg_config_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, library) = (folder.path().join("usr"), folder.path().join("usr/lib/libtraceweir.so.0"));
    let built = std::env::current_exe().unwrap();
    let mut install = Command::new(here("install.sh"));
    expect_success(install.arg("--prefix").arg(&prefix).arg("--built").arg(built.parent().unwrap()));
    assert!(library.is_symlink() && prefix.join("lib/libtraceweir.a").is_file());
    let description = std::fs::read_to_string(prefix.join("lib/pkgconfig/traceweir.pc")).unwrap();
    assert!(!description.contains('@'), "{description}");
    if !has("pkg-config") {
        return;
    }
    let ask = |what: &str| {
        let mut command = Command::new("pkg-config");
        let answer = expect_success(
            command.args([what, "traceweir"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
        );
        answer.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ask("--modversion"), [env!("CARGO_PKG_VERSION")]);
    let program = folder.path().join("quiet");
    let mut compile = Command::new("gcc");
    compile
        .args(STRICT)
        .args(ask("--cflags"))
        .arg(here("tests/c/quiet.c"))
        .args(ask("--libs"))
        .arg("-o")
        .arg(&program);
    expect_success(&mut compile);
    let mut run = Command::new(&program);
    expect_success(
        run.env("LD_LIBRARY_PATH", prefix.join("lib")).env("TRACEWEIR_RUNTIME_DIR", folder.path()),
    );
}
