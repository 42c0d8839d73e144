//! Builds the configuration of a new session from command-line options, with defaults.
//!
//! | | buffers | flush |
//! |---|---|---|
//! | file, live | 64 KiB each, 4 to 32 MiB of them: room for bursts and slow disks | each second |
//! | flight recorder | 64 KiB each, 16 MiB of them: what it keeps | on request |
//!
//! Buffers are small because a flush writes every buffer in use, full or not, and each takes its
//! full size in the file.

use std::path::Path;

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir::controller::SessionConfig;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_FILE_MODE_APPEND as APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE,
    EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL,
    EVENT_TRACE_REAL_TIME_MODE as REAL_TIME,
};

use crate::cli::{self, ClockName, Shape};

const BUFFER_KIB: u32 = 64;
const LEAST_KIB: u32 = 4 << 10;
const MOST_KIB: u32 = 32 << 10;
const RECORDER_KIB: u32 = 16 << 10;
const FLUSH_SECONDS: u32 = 1;

/// Modes that write a file.
const FILE_MODES: u32 = SEQUENTIAL | CIRCULAR | APPEND | NEWFILE;

/// Returns the configuration of a new session. Contradicting options end the program with a usage
/// error.
pub(crate) fn config(name: &str, file: Option<&Path>, shape: &Shape) -> Result<SessionConfig> {
    let asked = shape.mode_bits();
    let usual = match file {
        _ if asked & (FILE_MODES | BUFFERING | REAL_TIME) != 0 => 0,
        Some(_) => SEQUENTIAL,
        None => REAL_TIME,
    };
    let mode = asked | usual;
    check(mode, file, shape);
    let log_file =
        file.map(std::path::absolute).transpose().context("cannot resolve the current directory")?;
    let mut config = SessionConfig {
        name: name.to_owned(),
        guid: shape.guid.unwrap_or_default(),
        log_file_mode: mode,
        clock: match shape.clock {
            // Only the system clock means the same in two sessions.
            None if mode & APPEND != 0 => 2,
            None => 0,
            Some(clock) => clock.number(),
        },
        buffer_size: cli::buffer_size(shape.buffer_size),
        minimum_buffers: shape.min_buffers.unwrap_or(0),
        maximum_buffers: shape.max_buffers.unwrap_or(0),
        maximum_file_size: shape.max_size.unwrap_or(0),
        flush_threshold: shape.flush_threshold.unwrap_or(0),
        log_file,
        low_latency: shape.low_latency,
        ..SessionConfig::default()
    };
    fill_in_defaults(&mut config);
    config.flush_timer = shape.flush_timer.unwrap_or(config.flush_timer);
    Ok(config)
}

/// Prints a note if a file name contains "%d" without `--new-file`.
pub(crate) fn note_literal_percent_d(config: &SessionConfig) {
    let name = config.log_file.as_ref().map(|file| file.to_string_lossy().into_owned());
    if config.log_file_mode & NEWFILE == 0 && name.is_some_and(|name| name.contains("%d")) {
        eprintln!("the %d in the name is literal here: --new-file writes a sequence of numbered files");
    }
}

/// Fills in buffers and flush timer that were not given.
pub(crate) fn fill_in_defaults(config: &mut SessionConfig) {
    let buffer_count = |kib: u32, size: u32| (kib / size.max(1)).max(2);
    let size = if config.buffer_size == 0 { BUFFER_KIB } else { config.buffer_size };
    let (least, most) = (config.minimum_buffers, config.maximum_buffers);
    config.buffer_size = size;
    if config.log_file_mode & BUFFERING != 0 {
        let given = least.max(most);
        config.minimum_buffers = if given == 0 { buffer_count(RECORDER_KIB, size) } else { given };
        config.maximum_buffers = config.minimum_buffers;
        return;
    }
    config.flush_timer = FLUSH_SECONDS;
    let (usual_least, usual_most) = (buffer_count(LEAST_KIB, size), buffer_count(MOST_KIB, size));
    config.minimum_buffers = match (least, most) {
        (0, 0) => usual_least,
        (0, most) => usual_least.min(most),
        (least, _) => least,
    };
    config.maximum_buffers = if most == 0 { usual_most.max(config.minimum_buffers) } else { most };
}

fn check(mode: u32, file: Option<&Path>, shape: &Shape) {
    if mode & CIRCULAR != 0 && shape.max_size.is_none() {
        cli::misuse("a circular log needs a size: give it with --max-size MIB");
    }
    if mode & (NEWFILE | PREALLOCATE) != 0 && shape.max_size.is_none() {
        cli::misuse("this mode needs the size of a file: give it with --max-size MIB");
    }
    if mode & FILE_MODES != 0 && file.is_none() {
        cli::misuse("this mode writes a log file: name it with -o FILE");
    }
    let numbers = file.map_or(1, |file| file.to_string_lossy().matches("%d").count());
    if mode & NEWFILE != 0 && numbers != 1 {
        cli::misuse(
            "the files of a sequence are numbered: the name must contain one %d, such as -o app-%d.etl",
        );
    }
    if mode & APPEND != 0 && shape.clock.is_some_and(|clock| clock != ClockName::System) {
        cli::misuse("appending needs the system clock: leave out --clock, or give --clock system");
    }
    if let (Some(least), Some(most)) = (shape.min_buffers, shape.max_buffers)
        && least > most
    {
        cli::misuse(&format!("--min-buffers {least} is more than --max-buffers {most}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(shape: &Shape) -> (u32, u32, u32, u32) {
        let c = config("a", None, shape).unwrap();
        (c.buffer_size, c.minimum_buffers, c.maximum_buffers, c.flush_timer)
    }

    #[test]
    fn missing_buffer_options_get_defaults() {
        let shape = Shape::default();
        assert_eq!(buffers(&shape), (64, 64, 512, 1));
        assert_eq!(buffers(&Shape { buffer_size: Some(1024), ..Shape::default() }), (1024, 4, 32, 1));
        assert_eq!(buffers(&Shape { buffer_size: Some(16384), ..Shape::default() }), (16384, 2, 2, 1));
        assert_eq!(buffers(&Shape { max_buffers: Some(8), ..Shape::default() }), (64, 8, 8, 1));
        assert_eq!(buffers(&Shape { min_buffers: Some(999), ..Shape::default() }), (64, 999, 999, 1));
        assert_eq!(buffers(&Shape { flush_timer: Some(0), ..Shape::default() }), (64, 64, 512, 0));
        let recorder = Shape { buffering: true, ..Shape::default() };
        assert_eq!(buffers(&recorder), (64, 256, 256, 0), "16 MiB");
        assert_eq!(buffers(&Shape { max_buffers: Some(9), ..recorder }), (64, 9, 9, 0));
    }

    #[test]
    fn default_mode_follows_from_output_file() {
        let mode = |file: Option<&str>, shape: &Shape| {
            let c = config("a", file.map(Path::new), shape).unwrap();
            (c.log_file_mode, c.clock)
        };
        let file = Some("/a.etl");
        assert_eq!(mode(file, &Shape::default()), (SEQUENTIAL, 0));
        assert_eq!(mode(None, &Shape::default()), (REAL_TIME, 0));
        assert_eq!(mode(file, &Shape { real_time: true, ..Shape::default() }), (REAL_TIME, 0));
        assert_eq!(mode(file, &Shape { mode: vec![0x8000], ..Shape::default() }), (SEQUENTIAL | 0x8000, 0));
        assert_eq!(mode(file, &Shape { append: true, ..Shape::default() }), (APPEND, 2));
    }
}
