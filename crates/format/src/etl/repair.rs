//! Finalises a file that a crash left behind.
//!
//! ```text
//!   header buffer │ buffer │ buffer │ half a buffer │ zeros        EndTime 0, BuffersWritten 0
//!        ▼             ▼        ▼          ▼            ▼
//!   header buffer │ buffer │ buffer │ its whole records            EndTime = last event, BuffersWritten exact
//! ```
//!
//! Whole buffers are copied as they are. A buffer cut short keeps the records that are whole, in a plain buffer of the
//! session's size. The header keeps everything but the fields that finalising sets; a number of processors that is
//! too low for the buffers, as a writer leaves one that learns of processors as it goes, is raised.

use alloc::vec::Vec;

use super::load::Loader;
use super::reader::Trace;
use super::writer::set_flush_marker;
use super::{BufferRef, ReadAt, WriteAt};
use crate::buffer::{BufferHeader, FILLER, HEADER_SIZE};
use crate::header::{self, patch};
use crate::logfile::at;
use crate::spec::session::BUFFER_FLAG_COMPRESSED;
use crate::time::FileTime;
use crate::wire::align8;
use crate::{Error, Result};

/// What was done to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Buffers in the new file, the header buffer included.
    pub buffers: u32,
    /// Buffers of which only some records were whole.
    pub salvaged: u32,
    /// Buffers left out because nothing in them could be read.
    pub dropped: u32,
    /// Events in the new file.
    pub events: u64,
    /// When the last event was written, now the end of the session.
    pub end_time: FileTime,
    /// Bytes of the new file.
    pub bytes: u64,
}

/// Writes a finalised copy of `trace` to `sink`.
pub fn repair<R: ReadAt, W: WriteAt>(trace: &Trace<R>, mut sink: W) -> Result<Repair> {
    let mut in_file_order: Vec<&BufferRef> = trace.buffers().iter().collect();
    in_file_order.sort_by_key(|b| b.offset);
    let mut done = Repair::default();
    let mut loader = Loader::default();
    let mut image = Vec::new();
    let mut copied = Copied { last: None, latest: trace.clock().anchor, highest_cpu: 0 };
    for buffer in in_file_order {
        let (loaded, damage) = loader.load(trace.source(), buffer, trace.session_buffer_size())?;
        let mut found = whole_records(&loaded.bytes, loaded.start, trace.old_instances());
        image.resize(buffer.size as usize, 0);
        let got = trace.source().read_at(buffer.offset, &mut image)?;
        image.truncate(got);
        let Some(mut head) = image.first_chunk().map(BufferHeader::parse) else { continue };
        let intact = damage.is_none() && found.clean && is_sound(trace, &head, buffer, got);
        if !intact {
            if found.records == 0 && buffer.offset != 0 {
                done.dropped = done.dropped.saturating_add(1);
                loader.recycle(loaded);
                continue;
            }
            // The padding of the last record may be cut off.
            let end = found.end.min(loaded.bytes.len());
            let whole = loaded.bytes.get(loaded.start..end).unwrap_or_default();
            // A file is none without its log-file header, even if the header buffer ends before that does.
            let first = if found.records == 0 { trace.first_record()? } else { Vec::new() };
            rebuild(trace, &mut head, if first.is_empty() { whole } else { &first }, &mut image);
            found.records = found.records.max(u64::from(!first.is_empty()));
            done.salvaged = done.salvaged.saturating_add(1);
        }
        sink.write_at(done.bytes, &image)?;
        copied.last = Some((done.bytes, head.flags));
        copied.latest = copied.latest.max(found.last_time.unwrap_or(copied.latest));
        copied.highest_cpu = copied.highest_cpu.max(buffer.cpu);
        done.bytes = done.bytes.saturating_add(image.len() as u64);
        done.buffers = done.buffers.saturating_add(1);
        done.events = done.events.saturating_add(found.records);
        loader.recycle(loaded);
    }
    if done.buffers == 0 {
        return Err(Error::NotAnEtl { offset: 0, why: "not even the header buffer is whole" });
    }
    finalise(trace, &mut sink, &copied, &mut done)?;
    Ok(done)
}

/// What the copied buffers tell about the fields that finalising sets.
struct Copied {
    /// Place and flags of the last buffer.
    last: Option<(u64, u16)>,
    /// The latest stamp.
    latest: i64,
    highest_cpu: u16,
}

fn finalise<R: ReadAt, W: WriteAt>(
    trace: &Trace<R>,
    sink: &mut W,
    copied: &Copied,
    done: &mut Repair,
) -> Result<()> {
    if let Some((buffer, flags)) = copied.last.filter(|_| trace.header().has_modern_buffers()) {
        set_flush_marker(sink, buffer, flags)?;
    }
    // An end of 0 would be no end at all.
    let end_time = || trace.clock().file_time(copied.latest).max(trace.header().start_time).max(FileTime(1));
    done.end_time = if trace.is_finalised() { trace.header().end_time } else { end_time() };
    sink.write_at(trace.header_offset(at::END_TIME), &done.end_time.0.to_le_bytes())?;
    sink.write_at(trace.header_offset(at::BUFFERS_WRITTEN), &done.buffers.to_le_bytes())?;
    let (said, needed) = (trace.header().processors, u32::from(copied.highest_cpu).saturating_add(1));
    if said != 0 && said < needed {
        sink.write_at(trace.header_offset(at::PROCESSORS), &needed.to_le_bytes())?;
    }
    Ok(())
}

/// Whether size, offset and compression of a buffer can stay as they are.
fn is_sound<R: ReadAt>(trace: &Trace<R>, head: &BufferHeader, buffer: &BufferRef, size: usize) -> bool {
    let offset = head.offset as usize;
    head.buffer_size as usize == size
        && (head.is_compressed() == buffer.compressed || !trace.header().has_modern_buffers())
        && offset >= HEADER_SIZE
        && offset == align8(offset)
        && (buffer.compressed || offset <= size)
}

struct Found {
    records: u64,
    end: usize,
    last_time: Option<i64>,
    clean: bool,
}

fn whole_records(bytes: &[u8], start: usize, old_instances: bool) -> Found {
    let mut found = Found { records: 0, end: start, last_time: None, clean: true };
    loop {
        let rest = bytes.get(found.end..).unwrap_or_default();
        match header::measure(rest, 0, old_instances) {
            Ok(Some(m)) => {
                found.last_time = header::time_of(rest, m.family).max(found.last_time);
                found.records = found.records.saturating_add(1);
                found.end = found.end.saturating_add(align8(m.size));
            }
            Ok(None) => return found,
            Err(_) => {
                found.clean = false;
                return found;
            }
        }
    }
}

/// Puts the whole records of a damaged buffer into a plain one.
fn rebuild<R: ReadAt>(trace: &Trace<R>, head: &mut BufferHeader, records: &[u8], image: &mut Vec<u8>) {
    let valid = HEADER_SIZE.saturating_add(align8(records.len()));
    let size = if trace.is_compressed() { valid } else { valid.max(trace.session_buffer_size() as usize) };
    head.flags &= !BUFFER_FLAG_COMPRESSED;
    head.offset = u32::try_from(valid).unwrap_or(u32::MAX);
    head.saved_offset = head.offset;
    head.current_offset = head.offset;
    head.buffer_size = u32::try_from(size).unwrap_or(u32::MAX);
    image.clear();
    image.resize(HEADER_SIZE, 0);
    image.extend_from_slice(records);
    image.resize(valid, 0);
    image.resize(size, FILLER);
    patch(image, 0, &head.to_bytes());
}
