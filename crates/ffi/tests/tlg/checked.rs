//! The programs under sanitizers and valgrind, and the objects that compilers make from the macros:
//! they have constants in read-only data, and no code that runs before `main`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiler::{Compiler, SourceFolder, compilers, test_folder};
use crate::generate::{self, Runtime};
use crate::support::{SANITIZER_FLAGS, crate_path, expect_success, has_program, has_sanitizers};
use crate::table;

/// Returns the sources of all programs that need no library.
fn list_sources(folder: &SourceFolder, compiler: Compiler) -> Vec<PathBuf> {
    let table = folder
        .write_source("table.c", &generate::generate_program(&table::read_declarations(), Runtime::Hooks));
    let mut sources = vec![table, test_folder().join("rules.c")];
    if compiler.is_cpp {
        sources.extend(["activity.cpp", "places.cpp"].map(|name| test_folder().join(name)));
    }
    sources
}

#[test]
fn sanitizers_report_no_error() {
    let folder = SourceFolder::new();
    for compiler in compilers().into_iter().filter(|compiler| has_sanitizers(compiler.program)) {
        for source in list_sources(&folder, compiler) {
            let flags = [&SANITIZER_FLAGS[..], &["-O0", compiler.standards()[0]]].concat();
            expect_success(&mut Command::new(folder.build(compiler, &source, &flags)));
        }
    }
}

#[test]
fn valgrind_reports_no_error() {
    if !has_program("valgrind") {
        return;
    }
    let folder = SourceFolder::new();
    for compiler in compilers().into_iter().filter(|compiler| compiler.program.starts_with('g')) {
        for source in list_sources(&folder, compiler) {
            let program = folder.build(compiler, &source, &["-O0", compiler.standards()[0]]);
            expect_success(
                Command::new("valgrind")
                    .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
                    .arg(program),
            );
        }
    }
}

/// Returns the sections of an object: name and flags.
fn list_sections(object: &Path) -> Vec<(String, String)> {
    let text = expect_success(Command::new("objdump").arg("-h").arg("-w").arg(object));
    let parse_section = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.nth(1)?.to_owned();
        Some((name, words.skip(5).collect::<Vec<_>>().join(" ")))
    };
    text.lines()
        .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(parse_section)
        .collect()
}

fn compile_object(folder: &SourceFolder, compiler: Compiler, source: &Path, flags: &[&str]) -> PathBuf {
    let object = folder.path("object.o");
    let out = object.to_str().expect("the path is not valid UTF-8");
    let flags = [flags, &["-c", "-O2", compiler.standards()[0], "-o", out]].concat();
    let output = folder.compile(compiler, source, &flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

#[test]
fn metadata_are_read_only_and_nothing_runs_before_main() {
    let folder = SourceFolder::new();
    let source = folder
        .write_source("table.c", &generate::generate_program(&table::read_declarations(), Runtime::Library));
    for compiler in compilers() {
        for pic in ["-fno-pic", "-fPIC"] {
            let object = compile_object(&folder, compiler, &source, &[pic]);
            let bytes = std::fs::read(&object).expect("cannot read the object");
            assert_eq!(
                // In C++ the metadata are in ordinary read-only sections (see `_TLG_BLOB`).
                list_sections(&object).iter().any(|(name, _)| name == ".etw0"),
                !compiler.is_cpp,
                "{compiler:?}"
            );
            let metadata = b"NinetyNine\0f0\0\x04f1\0\x04f2\0\x04";
            assert!(
                bytes.windows(metadata.len()).any(|window| window == metadata),
                "{compiler:?}: the metadata are not constants"
            );
            // The block that tools read: signature, size, version, 64 bits, magic; then the traits.
            let module_block = b"ETW0\x10\0\0\x01\x86\x0e\x04\x88\x2b\x05\x8a\xbb\x08\0Table\0";
            let blocks = bytes.windows(module_block.len()).filter(|window| window == module_block).count();
            assert_eq!(
                blocks, 1,
                "{compiler:?} {pic}: the block of the module and its provider does not occur exactly once"
            );
            for (name, flags) in list_sections(&object) {
                let is_constructor = [".init_array", ".ctors"].iter().any(|prefix| name.starts_with(prefix));
                assert!(!is_constructor, "{compiler:?} {pic}: {name}");
                if name.starts_with(".etw0") {
                    let is_constant = flags.contains("READONLY") && !flags.contains("RELOC");
                    assert!(is_constant, "{compiler:?} {pic}: {name} {flags}");
                }
            }
        }
    }
}

#[test]
fn provider_can_be_declared_in_other_sources() {
    let folder = SourceFolder::new();
    let define = "#include \"hooks.h\"\n#include <TraceLoggingProvider.h>\nTRACELOGGING_DECLARE_PROVIDER(g);\n\
        TRACELOGGING_DEFINE_PROVIDER(g, \"G\", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));\n\
        #ifdef __cplusplus\nextern \"C\"\n#endif\nvoid other(void);\n\
        int main(void) {\n    hook.enabled_at_register = TRUE;\n    CHECK(TraceLoggingRegister(g) == S_OK);\n    other();\n    return 0;\n}\n";
    let declare = "#include \"hooks.h\"\n#include <TraceLoggingProvider.h>\nTRACELOGGING_DECLARE_PROVIDER(g);\n\
        #ifdef __cplusplus\nextern \"C\"\n#endif\nvoid other(void);\nvoid other(void) {\n    CHECK(TraceLoggingProviderEnabled(g, 5, 0));\n\
            TraceLoggingWrite(g, \"E\", TraceLoggingInt8(1, \"n\"));\n    hook_print();\n}\n";
    let (define, declare) =
        (folder.write_source("define.c", define), folder.write_source("declare.c", declare));
    // The two sources may be in different languages.
    for (first, second) in
        compilers().into_iter().flat_map(|first| compilers().into_iter().map(move |second| (first, second)))
    {
        let defined = compile_object(&folder, first, &define, &[]);
        let defining_object = folder.path("define.o");
        std::fs::rename(&defined, &defining_object).expect("cannot rename the object");
        let declared = compile_object(&folder, second, &declare, &[]);
        let program = folder.path("two");
        expect_success(Command::new("gcc").arg(&defining_object).arg(&declared).arg("-o").arg(&program));
        let printed = expect_success(&mut Command::new(&program));
        // Size, tags, the event's name, the field's name and type.
        assert!(printed.contains(" 08000045006e0003 "), "{printed}");
    }
}

#[test]
fn headers_compile_alone_and_twice() {
    let folder = SourceFolder::new();
    for header in ["TraceLoggingProvider.h", "TraceLoggingActivity.h"] {
        let text = format!("#include <{header}>\n#include <{header}>\nextern int unit;\nint unit = 1;\n");
        let source = folder.write_source("alone.c", &text);
        for compiler in
            compilers().into_iter().filter(|compiler| compiler.is_cpp || header.contains("Provider"))
        {
            for standard in compiler.standards() {
                folder.assert_compiles(compiler, &source, &[standard, "-Wconversion", "-Wshadow"]);
            }
        }
    }
    assert!(crate_path("include/traceweir").is_dir());
}
