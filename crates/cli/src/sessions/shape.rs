//! Builds the settings of a new session from command-line options, with defaults.
//!
//! | | buffers | flush |
//! |---|---|---|
//! | file, live | 64 KiB each, 4 to 32 MiB in total, for bursts and slow disks | each second |
//! | flight recorder | 64 KiB each, 16 MiB in total | on request |
//!
//! Buffers are small because a flush writes every buffer in use, full or not, and each takes its
//! full size in the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::info::ClassicEventId;
use traceweir::session::{ProcessTree, SessionBuilder};
use traceweir::{ClockKind, Guid, LogFileMode, Session};

use super::is_private;
use crate::cli::{self, ClockName, ShapeArgs, SizeLimit};

const DEFAULT_BUFFER_KIB: u32 = 64;
const DEFAULT_MIN_TOTAL_KIB: u32 = 4 << 10;
const DEFAULT_MAX_TOTAL_KIB: u32 = 32 << 10;
const DEFAULT_RECORDER_TOTAL_KIB: u32 = 16 << 10;
const DEFAULT_FLUSH_TIMER: Duration = Duration::from_secs(1);

/// Modes that write a file.
const FILE_MODES: LogFileMode = LogFileMode::SEQUENTIAL
    .union(LogFileMode::CIRCULAR)
    .union(LogFileMode::APPEND)
    .union(LogFileMode::NEWFILE);
/// Modes that determine where events go.
const OUTPUT_MODES: LogFileMode = FILE_MODES.union(LogFileMode::BUFFERING).union(LogFileMode::REAL_TIME);

/// The settings of a session that a command is going to start; 0 means the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionPlan {
    pub(crate) name: String,
    /// GUID of the session; a null GUID is replaced with a new one.
    pub(crate) guid: Guid,
    pub(crate) mode: LogFileMode,
    pub(crate) clock: Option<ClockKind>,
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) buffer_kib: u32,
    pub(crate) minimum_buffers: u32,
    pub(crate) maximum_buffers: u32,
    /// Size limit of the file in MiB, or in KiB with [`LogFileMode::USE_KBYTES_FOR_SIZE`].
    pub(crate) maximum_file: u32,
    pub(crate) flush_timer: Duration,
    pub(crate) flush_threshold: u32,
    pub(crate) low_latency: bool,
    /// Whether an existing file is replaced, whatever it is.
    pub(crate) force: bool,
    /// Whether the daemon stops the session when this program ends.
    pub(crate) stop_on_drop: bool,
    /// The EnableFlags of kernel events.
    pub(crate) kernel_flags: u32,
    /// Bytes of user stack that are copied with each stack of a kernel event.
    pub(crate) kernel_stack_bytes: u32,
    /// Kernel events that are recorded with their call stack; `None` without kernel events.
    pub(crate) kernel_stacks: Option<Vec<ClassicEventId>>,
    /// Process trees that kernel events are restricted to; empty for the whole machine.
    pub(crate) kernel_scope: Vec<ProcessTree>,
}

impl SessionPlan {
    /// Returns the settings of a live session that ends with this program.
    pub(crate) fn temporary(name_prefix: &str) -> Self {
        let mut plan = Self {
            name: format!("{name_prefix}-{}", std::process::id()),
            mode: LogFileMode::REAL_TIME,
            low_latency: true,
            stop_on_drop: true,
            ..Self::default()
        };
        plan.fill_in_defaults();
        plan
    }

    /// Sets the size limit of the file. A number without a unit is in MiB, or in KiB if the mode says
    /// so; a size that is not a multiple of 1 MiB needs a limit in KiB.
    fn set_maximum_file(&mut self, limit: Option<SizeLimit>) {
        let kbytes = LogFileMode::USE_KBYTES_FOR_SIZE;
        self.maximum_file = match limit {
            None => 0,
            Some(SizeLimit::Bare(number)) => number,
            Some(SizeLimit::Kib(kib)) => {
                if !kib.is_multiple_of(1 << 10) {
                    self.mode |= kbytes;
                }
                let number = if self.mode.contains(kbytes) { kib } else { kib >> 10 };
                u32::try_from(number).unwrap_or(u32::MAX)
            }
        };
    }

    /// Turns the session into a flight recorder: the newest events stay in memory, and the session
    /// has no file.
    pub(crate) fn keep_in_memory(&mut self, size: SizeLimit) {
        self.mode = LogFileMode::new(self.mode.bits() & !OUTPUT_MODES.bits()) | LogFileMode::BUFFERING;
        let buffers = size.kib().div_ceil(u64::from(self.buffer_kib.max(1)));
        self.minimum_buffers = u32::try_from(buffers).unwrap_or(u32::MAX).max(2);
        self.maximum_buffers = self.minimum_buffers;
        self.flush_timer = Duration::ZERO;
        self.log_file = None;
    }

    /// Returns the file that a start would replace.
    pub(crate) fn first_file(&self) -> Option<PathBuf> {
        let file = self.log_file.as_ref().filter(|_| !self.mode.contains(LogFileMode::APPEND))?;
        if !self.mode.contains(LogFileMode::NEWFILE) {
            return Some(file.clone());
        }
        Some(file.to_str()?.replace("%d", "1").into())
    }

    pub(crate) fn to_builder(&self) -> SessionBuilder {
        let mut builder = Session::builder(&self.name)
            .guid(self.guid)
            .mode(self.mode)
            .buffer_kib(self.buffer_kib)
            .minimum_buffers(self.minimum_buffers)
            .maximum_buffers(self.maximum_buffers)
            .flush_timer(self.flush_timer)
            .flush_threshold(self.flush_threshold)
            .kernel_flags(self.kernel_flags)
            .kernel_stack_bytes(self.kernel_stack_bytes);
        builder = if self.mode.contains(LogFileMode::USE_KBYTES_FOR_SIZE) {
            builder.maximum_file_kib(self.maximum_file)
        } else {
            builder.maximum_file_mib(self.maximum_file)
        };
        if let Some(clock) = self.clock {
            builder = builder.clock(clock);
        }
        if let Some(file) = &self.log_file {
            builder = builder.log_file(file);
        }
        if let Some(stacks) = &self.kernel_stacks {
            builder = builder.kernel_stacks(stacks);
        }
        let has_log = self.log_file.is_some() || self.mode.contains(LogFileMode::BUFFERING);
        if self.mode.contains(LogFileMode::SYSTEM_LOGGER) {
            builder = builder.kernel_scope(&self.kernel_scope);
        } else if has_log && !is_private(self.mode) {
            builder = builder.describe_processes();
        }
        if self.low_latency {
            builder = builder.low_latency();
        }
        if self.stop_on_drop { builder.stop_on_drop() } else { builder }
    }
}

/// Returns the settings of a new session. Contradictory options end the program with a usage error.
pub(crate) fn build_plan(name: &str, file: Option<&Path>, shape: &ShapeArgs) -> Result<SessionPlan> {
    let requested = LogFileMode::new(shape.mode_bits());
    let default = match file {
        _ if requested.intersects(OUTPUT_MODES) => LogFileMode::NONE,
        Some(_) => LogFileMode::SEQUENTIAL,
        None => LogFileMode::REAL_TIME,
    };
    let mode = requested | default;
    check_options(mode, file, shape);
    let log_file =
        file.map(std::path::absolute).transpose().context("cannot resolve the current directory")?;
    let mut plan = SessionPlan {
        name: name.to_owned(),
        guid: shape.guid.unwrap_or_default(),
        mode,
        clock: match shape.clock {
            // Only timestamps of the system clock are comparable between sessions.
            None if mode.contains(LogFileMode::APPEND) => Some(ClockKind::SystemTime),
            None => None,
            Some(clock) => Some(clock.clock_kind()),
        },
        buffer_kib: cli::clamp_buffer_kib(shape.buffer_size),
        minimum_buffers: shape.min_buffers.unwrap_or(0),
        maximum_buffers: shape.max_buffers.unwrap_or(0),
        flush_threshold: shape.flush_threshold.unwrap_or(0),
        log_file,
        low_latency: shape.low_latency,
        ..SessionPlan::default()
    };
    plan.set_maximum_file(shape.max_size);
    plan.fill_in_defaults();
    if let Some(seconds) = shape.flush_timer {
        plan.flush_timer = Duration::from_secs(seconds.into());
    }
    Ok(plan)
}

/// Prints a note if a file name contains "%d" without `--new-file`.
pub(crate) fn note_literal_percent_d(plan: &SessionPlan) {
    let name = plan.log_file.as_ref().map(|file| file.to_string_lossy().into_owned());
    if !plan.mode.contains(LogFileMode::NEWFILE) && name.is_some_and(|name| name.contains("%d")) {
        eprintln!("the %d in the name is literal here: --new-file writes a sequence of numbered files");
    }
}

impl SessionPlan {
    /// Fills in the buffer settings that are 0, and sets the flush timer to its default. A flight
    /// recorder has a fixed number of buffers and no flush timer.
    pub(crate) fn fill_in_defaults(&mut self) {
        let buffer_count = |total_kib: u32, size: u32| (total_kib / size.max(1)).max(2);
        let size = if self.buffer_kib == 0 { DEFAULT_BUFFER_KIB } else { self.buffer_kib };
        let (min, max) = (self.minimum_buffers, self.maximum_buffers);
        self.buffer_kib = size;
        if self.mode.contains(LogFileMode::BUFFERING) {
            let requested = min.max(max);
            self.minimum_buffers =
                if requested == 0 { buffer_count(DEFAULT_RECORDER_TOTAL_KIB, size) } else { requested };
            self.maximum_buffers = self.minimum_buffers;
            return;
        }
        self.flush_timer = DEFAULT_FLUSH_TIMER;
        let (default_min, default_max) =
            (buffer_count(DEFAULT_MIN_TOTAL_KIB, size), buffer_count(DEFAULT_MAX_TOTAL_KIB, size));
        self.minimum_buffers = match (min, max) {
            (0, 0) => default_min,
            (0, max) => default_min.min(max),
            (min, _) => min,
        };
        self.maximum_buffers = if max == 0 { default_max.max(self.minimum_buffers) } else { max };
    }
}

fn check_options(mode: LogFileMode, file: Option<&Path>, shape: &ShapeArgs) {
    if mode.contains(LogFileMode::CIRCULAR) && shape.max_size.is_none() {
        cli::exit_with_conflict("a circular log needs a size: give it with --max-size MIB");
    }
    if mode.intersects(LogFileMode::NEWFILE | LogFileMode::PREALLOCATE) && shape.max_size.is_none() {
        cli::exit_with_conflict("this mode needs the size of a file: give it with --max-size MIB");
    }
    if mode.intersects(FILE_MODES) && file.is_none() {
        cli::exit_with_conflict("this mode writes a log file: name it with -o FILE");
    }
    let placeholders = file.map_or(1, |file| file.to_string_lossy().matches("%d").count());
    if mode.contains(LogFileMode::NEWFILE) && placeholders != 1 {
        cli::exit_with_conflict(
            "the files of a sequence are numbered: the name must contain one %d, such as -o app-%d.etl",
        );
    }
    if mode.contains(LogFileMode::APPEND) && shape.clock.is_some_and(|clock| clock != ClockName::System) {
        cli::exit_with_conflict(
            "appending needs the system clock: leave out --clock, or give --clock system",
        );
    }
    if let (Some(min), Some(max)) = (shape.min_buffers, shape.max_buffers)
        && min > max
    {
        cli::exit_with_conflict(&format!("--min-buffers {min} is more than --max-buffers {max}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns buffer size in KiB, minimum and maximum number of buffers, and flush timer in
    /// seconds.
    fn planned_buffers(shape: &ShapeArgs) -> (u32, u32, u32, u64) {
        let plan = build_plan("a", None, shape).unwrap();
        (plan.buffer_kib, plan.minimum_buffers, plan.maximum_buffers, plan.flush_timer.as_secs())
    }

    #[test]
    fn missing_buffer_options_get_defaults() {
        let shape = ShapeArgs::default();
        assert_eq!(planned_buffers(&shape), (64, 64, 512, 1));
        assert_eq!(
            planned_buffers(&ShapeArgs { buffer_size: Some(1024), ..ShapeArgs::default() }),
            (1024, 4, 32, 1)
        );
        assert_eq!(
            planned_buffers(&ShapeArgs { buffer_size: Some(16384), ..ShapeArgs::default() }),
            (16384, 2, 2, 1)
        );
        assert_eq!(
            planned_buffers(&ShapeArgs { max_buffers: Some(8), ..ShapeArgs::default() }),
            (64, 8, 8, 1)
        );
        assert_eq!(
            planned_buffers(&ShapeArgs { min_buffers: Some(999), ..ShapeArgs::default() }),
            (64, 999, 999, 1)
        );
        assert_eq!(
            planned_buffers(&ShapeArgs { flush_timer: Some(0), ..ShapeArgs::default() }),
            (64, 64, 512, 0)
        );
        let recorder = ShapeArgs { buffering: true, ..ShapeArgs::default() };
        assert_eq!(
            planned_buffers(&recorder),
            (64, 256, 256, 0),
            "a flight recorder must have 16 MiB by default"
        );
        assert_eq!(planned_buffers(&ShapeArgs { max_buffers: Some(9), ..recorder }), (64, 9, 9, 0));
    }

    #[test]
    fn default_mode_follows_from_output_file() {
        let planned_mode = |file: Option<&str>, shape: &ShapeArgs| {
            let plan = build_plan("a", file.map(Path::new), shape).unwrap();
            (plan.mode, plan.clock)
        };
        let (sequential, real_time) = (LogFileMode::SEQUENTIAL, LogFileMode::REAL_TIME);
        let file = Some("/a.etl");
        assert_eq!(planned_mode(file, &ShapeArgs::default()), (sequential, None));
        assert_eq!(planned_mode(None, &ShapeArgs::default()), (real_time, None));
        assert_eq!(
            planned_mode(file, &ShapeArgs { real_time: true, ..ShapeArgs::default() }),
            (real_time, None)
        );
        let use_local = LogFileMode::USE_LOCAL_SEQUENCE;
        let local_sequence = ShapeArgs { mode: vec![use_local.bits()], ..ShapeArgs::default() };
        assert_eq!(planned_mode(file, &local_sequence), (sequential | use_local, None));
        let append = ShapeArgs { append: true, ..ShapeArgs::default() };
        assert_eq!(planned_mode(file, &append), (LogFileMode::APPEND, Some(ClockKind::SystemTime)));
    }
}
