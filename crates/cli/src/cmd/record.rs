//! `weir record`: a session for as long as a program runs, a time passes, or until Ctrl-C.
//!
//! ```text
//!   start, enable ──▶ recording ──CMD ended, time is up, session ended, processes gone──▶ stop ──▶ summary
//!                        │ Ctrl-C: CMD got it too; its end is waited for, briefly            ▲
//!                        └────────────────────────────────────────────────────────────────┘
//!   Ctrl-C again, at any time: the stop request is out or goes out now; the daemon finalises the file without us
//! ```

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};
use traceweir::Status;
use traceweir::controller::Properties;
use traceweir_format::header;
use traceweir_format::spec::event::class;

use super::{grouped, warn};
use crate::cli::{Record, Schemas};
use crate::event::Flow;
use crate::exit::{self, Outcome};
use crate::export::{plain, plain_path};
use crate::progress::Counter;
use crate::sessions::{self, Own};
use crate::signals::{self, INTERRUPTED};
use crate::traces::Traces;

/// Exit status when recording itself fails beside a command.
const OWN_FAILURE: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How often the session is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long a command may take to end after Ctrl-C before the recording ends without it.
const GRACE: Duration = Duration::from_secs(2);
/// How long a stop request may take to leave when we are asked to hurry.
const HURRY: Duration = Duration::from_millis(200);
/// A wait that anything may end.
const LONG: Duration = Duration::from_secs(3600);

/// Buffers that ride out bursts and busy disks: KiB, at least, at most.
const BUFFERS: (u32, u32, u32) = (256, 16, 128);

/// What happens while recording.
enum Note {
    Interrupt,
    Child(io::Result<ExitStatus>),
    Stopped(Result<Option<Properties>>),
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// As planned.
    Done,
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-C, twice.
    Hurried,
}

/// Runs the command.
pub(super) fn run(options: &Record) -> Result<Outcome> {
    match record(options) {
        Err(error) if !options.command.is_empty() => {
            exit::print(&error);
            Ok(Outcome::Status(OWN_FAILURE))
        }
        result => result,
    }
}

fn record(options: &Record) -> Result<Outcome> {
    if let Some(gone) = options.pid.iter().find(|pid| !is_running(**pid)) {
        bail!("there is no process {gone}");
    }
    let (notes, inbox) = channel();
    let to_us = notes.clone();
    signals::on_interrupt(move |_| drop(to_us.send(Note::Interrupt)))?;

    let name = format!("weir-record-{}", std::process::id());
    let mut config = sessions::config(&name, Some(&options.output), &options.shape)?;
    if options.shape.buffer_size.is_none()
        && options.shape.min_buffers.is_none()
        && options.shape.max_buffers.is_none()
    {
        (config.buffer_size, config.minimum_buffers, config.maximum_buffers) = BUFFERS;
    }
    // However this program ends, the file is finalised.
    config.tied = true;
    let (mut session, first) = Own::start(options.whose, &config)?;
    session.enable(&options.provider, &options.pid)?;
    let has_command = match spawn(options, &notes) {
        Ok(has_command) => has_command,
        Err(status) => return Ok(Outcome::Status(status)),
    };
    let mut recording =
        Recording { options, inbox, session: Some(session), last: first, status: None, has_command };
    let end = recording.wait()?;
    recording.finish(end, notes)
}

/// Runs the command, if there is one, and has its end told.
fn spawn(options: &Record, notes: &Sender<Note>) -> Result<bool, u8> {
    let Some((program, arguments)) = options.command.split_first() else { return Ok(false) };
    let child = Command::new(program).args(arguments).spawn();
    let mut child: Child = child.map_err(|error| {
        let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
        let error =
            anyhow::Error::new(error).context(format!("cannot run {}", plain(&program.to_string_lossy())));
        exit::print(&error);
        status
    })?;
    let notes = notes.clone();
    std::thread::spawn(move || drop(notes.send(Note::Child(child.wait()))));
    Ok(true)
}

struct Recording<'o> {
    options: &'o Record,
    inbox: Receiver<Note>,
    /// Until it is stopped.
    session: Option<Own>,
    /// The session when it was last looked at.
    last: Properties,
    /// How the command ended.
    status: Option<ExitStatus>,
    has_command: bool,
}

impl Recording<'_> {
    /// Waits for a reason to end.
    fn wait(&mut self) -> Result<End> {
        // A command may use the terminal as it likes.
        let counter = Counter::new(!self.has_command);
        let mut deadline = self.options.duration.and_then(|d| Instant::now().checked_add(d));
        let mut end = End::Done;
        loop {
            let left = deadline.map_or(TICK, |d| d.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(left.min(TICK)) {
                Ok(Note::Interrupt) if end == End::Interrupted => return Ok(End::Hurried),
                Ok(Note::Interrupt) if !self.has_command => return Ok(End::Interrupted),
                Ok(Note::Interrupt) => {
                    // The terminal has told the command as well; what it still writes belongs to the trace.
                    end = End::Interrupted;
                    deadline = Some(Instant::now() + GRACE);
                }
                Ok(Note::Child(status)) => {
                    self.status = Some(status.context("cannot wait for the command")?);
                    return Ok(end);
                }
                Ok(Note::Stopped(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(end),
                Err(RecvTimeoutError::Timeout) => {
                    if deadline.is_some_and(|d| Instant::now() >= d) || !self.goes_on()? {
                        return Ok(end);
                    }
                    counter.show(&self.last);
                }
            }
        }
    }

    /// Looks at the session and at the processes that are recorded.
    fn goes_on(&mut self) -> Result<bool> {
        let now = self.session.as_mut().map_or(Ok(None), Own::query)?;
        let Some(now) = now else { return Ok(self.has_command) };
        let ended = now.end_status != 0;
        self.last = now;
        let pids = &self.options.pid;
        let alone = !pids.is_empty() && !pids.iter().any(|pid| is_running(*pid));
        Ok(!alone && (self.has_command || !ended))
    }

    /// Stops the session, says how it went, and gives the exit status.
    fn finish(mut self, end: End, notes: Sender<Note>) -> Result<Outcome> {
        let session = self.session.take();
        std::thread::spawn(move || drop(notes.send(Note::Stopped(session.map_or(Ok(None), Own::stop)))));
        let Some(stopped) = self.settle(end)? else {
            eprintln!("left at once; the daemon finalises the file");
            return Ok(Outcome::Status(INTERRUPTED));
        };
        let outcome = match &stopped {
            Some(properties) => sessions::summarise(properties),
            None => self.summarise_file()?,
        };
        self.check_end(stopped.as_ref())?;
        Ok(match self.status {
            Some(status) => Outcome::Status(exit_status(status)),
            None if self.has_command => {
                eprintln!("the command still runs");
                Outcome::Status(INTERRUPTED)
            }
            None => outcome,
        })
    }

    /// Waits for the end of the session and, unless somebody is in a hurry, of the command; `None` when we are to leave at once.
    fn settle(&mut self, end: End) -> Result<Option<Option<Properties>>> {
        let mut is_asked = end != End::Done;
        let mut hurry = (end == End::Hurried).then(|| Instant::now() + HURRY);
        let mut stopped = None;
        while stopped.is_none() || (self.has_command && self.status.is_none() && !is_asked) {
            let left = hurry.map_or(LONG, |at| at.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(left) {
                Ok(Note::Interrupt) if is_asked => hurry = Some(Instant::now() + HURRY),
                Ok(Note::Interrupt) => is_asked = true,
                Ok(Note::Child(ended)) => self.status = Some(ended.context("cannot wait for the command")?),
                Ok(Note::Stopped(result)) => stopped = Some(result?),
                Err(_) if hurry.is_some_and(|at| Instant::now() >= at) => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(stopped)
    }

    /// Says what the file holds, where the session is gone and can no longer say it.
    fn summarise_file(&self) -> Result<Outcome> {
        let path = &self.options.output;
        let mut traces = Traces::open(std::slice::from_ref(path), &Schemas::default(), true)?;
        let mut events = 0;
        let is_an_event = |record: &header::Record<'_>, _| record.provider() != class::EVENT_TRACE;
        let reading = traces.read(is_an_event, |_| {
            events += 1;
            Ok(Flow::Continue)
        })?;
        eprintln!("{}: {} events", plain_path(path), grouped(events));
        warn(&reading);
        Ok(reading.outcome)
    }

    /// A session that ended before anybody stopped it has failed, unless its file was to end at a size.
    fn check_end(&self, stopped: Option<&Properties>) -> Result<()> {
        let seen = stopped.unwrap_or(&self.last).end_status;
        if seen != 0 {
            bail!("the recording ended early: {}", Status(seen));
        }
        if stopped.is_none() && self.options.shape.max_size.is_none() {
            bail!("the recording ended early, most likely for want of disk space; the daemon's log says why");
        }
        Ok(())
    }
}

/// As shells tell it: 128 + N for signal N.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE)
}

/// Whether a process is there, whosever it is.
fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}
