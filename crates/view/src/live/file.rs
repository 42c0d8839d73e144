//! Receives the events of a session that only writes a file, by reading the file as it grows.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use traceweir_analysis::event::ReadFlow;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::traces::TraceSet;
use traceweir_format::etl::{MergedFiles, Trace};

use super::{LiveTrace, NewLosses};

/// The least time between two readings of the file.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A reading takes at most one of this many parts of the time.
const POLL_SHARE: u32 = 5;
/// How often a file is opened again while its session writes its last buffer.
const MAX_OPENINGS: usize = 50;
const OPEN_INTERVAL: Duration = Duration::from_millis(20);

/// The file that a session writes.
pub struct GrowingFile {
    /// The name of the file.
    pub path: PathBuf,
    /// Returns whether the session still runs.
    pub is_running: Box<dyn Fn() -> bool + Send>,
}

/// Opens the file, without the schemas of `SchemaFiles`, which the view knows already.
pub(crate) fn open(file: &GrowingFile) -> Result<TraceSet> {
    let paths = [file.path.clone()];
    let open = || TraceSet::open(&paths, &SchemaFiles::default(), Arc::new(()));
    let mut set = open()?;
    for _ in 1..MAX_OPENINGS {
        if set.ends_with_whole_buffers() {
            break;
        }
        std::thread::sleep(OPEN_INTERVAL);
        set = open()?;
    }
    ensure!(set.inputs.len() == 1, "only one file can be followed");
    Ok(set)
}

impl LiveTrace {
    /// Receives events until the session finalises its file, the spool is full, or
    /// [`stop`](Self::stop).
    pub(crate) fn receive_file(&self, mut set: TraceSet, file: &GrowingFile) {
        let result = self.read_file(&mut set, file);
        self.end(result);
    }

    fn read_file(&self, set: &mut TraceSet, file: &GrowingFile) -> Result<()> {
        let mut followed = set.follow()?;
        if let Some(input) = set.inputs.first() {
            let mut files = MergedFiles::new([&input.trace]);
            while let Some(number) = files.next_file() {
                if let Some(record) = files.read(number)?
                    && self.add_record(&record).is_break()
                {
                    return Ok(());
                }
            }
        }
        let mut pause = POLL_INTERVAL;
        loop {
            // Asked before the file is read: a session that has ended adds nothing.
            let is_running = (file.is_running)();
            let begin = Instant::now();
            // Records are kept undecoded: only one that cannot be added reaches the second function.
            let flow = set.read_added(
                &mut followed,
                |record, _| self.add_record(record).is_break(),
                |_| Ok(ReadFlow::Stop),
            )?;
            if flow == ReadFlow::Stop {
                return Ok(());
            }
            if followed.is_finalised() || !is_running {
                self.add_losses_of(set)?;
                ensure!(followed.is_finalised(), "the session ended without finalising its file");
                ensure!(!is_running || !(file.is_running)(), "the session continues with another file");
                return Ok(());
            }
            pause = pause.max(begin.elapsed().saturating_mul(POLL_SHARE));
            if self.wait_for_stop(pause) {
                return Ok(());
            }
        }
    }

    fn wait_for_stop(&self, timeout: Duration) -> bool {
        let waited = self.has_news.wait_timeout_while(self.lock(), timeout, |state| !state.must_stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.must_stop
    }

    /// Adds the losses that the file reports.
    fn add_losses_of(&self, set: &TraceSet) -> Result<()> {
        let Some(input) = set.inputs.first() else { return Ok(()) };
        let trace = Trace::open(input.trace.source().as_file().try_clone()?)?;
        let header = trace.header();
        let flagged = trace.buffers().iter().filter(|buffer| buffer.follows_loss());
        self.lock().losses = NewLosses {
            events: header.events_lost.into(),
            buffers: header.buffers_lost.into(),
            stamps: flagged.map(|buffer| buffer.first_time).take(super::MAX_NEW_LOSSES).collect(),
        };
        Ok(())
    }
}
