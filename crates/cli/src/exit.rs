//! The result of a command: exit codes, error messages and hints.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use anstream::eprintln;
use rustix::fs::{Access, access};
use traceweir::{Error, Status};
use traceweir_analysis::input::PerfRecordingError;

use crate::nearby::find_open_hint;
use crate::text::{escape_lines, escape_path, quote_path_for_shell};

/// Exit status for "not permitted".
pub(crate) const NOT_PERMITTED: u8 = 77;

/// The result of a command that ran to its end. Later variants are more serious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommandOutcome {
    #[default]
    Fine,
    /// The session of this run lost events, or `weir check --strict` found a trace that reports a
    /// loss. Reading such a trace is no failure.
    EventsLost,
    /// The input is damaged; the readable part was processed.
    Damaged,
    /// Another exit status, such as that of a program that was run.
    Status(u8),
}

impl CommandOutcome {
    const fn exit_code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::EventsLost => 4,
            Self::Damaged => 3,
            Self::Status(status) => status,
        }
    }
}

/// Calls `process` for every path, even after a failure, unless the failure is a closed pipe.
/// Prints all failures except the last, and returns the last.
pub(crate) fn process_each(
    paths: &[std::path::PathBuf],
    mut process: impl FnMut(&std::path::PathBuf) -> anyhow::Result<CommandOutcome>,
) -> anyhow::Result<CommandOutcome> {
    let mut result = Ok(CommandOutcome::Fine);
    for path in paths {
        match (process(path), &mut result) {
            (Err(error), _) if is_closed_pipe(&error) => return Err(error),
            (Ok(outcome), Ok(worst)) => *worst = outcome.max(*worst),
            (Ok(_), Err(_)) => {}
            (Err(error), _) => {
                if let Err(earlier_error) = std::mem::replace(&mut result, Err(error)) {
                    print_error(&earlier_error);
                }
            }
        }
    }
    result
}

/// An error of a Traceweir library with a hint that the place of the error knows, such as the names
/// of the running sessions. It replaces the hint of [`find_hint`].
#[derive(Debug)]
struct HintedError {
    error: Error,
    hint: String,
}

impl std::fmt::Display for HintedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for HintedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Adds a hint to an error; [`print_error`] prints it below the error.
pub(crate) fn with_hint(error: Error, hint: impl Into<String>) -> anyhow::Error {
    HintedError { error, hint: hint.into() }.into()
}

/// Prints an error, and a hint if there is one.
pub(crate) fn print_error(error: &anyhow::Error) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    eprintln!("{style}error:{style:#} {}", format_error_with_status(error));
    let own_hint = error.chain().find_map(|e| e.downcast_ref::<HintedError>()).map(|e| e.hint.clone());
    let general_hint = || error.chain().find_map(|e| e.downcast_ref::<Error>()).and_then(find_hint);
    let open_hint = || error.chain().find_map(|e| e.downcast_ref()).and_then(find_open_hint);
    let import_hint = || error.chain().find_map(|e| e.downcast_ref()).map(import_hint);
    if let Some(hint) = own_hint.or_else(open_hint).or_else(import_hint).or_else(general_hint) {
        eprintln!("  {}", escape_lines(&hint));
    }
}

/// Returns the command that makes a trace from a recording of perf.
fn import_hint(error: &PerfRecordingError) -> String {
    if error.path.as_os_str() == "-" {
        // The data of the pipe is gone.
        return "import it first: perf record -o - … | weir convert - -o perf.etl".to_owned();
    }
    let trace = Path::new(error.path.file_name().unwrap_or("perf".as_ref())).with_extension("etl");
    let (path, trace) = (quote_path_for_shell(&error.path), quote_path_for_shell(&trace));
    format!("import it first: weir convert {path} --to etl -o {trace}")
}

pub(crate) fn print_warning(warning: &str) {
    let style = anstyle::AnsiColor::Yellow.on_default().bold();
    eprintln!("{style}warning:{style:#} {}", escape_lines(warning));
}

/// Formats a status with number and documented name, to follow a sentence.
pub(crate) fn format_status_suffix(status: Option<Status>) -> String {
    match status.map(|status| (status.0, status.name())) {
        Some((number, Some(name))) => format!(" ({number} {name})"),
        Some((number, None)) => format!(" ({number})"),
        None => String::new(),
    }
}

/// Formats an error with one status: the Win32 status, if there is one, or else the number of the
/// operating system.
fn format_error_with_status(error: &anyhow::Error) -> String {
    let text = format_error(error);
    let suffix = format_status_suffix(status_of(error));
    let without_number = text.rsplit_once(" (os error ").filter(|(_, number)| {
        number.strip_suffix(')').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    });
    match without_number {
        Some((sentence, _)) if !suffix.is_empty() => format!("{sentence}{suffix}"),
        _ => text + &suffix,
    }
}

/// Joins an error with its causes, without repeating a cause that the error already contains.
/// Escapes the text, because it may contain untrusted names.
pub(crate) fn format_error(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    escape_lines(&text)
}

/// Returns the Win32 status of an error, if it comes from a Traceweir library.
pub(crate) fn status_of(error: &anyhow::Error) -> Option<Status> {
    let find_status = |e: &(dyn std::error::Error + 'static)| {
        let format_status = || e.downcast_ref().map(traceweir_format::Error::status);
        e.downcast_ref().map(Error::status).or_else(format_status)
    };
    error.chain().find_map(find_status)
}

/// Returns what the user can do about an error. The libraries name the cause only.
pub(crate) fn find_hint(error: &Error) -> Option<String> {
    match error {
        Error::File { path, source } if source.kind() == ErrorKind::PermissionDenied => {
            return Some(match path.parent().filter(|folder| access(*folder, Access::WRITE_OK).is_err()) {
                Some(folder) => format!("you may not write to the folder {}", escape_path(folder)),
                None => format!("you may not write {}", escape_path(path)),
            });
        }
        // Ending a running daemon would not help: other clients would fill the queue of the next
        // daemon.
        Error::Unreachable { reason, .. } if reason.starts_with("it runs, but too many connections") => {
            return None;
        }
        Error::Unreachable { socket, .. } => return kill_hint(socket),
        Error::NoDaemon { reason } if reason.starts_with("the system's daemon does not run") => {
            let hint = "start it with `systemctl start traceweir.socket` or, as root, `weir daemon --system`";
            return Some(hint.to_owned());
        }
        _ => {}
    }
    let hint = match error.status() {
        Status::ERROR_ACCESS_DENIED if is_refusal(error, "may not connect") => {
            "the system's daemon is for root and the group traceweir: usermod -aG traceweir USER; \
             your own daemon needs no rights: --user"
        }
        Status::ERROR_ACCESS_DENIED if is_refusal(error, "may not control") => {
            "the system's daemon is controlled by root and the members of the group traceweir; \
             your own daemon (--user) serves your own programs without any privilege"
        }
        Status::ERROR_PRIVILEGE_NOT_HELD => {
            "weir doctor shows what this machine allows, and how to allow the rest"
        }
        Status::ERROR_WMI_INSTANCE_NOT_FOUND => "weir list shows the running sessions",
        Status::ERROR_ALREADY_EXISTS => "weir list shows the running sessions; weir stop NAME ends one",
        Status::ERROR_BAD_PATHNAME if error.to_string().contains("flight recorder has no file") => {
            "weir flush NAME -o FILE writes what it has kept to a file"
        }
        Status::ERROR_BAD_PATHNAME => "name a log file in an existing folder, not used by another session",
        Status::ERROR_DISK_FULL => "free some space, or name a log file on another disk",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns whether the daemon or its socket refused the client with these words, as opposed to a
/// file or process permission.
fn is_refusal(error: &Error, words: &str) -> bool {
    matches!(error, Error::Refused { reason, .. } if reason.contains(words))
}

/// Returns how to end a daemon that does not answer; its lock file contains its pid.
fn kill_hint(socket: &Path) -> Option<String> {
    let lock = std::fs::read_to_string(socket.with_file_name("daemon.lock")).ok()?;
    let pid: u32 = lock.trim().parse().ok()?;
    Some(format!("the daemon is process {pid}: kill {pid} ends it, and the next command starts another"))
}

/// Prints the error, if there is one, and returns the exit code.
pub(crate) fn report_result(result: anyhow::Result<CommandOutcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.exit_code().into(),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            if is_not_permitted(&error) { ExitCode::from(NOT_PERMITTED) } else { ExitCode::FAILURE }
        }
    }
}

fn is_not_permitted(error: &anyhow::Error) -> bool {
    let io_errors = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
    let statuses = [Status::ERROR_ACCESS_DENIED, Status::ERROR_PRIVILEGE_NOT_HELD];
    io_errors.map(std::io::Error::kind).any(|k| k == ErrorKind::PermissionDenied)
        || status_of(error).is_some_and(|status| statuses.contains(&status))
}

/// Returns whether the reader of our output closed the pipe, which is not an error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io_errors = error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>());
    io_errors.map(std::io::Error::kind).any(|k| k == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::fs::{FlockOperation, flock};
    use traceweir::controller::Controller;
    use traceweir_transport::socket::{Connection, Listener};

    use super::*;

    #[test]
    fn causes_are_not_repeated() {
        let cause = || std::io::Error::from_raw_os_error(13);
        let error = Error::File { path: "/x/a.etl".into(), source: cause() };
        let error = anyhow::Error::new(error).context("cannot start session a");
        assert_eq!(format_error(&error), format!("cannot start session a: /x/a.etl: {}", cause()));
        let error = anyhow::Error::new(cause()).context("cannot write");
        assert_eq!(format_error(&error), format!("cannot write: {}", cause()));
    }

    #[test]
    fn untrusted_names_in_errors_are_escaped() {
        let error = anyhow::anyhow!("a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\rb\n    ^").context("cannot\u{1b}[2J");
        let text = format_error(&error);
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
        assert!(text.starts_with("cannot\\x1b[2J: a") && text.ends_with("\n    ^"), "{text}");
    }

    #[test]
    fn status_of_an_error_has_number_and_name() {
        let refusal = |status| anyhow::Error::new(Error::refused(Status(status), "no")).context("cannot");
        let format_suffix = |error: &anyhow::Error| format_status_suffix(status_of(error));
        assert_eq!(format_suffix(&refusal(4201)), " (4201 ERROR_WMI_INSTANCE_NOT_FOUND)");
        assert_eq!(format_suffix(&refusal(0x00FF_FFFF)), " (16777215)");
        assert_eq!(format_suffix(&anyhow::anyhow!("a sentence of our own")), "");
    }

    #[test]
    fn error_of_the_system_has_one_number() {
        let cause = || std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::new(Error::File { path: "/x/a.etl".into(), source: cause() });
        let text = format_error_with_status(&error);
        assert_eq!(text, "/x/a.etl: No such file or directory (2 ERROR_FILE_NOT_FOUND)");
        let text = format_error_with_status(&anyhow::Error::new(cause()));
        assert_eq!(text, "No such file or directory (os error 2)");
    }

    #[test]
    fn hinted_error_has_the_text_and_status_of_its_error() {
        let error = with_hint(Error::refused(Status(4201), "it is not there"), "look elsewhere");
        let error = error.context("cannot find it");
        assert_eq!(format_error(&error), "cannot find it: it is not there");
        assert_eq!(status_of(&error), Some(Status::ERROR_WMI_INSTANCE_NOT_FOUND));
    }

    #[test]
    fn missing_privilege_hint_starts_with_weir_doctor() {
        let error = Error::refused(Status::ERROR_PRIVILEGE_NOT_HELD, "profiling takes CAP_PERFMON");
        assert!(find_hint(&error).unwrap().starts_with("weir doctor "));
        assert!(is_not_permitted(&error.into()));
    }

    #[test]
    fn system_daemon_hint_contains_its_group_and_start_command() {
        let reason = "uid 1000 may not connect to /run/traceweir/control.sock: …";
        let refused = find_hint(&Error::refused(Status::ERROR_ACCESS_DENIED, reason)).unwrap();
        assert!(refused.contains("usermod -aG traceweir USER") && refused.contains("--user"), "{refused}");
        let reason = "the system's daemon does not run (no listener at /run/…)".to_owned();
        assert!(find_hint(&Error::NoDaemon { reason }).unwrap().contains("weir daemon --system"));
        assert_eq!(find_hint(&Error::NoDaemon { reason: "no program".to_owned() }), None);
    }

    #[test]
    fn unresponsive_daemon_hint_contains_its_pid() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let error = Error::Unreachable { socket, reason: "silent".to_owned() };
        assert_eq!(find_hint(&error), None, "without a lock file, the pid is unknown");
        std::fs::write(dir.path().join("daemon.lock"), "4711\n").unwrap();
        assert!(find_hint(&error).unwrap().contains("kill 4711"));
    }

    #[test]
    fn running_daemon_with_a_full_queue_gets_no_kill_hint() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = Listener::bind(&socket, 0o600).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let connect = || Connection::connect(&socket, Duration::ZERO).ok();
        let _waiting: Vec<Connection> = std::iter::from_fn(connect).collect();
        let lock = dir.path().join("daemon.lock");
        std::fs::write(&lock, "4711\n").unwrap();
        let connect_error = || Controller::find_at(dir.path()).unwrap_err();
        // The listener holds no lock, so it is not a working daemon.
        assert!(find_hint(&connect_error()).unwrap().contains("kill 4711"), "{}", connect_error());
        let lock = std::fs::File::open(&lock).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let error = connect_error();
        assert!(error.to_string().contains("too many connections wait for it"), "{error}");
        assert!(!error.to_string().contains("end it") && find_hint(&error).is_none(), "{error}");
    }
}
