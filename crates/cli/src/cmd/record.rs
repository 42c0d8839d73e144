//! `weir record`: a session for as long as a program runs, a time passes, or until Ctrl-C.
//!
//! ```text
//!   start, enable ──▶ recording ──CMD ended, time is up, session ended, processes gone──▶ stop ──▶ summary
//!                        │ Ctrl-C: CMD got it too; its end is waited for, briefly            ▲
//!                        └────────────────────────────────────────────────────────────────┘
//!   Ctrl-C again, at any time: the stop request is out or goes out now; the daemon finalises the file without us
//! ```

mod runnable;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, test_kill_process};
use traceweir::controller::Properties;
use traceweir::{Guid, Status};
use traceweir_format::spec::system::is_system_provider;

use super::counted;
use crate::cli::{self, Record};
use crate::exit::{self, Outcome};
use crate::export::{plain_path, shell_path};
use crate::grammar::Wanted;
use crate::progress::{Counter, Waiting};
use crate::sessions::{self, Ended, Own};
use crate::signals::{self, INTERRUPTED};

/// Exit status when recording itself fails beside a command.
const OWN_FAILURE: u8 = 125;

/// How often the session is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long a command may take to end after Ctrl-C before the recording ends without it.
const GRACE: Duration = Duration::from_secs(2);
/// How long a stop request may take to leave when we are asked to hurry.
const HURRY: Duration = Duration::from_millis(200);
/// A wait that anything may end.
const LONG: Duration = Duration::from_secs(3600);

/// What happens while recording.
enum Note {
    Interrupt,
    Child(io::Result<ExitStatus>),
    Stopped(Box<Result<Ended>>),
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
    let wanted = options.providers.wanted(&options.manifest)?;
    check_pid_limits(options, &wanted);
    if let Some(gone) = options.pid.iter().find(|pid| !is_running(**pid)) {
        bail!("there is no process {gone}");
    }
    if let Err(failure) = options.command.first().map_or(Ok(()), |program| runnable::check(program)) {
        // Before the session starts: an old trace is not emptied for a typing error.
        eprintln!("error: {}", failure.text);
        return Ok(Outcome::Status(failure.status));
    }
    let (notes, inbox) = channel();
    let to_us = notes.clone();
    signals::on_interrupt(move |_| drop(to_us.send(Note::Interrupt)))?;

    let name = format!("weir-record-{}", std::process::id());
    let mut config = sessions::config(&name, Some(&options.output), &options.shape)?;
    // However this program ends, the file is finalised.
    config.tied = true;
    let (mut session, first) = Own::start_with_kernel(options.daemon_choice, &mut config, &options.kernel, &wanted)?;
    session.enable(&wanted, &options.pid)?;
    sessions::tell_literal(&config);
    if !options.pid.is_empty() {
        sessions::check_pids(session.controller(), &wanted, &options.pid)?;
    } else if options.command.is_empty() {
        sessions::tell_unseen(session.controller(), &wanted)?;
        sessions::tell_idle(&wanted);
    }
    let has_command = match spawn(options, &notes) {
        Ok(has_command) => has_command,
        Err(status) => return Ok(Outcome::Status(status)),
    };
    let is_warned = sessions::tell_left_out(session.controller(), first.id, &wanted)?;
    let seen = BTreeSet::new();
    let mut recording = Recording {
        options,
        wanted,
        inbox,
        session: Some(session),
        last: first,
        seen,
        is_noted: false,
        is_warned,
        status: None,
        has_command,
    };
    let end = recording.wait()?;
    recording.finish(end, notes)
}

/// Which processes are recorded is a question to providers: the kernel is one for all. Asked of it alone, it is a mistake.
fn check_pid_limits(options: &Record, wanted: &[Wanted]) {
    let is_of_kernel = |wanted: &Wanted| is_system_provider(&wanted.guid);
    let asks_kernel = options.kernel.kernel.is_some() || wanted.iter().any(is_of_kernel);
    if options.pid.is_empty() || !asks_kernel {
        return;
    }
    if wanted.iter().all(is_of_kernel) {
        cli::misuse(
            "--pid limits providers, and none is named: kernel events are of the whole machine. Record without it, and choose afterwards: \
             weir report cpu FILE --process PID, weir dump FILE --pid PID",
        );
    }
    eprintln!("note: --pid limits the providers; kernel events are of the whole machine");
}

/// Runs the command, if there is one, and has its end told.
fn spawn(options: &Record, notes: &Sender<Note>) -> Result<bool, u8> {
    let Some((program, arguments)) = options.command.split_first() else { return Ok(false) };
    let child = Command::new(program).args(arguments).spawn();
    let mut child: Child = child.map_err(|error| {
        let failure = runnable::Failure::new(program, error);
        eprintln!("error: {}", failure.text);
        failure.status
    })?;
    let notes = notes.clone();
    std::thread::spawn(move || drop(notes.send(Note::Child(child.wait()))));
    Ok(true)
}

struct Recording<'o> {
    options: &'o Record,
    /// What is recorded.
    wanted: Vec<Wanted>,
    inbox: Receiver<Note>,
    /// Until it is stopped.
    session: Option<Own>,
    /// The session when it was last looked at.
    last: Properties,
    /// Providers that processes had whenever it was looked at.
    seen: BTreeSet<Guid>,
    /// Whether it was noted that a name means several of them.
    is_noted: bool,
    /// Whether it was said that processes in containers are left out.
    is_warned: bool,
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
        let Some(session) = self.session.as_mut().filter(|s| !s.is_over()) else {
            return Ok(self.has_command);
        };
        let Some(now) = session.query()? else {
            if self.has_command {
                eprintln!("warning: the recording has ended; the command runs on");
            }
            return Ok(self.has_command);
        };
        self.last = now;
        if self.wanted.iter().any(|wanted| !self.seen.contains(&wanted.guid)) {
            let providers = session.controller().providers()?;
            self.seen.extend(sessions::seen_in(&providers));
            if self.has_command && !self.is_noted {
                self.is_noted = sessions::note_same_names(&providers, &self.wanted);
            }
        }
        let pids = &self.options.pid;
        Ok(pids.is_empty() || pids.iter().any(|pid| is_running(*pid)))
    }

    /// Stops the session, says how it went, and gives the exit status.
    fn finish(mut self, end: End, notes: Sender<Note>) -> Result<Outcome> {
        if let Some(mut session) = self.session.take() {
            if end != End::Hurried && !self.is_warned && !session.is_over() {
                // The session is stopped whatever the daemon says to this.
                let _ = sessions::tell_left_out(session.controller(), self.last.id, &self.wanted);
            }
            std::thread::spawn(move || drop(notes.send(Note::Stopped(Box::new(session.stop())))));
        }
        // A command may use the terminal as it likes.
        let runs = self.has_command && self.status.is_none();
        let waiting = (end != End::Hurried && !runs).then(|| Waiting::new("stopping"));
        let settled = self.settle(end);
        drop(waiting);
        let Some(ended) = settled? else {
            eprintln!("left at once; the daemon finalises the file");
            return Ok(Outcome::Status(INTERRUPTED));
        };
        let outcome = self.tell(&ended)?;
        Ok(match self.status {
            Some(status) => Outcome::Status(exit_status(status)),
            None if self.has_command => {
                eprintln!("the command still runs");
                Outcome::Status(INTERRUPTED)
            }
            None => outcome,
        })
    }

    /// Says what was recorded and, where the recording ended before its time, why.
    fn tell(&self, ended: &Ended) -> Result<Outcome> {
        let file = &self.options.output;
        let outcome = match ended {
            Ended::ByUs(p) => sessions::summarise(p, false)?,
            Ended::Before(p) => {
                let outcome = sessions::summarise(p, false)?;
                let status = Status(p.end_status);
                if status != Status::ERROR_SUCCESS {
                    let why = format!("the recording ended early: {status}");
                    return Err(traceweir::Error::refused(status, why).into());
                }
                if !sessions::is_at_limit(p) {
                    eprintln!("the recording was stopped by somebody else");
                }
                outcome
            }
            Ended::WithDaemon(socket) => bail!("{}", without_daemon(socket, file)),
        };
        sessions::unheard(&self.wanted, &self.seen, file);
        Ok(outcome)
    }

    /// Waits for the end of the session and, unless somebody is in a hurry, of the command; `None` when we are to leave at once.
    fn settle(&mut self, end: End) -> Result<Option<Ended>> {
        let mut is_asked = end != End::Done;
        let mut hurry = (end == End::Hurried).then(|| Instant::now() + HURRY);
        let mut stopped = None;
        while stopped.is_none() || (self.has_command && self.status.is_none() && !is_asked) {
            let left = hurry.map_or(LONG, |at| at.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(left) {
                // Asking again and again does not put it off.
                Ok(Note::Interrupt) if is_asked => hurry = hurry.or_else(|| Some(Instant::now() + HURRY)),
                Ok(Note::Interrupt) => is_asked = true,
                Ok(Note::Child(ended)) => self.status = Some(ended.context("cannot wait for the command")?),
                Ok(Note::Stopped(result)) => stopped = Some((*result)?),
                Err(_) if hurry.is_some_and(|at| Instant::now() >= at) => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(stopped)
    }
}

/// What is left of a recording whose daemon is gone.
fn without_daemon(socket: &Path, file: &Path) -> String {
    let events =
        sessions::count_events(file).map_or_else(String::new, |n| format!(" ({})", counted(n, "event")));
    let name = plain_path(file);
    let file = match sessions::end_of(file) {
        Some(_) => format!("it finalised {name}{events} before"),
        None => {
            format!(
                "{name} is valid to its last flush{events}: weir repair {} -o COPY finalises a copy",
                shell_path(file)
            )
        }
    };
    format!("the daemon at {} has ended; {file}", plain_path(socket))
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
