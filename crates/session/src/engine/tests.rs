//! Tests of complete sessions: this process writes regions like a traced process, and the reader of
//! the format crate reads the files back.

use super::*;
use crate::error::Error;
use crate::messages::SequenceFile;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use traceweir_format::etl::{Rule, Trace, check};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_COMPRESSED_MODE as COMPRESSED,
    EVENT_TRACE_FILE_MODE_APPEND as APPEND, EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR,
    EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING as ONE_STREAM,
    EVENT_TRACE_PRIVATE_IN_PROC as IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE as PRIVATE,
    EVENT_TRACE_REAL_TIME_MODE as REAL_TIME, EVENT_TRACE_USE_KBYTES_FOR_SIZE as KBYTES,
};
use traceweir_transport::live::{Next, QueueReader};
use traceweir_transport::message::SessionConfig;
use traceweir_transport::ring::{Gather, Outlet, RegionSource, Ticket, WriteFailure};

mod adopted;
mod captured;
mod complete_events;
mod exact;
mod files;
mod live;
mod modes;
mod panics;

/// Timeout of waits that normally take milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);
const CPUS: u16 = 4;

/// A session that writes to a temporary folder.
struct SessionFixture {
    session: Session,
    folder: tempfile::TempDir,
    ended: Receiver<Ended>,
}

fn wait_for_reply<T: Send + 'static>(send_request: impl FnOnce(Done<T>)) -> Result<T> {
    let (sender, replies) = channel();
    send_request(Box::new(move |reply| {
        let _ = sender.send(reply);
    }));
    replies.recv_timeout(TIMEOUT).expect("the session did not reply in time")
}

fn session_config(mode: u32) -> SessionConfig {
    // Rings that tests do not fill by accident, however late the collector runs.
    let ring_bytes = 4 << 20;
    SessionConfig {
        name: "test".into(),
        log_file_mode: mode,
        buffer_size: 16,
        ring_bytes,
        ..Default::default()
    }
}

impl SessionFixture {
    /// Starts a session with a file `log.etl`.
    fn with_file(config: SessionConfig) -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder could be created");
        let path = folder.path().join("log.etl");
        let file = open_file(&path);
        Self::start(SessionConfig { log_file: Some(path), ..config }, Some(file), folder)
    }

    /// Starts a session without a file.
    fn without_file(config: SessionConfig) -> Self {
        Self::start(config, None, tempfile::tempdir().expect("no temporary folder could be created"))
    }

    fn start(config: SessionConfig, file: Option<File>, folder: tempfile::TempDir) -> Self {
        Self::try_start(config, file, None, folder).expect("the session did not start")
    }

    fn start_with_sequence(
        config: SessionConfig,
        file: File,
        folder: tempfile::TempDir,
        next: NextFile,
    ) -> Self {
        Self::try_start(config, Some(file), Some(next), folder).expect("the session did not start")
    }

    fn try_start(
        config: SessionConfig,
        file: Option<File>,
        next_file: Option<NextFile>,
        folder: tempfile::TempDir,
    ) -> Result<Self, (Error, tempfile::TempDir)> {
        let (sender, ended) = channel();
        let on_end = Box::new(move |end| sender.send(end).expect("the test has ended"));
        let cpus = traceweir_transport::cpu::possible().max(CPUS);
        let config = Config::new(config, cpus).expect("the configuration is invalid");
        let options = StartOptions {
            // The low 16 bits are the logger id.
            id: 0x10007,
            file,
            next_file,
            may_use_reserved_blocks: true,
            starter: (10, 11),
            on_end,
        };
        match Session::start(config, options) {
            Ok(session) => Ok(Self { session, folder, ended }),
            Err(error) => Err((error, folder)),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log.etl")
    }

    fn flush(&self) -> Properties {
        wait_for_reply(|done| self.session.flush(None, done)).expect("the flush failed")
    }

    fn stop(&self) -> Properties {
        wait_for_reply(|done| self.session.stop(done)).expect("the stop failed")
    }

    /// Attaches a writer to the session as process `pid`.
    fn attach_writer(&self, pid: u32) -> TestWriter {
        let attached =
            self.session.attach(pid, ThreadIdMapping::AsGiven).expect("the session attached no process");
        // Outlets are never freed.
        let outlet: &'static Outlet = Box::leak(Box::new(Outlet::new()));
        let source = RegionSource::File { memory: attached.memory, wake: attached.wake };
        let ticket = outlet.open(source, &attached.params).expect("the outlet did not open the region");
        TestWriter { outlet, ticket, region: attached.id }
    }
}

fn open_file(path: &Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("the file cannot be opened")
}

/// The writing side of a region, as a traced process has it.
#[derive(Clone, Copy)]
struct TestWriter {
    outlet: &'static Outlet,
    ticket: Ticket,
    region: RegionId,
}

impl TestWriter {
    /// Writes an event with a number and `extra_bytes` (rounded up to a multiple of 8) more bytes.
    fn write(&self, number: u64, extra_bytes: usize) -> Result<(), WriteFailure> {
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(8 + extra_bytes.next_multiple_of(8), 0x5A);
        let mut record = Vec::new();
        let thread_id = u32::try_from(number % 1000).unwrap_or(0) + 1;
        EventHeader { thread_id, ..Default::default() }
            .encode(&payload, &mut record)
            .expect("the record cannot be encoded");
        self.write_record(&record)
    }

    fn write_record(&self, record: &[u8]) -> Result<(), WriteFailure> {
        let words = record.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_ne_bytes(word)
        });
        // The first two words are for the prefix of the record.
        let mut staged: Vec<u64> = [0, 0].into_iter().chain(words).collect();
        let mut gather =
            Gather { staged: &mut staged, staged_bytes: record.len(), further_parts: &[], flags: 0 };
        // 77 is the thread id for the lock word of a ring.
        self.outlet.write(self.ticket, 77, &mut gather)
    }
}

/// An event of a log file.
#[derive(Clone, Debug)]
struct LoggedEvent {
    process_id: u32,
    cpu: u16,
    number: u64,
    stamp: i64,
}

/// Reads the events of a file in the reader's order, after a check of the rules of the format.
fn read_log(path: &Path) -> Vec<LoggedEvent> {
    read_log_except(path, &[])
}

/// Like [`read_log`], but allows findings of some rules.
fn read_log_except(path: &Path, allowed_rules: &[Rule]) -> Vec<LoggedEvent> {
    let trace =
        Trace::open(File::open(path).expect("the log file is missing")).expect("the log file is not a trace");
    let mut findings = Vec::new();
    check(&trace, &mut |finding| findings.push(finding)).expect("the trace cannot be checked");
    findings.retain(|finding| !allowed_rules.contains(&finding.rule));
    assert_eq!(findings, [], "the log file breaks rules of the format");
    let mut trace_events = trace.events();
    let mut events = Vec::new();
    while let Some(event) = trace_events.next().expect("the event cannot be read") {
        if event.hook().is_none() {
            let number = event.payload().first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
            let (process_id, cpu, stamp) = (event.process_id(), event.cpu(), event.time());
            events.push(LoggedEvent { process_id, cpu, number, stamp });
        }
    }
    events
}

fn read_numbers(path: &Path) -> Vec<u64> {
    read_log(path).into_iter().map(|event| event.number).collect()
}

/// Returns the numbers as a set; asserts that none occurs twice.
fn unique_numbers(numbers: &[u64]) -> BTreeSet<u64> {
    let set: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(set.len(), numbers.len(), "a number occurs twice");
    set
}
