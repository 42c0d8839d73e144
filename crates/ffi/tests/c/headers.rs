//! Headers: each alone, all together in any order, twice; in all standards, with all compilers, without a warning.

use std::process::Command;

use traceweir::Status;

use crate::support::{C, CPP, Language, STRICT, expect_success, here, skip};

/// Those that belong to this test: headers that are another's have tests of their own.
const HEADERS: [&str; 9] = [
    "windows.h",
    "Windows.h",
    "guiddef.h",
    "initguid.h",
    "winerror.h",
    "ntstatus.h",
    "winmeta.h",
    "evntprov.h",
    "evntrace.h",
];

/// Sources that include headers in several ways.
fn sources() -> Vec<String> {
    let include =
        |names: &[&str]| names.iter().map(|name| format!("#include <{name}>\n")).collect::<String>();
    let mut sources: Vec<String> = HEADERS.iter().map(|name| include(&[name, name])).collect();
    for turn in 0..HEADERS.len() {
        let mut names = HEADERS;
        names.rotate_left(turn);
        sources.push(include(&names));
        names.reverse();
        sources.push(include(&names));
    }
    sources
}

fn compile_all(language: &Language) {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (number, source) in sources().into_iter().enumerate() {
        let file = folder.path().join(format!("s{number}.{}", language.extension));
        // A unit with nothing in it is not C.
        std::fs::write(&file, format!("{source}extern int s{number}; int s{number} = 1;\n")).unwrap();
        files.push(file);
    }
    for compiler in language.compilers() {
        for standard in language.standards {
            let mut command = Command::new(compiler);
            command.current_dir(folder.path()).args(STRICT).args([
                "-Wconversion",
                "-Wshadow",
                "-fsyntax-only",
            ]);
            expect_success(
                command
                    .arg(format!("-std={standard}"))
                    .arg("-I")
                    .arg(here("include"))
                    .arg("-I")
                    .arg(here("include/case"))
                    .args(&files),
            );
        }
    }
}

#[test]
fn every_header_compiles_alone_and_with_all_others_in_c() {
    compile_all(&C);
}

#[test]
fn every_header_compiles_alone_and_with_all_others_in_cpp() {
    compile_all(&CPP);
}

#[test]
fn status_codes_are_those_of_the_library() {
    let text = std::fs::read_to_string(here("include/winerror.h")).unwrap();
    let mut known = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["#define", name, code] = words[..]
            && name.starts_with("ERROR_")
        {
            assert_eq!(Status(code.parse().unwrap()).name(), Some(name));
            known += 1;
        }
    }
    let all = (0..0x1_0000).filter(|code| Status(*code).name().is_some()).count();
    assert_eq!(known, all, "every code that the library can return is in the header");
}

#[test]
fn the_version_of_windows_is_what_a_source_says() {
    let want = |given: &str, winnt: &str, winver: &str, ntddi: &str| {
        format!(
            "{given}\n#include <windows.h>\n#if _WIN32_WINNT != {winnt} || WINVER != {winver} || NTDDI_VERSION != {ntddi}\n\
             #error wrong\n#endif\nextern int unit; int unit = 1;\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    for (number, source) in [
        want("", "0x0A00", "0x0A00", "0x0A000000"),
        want("#define _WIN32_WINNT 0x0601", "0x0601", "0x0601", "0x06010000"),
        want("#define WINVER 0x0602", "0x0602", "0x0602", "0x06020000"),
        want("#define NTDDI_VERSION 0x06030000", "0x0603", "0x0603", "0x06030000"),
        want(
            "#define _WIN32_WINNT 0x0A00\n#define NTDDI_VERSION 0x0A000003",
            "0x0A00",
            "0x0A00",
            "0x0A000003",
        ),
    ]
    .iter()
    .enumerate()
    {
        let file = folder.path().join(format!("v{number}.c"));
        std::fs::write(&file, source).unwrap();
        expect_success(
            Command::new("gcc").args(STRICT).arg("-fsyntax-only").arg("-I").arg(here("include")).arg(&file),
        );
    }
}

#[test]
fn guids_are_declared_once_and_defined_where_a_source_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let shared = "DEFINE_GUID(Shared, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);\n";
    for language in [C, CPP] {
        let extension = language.extension;
        // Declared by one, defined by two: any of the three orders of headers gives one constant.
        let user = format!(
            "#include <evntprov.h>\n{shared}int main(void) {{ return !(Shared.Data1 == 1 && Shared.Data4[7] == 11); }}\n"
        );
        let files = [
            write(&format!("user.{extension}"), &user),
            write(
                &format!("one.{extension}"),
                &format!("#include <initguid.h>\n#include <evntprov.h>\n{shared}"),
            ),
            write(
                &format!("two.{extension}"),
                &format!("#include <evntprov.h>\n#include <initguid.h>\n{shared}"),
            ),
        ];
        let program = folder.path().join("guids");
        for compiler in language.compilers() {
            let mut command = Command::new(compiler);
            command.args(STRICT).arg("-I").arg(here("include")).args(&files).arg("-o").arg(&program);
            expect_success(&mut command);
            expect_success(&mut Command::new(&program));
        }
    }
}

#[test]
fn wide_text_is_16_bits() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <windows.h>\nstatic const WCHAR text[] = u\"\\u00e4\";\nint main(void) { return !(sizeof text == 4 && text[0] == 0xE4); }\n";
    for language in [C, CPP] {
        let file = folder.path().join(format!("wide.{}", language.extension));
        std::fs::write(&file, source).unwrap();
        let program = folder.path().join("wide");
        let compiler = language.compilers[0];
        if Command::new(compiler).arg("--version").output().is_err() {
            skip(compiler, "no C++ compiler");
            continue;
        }
        expect_success(
            Command::new(compiler)
                .args(STRICT)
                .arg("-I")
                .arg(here("include"))
                .arg(&file)
                .arg("-o")
                .arg(&program),
        );
        expect_success(&mut Command::new(&program));
    }
}
