//! The daemon's own log: lines on standard error, few of them.
//!
//! A line is `time level message`. No client can fill a disk with it: a minute has room for [`PER_MINUTE`] lines, what is past that is
//! counted and said in one line when the next minute begins. What anybody can cause has as much room of its own, and pushes out nothing else:
//!
//! | Lines | Room |
//! |---|---|
//! | sessions, the daemon's own troubles | one minute's |
//! | refusals | one minute's of their own |
//! | enables, of which a session may have thousands | one minute's of their own |
//! | what processes say, or bring about by what they do | one minute's of their own |
//! | who changed who may do what | always: only who may change that has it written |
//!
//! Words that come from others are quoted where they are more than a name. A line has at most [`LONGEST`] characters, and those that would move or hide
//! what stands around them (control characters, line separators, marks of direction) are written as question marks.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use traceweir_format::time::FileTime;

/// Lines of one minute.
const PER_MINUTE: u32 = 120;
/// Characters of a line.
const LONGEST: usize = 1000;

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
    /// What a process says, or what it brings about.
    Client,
    /// PeerName changed who may do what.
    Audit,
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
static MINUTE_OF_PROCESSES: Mutex<Minute> = Mutex::new(Minute::NEW);

impl Level {
    /// Where its lines are counted; `None`: nowhere.
    fn minute(self) -> Option<&'static Mutex<Minute>> {
        match self {
            Self::Refused => Some(&MINUTE_OF_REFUSALS),
            Self::Enabled => Some(&MINUTE_OF_ENABLES),
            Self::Client => Some(&MINUTE_OF_PROCESSES),
            Self::Info | Self::Warning => Some(&MINUTE),
            Self::Audit => None,
        }
    }
}

/// Writes a line.
pub(crate) fn line(level: Level, message: fmt::Arguments<'_>) {
    let Some(left_out) = level.minute().map_or(Some(0), count) else { return };
    if left_out > 0 {
        write(Level::Warning, &format!("{left_out} lines were left out"));
    }
    write(level, &message.to_string());
}

/// Counts a line: how many were left out before it, or `None` where it is one of them.
fn count(minute: &Mutex<Minute>) -> Option<u32> {
    let mut minute = minute.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if minute.began.is_none_or(|began| began.elapsed() > Duration::from_secs(60)) {
        let left_out = minute.left_out;
        *minute = Minute { began: Some(Instant::now()), ..Minute::NEW };
        return Some(left_out);
    }
    if minute.lines >= PER_MINUTE {
        minute.left_out = minute.left_out.saturating_add(1);
        return None;
    }
    minute.lines += 1;
    Some(0)
}

fn write(level: Level, message: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = FileTime::from_unix(i64::try_from(now.as_secs()).unwrap_or(0), now.subsec_nanos());
    let level = match level {
        Level::Info | Level::Enabled | Level::Audit => "info",
        Level::Warning | Level::Client => "warning",
        Level::Refused => "refused",
    };
    // A log that cannot be written must not stop the daemon.
    let _ = writeln!(std::io::stderr(), "{time} {level} {}", safe(message));
}

/// A text as it may stand in a line.
fn safe(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{061C}' | '\u{FEFF}')
    };
    text.chars().take(LONGEST).map(|c| if is_harmful(c) { '?' } else { c }).collect()
}

/// Writes a line of what was done.
macro_rules! log_info {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($arg)*)) };
}

/// Writes a line of what went wrong for somebody.
macro_rules! log_warning {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warning, format_args!($($arg)*)) };
}

/// Writes a line of what somebody was not allowed to do.
macro_rules! log_refusal {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Refused, format_args!($($arg)*)) };
}

/// Writes a line of what somebody enabled.
macro_rules! log_enable {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Enabled, format_args!($($arg)*)) };
}

/// Writes a line of what a process says, or brings about.
macro_rules! log_client {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Client, format_args!($($arg)*)) };
}

/// Writes a line of who changed who may do what.
macro_rules! log_audit {
    ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Audit, format_args!($($arg)*)) };
}

pub(crate) use {log_audit, log_enable, log_info, log_refusal, log_client, log_warning};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_say_leaves_room_for_everything_else() {
        let of_processes = Mutex::new(Minute::NEW);
        let counted = (0..PER_MINUTE + 30).filter(|_| count(&of_processes).is_some()).count();
        assert_eq!(counted as u32, PER_MINUTE + 1);
        assert_eq!(of_processes.lock().unwrap().left_out, 29);
        let own = |level: Level| level.minute().map(std::ptr::from_ref);
        assert_ne!(own(Level::Client), own(Level::Info));
        assert_ne!(own(Level::Client), own(Level::Refused));
        assert_eq!(own(Level::Audit), None, "always has room");
    }

    #[test]
    fn words_of_others_neither_break_nor_turn_nor_fill_a_line() {
        assert_eq!(safe("a\nb\u{1b}[2Jc\u{202e}d\u{2028}e\u{feff}é"), "a?b?[2Jc?d?e?é");
        assert_eq!(safe(&"é".repeat(5000)).chars().count(), LONGEST);
    }
}
