//! Checks that the log files contain exactly the events of this controller that its model predicts.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use traceweir::controller::Properties;
use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;

use super::model::{ExpectedEvents, KeptEvents};
use super::modelled_controller::ModelledController;
use crate::helpers::{RecordedEvent, events_of};

impl ModelledController<'_> {
    /// Checks that the files of one log together hold the predicted events, and returns the number
    /// of events in the files. If the session lost events, any predicted events may be missing.
    pub(super) fn check_log(
        &mut self,
        files: &[PathBuf],
        expected: &ExpectedEvents,
        kept_events: KeptEvents,
        lost: u64,
    ) -> u64 {
        let mut seen = Vec::new();
        for path in files {
            self.results.logs += 1;
            match read_events(path) {
                Ok(events) => seen.extend(events.iter().map(event_number)),
                Err(reason) => self.record_broken_log(path, reason),
            }
        }
        let kept_events = if lost == 0 { kept_events } else { KeptEvents::Some };
        match expected.find_fault(&seen, kept_events) {
            Some(fault) => self.record_broken_log(&files.first().cloned().unwrap_or_default(), fault),
            None => {
                self.results.events +=
                    expected.required.len() as u64 * u64::from(kept_events == KeptEvents::All)
            }
        }
        seen.len() as u64
    }

    pub(super) fn record_broken_log(&mut self, path: &Path, reason: String) {
        self.results.broken_logs.push(format!("thread {}, {}: {reason}", self.number, path.display()));
    }

    pub(super) fn remove(&mut self, files: &[PathBuf]) {
        for path in files {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Checks that the log of a shared session is valid, and removes it.
    pub(super) fn check_shared_log(&mut self, end: &Properties) {
        let Some(path) = &end.config.log_file else { return };
        let is_recorder = end.config.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0;
        if !(is_recorder && is_empty(path)) {
            self.results.logs += 1;
            if let Err(reason) = read_events(path) {
                self.record_broken_log(path, reason);
            }
        }
        self.remove(std::slice::from_ref(path));
    }
}

/// Returns whether a file is empty. A flight recorder's file is empty before the first snapshot.
pub(super) fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0)
}

fn read_events(path: &Path) -> Result<Vec<RecordedEvent>, String> {
    catch_unwind(|| events_of(path)).map_err(|reason| match reason.downcast::<String>() {
        Ok(reason) => *reason,
        Err(_) => "the file cannot be read".to_owned(),
    })
}

fn event_number(seen: &RecordedEvent) -> u64 {
    seen.payload.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
