//! Providers in shared libraries that are loaded and unloaded, and in a statically linked program.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use traceweir_format::binary_path::BinaryPath;

use crate::{Scenario, ScenarioRunner, assert_success, read_events};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("unload", load_and_unload_library), ("change a library", change_loaded_library)];

/// Returns target/PROFILE: cargo builds this program as target/PROFILE/deps/NAME.
fn profile_folder() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Returns the plugin library. `cargo test` without a filter builds it beside the tests; a run of
/// these tests alone builds it here.
fn plugin_library() -> PathBuf {
    let folder = profile_folder();
    let library = folder.join("examples/libprovider_plugin.so");
    if !is_newer_than_its_sources(&library) {
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--example", "provider_plugin", "--profile", profile]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--target-dir").arg(folder.parent().unwrap());
        cargo.env("CARGO_INCREMENTAL", "0");
        assert_success(&cargo.output().unwrap());
    }
    library
}

/// Returns whether a library is newer than the sources that cargo lists in the `.d` file beside it.
fn is_newer_than_its_sources(library: &Path) -> bool {
    let modification_time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let (Some(built), Ok(list)) =
        (modification_time(library), std::fs::read_to_string(library.with_extension("d")))
    else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    sources
        .split_whitespace()
        .all(|source| modification_time(Path::new(source)).is_some_and(|time| time <= built))
}

#[test]
fn library_with_a_provider_can_be_unloaded() {
    let library = plugin_library();
    let runner = ScenarioRunner::new();
    // This program holds the same code, but the library has a separate copy: the two share nothing.
    let output = runner
        .command("unload")
        .env("PLUGIN_LIBRARY", &library)
        .env("PLUGIN_FILE", runner.path("plugin.etl"))
        .output();
    assert_success(&output.unwrap());
    assert_eq!(read_module_path(&runner.path("plugin.etl")), library);
}

#[test]
fn deleted_or_renamed_library_is_recorded_with_its_path() {
    let library = plugin_library();
    let runner = ScenarioRunner::new();
    let folder = runner.path("").canonicalize().unwrap();
    for (change, recorded_name) in [("deleted", "copy.so"), ("renamed", "renamed.so")] {
        std::fs::copy(&library, folder.join("copy.so")).unwrap();
        let output = runner
            .command("change a library")
            .env("PLUGIN_LIBRARY", folder.join("copy.so"))
            .env("PLUGIN_CHANGE", change)
            .env("PLUGIN_FILE", runner.path("changed.etl"))
            .output();
        assert_success(&output.unwrap());
        assert_eq!(read_module_path(&runner.path("changed.etl")), folder.join(recorded_name), "{change}");
    }
}

/// Returns the path of the module that a finalised file names.
fn read_module_path(path: &Path) -> PathBuf {
    let trace = traceweir_format::etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised());
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        if BinaryPath::is_in(&record) {
            let module = BinaryPath::parse(record.payload()).unwrap();
            assert_eq!(module.guids, [traceweir::Guid::from_provider_name("Example-Plugin")]);
            return module.path.into();
        }
    }
    panic!("{}: no module", path.display());
}

/// Loads the library, changes its file, and only then uses it.
fn change_loaded_library(folder: &Path) {
    let library = PathBuf::from(std::env::var_os("PLUGIN_LIBRARY").unwrap());
    let name = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library is the plugin of these tests; its function has this type.
    unsafe {
        let loaded = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!loaded.is_null());
        match std::env::var("PLUGIN_CHANGE").unwrap().as_str() {
            "deleted" => std::fs::remove_file(&library).unwrap(),
            _ => std::fs::rename(&library, folder.canonicalize().unwrap().join("renamed.so")).unwrap(),
        }
        let run = find_function::<extern "C" fn(u32) -> i64>(loaded, c"plugin_run".as_ptr());
        assert_eq!(run(10), 10);
    }
}

/// Loads the library, uses it and unloads it; the code of its threads must stay mapped.
fn load_and_unload_library(_: &Path) {
    let name = CString::new(std::env::var("PLUGIN_LIBRARY").unwrap()).unwrap();
    for _ in 0..3 {
        // SAFETY: the library is the plugin of these tests; its functions have these types.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            let run = find_function::<extern "C" fn(u32) -> i64>(library, c"plugin_run".as_ptr());
            let leak = find_function::<extern "C" fn() -> c_int>(library, c"plugin_leak".as_ptr());
            assert_eq!(run(100), 100);
            assert_eq!(leak(), 0);
            assert_eq!(libc::dlclose(library), 0);
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.contains(name.to_str().unwrap()), "the library is no longer mapped");
    }
}

/// # Safety
///
/// The symbol is a function of type `F`.
unsafe fn find_function<F: Copy>(library: *mut c_void, name: *const c_char) -> F {
    // SAFETY: the library is loaded, and the name is a C string with its terminator.
    let address = unsafe { libc::dlsym(library, name) };
    assert!(!address.is_null());
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the caller guarantees that the symbol has type `F`; function pointers have the size
    // of pointers.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Needs the static libraries of the C library, which its development package contains.
#[cfg(target_env = "gnu")]
#[test]
fn statically_linked_program_records_its_events() {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let runner = ScenarioRunner::new();
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-package");
    std::fs::create_dir_all(&package).unwrap();
    // A separate package: building the example in place would build all development dependencies.
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = format!(
        "[package]\nname = \"private_session\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [[bin]]\nname = \"private_session\"\npath = {:?}\n[dependencies]\ntraceweir = {{ path = {api:?} }}\n",
        api.join("examples/private_session.rs")
    );
    std::fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The versions of the project's Cargo.lock, so that nothing is downloaded.
    std::fs::copy(api.join("../../Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let build_output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--target", &target])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .output();
    assert_success(&build_output.unwrap());
    let program = folder.join(&target).join("debug/private_session");
    assert!(!has_interpreter(&std::fs::read(&program).unwrap()));
    let output = Command::new(program)
        .args([runner.path("static.etl").as_os_str(), "1000".as_ref()])
        .env("TRACEWEIR_RUNTIME_DIR", runner.runtime())
        .output()
        .unwrap();
    assert_success(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "offered 1000 written 1000 lost 0 refused 0\n");
    // `read_events` checks that the file is finalised and valid. It returns no events, because
    // those of the example belong to another provider.
    assert!(read_events(&runner.path("static.etl")).0.is_empty());
}

/// Returns whether a 64-bit little-endian ELF file has a PT_INTERP segment.
#[cfg(target_env = "gnu")]
fn has_interpreter(image: &[u8]) -> bool {
    const PT_INTERP: usize = 3;
    let read_number = |at: usize, size: usize| {
        image[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    // e_phoff, e_phentsize and e_phnum of the ELF header.
    let (start, entry_size, count) = (read_number(0x20, 8), read_number(0x36, 2), read_number(0x38, 2));
    (0..count).any(|segment| read_number(start + segment * entry_size, 4) == PT_INTERP)
}
