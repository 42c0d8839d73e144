//! Compiles the manifest of the example `manifest` to a Rust module, which `main.rs` includes.

fn main() -> Result<(), traceweir_build::Error> {
    const MANIFEST: &str = "../manifest/greenhouse.man";
    println!("cargo::rerun-if-changed={MANIFEST}");
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    traceweir_build::Manifest::open(MANIFEST)?.write_rust(out)?;
    Ok(())
}
