//! A session as its file describes it: the published value names, their defaults, and what is put right.
//!
//! ```text
//!   Start 0 · Guid (required) · BufferSize, MinimumBuffers, MaximumBuffers (computed) · ClockType 1 · FlushTimer 0
//!   LogFileMode 1 · FileName LOGS/NAME.etl · MaxFileSize 100 (MiB; 0: no limit) · FileMax 0 (2 to 16 generations)
//!   DisableRealtimePersistence 0 · Boot 0           taken and without effect: see docs/autologger.md
//!
//!   [GUID or name]   Enabled 0 · EnableLevel 0 · EnableProperty 0 · MatchAnyKeyword 0 · MatchAllKeyword 0 · EnableFlags · filters
//! ```
//!
//! Two kinds of mistakes: what is no definition at all (a wrong line, an unknown name, no GUID) is an error with its line; a value that
//! cannot be honoured is corrected, and [`Corrected`] says so for the log. Source: Documented ("Configuring and Starting an AutoLogger
//! Session").

use std::path::{Path, PathBuf};

use traceweir_format::Guid;
use traceweir_format::spec::session::{
    EVENT_TRACE_BLOCKING_MODE, EVENT_TRACE_BUFFER_INTERFACE_MODE, EVENT_TRACE_BUFFERING_MODE,
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE,
    EVENT_TRACE_FILE_MODE_PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_KD_FILTER_MODE,
    EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE,
    EVENT_TRACE_RELOG_MODE, EVENT_TRACE_SYSTEM_LOGGER_MODE, EVENT_TRACE_USE_MS_FLUSH_TIMER,
};
use traceweir_transport::message::SessionConfig;

use super::provider::Provider;
use crate::conf::{self, Entry, Section, Wrong, quote};

/// Generations of a log at most.
const MAX_GENERATIONS: u32 = 16;
/// MiB of a log where no limit is given.
const USUAL_SIZE: u32 = 100;
/// KiB of a buffer: less than one MiB, in steps of four.
const MAX_BUFFER_KIB: u32 = 1020;

/// Modes that an autologger cannot have: rows of files, kernel events, sessions of one process, internal ones.
const IMPOSSIBLE: u32 = EVENT_TRACE_FILE_MODE_NEWFILE
    | EVENT_TRACE_SYSTEM_LOGGER_MODE
    | EVENT_TRACE_PRIVATE_LOGGER_MODE
    | EVENT_TRACE_PRIVATE_IN_PROC
    | EVENT_TRACE_USE_MS_FLUSH_TIMER
    | EVENT_TRACE_RELOG_MODE
    | EVENT_TRACE_BUFFER_INTERFACE_MODE
    | EVENT_TRACE_KD_FILTER_MODE
    | EVENT_TRACE_BLOCKING_MODE;
const FILE_MODES: u32 =
    EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_FILE_MODE_APPEND;
const SIZED_MODES: u32 = EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_FILE_MODE_PREALLOCATE;

/// A session that is to run from the daemon's start on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The session's name, which is also the file's.
    pub name: String,
    /// Whether it is started (Start).
    pub start: bool,
    /// Its GUID (Guid).
    pub guid: Guid,
    /// KiB of a buffer; 0: the usual (BufferSize).
    pub buffer_size: u32,
    /// Buffers at least; 0: as many as are needed (MinimumBuffers).
    pub minimum_buffers: u32,
    /// Buffers at most; 0: some more (MaximumBuffers).
    pub maximum_buffers: u32,
    /// As ClientContext: 1 counter, 2 system time, 3 cycles (ClockType).
    pub clock_type: u32,
    /// The log file; none: in the folder of logs (FileName).
    pub file_name: Option<PathBuf>,
    /// Generations of the log; 0: one, without a number (FileMax).
    pub file_max: u32,
    /// Seconds (FlushTimer).
    pub flush_timer: u32,
    /// `EVENT_TRACE_…_MODE` bits (LogFileMode).
    pub log_file_mode: u32,
    /// MiB; 0: no limit (MaxFileSize).
    pub max_file_size: u32,
    /// What it wants from whom.
    pub providers: Vec<Provider>,
}

/// A value that could not be honoured, and what holds instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrected(pub String);

impl Definition {
    /// A session with the published defaults, which is started.
    #[must_use]
    pub fn new(name: &str, guid: Guid) -> Self {
        Self {
            name: name.to_owned(),
            start: true,
            guid,
            buffer_size: 0,
            minimum_buffers: 0,
            maximum_buffers: 0,
            clock_type: 1,
            file_name: None,
            file_max: 0,
            flush_timer: 0,
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            max_file_size: USUAL_SIZE,
            providers: Vec::new(),
        }
    }

    /// The session that a file of this name describes.
    pub fn parse(name: &str, text: &str) -> Result<Self, Wrong> {
        let mut definition = Self { start: false, ..Self::new(name, Guid::NULL) };
        let sections = conf::parse(text)?;
        let (top, providers) = sections.split_first().unwrap_or((const { &EMPTY }, &[]));
        for entry in &top.entries {
            definition.set(entry)?;
        }
        if definition.guid.is_null() {
            return Err(Wrong::new(
                0,
                "Guid is missing: a session needs one of its own, such as uuidgen makes",
            ));
        }
        for section in providers {
            let provider = Provider::read(section)?;
            if definition.providers.iter().any(|other| other.guid == provider.guid) {
                return Err(Wrong::new(section.line, format!("{} has a section already", section.heading)));
            }
            definition.providers.push(provider);
        }
        Ok(definition)
    }

    fn set(&mut self, entry: &Entry) -> Result<(), Wrong> {
        match entry.name.as_str() {
            "Start" => self.start = entry.number(1)? == 1,
            "Guid" => {
                let guid = entry.text()?.parse().ok().filter(|guid: &Guid| !guid.is_null());
                self.guid = guid.ok_or_else(|| entry.wrong("Guid is a GUID, and not the null one"))?;
            }
            "BufferSize" => self.buffer_size = entry.word()?,
            "MinimumBuffers" => self.minimum_buffers = entry.word()?,
            "MaximumBuffers" => self.maximum_buffers = entry.word()?,
            "ClockType" => self.clock_type = entry.word()?,
            "FileName" => {
                let path = Path::new(entry.text()?);
                if !path.is_absolute() {
                    return Err(entry.wrong("FileName is an absolute path: no folder is the current one"));
                }
                self.file_name = Some(path.to_owned());
            }
            "FileMax" => self.file_max = entry.word()?,
            "FlushTimer" => self.flush_timer = entry.word()?,
            "LogFileMode" => self.log_file_mode = entry.word()?,
            "MaxFileSize" => self.max_file_size = entry.word()?,
            // Taken for the sake of files that have them; the last two are kept in the folder of state.
            "DisableRealtimePersistence" | "Boot" | "Status" | "FileCounter" => drop(entry.word()?),
            other => return Err(entry.wrong(format!("{other} is no value of an autologger"))),
        }
        Ok(())
    }

    /// The text of a file that describes it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut lines = vec![
            format!("Start = {}", u8::from(self.start)),
            format!("Guid = {}", quote(&self.guid.to_string())),
            format!("LogFileMode = {:#x}", self.log_file_mode),
        ];
        lines.extend(
            self.file_name.iter().map(|path| format!("FileName = {}", quote(&path.to_string_lossy()))),
        );
        lines.push(format!("MaxFileSize = {}", self.max_file_size));
        for (name, value, usual) in [
            ("FileMax", self.file_max, 0),
            ("BufferSize", self.buffer_size, 0),
            ("MinimumBuffers", self.minimum_buffers, 0),
            ("MaximumBuffers", self.maximum_buffers, 0),
            ("ClockType", self.clock_type, 1),
            ("FlushTimer", self.flush_timer, 0),
        ] {
            if value != usual {
                lines.push(format!("{name} = {value}"));
            }
        }
        for provider in &self.providers {
            lines.push(String::new());
            lines.extend(provider.lines());
        }
        lines.join("\n") + "\n"
    }

    /// Puts right what cannot be honoured, and says what was.
    pub fn correct(&mut self) -> Vec<Corrected> {
        let mut notes = Vec::new();
        let mut note = |name: &str, is: String, now: String| {
            notes.push(Corrected(format!("{name} {is} cannot be honoured: {now} it is")));
        };
        let mode = self.log_file_mode & !IMPOSSIBLE;
        let kinds = FILE_MODES | EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_BUFFERING_MODE;
        let mode = if mode & kinds == 0 { mode | EVENT_TRACE_FILE_MODE_SEQUENTIAL } else { mode };
        if mode != self.log_file_mode {
            note("LogFileMode", format!("{:#x}", self.log_file_mode), format!("{mode:#x}"));
            self.log_file_mode = mode;
        }
        let size =
            if mode & SIZED_MODES != 0 && self.max_file_size == 0 { USUAL_SIZE } else { self.max_file_size };
        let generations = if self.file_max == 1 { 0 } else { self.file_max.min(MAX_GENERATIONS) };
        let clock = if (1..=3).contains(&self.clock_type) { self.clock_type } else { 1 };
        let buffer = self.buffer_size.min(MAX_BUFFER_KIB);
        for (name, value, right) in [
            ("MaxFileSize", &mut self.max_file_size, size),
            ("FileMax", &mut self.file_max, generations),
            ("ClockType", &mut self.clock_type, clock),
            ("BufferSize", &mut self.buffer_size, buffer),
        ] {
            if *value != right {
                note(name, value.to_string(), right.to_string());
                *value = right;
            }
        }
        for provider in &mut self.providers {
            notes.extend(provider.correct());
        }
        notes
    }

    /// Whether it writes a file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.log_file_mode & FILE_MODES != 0 || self.file_name.is_some()
    }

    /// What is started, with this log file.
    #[must_use]
    pub fn config(&self, log_file: Option<PathBuf>) -> SessionConfig {
        SessionConfig {
            name: self.name.clone(),
            guid: self.guid,
            log_file_mode: self.log_file_mode,
            clock: self.clock_type,
            buffer_size: self.buffer_size,
            minimum_buffers: self.minimum_buffers,
            maximum_buffers: self.maximum_buffers,
            maximum_file_size: self.max_file_size,
            flush_timer: self.flush_timer,
            log_file,
            ..SessionConfig::default()
        }
    }
}

/// A file without a line.
static EMPTY: Section = Section { heading: String::new(), line: 0, entries: Vec::new() };

#[cfg(test)]
mod tests;
