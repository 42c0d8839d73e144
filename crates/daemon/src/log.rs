//! The daemon's own log: lines on standard error, few of them.
//!
//! A line is `time level message`. No client can fill a disk with it: a minute has room for [`PER_MINUTE`] lines, what is past that is
//! counted and said in one line when the next minute begins. Refusals, which anybody can cause, and enables, of which a
//! session may have thousands, have as much room of their own: they push out nothing else. Control characters in names that come from clients are written as question marks.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use traceweir_format::time::FileTime;

/// Lines of one minute.
const PER_MINUTE: u32 = 120;

/// How grave a line is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    /// What was done.
    Info,
    /// What went wrong for somebody.
    Warning,
    /// What somebody was not allowed to do.
    Refused,
    /// What somebody enabled.
    Enabled,
}

struct Minute {
    began: Option<Instant>,
    lines: u32,
    left_out: u32,
}

impl Minute {
    const NEW: Self = Self { began: None, lines: 0, left_out: 0 };
}

static MINUTE: Mutex<Minute> = Mutex::new(Minute::NEW);
static MINUTE_OF_REFUSALS: Mutex<Minute> = Mutex::new(Minute::NEW);
static MINUTE_OF_ENABLES: Mutex<Minute> = Mutex::new(Minute::NEW);

/// Writes a line.
pub(crate) fn line(level: Level, message: fmt::Arguments<'_>) {
    let left_out = {
        let minute = match level {
            Level::Refused => &MINUTE_OF_REFUSALS,
            Level::Enabled => &MINUTE_OF_ENABLES,
            Level::Info | Level::Warning => &MINUTE,
        };
        let mut minute = minute.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if minute.began.is_none_or(|began| began.elapsed() > Duration::from_secs(60)) {
            let left_out = minute.left_out;
            *minute = Minute { began: Some(Instant::now()), ..Minute::NEW };
            left_out
        } else if minute.lines >= PER_MINUTE {
            minute.left_out = minute.left_out.saturating_add(1);
            return;
        } else {
            minute.lines += 1;
            0
        }
    };
    if left_out > 0 {
        write(Level::Warning, &format!("{left_out} lines were left out"));
    }
    write(level, &message.to_string());
}

fn write(level: Level, message: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = FileTime::from_unix(i64::try_from(now.as_secs()).unwrap_or(0), now.subsec_nanos());
    let level = match level {
        Level::Info | Level::Enabled => "info",
        Level::Warning => "warning",
        Level::Refused => "refused",
    };
    let safe: String = message.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    // A log that cannot be written must not stop the daemon.
    let _ = writeln!(std::io::stderr(), "{time} {level} {safe}");
}

/// Writes a line of what was done.
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($arg)*)) };
}

/// Writes a line of what went wrong for somebody.
macro_rules! warning {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warning, format_args!($($arg)*)) };
}

/// Writes a line of what somebody was not allowed to do.
macro_rules! refused {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Refused, format_args!($($arg)*)) };
}

/// Writes a line of what somebody enabled.
macro_rules! enabled {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Enabled, format_args!($($arg)*)) };
}

pub(crate) use {enabled, info, refused, warning};
