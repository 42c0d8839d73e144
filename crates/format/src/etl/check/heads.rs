//! The rules for the log-file header and for buffer headers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Checker, Rule};
use crate::buffer::{self, BufferHeader, HEADER_SIZE, STATE_FLUSH};
use crate::etl::{BufferRef, ReadAt};
use crate::spec::session::{
    BUFFER_FLAG_FLUSH_MARKER, BufferType, EVENT_TRACE_COMPRESSED_MODE, KNOWN_BUFFER_FLAGS,
};
use crate::text::until_nul16;
use crate::wire::u32_at;
use crate::{Result, logfile};

/// State of the rules that compare several buffers.
#[derive(Default)]
struct SequenceCheck {
    /// The number of sessions so far: an appended session counts its buffers from the start again.
    session: u32,
    /// Session, sequence number and offset of each buffer.
    sequences: Vec<(u32, i64, u64)>,
    /// The logger id of the session's first data buffer.
    logger_id: Option<u16>,
    has_reported_logger_id: bool,
    has_reported_compression: bool,
}

/// Returns whether `Offset` is a value that no buffer can have, or exceeds this buffer.
pub(super) fn has_bad_offset(header: &BufferHeader, buffer: &BufferRef) -> bool {
    let exceeds_buffer =
        !buffer.is_compressed && header.offset > header.with_minimum_size(buffer.size).buffer_size;
    (header.offset as usize) < HEADER_SIZE || !header.offset.is_multiple_of(8) || exceeds_buffer
}

impl<R: ReadAt> Checker<'_, R> {
    pub(super) fn check_log_file_header(&mut self) -> Result<()> {
        let header = self.trace.header();
        if !self.trace.is_finalised() {
            let detail = "EndTime is 0: the session never finalised the file, or it is still being written";
            self.report_header_finding(Rule::NotFinalised, logfile::at::END_TIME, detail.to_string());
        }
        let actual = self.trace.buffers().len() as u64;
        let claimed = u64::from(header.buffers_written);
        // A wrapped circular log has fewer buffers than were ever written.
        let may_have_fewer = self.is_circular() && claimed > actual && self.trace.missing_buffers().is_none();
        if claimed != actual && !may_have_fewer {
            let detail = format!("BuffersWritten is {claimed}, the file has {actual} buffers");
            self.report_header_finding(Rule::BuffersWritten, logfile::at::BUFFERS_WRITTEN, detail);
        }
        if header.end_time.0 != 0 && header.end_time < header.start_time {
            let detail =
                format!("the session ends ({}) before it starts ({})", header.end_time, header.start_time);
            self.report_header_finding(Rule::HeaderTimes, logfile::at::END_TIME, detail);
        }
        if header.boot_time > header.start_time {
            let detail = format!(
                "the machine boots ({}) after the session starts ({})",
                header.boot_time, header.start_time
            );
            self.report_header_finding(Rule::HeaderTimes, logfile::at::BOOT_TIME, detail);
        }
        self.check_clock_type();
        if header.plausible_buffer_size().is_none() {
            let detail = format!("session buffer size is {}", header.buffer_size);
            self.report_header_finding(Rule::SessionBufferSize, logfile::at::BUFFER_SIZE, detail);
        }
        self.check_pointer_size_and_names()
    }

    fn report_header_finding(&mut self, rule: Rule, field: usize, detail: String) {
        self.report_finding(rule, self.trace.header_offset(field), detail);
    }

    fn check_clock_type(&mut self) {
        let header = self.trace.header();
        if !header.has_rated_clock() {
            let (kind, frequency, speed) = (header.clock_type, header.perf_freq, header.cpu_speed_mhz);
            let detail = format!(
                "clock type {kind} has no rate: the performance counter has {frequency} Hz, the processor {speed} MHz"
            );
            self.report_header_finding(Rule::ClockType, logfile::at::CLOCK_TYPE, detail);
        }
    }

    /// Checks raw values that parsing corrects: the pointer size, and names without a NUL.
    fn check_pointer_size_and_names(&mut self) -> Result<()> {
        let (payload, names_offset) = self.trace.read_header_payload()?;
        let pointer_size = u32_at(&payload, logfile::at::POINTER_SIZE);
        if !matches!(pointer_size, 4 | 8) {
            let detail = format!("pointer size is {pointer_size}");
            self.report_header_finding(Rule::LogFileHeader, logfile::at::POINTER_SIZE, detail);
        }
        let mut start = names_offset;
        for name_kind in ["session", "file"] {
            let remaining = payload.get(start..).unwrap_or_default();
            let name_bytes = until_nul16(remaining).len().saturating_add(2);
            if name_bytes > remaining.len() {
                let at = logfile::at::PAYLOAD_IN_FILE.saturating_add(start as u64);
                self.report_finding(Rule::LogFileHeader, at, format!("the {name_kind} name has no NUL"));
                break;
            }
            start = start.saturating_add(name_bytes);
        }
        Ok(())
    }

    /// Checks the headers of buffers, which are in file order.
    pub(super) fn check_buffer_headers(&mut self, buffers: &[(BufferRef, BufferHeader)]) {
        let is_modern = self.trace.header().has_modern_buffers();
        let mut state =
            SequenceCheck { sequences: Vec::with_capacity(buffers.len()), ..SequenceCheck::default() };
        for (index, (buffer, header)) in buffers.iter().enumerate() {
            self.check_buffer_offset(header, buffer);
            self.check_processor(buffer);
            if !is_modern {
                continue;
            }
            self.check_buffer_state(header, buffer.offset);
            self.check_buffer_kind(header, buffer);
            self.check_compression(header, buffer, &mut state);
            let next = buffers.get(index.saturating_add(1)).map(|(_, next)| next.kind());
            self.check_flush_marker(header, buffer.offset, next);
            self.check_logger_id(header, buffer.offset, &mut state);
            state.sequences.push((state.session, header.sequence_number, buffer.offset));
        }
        self.check_sequence_numbers(state.sequences);
    }

    fn report_buffer_finding(&mut self, rule: Rule, at: u64, field: usize, detail: String) {
        self.report_finding(rule, at.saturating_add(field as u64), detail);
    }

    fn check_buffer_offset(&mut self, header: &BufferHeader, buffer: &BufferRef) {
        if has_bad_offset(header, buffer) {
            let detail =
                format!("Offset {:#x} in a buffer of {:#x} bytes", header.offset, header.buffer_size);
            self.report_buffer_finding(Rule::BufferOffset, buffer.offset, buffer::at::OFFSET, detail);
        }
    }

    /// Checks the processor index, only in finalised files: writers may learn the number of
    /// processors late.
    fn check_processor(&mut self, buffer: &BufferRef) {
        let processors = self.trace.header().processors;
        if self.trace.is_finalised() && processors != 0 && u32::from(buffer.cpu) >= processors {
            let detail = format!("processor index {} in a file of {processors} processors", buffer.cpu);
            self.report_buffer_finding(Rule::Processor, buffer.offset, buffer::at::PROCESSOR_INDEX, detail);
        }
    }

    fn check_buffer_state(&mut self, header: &BufferHeader, at: u64) {
        if header.state != STATE_FLUSH {
            let detail = format!("state {}", header.state);
            self.report_buffer_finding(Rule::BufferState, at, buffer::at::STATE, detail);
        }
    }

    fn check_buffer_kind(&mut self, header: &BufferHeader, buffer: &BufferRef) {
        let at = buffer.offset;
        // Only the first buffer, the header buffer, is read as plain although it has the flag.
        if header.is_compressed() && !buffer.is_compressed {
            let detail = "the header buffer is marked as compressed".to_string();
            self.report_buffer_finding(Rule::BufferKind, at, buffer::at::FLAGS, detail);
        }
        if header.flags & !KNOWN_BUFFER_FLAGS != 0 {
            let detail = format!("unknown flags {:#06x}", header.flags);
            self.report_buffer_finding(Rule::BufferKind, at, buffer::at::FLAGS, detail);
        }
        if header.buffer_type > BufferType::DBG_INFO.0 {
            let detail = format!("unknown type {}", header.buffer_type);
            self.report_buffer_finding(Rule::BufferKind, at, buffer::at::TYPE, detail);
        }
        if at == 0 && header.kind() != BufferType::HEADER {
            let detail = format!("the first buffer has type {}", header.buffer_type);
            self.report_buffer_finding(Rule::FirstBuffer, at, buffer::at::TYPE, detail);
        }
    }

    fn check_compression(&mut self, header: &BufferHeader, buffer: &BufferRef, state: &mut SequenceCheck) {
        if !buffer.is_compressed {
            return;
        }
        let is_announced = self.trace.header().log_file_mode & EVENT_TRACE_COMPRESSED_MODE != 0;
        if !is_announced && !state.has_reported_compression {
            state.has_reported_compression = true;
            let detail = "a compressed buffer, which the log-file mode does not announce".to_string();
            self.report_buffer_finding(Rule::Compression, buffer.offset, buffer::at::FLAGS, detail);
        }
        if header.buffer_size > header.offset {
            let (packed, unpacked) = (header.buffer_size, header.offset);
            let detail = format!("{packed:#x} bytes compressed, {unpacked:#x} unpacked");
            self.report_buffer_finding(Rule::Compression, buffer.offset, buffer::at::BUFFER_SIZE, detail);
        }
    }

    /// Checks that the last buffer of the file has the flush marker and that, of the other data
    /// buffers, only those before another session's header buffer have it.
    fn check_flush_marker(&mut self, header: &BufferHeader, at: u64, next: Option<BufferType>) {
        let is_marked = header.flags & BUFFER_FLAG_FLUSH_MARKER != 0;
        let is_last = next.is_none();
        let is_header = at == 0 || header.kind() == BufferType::HEADER;
        let may_be_marked = is_last || is_header || next == Some(BufferType::HEADER);
        let is_correct = if is_marked { may_be_marked } else { !is_last };
        if !self.trace.is_finalised() || self.is_circular() || is_correct {
            return;
        }
        let subject = if is_marked { "a buffer in the middle of the file" } else { "the last buffer" };
        let detail = format!("{subject} {} the flush marker", if is_marked { "has" } else { "lacks" });
        self.report_buffer_finding(Rule::FlushMarker, at, buffer::at::FLAGS, detail);
    }

    /// Checks the logger id and counts the sessions. Each session has one logger id.
    fn check_logger_id(&mut self, header: &BufferHeader, at: u64, state: &mut SequenceCheck) {
        if at == 0 || header.kind() == BufferType::HEADER {
            state.session = state.session.saturating_add(1);
            state.logger_id = None;
            return;
        }
        let expected = *state.logger_id.get_or_insert(header.logger_id);
        if header.logger_id != expected && !state.has_reported_logger_id {
            state.has_reported_logger_id = true;
            let detail = format!("logger id {} after {expected}", header.logger_id);
            self.report_buffer_finding(Rule::LoggerId, at, buffer::at::LOGGER_ID, detail);
        }
    }

    fn check_sequence_numbers(&mut self, mut sequences: Vec<(u32, i64, u64)>) {
        sequences.sort_unstable();
        for pair in sequences.windows(2) {
            if let [(earlier_session, earlier_number, _), (session, number, offset)] = pair
                && (earlier_session, earlier_number) == (session, number)
            {
                let detail = format!("sequence number {number} again");
                self.report_buffer_finding(
                    Rule::SequenceNumber,
                    *offset,
                    buffer::at::SEQUENCE_NUMBER,
                    detail,
                );
            }
        }
    }
}
