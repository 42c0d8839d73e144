//! Tests of `weir shims`, which creates links to the library under the names of Windows DLLs: which
//! links it creates, which files it does not change, and that programs load the library by these
//! names.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{arg, make_folder};
use crate::golden::run_to_end;
use crate::util::{Run, root, skip, weir, weir_command};

/// Creates the link `libtraceweir.so.0`, the name of an installed library. It points to the file
/// that cargo built for this test. Shims must point to the installed name.
fn link_library(folder: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().join("libtraceweir_c.so");
    assert!(built.is_file(), "{} was not built for this test", built.display());
    let library = folder.join("libtraceweir.so.0");
    std::os::unix::fs::symlink(built, &library).unwrap();
    library
}

fn run_shims(folder: &Path, options: &[&str]) -> Run {
    weir(["shims", arg(folder)].iter().chain(options))
}

fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn links_are_created_listed_kept_and_removed() {
    let folder = make_folder();
    let folder_path = folder.path().canonicalize().unwrap();
    let (library, links) = (link_library(&folder_path), folder_path.join("new/shims"));
    // Six libraries with six spellings each.
    let run = run_shims(&links, &["--lib", arg(&library)]).expect(0);
    assert_eq!(run.text().lines().filter(|line| line.starts_with("made ")).count(), 36, "{}", run.text());
    assert!(run.stderr.contains("LD_LIBRARY_PATH="), "{}", run.stderr);
    assert_eq!(file_names(&links).len(), 36);
    for name in file_names(&links) {
        assert_eq!(std::fs::read_link(links.join(name)).unwrap(), library);
    }
    // The folder of the library is accepted as well as the library itself.
    let again = run_shims(&links, &["--lib", arg(folder.path())]).expect(0).text();
    assert_eq!(again.lines().filter(|line| line.starts_with("kept ")).count(), 36, "{again}");
    let run = run_shims(&links, &["--remove"]).expect(0);
    assert_eq!(run.text().lines().filter(|line| line.starts_with("removed ")).count(), 36);
    assert!(file_names(&links).is_empty() && library.exists());
}

#[test]
fn foreign_files_are_kept_unless_forced() {
    let folder = make_folder();
    let folder_path = folder.path().canonicalize().unwrap();
    let (library, links) = (link_library(&folder_path), folder_path.join("shims"));
    std::fs::create_dir(&links).unwrap();
    let precious = links.join("tdh.dll");
    std::fs::write(&precious, "precious").unwrap();
    let run = run_shims(&links, &["--lib", arg(&library)]).expect(1);
    assert!(run.stderr.contains("--force") && run.stderr.contains("tdh.dll"), "{}", run.stderr);
    assert_eq!(file_names(&links), ["tdh.dll"], "a refused call changed the folder");
    // A link belongs to weir if the name of its target begins with libtraceweir, even if the target
    // does not exist.
    std::os::unix::fs::symlink("/nowhere/libtraceweir.so.0", links.join("libtdh.so")).unwrap();
    let run = run_shims(&links, &["--lib", arg(&library), "--force"]).expect(0);
    assert_eq!(run.text().lines().filter(|line| line.starts_with("replaced ")).count(), 2, "{}", run.text());
    assert_eq!(std::fs::read_link(&precious).unwrap(), library);
    std::fs::remove_file(&precious).unwrap();
    std::fs::write(&precious, "precious").unwrap();
    let run = run_shims(&links, &["--remove"]).expect(0);
    assert!(run.stderr.contains("tdh.dll stays"), "{}", run.stderr);
    assert_eq!(
        (file_names(&links), std::fs::read(&precious).unwrap()),
        (vec!["tdh.dll".to_owned()], b"precious".to_vec())
    );
    std::fs::remove_file(&precious).unwrap();
    std::fs::create_dir(&precious).unwrap();
    run_shims(&links, &["--lib", arg(&library), "--force"]).expect(1);
}

#[test]
fn file_that_is_not_a_library_is_refused() {
    let folder = make_folder();
    let links = folder.path().join("shims");
    let text_file = folder.path().join("libtraceweir.so");
    std::fs::write(&text_file, "text").unwrap();
    for (lib, reason) in [
        (text_file, "not a shared library"),
        (folder.path().join("libother.so"), "does not begin with"),
        (folder.path().join("libtraceweir.so.7"), "cannot read"),
    ] {
        let run = run_shims(&links, &["--lib", arg(&lib)]).expect(1);
        assert!(run.stderr.contains(reason), "{}: {}", lib.display(), run.stderr);
    }
    assert!(!links.exists());
    weir(["shims", arg(&folder.path().join("none")), "--remove"]).expect(1);
}

#[test]
fn library_is_found_where_an_installation_puts_it() {
    let folder = make_folder();
    let folder_path = folder.path().canonicalize().unwrap();
    for part in ["bin", "lib"] {
        std::fs::create_dir(folder_path.join(part)).unwrap();
    }
    let (library, links, program) =
        (link_library(&folder_path.join("lib")), folder_path.join("shims"), folder_path.join("bin/weir"));
    // If this process wrote the file, a process that another test starts at this time would inherit
    // it open for writing, and the program could not be run.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_weir")).arg(&program).status().unwrap().success());
    let run = Command::new(&program).arg("shims").arg(&links).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    assert_eq!(std::fs::read_link(links.join("tdh.dll")).unwrap(), library);
    // A library in the folder of the program takes precedence.
    let neighbour = folder_path.join("bin/libtraceweir.so");
    std::fs::copy(&library, &neighbour).unwrap();
    let run = Command::new(&program).arg("shims").arg(&links).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stdout).starts_with("replaced "), "{run:?}");
    assert_eq!(std::fs::read_link(links.join("tdh.dll")).unwrap(), neighbour);
}

/// Registers and unregisters a provider with each library that the arguments name. The second
/// unregistration must return 6 (`ERROR_INVALID_HANDLE`).
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
typedef unsigned int (*Register)(const void *, void *, void *, unsigned long long *);
typedef unsigned int (*Unregister)(unsigned long long);
int main(int count, char **names) {
    static const unsigned char guid[16] = {1, 2, 3};
    for (int at = 1; at < count; at++) {
        void *library = dlopen(names[at], RTLD_NOW);
        if (!library) {
            return puts(dlerror()), 1;
        }
        Register reg = (Register)dlsym(library, "EventRegister");
        Unregister unreg = (Unregister)dlsym(library, "EventUnregister");
        unsigned long long handle = 0;
        if (!reg || !unreg || reg(guid, 0, 0, &handle) || !handle || unreg(handle) || unreg(handle) != 6) {
            return 2;
        }
    }
    return puts("registered"), 0;
}
"#;

#[test]
fn c_program_loads_the_library_by_windows_names() {
    let folder = make_folder();
    let (library, links) = (link_library(folder.path()), folder.path().join("shims"));
    run_shims(&links, &["--lib", arg(&library)]).expect(0);
    let (source, program) = (folder.path().join("load.c"), folder.path().join("load"));
    std::fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("gcc").arg(&source).arg("-o").arg(&program).arg("-ldl").status().unwrap();
    assert!(compiled.success());
    let run = Command::new(&program)
        .args(file_names(&links))
        .env("LD_LIBRARY_PATH", &links)
        .env("TRACEWEIR_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(
        (run.status.code(), String::from_utf8_lossy(&run.stdout).as_ref()),
        (Some(0), "registered\n"),
        "{run:?}"
    );
}

const SCRIPT: &str = r#"
import ctypes, sys
for name in sys.argv[1:]:
    library = ctypes.CDLL(name)
    handle = ctypes.c_uint64()
    assert library.EventRegister(bytes(range(16)), None, None, ctypes.byref(handle)) == 0
    assert library.EventUnregister(handle) == 0
print("registered")
"#;

#[test]
fn python_program_loads_the_library_by_windows_names() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3", "there is no python3");
    }
    let folder = make_folder();
    let (library, links) = (link_library(folder.path()), folder.path().join("shims"));
    run_shims(&links, &["--lib", arg(&library)]).expect(0);
    let run = Command::new("python3")
        .args(["-c", SCRIPT, "advapi32.dll", "libsechost.so", "tdh.dll"])
        .env("LD_LIBRARY_PATH", &links)
        .env("TRACEWEIR_RUNTIME_DIR", folder.path())
        .current_dir(root())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        "registered\n",
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

/// Looks up the functions that Microsoft's TraceEvent library imports, and calls some of them. In
/// these calls, 8 is `TOKEN_QUERY`, 20 is `TokenElevation`, and `version[1]` is the major version
/// of Windows.
const IMPORTS_SCRIPT: &str = r#"
import ctypes
imports = {
    "advapi32.dll": "StartTraceW ControlTraceW QueryAllTracesW EnableTrace EnableTraceEx EnableTraceEx2 OpenTraceW "
        "ProcessTrace CloseTrace TraceSetInformation TraceQueryInformation EnumerateTraceGuidsEx OpenProcessToken "
        "GetTokenInformation AdjustTokenPrivileges",
    "tdh.dll": "TdhGetEventInformation TdhGetEventMapInformation TdhEnumerateManifestProviderEvents "
        "TdhGetManifestEventInformation TdhEnumerateProviders TdhEnumerateProviderFieldInformation",
    "ntdll.dll": "RtlGetVersion RtlDecompressBuffer NtQuerySystemInformation",
    "kernel32.dll": "CloseHandle LoadLibraryW LoadLibraryExA FindFirstVolumeW FindNextVolumeW FindVolumeClose "
        "QueryDosDeviceW GetLogicalDrives Wow64DisableWow64FsRedirection Wow64RevertWow64FsRedirection",
    "KernelTraceControl.dll": "StartKernelTrace CreateMergedTraceFile",
}
for library, names in imports.items():
    library = ctypes.CDLL(library)
    for name in names.split():
        getattr(library, name)
kernel32, advapi32 = ctypes.CDLL("kernel32.dll"), ctypes.CDLL("advapi32.dll")
kernel32.LoadLibraryW.restype = ctypes.c_void_p
assert kernel32.LoadLibraryW("/app/amd64/KernelTraceControl.dll\0".encode("utf-16-le"))
token, elevated, size = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint32()
assert advapi32.OpenProcessToken(ctypes.c_void_p(0x164), 8, ctypes.byref(token))
assert advapi32.GetTokenInformation(token, 20, ctypes.byref(elevated), 4, ctypes.byref(size))
assert kernel32.CloseHandle(token) and kernel32.GetLogicalDrives() == 0
version = (ctypes.c_uint32 * 37)()
assert ctypes.CDLL("ntdll.dll").RtlGetVersion(version) == 0 and version[1] == 10
print("imported")
"#;

#[test]
fn libraries_have_the_functions_that_programs_import_from_them() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3", "there is no python3");
    }
    let folder = make_folder();
    let (library, links) = (link_library(folder.path()), folder.path().join("shims"));
    run_shims(&links, &["--lib", arg(&library)]).expect(0);
    let run = Command::new("python3")
        .args(["-c", IMPORTS_SCRIPT])
        .env("LD_LIBRARY_PATH", &links)
        .env("TRACEWEIR_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "imported\n", "{run:?}");
}

#[test]
fn folder_is_printed_as_an_absolute_path() {
    let folder = make_folder();
    let folder_path = folder.path().canonicalize().unwrap();
    let library = link_library(&folder_path);
    let mut command = weir_command(["shims", "links", "--lib", arg(&library)]);
    let run = run_to_end(command.current_dir(&folder_path)).expect(0);
    let expected = format!("LD_LIBRARY_PATH={}\n", folder_path.join("links").display());
    assert!(run.stderr.ends_with(&expected), "{}", run.stderr);
}
