//! Remembers the written buffers, to notice that another process truncated or overwrote the file
//! during the recording.
//!
//! ```text
//!   write ──▶ record size and modification time ──▶ …
//!             ──▶ compare before the next write, at a flush, at the stop
//!               shorter             ──▶ the buffers after the end of the file are gone
//!               other size or time  ──▶ at the flush or stop, read and compare the buffer headers
//! ```
//!
//! The time alone proves nothing (a backup tool may set it, a network file system may correct it),
//! so only missing or different buffers are reported. A change within a buffer that leaves its
//! header unchanged is not noticed, nor a change during the few microseconds of a write by the
//! session.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE};
use traceweir_format::spec::session::BufferType;

use crate::storage::{FileState, Storage};

/// The most buffers that are remembered: the entries for 64 GiB of buffers of the default size take
/// 24 MiB. Later buffers are not compared.
const MAX_ENTRIES: usize = 1 << 20;

/// Buffers of the file that differ from what was written, and the events in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overwritten {
    pub(crate) buffers: u32,
    pub(crate) events: u64,
}

/// A buffer at its offset in the file.
#[derive(Clone, Copy, Debug)]
struct LedgerEntry {
    offset: u64,
    events: u32,
    size: u32,
    /// Low 32 bits of the buffer's stamp.
    time: u32,
    is_lost: bool,
}

impl LedgerEntry {
    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.size))
    }

    fn matches_header(&self, header: &BufferHeader) -> bool {
        header.buffer_size == self.size && low_half(header.time_stamp) == self.time
    }
}

/// A buffer that was just written to the file at `offset`.
pub(super) struct WrittenBuffer {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) events: u32,
    pub(super) time: i64,
}

/// The buffers of a file by offset, and the state of the file after the last write.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<LedgerEntry>,
    /// Size of the header buffer; 0 if an earlier session wrote it.
    header_size: u32,
    is_header_lost: bool,
    file_state: Option<FileState>,
    must_compare: bool,
    overwritten: Overwritten,
}

impl Ledger {
    pub(super) fn new(header_size: u32) -> Self {
        Self { header_size, ..Self::default() }
    }

    /// Records a buffer that was written.
    pub(super) fn add(&mut self, written: &WrittenBuffer) {
        let entry = LedgerEntry {
            offset: written.offset,
            events: written.events,
            size: u32::try_from(written.size).unwrap_or(u32::MAX),
            time: low_half(written.time),
            is_lost: false,
        };
        // A circular log overwrites its oldest buffers.
        match self.entries.binary_search_by_key(&entry.offset, |entry| entry.offset) {
            Ok(index) => {
                if let Some(old) = self.entries.get_mut(index) {
                    *old = entry;
                }
            }
            Err(index) if index == self.entries.len() && index < MAX_ENTRIES => self.entries.push(entry),
            // The list is full.
            Err(_) => {}
        }
    }

    /// Records the state of the file after a write by the session.
    pub(super) fn record_state(&mut self, storage: &dyn Storage) {
        self.file_state = storage.state();
    }

    /// Compares the state of the file with the state after the last write.
    pub(super) fn check_state(&mut self, storage: &dyn Storage) {
        let (Some(previous), Some(current)) = (self.file_state, storage.state()) else { return };
        if current.size < previous.size {
            self.mark_lost_after(current.size);
        }
        self.must_compare |= current != previous;
        self.file_state = Some(current);
    }

    /// Inspects the file, and reads its buffer headers if it may have changed.
    pub(super) fn compare(&mut self, storage: &dyn Storage) {
        self.check_state(storage);
        if !std::mem::take(&mut self.must_compare) {
            return;
        }
        let header_size = self.header_size;
        if header_size != 0 && !self.is_header_lost {
            let is_header = |h: BufferHeader| h.buffer_size == header_size && h.kind() == BufferType::HEADER;
            self.is_header_lost = !read_header(storage, 0).is_some_and(is_header);
            self.overwritten.buffers =
                self.overwritten.buffers.saturating_add(u32::from(self.is_header_lost));
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_lost) {
            if !read_header(storage, entry.offset).is_some_and(|h| entry.matches_header(&h)) {
                mark_lost(entry, &mut self.overwritten);
            }
        }
    }

    /// Returns the overwritten buffers found since the last call.
    pub(super) fn take_overwritten(&mut self) -> Overwritten {
        std::mem::take(&mut self.overwritten)
    }

    /// Counts the buffers after `size`, to which another process truncated the file.
    fn mark_lost_after(&mut self, size: u64) {
        if u64::from(self.header_size) > size && !self.is_header_lost {
            self.is_header_lost = true;
            self.overwritten.buffers = self.overwritten.buffers.saturating_add(1);
        }
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_lost && entry.end() > size) {
            mark_lost(entry, &mut self.overwritten);
        }
    }
}

fn mark_lost(entry: &mut LedgerEntry, overwritten: &mut Overwritten) {
    entry.is_lost = true;
    overwritten.buffers = overwritten.buffers.saturating_add(1);
    overwritten.events = overwritten.events.saturating_add(u64::from(entry.events));
}

fn read_header(storage: &dyn Storage, offset: u64) -> Option<BufferHeader> {
    let mut raw = [0; HEADER_SIZE];
    let bytes_read = storage.read_at(&mut raw, offset).ok()?;
    (bytes_read == HEADER_SIZE).then(|| BufferHeader::parse(&raw))
}

/// Returns the low 32 bits of a stamp, of which only equality matters.
const fn low_half(time: i64) -> u32 {
    time.cast_unsigned() as u32
}
