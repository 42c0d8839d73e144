//! The session's properties in a file, and the header buffer that holds them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::buffer::{BufferHeader, FILLER, HEADER_SIZE, MAX_BUFFER, MIN_BUFFER, STATE_FLUSH};
use crate::header::system::SystemHeader;
use crate::kernel::hook;
use crate::logfile::{LogFileHeader, TimeZone};
use crate::spec::session::{
    BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX, BufferType, EVENT_TRACE_COMPRESSED_MODE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL,
};
use crate::time::FileTime;
use crate::wire::align8;
use crate::{Error, Result, header};

/// The size of a compressed file's header buffer is a multiple of this many bytes.
const COMPRESSED_HEADER_STEP: usize = 0x200;

/// The session's properties that the file header records.
#[derive(Clone, Debug)]
pub struct Options {
    /// Buffer size of the session in bytes: a multiple of 1,024 up to 16 MiB.
    pub buffer_size: u32,
    /// Whether buffers are compressed.
    pub compressed: bool,
    /// Log-file mode, without EVENT_TRACE_COMPRESSED_MODE.
    pub log_file_mode: u32,
    /// Logger id in buffer headers; must not be 0.
    pub logger_id: u16,
    /// Name of the session.
    pub session_name: String,
    /// Name of the log file.
    pub file_name: String,
    /// Major and minor version of the OS; at least 6.0, because the buffer layout of 6.0 is
    /// written.
    pub os_version: [u8; 2],
    /// Build number of the OS.
    pub build: u32,
    /// Number of processors of the machine; raised when a buffer of a processor with a higher index
    /// is written.
    pub processors: u32,
    /// Processor speed in MHz; must not be 0.
    pub cpu_speed_mhz: u32,
    /// Clock type: 1 performance counter, 2 system time, 3 CPU cycles.
    pub clock_type: u32,
    /// Ticks per second of the performance counter.
    pub perf_freq: i64,
    /// Raw stamp of the session's start.
    pub anchor: i64,
    /// Wall time of the anchor.
    pub start_time: FileTime,
    /// When the machine started.
    pub boot_time: FileTime,
    /// Ids of the thread and the process that started the session.
    pub starter: (u32, u32),
    /// Size limit recorded in the header, in MB or, depending on the mode, KB; 0 for none.
    pub maximum_file_size: u32,
    /// Pointer size of the machine: 4 or 8.
    pub pointer_size: u32,
    /// Length of a timer tick in units of 100 ns; CPU times are counted in these ticks.
    pub timer_resolution: u32,
    /// The time zone of the machine.
    pub time_zone: TimeZone,
    /// Further records of the header buffer after the log-file header, encoded and padded to eight
    /// bytes.
    pub header_records: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            buffer_size: 0x10000,
            compressed: false,
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            logger_id: 1,
            session_name: String::new(),
            file_name: String::new(),
            os_version: [10, 0],
            build: 19045,
            processors: 1,
            cpu_speed_mhz: 1000,
            clock_type: 1,
            perf_freq: 10_000_000,
            anchor: 0,
            start_time: FileTime(0),
            boot_time: FileTime(0),
            starter: (0, 0),
            maximum_file_size: 0,
            pointer_size: 8,
            timer_resolution: 156_250,
            time_zone: TimeZone::default(),
            header_records: Vec::new(),
        }
    }
}

impl Options {
    /// Returns whether the file has features that readers of layout 1.5 do not expect.
    const fn needs_layout_2(&self) -> bool {
        self.compressed || self.buffer_size > 1 << 20 || self.processors > 256
    }

    /// Rejects values that no session has or that readers cannot handle.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason| Err(Error::Invalid { what: "options", offset: 0, reason });
        let size = self.buffer_size;
        if !size.is_multiple_of(MIN_BUFFER) || !(MIN_BUFFER..=MAX_BUFFER).contains(&size) {
            return invalid("buffer size is not a multiple of 1,024 from 1 KiB to 16 MiB");
        }
        if self.logger_id == 0 {
            return invalid("the logger id is 0");
        }
        if self.os_version[0] < 6 {
            return invalid("the OS version is older than 6.0");
        }
        if self.cpu_speed_mhz == 0 {
            return invalid("the processor speed is 0");
        }
        if self.header_records.len() != align8(self.header_records.len()) {
            return invalid("records for the header buffer are not padded to a multiple of eight bytes");
        }
        Ok(())
    }
}

/// The end time and final counts of a session, written when the file is finalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// When the session ended. Finalising raises it to at least the start time and at least 1.
    pub end_time: FileTime,
    /// Number of lost events.
    pub events_lost: u32,
    /// Number of lost buffers.
    pub buffers_lost: u32,
}

impl Options {
    /// Returns the header buffer of a running session: the start of its file, and the first buffer
    /// that a live consumer gets.
    pub fn header_buffer(&self) -> Result<Vec<u8>> {
        self.check()?;
        self.header_image(&Summary::default(), 0, 0)
    }

    /// Returns the header buffer. `written` is the number of buffers; it is recorded only if
    /// `summary` has an end time. `fixed_size` is the size of the existing header buffer, or 0.
    pub(super) fn header_image(&self, summary: &Summary, written: u32, fixed_size: usize) -> Result<Vec<u8>> {
        let compressed_mode = if self.compressed { EVENT_TRACE_COMPRESSED_MODE } else { 0 };
        let is_finalised = summary.end_time.0 != 0;
        let [major, minor] = self.os_version;
        let layout = if self.needs_layout_2() { [2, 0] } else { [1, 5] };
        let logfile = LogFileHeader {
            buffer_size: self.buffer_size,
            versions: [major, minor, layout[0], layout[1]],
            provider_version: self.build,
            processors: self.processors,
            end_time: summary.end_time,
            timer_resolution: self.timer_resolution,
            maximum_file_size: self.maximum_file_size,
            log_file_mode: self.log_file_mode | compressed_mode,
            buffers_written: if is_finalised { written } else { 0 },
            start_buffers: 1,
            pointer_size: self.pointer_size,
            events_lost: summary.events_lost,
            cpu_speed_mhz: self.cpu_speed_mhz,
            time_zone: self.time_zone.clone(),
            boot_time: self.boot_time,
            perf_freq: self.perf_freq,
            start_time: self.start_time,
            clock_type: self.clock_type,
            buffers_lost: summary.buffers_lost,
            session_name: self.session_name.clone(),
            file_name: self.file_name.clone(),
        };
        let mut image = alloc::vec![0; HEADER_SIZE];
        let (thread_id, process_id) = self.starter;
        let (hook, time) = (hook::LOG_FILE_HEADER, self.anchor);
        let event_header = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook,
            thread_id,
            process_id,
            time,
            cpu_times: Some((0, 0)),
        };
        event_header.encode(&logfile.to_payload(), &mut image)?;
        image.extend_from_slice(&self.header_records);
        let offset = image.len();
        let size = if fixed_size == 0 { self.choose_header_buffer_size(offset)? } else { fixed_size };
        header::patch(&mut image, 0, &self.make_header_buffer_header(offset, size).to_bytes());
        image.resize(size, FILLER);
        Ok(image)
    }

    fn make_header_buffer_header(&self, offset: usize, size: usize) -> BufferHeader {
        let (offset, buffer_size) = (u32::try_from(offset).unwrap_or(0), u32::try_from(size).unwrap_or(0));
        let index_flag = if self.compressed { 0 } else { BUFFER_FLAG_PROC_INDEX };
        BufferHeader {
            buffer_size,
            saved_offset: offset,
            current_offset: offset,
            logger_id: self.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_FLUSH_MARKER | index_flag,
            buffer_type: BufferType::HEADER.0,
            ..BufferHeader::default()
        }
    }

    fn choose_header_buffer_size(&self, needed_bytes: usize) -> Result<usize> {
        let session_size = self.buffer_size as usize;
        if self.compressed {
            return Ok(needed_bytes.next_multiple_of(COMPRESSED_HEADER_STEP));
        }
        if needed_bytes > session_size {
            let (size, limit) = (needed_bytes as u64, session_size as u64);
            return Err(Error::TooLarge { what: "header buffer", size, limit });
        }
        Ok(session_size)
    }
}
