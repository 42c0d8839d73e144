//! The daemon's own log: a small number of lines on standard error.
//!
//! A line is `time level message`. No client can fill a disk with lines: at most
//! [`MAX_LINES_PER_MINUTE`] are written in a minute. Further lines are counted; a line with their
//! number precedes the first line after that minute. Lines that any user can cause have separate
//! limits of the same size, so that they displace nothing else:
//!
//! | Lines | Limit |
//! |---|---|
//! | sessions, the daemon's own problems | one for both |
//! | refusals | a separate one |
//! | enables, of which a session may have thousands | a separate one |
//! | reports and effects of client processes | a separate one |
//! | changes of access rights | none: only users who may make such changes cause them |
//!
//! Text from clients is quoted unless it is only a name. A line has at most [`MAX_LINE_CHARS`]
//! characters. Characters that would move or hide the text around them (control characters, line
//! separators, direction marks) are replaced by question marks.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use traceweir_format::time::FileTime;

/// Maximum number of lines in one minute, after the line that begins it.
const MAX_LINES_PER_MINUTE: u32 = 120;
/// Maximum number of characters in a line.
const MAX_LINE_CHARS: usize = 1000;

/// The kind of a line, which determines its printed level and its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogLevel {
    /// A message about normal operation.
    Info,
    /// A message about a problem.
    Warning,
    /// A refusal of a request.
    Refusal,
    /// An enable of a provider.
    Enable,
    /// A report of a client process, or an effect of what it does.
    Client,
    /// A change of access rights.
    Audit,
}

struct MinuteCount {
    began: Option<Instant>,
    lines: u32,
    dropped: u32,
}

impl MinuteCount {
    const NEW: Self = Self { began: None, lines: 0, dropped: 0 };
}

static MINUTE: Mutex<MinuteCount> = Mutex::new(MinuteCount::NEW);
static MINUTE_OF_REFUSALS: Mutex<MinuteCount> = Mutex::new(MinuteCount::NEW);
static MINUTE_OF_ENABLES: Mutex<MinuteCount> = Mutex::new(MinuteCount::NEW);
static MINUTE_OF_CLIENTS: Mutex<MinuteCount> = Mutex::new(MinuteCount::NEW);

impl LogLevel {
    /// Returns the counter for this kind of line; `None` if it has no limit.
    fn line_counter(self) -> Option<&'static Mutex<MinuteCount>> {
        match self {
            Self::Refusal => Some(&MINUTE_OF_REFUSALS),
            Self::Enable => Some(&MINUTE_OF_ENABLES),
            Self::Client => Some(&MINUTE_OF_CLIENTS),
            Self::Info | Self::Warning => Some(&MINUTE),
            Self::Audit => None,
        }
    }
}

/// Writes a line, unless the limit of its kind is reached.
pub(crate) fn write_limited(level: LogLevel, message: fmt::Arguments<'_>) {
    let Some(dropped) = level.line_counter().map_or(Some(0), count_line) else { return };
    if dropped > 0 {
        write_line(LogLevel::Warning, &format!("lines dropped because of the limit: {dropped}"));
    }
    write_line(level, &message.to_string());
}

/// Counts a line: returns how many were dropped before it, or `None` if this one must be dropped.
fn count_line(minute: &Mutex<MinuteCount>) -> Option<u32> {
    let mut minute = minute.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if minute.began.is_none_or(|began| began.elapsed() > Duration::from_secs(60)) {
        let dropped = minute.dropped;
        *minute = MinuteCount { began: Some(Instant::now()), ..MinuteCount::NEW };
        return Some(dropped);
    }
    if minute.lines >= MAX_LINES_PER_MINUTE {
        minute.dropped = minute.dropped.saturating_add(1);
        return None;
    }
    minute.lines += 1;
    Some(0)
}

fn write_line(level: LogLevel, message: &str) {
    let time = FileTime::now();
    let level = match level {
        LogLevel::Info | LogLevel::Enable | LogLevel::Audit => "info",
        LogLevel::Warning | LogLevel::Client => "warning",
        LogLevel::Refusal => "refused",
    };
    // A log that cannot be written must not stop the daemon.
    let _ = writeln!(std::io::stderr(), "{time} {level} {}", sanitize(message));
}

/// Shortens a text and replaces harmful characters.
fn sanitize(text: &str) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{061C}' | '\u{FEFF}')
    };
    text.chars().take(MAX_LINE_CHARS).map(|c| if is_harmful(c) { '?' } else { c }).collect()
}

/// Logs normal operation.
macro_rules! log_info {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Info, format_args!($($arg)*)) };
}

/// Logs a problem.
macro_rules! log_warning {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Warning, format_args!($($arg)*)) };
}

/// Logs a request that was refused.
macro_rules! log_refusal {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Refusal, format_args!($($arg)*)) };
}

/// Logs an enable of a provider.
macro_rules! log_enable {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Enable, format_args!($($arg)*)) };
}

/// Logs a report of a client process, or an effect of what it does.
macro_rules! log_client {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Client, format_args!($($arg)*)) };
}

/// Logs a change of access rights.
macro_rules! log_audit {
    ($($arg:tt)*) => { $crate::log::write_limited($crate::log::LogLevel::Audit, format_args!($($arg)*)) };
}

pub(crate) use {log_audit, log_client, log_enable, log_info, log_refusal, log_warning};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_lines_have_a_limit_of_their_own() {
        let clients = Mutex::new(MinuteCount::NEW);
        let counted = (0..MAX_LINES_PER_MINUTE + 30).filter(|_| count_line(&clients).is_some()).count();
        assert_eq!(counted as u32, MAX_LINES_PER_MINUTE + 1);
        assert_eq!(clients.lock().unwrap().dropped, 29);
        let counter = |level: LogLevel| level.line_counter().map(std::ptr::from_ref);
        assert_ne!(counter(LogLevel::Client), counter(LogLevel::Info));
        assert_ne!(counter(LogLevel::Client), counter(LogLevel::Refusal));
        assert_eq!(counter(LogLevel::Audit), None, "audit lines have no limit");
    }

    #[test]
    fn client_text_cannot_break_reverse_or_fill_a_line() {
        assert_eq!(sanitize("a\nb\u{1b}[2Jc\u{202e}d\u{2028}e\u{feff}é"), "a?b?[2Jc?d?e?é");
        assert_eq!(sanitize(&"é".repeat(5000)).chars().count(), MAX_LINE_CHARS);
    }
}
