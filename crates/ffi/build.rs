//! Creates links with the names of the library for C.
//!
//! Cargo names a library after its crate, and the Rust crate `traceweir` already has that name. So
//! this crate is `traceweir_c`, and next to cargo's files there are links with the names that C
//! programs use:
//!
//! ```text
//!   target/debug/libtraceweir.so    ─▶ libtraceweir_c.so      found by -ltraceweir
//!   target/debug/libtraceweir.so.0  ─▶ libtraceweir_c.so      found by the loader: the SONAME
//!   target/debug/libtraceweir.a     ─▶ libtraceweir_c.a
//! ```
//!
//! If a link cannot be created, the build continues: `crates/ffi/install.sh` installs the files
//! under their names in any case.

use std::os::unix::fs::symlink;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtraceweir.so.0");
    // Threads and exit handlers of the library live as long as the process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // OUT_DIR is target/<profile>/build/<package>-<hash>/out.
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let Some(folder) = Path::new(&out).ancestors().nth(3) else { return };
    for (name, file) in [
        ("libtraceweir.so", "libtraceweir_c.so"),
        ("libtraceweir.so.0", "libtraceweir_c.so"),
        ("libtraceweir.a", "libtraceweir_c.a"),
    ] {
        if let Err(error) = symlink(file, folder.join(name))
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            println!("cargo::warning=cannot create {name}: {error}");
        }
    }
}
