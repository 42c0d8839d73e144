//! The header of the output.
//!
//! ```text
//!   one input    its own header
//!   several      that of the input that starts first, except for names, end and losses
//!   start        unchanged; a cut moves it later by whole seconds, but not past the first kept
//!                event; an injected event before it moves it earlier
//! ```
//!
//! No kept event comes before the start unless it did so in its input. So the log-file header is
//! the first event in time order, as in the inputs.

use traceweir_format::etl::Options;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_RELOG_MODE};
use traceweir_format::time::{Clock, ClockKind, FileTime, UNITS_PER_SECOND};

use super::Settings;
use super::input::Input;

/// Maximum default buffer size: all readers accept it.
const MAX_DEFAULT_BUFFER_BYTES: u32 = 1 << 20;
/// Memory for the buffers of all processors.
const BUFFER_MEMORY_BYTES: usize = 256 << 20;
/// The buffer size that is always allowed: any record fits into such a buffer, and 2,048 of them
/// fit into the memory.
const MIN_SHARE_BYTES: usize = 128 << 10;
/// Maximum length of a name in the header, in characters.
const MAX_NAME_CHARS: usize = 1024;

/// Returns whether two clocks give each stamp the same wall time.
pub(super) fn clocks_agree(a: &Clock, b: &Clock) -> bool {
    let is_same_kind = a.kind == b.kind && a.rate == b.rate;
    is_same_kind && (a.kind == ClockKind::SystemTime || b.file_time(a.anchor) == a.start)
}

/// The earliest times of the output's events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarliestTimes {
    /// The earliest wanted time.
    from: Option<FileTime>,
    earliest: i64,
    earliest_injected: i64,
}

impl EarliestTimes {
    /// Starts with the times of the header buffer's records.
    pub(super) fn new(from: Option<FileTime>, header_records: &[Vec<u8>]) -> Self {
        let times = header_records.iter().filter_map(|bytes| Some(Record::parse(bytes, 0).ok()?.time()));
        Self { from, earliest: times.min().unwrap_or(i64::MAX), earliest_injected: i64::MAX }
    }

    #[inline]
    pub(super) fn note_event(&mut self, time: i64) {
        self.earliest = self.earliest.min(time);
    }

    pub(super) fn note_injected(&mut self, time: i64) {
        self.earliest_injected = self.earliest_injected.min(time);
    }

    /// Returns the clock with the start for the header: moved by whole seconds, which every clock
    /// counts without a remainder.
    pub(super) fn start_clock(&self, clock: &Clock) -> Clock {
        let seconds_since_start =
            |time: FileTime| time.0.saturating_sub(clock.start.0).div_euclid(UNITS_PER_SECOND);
        let seconds_of_stamp =
            |raw: i64| if raw == i64::MAX { i64::MAX } else { seconds_since_start(clock.file_time(raw)) };
        let cut_seconds = self.from.map_or(0, seconds_since_start).max(0);
        let moved_seconds = cut_seconds
            .min(seconds_of_stamp(self.earliest).max(0))
            .min(seconds_of_stamp(self.earliest_injected));
        let ticks = i128::from(moved_seconds).saturating_mul(i128::from(clock.rate));
        let anchor = i64::try_from(ticks).ok().and_then(|ticks| clock.anchor.checked_add(ticks));
        let start =
            moved_seconds.checked_mul(UNITS_PER_SECOND).and_then(|units| clock.start.0.checked_add(units));
        match (anchor, start) {
            (Some(anchor), Some(start)) if start > 0 => Clock { anchor, start: FileTime(start), ..*clock },
            _ => *clock,
        }
    }
}

/// Returns whether a record names the system of its trace.
pub(super) fn is_system_name(record: &Record<'_>) -> bool {
    record.hook() == Some(hook::BUILD_INFO)
}

/// Returns whether two inputs were recorded on one machine without a restart in between.
pub(super) fn are_of_one_machine(a: &Input, b: &Input) -> bool {
    let machine_key = |input: &Input| {
        let header = &input.header;
        let [major, minor, ..] = header.versions;
        (major, minor, header.provider_version, header.processors, header.cpu_speed_mhz, header.boot_time)
    };
    machine_key(a) == machine_key(b)
}

/// Returns the latest end of the inputs; `None` if an input has no end, or if `settings.to` is set.
/// Then the last written event determines the end.
pub(super) fn inputs_end(inputs: &[Input], settings: &Settings) -> Option<FileTime> {
    if settings.to.is_some() || inputs.iter().any(|input| input.header.end_time.0 == 0) {
        return None;
    }
    inputs.iter().map(|input| input.header.end_time).max()
}

/// Returns the writer options, from the first input and the settings.
pub(super) fn writer_options(inputs: &[Input], first: &Input, settings: &Settings) -> Options {
    let (header, clock) = (&first.header, &first.clock);
    let (session_name, file_name) = match inputs {
        [_] => (header.session_name.as_str(), header.file_name.as_str()),
        _ => ("Relogger", "[multiple files]"),
    };
    let shorten = |text: &str| text.chars().take(MAX_NAME_CHARS).collect();
    let megahertz = u32::try_from(clock.rate / 1_000_000).unwrap_or(u32::MAX);
    let [major, minor, ..] = header.versions;
    Options {
        buffer_size: settings.buffer_size.unwrap_or_else(|| buffer_size(inputs)),
        compressed: settings.compressed,
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_RELOG_MODE,
        session_name: shorten(session_name),
        file_name: shorten(file_name),
        // Systems older than version 6 do not have the format of the written buffers.
        os_version: if major >= 6 { [major, minor] } else { [6, 0] },
        build: header.provider_version,
        // The writer raises this if an event has a higher processor number.
        processors: header.processors.clamp(1, 2048),
        cpu_speed_mhz: if clock.kind == ClockKind::CpuCycles { megahertz } else { header.cpu_speed_mhz }
            .max(1),
        clock_type: match clock.kind {
            ClockKind::Qpc => 1,
            ClockKind::SystemTime => 2,
            ClockKind::CpuCycles => 3,
        },
        perf_freq: match clock.kind {
            ClockKind::Qpc => i64::try_from(clock.rate).unwrap_or(i64::MAX),
            _ => header.perf_freq,
        },
        anchor: clock.anchor,
        start_time: clock.start,
        boot_time: header.boot_time.min(clock.start),
        starter: first.starter,
        pointer_size: header.pointer_size,
        timer_resolution: header.timer_resolution,
        time_zone: header.time_zone.clone(),
        ..Options::default()
    }
}

/// Returns a size that fits all records of the inputs: that of their largest buffers, at most the
/// default limit and one processor's share of the buffer memory.
fn buffer_size(inputs: &[Input]) -> u32 {
    let size =
        |input: &Input| input.header.plausible_buffer_size().unwrap_or(0).max(input.largest_buffer_bytes);
    let largest = inputs.iter().map(size).max().unwrap_or(0);
    let processors = inputs.iter().map(|input| input.processors).fold(1, usize::saturating_add);
    let share = u32::try_from((BUFFER_MEMORY_BYTES / processors).max(MIN_SHARE_BYTES))
        .unwrap_or(MAX_DEFAULT_BUFFER_BYTES);
    largest.clamp(1024, MAX_DEFAULT_BUFFER_BYTES).min(share).next_multiple_of(1024)
}
