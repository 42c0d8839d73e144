//! Files that contain schemas: files that the user names, and programs that a trace names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use traceweir::consumer::open_program;
use traceweir_decode::{Decoder, Error};

use crate::text::format_count;

/// Maximum size of a manifest, PE, ELF or TMF file.
const MAX_SCHEMA_FILE_BYTES: u64 = 512 << 20;

/// Returns the file at a path, or the files of a folder that may contain a manifest.
pub(crate) fn list_manifest_files(path: &Path) -> Result<Vec<PathBuf>> {
    list_files(path, &["man", "xml", "manifest", "dll", "exe", "sys", "so", "mui", "efi"])
}

/// Returns the file at a path, or the files of a folder with one of the extensions, sorted by name.
pub(crate) fn list_files(path: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let context = || format!("cannot open {}", path.display());
    if !path.metadata().with_context(context)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in path.read_dir().with_context(context)? {
        let file = entry.with_context(context)?.path();
        let extension = file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if file.is_file() && extension.is_some_and(|e| extensions.contains(&e.as_str())) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read_schema_file(path: &Path) -> Result<Vec<u8>> {
    let size = path.metadata().with_context(|| path.display().to_string())?.len();
    if size > MAX_SCHEMA_FILE_BYTES {
        let size = format_count(size, "byte");
        bail!("{} is too large for a file with schemas ({size})", path.display());
    }
    let context = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    // The limit is needed because a special file has no reliable size.
    File::open(path)
        .with_context(context)?
        .take(MAX_SCHEMA_FILE_BYTES)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    Ok(bytes)
}

/// Loads the compiled manifests of the programs that the trace has named since the last call. The
/// author of the trace chose the paths, so [`open_program`] opens them with care.
pub(crate) fn load_traced_programs(decoder: &mut Decoder) {
    for tracked in decoder.take_tracked() {
        let Some(file) = open_program(Path::new(&tracked.path)) else { continue };
        // Most programs contain no manifest. A manifest that differs from the traced one is worth a
        // warning.
        if let Err(Error::Binary(reason)) = decoder.add_tracked(&tracked, file) {
            eprintln!(
                "warning: {}: {reason}; events of its providers may lack their names",
                tracked.path.escape_debug()
            );
        }
    }
}
