//! Macro calls that do not compile, and their error messages; also calls at the limits, which do.
//! All mistakes are checked by one run of cargo, over a package of many programs with one mistake
//! each.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the source of each program, with the expected error message.
fn invalid_programs() -> Vec<(String, &'static str)> {
    let repeat_numbered = |field: &str, count: usize| {
        (0..count).map(|n| field.replace('#', &n.to_string())).collect::<String>()
    };
    let event = |fields: &str| format!("fn f() {{ traceweir::write_event!(P, \"E\", {fields}); }}");
    vec![
        // 63 strings, of two blocks each, fill an event.
        (
            event(&format!("{} u8(\"last\", &1)", repeat_numbered("str8(\"#\", \"\"),", 63))),
            "too many blocks of data: an event has 128 at most",
        ),
        (event(&repeat_numbered("raw_meta(\"#\", U8),", 129)), "too many fields: an event has 128 at most"),
        (
            event(&format!("struct(\"s\", {{ {} }})", repeat_numbered("raw_meta(\"#\", U8),", 128))),
            "too many members: a structure has 127 at most",
        ),
        (event("color(1)"), "unknown option or field type color"),
        (event("u32x(\"a\", &1)"), "unknown option or field type u32x; did you mean u32?"),
        (event("level(1, 2)"), "one argument too many"),
        (event("level()"), "expected a level, such as level(Warning)"),
        (event("level(Warning), level(Error)"), "given twice"),
        (event("id_version(1)"), "expected a version after the id"),
        (event("u32(\"a\")"), "expected a reference to the field's value"),
        (event("u32(name, &1)"), "expected the field's name as a string literal"),
        (event("u32(\"a\\0b\", &1)"), "a name cannot contain a NUL"),
        (event("u32(\"a\", &1, color(2))"), "unknown option color: this field takes tag(…) and format(…)"),
        (event("struct(\"s\", format(Hex), {})"), "unknown option format: this field takes tag(…)"),
        (event("struct(\"s\")"), "expected the members of the structure"),
        (event("struct(\"s\", { raw_struct(\"t\", 1) })"), "a raw structure cannot be inside another"),
        (event("struct(\"s\", { level(1) })"), "unknown option or field type level"),
        (event("u32"), "expected an option or a field"),
        (event("tag(0x1000_0000)"), "a tag has 28 bits"),
        (event("u32(\"a\", &1, tag(0x1000_0000))"), "a tag has 28 bits"),
        (event("raw_struct(\"s\", 128)"), "no OutType is above 127"),
        (event("u32(\"a\", &\"text\")"), "mismatched types"),
        (event("str8(\"a\", &1)"), "AsRef<[u8]>` is not satisfied"),
        (event("keyword(\"a\")"), "mismatched types"),
        (event(&format!("u8(\"{}\", &1)", "n".repeat(65_530))), "take more than 65,535 bytes"),
        ("fn f() { traceweir::write_event!(); }".into(), "expected the static that define_provider! made"),
        ("fn f() { traceweir::write_event!(P); }".into(), "expected the event's name as a string literal"),
        (
            "fn f() { traceweir::write_event!(1 + 1, \"E\"); }".into(),
            "expected the static that define_provider! made",
        ),
        ("traceweir::define_provider!(Q);".into(), "expected the provider's name as a string literal"),
        ("traceweir::define_provider!(\"Q\", \"Q\");".into(), "expected the name of the static to be made"),
        ("traceweir::define_provider!(Q, \"Q\", id(\"no\"));".into(), "expected a GUID as a string literal"),
        (
            "traceweir::define_provider!(Q, \"Q\", color(1));".into(),
            "expected id(\"GUID\"), group_id(\"GUID\") or debug()",
        ),
        ("traceweir::define_provider!(Q, \"a\\0b\");".into(), "a name cannot contain a NUL"),
        (
            "traceweir::define_provider!(Q, \"Q\", group_id(\"f73b8292-f610-4fa7-ba62-708353d162c4\"), \
             group_id(\"f73b8292-f610-4fa7-ba62-708353d162c5\"));"
                .into(),
            "given twice",
        ),
        (
            "traceweir::define_provider!(Q, \"Q\", id(\"f73b8292-f610-4fa7-ba62-708353d162c4\"), \
             id(\"f73b8292-f610-4fa7-ba62-708353d162c4\"));"
                .into(),
            "given twice",
        ),
        (
            format!("traceweir::define_provider!(Q, \"{}\");", "n".repeat(32_768)),
            "a provider's name has fewer than 32,768 bytes",
        ),
        (
            "traceweir::define_provider!(Q, \"Q\", group_name(\"Bad\"));".into(),
            "expected a group name of lower-case",
        ),
    ]
}

#[test]
fn mistakes_are_compile_errors_at_their_position() {
    let folder = tempfile::tempdir().unwrap();
    let cases = invalid_programs();
    let mut bin_tables = String::new();
    for (n, (source, _)) in cases.iter().enumerate() {
        let program = format!(
            "#![allow(dead_code)]\ntraceweir::define_provider!(P, \"P\");\n{source}\nfn main() {{}}\n"
        );
        std::fs::write(folder.path().join(format!("case{n}.rs")), program).unwrap();
        writeln!(bin_tables, "[[bin]]\nname = \"case{n}\"\npath = \"case{n}.rs\"").unwrap();
    }
    let errors = run_cargo_check(folder.path(), &bin_tables);
    for (n, (source, expected)) in cases.iter().enumerate() {
        let file = format!("case{n}.rs:3:");
        let source: String = source.chars().take(200).collect();
        assert!(errors.lines().any(|line| line.starts_with(&file)), "no error in {source}:\n{errors}");
        let is_reported =
            errors.lines().any(|line| line.starts_with(&format!("case{n}.rs:")) && line.contains(expected));
        assert!(is_reported, "{source}: no error {expected:?} in\n{errors}");
    }
}

#[test]
fn macros_work_renamed_without_unsafe_and_inside_other_macros() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"#![forbid(unsafe_code)]
        #![deny(warnings)]
        use renamed as tracing;
        mod inner { renamed::define_provider!(P, "P", debug()); pub(crate) fn write(n: u32) -> u32 { renamed::write_event!(P, "E", u32("n", &n)) } }
        tracing::define_provider!(Q, "Q");
        macro_rules! count { ($provider:ident, $name:literal, $value:expr) => { tracing::write_event!($provider, $name, u32($name, &$value)) } }
        struct Thing<T>(T);
        impl<T: AsRef<str>> Thing<T> { fn write(&self) -> u32 { tracing::write_event!(Q, "Thing", level(Info), str8("t", self.0.as_ref())) } }
        #[allow(non_upper_case_globals)]
        const Info: tracing::tracelogging::Level = tracing::tracelogging::Level::Informational;
        fn main() { assert_eq!(inner::write(1) + count!(Q, "n", 1 + 1) + Thing("x").write(), 0); }"#;
    std::fs::write(folder.path().join("main.rs"), source).unwrap();
    let errors = run_cargo_check(folder.path(), "[[bin]]\nname = \"good\"\npath = \"main.rs\"\n");
    assert!(!has_errors(&errors) && errors.contains("static P : "), "{errors}");
}

#[test]
fn events_at_all_limits_compile() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = "str8(\"f\", \"\"),".repeat(63);
    let fields = "raw_meta(\"f\", U8),".repeat(128);
    let members = "raw_meta(\"f\", U8),".repeat(127);
    let source = format!(
        "#![deny(warnings)]\nuse renamed as tracing;\ntracing::define_provider!(P, \"{}\", id(\"f73b8292-f610-4fa7-ba62-708353d162c4\"));\n\
         fn main() {{ tracing::write_event!(P, \"B\", {blocks}); tracing::write_event!(P, \"F\", {fields}); \
         tracing::write_event!(P, \"M\", struct(\"s\", {{ {members} }}), tag(0x0FFF_FFFF)); }}\n",
        "n".repeat(32_767)
    );
    std::fs::write(folder.path().join("main.rs"), source).unwrap();
    let errors = run_cargo_check(folder.path(), "[[bin]]\nname = \"much\"\npath = \"main.rs\"\n");
    assert!(!has_errors(&errors) && errors.contains("Finished"), "{errors}");
}

/// Returns whether the output has errors. The name of the crate `thiserror` does not count.
fn has_errors(output: &str) -> bool {
    output.lines().any(|line| line.starts_with("error") || line.contains(": error"))
}

/// Returns the output of `cargo check` for a program that has `traceweir` under the name
/// `traceweir` or `renamed`.
fn run_cargo_check(folder: &Path, bin_tables: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let api = env!("CARGO_MANIFEST_DIR");
    let name = if bin_tables.contains("case0") { "traceweir" } else { "renamed" };
    let manifest = format!(
        "[package]\nname = \"mistakes\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n{name} = {{ path = {api:?}, package = \"traceweir\" }}\n[workspace]\n{bin_tables}"
    );
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // The versions of the project's Cargo.lock, so that nothing is downloaded.
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nested");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--keep-going", "--message-format", "short", "--color", "never"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
