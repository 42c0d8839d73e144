//! A session to be started, from flags, and what stands where no flag is given.
//!
//! | | buffers | flushed |
//! |---|---|---|
//! | file, live | 64 KiB each, 4 to 32 MiB of them: room for bursts and busy disks | each second |
//! | flight recorder | 64 KiB each, 16 MiB of them: that is what it remembers | when asked |
//!
//! Buffers are small because a flush writes each that is in use, full or not, and it takes its whole size in the file.

use std::path::Path;

use anyhow::{Context, Result};
use traceweir::controller::SessionConfig;

use super::mode_bit;
use crate::cli::{self, ClockName, Mode, Shape};

const BUFFER_KIB: u32 = 64;
const LEAST_KIB: u32 = 4 << 10;
const MOST_KIB: u32 = 32 << 10;
const RECORDER_KIB: u32 = 16 << 10;
const FLUSH_SECONDS: u32 = 1;

/// A session to be started, from flags; those that contradict each other end the program.
pub(crate) fn config(name: &str, file: Option<&Path>, shape: &Shape) -> Result<SessionConfig> {
    let usual = if file.is_some() { Mode::Sequential } else { Mode::RealTime };
    let modes = if shape.mode.is_empty() { std::slice::from_ref(&usual) } else { &shape.mode };
    check(modes, file, shape);
    let log_file = file.map(std::path::absolute).transpose().context("the working folder is gone")?;
    let mut config = SessionConfig {
        name: name.to_owned(),
        log_file_mode: modes.iter().fold(0, |mode, m| mode | mode_bit(*m)),
        clock: shape.clock.map_or(0, |clock| match clock {
            ClockName::Qpc => 1,
            ClockName::System => 2,
            ClockName::Cycles => 3,
        }),
        buffer_size: shape.buffer_size.unwrap_or(0),
        minimum_buffers: shape.min_buffers.unwrap_or(0),
        maximum_buffers: shape.max_buffers.unwrap_or(0),
        maximum_file_size: shape.max_size.unwrap_or(0),
        log_file,
        low_latency: shape.low_latency,
        ..SessionConfig::default()
    };
    roomy(&mut config);
    config.flush_timer = shape.flush_timer.unwrap_or(config.flush_timer);
    Ok(config)
}

/// Fills in buffers and flush timer where none are given.
pub(crate) fn roomy(config: &mut SessionConfig) {
    let of_size = |kib: u32, size: u32| (kib / size.max(1)).max(2);
    let size = if config.buffer_size == 0 { BUFFER_KIB } else { config.buffer_size };
    let (least, most) = (config.minimum_buffers, config.maximum_buffers);
    config.buffer_size = size;
    if config.log_file_mode & mode_bit(Mode::Buffering) != 0 {
        let given = least.max(most);
        config.minimum_buffers = if given == 0 { of_size(RECORDER_KIB, size) } else { given };
        config.maximum_buffers = config.minimum_buffers;
        return;
    }
    config.flush_timer = FLUSH_SECONDS;
    let (usual_least, usual_most) = (of_size(LEAST_KIB, size), of_size(MOST_KIB, size));
    config.minimum_buffers = match (least, most) {
        (0, 0) => usual_least,
        (0, most) => usual_least.min(most),
        (least, _) => least,
    };
    config.maximum_buffers = if most == 0 { usual_most.max(config.minimum_buffers) } else { most };
}

fn check(modes: &[Mode], file: Option<&Path>, shape: &Shape) {
    if modes.contains(&Mode::Circular) && shape.max_size.is_none() {
        cli::misuse("a circular log keeps the newest part of a size: give it with --max-size MIB");
    }
    let to_file = modes.iter().find(|mode| matches!(mode, Mode::Sequential | Mode::Circular));
    if to_file.is_some() && file.is_none() {
        cli::misuse("this mode writes a log file: name it with -o FILE");
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
    fn what_is_not_given_follows_from_what_is() {
        let shape = Shape::default();
        assert_eq!(buffers(&shape), (64, 64, 512, 1));
        assert_eq!(buffers(&Shape { buffer_size: Some(1024), ..Shape::default() }), (1024, 4, 32, 1));
        assert_eq!(buffers(&Shape { buffer_size: Some(16384), ..Shape::default() }), (16384, 2, 2, 1));
        assert_eq!(buffers(&Shape { max_buffers: Some(8), ..Shape::default() }), (64, 8, 8, 1));
        assert_eq!(buffers(&Shape { min_buffers: Some(999), ..Shape::default() }), (64, 999, 999, 1));
        assert_eq!(buffers(&Shape { flush_timer: Some(0), ..Shape::default() }), (64, 64, 512, 0));
        let recorder = Shape { mode: vec![Mode::Buffering], ..Shape::default() };
        assert_eq!(buffers(&recorder), (64, 256, 256, 0), "16 MiB");
        assert_eq!(buffers(&Shape { max_buffers: Some(9), ..recorder }), (64, 9, 9, 0));
    }
}
