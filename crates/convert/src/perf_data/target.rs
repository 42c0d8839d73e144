//! The properties of the trace: clock, names, size of buffers.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use traceweir_format::etl::Options;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::survey::Survey;

/// The size of a buffer: larger than the largest record.
pub(super) const BUFFER_BYTES: u32 = 128 << 10;
/// The most processors of a trace.
const MAX_PROCESSORS: u32 = 2048;
const NS_PER_SECOND: i64 = 1_000_000_000;
const SESSION_NAME: &str = "perf record";

/// Facts about the file of a recording.
pub(super) struct RecordingFile {
    pub(super) name: String,
    /// When the file was last changed; `None` for a pipe.
    pub(super) modified: Option<SystemTime>,
}

/// The properties of the trace.
pub(super) struct TraceProperties {
    pub(super) options: Options,
    pub(super) first_time: i64,
    /// Whether the wall time follows from the time of the file.
    pub(super) is_wall_time_guessed: bool,
}

impl TraceProperties {
    pub(super) fn new(survey: &Survey, file: &RecordingFile) -> Result<Self> {
        let (first, last) = survey.times.unwrap_or_default();
        let start_ns = match survey.features.clock {
            Some(clock) => i128::from(clock.wall_ns)
                .saturating_add(i128::from(first))
                .saturating_sub(i128::from(clock.event_ns)),
            None => {
                let modified = file.modified.unwrap_or_else(SystemTime::now);
                let modified = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
                let duration = last.saturating_sub(first);
                i128::try_from(modified.as_nanos()).unwrap_or(0).saturating_sub(duration.into())
            }
        };
        let start_time = FileTime::from_unix_ns(start_ns);
        let first_time = i64::try_from(first).unwrap_or(i64::MAX);
        // The clock of a recording usually counts from the start of the machine.
        let boot_time = FileTime(start_time.0.saturating_sub(first_time.div_euclid(100)).max(0));
        let options = Options {
            buffer_size: BUFFER_BYTES,
            session_name: SESSION_NAME.to_owned(),
            file_name: file.name.clone(),
            processors: survey.features.processors.clamp(1, MAX_PROCESSORS),
            perf_freq: NS_PER_SECOND,
            anchor: first_time,
            start_time,
            boot_time,
            header_records: encode_system_record(&survey.features.kernel_release, first_time)?,
            ..Options::default()
        };
        Ok(Self { options, first_time, is_wall_time_guessed: survey.features.clock.is_none() })
    }
}

/// Returns the record that names the operating system.
fn encode_system_record(release: &str, time: i64) -> Result<Vec<u8>> {
    let mut text = format!("Linux {release} (perf)").into_bytes();
    text.push(0);
    let header = PerfInfoHeader { pointer_size: 8, version: 2, hook: hook::BUILD_INFO, time, counters: &[] };
    let mut record = Vec::new();
    header.encode(&text, &mut record)?;
    Ok(record)
}
