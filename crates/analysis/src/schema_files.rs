//! Files that contain schemas: files that the user names, and programs that a trace names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use traceweir::consumer::open_program;
use traceweir_decode::source::Precedence;
use traceweir_decode::tdh::{FOLDERS_VARIABLE, INSTALL_FOLDERS, read_installed_manifests};
use traceweir_decode::{Decoder, Error, plain};

use crate::observer::{ReadObserver, Warning};
use crate::text::format_count;

/// Sources of event schemas besides the traces themselves.
#[derive(Clone, Debug, Default)]
pub struct SchemaFiles {
    /// Instrumentation manifests (XML), PE and ELF files with compiled ones, and folders of these.
    pub manifests: Vec<PathBuf>,
    /// Message formats of WPP events: TMF files and folders of TMF files.
    pub tmf: Vec<PathBuf>,
    /// Message formats of WPP events: PDB files.
    pub pdb: Vec<PathBuf>,
    /// Whether program files that the traces name are not read.
    pub ignores_programs: bool,
}

/// Maximum size of a manifest, PE, ELF or TMF file.
const MAX_SCHEMA_FILE_BYTES: u64 = 512 << 20;

/// Returns the file at a path, or the files of a folder that may contain a manifest.
pub fn list_manifest_files(path: &Path) -> Result<Vec<PathBuf>> {
    list_files(path, &["man", "xml", "manifest", "dll", "exe", "sys", "so", "mui", "efi"])
}

/// Returns the file at a path, or the files of a folder with one of the extensions, sorted by name.
pub fn list_files(path: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
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

/// Reads a file with schemas, up to a size limit.
pub fn read_schema_file(path: &Path) -> Result<Vec<u8>> {
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
pub fn load_traced_programs(decoder: &mut Decoder, observer: &dyn ReadObserver) {
    for tracked in decoder.take_tracked() {
        let Some(file) = open_program(Path::new(&tracked.path)) else { continue };
        // Most programs contain no manifest. A manifest that differs from the traced one is worth a
        // warning.
        if let Err(Error::Binary(reason)) = decoder.add_tracked(&tracked, file) {
            let reason = reason.to_string();
            observer.warn(&Warning::TracedProgram { path: tracked.path.to_string(), reason });
        }
    }
}

/// Returns the folders of installed manifests that the environment names; `None` for the default
/// ones.
fn named_install_folders() -> Option<Vec<PathBuf>> {
    std::env::var_os(FOLDERS_VARIABLE).map(|list| std::env::split_paths(&list).collect())
}

/// Returns the files whose schemas a [`TraceSet`](crate::traces::TraceSet) loads: those that `files`
/// names, and the installed manifests. A folder that cannot be read stands for its files.
pub fn list_schema_files(files: &SchemaFiles) -> Vec<PathBuf> {
    let installed = named_install_folders().unwrap_or_else(|| INSTALL_FOLDERS.map(PathBuf::from).into());
    let manifests = files.manifests.iter().map(|path| (path, list_manifest_files(path)));
    let tmf = files.tmf.iter().map(|path| (path, list_files(path, &["tmf"])));
    let named = manifests.chain(tmf).flat_map(|(path, list)| list.unwrap_or_else(|_| vec![path.clone()]));
    let mut list: Vec<PathBuf> = named.chain(files.pdb.iter().cloned()).collect();
    for folder in installed {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut found: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        found.sort();
        list.extend(found);
    }
    list
}

/// Loads the schemas that `files` names, and the installed manifests.
pub(crate) fn load_schemas(
    decoder: &mut Decoder,
    files: &SchemaFiles,
    observer: &dyn ReadObserver,
) -> Result<()> {
    for path in &files.manifests {
        let is_folder = path.is_dir();
        for file in list_manifest_files(path)? {
            let bytes = read_schema_file(&file)?;
            match decoder.add_manifest(&bytes) {
                Ok(_) => {}
                // A folder may contain binaries without any metadata.
                Err(_) if is_folder => {}
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot use {} as a manifest", file.display()));
                }
            }
        }
    }
    for providers in read_installed_manifests(named_install_folders()) {
        // A manifest that contradicts another is left out, as in the library.
        let _ = decoder.add_providers(providers, Precedence::Installed);
    }
    for path in &files.tmf {
        for file in list_files(path, &["tmf"])? {
            let bytes = read_schema_file(&file)?;
            let added = decoder.add_tmf(&bytes).with_context(|| format!("cannot use {}", file.display()))?;
            warn_of_lines(&file, &added.warnings, observer);
        }
    }
    for path in &files.pdb {
        let file = plain::open(path).with_context(|| path.display().to_string())?;
        let added = decoder.add_pdb(file).with_context(|| format!("cannot use {}", path.display()))?;
        warn_of_lines(path, &added.warnings, observer);
        if added.formats == 0 {
            bail!("{} contains no WPP message formats", path.display());
        }
    }
    Ok(())
}

/// Warns about lines of a message format file that could not be used: the first few, and the
/// number of others.
fn warn_of_lines(file: &Path, warnings: &[(usize, &'static str)], observer: &dyn ReadObserver) {
    const MAX_SHOWN_LINES: usize = 5;
    for (line, reason) in warnings.iter().take(MAX_SHOWN_LINES) {
        observer.warn(&Warning::UnusableLine { file: file.to_owned(), line: *line, reason });
    }
    if warnings.len() > MAX_SHOWN_LINES {
        let count = (warnings.len() - MAX_SHOWN_LINES) as u64;
        observer.warn(&Warning::MoreUnusableLines { file: file.to_owned(), count });
    }
}
