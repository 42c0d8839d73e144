//! Sessions of one modelled controller: valid and invalid calls that start, stop, update or flush a
//! session, switch to its next file, or convert it to real time.

use std::path::PathBuf;

use traceweir::Status;
use traceweir::controller::{Properties, SessionConfig, Update};
use traceweir_format::spec::session::*;

use super::logs::is_empty;
use super::model::{KeptEvents, ModelSession, numbered_path};
use super::modelled_controller::{ModelledController, NAMES};
use crate::helpers::{
    ALREADY_EXISTS, BAD_PATHNAME, INSTANCE_NOT_FOUND, INVALID_FUNCTION, INVALID_PARAMETER, PATH_NOT_FOUND,
    SUCCESS, status,
};

const SEQUENTIAL: u32 = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
const NEW_FILE: u32 = EVENT_TRACE_FILE_MODE_NEWFILE | EVENT_TRACE_USE_KBYTES_FOR_SIZE;
const APPEND: u32 = EVENT_TRACE_FILE_MODE_APPEND;
const BUFFERING: u32 = EVENT_TRACE_BUFFERING_MODE;
const REAL_TIME: u32 = EVENT_TRACE_REAL_TIME_MODE;

/// Kinds of sessions: mode and file size limit, in KiB with `EVENT_TRACE_USE_KBYTES_FOR_SIZE` and
/// otherwise in MiB.
const SESSION_KINDS: [(u32, u32); 15] = [
    (SEQUENTIAL, 0),
    (EVENT_TRACE_FILE_MODE_CIRCULAR | EVENT_TRACE_USE_KBYTES_FOR_SIZE, 64),
    (REAL_TIME, 0),
    (BUFFERING, 0),
    (SEQUENTIAL | EVENT_TRACE_COMPRESSED_MODE, 0),
    (0, 0),
    (SEQUENTIAL | REAL_TIME, 0),
    (SEQUENTIAL | EVENT_TRACE_SECURE_MODE, 0),
    (SEQUENTIAL | EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, 0),
    (SEQUENTIAL | EVENT_TRACE_FILE_MODE_PREALLOCATE, 1),
    (NEW_FILE, 64),
    (NEW_FILE | EVENT_TRACE_COMPRESSED_MODE, 64),
    (NEW_FILE | EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING, 64),
    // Appending sessions are listed twice, so that they are chosen more often.
    (APPEND, 0),
    (APPEND, 0),
];
/// Number of kinds at the start of `SESSION_KINDS` that shared sessions and invalid starts use.
/// Sessions of these kinds have one file at most, and do not append to it.
pub(super) const SINGLE_FILE_KINDS: usize = 5;

impl ModelledController<'_> {
    /// Returns the configuration of a session of this kind, with small buffers.
    pub(super) fn small_config(&mut self, name: String, kind: usize) -> SessionConfig {
        let (log_file_mode, maximum_file_size) = SESSION_KINDS[kind];
        let has_file = log_file_mode != REAL_TIME;
        SessionConfig {
            name,
            log_file_mode,
            maximum_file_size,
            log_file: has_file.then(|| self.path(log_file_mode)),
            buffer_size: 4,
            // An appending session must use the system time (2); 0 is the default clock.
            clock: if log_file_mode & APPEND != 0 { 2 } else { 0 },
            maximum_buffers: self.random_below(3) as u32 * 25,
            ..SessionConfig::default()
        }
    }

    /// Returns a new name for a file, or for a file sequence.
    fn path(&self, mode: u32) -> PathBuf {
        let path = self.fixture.unique_path();
        match (mode & EVENT_TRACE_FILE_MODE_NEWFILE, path.file_stem()) {
            (0, _) | (_, None) => path,
            (_, Some(stem)) => path.with_file_name(format!("{}-%d.etl", stem.to_string_lossy())),
        }
    }

    pub(super) fn start(&mut self) {
        let (name, kind) = (self.random_index(NAMES), self.random_index(SESSION_KINDS.len()));
        let mut config = self.small_config(self.name(name), kind);
        let is_continued = config.log_file_mode == APPEND && self.one_in(2);
        let before = self.appended_log.take_if(|_| is_continued);
        if let Some((path, _)) = &before {
            config.log_file = Some(path.clone());
        }
        let expected_status = if self.running[name].is_some() { ALREADY_EXISTS } else { SUCCESS };
        match self.controller.start(&config) {
            Ok(properties) => {
                self.expect("start", SUCCESS, &[expected_status]);
                let expected = before.map(|(_, expected)| expected).unwrap_or_default();
                let continues_log = !expected.required.is_empty() || !expected.possible.is_empty();
                let mut model = ModelSession::new(properties.id, &config, expected);
                // A continued log also has the events of earlier sessions, so the number of events
                // in the file is not compared with that of the session.
                model.is_all_in_files &= !continues_log;
                // The daemon chooses the GUID at the start.
                model.config.guid = properties.config.guid;
                self.running[name] = Some(model);
                self.compare("start", name, Ok(properties));
            }
            Err(error) => {
                self.expect(&format!("start: {error}"), error.status(), &[expected_status]);
                match before {
                    Some(before) => self.appended_log = Some(before),
                    None => self.expect_no_file(config.log_file.map(|path| numbered_path(&path, 1))),
                }
            }
        }
        self.write();
    }

    pub(super) fn expect_no_file(&mut self, path: Option<PathBuf>) {
        if path.as_ref().is_some_and(|path| path.exists()) {
            self.record_divergence(format!("a refused call left the file {path:?}"));
        }
    }

    pub(super) fn start_with_wrong_config(&mut self) {
        let (name, kind) = (self.random_index(NAMES), self.random_index(SINGLE_FILE_KINDS));
        let config = self.small_config(self.name(name), kind);
        let with_mode = |log_file_mode| SessionConfig { log_file_mode, ..config.clone() };
        let log_file = Some(self.fixture.folder().join("no such folder").join("x.etl"));
        let (wrong_config, allowed): (_, &[Status]) = match self.random_below(12) {
            0 => (with_mode(SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR), &[INVALID_PARAMETER]),
            1 => (SessionConfig { clock: 9, ..config }, &[INVALID_PARAMETER]),
            2 => (SessionConfig { log_file: None, ..with_mode(SEQUENTIAL) }, &[BAD_PATHNAME]),
            3 => (SessionConfig { name: String::new(), ..config }, &[INVALID_PARAMETER]),
            4 => (
                SessionConfig { maximum_file_size: 0, ..with_mode(EVENT_TRACE_FILE_MODE_CIRCULAR) },
                &[INVALID_PARAMETER],
            ),
            5 => {
                let log_file = Some(self.fixture.unique_path());
                (
                    SessionConfig { maximum_file_size: 64, log_file, ..with_mode(NEW_FILE) },
                    &[INVALID_PARAMETER],
                )
            }
            6 => (SessionConfig { clock: 1, ..with_mode(APPEND) }, &[INVALID_PARAMETER]),
            7 => (with_mode(APPEND | REAL_TIME), &[INVALID_PARAMETER]),
            8 => (
                SessionConfig {
                    maximum_file_size: 0,
                    ..with_mode(SEQUENTIAL | EVENT_TRACE_FILE_MODE_PREALLOCATE)
                },
                &[INVALID_PARAMETER],
            ),
            9 => (
                SessionConfig {
                    maximum_file_size: 64,
                    ..with_mode(
                        EVENT_TRACE_FILE_MODE_CIRCULAR
                            | EVENT_TRACE_USE_KBYTES_FOR_SIZE
                            | EVENT_TRACE_COMPRESSED_MODE,
                    )
                },
                &[INVALID_PARAMETER],
            ),
            _ if self.running[name].is_some() => {
                (SessionConfig { log_file, ..with_mode(SEQUENTIAL) }, &[ALREADY_EXISTS])
            }
            _ => (SessionConfig { log_file, ..with_mode(SEQUENTIAL) }, &[PATH_NOT_FOUND]),
        };
        let answer = status(self.controller.start(&wrong_config));
        self.expect(&format!("wrong start {:#x}", wrong_config.log_file_mode), answer, allowed);
        self.expect_no_file(wrong_config.log_file);
    }

    pub(super) fn stop(&mut self) {
        let name = self.random_index(NAMES);
        self.stop_named(name);
        self.write();
    }

    pub(super) fn stop_named(&mut self, name: usize) {
        let reference = self.reference(name);
        let answer = self.controller.stop(&reference);
        let expected_status = self.running_status(name);
        match answer {
            Ok(end) => {
                self.expect("stop", SUCCESS, &[expected_status]);
                if let Some(mut model) = self.running[name].take() {
                    if !model.is_shown_by(&end.config) {
                        self.record_divergence(format!("stop: {:?}, and not {:?}", end.config, model.config));
                    }
                    self.check_end(model, &end);
                }
            }
            Err(error) => self.expect(&format!("stop: {error}"), error.status(), &[expected_status]),
        }
    }

    /// Checks the log of a session that has ended.
    fn check_end(&mut self, mut model: ModelSession, end: &Properties) {
        self.end_file(&mut model, end.events_lost);
        if model.is_all_in_files && end.events_lost == 0 && model.found_events != end.events {
            let text = format!(
                "the session has {} events, and its files {}: {:?}",
                end.events, model.found_events, end.config
            );
            self.results.broken_logs.push(text);
        }
    }

    /// Ends the file or file sequence of a session and checks its events. An appended file may be
    /// kept for a later session; other files are removed.
    fn end_file(&mut self, model: &mut ModelSession, lost: u64) {
        let (files, kept_events) = (model.files(), model.kept_events());
        let expected = std::mem::take(&mut model.enabled_providers.expected);
        let is_recorder = model.has(BUFFERING);
        let is_empty_log = files.is_empty() || is_recorder && files.iter().all(|path| is_empty(path));
        if !is_empty_log {
            model.found_events += self.check_log(&files, &expected, kept_events, lost);
        }
        match &model.config.log_file {
            Some(path) if model.has(APPEND) && lost == 0 && self.appended_log.is_none() => {
                self.appended_log = Some((path.clone(), expected));
            }
            _ => self.remove(&files),
        }
    }

    pub(super) fn flush(&mut self) {
        let name = self.random_index(NAMES);
        let reference = self.reference(name);
        if !self.one_in(3) {
            let answer = self.controller.flush(&reference, None);
            return self.compare("flush", name, answer);
        }
        let path = self.fixture.unique_path();
        let answer = self.controller.flush(&reference, Some(path.clone()));
        match (&self.running[name], answer) {
            (Some(model), Ok(properties)) if model.has(BUFFERING) => {
                let expected = model.enabled_providers.expected.clone();
                self.check_log(
                    std::slice::from_ref(&path),
                    &expected,
                    KeptEvents::Newest,
                    properties.events_lost,
                );
                self.compare("snapshot", name, Ok(properties));
                self.remove(&[path]);
            }
            (model, answer) => {
                let expected_status = if model.is_some() { INVALID_PARAMETER } else { INSTANCE_NOT_FOUND };
                self.expect("snapshot", status(answer), &[expected_status]);
                self.expect_no_file(Some(path));
            }
        }
    }

    pub(super) fn update(&mut self) {
        let name = self.random_index(NAMES);
        let (seconds, buffers) = (self.random_below(4) as u32, self.random_below(3) as u32 * 30);
        let real_time = self.one_in(3).then(|| self.one_in(2));
        let switches_file = self.one_in(8);
        let reference = self.reference(name);
        let Some(mut model) = self.running[name].take() else {
            let answer = status(self.controller.update(&reference, &Update::default()));
            return self.expect("update", answer, &[INSTANCE_NOT_FOUND]);
        };
        let has_file = model.config.log_file.is_some();
        let changes_mode = real_time.is_some_and(|is_on| is_on != model.has(REAL_TIME));
        // A session without a file cannot leave real-time mode. A flight recorder or an appending
        // session cannot enter it.
        let is_allowed = !changes_mode || has_file && !model.has(BUFFERING | APPEND);
        let switches_file = switches_file && is_allowed && has_file && !model.has(BUFFERING);
        let log_file = switches_file.then(|| self.path(model.config.log_file_mode));
        let update = Update {
            flush_timer: Some(seconds),
            maximum_buffers: Some(buffers),
            real_time,
            log_file: log_file.clone(),
            ..Update::default()
        };
        let answer = self.controller.update(&reference, &update);
        if let Ok(properties) = &answer {
            model.update(seconds, buffers, real_time);
            if let Some(new_path) = log_file {
                self.end_file(&mut model, properties.events_lost);
                model.switch_file(new_path);
            }
        }
        self.running[name] = Some(model);
        match is_allowed {
            true => self.compare("update", name, answer),
            false => self.expect("update of real-time mode", status(answer), &[INVALID_PARAMETER]),
        }
        self.write();
    }

    pub(super) fn update_with_wrong_values(&mut self) {
        let name = self.random_index(NAMES);
        let config = self.running[name].as_ref().map(|model| model.config.clone()).unwrap_or_default();
        let flags_update = (Update { enable_flags: Some(1), ..Update::default() }, INVALID_PARAMETER);
        let (update, expected_status) = match config.log_file_mode {
            _ if self.one_in(3) => flags_update,
            mode if mode & EVENT_TRACE_FILE_MODE_NEWFILE != 0 => (
                Update { log_file: Some(self.fixture.unique_path()), ..Update::default() },
                INVALID_PARAMETER,
            ),
            BUFFERING => (Update { real_time: Some(true), ..Update::default() }, INVALID_PARAMETER),
            _ if config.log_file.is_none() => {
                (Update { real_time: Some(false), ..Update::default() }, INVALID_PARAMETER)
            }
            _ => (Update { log_file: config.log_file, ..Update::default() }, BAD_PATHNAME),
        };
        let reference = self.reference(name);
        let answer = status(self.controller.update(&reference, &update));
        let expected_status = if self.running[name].is_some() { expected_status } else { INSTANCE_NOT_FOUND };
        self.expect("wrong update", answer, &[expected_status]);
    }

    pub(super) fn increment(&mut self) {
        let name = self.random_index(NAMES);
        let reference = self.reference(name);
        let answer = self.controller.increment(&reference);
        match &mut self.running[name] {
            Some(model) if model.file_pattern.is_some() => {
                // The sequence advances by one file or more, because it also advances by itself.
                let file_count = model.files().len() as u32;
                if let (Ok(properties), Some(file_pattern)) = (&answer, &model.file_pattern) {
                    let current_number = (2..=file_count + 1).find(|number| {
                        properties.config.log_file == Some(numbered_path(file_pattern, *number))
                    });
                    let previous_file = model.config.log_file.clone();
                    model.config.log_file = current_number.map(|number| numbered_path(file_pattern, number));
                    if model.config.log_file == previous_file {
                        self.record_divergence(format!("increment: still {previous_file:?}"));
                    }
                }
                self.compare("increment", name, answer);
            }
            Some(_) => self.expect("increment without a file sequence", status(answer), &[INVALID_FUNCTION]),
            None => self.expect("increment", status(answer), &[INSTANCE_NOT_FOUND]),
        }
        self.write();
    }

    pub(super) fn convert(&mut self) {
        let name = self.random_index(NAMES);
        let reference = self.reference(name);
        let answer = self.controller.convert_to_real_time(&reference);
        let Some(mut model) = self.running[name].take() else {
            return self.expect("convert", status(answer), &[INSTANCE_NOT_FOUND]);
        };
        let is_allowed = model.config.log_file.is_some() && !model.has(BUFFERING);
        if let (true, Ok(properties)) = (is_allowed, &answer) {
            self.end_file(&mut model, properties.events_lost);
            model.convert();
        }
        self.running[name] = Some(model);
        match is_allowed {
            true => self.compare("convert", name, answer),
            false => self.expect("convert without a file", status(answer), &[INVALID_FUNCTION]),
        }
        self.write();
    }
}
