//! Checks why events of one process may not arrive.
//!
//! ```text
//!   provider registers ─▶ socket in RUNTIME/providers ─▶ known to the daemon ─▶ session enables it
//!        library           user, folder, namespace         right daemon?         weir enable
//! ```
//!
//! The second line shows what can prevent each step. Each step is checked as far as possible. The
//! environment and the libraries of another user's process cannot be read, and reading those of a
//! process that hangs may never return ([`pending_query`](super::pending_query)).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use traceweir_daemon::RUNTIME_VARIABLE;
use traceweir_daemon::machine::container;

use super::check::{Advice, CheckSubject, DoctorCheck};
use super::files::{MAX_FILE_BYTES, RootFiles};
use super::pending_query::{ANSWER_TIMEOUT, NoAnswer, PendingQuery};
use super::process::find_status_field;
use crate::text::{format_count, quote_for_shell};

const MAX_SHOWN_PROVIDERS: usize = 8;
/// File mode bits that make a program run as another user or group.
const SET_ID_MODE_BITS: u32 = 0o6000;

/// A process, as `/proc` shows it.
#[derive(Debug)]
pub(super) struct TargetProcess {
    pid: u32,
    exists: bool,
    /// Effective user id.
    uid: Option<u32>,
    /// Pid in the PID namespace of the process.
    inner_pid: u32,
    has_other_pid_namespace: Option<bool>,
    has_other_mount_namespace: Option<bool>,
    /// The value of `TRACEWEIR_RUNTIME_DIR` of the process; the outer `None` if its environment is
    /// unreadable.
    runtime_dir: Option<Option<PathBuf>>,
    /// `None` if the list of mappings is unreadable, or is truncated and does not show the library.
    library: Option<LibraryState>,
    /// Whether the program is set-user-id or set-group-id.
    is_set_id: Result<bool, NoAnswer>,
    has_seccomp_filter: bool,
    /// The container that the control group names.
    container: Option<String>,
    missing_answers: MissingAnswers,
}

/// The reasons why queries have no answer.
#[derive(Clone, Copy, Debug, Default)]
struct MissingAnswers {
    environment: Option<NoAnswer>,
    library: Option<NoAnswer>,
}

/// Whether a C program has loaded the traceweir library; Rust programs contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LibraryState {
    Loaded(String),
    /// The file has been replaced or removed since it was loaded.
    Replaced(String),
    NotLoaded,
}

/// The caller, the selected daemon, and what that daemon knows about the process.
#[derive(Debug, Default)]
pub(super) struct DaemonView {
    pub(super) caller_uid: u32,
    /// The folder in `TRACEWEIR_RUNTIME_DIR` of the caller.
    pub(super) caller_runtime_dir: Option<PathBuf>,
    /// The folder of the selected daemon.
    pub(super) folder: PathBuf,
    /// Whether the selected daemon serves all users.
    pub(super) is_system: bool,
    /// Pid and uid of the sockets in the subfolder `providers`; `None` if that is unreadable.
    pub(super) sockets: Option<Vec<(u32, u32)>>,
    /// Providers of the process that the daemon knows; `None` if no daemon answers.
    pub(super) provider_names: Option<Vec<String>>,
    /// Whether the daemon treats the process as running in a container; `None` if it does not know
    /// the process.
    pub(super) is_contained: Option<bool>,
}

impl TargetProcess {
    /// Reads a process of the machine whose files are below `root`.
    pub(super) fn read(root: &Path, pid: u32) -> Self {
        let files = RootFiles(root);
        let process_folder = format!("proc/{pid}");
        let status = files.read_text(&format!("{process_folder}/status")).unwrap_or_default();
        let read_ids = |name: &str| -> Vec<u32> {
            let words = find_status_field(&status, name).unwrap_or_default().split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let namespace_link =
            |pid: &str, kind: &str| fs::read_link(root.join(format!("proc/{pid}/ns/{kind}"))).ok();
        let is_other_namespace =
            |kind: &str| Some(namespace_link(&pid.to_string(), kind)? != namespace_link("self", kind)?);
        let path = |name: &str| (root.to_owned(), format!("{process_folder}/{name}"));
        let start_read =
            |(root, path): (PathBuf, String)| PendingQuery::start(move || RootFiles(&root).read_bytes(&path));
        let (environment, maps) = (start_read(path("environ")), start_read(path("maps")));
        let exe = root.join(format!("{process_folder}/exe"));
        let set_id_query = PendingQuery::start(move || {
            fs::metadata(exe).is_ok_and(|metadata| metadata.mode() & SET_ID_MODE_BITS != 0)
        });
        let deadline = Instant::now().checked_add(ANSWER_TIMEOUT).unwrap_or_else(Instant::now);
        let (environment, maps) = (environment.wait_for_answer(deadline), maps.wait_for_answer(deadline));
        let missing_answers = MissingAnswers {
            environment: environment.as_ref().err().copied(),
            library: maps.as_ref().err().copied(),
        };
        Self {
            pid,
            exists: !status.is_empty(),
            uid: read_ids("Uid:").get(1).copied(),
            inner_pid: read_ids("NSpid:").last().copied().unwrap_or(pid),
            has_other_pid_namespace: is_other_namespace("pid"),
            has_other_mount_namespace: is_other_namespace("mnt"),
            runtime_dir: environment.ok().flatten().map(|environment| find_runtime_dir(&environment)),
            library: maps.ok().flatten().and_then(|maps| find_library(&String::from_utf8_lossy(&maps))),
            is_set_id: set_id_query.wait_for_answer(deadline),
            has_seccomp_filter: find_status_field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            container: container(&files.read_text(&format!("{process_folder}/cgroup")).unwrap_or_default()),
            missing_answers,
        }
    }

    pub(super) fn checks(&self, daemon: &DaemonView) -> Vec<DoctorCheck> {
        if !self.exists {
            return vec![PROCESS.missing(format!("there is no process {}, or /proc hides it", self.pid))];
        }
        let mut checks = vec![
            self.check_providers(daemon),
            self.check_socket(daemon),
            self.check_user(daemon),
            self.check_folder(daemon),
        ];
        checks.extend([self.check_namespace(), self.check_library(), self.check_sandbox()]);
        checks.extend(daemon.is_contained.map(|is_contained| self.check_container(is_contained)));
        checks
    }

    fn check_providers(&self, daemon: &DaemonView) -> DoctorCheck {
        let pid = self.pid;
        match &daemon.provider_names {
            None => PROCESS.limited("no daemon is running; a daemon that starts later also finds programs that are already running"),
            Some(names) if names.is_empty() => PROCESS
                .missing(format!("the daemon knows of no provider in process {pid}"))
                .with_advice(Advice::with_step("weir providers lists the known providers; the program must register one (EventRegister, TraceLoggingRegister, define_provider!)")),
            Some(names) => {
                let number = format_count(u64::try_from(names.len()).unwrap_or(0), "provider");
                let shown_names: Vec<&str> = names.iter().take(MAX_SHOWN_PROVIDERS).map(String::as_str).collect();
                PROCESS
                    .passed(format!("the daemon knows {number} of process {pid}: {}", shown_names.join(", ")))
                    .with_advice(Advice::with_step("weir providers NAME lists the sessions that enable a provider; events that level and keywords exclude are not written"))
            }
        }
    }

    fn check_socket(&self, daemon: &DaemonView) -> DoctorCheck {
        let folder = daemon.folder.join("providers");
        let folder = folder.display();
        match &daemon.sockets {
            None => SOCKET.limited(format!("{folder} cannot be read")),
            Some(sockets)
                if sockets.iter().any(|(pid, user)| *pid == self.inner_pid && Some(*user) == self.uid) =>
            {
                SOCKET.passed(format!("there is one in {folder}"))
            }
            Some(_) => SOCKET.limited(format!(
                "there is none in {folder}: the process has not registered a provider, or uses another folder"
            )),
        }
    }

    fn check_user(&self, daemon: &DaemonView) -> DoctorCheck {
        match (self.uid, self.is_set_id) {
            _ if daemon.is_system => USER.passed("the system's daemon serves all users"),
            (Some(uid), Err(no_answer)) if uid == daemon.caller_uid => {
                USER.limited(format!("yours (uid {uid}); whether its program is set-user-id is {no_answer}"))
            }
            (Some(uid), Ok(true)) if uid == daemon.caller_uid => USER
                .missing(
                    "its program is set-user-id or set-group-id: it connects to the system's daemon only",
                )
                .with_advice(Advice::with_step(
                    "sudo systemctl start traceweir.socket, and record with --system",
                )),
            (Some(uid), Ok(false)) if uid == daemon.caller_uid => USER.passed(format!("yours (uid {uid})")),
            (Some(uid), _) => USER
                .missing(format!("another user's (uid {uid}): your own daemon serves only your programs"))
                .with_advice(Advice::with_step(
                    "sudo systemctl start traceweir.socket, and record with --system",
                )),
            (None, _) => USER.limited("not readable"),
        }
    }

    fn check_folder(&self, daemon: &DaemonView) -> DoctorCheck {
        if let Some(no_answer) = self.missing_answers.environment {
            return FOLDER.limited(format!("its environment is {no_answer}"));
        }
        match &self.runtime_dir {
            None => FOLDER.limited("its environment is not shown to you (sudo weir doctor --pid shows it)"),
            Some(named) if *named == daemon.caller_runtime_dir => FOLDER.passed("same as yours"),
            Some(Some(named)) => {
                let named = named.display().to_string();
                let step = format!("{RUNTIME_VARIABLE}={} weir …", quote_for_shell(&named));
                FOLDER
                    .missing(format!("its {RUNTIME_VARIABLE} is {named}, yours differs or is not set"))
                    .with_advice(Advice::with_step(step))
            }
            Some(None) => FOLDER
                .missing(format!("its {RUNTIME_VARIABLE} is not set, and yours is set"))
                .with_advice(Advice::with_step(format!("unset {RUNTIME_VARIABLE}"))),
        }
    }

    fn check_namespace(&self) -> DoctorCheck {
        match (self.has_other_mount_namespace, self.has_other_pid_namespace) {
            (Some(true), _) => NAMESPACE
                .limited("it has a mount namespace of its own (a container, or a service with its own /tmp or /run): it may not see the daemon's folder")
                .with_advice(Advice::with_step("share the daemon's folder with the container: -v /run/traceweir:/run/traceweir")),
            (_, Some(true)) => {
                NAMESPACE.passed(format!("it has a PID namespace of its own, in which its pid is {}; the daemon translates pids", self.inner_pid))
            }
            (None, _) | (_, None) => NAMESPACE.limited("not shown to you"),
            _ => NAMESPACE.passed("the same"),
        }
    }

    fn check_container(&self, is_contained: bool) -> DoctorCheck {
        if !is_contained {
            return CONTAINER.passed("in no container, or in the daemon's own");
        }
        let (reason, container_option) = match &self.container {
            Some(id) => (
                format!("its control group names container {id}, which is not the daemon's"),
                format!(", NAME@container={id} for this one"),
            ),
            None => ("its PID namespace is not the daemon's".to_owned(), String::new()),
        };
        CONTAINER
            .missing(format!("{reason}: only sessions that include containers trace this process"))
            .with_advice(Advice::with_step(format!(
                "enable the provider with NAME@silos for all containers{container_option}, or record with --pid {}; or run the daemon in the \
                 same control group",
                self.pid
            )))
    }

    fn check_library(&self) -> DoctorCheck {
        if let Some(no_answer) = self.missing_answers.library {
            return LIBRARY.limited(no_answer.to_string());
        }
        match &self.library {
            None => LIBRARY.limited("not shown to you, or the list of mappings is too long"),
            Some(LibraryState::Loaded(path)) => LIBRARY.passed(path.clone()),
            Some(LibraryState::Replaced(path)) => LIBRARY
                .limited(format!("{path} has been replaced or removed since the program loaded it"))
                .with_advice(Advice::with_step("restart the program, so that it loads the library of the daemon's release")),
            Some(LibraryState::NotLoaded) => {
                LIBRARY.passed("libtraceweir is not loaded: correct for a Rust program, which contains it; a C program needs it to write events")
            }
        }
    }

    fn check_sandbox(&self) -> DoctorCheck {
        if self.has_seccomp_filter {
            SANDBOX.limited("its system calls are filtered (seccomp): the filter must permit socket, connect, sendmsg, recvmsg, mmap and membarrier")
        } else {
            SANDBOX.passed("its system calls are not filtered")
        }
    }
}

const OTHER_PROCESSES: &str = "events of other processes still arrive";
const PROCESS: CheckSubject = CheckSubject {
    name: "process_providers",
    purpose: "a daemon enables only providers that it knows",
    works_without: OTHER_PROCESSES,
};
const SOCKET: CheckSubject = CheckSubject {
    name: "process_socket",
    purpose: "a daemon that starts later finds the process through its socket in the folder providers",
    works_without: "a daemon that ran when the process registered still knows the process",
};
const USER: CheckSubject = CheckSubject {
    name: "process_user",
    purpose: "your own daemon serves your own programs",
    works_without: OTHER_PROCESSES,
};
const FOLDER: CheckSubject = CheckSubject {
    name: "process_folder",
    purpose: "process and daemon must use the same folder, which TRACEWEIR_RUNTIME_DIR can set",
    works_without: OTHER_PROCESSES,
};
const NAMESPACE: CheckSubject = CheckSubject {
    name: "process_namespace",
    purpose: "a process in a container sees other folders and pids",
    works_without: OTHER_PROCESSES,
};
const CONTAINER: CheckSubject = CheckSubject {
    name: "process_container",
    purpose: "sessions trace processes of containers other than the daemon's only on request",
    works_without: OTHER_PROCESSES,
};
const LIBRARY: CheckSubject = CheckSubject {
    name: "process_library",
    purpose: "library and daemon of the same release use the same protocol",
    works_without: "other releases with the same protocol version still work",
};
const SANDBOX: CheckSubject = CheckSubject {
    name: "process_sandbox",
    purpose: "a process needs system calls to reach its daemon",
    works_without: OTHER_PROCESSES,
};

/// Returns the value of `TRACEWEIR_RUNTIME_DIR` in an environment block.
fn find_runtime_dir(environment: &[u8]) -> Option<PathBuf> {
    let value = environment.split(|byte| *byte == 0).find_map(|variable| {
        variable
            .strip_prefix(RUNTIME_VARIABLE.as_bytes())
            .and_then(|assignment| assignment.strip_prefix(b"="))
    });
    value.filter(|value| !value.is_empty()).map(|value| PathBuf::from(OsStr::from_bytes(value)))
}

/// Finds the library in a list of mappings. A truncated list without the library returns `None`,
/// because the missing part may contain it.
fn find_library(maps: &str) -> Option<LibraryState> {
    // The path follows addresses, permissions, offset, device and inode.
    let mut files = maps.lines().filter_map(|line| line.find('/').and_then(|start| line.get(start..)));
    let is_traceweir =
        |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libtraceweir"));
    match files.find(is_traceweir) {
        None => {
            u64::try_from(maps.len()).is_ok_and(|len| len < MAX_FILE_BYTES).then_some(LibraryState::NotLoaded)
        }
        Some(path) => Some(match path.strip_suffix(" (deleted)") {
            Some(path) => LibraryState::Replaced(path.to_owned()),
            None => LibraryState::Loaded(path.to_owned()),
        }),
    }
}

#[cfg(test)]
mod tests;
