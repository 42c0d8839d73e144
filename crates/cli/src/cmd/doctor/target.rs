//! Checks why events of one process may not arrive.
//!
//! ```text
//!   provider registers ─▶ socket in RUNTIME/providers ─▶ known to the daemon ─▶ session enables it
//!        library           user, folder, namespace         right daemon?         weir enable
//! ```
//!
//! Each step is checked as far as it is visible: a process of another user shows neither its
//! environment nor its libraries, and one that hangs may never show them
//! ([`pending_query`](super::pending_query)).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use traceweir_daemon::RUNTIME_VARIABLE as VARIABLE;
use traceweir_daemon::machine::container;

use super::check::{Advice, Check, Subject};
use super::files::{Files, MAX_FILE_BYTES};
use super::pending_query::{ANSWER_TIMEOUT, NoAnswer, PendingQuery};
use super::process::field;
use crate::text::{format_count, quote_for_shell};

/// Maximum number of providers to name.
const SHOWN: usize = 8;
/// File mode bits that make a program run as another user or group.
const SET_ID: u32 = 0o6000;

/// A process, as `/proc` shows it.
#[derive(Debug)]
pub(super) struct Target {
    pid: u32,
    is_there: bool,
    owner: Option<u32>,
    /// Its pid in its own namespace.
    inner: u32,
    has_other_ids: Option<bool>,
    has_other_folders: Option<bool>,
    /// The folder in its `TRACEWEIR_RUNTIME_DIR`; the outer `None` if its environment is
    /// unreadable.
    named: Option<Option<PathBuf>>,
    library: Option<Library>,
    /// Whether its program is set-user-id or set-group-id.
    is_set_id: Result<bool, NoAnswer>,
    is_filtered: bool,
    /// The container named by its control group.
    container: Option<String>,
    silent: Silent,
}

/// Queries without an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Silent {
    environment: Option<NoAnswer>,
    library: Option<NoAnswer>,
}

/// The traceweir library of C programs; Rust programs contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Library {
    Loaded(String),
    /// The file has been replaced or removed since it was loaded.
    Replaced(String),
    NotLoaded,
}

/// The daemon that would be used, and what it knows about the process.
#[derive(Debug, Default)]
pub(super) struct DaemonView {
    pub(super) own_user: u32,
    /// The folder in `TRACEWEIR_RUNTIME_DIR` of this process.
    pub(super) named: Option<PathBuf>,
    /// The folder of the daemon that would be used.
    pub(super) folder: PathBuf,
    /// Whether that daemon serves all users.
    pub(super) is_system: bool,
    /// Pid and uid of the sockets in that folder; `None` if it is unreadable.
    pub(super) sockets: Option<Vec<(u32, u32)>>,
    /// Providers of the process that the daemon knows; `None` if no daemon answers.
    pub(super) registered: Option<Vec<String>>,
    /// Whether the daemon treats the process as running in a container; `None` if it does not know
    /// the process.
    pub(super) is_contained: Option<bool>,
}

impl Target {
    /// Reads a process of the machine whose files are below `root`.
    pub(super) fn read(root: &Path, pid: u32) -> Self {
        let files = Files(root);
        let own = format!("proc/{pid}");
        let status = files.text(&format!("{own}/status")).unwrap_or_default();
        let ids = |name: &str| -> Vec<u32> {
            let words = field(&status, name).unwrap_or_default().split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let link = |pid: &str, kind: &str| fs::read_link(root.join(format!("proc/{pid}/ns/{kind}"))).ok();
        let differs = |kind: &str| Some(link(&pid.to_string(), kind)? != link("self", kind)?);
        let path = |name: &str| (root.to_owned(), format!("{own}/{name}"));
        let ask = |(root, path): (PathBuf, String)| PendingQuery::start(move || Files(&root).bytes(&path));
        let (environment, maps) = (ask(path("environ")), ask(path("maps")));
        let exe = root.join(format!("{own}/exe"));
        let program = PendingQuery::start(move || {
            fs::metadata(exe).is_ok_and(|metadata| metadata.mode() & SET_ID != 0)
        });
        let until = Instant::now().checked_add(ANSWER_TIMEOUT).unwrap_or_else(Instant::now);
        let (environment, maps) = (environment.answer(until), maps.answer(until));
        let silent = Silent {
            environment: environment.as_ref().err().copied(),
            library: maps.as_ref().err().copied(),
        };
        Self {
            pid,
            is_there: !status.is_empty(),
            owner: ids("Uid:").get(1).copied(),
            inner: ids("NSpid:").last().copied().unwrap_or(pid),
            has_other_ids: differs("pid"),
            has_other_folders: differs("mnt"),
            named: environment.ok().flatten().map(|environment| folder_in(&environment)),
            library: maps.ok().flatten().and_then(|maps| library_in(&String::from_utf8_lossy(&maps))),
            is_set_id: program.answer(until),
            is_filtered: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            container: container(&files.text(&format!("{own}/cgroup")).unwrap_or_default()),
            silent,
        }
    }

    /// Checks everything that may keep its events away.
    pub(super) fn checks(&self, daemon: &DaemonView) -> Vec<Check> {
        if !self.is_there {
            return vec![PROCESS.missing(format!("there is no process {}, or /proc hides it", self.pid))];
        }
        let mut all =
            vec![self.registered(daemon), self.socket(daemon), self.user(daemon), self.folder(daemon)];
        all.extend([self.namespace(), self.library(), self.sandbox()]);
        all.extend(daemon.is_contained.map(|is_contained| self.container(is_contained)));
        all
    }

    fn registered(&self, daemon: &DaemonView) -> Check {
        let pid = self.pid;
        match &daemon.registered {
            None => PROCESS.limited("no daemon is running; a daemon that starts finds running programs"),
            Some(names) if names.is_empty() => PROCESS
                .missing(format!("the daemon knows of no provider in process {pid}"))
                .advise(Advice::once("weir providers shows the known ones; the program must register one (EventRegister, TraceLoggingRegister, define_provider!)")),
            Some(names) => {
                let number = format_count(u64::try_from(names.len()).unwrap_or(0), "provider");
                let named: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
                PROCESS
                    .fine(format!("the daemon knows {number} of process {pid}: {}", named.join(", ")))
                    .advise(Advice::once("weir providers NAME shows which sessions enable one; events that level and keywords exclude are not written"))
            }
        }
    }

    fn socket(&self, daemon: &DaemonView) -> Check {
        let folder = daemon.folder.join("providers");
        let folder = folder.display();
        match &daemon.sockets {
            None => SOCKET.limited(format!("{folder} cannot be read")),
            Some(all) if all.iter().any(|(pid, user)| *pid == self.inner && Some(*user) == self.owner) => {
                SOCKET.fine(format!("there is one in {folder}"))
            }
            Some(_) => SOCKET.limited(format!(
                "there is none in {folder}: the process has not registered a provider, or uses another folder"
            )),
        }
    }

    fn user(&self, daemon: &DaemonView) -> Check {
        match (self.owner, self.is_set_id) {
            _ if daemon.is_system => USER.fine("the system's daemon serves all users"),
            (Some(owner), Err(silence)) if owner == daemon.own_user => {
                USER.limited(format!("yours (uid {owner}); whether its program is set-user-id is {silence}"))
            }
            (Some(owner), Ok(true)) if owner == daemon.own_user => USER
                .missing(
                    "its program is set-user-id or set-group-id: it connects to the system's daemon only",
                )
                .advise(Advice::once("sudo systemctl start traceweir.socket, and record with --system")),
            (Some(owner), Ok(false)) if owner == daemon.own_user => USER.fine(format!("yours (uid {owner})")),
            (Some(owner), _) => USER
                .missing(format!("another user's (uid {owner}): your own daemon serves only your programs"))
                .advise(Advice::once("sudo systemctl start traceweir.socket, and record with --system")),
            (None, _) => USER.limited("not readable"),
        }
    }

    fn folder(&self, daemon: &DaemonView) -> Check {
        if let Some(silence) = self.silent.environment {
            return FOLDER.limited(format!("its environment is {silence}"));
        }
        match &self.named {
            None => FOLDER.limited("its environment is not shown to you (sudo weir doctor --pid shows it)"),
            Some(named) if *named == daemon.named => FOLDER.fine("same as yours"),
            Some(Some(named)) => {
                let named = named.display().to_string();
                let now = format!("{VARIABLE}={} weir …", quote_for_shell(&named));
                FOLDER
                    .missing(format!("its {VARIABLE} is {named}, yours differs or is not set"))
                    .advise(Advice::once(now))
            }
            Some(None) => FOLDER
                .missing(format!("its {VARIABLE} is not set, and yours is set"))
                .advise(Advice::once(format!("unset {VARIABLE}"))),
        }
    }

    fn namespace(&self) -> Check {
        match (self.has_other_folders, self.has_other_ids) {
            (Some(true), _) => NAMESPACE
                .limited("it has a mount namespace of its own (a container, or a service with its own /tmp or /run): it may not see the daemon's folder")
                .advise(Advice::once("share the daemon's folder with the container: -v /run/traceweir:/run/traceweir")),
            (_, Some(true)) => {
                NAMESPACE.fine(format!("it has a PID namespace of its own, in which its pid is {}; the daemon translates pids", self.inner))
            }
            (None, _) | (_, None) => NAMESPACE.limited("not shown to you"),
            _ => NAMESPACE.fine("the same"),
        }
    }

    fn container(&self, is_contained: bool) -> Check {
        if !is_contained {
            return CONTAINER.fine("the daemon does not see it in a container other than its own");
        }
        let (named, one) = match &self.container {
            Some(id) => (
                format!("its control group names container {id}"),
                format!(", NAME@container={id} for this one"),
            ),
            None => ("it is in another PID namespace than the daemon".to_owned(), String::new()),
        };
        CONTAINER
            .missing(format!("{named}, and the daemon runs outside it: only sessions that include containers trace it"))
            .advise(Advice::once(format!(
                "enable the provider with NAME@silos for all containers{one}, or record with --pid {}; or run the daemon in the \
                 same control group",
                self.pid
            )))
    }

    fn library(&self) -> Check {
        if let Some(silence) = self.silent.library {
            return LIBRARY.limited(silence.to_string());
        }
        match &self.library {
            None => LIBRARY.limited("not shown to you, or too long a list of mappings"),
            Some(Library::Loaded(path)) => LIBRARY.fine(path.clone()),
            Some(Library::Replaced(path)) => LIBRARY
                .limited(format!("{path} was replaced or removed since the program loaded it"))
                .advise(Advice::once("restart the program, so that it loads the library of the daemon's release")),
            Some(Library::NotLoaded) => {
                LIBRARY.fine("libtraceweir is not loaded: correct for a Rust program, which contains it; a C program cannot write events")
            }
        }
    }

    fn sandbox(&self) -> Check {
        if self.is_filtered {
            SANDBOX.limited("its system calls are filtered (seccomp): the filter must permit socket, connect, sendmsg, recvmsg, mmap and membarrier")
        } else {
            SANDBOX.fine("its system calls are not filtered")
        }
    }
}

const NOTHING: &str = "events of other processes";
const PROCESS: Subject = Subject {
    name: "process_providers",
    purpose: "a daemon enables only providers that it knows",
    without: NOTHING,
};
const SOCKET: Subject = Subject {
    name: "process_socket",
    purpose: "a daemon that starts later finds the process through its socket in the folder providers",
    without: "a daemon that ran when the process registered",
};
const USER: Subject =
    Subject { name: "process_user", purpose: "your own daemon serves your own programs", without: NOTHING };
const FOLDER: Subject = Subject {
    name: "process_folder",
    purpose: "process and daemon must use the same folder, which TRACEWEIR_RUNTIME_DIR can set",
    without: NOTHING,
};
const NAMESPACE: Subject = Subject {
    name: "process_namespace",
    purpose: "a process in a container sees other folders and pids",
    without: NOTHING,
};
const CONTAINER: Subject = Subject {
    name: "process_container",
    purpose: "sessions trace processes outside the daemon's container only on request",
    without: NOTHING,
};
const LIBRARY: Subject = Subject {
    name: "process_library",
    purpose: "library and daemon of the same release use the same protocol",
    without: "other releases with the same protocol version",
};
const SANDBOX: Subject = Subject {
    name: "process_sandbox",
    purpose: "a process needs system calls to reach its daemon",
    without: NOTHING,
};

/// Returns the value of `TRACEWEIR_RUNTIME_DIR` in an environment block.
fn folder_in(environment: &[u8]) -> Option<PathBuf> {
    let named = environment.split(|byte| *byte == 0).find_map(|variable| {
        variable.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    });
    named.filter(|value| !value.is_empty()).map(|value| PathBuf::from(OsStr::from_bytes(value)))
}

/// Finds the library in a list of mappings. A truncated list without it returns `None`, because the
/// rest may contain it.
fn library_in(maps: &str) -> Option<Library> {
    // The path follows addresses, permissions, offset, device and inode.
    let mut files = maps.lines().filter_map(|line| line.find('/').and_then(|start| line.get(start..)));
    let is_traceweir =
        |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libtraceweir"));
    match files.find(is_traceweir) {
        None => u64::try_from(maps.len()).is_ok_and(|len| len < MAX_FILE_BYTES).then_some(Library::NotLoaded),
        Some(path) => Some(match path.strip_suffix(" (deleted)") {
            Some(path) => Library::Replaced(path.to_owned()),
            None => Library::Loaded(path.to_owned()),
        }),
    }
}

#[cfg(test)]
mod tests;
