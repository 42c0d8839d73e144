//! What the log files hold: those events of this actor that its model says, and nothing else.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use traceweir::controller::Properties;
use traceweir_format::spec::session::EVENT_TRACE_BUFFERING_MODE;

use super::actor::Actor;
use super::model::{Keeps, Ledger};
use crate::stage::{Seen, events_of};

impl Actor<'_> {
    /// The files of one log hold what they must, together; how many events that is. Where some were lost by count, any may be missing.
    pub(super) fn check_log(&mut self, files: &[PathBuf], ledger: &Ledger, keeps: Keeps, lost: u64) -> u64 {
        let mut seen = Vec::new();
        for path in files {
            self.done.logs += 1;
            match read(path) {
                Ok(events) => seen.extend(events.iter().map(number_of)),
                Err(why) => self.breaks(path, why),
            }
        }
        let keeps = if lost == 0 { keeps } else { Keeps::Some };
        match ledger.fault(&seen, keeps) {
            Some(fault) => self.breaks(&files.first().cloned().unwrap_or_default(), fault),
            None => self.done.events += ledger.due.len() as u64 * u64::from(keeps == Keeps::All),
        }
        seen.len() as u64
    }

    pub(super) fn breaks(&mut self, path: &Path, why: String) {
        self.done.broken_logs.push(format!("thread {}, {}: {why}", self.number, path.display()));
    }

    pub(super) fn remove(&mut self, files: &[PathBuf]) {
        for path in files {
            let _ = std::fs::remove_file(path);
        }
    }

    /// The log of a session that all share is valid.
    pub(super) fn check_stranger(&mut self, end: &Properties) {
        let Some(path) = &end.config.log_file else { return };
        let is_recorder = end.config.log_file_mode & EVENT_TRACE_BUFFERING_MODE != 0;
        if !(is_recorder && is_empty(path)) {
            self.done.logs += 1;
            if let Err(why) = read(path) {
                self.breaks(path, why);
            }
        }
        self.remove(std::slice::from_ref(path));
    }
}

/// A recorder that was never asked has written nothing.
pub(super) fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.len() == 0)
}

fn read(path: &Path) -> Result<Vec<Seen>, String> {
    catch_unwind(|| events_of(path)).map_err(|why| match why.downcast::<String>() {
        Ok(why) => *why,
        Err(_) => "it cannot be read".to_owned(),
    })
}

fn number_of(seen: &Seen) -> u64 {
    seen.payload.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
