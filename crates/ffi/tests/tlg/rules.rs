//! The contract of the provider and write macros: programs that check its rules, modes of
//! compilation, and code that must not compile.

use std::process::Command;

use crate::compiler::{GCC, SourceFolder, compilers, cpp_compilers, test_folder};
use crate::support::{Link, ProgramFolder, crate_path, expect_success};

#[test]
fn rules_hold_in_c_and_cpp() {
    let folder = SourceFolder::new();
    for compiler in compilers() {
        for flags in [["-O0", compiler.standards()[0]], ["-O2", compiler.standards()[1]]] {
            let program = folder.build(compiler, &test_folder().join("rules.c"), &flags);
            assert_eq!(
                expect_success(&mut Command::new(program)),
                "all rules hold\n",
                "{compiler:?} {flags:?}"
            );
        }
    }
}

/// Warnings that careful programs enable in addition to the strict flags.
const EXTRA_WARNINGS: [&str; 3] = ["-Wconversion", "-Wsign-conversion", "-Wshadow"];

/// Additional warnings for C++.
const CPP_WARNINGS: [&str; 3] = ["-Wold-style-cast", "-Wzero-as-null-pointer-constant", "-Wcast-qual"];

#[test]
fn events_cause_no_warnings_in_careful_programs() {
    let folder = SourceFolder::new();
    let text = "#include <TraceLoggingProvider.h>\nTRACELOGGING_DEFINE_PROVIDER(g, \"G\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n\
        void f(int n, const char *s, const short *a, unsigned short c, const GUID *id);\nvoid f(int n, const char *s, const short *a, unsigned short c, const GUID *id) {\n\
        TraceLoggingWrite(g, \"E\", TraceLoggingLevel(4), TraceLoggingKeyword(0x8000000000000000u), TraceLoggingEventTag(0x4000), TraceLoggingInt32(n),\n\
        TraceLoggingString(s, \"s\", \"\", 1), TraceLoggingValue(n), TraceLoggingInt16Array(a, c), TraceLoggingInt16FixedArray(a, 3, \"fixed\"),\n\
        TraceLoggingStruct(2, \"t\"), TraceLoggingCountedString(s, c), TraceLoggingBinary(s, c), TraceLoggingPackedField(s, c, TlgInBINARY),\n\
        TraceLoggingCustom(s, c, 5, (1, 255), 2));\n    TraceLoggingWriteEx(g, \"X\", 0, 0, id, id);\n    TraceLoggingRegister(g);\n}\n";
    let source = folder.write_source("careful.c", text);
    for compiler in compilers() {
        let flags = [&EXTRA_WARNINGS[..], &[compiler.standards()[0]]].concat();
        folder.assert_compiles(compiler, &source, &flags);
        if compiler.is_cpp {
            let style = [&flags[..], &CPP_WARNINGS].concat();
            folder.assert_compiles(compiler, &source, &style);
            folder.assert_compiles(compiler, &crate_path("../../examples/cpp/activities.cpp"), &style);
        }
    }
}

#[test]
fn inline_functions_that_are_not_static_write_events() {
    let folder = SourceFolder::new();
    let text = "#include <TraceLoggingProvider.h>\nTRACELOGGING_DECLARE_PROVIDER(g);\nextern inline void f(int n, const char *s);\n\
        inline void f(int n, const char *s) {\n    TraceLoggingWrite(g, \"E\", TraceLoggingInt32(n), TraceLoggingString(s), TraceLoggingValue(s),\n\
        TraceLoggingBinary(s, 3), TraceLoggingCountedString(s, 2));\n    TraceLoggingWriteEx(g, \"X\", 0, 0, NULL, NULL);\n}\n";
    let source = folder.write_source("inline.c", text);
    for compiler in compilers() {
        folder.assert_compiles(compiler, &source, &[compiler.standards()[0], "-O0"]);
    }
}

#[test]
fn events_work_wherever_cpp_allows_them() {
    let folder = SourceFolder::new();
    for compiler in cpp_compilers() {
        for flags in [["-O0", compiler.standards()[0]], ["-O2", compiler.standards()[1]]] {
            let flags = [&flags[..], &EXTRA_WARNINGS].concat();
            let program = folder.build(compiler, &test_folder().join("places.cpp"), &flags);
            assert_eq!(
                expect_success(&mut Command::new(program)),
                "all places work\n",
                "{compiler:?} {flags:?}"
            );
        }
    }
}

#[test]
fn registering_a_registered_provider_is_asserted() {
    let folder = SourceFolder::new();
    for (flags, is_asserted) in [(vec!["-O0"], true), (vec!["-DNDEBUG"], false)] {
        let program = folder.build(GCC, &test_folder().join("rules.c"), &flags);
        let output = Command::new(program).arg("twice").output().expect("cannot start the program");
        let is_reported = String::from_utf8_lossy(&output.stderr).contains("registered already");
        assert_eq!((output.status.success(), is_reported), (!is_asserted, is_asserted), "{flags:?}");
    }
}

/// The compiler flags, the status that EventSetInformation returns, and the output of the program:
/// the value of TLG_HAVE_EVENT_SET_INFORMATION, the calls of the function during the registration,
/// the status of the macro, and the class and size that the macro passed.
const INFORMATION_MODES: &[(&[&str], &str, &str)] = &[
    // The function is not called, not even at registration.
    (&["-DTLG_HAVE_EVENT_SET_INFORMATION=0"], "0", "0 sets=0 status=80070032 class=0 size=0"),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=0", "-D_KERNEL_MODE"],
        "0",
        "0 sets=0 status=c0000139 class=0 size=0",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=0", "-DWITH_OVERRIDE"],
        "0",
        "0 sets=0 status=80070032 class=0 size=0",
    ),
    // The function is called directly.
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION"],
        "0",
        "1 sets=1 status=00000000 class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION"],
        "87",
        "1 sets=1 status=80070057 class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION", "-D_KERNEL_MODE"],
        "87",
        "1 sets=1 status=c000000d class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION", "-D_ETW_KM_"],
        "50",
        "1 sets=1 status=c00000bb class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION", "-D_KERNEL_MODE"],
        "1450",
        "1 sets=1 status=c000009a class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=2", "-DWITH_FUNCTION", "-D_KERNEL_MODE"],
        "1450",
        "2 sets=1 status=c000009a class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=1", "-DWITH_FUNCTION"],
        "1450",
        "1 sets=1 status=800705aa class=3 size=1",
    ),
    // The function is looked up: it is a dynamic symbol, it is linked directly, or it is missing.
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=2", "-DWITH_FUNCTION", "-rdynamic"],
        "5",
        "2 sets=1 status=80070005 class=3 size=1",
    ),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=2", "-DWITH_FUNCTION"],
        "5",
        "2 sets=1 status=80070005 class=3 size=1",
    ),
    (&["-DTLG_HAVE_EVENT_SET_INFORMATION=2"], "0", "2 sets=0 status=80070032 class=0 size=0"),
    (
        &["-DTLG_HAVE_EVENT_SET_INFORMATION=2", "-D_KERNEL_MODE"],
        "0",
        "2 sets=0 status=c00000bb class=0 size=0",
    ),
    // Without TLG_HAVE_EVENT_SET_INFORMATION, a macro of the source or the Windows version decides.
    (&["-DWITH_OVERRIDE"], "87", "1 sets=1 status=80070057 class=3 size=1"),
    (&["-DWITH_OVERRIDE", "-DWINVER=0x0601"], "0", "1 sets=1 status=00000000 class=3 size=1"),
    (&["-DWITH_FUNCTION"], "0", "1 sets=1 status=00000000 class=3 size=1"),
    (&["-DWITH_FUNCTION", "-DWINVER=0x0602"], "0", "1 sets=1 status=00000000 class=3 size=1"),
    (&["-DWITH_FUNCTION", "-DWINVER=0x0601"], "0", "2 sets=1 status=00000000 class=3 size=1"),
    (&["-DWINVER=0x0601"], "0", "2 sets=0 status=80070032 class=0 size=0"),
    (
        &["-DWITH_FUNCTION", "-D_KERNEL_MODE", "-DNTDDI_VERSION=0x0A000000"],
        "0",
        "1 sets=1 status=00000000 class=3 size=1",
    ),
    (
        &["-DWITH_FUNCTION", "-D_KERNEL_MODE", "-DNTDDI_VERSION=0x06030000"],
        "0",
        "2 sets=1 status=00000000 class=3 size=1",
    ),
    (&["-D_KERNEL_MODE", "-DNTDDI_VERSION=0x06030000"], "0", "2 sets=0 status=c00000bb class=0 size=0"),
];

#[test]
fn set_information_follows_its_mode() {
    let folder = SourceFolder::new();
    for compiler in compilers() {
        for (flags, status, expected) in INFORMATION_MODES {
            let flags = [*flags, &[compiler.standards()[0]]].concat();
            let program = folder.build(compiler, &test_folder().join("modes.c"), &flags);
            let printed = expect_success(Command::new(program).arg(status));
            assert_eq!(printed.trim_end(), *expected, "{compiler:?} {flags:?}");
        }
    }
}

#[test]
fn failed_registration_returns_the_status_of_the_mode() {
    let folder = SourceFolder::new();
    for compiler in compilers() {
        for (flag, rows) in [
            ("-D_USER_MODE", [("0", "00000000"), ("8", "80070008"), ("1450", "800705aa"), ("5", "80070005")]),
            (
                "-D_KERNEL_MODE",
                [("0", "00000000"), ("8", "c0000017"), ("1450", "c000009a"), ("5", "c0000022")],
            ),
        ] {
            let flags = [flag, "-DWITH_OVERRIDE", compiler.standards()[0]];
            let program = folder.build(compiler, &test_folder().join("modes.c"), &flags);
            for (status, expected) in rows {
                let printed = expect_success(Command::new(&program).args(["register", status]));
                assert_eq!(printed.trim_end(), expected, "{compiler:?} {flag} {status}");
            }
        }
    }
}

#[test]
fn set_information_returns_the_librarys_status_in_every_mode() {
    let programs = ProgramFolder::new();
    let no_daemon = SourceFolder::new();
    for compiler in compilers() {
        for mode in [None, Some("0"), Some("1"), Some("2")] {
            for (is_kernel, link) in [(false, Link::Shared), (true, Link::Shared), (false, Link::Static)] {
                if compiler.is_cpp && link == Link::Static {
                    continue; // The flag for the language would apply to the library too.
                }
                let mode = mode.map(|mode| format!("-DTLG_HAVE_EVENT_SET_INFORMATION={mode}"));
                let mut flags = vec![compiler.standards()[0]];
                flags.extend(compiler.is_cpp.then_some("-xc++"));
                flags.extend(mode.as_deref());
                flags.extend(is_kernel.then_some("-D_KERNEL_MODE"));
                let source = test_folder().join("information.c");
                let program = programs.build(compiler.program, &source, &flags, link);
                let mut command = Command::new(program);
                let printed = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", no_daemon.path(".")));
                assert_eq!(printed, "rows: 24\n", "{compiler:?} {flags:?} {link:?}");
            }
        }
    }
}

/// A statement that must not compile, and a part of the compiler's message.
const INVALID_STATEMENTS: &[(&str, &str)] = &[
    (
        "TRACELOGGING_DEFINE_PROVIDER_STORAGE(s, \"a\\0b\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));",
        "the name of a provider has no NUL inside",
    ),
    (
        "TRACELOGGING_DEFINE_PROVIDER_STORAGE(s, \"S\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), \
         TraceLoggingOptionGroup(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), TraceLoggingOptionGroup(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12));",
        "a provider has one option at most",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingWideString(L\"x\", \"n\"));", "wchar_t has 4 bytes here"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingString16(L\"x\", \"n\"));", "wchar_t has 4 bytes here"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingCountedWideString(L\"x\", 1, \"n\"));",
        "wchar_t has 4 bytes here",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingWChar(L'x', \"n\"));", "wchar_t has 4 bytes here"),
    ("TraceLoggingWrite(g, \"a\\0b\");", "the name of an event has no NUL inside"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingInt8(1, \"a\\0b\"));", "the name of a field has no NUL inside"),
    (
        "short s[2] = {0}; TraceLoggingWrite(g, \"E\", TraceLoggingInt32Array(s, 2));",
        "elements of another size",
    ),
    (
        "short s[2] = {0}; TraceLoggingWrite(g, \"E\", TraceLoggingInt32FixedArray(s, 2));",
        "elements of another size",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingStruct(0, \"s\"));", "a structure has 1 to 127 members"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingStruct(128, \"s\"), TraceLoggingInt8(1));",
        "a structure has 1 to 127 members",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(16, \"n\"));", "not valid for packed metadata"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(24, \"n\"));", "not valid for packed metadata"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(TlgInINT8 | TlgInCcount, \"n\"));",
        "not valid for packed metadata",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(TlgInBINARY | TlgInVcount, \"n\"));",
        "not valid for packed metadata",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(TlgInINT8 | TlgInCustom, \"n\"));",
        "not valid for packed metadata",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(TlgInINT8 | TlgInChain, \"n\"));",
        "not valid for packed metadata",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(TlgInNULL | TlgInVcount, \"n\"));",
        "not valid for packed metadata",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadata(26, \"n\"));", "not valid for packed metadata"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedField(\"x\", 1, 16, \"n\"));",
        "not valid for packed metadata",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingPackedFieldEx(\"x\", 1, 24, 1, \"n\"));",
        "not valid for packed metadata",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingPackedMetadataEx(TlgInINT8, 128, \"n\"));", "at most 127"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingCustom(\"x\", 1, 32, (1), 1));", "protocols are 5 to 31"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingCustom(\"x\", 1, 4, (1), 1));", "protocols are 5 to 31"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingCustom(\"x\", 1, 5, (1, 2), 3));",
        "does not have the given size",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingCustom(\"x\", 1, 5, (1, 2), 1));",
        "does not have the given size",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingLevel(256));", "a level is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingLevel(-1));", "a level is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingLevel(256), TraceLoggingLevel(5));", "a level is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingOpcode(256u));", "an opcode is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingChannel(0x10Bu));", "a channel is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingIdVersion(65536, 0));", "an id is at most 65535"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingIdVersion(1, 256));", "a version is at most 255"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingEventTag(0x10000000));", "tags have 28 bits"),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingInt8(1, \"n\", \"\", 0x10000000u));", "tags have 28 bits"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingStruct(1, \"s\", \"\", -1), TraceLoggingInt8(1));",
        "tags have 28 bits",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingStruct(1, \"s\"));", "fewer fields than it has members"),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingStruct(2, \"s\"), TraceLoggingInt8(1), TraceLoggingLevel(5));",
        "fewer fields than it has members",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingStruct(2, \"s\"), TraceLoggingStruct(2, \"t\"), TraceLoggingInt8(1), TraceLoggingInt8(2));",
        "fewer fields than it has members",
    ),
    (
        "TraceLoggingWrite(g, \"E\", TraceLoggingInt8(1), TraceLoggingInt8(2), TraceLoggingPackedStruct(2, \"s\"), TraceLoggingPackedMetadata(TlgInINT8, \"a\"), TraceLoggingPackedData(\"x\", 1));",
        "fewer fields than it has members",
    ),
    ("TraceLoggingWrite(g, \"E\", TraceLoggingUInt8FixedArray(\"x\", 65536));", "at most 65535 values"),
    ("struct { int x; } u = {1}; TraceLoggingWrite(g, \"E\", TraceLoggingValue(u));", ""),
];

#[test]
fn invalid_statements_do_not_compile_and_are_explained() {
    let folder = SourceFolder::new();
    let prologue = "#include <TraceLoggingProvider.h>\nTRACELOGGING_DEFINE_PROVIDER(g, \"G\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n";
    // 63 fields with two blocks, one field with one block, and the two metadata blocks are 129
    // blocks; rules.c has an event with 128.
    let binaries: Vec<String> = (0..63).map(|i| format!("TraceLoggingBinary(\"x\", 1, \"f{i}\")")).collect();
    let too_many_blocks =
        format!("TraceLoggingWrite(g, \"E\", {}, TraceLoggingInt8(1));", binaries.join(", "));
    let hundred_arguments = format!("TraceLoggingWrite(g, \"E\"{});", ", TraceLoggingLevel(1)".repeat(100));
    let long_name = format!("TraceLoggingWrite(g, \"{}\");", "x".repeat(0x8000));
    let long_statements = [
        (too_many_blocks.as_str(), "at most 128 blocks"),
        (hundred_arguments.as_str(), "more_than_99_arguments"),
        (long_name.as_str(), "at most 32767 bytes"),
    ];
    for compiler in compilers() {
        for (statement, message) in INVALID_STATEMENTS.iter().chain(&long_statements) {
            let source = folder.write_source(
                "wrong.c",
                &format!("{prologue}void f(void);\nvoid f(void) {{ {statement} }}\n"),
            );
            let output = folder.compile(compiler, &source, &["-fsyntax-only", compiler.standards()[0]]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{compiler:?} accepts {statement:.80}");
            assert!(errors.contains(message), "{compiler:?} {statement:.80}:\n{errors}");
        }
    }
}

#[test]
fn wchar_t_of_two_bytes_is_a_wchar() {
    let folder = SourceFolder::new();
    let text = "#include \"hooks.h\"\n#include <TraceLoggingProvider.h>\n\
        TRACELOGGING_DEFINE_PROVIDER(g, \"G\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n\
        static void f(const wchar_t *w) { TraceLoggingWrite(g, \"E\", TraceLoggingWideString(L\"x\", \"a\"), \
        TraceLoggingWideString(w, \"b\"), TraceLoggingCountedWideString(w, 1, \"c\"), TraceLoggingWChar(L'x', \"d\"), TraceLoggingString16(u\"x\", \"e\"), \
        TraceLoggingValue(w, \"f\")); hook_print();\n\
        #ifdef __cplusplus\n    TraceLoggingWrite(g, \"V\", TraceLoggingValue(L'x', \"a\"), TraceLoggingValue(L\"x\", \"b\")); hook_print();\n#endif\n}\n\
        int main(void) { hook.enabled_at_register = TRUE; CHECK(TraceLoggingRegister(g) == S_OK); f(L\"y\"); return 0; }\n";
    let source = folder.write_source("short.c", text);
    for compiler in compilers() {
        let program = folder.build(compiler, &source, &["-fshort-wchar", compiler.standards()[0]]);
        let printed = expect_success(&mut Command::new(program));
        let mut lines = printed.lines();
        let mut expect_line = |metadata: &[u8], payload: &[u8]| {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let line = lines.next().expect("the program did not print a line for each event");
            assert!(line.contains(&format!(" {} {} ", hex(metadata), hex(payload))), "{compiler:?}: {line}");
        };
        let (x, y) = (b"x\0\0\0", b"y\0\0\0");
        expect_line(
            // In types: 1 is UTF-16 text, 0x16 counted UTF-16 text, 0x86 2 a UINT16 with the out
            // type STRING.
            b"\x18\0\0E\0a\0\x01b\0\x01c\0\x16d\0\x86\x02e\0\x01f\0\x01",
            &[&x[..], y, b"\x02\0y\0", b"x\0", x, y].concat(),
        );
        if compiler.is_cpp {
            expect_line(b"\x0c\0\0V\0a\0\x86\x02b\0\x01", &[&b"x\0"[..], x].concat());
        }
    }
}
