//! Constructs that sources for Windows contain, above all the output of mc.exe: each compiles as it
//! is with every compiler and standard, in C and C++ unless its test names one of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{C, CPP, Language, Link, ProgramFolder, checked_rows, crate_path, expect_success};

/// Compiles and links files with each compiler and standard of a language, and runs the program.
fn build_and_run(language: &Language, files: &[PathBuf], flags: &[&str]) {
    let program = files[0].with_extension("out");
    for compiler in language.compilers() {
        for standard in language.standards {
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(crate_path("include"));
            command.arg(format!("-std={standard}")).args(flags).args(files).arg("-o").arg(&program);
            expect_success(&mut command);
            expect_success(&mut Command::new(&program));
        }
    }
}

fn write_source(folder: &Path, name: &str, language: &Language, text: &str) -> PathBuf {
    let file = folder.join(format!("{name}.{}", language.extension));
    std::fs::write(&file, text).unwrap();
    file
}

/// Builds and runs a program of one source file, in both languages.
fn check_source(text: &str) {
    let folder = tempfile::tempdir().unwrap();
    for language in [C, CPP] {
        build_and_run(&language, &[write_source(folder.path(), "source", &language, text)], &[]);
    }
}

/// The declarations of a header that mc.exe generated, in its forms.
const GENERATED_HEADER: &str = r"
#include <wmistr.h>
#include <evntrace.h>
#include <evntprov.h>
EXTERN_C __declspec(selectany) const GUID Shop = {1, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}};
EXTERN_C __declspec(selectany) const EVENT_DESCRIPTOR Sold = {0x64, 0x1, 0x0, 0x4, 0x0, 0x0, 0x0};
EXTERN_C __declspec(selectany) const unsigned char Levels[1] = {4};
EXTERN_C __declspec(selectany) DECLSPEC_CACHEALIGN ULONG EnableBits[1];
DECLSPEC_NOINLINE __inline
ULONG __stdcall
CountArguments(_In_range_(1, 128) ULONG Count, _Pre_cap_(Count) EVENT_DATA_DESCRIPTOR* Data, _In_ const unsigned __int64 Value)
{
    const USHORT UNALIGNED* Traits = (const USHORT UNALIGNED*)(const void*)Levels;
    EventDataDescCreate(&Data[0], &Value, sizeof(const unsigned __int64));
    return Traits == NULL ? 0 : Count;
}
ETW_INLINE ULONG AddBit(void) { return ++EnableBits[0]; }
FORCEINLINE ULONG CountOne(void) { EVENT_DATA_DESCRIPTOR Data; return CountArguments(1, &Data, 7); }
";

#[test]
fn output_of_mc_exe_compiles_and_several_sources_share_its_variables() {
    let folder = tempfile::tempdir().unwrap();
    for language in [C, CPP] {
        let first = format!(
            "{GENERATED_HEADER}ULONG add_in_second(void);\nconst GUID *shop_of_second(void);\n\
             int main(void) {{ AddBit(); add_in_second(); return !(EnableBits[0] == 2 && CountOne() == 1 && Sold.Id == 100 &&\n\
             shop_of_second() == &Shop && ((ULONG_PTR)EnableBits & 63) == 0); }}\n"
        );
        let second = format!(
            "{GENERATED_HEADER}ULONG add_in_second(void);\nULONG add_in_second(void) {{ return AddBit() + 0 * CountOne(); }}\n\
             const GUID *shop_of_second(void);\nconst GUID *shop_of_second(void) {{ return &Shop; }}\n"
        );
        let files = [
            write_source(folder.path(), "first", &language, &first),
            write_source(folder.path(), "second", &language, &second),
        ];
        build_and_run(&language, &files, &[]);
    }
}

#[test]
fn guids_are_defined_if_initguid_follows_windows_h() {
    check_source(
        "#include <windows.h>\n#define INITGUID\n#include <evntrace.h>\n\
         int main(void) { return !(EventTraceGuid.Data1 == 0x68fdd900 && SystemTraceControlGuid.Data1 == 0x9e814aad); }\n",
    );
}

#[test]
fn wmistr_declares_no_functions_of_evntrace() {
    check_source(
        "#include <windows.h>\n#include <wmistr.h>\n#ifdef _EVNTRACE_\n#error wmistr.h includes evntrace.h\n#endif\n\
         int main(void) { WNODE_HEADER header; return !(sizeof header == 48 && WMI_ENABLE_EVENTS == 4 && WNODE_FLAG_TRACED_GUID != 0); }\n",
    );
}

#[test]
fn source_may_define_its_own_null_guid() {
    check_source(
        "#include <windows.h>\n#include <evntrace.h>\n#include <tdh.h>\n\
         static const GUID GUID_NULL = {0, 0, 0, {0}};\nint main(void) { return GUID_NULL.Data1 != 0; }\n",
    );
}

#[test]
fn words_of_sources_for_windows_are_defined() {
    check_source(
        r#"#include <windows.h>
typedef struct { int first; int second; } PAIR;
typedef int (__cdecl *COMPARE)(const void *, const void *);
__declspec(noinline) static int compare(const void *a, const void *b) { return a == b; }
__declspec(align(64)) static char line[64];
_Ret_z_ static const char *text(_In_count_(n) const char *from, _In_bytecount_(n) const void *same, int n) {
    _Analysis_assume_(n > 0);
    return n > 0 && same != NULL ? from : "";
}
static _Ret_notnull_ _Ret_bytecount_(n) const void *bytes(_Inout_count_(n) char *at, _In_count_x_(3) const char *x, int n) {
    UNREFERENCED_PARAMETER(x);
    return at + 0 * n;
}
static void fill(_Out_writes_to_(n, *used) char *at, ULONG n, _Out_ ULONG *used, _Post_invalid_ void *gone) {
    UNREFERENCED_PARAMETER(gone);
    at[0] = 'f';
    *used = n;
}
int main(void) {
    PAIR pair = {1, 2};
    COMPARE function = compare;
    WCHAR none = UNICODE_NULL;
    ULONG used = 0;
    fill(line, 1, &used, NULL);
    return !(CONTAINING_RECORD(&pair.second, PAIR, second) == &pair && RTL_NUMBER_OF(line) == 64 && PtrToUlong((void *)5) == 5 &&
             HRESULT_CODE(0x80070005) == 5 && LOBYTE(0x1234) == 0x34 && HIBYTE(0x1234) == 0x12 && MAKEWORD(0x34, 0x12) == 0x1234 &&
             none == 0 && function(&pair, &pair) && ((ULONG_PTR)line & 63) == 0 && SUBLANG_ENGLISH_US == 1 && *text("t", "t", 1) == 't' &&
             bytes(line, "", 1) == line && used == 1 && _WIN32_WINNT >= _WIN32_WINNT_WIN7 && ERROR_INVALID_DATA == 13 &&
             ERROR_BUFFER_OVERFLOW == 111 && ERROR_INVALID_NAME == 123 && ERROR_RESOURCE_TYPE_NOT_FOUND == 1813 && sizeof(__int64) == 8);
}
"#,
    );
}

#[test]
fn old_annotations_are_empty_in_c() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <windows.h>\nstatic int get(__in int n, __out_bcount(n) char *to, __inout_opt int *count, __deref_out char **end) {\n\
                  to[0] = 'x'; *end = to + n; return count == NULL; }\n\
                  int main(void) { char to[2]; char *end; return !(get(1, to, NULL, &end) && end == to + 1); }\n";
    build_and_run(&C, &[write_source(folder.path(), "annotations", &C, source)], &[]);
}

#[test]
fn functions_of_handles_accept_uint64_t_in_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"#include <cstdint>
extern "C" {
#include <evntrace.h>
}
#include <evntprov.h>
static const GUID provider = {1, 2, 3, {4}};
static void callback(LPCGUID, ULONG, UCHAR, uint64_t, uint64_t, PEVENT_FILTER_DESCRIPTOR, PVOID) {}
static void published(LPCGUID, ULONG, UCHAR, ULONGLONG, ULONGLONG, PEVENT_FILTER_DESCRIPTOR, PVOID) {}
ULONG use() {
    uint64_t handle = 0;
    REGHANDLE reg = 0;
    EVENT_TRACE_PROPERTIES properties = {};
    // The names mean the published functions alone.
    decltype(&EventRegister) pointer = EventRegister;
    ULONG(WMIAPI *start)(CONTROLTRACE_ID *, LPCSTR, PEVENT_TRACE_PROPERTIES) = &StartTraceA;
    pointer(&provider, nullptr, nullptr, &reg);
    start(&reg, nullptr, nullptr);
    return EventRegister(&provider, nullptr, nullptr, &handle) | EventRegister(&provider, NULL, NULL, &reg) |
           EventRegister(&provider, NULL, NULL, NULL) | EventRegister(&provider, nullptr, nullptr, nullptr) |
           EventRegister(&provider, callback, nullptr, &handle) | EventRegister(&provider, callback, nullptr, &reg) |
           EventRegister(&provider, published, nullptr, &handle) | EventRegister(&provider, published, nullptr, &reg) |
           StartTraceA(&handle, nullptr, &properties) | StartTraceA(NULL, nullptr, nullptr) | StartTraceA(&reg, nullptr, &properties);
}
"#;
    let file = write_source(folder.path(), "handles", &CPP, source);
    for compiler in CPP.compilers() {
        for standard in CPP.standards {
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(crate_path("include"));
            expect_success(command.arg(format!("-std={standard}")).arg(&file));
        }
    }
}

#[test]
fn short_wchar_t_is_the_wide_character_in_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"#include <type_traits>
#define UNICODE
#include <evntrace.h>
static_assert(std::is_same<WCHAR, wchar_t>::value, "WCHAR is wchar_t");
static const wchar_t *name = KERNEL_LOGGER_NAMEW;
static const wchar_t *text = TEXT("text");
int main() {
    EVENT_TRACE_LOGFILEW log = {};
    wchar_t file[] = L"trace.etl";
    log.LogFileName = file;
    return !(name[0] == 'N' && text[3] == 't' && sizeof(WCHAR) == 2 && log.LogFileName[0] == 't');
}
"#;
    build_and_run(&CPP, &[write_source(folder.path(), "short", &CPP, source)], &["-fshort-wchar"]);
}

#[test]
fn functions_beside_tracing_report_what_holds_here() {
    let programs = ProgramFolder::new();
    for (language, flags) in [(C, &[][..]), (CPP, &["-x", "c++"])] {
        for compiler in language.compilers() {
            let program = programs.build(compiler, &crate_path("tests/c/win32.c"), flags, Link::Shared);
            let runtime = tempfile::tempdir().unwrap();
            let mut command = Command::new(program);
            let output = expect_success(command.env("TRACEWEIR_RUNTIME_DIR", runtime.path()));
            assert!(checked_rows(&output) > 100, "{output}");
        }
    }
}

#[test]
fn source_may_bring_its_own_functions_beside_tracing() {
    check_source(
        "#define TRACEWEIR_NO_WIN32_CALLS\n#include <evntrace.h>\ntypedef struct { int mine; } TOKEN_PRIVILEGES;\n\
         static BOOL CloseHandle(HANDLE handle) { return handle == NULL; }\n\
         int main(void) { TOKEN_PRIVILEGES own = {1}; return !(CloseHandle(NULL) && own.mine == 1); }\n",
    );
}
