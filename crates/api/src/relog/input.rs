//! What the output has to know of an input.

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};
use traceweir_format::etl::{self, ReadAt};
use traceweir_format::header::Record;
use traceweir_format::logfile::{self, LogFileHeader};
use traceweir_format::time::{Clock, FileTime};
use traceweir_format::wire::align8;

use crate::consumer::Trace;
use crate::error::Result;

/// The largest header buffer that is looked at for further records, and how many are kept in front.
const MAX_FRONT: usize = 1 << 20;
const MAX_FRONT_RECORDS: usize = 256;

/// What a trace says about itself, for an [`Output`](super::Output).
#[derive(Clone, Debug)]
pub struct Input {
    pub(super) header: LogFileHeader,
    pub(super) clock: Clock,
    pub(super) starter: (u32, u32),
    /// The records of the header buffer behind the log-file header, each as its bytes are, without padding.
    pub(super) front: Vec<Vec<u8>>,
    /// Flags of loss that any buffer has.
    pub(super) loss_flags: u16,
    /// The largest plain buffer in the file.
    pub(super) largest: u32,
    /// Processors that have events, as far as is known before they come.
    pub(super) processors: usize,
}

impl Input {
    /// Of an opened trace.
    pub fn of(trace: &Trace) -> Result<Self> {
        if let Some(file) = trace.as_file() {
            return Self::of_file(file);
        }
        let header = trace.header().clone();
        let (largest, processors) = (header.buffer_size, header.processors as usize);
        let (clock, starter, front) = (*trace.clock(), (0, 0), Vec::new());
        Ok(Self { header, clock, starter, front, loss_flags: 0, largest, processors })
    }

    /// Of a file that is read by other means.
    pub fn of_file<R: ReadAt>(trace: &etl::Trace<R>) -> Result<Self> {
        Ok(Self {
            header: trace.header().clone(),
            clock: *trace.clock(),
            starter: trace.starter(),
            front: front_of(trace)?,
            loss_flags: trace.loss_flags(),
            // Buffers are sorted by processor.
            processors: trace.buffers().chunk_by(|a, b| a.cpu == b.cpu).count(),
            largest: trace.buffers().iter().map(|b| b.size).max().unwrap_or(0),
        })
    }

    /// Wall time of the start.
    pub(super) fn start(&self) -> FileTime {
        self.clock.file_time(self.clock.anchor)
    }
}

/// Whether this is the first event of a file or live session, or of a session that was appended to a file.
#[must_use]
pub fn is_log_file_header(record: &Record<'_>) -> bool {
    record.hook() == Some(logfile::HOOK)
}

/// The records of the first buffer that are no log-file header. Where it is damaged, those before the damage.
fn front_of<R: ReadAt>(trace: &etl::Trace<R>) -> Result<Vec<Vec<u8>>> {
    let Some(first) = trace.buffers().iter().find(|b| b.offset == 0) else { return Ok(Vec::new()) };
    let mut bytes = vec![0; (first.size as usize).min(MAX_FRONT)];
    let got = trace.source().read_at(0, &mut bytes)?;
    bytes.truncate(got);
    let Some(head) = bytes.first_chunk::<HEADER_SIZE>().map(BufferHeader::parse) else {
        return Ok(Vec::new());
    };
    bytes.truncate(head.valid_bytes(got));
    let mut records = Records::new(&bytes, HEADER_SIZE, 0, 0, trace.header().has_old_instances());
    let mut front = Vec::new();
    while let Ok(Some(record)) = records.next() {
        if !is_log_file_header(&record) {
            front.push(record.bytes().to_vec());
        }
        if front.len() > MAX_FRONT_RECORDS {
            // Whoever fills a header buffer like this means events, which come as such.
            return Ok(Vec::new());
        }
    }
    Ok(front)
}

/// Appends the records, padded.
pub(super) fn padded(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(record);
        out.resize(align8(out.len()), 0);
    }
    out
}
