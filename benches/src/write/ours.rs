//! Traceweir as the measured tracer: `weir daemon` in one process, and each round in another.
//!
//! ```text
//!   traceweir-bench write ──▶ weir daemon               TRACEWEIR_RUNTIME_DIR = a temporary folder
//!                         └─▶ traceweir-bench ours …    start, enable, register, load, stop
//!                               prints the fields of OurRound
//! ```
//!
//! The session writes a sequential file. Regions and buffers together have at most as many bytes
//! as LTTng's sub-buffers. A round counts if no write failed and the session collected exactly the
//! offered events.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use traceweir::controller::Controller;
use traceweir::session::{Filter, Scope, SessionBuilder};
use traceweir::{Guid, Level, LogFileMode, Provider, Session, write_event};

use crate::error::{Error, Result};
use crate::peer::this_program;
use crate::process::{self, program_error};
use crate::write::TRACELOGGING;
use crate::write::load::{LoadPattern, WriteLoad, WriteResult};
use crate::write::lttng::LttngSession;
use crate::write::offer::{FilterKind, KEYWORD, LEVEL, emit};
use crate::write::program::Program;

/// The provider of the bench.
pub(crate) const PROVIDER: Guid = Guid::from_u128(0x5bd3_9d4c_7a1e_4f60_9a55_1b7f_6b2f_0d11);
/// Size of each ring in bytes in burst rounds; `peers/floor.c` has rings of the same size.
pub(crate) const RING_BYTES: u32 = 4 << 20;
/// Size of each ring in bytes in paced rounds.
const PACED_RING_BYTES: u32 = 16 << 20;
/// Bytes before an event's payload in a ring: the ring's prefix and the event's header.
pub(crate) const HEAD_BYTES: u64 = 16 + 80;
/// Additional bytes of an event of `emit_tracelogging` and of `peers/tracelogging.c`, slightly
/// rounded up: provider traits and event metadata with their headers.
pub(crate) const SELF_DESCRIBED_BYTES: u64 = 96;
/// Size of a control block; a region has one for itself and one for each of its rings.
const CONTROL_BLOCK_BYTES: u64 = 256;
const BUFFER_KIB: u32 = 256;
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A running `weir daemon` in its own folder.
#[derive(Debug)]
pub(crate) struct BenchDaemon {
    runtime: PathBuf,
    child: Child,
}

/// The way in which events get into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventWriter {
    /// By a restartable sequence, if the system supports it.
    Sequence,
    /// Under the lock word of a ring.
    Lock,
    /// Like `Sequence`, with self-describing events, by `write_event!`.
    TraceLogging,
    /// Like `Sequence`, into a session that compresses its file.
    Compressed,
}

/// The result of one round of Traceweir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OurRound {
    /// The written events and their time.
    pub(crate) written: WriteResult,
    /// Number of failed writes.
    pub(crate) failed: u64,
    /// Number of events that the session counts as lost.
    pub(crate) lost: u64,
    /// Number of events that the session has collected.
    pub(crate) collected: u64,
    /// Number of offered events, including the warm-up.
    pub(crate) offered: u64,
    /// Processor nanoseconds of the session's threads.
    pub(crate) drain_ns: u64,
}

impl OurRound {
    /// Returns whether every event arrived.
    pub(crate) fn is_without_loss(&self) -> bool {
        self.failed == 0 && self.lost == 0 && self.collected == self.offered
    }

    /// Returns the processor nanoseconds of the session's threads per event.
    #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds are far below 2⁵³.
    pub(crate) fn drain_ns_per_event(&self) -> f64 {
        self.drain_ns as f64 / self.collected.max(1) as f64
    }

    fn to_lines(self) -> String {
        let Self { written, failed, lost, collected, offered, drain_ns } = self;
        format!("{written}\n{failed} {lost} {collected} {offered} {drain_ns}")
    }

    fn parse(lines: &str) -> Option<Self> {
        let (written, counts) = lines.trim().split_once('\n')?;
        let counts: Vec<u64> = counts.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let &[failed, lost, collected, offered, drain_ns] = &counts[..] else { return None };
        Some(Self { written: written.parse().ok()?, failed, lost, collected, offered, drain_ns })
    }
}

impl BenchDaemon {
    pub(crate) fn start(weir: &Path, folder: &Path) -> Result<Self> {
        let runtime = folder.join("runtime");
        let mut command = Command::new(weir);
        command.arg("daemon").env("TRACEWEIR_RUNTIME_DIR", &runtime);
        let log = folder.join("daemon.log");
        let errors = std::fs::File::create(&log).map_err(Error::file(&log))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().map_err(|e| program_error(&command, e.to_string()))?;
        let mut daemon = Self { runtime, child };
        let (socket, deadline) = (daemon.runtime.join("control.sock"), Instant::now() + START_TIMEOUT);
        while !socket.exists() {
            if Instant::now() > deadline || daemon.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let reason = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(program_error(&command, format!("does not run: {}", reason.trim())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// Returns a command that runs this program in another role, under this daemon.
    pub(crate) fn command(&self, role: &str) -> Result<Command> {
        let mut command = Command::new(this_program()?);
        command.arg(role).env("TRACEWEIR_RUNTIME_DIR", &self.runtime).env_remove("TRACEWEIR_NO_RSEQ");
        Ok(command)
    }

    pub(crate) fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs one round in its own session, whose file is in `folder`.
    pub(crate) fn run_round(&self, writer: EventWriter, load: &WriteLoad, folder: &Path) -> Result<OurRound> {
        self.run_round_with(writer, None, load, folder)
    }

    /// Like [`run_round`](Self::run_round), with every event rejected by a filter.
    pub(crate) fn run_filtered_round(
        &self,
        filter: FilterKind,
        load: &WriteLoad,
        folder: &Path,
    ) -> Result<OurRound> {
        self.run_round_with(EventWriter::Sequence, Some(filter), load, folder)
    }

    /// Runs one round by a program in another language, which registers the same provider.
    pub(crate) fn run_native_round(
        &self,
        program: &Path,
        load: &WriteLoad,
        folder: &Path,
    ) -> Result<OurRound> {
        let mut command = self.command("ours")?;
        command.arg("--program").arg(program);
        Self::run_and_parse_round(command, load, folder)
    }

    fn run_round_with(
        &self,
        writer: EventWriter,
        filter: Option<FilterKind>,
        load: &WriteLoad,
        folder: &Path,
    ) -> Result<OurRound> {
        let mut command = self.command("ours")?;
        command.args(filter.map(|filter| format!("--filter={}", filter.name())));
        command.args((writer == EventWriter::TraceLogging).then_some("--tracelogging"));
        command.args((writer == EventWriter::Compressed).then_some("--compressed"));
        if writer == EventWriter::Lock {
            command.env("TRACEWEIR_NO_RSEQ", "1");
        }
        Self::run_and_parse_round(command, load, folder)
    }

    fn run_and_parse_round(mut command: Command, load: &WriteLoad, folder: &Path) -> Result<OurRound> {
        let file = folder.join("ours.etl");
        command.arg(&file).args(load.arguments());
        let ended = process::run(&mut command, Stdio::piped())?;
        std::fs::remove_file(&file).map_err(Error::file(&file))?;
        match OurRound::parse(&ended.stdout) {
            Some(round) if ended.has_succeeded => Ok(round),
            _ => Err(program_error(&command, format!("failed: {}{}", ended.stdout, ended.stderr.trim()))),
        }
    }
}

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Returns the `weir` to measure: the one at `path`, or the one next to this program, which is
/// rebuilt if cargo runs this program.
pub(crate) fn find_weir(path: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "traceweir-cli"]);
        if !cfg!(debug_assertions) {
            build.args(["--profile", "dist"]);
        }
        let ended = process::run(&mut build, Stdio::null())?;
        if !ended.has_succeeded {
            return Err(program_error(&build, ended.stderr));
        }
    }
    let neighbour = this_program()?.with_file_name("weir");
    if neighbour.is_file() {
        return Ok(neighbour);
    }
    let reason = "does not exist; build it with: cargo build --profile dist -p traceweir-cli".to_owned();
    Err(Error::Program { program: neighbour.display().to_string(), reason })
}

/// Waits for the daemon that the environment names.
pub(crate) fn wait_for_daemon() -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match Controller::find(Some(Scope::Named)) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() > deadline => {
                return Err(Error::IncompleteRun("no daemon answers".to_owned()));
            }
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Returns a sequential session with the default memory of sessions, in the daemon that the
/// environment names.
pub(crate) fn plain_session(file: &Path) -> SessionBuilder {
    Session::builder(format!("bench-{}", std::process::id())).log_file(file).scope(Scope::Named)
}

/// Returns a sequential session with as much memory as LTTng under the same load.
fn session_with_lttng_memory(file: &Path, load: &WriteLoad) -> SessionBuilder {
    let processors = thread::available_parallelism().map_or(1, usize::from) as u64;
    let (kind, ring_bytes) = match load.pattern {
        LoadPattern::Burst { .. } => (LttngSession::Snapshot, RING_BYTES),
        LoadPattern::Paced { .. } => (LttngSession::File, PACED_RING_BYTES),
    };
    let buffers = buffers_beside_regions(processors, kind, ring_bytes);
    plain_session(file)
        .buffer_kib(BUFFER_KIB)
        .minimum_buffers(buffers)
        .maximum_buffers(buffers)
        .ring_bytes(ring_bytes)
}

/// Starts a session and enables the bench's provider in it, with a filter if there is one.
pub(crate) fn start_session(session: SessionBuilder, filter: Option<Filter>) -> Result<Session> {
    let session = session.start()?;
    let enable = session.enable(PROVIDER).timeout(Duration::ZERO);
    match filter {
        Some(filter) => enable.filter(filter).apply()?,
        None => enable.apply()?,
    }
    Ok(session)
}

/// Returns the number of buffers that fit into LTTng's memory in addition to the region of one
/// process. Only the rings that are written to, one for each processor, and the control blocks
/// count; the rings of the other write path are never touched and take no memory.
fn buffers_beside_regions(processors: u64, kind: LttngSession, ring_bytes: u32) -> u32 {
    let control_bytes = ((1 + 2 * processors) * CONTROL_BLOCK_BYTES).next_multiple_of(4096);
    let region_bytes = control_bytes + processors * u64::from(ring_bytes);
    let buffer_bytes = kind.memory_bytes(processors).saturating_sub(region_bytes);
    u32::try_from(buffer_bytes / (u64::from(BUFFER_KIB) << 10)).unwrap_or(u32::MAX)
}

/// Registers the bench's provider; fails if it is not enabled after that.
pub(crate) fn register() -> Result<Provider> {
    let provider = Provider::register(PROVIDER, None)?;
    if provider.enabled(LEVEL, KEYWORD) {
        return Ok(provider);
    }
    Err(Error::IncompleteRun("the provider is not enabled after its registration".to_owned()))
}

/// Like [`emit`], but writes the three fields by `write_event!`.
#[inline(never)]
fn emit_tracelogging(text: &[u8], count: u64) -> u64 {
    let mut failed = 0;
    for i in 0..count {
        #[allow(clippy::cast_possible_truncation)] // The number field is the low half of `i`.
        let (number, value) = (i as u32, i.wrapping_mul(0x9e37));
        let status = write_event!(
            TRACELOGGING,
            "Sample",
            level(4),
            u32("number", &number),
            u64("value", &value),
            str8("words", black_box(text)),
        );
        failed += u64::from(status != 0);
    }
    failed
}

/// Registers the provider of the macro.
fn register_tracelogging() -> Result<()> {
    // SAFETY: the provider is a static of the program, which is never unloaded.
    #[allow(unsafe_code)]
    let status = unsafe { TRACELOGGING.register() };
    if status == 0 && TRACELOGGING.enabled(Level::from_int(LEVEL), KEYWORD) {
        return Ok(());
    }
    Err(Error::IncompleteRun("the provider is not enabled after its registration".to_owned()))
}

/// The writer of a round's events, and the filter that rejects them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriterOptions {
    /// A filter that rejects every event.
    #[arg(long)]
    filter: Option<FilterKind>,
    /// Write by `write_event!`.
    #[arg(long)]
    tracelogging: bool,
    /// Compress the file.
    #[arg(long)]
    compressed: bool,
    /// Write by this program, which takes the load as its arguments.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

/// The role `ours`: runs one round and prints its result.
pub(crate) fn run_round(file: &Path, writer: &WriterOptions, arguments: &[String]) -> Result<()> {
    let load = WriteLoad::parse(arguments)
        .ok_or_else(|| Error::IncompleteRun(format!("not a load: {arguments:?}")))?;
    wait_for_daemon()?;
    let filter = writer.filter.map(FilterKind::filter);
    let mut session = session_with_lttng_memory(file, &load);
    if writer.compressed {
        session = session.mode(LogFileMode::COMPRESSED);
    }
    let session = start_session(session, filter)?;
    let (written, failed) = match &writer.program {
        // The program ignores failed writes; the session's counts show missing events.
        Some(program) => (Program::run_program_at(program, &load)?, 0),
        None => write_here(writer, &load)?,
    };
    let summary = session.stop()?;
    let round = OurRound {
        written,
        failed,
        lost: summary.events_lost,
        collected: summary.events,
        offered: if writer.filter.is_some() { 0 } else { load.offered_events().unwrap_or(written.events) },
        drain_ns: u64::try_from(summary.collector_time.as_nanos()).unwrap_or(u64::MAX),
    };
    println!("{}", round.to_lines());
    Ok(())
}

/// Writes in this process; returns the written events and the number of failed writes.
fn write_here(writer: &WriterOptions, load: &WriteLoad) -> Result<(WriteResult, u64)> {
    let &WriterOptions { filter, tracelogging, .. } = writer;
    let (text, failed) = (load.text(), AtomicU64::new(0));
    let provider = register()?;
    if tracelogging {
        register_tracelogging()?;
    }
    let written = load.run(&|count| {
        let failed_writes = match filter {
            Some(filter) => filter.emit(&provider, &text, count).unwrap_or(count),
            None if tracelogging => emit_tracelogging(&text, count),
            None => emit(&provider, &text, count),
        };
        if failed_writes > 0 {
            failed.fetch_add(failed_writes, Ordering::Relaxed);
        }
    })?;
    drop(provider);
    Ok((written, failed.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_is_parsed_from_its_lines_and_checked_for_loss() {
        let written =
            WriteResult { events: 9, cpu: Duration::from_nanos(90), wall: Duration::from_micros(1) };
        let lossless = OurRound { written, failed: 0, lost: 0, collected: 10, offered: 10, drain_ns: 20 };
        assert_eq!(OurRound::parse(&lossless.to_lines()), Some(lossless));
        assert!(lossless.is_without_loss() && (lossless.drain_ns_per_event() - 2.0).abs() < 1e-9);
        for lossy in [
            OurRound { failed: 1, ..lossless },
            OurRound { lost: 1, ..lossless },
            OurRound { collected: 9, ..lossless },
            OurRound { collected: 11, ..lossless },
        ] {
            assert!(!lossy.is_without_loss(), "{lossy:?}");
        }
        assert_eq!(OurRound::parse("1 2 3"), None);
    }

    #[test]
    fn regions_and_buffers_fit_into_the_memory_of_lttng() {
        for (kind, ring_bytes) in
            [(LttngSession::Snapshot, RING_BYTES), (LttngSession::File, PACED_RING_BYTES)]
        {
            for processors in [1, 2, 64] {
                let buffers = buffers_beside_regions(processors, kind, ring_bytes);
                let buffers = u64::from(buffers) * u64::from(BUFFER_KIB << 10);
                let rings = processors * u64::from(ring_bytes);
                let limit = kind.memory_bytes(processors);
                // The control blocks and the rest of less than a buffer take less than 512 KiB.
                assert!(buffers + rings <= limit && buffers + rings + (1 << 19) > limit, "{processors}");
            }
        }
    }
}
