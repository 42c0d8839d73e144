//! Finds the end of a file that a writer is to continue.
//!
//! ```text
//!   header │ 1 │ 2 │ 3            finalised: EndTime, BuffersWritten 4, flush marker on 3
//!                                 ──▶ the next buffer is 4
//!   header │ 1 │ 2 │ half, zeros  left by a crash: EndTime 0
//!                                 ──▶ the next buffer is 3
//! ```
//!
//! Supports only sequential files of plain buffers, which all have one size, so the end is found
//! without walking the whole file. A finalised file that contradicts its header is rejected;
//! [`repair`](super::super::repair()) fixes such files. This module writes nothing.

use crate::buffer::{BufferHeader, HEADER_SIZE, MIN_BUFFER};
use crate::etl::ReadAt;
use crate::etl::reader::{parse_first_event, read_first_bytes};
use crate::header::system;
use crate::logfile::LogFileHeader;
use crate::spec::session::{EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR};
use crate::time::ClockKind;
use crate::wire::align8;
use crate::{Error, Result};

/// The most buffers inspected for the last whole one, from the end of a file that is not finalised.
const MAX_INSPECTED_BUFFERS: u64 = 1 << 22;
/// Buffers per processor that are inspected for the latest stamp.
const STAMP_BUFFERS_PER_PROCESSOR: u64 = 2;
/// The most buffers that are inspected for the latest stamp.
const MAX_STAMP_BUFFERS: u64 = 4096;

/// Offset of the payload of the first event.
const FIRST_PAYLOAD_OFFSET: usize = HEADER_SIZE + system::SIZE;

/// The end of a file and the properties that it records.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The log-file header of the file.
    pub header: LogFileHeader,
    /// A stamp that no event in the last buffers of the file exceeds.
    pub last_time: i64,
    /// Whether the header has the 64-bit layout.
    pub(super) is_64_bit: bool,
    /// Logger id of the file's buffers.
    pub(super) logger_id: u16,
    /// Number of whole buffers, including the header buffer.
    pub(super) buffers: u32,
    /// Flags of the last whole buffer.
    pub(super) last_flags: u16,
}

fn reject<T>(offset: u64, reason: &'static str) -> Result<T> {
    Err(Error::Invalid { what: "file to be continued", offset, reason })
}

impl Tail {
    /// Finds the end of a file.
    pub fn find<R: ReadAt>(source: &R) -> Result<Self> {
        let first_bytes = read_first_bytes(source)?;
        let first_event = parse_first_event(&first_bytes)?;
        let header = LogFileHeader::parse(&first_event)?;
        if header.log_file_mode & (EVENT_TRACE_COMPRESSED_MODE | EVENT_TRACE_FILE_MODE_CIRCULAR) != 0 {
            return reject(0, "circular or compressed: only a plain sequential log can be continued");
        }
        let size = header.plausible_buffer_size().filter(|size| size.is_multiple_of(MIN_BUFFER));
        let Some(size) = size else { return reject(0, "its buffer size is impossible") };
        let end = FIRST_PAYLOAD_OFFSET.saturating_add(first_event.payload().len());
        if !header.has_modern_buffers() || end > size as usize {
            return reject(0, "its header has an old layout or exceeds its buffer");
        }
        let file = PlainFile { source, size };
        let Some(first_buffer) = file.read_buffer_header(0)? else {
            return reject(0, "the header buffer is incomplete");
        };
        let buffers = file.count_buffers(&header)?;
        let last = file.read_buffer_header(u64::from(buffers).saturating_sub(1))?.unwrap_or(first_buffer);
        if buffers > 1 && !u32::try_from(last.sequence_number).is_ok_and(|number| number < buffers) {
            let reason = "the sequence number of its last buffer is too high";
            return reject(file.buffer_offset(u64::from(buffers)), reason);
        }
        let last_time = file.find_latest_stamp(&header, u64::from(buffers))?;
        let (is_64_bit, logger_id) = (first_event.pointer_size() == 8, last.logger_id.max(1));
        Ok(Self { header, last_time, is_64_bit, logger_id, buffers, last_flags: last.flags })
    }

    /// Returns the number of bytes up to the end of the last whole buffer.
    #[must_use]
    pub fn length(&self) -> u64 {
        u64::from(self.buffers).saturating_mul(u64::from(self.header.buffer_size))
    }

    /// Returns the offset of the last data buffer, if there is one.
    pub(super) fn last_buffer(&self) -> Option<u64> {
        (self.buffers > 1).then(|| self.length().saturating_sub(u64::from(self.header.buffer_size)))
    }
}

/// A file of plain buffers of one size.
struct PlainFile<'r, R> {
    source: &'r R,
    /// Size of a buffer in bytes.
    size: u32,
}

impl<R: ReadAt> PlainFile<'_, R> {
    fn buffer_offset(&self, number: u64) -> u64 {
        number.saturating_mul(u64::from(self.size))
    }

    /// Returns the header of a buffer if the buffer is whole, plain and of the file's buffer size.
    fn read_buffer_header(&self, number: u64) -> Result<Option<BufferHeader>> {
        let mut raw = [0; HEADER_SIZE];
        let is_complete = self.buffer_offset(number.saturating_add(1)) <= self.source.len();
        if !is_complete || self.source.read_at(self.buffer_offset(number), &mut raw)? != HEADER_SIZE {
            return Ok(None);
        }
        let header = BufferHeader::parse(&raw);
        let filled = header.offset as usize;
        let is_valid = header.buffer_size == self.size
            && !header.is_compressed()
            && (HEADER_SIZE..=self.size as usize).contains(&filled)
            && filled == align8(filled);
        Ok(is_valid.then_some(header))
    }

    /// Counts the whole buffers.
    fn count_buffers(&self, header: &LogFileHeader) -> Result<u32> {
        let length = self.source.len();
        let whole = length.checked_div(u64::from(self.size)).unwrap_or(0);
        let contradiction = "it contradicts its header: repair it first";
        if header.end_time.0 != 0 {
            let claimed = u64::from(header.buffers_written);
            if self.buffer_offset(claimed) != length
                || self.read_buffer_header(claimed.saturating_sub(1))?.is_none()
            {
                return reject(0, contradiction);
            }
            return Ok(header.buffers_written);
        }
        // Another process may truncate the file during the search, so even the first buffer may be
        // gone.
        let mut buffers = whole;
        while buffers > 0 && self.read_buffer_header(buffers.saturating_sub(1))?.is_none() {
            buffers = buffers.saturating_sub(1);
            if whole.saturating_sub(buffers) > MAX_INSPECTED_BUFFERS {
                return reject(self.buffer_offset(buffers), contradiction);
            }
        }
        if buffers == 0 {
            return reject(0, contradiction);
        }
        u32::try_from(buffers).or_else(|_| reject(0, "it has too many buffers"))
    }

    /// Returns the latest flush time of the last buffers. If events use system time, the result is
    /// at least the end time of the session.
    fn find_latest_stamp(&self, header: &LogFileHeader, buffers: u64) -> Result<i64> {
        let inspected_buffers = u64::from(header.processors)
            .max(1)
            .saturating_mul(STAMP_BUFFERS_PER_PROCESSOR)
            .min(MAX_STAMP_BUFFERS);
        let mut latest =
            if header.clock_type == ClockKind::SystemTime.number() { header.end_time.0 } else { 0 };
        for number in buffers.saturating_sub(inspected_buffers).max(1)..buffers {
            latest = self.read_buffer_header(number)?.map_or(latest, |buffer| latest.max(buffer.time_stamp));
        }
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etl::{Options, Summary, Trace, WriteAt, Writer, check};
    use crate::header::event::EventHeader;
    use crate::time::FileTime;
    use alloc::vec::Vec;

    const BUFFER_BYTES: usize = 1024;

    fn options() -> Options {
        let times = FileTime(1000);
        Options {
            buffer_size: 1024,
            clock_type: ClockKind::SystemTime.number(),
            anchor: 1000,
            start_time: times,
            boot_time: times,
            logger_id: 9,
            ..Options::default()
        }
    }

    fn encode_record(time: i64) -> Vec<u8> {
        let mut out = Vec::new();
        EventHeader { time, ..EventHeader::default() }.encode(&[7; 8], &mut out).unwrap();
        out
    }

    fn summary(end: i64, events_lost: u32) -> Summary {
        Summary { end_time: FileTime(end), events_lost, buffers_lost: 1 }
    }

    fn write_unfinished_file(buffers: i64) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::create(&mut file, options()).unwrap();
        for index in 0..buffers {
            writer.append(0, 2000 + index, &encode_record(2000 + index)).unwrap();
        }
        file
    }

    fn write_finished_file(buffers: i64) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::create(&mut file, options()).unwrap();
        for index in 0..buffers {
            writer.append(0, 2000 + index, &encode_record(2000 + index)).unwrap();
        }
        writer.finish(summary(3000, 4)).unwrap();
        file
    }

    /// A file that is truncated after a number of reads.
    struct ShrinkingFile {
        bytes: Vec<u8>,
        reads: core::cell::Cell<u32>,
    }

    impl ReadAt for ShrinkingFile {
        fn len(&self) -> u64 {
            if self.reads.get() > 0 { self.bytes.len() as u64 } else { 0 }
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.reads.set(self.reads.get().saturating_sub(1));
            if self.reads.get() > 0 { self.bytes.read_at(offset, buf) } else { Ok(0) }
        }
    }

    #[test]
    fn file_truncated_during_the_search_is_rejected() {
        let bytes = write_unfinished_file(3);
        let find =
            |reads| Tail::find(&ShrinkingFile { bytes: bytes.clone(), reads: core::cell::Cell::new(reads) });
        let enough = (1..100).find(|&reads| find(reads).is_ok()).unwrap();
        for reads in 0..enough {
            assert!(find(reads).is_err(), "cut after {reads} reads");
        }
    }

    fn read_times(file: &[u8]) -> Vec<i64> {
        let trace = Trace::open(file).unwrap();
        check(&trace, &mut |finding| panic!("{finding:?}")).unwrap();
        let mut events = trace.events();
        let mut stamps = Vec::new();
        while let Some(event) = events.next().unwrap() {
            stamps.push(event.time());
        }
        stamps
    }

    #[test]
    fn reopened_file_continues_after_its_last_buffer_and_stays_valid() {
        for (old, new) in [(0, 0), (0, 2), (3, 0), (3, 2)] {
            let mut file = write_finished_file(old);
            let tail = Tail::find(&file).unwrap();
            assert_eq!((tail.length(), tail.last_time), (file.len() as u64, 3000));
            let mut writer = Writer::reopen(&mut file, &tail).unwrap();
            for index in 0..new {
                writer.append(1, 3000 + index, &encode_record(3000 + index)).unwrap();
            }
            assert_eq!(i64::from(writer.buffers_written()), 1 + old + new);
            writer.finish(summary(4000, 11)).unwrap();
            let expected: Vec<i64> =
                [1000].into_iter().chain(2000..2000 + old).chain(3000..3000 + new).collect();
            assert_eq!(read_times(&file), expected, "{old} old and {new} new buffers");
            let trace = Trace::open(file.as_slice()).unwrap();
            let header = trace.header();
            assert_eq!((header.events_lost, header.buffers_lost, header.end_time), (11, 1, FileTime(4000)));
            assert_eq!(header.processors, if new > 0 { 2 } else { 1 });
        }
    }

    #[test]
    fn reopened_file_is_not_finalised() {
        let mut file = write_finished_file(2);
        let tail = Tail::find(&file).unwrap();
        drop(Writer::reopen(&mut file, &tail).unwrap());
        assert!(!Trace::open(file.as_slice()).unwrap().is_finalised());
        assert_eq!(Tail::find(&file).unwrap().length(), tail.length(), "the file cannot be continued again");
    }

    #[test]
    fn unfinished_file_ends_with_its_last_whole_buffer() {
        let original = write_unfinished_file(3);
        for extra in [0, 1, 100, BUFFER_BYTES - 1, BUFFER_BYTES, 5 * BUFFER_BYTES + 7] {
            let mut file = original.clone();
            file.resize(original.len() + extra, 0);
            assert_eq!(Tail::find(&file).unwrap().length(), original.len() as u64, "{extra} zeros");
        }
        for cut in 1..BUFFER_BYTES {
            let file = original[..original.len() - cut].to_vec();
            assert_eq!(Tail::find(&file).unwrap().length(), 3 * BUFFER_BYTES as u64, "{cut} bytes missing");
        }
    }

    #[test]
    fn invalid_or_compressed_file_is_rejected() {
        let file = write_finished_file(3);
        assert!(Tail::find(&Vec::new()).is_err());
        assert!(Tail::find(&b"not a trace at all".repeat(100)).is_err());
        assert!(
            Tail::find(&file[..file.len() - 1].to_vec()).is_err(),
            "a truncated finalised file was accepted"
        );
        let mut longer = file.clone();
        longer.extend_from_slice(&[0; BUFFER_BYTES]);
        assert!(Tail::find(&longer).is_err(), "a finalised file with bytes after its end was accepted");
        let mut packed = Vec::new();
        let compressed = Options { compressed: true, ..options() };
        Writer::create(&mut packed, compressed).unwrap().finish(summary(3000, 0)).unwrap();
        assert!(Tail::find(&packed).is_err());
        // Any damage gives an error or a file that opens.
        for at in (0..file.len()).step_by(7) {
            let mut damaged = file.clone();
            damaged.write_at(at as u64, &[0xFF]).unwrap();
            if let Ok(tail) = Tail::find(&damaged) {
                damaged.truncate(usize::try_from(tail.length()).unwrap());
                Writer::reopen(&mut damaged, &tail).unwrap().finish(summary(4000, 0)).unwrap();
                assert!(Trace::open(damaged).is_ok(), "damage at byte {at}");
            }
        }
    }
}
