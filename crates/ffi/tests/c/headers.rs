//! Compiles sources that include each header alone and twice, and all headers in two orders; in all
//! standards, with all compilers, without a warning.

use std::path::Path;
use std::process::Command;

use traceweir::Status;

use crate::support::{C, CPP, Language, STRICT_FLAGS, crate_path, expect_success, skip};

/// The headers that sources include; the last is only for C++.
const HEADERS: [&str; 38] = [
    "windows.h",
    "windef.h",
    "sal.h",
    "specstrings.h",
    "winapifamily.h",
    "cguid.h",
    "Windows.h",
    "Evntrace.h",
    "wmistr.h",
    "guiddef.h",
    "initguid.h",
    "winerror.h",
    "ntstatus.h",
    "winmeta.h",
    "evntprov.h",
    "evntrace.h",
    "evntcons.h",
    "tdh.h",
    "winternl.h",
    "traceweir/nt_system_information.h",
    "KernelTraceControl.h",
    "shellapi.h",
    "winsock2.h",
    "netiodef.h",
    "mstcpip.h",
    "intsafe.h",
    "comutil.h",
    "ntdef.h",
    "wtypes.h",
    "ole2.h",
    "rpc.h",
    "process.h",
    "synchapi.h",
    "processthreadsapi.h",
    "handleapi.h",
    "consoleapi.h",
    "TraceLoggingProvider.h",
    "TraceLoggingActivity.h",
];

/// Returns sources that include headers in several ways.
fn build_sources(language: &Language) -> Vec<String> {
    let include =
        |names: &[&str]| names.iter().map(|name| format!("#include <{name}>\n")).collect::<String>();
    let headers =
        if language.extension == C.extension { &HEADERS[..HEADERS.len() - 1] } else { &HEADERS[..] };
    let mut sources: Vec<String> = headers.iter().map(|name| include(&[name, name])).collect();
    // In these two orders, each header comes before and after each other one.
    let mut names = headers.to_vec();
    sources.push(include(&names));
    names.reverse();
    sources.push(include(&names));
    sources
}

/// Compiles all sources of a language ([`build_sources`]) with the headers of a folder.
fn compile_all(language: &Language, headers: &Path, extra_flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (number, source) in build_sources(language).into_iter().enumerate() {
        let file = folder.path().join(format!("s{number}.{}", language.extension));
        // An empty translation unit is not valid C.
        std::fs::write(&file, format!("{source}extern int s{number}; int s{number} = 1;\n")).unwrap();
        files.push(file);
    }
    for compiler in language.compilers() {
        for standard in language.standards {
            let mut command = Command::new(compiler);
            command.current_dir(folder.path()).args(STRICT_FLAGS).args(extra_flags).arg("-fsyntax-only");
            expect_success(
                command
                    .arg(format!("-std={standard}"))
                    .arg("-I")
                    .arg(headers)
                    .arg("-I")
                    .arg(headers.join("case"))
                    .args(&files),
            );
        }
    }
}

/// Warnings that strict programs enable in addition.
const EXTRA_WARNINGS: [&str; 2] = ["-Wconversion", "-Wshadow"];

#[test]
fn every_header_compiles_alone_and_with_all_others_in_c() {
    compile_all(&C, &crate_path("include"), &EXTRA_WARNINGS);
}

#[test]
fn every_header_compiles_alone_and_with_all_others_in_cpp() {
    compile_all(&CPP, &crate_path("include"), &EXTRA_WARNINGS);
}

/// In C++ the headers declare themselves system headers, which silences style warnings. Checks that
/// this hides no other warnings.
#[test]
fn headers_without_system_pragma_have_no_warnings_in_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let mut pragmas = 0;
    for part in ["", "case", "traceweir"] {
        let (from, to) = (crate_path("include").join(part), folder.path().join(part));
        std::fs::create_dir_all(&to).unwrap();
        for file in
            std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file())
        {
            let text = std::fs::read_to_string(file.path()).unwrap();
            pragmas += text.matches(SYSTEM_HEADER_PRAGMA).count();
            std::fs::write(to.join(file.file_name()), text.replace(SYSTEM_HEADER_PRAGMA, "")).unwrap();
        }
    }
    assert!(pragmas >= 10, "{pragmas} headers have the pragma");
    compile_all(&CPP, folder.path(), &[]);
}

const SYSTEM_HEADER_PRAGMA: &str = "#pragma GCC system_header";

/// File names are case-sensitive here, but sources for Windows use any case. The folder `case` has
/// other spellings of headers.
#[test]
fn other_spellings_include_the_headers() {
    let mut spellings = 0;
    for path in std::fs::read_dir(crate_path("include/case")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        // `Windows.h` finds the `windows.h` of libtraceweir-wide before the one in `include`.
        let include = text.split_once("#include \"../").or_else(|| text.split_once("#include <")).unwrap();
        let target = include.1.trim_end().trim_end_matches(['"', '>']);
        let is_header = |folder: &str| crate_path(folder).join(target).is_file();
        assert!(is_header("include") || is_header("include/wide"), "{name} includes {target}");
        assert!(target.eq_ignore_ascii_case(&name) && target != name, "{name} includes {target}");
        spellings += 1;
    }
    assert!(spellings >= 9, "{spellings}");
}

/// A source that uses the names with which controllers and consumers for Windows are written.
const NAMES_SOURCE: &str = r#"
#include <Windows.h>
#include <cguid.h>
#include <wmistr.h>
#include <Evntrace.h>
#include <Evntcons.h>
#include <Tdh.h>
static const TCHAR name[] = TEXT("words");
static LPCTSTR named = name;
typedef struct { EVENT_TRACE_PROPERTIES properties; TCHAR session[MAX_PATH]; } BLOCK;
int main(void) {
    BLOCK block, copy;
    GUID other = GUID_NULL;
    ULONG timeout = INFINITE;
    ZeroMemory(&block, sizeof block);
    block.properties.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    block.properties.LogFileMode = EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_USE_MS_FLUSH_TIMER;
    block.properties.LoggerNameOffset = FIELD_OFFSET(BLOCK, session);
    CopyMemory(&copy, &block, sizeof block);
    RtlZeroMemory(&block, sizeof block);
    other.Data1 = ARRAYSIZE(name);
    return !(copy.properties.LogFileMode == 0x110 && copy.properties.LoggerNameOffset == sizeof(EVENT_TRACE_PROPERTIES) && other.Data1 == 6 &&
             block.properties.LoggerNameOffset == 0 && named[0] == 'w' && sizeof name == 6 * sizeof(TCHAR) && timeout == 0xFFFFFFFF &&
             EQUAL(other, GUID_NULL) == 0);
}
"#;

#[test]
fn names_for_controllers_and_consumers_are_defined() {
    let folder = tempfile::tempdir().unwrap();
    for (language, equal) in [(C, "IsEqualGUID(&(a), &(b))"), (CPP, "IsEqualGUID(a, b)")] {
        let file = folder.path().join(format!("words.{}", language.extension));
        std::fs::write(&file, format!("#define EQUAL(a, b) {equal}\n{NAMES_SOURCE}")).unwrap();
        let program = folder.path().join("words");
        for compiler in language.compilers() {
            for width in [&[][..], &["-DUNICODE"]] {
                let mut command = Command::new(compiler);
                command
                    .args(STRICT_FLAGS)
                    .args(width)
                    .arg("-I")
                    .arg(crate_path("include"))
                    .arg("-I")
                    .arg(crate_path("include/case"));
                expect_success(command.arg(&file).arg("-o").arg(&program));
                expect_success(&mut Command::new(&program));
            }
        }
    }
}

/// `windows.h` makes this an error. Otherwise older compilers only warn, and the session gets the
/// name "M": read as 16-bit text, the 32-bit text ends after its first letter.
#[test]
fn wide_text_of_32_bits_is_an_error_in_c_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.c");
    let source = "#include <evntrace.h>\nULONG start(PTRACEHANDLE h, PEVENT_TRACE_PROPERTIES p);\n\
                  ULONG start(PTRACEHANDLE h, PEVENT_TRACE_PROPERTIES p) { return StartTraceW(h, L\"MySession\", p); }\n";
    std::fs::write(&file, source).unwrap();
    for compiler in C.compilers() {
        let compiles = |extra_flags: &[&str]| {
            let mut command = Command::new(compiler);
            // Newer compilers refuse the text by default; this flag makes it a warning.
            command.args(["-std=c11", "-fsyntax-only", "-Wno-error=incompatible-pointer-types", "-I"]);
            command.arg(crate_path("include")).args(extra_flags).arg(&file).output().unwrap().status.success()
        };
        assert!(!compiles(&[]), "{compiler} accepts a wide text of 32 bits");
        assert!(compiles(&["-DTRACEWEIR_LENIENT_POINTERS"]), "{compiler} ignores TRACEWEIR_LENIENT_POINTERS");
    }
}

#[test]
fn header_defines_every_status_code_of_the_library() {
    let text = std::fs::read_to_string(crate_path("include/winerror.h")).unwrap();
    let mut in_header = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["#define", name, code] = words[..]
            && name.starts_with("ERROR_")
        {
            assert_eq!(Status(code.parse().unwrap()).name(), Some(name));
            in_header += 1;
        }
    }
    let in_library = (0..0x1_0000).filter(|code| Status(*code).name().is_some()).count();
    assert_eq!(in_header, in_library, "a code that the library can return is missing in the header");
}

#[test]
fn source_can_define_the_version_of_windows() {
    let version_source = |definitions: &str, winnt: &str, winver: &str, ntddi: &str| {
        format!(
            "{definitions}\n#include <windows.h>\n#if _WIN32_WINNT != {winnt} || WINVER != {winver} || NTDDI_VERSION != {ntddi}\n\
             #error wrong\n#endif\nextern int unit; int unit = 1;\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    for (number, source) in [
        version_source("", "0x0A00", "0x0A00", "0x0A000000"),
        version_source("#define _WIN32_WINNT 0x0601", "0x0601", "0x0601", "0x06010000"),
        version_source("#define WINVER 0x0602", "0x0602", "0x0602", "0x06020000"),
        version_source("#define NTDDI_VERSION 0x06030000", "0x0603", "0x0603", "0x06030000"),
        version_source(
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
            Command::new("gcc")
                .args(STRICT_FLAGS)
                .arg("-fsyntax-only")
                .arg("-I")
                .arg(crate_path("include"))
                .arg(&file),
        );
    }
}

#[test]
fn guid_may_be_declared_and_defined_in_several_sources() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let shared = "DEFINE_GUID(Shared, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);\n";
    for language in [C, CPP] {
        let extension = language.extension;
        // One source declares the GUID, and two define it, with the headers in either order.
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
            command
                .args(STRICT_FLAGS)
                .arg("-I")
                .arg(crate_path("include"))
                .args(&files)
                .arg("-o")
                .arg(&program);
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
                .args(STRICT_FLAGS)
                .arg("-I")
                .arg(crate_path("include"))
                .arg(&file)
                .arg("-o")
                .arg(&program),
        );
        expect_success(&mut Command::new(&program));
    }
}
