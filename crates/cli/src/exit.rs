//! How a command ended, as an exit code that scripts can use.

use std::process::ExitCode;

use anstream::eprintln;
use traceweir::Status;

/// What a command that ran to its end has to say. Later ones are more serious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Nothing to add.
    #[default]
    Fine,
    /// The trace says that events were lost.
    EventsLost,
    /// The input is damaged; what could be read was.
    Damaged,
    /// The exit status of a program that was run, or of running it.
    Status(u8),
}

impl Outcome {
    const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::EventsLost => 4,
            Self::Damaged => 3,
            Self::Status(status) => status,
        }
    }
}

/// Does something with each path. One that fails is reported and the others are still seen to; the last failure is the result.
pub(crate) fn for_each(
    paths: &[std::path::PathBuf],
    mut each: impl FnMut(&std::path::PathBuf) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    let mut result = Ok(Outcome::Fine);
    for path in paths {
        match (each(path), &mut result) {
            (Err(error), _) if is_closed_pipe(&error) => return Err(error),
            (Ok(outcome), Ok(worst)) => *worst = outcome.max(*worst),
            (Ok(_), Err(_)) => {}
            (Err(error), _) => {
                if let Err(before) = std::mem::replace(&mut result, Err(error)) {
                    print(&before);
                }
            }
        }
    }
    result
}

/// Prints an error, and what to do about it where that can be told.
pub(crate) fn print(error: &anyhow::Error) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    eprintln!("{style}error:{style:#} {error:#}");
    if let Some(hint) = status_of(error).and_then(hint) {
        eprintln!("  {hint}");
    }
}

/// The Win32 status of an answer of the tracing library.
fn status_of(error: &anyhow::Error) -> Option<Status> {
    error.chain().find_map(|e| e.downcast_ref::<traceweir::Error>()).map(traceweir::Error::status)
}

/// What a person can do.
fn hint(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::ERROR_ACCESS_DENIED | Status::ERROR_PRIVILEGE_NOT_HELD => {
            "your own daemon serves your own programs without any privilege: try --user"
        }
        Status::ERROR_WMI_INSTANCE_NOT_FOUND => "weir list shows the sessions that run",
        Status::ERROR_ALREADY_EXISTS => "weir list shows the sessions that run; weir stop NAME ends one",
        Status::ERROR_BAD_PATHNAME => "name a log file in a folder that is there, used by no other session",
        Status::ERROR_DISK_FULL => "make room, or name a log file on another disk",
        _ => return None,
    })
}

/// Prints the error, if there is one, and gives the exit code.
pub(crate) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.code().into(),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            if is_not_permitted(&error) { ExitCode::from(77) } else { ExitCode::FAILURE }
        }
    }
}

fn is_not_permitted(error: &anyhow::Error) -> bool {
    let io = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
    let refused = [Status::ERROR_ACCESS_DENIED, Status::ERROR_PRIVILEGE_NOT_HELD];
    io.map(std::io::Error::kind).any(|k| k == std::io::ErrorKind::PermissionDenied)
        || status_of(error).is_some_and(|status| refused.contains(&status))
}

/// Whoever reads our output has seen enough: that is not an error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
    io.map(std::io::Error::kind).any(|k| k == std::io::ErrorKind::BrokenPipe)
}
