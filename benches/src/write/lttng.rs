//! LTTng-UST, the peer of writing, as Debian packages it.
//!
//! ```text
//!   lttng-sessiond (our own, or a running one) ── a session for each round ── peers/lttng.c
//!     costs      snapshot session: the newest events in memory; the consumer is idle
//!     sustained  file session; events that do not fit are discarded and counted
//! ```
//!
//! The sessions have 8 sub-buffers for each processor, of 1 MiB (snapshot) or 4 MiB (file). The
//! contexts vpid and vtid are on, because our events contain these ids too. An ordinary user's
//! session daemon runs in the bench's own folder. Root's daemon has one fixed location on a
//! machine: if one runs already, it is used and not stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::process::{self, program_error};
use crate::write::load::{WriteLoad, WriteResult};
use crate::write::program::Program;

/// Number of sub-buffers for each processor.
const SUB_BUFFERS: u64 = 8;
const SESSION: &str = "traceweir-bench";
const CHANNEL: &str = "channel";
/// The smallest size of a snapshot in bytes; less means that nothing was traced.
const MIN_SNAPSHOT_BYTES: u64 = 1 << 20;

impl LttngSession {
    /// Returns the size of a sub-buffer in MiB. A shared disk stalls now and then for tens
    /// of milliseconds: with smaller buffers, a file session would measure other users of the disk.
    const fn sub_buffer_mib(self) -> u64 {
        match self {
            Self::Snapshot => 1,
            Self::File => 4,
        }
    }

    /// Returns the bytes of all sub-buffers on a machine with this many processors.
    pub(crate) const fn memory_bytes(self, processors: u64) -> u64 {
        (self.sub_buffer_mib() << 20) * SUB_BUFFERS * processors
    }
}

/// A running session daemon, and the program that writes.
#[derive(Debug)]
pub(crate) struct Lttng {
    pub(crate) version: String,
    program: Program,
    home: PathBuf,
    daemon: Option<Child>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LttngSession {
    /// Keeps the newest events in memory.
    Snapshot,
    /// Writes all events to files.
    File,
}

impl Lttng {
    /// Starts LTTng; `Err` is the reason why its figures are left out.
    pub(crate) fn start(folder: &Path) -> std::result::Result<Self, String> {
        let version = process::run(Command::new("lttng").arg("--version"), Stdio::piped())
            .map_err(|_| "lttng is not installed (Debian: lttng-tools)".to_owned())?;
        let options = ["-O2"];
        let program = Program::compile(folder, "lttng", &options, &["-llttng-ust", "-ldl", "-lpthread"])
            .map_err(|e| format!("its program does not compile (Debian: liblttng-ust-dev): {e}"))?;
        let home = folder.join("lttng-home");
        std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
        let mut lttng = Self { version: version.stdout.trim().to_owned(), program, home, daemon: None };
        lttng.start_daemon().map_err(|e| e.to_string())?;
        Ok(lttng)
    }

    fn start_daemon(&mut self) -> Result<()> {
        if self.is_answering() {
            eprintln!("the LTTng session daemon that runs already is used");
            return Ok(());
        }
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").env("LTTNG_HOME", &self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(command.spawn().map_err(|e| program_error(&command, e.to_string()))?);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.is_answering() {
            if Instant::now() > deadline {
                return Err(program_error(&command, "does not answer".to_owned()));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn is_answering(&self) -> bool {
        self.run_lttng(&["--no-sessiond", "list"]).is_ok()
    }

    /// Runs one round in a new session; returns `None` if events were lost. A snapshot session
    /// overwrites its oldest events by design, which does not count as loss.
    pub(crate) fn run_round(
        &self,
        kind: LttngSession,
        load: &WriteLoad,
        folder: &Path,
    ) -> Result<Option<WriteResult>> {
        let output = folder.join("lttng-output");
        let round = self.trace_load(kind, load, &output);
        // Ends the session, also after a failed round.
        let _ = self.run_lttng(&["destroy", SESSION]);
        match std::fs::remove_dir_all(&output) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::file(&output)(e)),
            _ => {}
        }
        round
    }

    fn trace_load(&self, kind: LttngSession, load: &WriteLoad, output: &Path) -> Result<Option<WriteResult>> {
        let output_option = format!("--output={}", output.display());
        let mut create = vec!["create", SESSION, &output_option];
        create.extend((kind == LttngSession::Snapshot).then_some("--snapshot"));
        self.run_lttng(&create)?;
        let (size, number) =
            (format!("--subbuf-size={}M", kind.sub_buffer_mib()), format!("--num-subbuf={SUB_BUFFERS}"));
        self.run_lttng(&["enable-channel", "-s", SESSION, "-u", &size, &number, CHANNEL])?;
        self.run_lttng(&["enable-event", "-s", SESSION, "-u", "-c", CHANNEL, "traceweir_bench:*"])?;
        self.run_lttng(&["add-context", "-s", SESSION, "-u", "-c", CHANNEL, "-t", "vpid", "-t", "vtid"])?;
        self.run_lttng(&["start", SESSION])?;
        let written = self.program.run(load, &[("LTTNG_HOME", &self.home)])?;
        self.run_lttng(&["stop", SESSION])?;
        match kind {
            LttngSession::Snapshot => {
                self.run_lttng(&["snapshot", "record", "-s", SESSION])?;
                check_trace_size(folder_bytes(output), MIN_SNAPSHOT_BYTES)?;
                Ok(Some(written))
            }
            LttngSession::File => {
                let lost = parse_lost(&self.run_lttng(&["list", SESSION])?);
                // Each event takes at least its payload.
                check_trace_size(
                    folder_bytes(output),
                    written.events.saturating_sub(lost) * load.payload as u64,
                )?;
                Ok((lost == 0).then_some(written))
            }
        }
    }

    fn run_lttng(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("lttng");
        let ended = process::run(command.args(arguments).env("LTTNG_HOME", &self.home), Stdio::piped())?;
        if ended.has_succeeded {
            return Ok(ended.stdout);
        }
        Err(program_error(
            &command,
            format!("{}: {}{}", arguments.join(" "), ended.stdout.trim(), ended.stderr.trim()),
        ))
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
        let _ = daemon.wait();
    }
}

/// Returns the number of discarded events and lost packets in a listing of a session.
fn parse_lost(listing: &str) -> u64 {
    let parse_line = |line: &str| {
        let line = line.trim();
        let value = line.strip_prefix("Discarded events:").or_else(|| line.strip_prefix("Lost packets:"))?;
        // A number that cannot be parsed counts as loss.
        Some(value.trim().parse().unwrap_or(u64::MAX))
    };
    listing.lines().filter_map(parse_line).fold(0, u64::saturating_add)
}

fn check_trace_size(bytes: u64, minimum: u64) -> Result<()> {
    if bytes >= minimum {
        return Ok(());
    }
    Err(Error::IncompleteRun(format!("LTTng's trace has {bytes} bytes, less than {minimum}")))
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use crate::write::load::LoadPattern;

    #[test]
    fn lost_events_and_packets_are_read_from_a_listing() {
        let listing = "Channels:\n- ch: [enabled]\n    Statistics:\n      Discarded events: 17\n      Lost packets: 2\n";
        assert_eq!(parse_lost(listing), 19);
        assert_eq!(parse_lost("    Statistics:\n      Discarded events: 0\n"), 0);
        assert_eq!(parse_lost("Discarded events: many"), u64::MAX);
    }

    #[test]
    fn too_small_trace_is_an_error() {
        assert!(check_trace_size(10, 11).is_err());
        assert!(check_trace_size(11, 11).is_ok());
    }

    #[test]
    fn two_processors_have_sixteen_sub_buffers() {
        assert_eq!(LttngSession::Snapshot.memory_bytes(2), 16 << 20);
        assert_eq!(LttngSession::File.memory_bytes(2), 64 << 20);
    }

    #[test]
    fn both_kinds_of_session_trace_a_small_load_where_lttng_is_installed() {
        let _alone = process::lock_children();
        let folder = tempfile::tempdir().unwrap();
        let lttng = match Lttng::start(folder.path()) {
            Ok(lttng) => lttng,
            Err(reason) => {
                skip("peers", &reason);
                return;
            }
        };
        let burst = LoadPattern::Burst { events: 1_000, bursts: 10, pause_us: 10 };
        let written = lttng.run_round(
            LttngSession::Snapshot,
            &WriteLoad { threads: 1, payload: 40, pattern: burst },
            folder.path(),
        );
        assert_eq!(written.unwrap().map(|w| w.events), Some(10_000));
        let paced = LoadPattern::Paced { rate: 10_000, length_ms: 100 };
        let written = lttng.run_round(
            LttngSession::File,
            &WriteLoad { threads: 2, payload: 40, pattern: paced },
            folder.path(),
        );
        assert_eq!(written.unwrap().map(|w| w.events), Some(1_000));
        assert!(!folder.path().join("lttng-output").exists());
    }
}
