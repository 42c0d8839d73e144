//! Writes data to standard output or a file, in large blocks.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use traceweir::{Error, Status};

use crate::text::{allows_colours, escape_path};

/// Number of bytes that are collected before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// The output for data. Messages for people go to standard error instead.
pub(crate) struct BufferedOutput {
    target: OutputTarget,
    buffer: Vec<u8>,
    /// Whether the output is a terminal; queried once, because it takes a system call.
    is_terminal: bool,
}

/// Writes a text to standard output.
pub(crate) fn print_text(text: &str) -> Result<()> {
    let mut output = BufferedOutput::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()
}

/// Replaces the error of a file whose folder does not exist, with the words that the library uses
/// for log files.
pub(crate) fn name_missing_folder(path: &Path, error: Error) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (&error, folder) {
        (Error::File { source, .. }, Some(folder))
            if source.kind() == io::ErrorKind::NotFound && !folder.is_dir() =>
        {
            let reason = format!("{}: folder {} does not exist", path.display(), folder.display());
            Error::refused(Status::ERROR_PATH_NOT_FOUND, reason)
        }
        _ => error,
    }
}

/// Creates or empties a file for output.
pub(crate) fn create_file(path: &Path) -> Result<File> {
    if path.is_dir() {
        bail!("cannot write {}: it is a folder; name a file", escape_path(path));
    }
    let file = traceweir::output::create(path, false);
    file.map_err(|error| name_missing_folder(path, error)).context("cannot write")
}

/// A file whose name is in the errors of writing it.
pub(crate) struct NamedFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl NamedFile {
    fn name_error(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", escape_path(&self.path)))
    }
}

impl Write for NamedFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data).map_err(|error| self.name_error(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.name_error(&error))
    }
}

enum OutputTarget {
    Stdout(io::Stdout),
    File(NamedFile),
}

impl BufferedOutput {
    /// Opens standard output (also by the name `-`), or creates or replaces a file.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let target = match path {
            Some(path) if path.as_os_str() != "-" => {
                OutputTarget::File(NamedFile { file: create_file(path)?, path: path.to_owned() })
            }
            _ => OutputTarget::Stdout(io::stdout()),
        };
        Ok(Self::new(target))
    }

    /// Writes to a file that is open.
    pub(crate) fn from_file(file: NamedFile) -> Self {
        Self::new(OutputTarget::File(file))
    }

    fn new(target: OutputTarget) -> Self {
        let is_terminal = matches!(&target, OutputTarget::Stdout(out) if out.is_terminal());
        Self { target, buffer: Vec::with_capacity(2 * WRITE_BYTES), is_terminal }
    }

    /// Returns whether the output may have colours.
    pub(crate) fn is_colourful(&self) -> bool {
        allows_colours(self.is_terminal)
    }

    /// Returns whether people watch the output as it is written.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns the buffer to append to; call [`BufferedOutput::flush_if_full`] after each event.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer if it is full, or at once for a terminal.
    #[inline]
    pub(crate) fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= WRITE_BYTES || (self.is_terminal && !self.buffer.is_empty()) {
            self.flush()?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.write_buffer()?)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        match &mut self.target {
            OutputTarget::Stdout(out) => {
                let mut out = out.lock();
                out.write_all(&self.buffer)?;
                out.flush()?;
            }
            OutputTarget::File(file) => file.write_all(&self.buffer)?,
        }
        self.buffer.clear();
        Ok(())
    }
}

/// Collects data in the buffer, for code that writes to a [`Write`].
impl Write for BufferedOutput {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer()?;
        }
        self.buffer.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()
    }
}
