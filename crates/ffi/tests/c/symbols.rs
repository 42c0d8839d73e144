//! The symbols that the shared library exports.

use std::process::Command;

use crate::support::library::{declared_functions, exported_functions};
use crate::support::{
    ProgramFolder, STRICT_FLAGS, crate_path, expect_success, has_program, wide_library_folder,
};

#[test]
fn library_exports_exactly_the_declared_functions() {
    let programs = ProgramFolder::new();
    let declared = declared_functions();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(exported_functions(&programs), declared);
}

#[test]
fn library_has_its_soname_and_stays_loaded() {
    let programs = ProgramFolder::new();
    let dynamic = expect_success(Command::new("readelf").arg("-d").arg(programs.path("libtraceweir.so")));
    assert!(dynamic.contains("[libtraceweir.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn installed_files_are_found_by_pkg_config_and_work() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, library) = (folder.path().join("usr"), folder.path().join("usr/lib/libtraceweir.so.0"));
    let test_program = std::env::current_exe().unwrap();
    // The wide library is up to date from here on, so that `install.sh` does not build it while
    // another test does.
    let _ = wide_library_folder();
    let mut install = Command::new(crate_path("install.sh"));
    expect_success(install.arg("--prefix").arg(&prefix).arg("--built").arg(test_program.parent().unwrap()));
    assert!(library.is_symlink() && prefix.join("lib/libtraceweir.a").is_file());
    assert!(prefix.join("lib/libtraceweir-wide.a").is_file());
    for name in ["traceweir", "traceweir-wide"] {
        let description =
            std::fs::read_to_string(prefix.join("lib/pkgconfig").join(name).with_extension("pc")).unwrap();
        // No placeholder of the template is left.
        assert!(!description.contains('@'), "{description}");
    }
    if !has_program("pkg-config") {
        return;
    }
    let query_pkg_config = |package: &str, option: &str| {
        let mut command = Command::new("pkg-config");
        let answer = expect_success(
            command.args([option, package]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
        );
        answer.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(query_pkg_config("traceweir", "--modversion"), [env!("CARGO_PKG_VERSION")]);
    let program = folder.path().join("quiet");
    let mut compile = Command::new("gcc");
    compile
        .args(STRICT_FLAGS)
        .args(query_pkg_config("traceweir", "--cflags"))
        .arg(crate_path("tests/c/status_while_unrecorded.c"))
        .args(query_pkg_config("traceweir", "--libs"))
        .arg("-o")
        .arg(&program);
    expect_success(&mut compile);
    let mut run = Command::new(&program);
    expect_success(
        run.env("LD_LIBRARY_PATH", prefix.join("lib")).env("TRACEWEIR_RUNTIME_DIR", folder.path()),
    );
    let wide_program = folder.path().join("formats");
    let mut compile = Command::new("gcc");
    compile
        .args(query_pkg_config("traceweir-wide", "--cflags"))
        .arg(crate_path("tests/c/wide/formats.c"))
        .args(query_pkg_config("traceweir-wide", "--libs"))
        .arg("-o")
        .arg(&wide_program);
    expect_success(&mut compile);
    let mut run = Command::new(&wide_program);
    expect_success(run.args(["Größe", "😀"]).env("LD_LIBRARY_PATH", prefix.join("lib")));
}
