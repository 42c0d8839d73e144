//! Where data goes: standard output or a file, in large pieces.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes gathered before they are written.
const PIECE: usize = 256 << 10;

/// Data output. Words for people go to standard error instead.
pub(crate) struct Output {
    sink: Sink,
    buffer: Vec<u8>,
    /// Whether a person looks on; asked once, for it takes a system call.
    interactive: bool,
}

enum Sink {
    Stdout(io::Stdout),
    File(File),
}

impl Output {
    /// Standard output, also by the name `-`, or a new file.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let sink = match path {
            Some(path) if path.as_os_str() != "-" => {
                let file = traceweir::output::create(path, false);
                Sink::File(file.context("cannot write")?)
            }
            _ => Sink::Stdout(io::stdout()),
        };
        let interactive = matches!(&sink, Sink::Stdout(out) if out.is_terminal());
        Ok(Self { sink, buffer: Vec::with_capacity(2 * PIECE), interactive })
    }

    /// Whether a person is looking, and wants colours.
    pub(crate) fn is_colourful(&self) -> bool {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        self.interactive && wanted && !dumb
    }

    /// Where the next piece is gathered; call [`Output::settle`] after each event.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the gathered bytes once there are enough; at once for a terminal.
    #[inline]
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.buffer.len() >= PIECE || (self.interactive && !self.buffer.is_empty()) {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left.
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
