//! Notes that other parts of weir print to standard error. They would destroy the screen, so a pipe
//! takes them: the screen shows the last one, and all are printed at the end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::dup;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{dup2_stderr, stderr};

use crate::text::escape_lines;

/// The most bytes that are kept, and that are read at once.
const MAX_BYTES: usize = 64 << 10;

/// Redirects standard error until this value is dropped.
pub(super) struct NoteCapture {
    original: OwnedFd,
    pipe: File,
    /// The text so far.
    text: VecDeque<u8>,
}

impl NoteCapture {
    pub(super) fn start() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only the reader must not wait: a writer does, rather than lose its text.
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        let original = dup(stderr())?;
        rustix::io::fcntl_setfd(&original, rustix::io::FdFlags::CLOEXEC)?;
        dup2_stderr(&writer)?;
        Ok(Self { original, pipe: reader.into(), text: VecDeque::new() })
    }

    /// Returns standard error as it was.
    pub(super) fn original(&self) -> io::Result<OwnedFd> {
        Ok(dup(&self.original)?)
    }

    /// Reads new notes. Returns the last line, if there is one.
    pub(super) fn poll(&mut self) -> Option<String> {
        let mut bytes = vec![0; MAX_BYTES];
        let length = self.pipe.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        self.text.extend(&bytes);
        let excess = self.text.len().saturating_sub(MAX_BYTES);
        self.text.drain(..excess);
        let text = String::from_utf8_lossy(&bytes);
        // Colours of the notes would be text here.
        let plain = anstream::adapter::strip_str(&text).to_string();
        plain.lines().rfind(|line| !line.trim().is_empty()).map(escape_lines)
    }
}

impl Drop for NoteCapture {
    fn drop(&mut self) {
        let _ = dup2_stderr(&self.original);
        while self.poll().is_some() {}
        let (front, back) = self.text.as_slices();
        // There is no other place to report an error to.
        let _ = io::stderr().write_all(front).and_then(|()| io::stderr().write_all(back));
    }
}
