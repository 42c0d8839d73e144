//! Collects the events that a file holds or a consumer received, so that tests can compare them
//! with the offered events.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use traceweir_format::etl::{self, Trace};
use traceweir_format::header::Record;
use traceweir_format::wire::{u32_at, u64_at};

use crate::roles::PROVIDER;

/// The numbers of the events by writer and thread.
#[derive(Debug, Default)]
pub(crate) struct EventTally {
    numbers: HashMap<(u32, u32), Vec<u64>>,
    last_time_by_cpu: HashMap<u16, i64>,
    /// Process ids by writer.
    pub(crate) pids: HashMap<u32, u32>,
    /// Lost events that the header of the file counts.
    pub(crate) events_lost: u64,
    /// Lost buffers that the header of the file counts.
    pub(crate) buffers_lost: u32,
}

impl EventTally {
    /// Reads a finalised file. Fails the test if a record is damaged or torn, or if the events of a
    /// processor are not in time order.
    pub(crate) fn read(path: &Path) -> Self {
        let trace = open_trace(path);
        assert_ne!(trace.header().end_time.0, 0, "{} is not finalised", path.display());
        Self::from_trace(&trace, path)
    }

    /// Reads the events that a running session has written to its file so far.
    pub(crate) fn read_running(path: &Path) -> Self {
        Self::from_trace(&open_trace(path), path)
    }

    fn from_trace(trace: &Trace<File>, path: &Path) -> Self {
        let header = trace.header();
        let (events_lost, buffers_lost) = (u64::from(header.events_lost), header.buffers_lost);
        let mut tally = Self { events_lost, buffers_lost, ..Self::default() };
        let mut events = trace.events();
        while let Some(record) = events.next().expect("a record cannot be read") {
            tally.add_event(&record);
        }
        assert_eq!(events.damage().count, 0, "{} is damaged: {:?}", path.display(), events.damage());
        tally
    }

    /// Adds an event, unless it is of another provider.
    pub(crate) fn add_event(&mut self, record: &Record<'_>) {
        if record.provider() != PROVIDER {
            return;
        }
        let payload = record.payload();
        let (writer, thread, number) = (u32_at(payload, 0), u32_at(payload, 4), u64_at(payload, 8));
        assert!(payload[16..].iter().all(|&b| b == 0x5A), "torn event: {payload:02x?}");
        let last = self.last_time_by_cpu.entry(record.cpu()).or_insert(i64::MIN);
        assert!(
            *last <= record.time(),
            "time goes back on processor {}: {last} {}",
            record.cpu(),
            record.time()
        );
        *last = record.time();
        let pid = *self.pids.entry(writer).or_insert(record.process_id());
        assert_eq!(pid, record.process_id(), "events of one writer have two process ids");
        self.numbers.entry((writer, thread)).or_default().push(number);
    }

    /// Returns the number of events.
    pub(crate) fn len(&self) -> u64 {
        self.numbers.values().map(|numbers| numbers.len() as u64).sum()
    }

    /// Returns the event numbers of one thread, sorted. Fails the test if an event occurs twice.
    pub(crate) fn event_numbers_of_thread(&self, writer: u32, thread: u32) -> Vec<u64> {
        let mut numbers = self.numbers.get(&(writer, thread)).cloned().unwrap_or_default();
        numbers.sort_unstable();
        assert!(
            numbers.windows(2).all(|pair| pair[0] != pair[1]),
            "an event of writer {writer}, thread {thread} occurs twice"
        );
        numbers
    }

    /// Returns how many events of a writer are missing, if each of its `threads` threads wrote
    /// `events` events. Fails the test if the writer has other events, or an event occurs twice.
    pub(crate) fn count_missing(&self, writer: u32, threads: u32, events: u64) -> u64 {
        (0..threads)
            .map(|thread| {
                let numbers = self.event_numbers_of_thread(writer, thread);
                assert!(
                    numbers.last().is_none_or(|&n| n < events),
                    "writer {writer}, thread {thread}: an event that was never offered"
                );
                events - numbers.len() as u64
            })
            .sum()
    }

    /// Returns the numbers of the writers that have an event in this tally.
    pub(crate) fn writers(&self) -> Vec<u32> {
        let mut writers: Vec<u32> = self.numbers.keys().map(|(writer, _)| *writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

/// Fails the test if the file breaks a rule of the format.
pub(crate) fn assert_sound(path: &Path) {
    let trace = open_trace(path);
    let mut findings = Vec::new();
    // The rule `TimeAcrossBuffers` is left out, because buffers of late streams may break it: their
    // events were written before the daemon adopted the region of the process.
    let mut keep_faults = |finding: etl::Finding| {
        if finding.rule != etl::Rule::TimeAcrossBuffers {
            findings.push(finding);
        }
    };
    etl::check(&trace, &mut keep_faults).expect("the file cannot be checked");
    assert!(findings.is_empty(), "{} breaks rules: {findings:?}", path.display());
}

fn open_trace(path: &Path) -> Trace<File> {
    Trace::open(File::open(path).expect("cannot open")).expect("the file is not a trace")
}
