//! A session as defined by its file: the documented value names, each with its default, and
//! corrections.
//!
//! ```text
//!   Start 0 · Guid (required) · BufferSize, MinimumBuffers, MaximumBuffers (computed)
//!   ClockType 1 · FlushTimer 0 · LogFileMode 1 · FileName LOGS/NAME.etl
//!   MaxFileSize 100 (MiB; 0: no limit) · FileMax 0 (2 to 16 generations)
//!   DisableRealtimePersistence 0 · Boot 0    accepted without effect: see docs/autologger.md
//!
//!   [GUID or name]   Enabled 0 · EnableLevel 0 · EnableProperty 0 · MatchAnyKeyword 0
//!                    MatchAllKeyword 0 · EnableFlags · filters
//! ```
//!
//! There are two kinds of mistakes. An invalid line or an unknown name is an error with its line
//! number; a missing GUID is an error of the whole file. A number that cannot be used is corrected,
//! and a [`Correction`] describes the change for the log. Source: Documented ("Configuring and
//! Starting an AutoLogger Session").

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

use super::provider::{AutologgerProvider, Correction};
use crate::conf::{self, ConfEntry, ConfSection, ConfigError, quote};

/// Maximum number of generations of a log.
const MAX_GENERATIONS: u32 = 16;
/// Default size limit of a log in MiB.
const DEFAULT_SIZE_MIB: u32 = 100;
/// Maximum size of a buffer in KiB: less than one MiB, in steps of four.
const MAX_BUFFER_KIB: u32 = 1020;

/// Modes that an autologger cannot have: file sequences, kernel events, private sessions, flush
/// timers in milliseconds, internal modes.
const UNSUPPORTED_MODES: u32 = EVENT_TRACE_FILE_MODE_NEWFILE
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
/// Modes that need a maximum size.
const SIZED_MODES: u32 = EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_FILE_MODE_PREALLOCATE;

/// The definition of a session that runs from the daemon's start on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutologgerDefinition {
    /// The name of the session, and of the definition file without its extension.
    pub name: String,
    /// Whether the session is started (Start).
    pub start: bool,
    /// The session's GUID (Guid).
    pub guid: Guid,
    /// Size of a buffer in KiB; 0: default (BufferSize).
    pub buffer_size: u32,
    /// Minimum number of buffers; 0: as many as needed (MinimumBuffers).
    pub minimum_buffers: u32,
    /// Maximum number of buffers; 0: some more than the minimum (MaximumBuffers).
    pub maximum_buffers: u32,
    /// The clock as in ClientContext: 1 performance counter, 2 system time, 3 CPU cycles
    /// (ClockType).
    pub clock_type: u32,
    /// The log file; `None`: NAME.etl in the folder of logs (FileName).
    pub file_name: Option<PathBuf>,
    /// Number of generations of the log; 0: one, without a number (FileMax).
    pub file_max: u32,
    /// The flush interval in seconds (FlushTimer).
    pub flush_timer: u32,
    /// The `EVENT_TRACE_…_MODE` bits (LogFileMode).
    pub log_file_mode: u32,
    /// Maximum size of the log in MiB; 0: no limit (MaxFileSize).
    pub max_file_size: u32,
    /// The providers that the session enables.
    pub providers: Vec<AutologgerProvider>,
}

impl AutologgerDefinition {
    /// Creates the definition of a session that is started, with the documented defaults.
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
            max_file_size: DEFAULT_SIZE_MIB,
            providers: Vec::new(),
        }
    }

    /// Parses the text of the file that defines the session `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut definition = Self { start: false, ..Self::new(name, Guid::NULL) };
        let sections = conf::parse(text)?;
        let (top, providers) = sections.split_first().unwrap_or((const { &EMPTY }, &[]));
        for entry in &top.entries {
            definition.set(entry)?;
        }
        if definition.guid.is_null() {
            return Err(ConfigError::new(
                0,
                "Guid is missing: a session needs one of its own, for example from uuidgen",
            ));
        }
        for section in providers {
            let provider = AutologgerProvider::parse_section(section)?;
            if definition.providers.iter().any(|other| other.guid == provider.guid) {
                return Err(ConfigError::new(
                    section.line,
                    format!("{} already has a section", section.heading),
                ));
            }
            definition.providers.push(provider);
        }
        Ok(definition)
    }

    fn set(&mut self, entry: &ConfEntry) -> Result<(), ConfigError> {
        match entry.name.as_str() {
            "Start" => self.start = entry.as_number(1)? == 1,
            "Guid" => {
                let guid = entry.as_text()?.parse().ok().filter(|guid: &Guid| !guid.is_null());
                self.guid =
                    guid.ok_or_else(|| entry.error("Guid must be a GUID other than the null GUID"))?;
            }
            "BufferSize" => self.buffer_size = entry.as_u32()?,
            "MinimumBuffers" => self.minimum_buffers = entry.as_u32()?,
            "MaximumBuffers" => self.maximum_buffers = entry.as_u32()?,
            "ClockType" => self.clock_type = entry.as_u32()?,
            "FileName" => {
                let path = Path::new(entry.as_text()?);
                if !path.is_absolute() {
                    return Err(entry.error("FileName must be an absolute path"));
                }
                self.file_name = Some(path.to_owned());
            }
            "FileMax" => self.file_max = entry.as_u32()?,
            "FlushTimer" => self.flush_timer = entry.as_u32()?,
            "LogFileMode" => self.log_file_mode = entry.as_u32()?,
            "MaxFileSize" => self.max_file_size = entry.as_u32()?,
            // Accepted because existing files have them; the daemon stores the last two in its
            // state folder.
            "DisableRealtimePersistence" | "Boot" | "Status" | "FileCounter" => drop(entry.as_u32()?),
            other => return Err(entry.error(format!("{other} is not a value of an autologger"))),
        }
        Ok(())
    }

    /// Returns the text of a file that defines the session.
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
        for (name, value, default) in [
            ("FileMax", self.file_max, 0),
            ("BufferSize", self.buffer_size, 0),
            ("MinimumBuffers", self.minimum_buffers, 0),
            ("MaximumBuffers", self.maximum_buffers, 0),
            ("ClockType", self.clock_type, 1),
            ("FlushTimer", self.flush_timer, 0),
        ] {
            if value != default {
                lines.push(format!("{name} = {value}"));
            }
        }
        for provider in &self.providers {
            lines.push(String::new());
            lines.extend(provider.to_lines());
        }
        lines.join("\n") + "\n"
    }

    /// Replaces unusable values with usable ones; returns the corrections.
    pub fn correct(&mut self) -> Vec<Correction> {
        let mut corrections = Vec::new();
        let mut add_correction = |name: &str, old: String, new: String| {
            corrections.push(Correction(format!("{name} {old} cannot be used: it becomes {new}")));
        };
        let mode = self.log_file_mode & !UNSUPPORTED_MODES;
        let output_modes = FILE_MODES | EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_BUFFERING_MODE;
        let mode = if mode & output_modes == 0 { mode | EVENT_TRACE_FILE_MODE_SEQUENTIAL } else { mode };
        if mode != self.log_file_mode {
            add_correction("LogFileMode", format!("{:#x}", self.log_file_mode), format!("{mode:#x}"));
            self.log_file_mode = mode;
        }
        let size = if mode & SIZED_MODES != 0 && self.max_file_size == 0 {
            DEFAULT_SIZE_MIB
        } else {
            self.max_file_size
        };
        let generations = if self.file_max == 1 { 0 } else { self.file_max.min(MAX_GENERATIONS) };
        let clock = if (1..=3).contains(&self.clock_type) { self.clock_type } else { 1 };
        let buffer = self.buffer_size.min(MAX_BUFFER_KIB);
        for (name, value, corrected) in [
            ("MaxFileSize", &mut self.max_file_size, size),
            ("FileMax", &mut self.file_max, generations),
            ("ClockType", &mut self.clock_type, clock),
            ("BufferSize", &mut self.buffer_size, buffer),
        ] {
            if *value != corrected {
                add_correction(name, value.to_string(), corrected.to_string());
                *value = corrected;
            }
        }
        for provider in &mut self.providers {
            corrections.extend(provider.correct());
        }
        corrections
    }

    /// Returns whether the session writes a file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.log_file_mode & FILE_MODES != 0 || self.file_name.is_some()
    }

    /// Returns the session configuration with this log file.
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

/// The section of an empty file.
static EMPTY: ConfSection = ConfSection { heading: String::new(), line: 0, entries: Vec::new() };

#[cfg(test)]
mod tests;
