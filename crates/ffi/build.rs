//! Names of the library for C.
//!
//! Cargo calls a library as its crate is called, and the Rust crate `traceweir` has that name already. So this crate is `traceweir_c`, and beside what cargo
//! makes of it there are links with the names that C programs use:
//!
//! ```text
//!   target/debug/libtraceweir.so    ─▶ libtraceweir_c.so      what -ltraceweir finds
//!   target/debug/libtraceweir.so.0  ─▶ libtraceweir_c.so      what the loader looks for: the SONAME
//!   target/debug/libtraceweir.a     ─▶ libtraceweir_c.a
//! ```
//!
//! Where a link cannot be made, the build goes on: `crates/ffi/install.sh` installs the files under their names in any case.

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
        if let Err(why) = symlink(file, folder.join(name))
            && why.kind() != std::io::ErrorKind::AlreadyExists
        {
            println!("cargo::warning={name} cannot be made: {why}");
        }
    }
}
