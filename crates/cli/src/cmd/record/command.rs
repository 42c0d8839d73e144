//! Runs the recorded command, and reaps its orphans.
//!
//! `weir record` is a child subreaper: a process whose parent has ended becomes a child of weir, so
//! that it still belongs to the recorded process tree.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::Sender;

use anstream::eprintln;
use rustix::process::{Pid, Signal, WaitOptions, set_child_subreaper, wait};

use super::{RecordingEvent, runnable};

/// Exit status if recording fails while a command is given.
pub(super) const RECORDING_FAILED: u8 = 125;

/// Starts a command, if one is given, and sends an event when it ends. Returns whether a command
/// was started, or the exit status for a failed start.
pub(super) fn spawn(command: &[OsString], events: &Sender<RecordingEvent>) -> Result<bool, u8> {
    let Some((program, arguments)) = command.split_first() else { return Ok(false) };
    // Any id turns the attribute on. Without it, orphans leave the tree; the rest is recorded.
    let _ = set_child_subreaper(Pid::from_raw(1));
    let child = Command::new(program).args(arguments).spawn().map_err(|error| {
        let failure = runnable::CommandFailure::new(program, error);
        eprintln!("error: {}", failure.text);
        failure.status
    })?;
    let (pid, events) = (child.id(), events.clone());
    std::thread::spawn(move || drop(events.send(RecordingEvent::CommandEnded(wait_for_child(pid)))));
    Ok(true)
}

/// Waits for a child and returns its status; reaps other children in the meantime.
fn wait_for_child(pid: u32) -> io::Result<ExitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if u32::try_from(ended.as_raw_nonzero().get()) == Ok(pid) => {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Describes the end of a command that failed; `None` if it succeeded.
pub(super) fn describe_failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the command exited with status {code}")),
        (None, Some(signal)) => {
            let name = signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
            Some(format!("signal {signal}{name} ended the command"))
        }
        (None, None) => None,
    }
}

/// Returns the name of a signal that often ends programs.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match Signal::from_named_raw(signal)? {
        Signal::HUP => "SIGHUP",
        Signal::INT => "SIGINT",
        Signal::QUIT => "SIGQUIT",
        Signal::ILL => "SIGILL",
        Signal::ABORT => "SIGABRT",
        Signal::BUS => "SIGBUS",
        Signal::FPE => "SIGFPE",
        Signal::KILL => "SIGKILL",
        Signal::SEGV => "SIGSEGV",
        Signal::PIPE => "SIGPIPE",
        Signal::ALARM => "SIGALRM",
        Signal::TERM => "SIGTERM",
        Signal::XCPU => "SIGXCPU",
        Signal::SYS => "SIGSYS",
        _ => return None,
    })
}

/// Converts an exit status as shells do: 128 + N for signal N.
pub(super) fn to_exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(RECORDING_FAILED)
}
