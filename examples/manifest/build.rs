//! Compiles the manifest to a Rust module, which `main.rs` includes.

fn main() -> Result<(), traceweir_build::Error> {
    println!("cargo::rerun-if-changed=greenhouse.man");
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    traceweir_build::Manifest::open("greenhouse.man")?.write_rust(out)?;
    Ok(())
}
