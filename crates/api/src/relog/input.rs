//! The properties of an input that the output needs.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};
use traceweir_format::etl::{self, ReadAt};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::time::{Clock, FileTime};
use traceweir_format::wire::align8;

use crate::consumer::Trace;
use crate::error::Result;

/// Maximum number of bytes of the header buffer that are searched for further records.
const MAX_HEADER_BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of records in the header buffer after the log-file header.
const MAX_HEADER_RECORDS: usize = 256;

/// The properties of a trace that an [`Output`](super::Output) needs.
#[derive(Clone, Debug)]
pub struct Input {
    pub(super) header: LogFileHeader,
    pub(super) clock: Clock,
    /// Thread id and process id of the session's starter.
    pub(super) starter: (u32, u32),
    /// The records of the header buffer after the log-file header, without padding.
    pub(super) header_records: Vec<Vec<u8>>,
    /// Union of the loss flags of all buffers.
    pub(super) loss_flags: u16,
    /// Bytes that the largest buffer takes in the file; for a live session, its buffer size.
    pub(super) largest_buffer_bytes: u32,
    /// Number of processors with events, as far as known in advance.
    pub(super) processors: usize,
}

impl Input {
    /// Reads the properties of an opened trace.
    pub fn from_trace(trace: &Trace) -> Result<Self> {
        if let Some(file) = trace.as_file() {
            return Self::from_file(file);
        }
        let header = trace.header().clone();
        let (largest_buffer_bytes, processors) = (header.buffer_size, header.processors as usize);
        let (clock, starter, header_records) = (*trace.clock(), (0, 0), Vec::new());
        Ok(Self { header, clock, starter, header_records, loss_flags: 0, largest_buffer_bytes, processors })
    }

    /// Like [`from_trace`](Self::from_trace), for a file that was opened with `traceweir_format`.
    pub fn from_file<R: ReadAt>(trace: &etl::Trace<R>) -> Result<Self> {
        Ok(Self {
            header: trace.header().clone(),
            clock: *trace.clock(),
            starter: trace.starter(),
            header_records: read_header_records(trace)?,
            loss_flags: trace.loss_flags(),
            // Buffers are sorted by processor.
            processors: trace.buffers().chunk_by(|a, b| a.cpu == b.cpu).count(),
            largest_buffer_bytes: trace.buffers().iter().map(|b| b.size).max().unwrap_or(0),
        })
    }

    pub(super) fn start(&self) -> FileTime {
        self.clock.file_time(self.clock.anchor)
    }
}

/// Returns whether this is the first event of a file or live session, or of a session that was
/// appended to a file.
#[must_use]
pub fn is_log_file_header(record: &Record<'_>) -> bool {
    record.hook() == Some(hook::LOG_FILE_HEADER)
}

/// Returns the records of the first buffer except log-file headers; if the buffer is damaged, the
/// records before the damage.
fn read_header_records<R: ReadAt>(trace: &etl::Trace<R>) -> Result<Vec<Vec<u8>>> {
    let Some(first) = trace.buffers().iter().find(|b| b.offset == 0) else { return Ok(Vec::new()) };
    let mut bytes = vec![0; (first.size as usize).min(MAX_HEADER_BUFFER_BYTES)];
    let length = trace.source().read_at(0, &mut bytes)?;
    bytes.truncate(length);
    let Some(header) = bytes.first_chunk::<HEADER_SIZE>().map(BufferHeader::parse) else {
        return Ok(Vec::new());
    };
    bytes.truncate(header.valid_bytes(length));
    let mut records = Records::new(&bytes, HEADER_SIZE, 0, 0, trace.header().has_short_instance_headers());
    let mut header_records = Vec::new();
    while let Ok(Some(record)) = records.next() {
        if !is_log_file_header(&record) {
            header_records.push(record.bytes().to_vec());
        }
        if header_records.len() > MAX_HEADER_RECORDS {
            // More records than a header has: these are events, and are delivered as events.
            return Ok(Vec::new());
        }
    }
    Ok(header_records)
}

pub(super) fn concatenate_padded(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(record);
        out.resize(align8(out.len()), 0);
    }
    out
}
