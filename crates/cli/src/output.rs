//! Writes data to standard output or a file, in large pieces.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Number of bytes that are collected before they are written.
const PIECE: usize = 256 << 10;

/// The output for data. Messages for people go to standard error instead.
pub(crate) struct Output {
    sink: Sink,
    buffer: Vec<u8>,
    /// Whether the output is a terminal; queried once, because it takes a system call.
    is_terminal: bool,
}

enum Sink {
    Stdout(io::Stdout),
    File(File),
}

impl Output {
    /// Opens standard output (also by the name `-`), or a new file.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let sink = match path {
            Some(path) if path.as_os_str() != "-" => {
                let file = traceweir::output::create(path, false);
                Sink::File(file.context("cannot write")?)
            }
            _ => Sink::Stdout(io::stdout()),
        };
        let is_terminal = matches!(&sink, Sink::Stdout(out) if out.is_terminal());
        Ok(Self { sink, buffer: Vec::with_capacity(2 * PIECE), is_terminal })
    }

    /// Returns whether output goes to a terminal, with colours.
    pub(crate) fn is_colourful(&self) -> bool {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        self.is_terminal && wanted && !dumb
    }

    /// Returns the buffer to append to; call [`Output::flush_if_full`] after each event.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer if it is full, or at once for a terminal.
    #[inline]
    pub(crate) fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= PIECE || (self.is_terminal && !self.buffer.is_empty()) {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the rest of the buffer.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Stdout(out) => {
                let mut out = out.lock();
                out.write_all(&self.buffer)?;
                out.flush()?;
            }
            Sink::File(file) => file.write_all(&self.buffer)?,
        }
        self.buffer.clear();
        Ok(())
    }
}
