//! The programs under sanitizers and valgrind, and what the compiler makes of the macros: constants
//! in read-only data, and no code that runs before `main`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiler::{Compiler, Workbench, compilers, sources};
use crate::generate::{self, Runtime};
use crate::support::{SANITIZE, expect_success, has, has_sanitizers, here};
use crate::table;

/// Builds every program that needs no library.
fn programs(workbench: &Workbench, compiler: Compiler) -> Vec<PathBuf> {
    let table = workbench.source("table.c", &generate::program(&table::read(), Runtime::Hooks));
    let mut programs = vec![table, sources().join("rules.c")];
    if compiler.cpp {
        programs.extend(["activity.cpp", "places.cpp"].map(|name| sources().join(name)));
    }
    programs
}

#[test]
fn sanitizers_find_nothing() {
    let workbench = Workbench::new();
    for compiler in compilers().into_iter().filter(|c| has_sanitizers(c.program)) {
        for source in programs(&workbench, compiler) {
            let flags = [&SANITIZE[..], &["-O0", compiler.standards()[0]]].concat();
            expect_success(&mut Command::new(workbench.build(compiler, &source, &flags)));
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !has("valgrind") {
        return;
    }
    let workbench = Workbench::new();
    for compiler in compilers().into_iter().filter(|c| c.program.starts_with('g')) {
        for source in programs(&workbench, compiler) {
            let program = workbench.build(compiler, &source, &["-O0", compiler.standards()[0]]);
            expect_success(
                Command::new("valgrind")
                    .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
                    .arg(program),
            );
        }
    }
}

/// Returns the sections of an object: name and flags.
fn sections(object: &Path) -> Vec<(String, String)> {
    let text = expect_success(Command::new("objdump").arg("-h").arg("-w").arg(object));
    let section = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.nth(1)?.to_owned();
        Some((name, words.skip(5).collect::<Vec<_>>().join(" ")))
    };
    text.lines()
        .filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(section)
        .collect()
}

fn object(workbench: &Workbench, compiler: Compiler, source: &Path, flags: &[&str]) -> PathBuf {
    let object = workbench.path("object.o");
    let out = object.to_str().expect("a path in UTF-8");
    let flags = [flags, &["-c", "-O2", compiler.standards()[0], "-o", out]].concat();
    let verdict = workbench.compile(compiler, source, &flags);
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stderr));
    object
}

#[test]
fn metadata_are_read_only_and_nothing_runs_before_main() {
    let workbench = Workbench::new();
    let source = workbench.source("table.c", &generate::program(&table::read(), Runtime::Library));
    for compiler in compilers() {
        for pic in ["-fno-pic", "-fPIC"] {
            let object = object(&workbench, compiler, &source, &[pic]);
            let bytes = std::fs::read(&object).expect("the object can be read");
            assert_eq!(
                sections(&object).iter().any(|(name, _)| name == ".etw0"),
                !compiler.cpp,
                "{compiler:?}"
            );
            let needle = b"NinetyNine\0f0\0\x04f1\0\x04f2\0\x04";
            assert!(bytes.windows(needle.len()).any(|w| w == needle), "{compiler:?}: metadata are constants");
            // For tools: signature, size, version, 64 bits, magic; then the traits.
            let module = b"ETW0\x10\0\0\x01\x86\x0e\x04\x88\x2b\x05\x8a\xbb\x08\0Table\0";
            let blocks = bytes.windows(module.len()).filter(|w| w == module).count();
            assert_eq!(blocks, 1, "{compiler:?} {pic}: the block of the module and its provider");
            for (name, flags) in sections(&object) {
                let constructor = [".init_array", ".ctors"].iter().any(|s| name.starts_with(s));
                assert!(!constructor, "{compiler:?} {pic}: {name}");
                if name.starts_with(".etw0") {
                    let plain = flags.contains("READONLY") && !flags.contains("RELOC");
                    assert!(plain, "{compiler:?} {pic}: {name} {flags}");
                }
            }
        }
    }
}

/// A program of two sources, of which one declares the provider that the other defines.
#[test]
fn provider_can_be_declared_in_other_sources() {
    let workbench = Workbench::new();
    let define = "#include \"hooks.h\"\n#include <TraceLoggingProvider.h>\nTRACELOGGING_DECLARE_PROVIDER(g);\n\
        TRACELOGGING_DEFINE_PROVIDER(g, \"G\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n\
        #ifdef __cplusplus\nextern \"C\"\n#endif\nvoid other(void);\n\
        int main(void) {\n    hook.enabled_at_register = TRUE;\n    CHECK(TraceLoggingRegister(g) == S_OK);\n    other();\n    return 0;\n}\n";
    let declare = "#include \"hooks.h\"\n#include <TraceLoggingProvider.h>\nTRACELOGGING_DECLARE_PROVIDER(g);\n\
        #ifdef __cplusplus\nextern \"C\"\n#endif\nvoid other(void);\nvoid other(void) {\n    CHECK(TraceLoggingProviderEnabled(g, 5, 0));\n\
            TraceLoggingWrite(g, \"E\", TraceLoggingInt8(1, \"n\"));\n    hook_print();\n}\n";
    let (define, declare) = (workbench.source("define.c", define), workbench.source("declare.c", declare));
    // In any combination of languages.
    for (first, second) in compilers().into_iter().flat_map(|a| compilers().into_iter().map(move |b| (a, b)))
    {
        let defined = object(&workbench, first, &define, &[]);
        let kept = workbench.path("define.o");
        std::fs::rename(&defined, &kept).expect("the object can be kept");
        let declared = object(&workbench, second, &declare, &[]);
        let program = workbench.path("two");
        expect_success(Command::new("gcc").arg(&kept).arg(&declared).arg("-o").arg(&program));
        let printed = expect_success(&mut Command::new(&program));
        // Size, tags, the event's name, the field's name and type.
        assert!(printed.contains(" 08000045006e0003 "), "{printed}");
    }
}

#[test]
fn headers_compile_alone_and_twice() {
    let workbench = Workbench::new();
    for header in ["TraceLoggingProvider.h", "TraceLoggingActivity.h"] {
        let text = format!("#include <{header}>\n#include <{header}>\nextern int unit;\nint unit = 1;\n");
        let source = workbench.source("alone.c", &text);
        for compiler in compilers().into_iter().filter(|c| c.cpp || header.contains("Provider")) {
            for standard in compiler.standards() {
                workbench.accepts(compiler, &source, &[standard, "-Wconversion", "-Wshadow"]);
            }
        }
    }
    assert!(here("include/traceweir").is_dir());
}
