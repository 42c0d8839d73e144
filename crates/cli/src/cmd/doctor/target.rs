//! Why events of one process may not arrive.
//!
//! ```text
//!   provider registers ─▶ socket in RUNTIME/providers ─▶ the daemon of RUNTIME knows it ─▶ a session enables it
//!        library           user, folder, namespace          right daemon?                  weir enable
//! ```
//!
//! Each step is looked at as far as it can be seen from here: another user's process shows neither its environment nor its libraries, and one that hangs may not tell of them
//! for ever ([`patience`](super::patience)).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use traceweir_daemon::RUNTIME_VARIABLE as VARIABLE;
use traceweir_daemon::machine::container;

use super::check::{Advice, Check, Subject};
use super::machine::{Files, MOST};
use super::patience::{PATIENCE, Question, Silence};
use super::process::field;
use crate::cmd::counted;

/// Providers that are named.
const SHOWN: usize = 8;
/// Rights of a file that make a program somebody else than who runs it.
const SET_ID: u32 = 0o6000;

/// A process, as `/proc` tells of it.
#[derive(Debug)]
pub(super) struct Target {
    pid: u32,
    is_there: bool,
    owner: Option<u32>,
    /// Its id in its own namespace.
    inner: u32,
    has_other_ids: Option<bool>,
    has_other_folders: Option<bool>,
    /// The folder that its environment names; the outer `None`: it does not show it.
    named: Option<Option<PathBuf>>,
    library: Option<Library>,
    /// Whether its program makes it somebody else.
    is_set_id: Result<bool, Silence>,
    is_filtered: bool,
    /// The container that its control groups name.
    container: Option<String>,
    silent: Silent,
}

/// What there was no answer to.
#[derive(Clone, Copy, Debug, Default)]
struct Silent {
    environment: Option<Silence>,
    library: Option<Silence>,
}

/// The library of C programs; Rust programs have theirs inside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Library {
    Loaded(String),
    /// The file has been replaced or removed since.
    Replaced(String),
    NotLoaded,
}

/// What it is held against.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    pub(super) own_user: u32,
    /// The folder that our environment names.
    pub(super) named: Option<PathBuf>,
    /// The folder of the daemon that would be used.
    pub(super) folder: PathBuf,
    /// Whether that daemon serves all users.
    pub(super) is_system: bool,
    /// Process ids in the names of the sockets there, and who owns them; `None`: it cannot be read.
    pub(super) sockets: Option<Vec<(u32, u32)>>,
    /// Providers that the daemon knows of this process; `None`: no daemon answers.
    pub(super) registered: Option<Vec<String>>,
    /// Whether the daemon takes this process for one in a container; `None`: it does not know the process.
    pub(super) is_contained: Option<bool>,
}

impl Target {
    /// A process of the machine whose files begin there.
    pub(super) fn at(root: &Path, pid: u32) -> Self {
        let files = Files(root);
        let own = format!("proc/{pid}");
        let status = files.text(&format!("{own}/status")).unwrap_or_default();
        let ids = |name: &str| -> Vec<u32> {
            let words = field(&status, name).unwrap_or_default().split_whitespace();
            words.filter_map(|it| it.parse().ok()).collect()
        };
        let link = |who: &str, kind: &str| fs::read_link(root.join(format!("proc/{who}/ns/{kind}"))).ok();
        let differs = |kind: &str| Some(link(&pid.to_string(), kind)? != link("self", kind)?);
        let path = |name: &str| (root.to_owned(), format!("{own}/{name}"));
        let ask = |(root, path): (PathBuf, String)| Question::ask(move || Files(&root).bytes(&path));
        let (environment, maps) = (ask(path("environ")), ask(path("maps")));
        let exe = root.join(format!("{own}/exe"));
        let program = Question::ask(move || fs::metadata(exe).is_ok_and(|it| it.mode() & SET_ID != 0));
        let until = Instant::now().checked_add(PATIENCE).unwrap_or_else(Instant::now);
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
            named: environment.ok().flatten().map(|it| folder_in(&it)),
            library: maps.ok().flatten().and_then(|maps| library_in(&String::from_utf8_lossy(&maps))),
            is_set_id: program.answer(until),
            is_filtered: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            container: container(&files.text(&format!("{own}/cgroup")).unwrap_or_default()),
            silent,
        }
    }

    /// What keeps its events away, as far as it can be seen.
    pub(super) fn checks(&self, meeting: &Meeting) -> Vec<Check> {
        if !self.is_there {
            return vec![PROCESS.missing(format!("there is no process {}, or /proc hides it", self.pid))];
        }
        let mut all =
            vec![self.registered(meeting), self.socket(meeting), self.user(meeting), self.folder(meeting)];
        all.extend([self.namespace(), self.library(), self.sandbox()]);
        all.extend(meeting.is_contained.map(|is_contained| self.container(is_contained)));
        all
    }

    fn registered(&self, meeting: &Meeting) -> Check {
        let pid = self.pid;
        match &meeting.registered {
            None => PROCESS.limited("no daemon runs that could know of it; one that starts finds programs that run"),
            Some(names) if names.is_empty() => PROCESS
                .missing(format!("the daemon knows of no provider in process {pid}"))
                .advise(Advice::once("weir providers shows those that it knows; the program must register one (EventRegister, TraceLoggingRegister, define_provider!)")),
            Some(names) => {
                let number = counted(u64::try_from(names.len()).unwrap_or(0), "provider");
                let named: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
                PROCESS
                    .fine(format!("the daemon knows {number} of process {pid}: {}", named.join(", ")))
                    .advise(Advice::once("weir providers NAME shows which sessions enable one; what level and keywords leave out is not written"))
            }
        }
    }

    fn socket(&self, meeting: &Meeting) -> Check {
        let folder = meeting.folder.join("providers");
        let folder = folder.display();
        match &meeting.sockets {
            None => SOCKET.limited(format!("{folder} cannot be read")),
            Some(all) if all.iter().any(|(pid, user)| *pid == self.inner && Some(*user) == self.owner) => {
                SOCKET.fine(format!("there is one of it in {folder}"))
            }
            Some(_) => SOCKET.limited(format!("there is none of it in {folder}: it has not registered a provider, or announces itself elsewhere")),
        }
    }

    fn user(&self, meeting: &Meeting) -> Check {
        match (self.owner, self.is_set_id) {
            _ if meeting.is_system => USER.fine("the system's daemon serves all users"),
            (Some(owner), Err(silence)) if owner == meeting.own_user => {
                USER.limited(format!("yours (uid {owner}); whether its program has rights of its own is {silence}"))
            }
            (Some(owner), Ok(true)) if owner == meeting.own_user => USER
                .missing("its program has rights of its own (set-user-id, set-group-id): it announces itself to the system's daemon only")
                .advise(Advice::once("sudo systemctl start traceweir.socket, and record with --system")),
            (Some(owner), Ok(false)) if owner == meeting.own_user => USER.fine(format!("yours (uid {owner})")),
            (Some(owner), _) => USER
                .missing(format!("another's (uid {owner}): your own daemon serves your own programs only"))
                .advise(Advice::once("sudo systemctl start traceweir.socket, and record with --system")),
            (None, _) => USER.limited("not told"),
        }
    }

    fn folder(&self, meeting: &Meeting) -> Check {
        if let Some(silence) = self.silent.environment {
            return FOLDER.limited(format!("its environment is {silence}"));
        }
        match &self.named {
            None => FOLDER.limited("its environment is not shown to you (sudo weir doctor --pid shows it)"),
            Some(named) if *named == meeting.named => FOLDER.fine("it looks where you look"),
            Some(Some(named)) => {
                let named = named.display().to_string();
                let now = format!("{VARIABLE}={} weir …", crate::export::shell(&named));
                FOLDER
                    .missing(format!("its {VARIABLE} is {named}, and yours is another or none"))
                    .advise(Advice::once(now))
            }
            Some(None) => FOLDER
                .missing(format!("it has no {VARIABLE}, and yours is set"))
                .advise(Advice::once(format!("unset {VARIABLE}"))),
        }
    }

    fn namespace(&self) -> Check {
        match (self.has_other_folders, self.has_other_ids) {
            (Some(true), _) => NAMESPACE
                .limited("it has a view of folders of its own (a container, or a service with its own /tmp or /run): it may not see the daemon's")
                .advise(Advice::once("give the container the folder of the daemon: -v /run/traceweir:/run/traceweir")),
            (_, Some(true)) => {
                NAMESPACE.fine(format!("it has process ids of its own: there it is {}; the daemon translates them", self.inner))
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
            .missing(format!("{named}, in which the daemon is not: only sessions that include containers trace it"))
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
            None => LIBRARY.limited("not shown to you, or too much to look at"),
            Some(Library::Loaded(path)) => LIBRARY.fine(path.clone()),
            Some(Library::Replaced(path)) => LIBRARY
                .limited(format!("{path} was replaced or removed since the program loaded it"))
                .advise(Advice::once("start the program again, so that it has the library of the daemon's release")),
            Some(Library::NotLoaded) => {
                LIBRARY.fine("libtraceweir is not loaded: right for a program in Rust, which has it inside; a C program would write nothing")
            }
        }
    }

    fn sandbox(&self) -> Check {
        if self.is_filtered {
            SANDBOX.limited("its system calls are filtered (seccomp): it must be let use socket, connect, sendmsg, recvmsg, mmap and membarrier")
        } else {
            SANDBOX.fine("its system calls are not filtered")
        }
    }
}

const NOTHING: &str = "events of other processes";
const PROCESS: Subject = Subject {
    name: "process_providers",
    purpose: "a daemon enables providers that it knows",
    without: NOTHING,
};
const SOCKET: Subject = Subject {
    name: "process_socket",
    purpose: "a process waits for daemons that start later by a socket among the providers",
    without: "a daemon that ran when the process registered knows it without",
};
const USER: Subject =
    Subject { name: "process_user", purpose: "your own daemon serves your own programs", without: NOTHING };
const FOLDER: Subject = Subject {
    name: "process_folder",
    purpose: "process and daemon meet in one folder, which TRACEWEIR_RUNTIME_DIR may name",
    without: NOTHING,
};
const NAMESPACE: Subject = Subject {
    name: "process_namespace",
    purpose: "a process in a container sees other folders and ids",
    without: NOTHING,
};
const CONTAINER: Subject = Subject {
    name: "process_container",
    purpose: "sessions trace processes in other containers than the daemon's only where they are asked to",
    without: NOTHING,
};
const LIBRARY: Subject = Subject {
    name: "process_library",
    purpose: "library and daemon of one release understand each other",
    without: "releases that speak one version of the protocol",
};
const SANDBOX: Subject = Subject {
    name: "process_sandbox",
    purpose: "a process reaches its daemon by system calls",
    without: NOTHING,
};

/// The folder that an environment names.
fn folder_in(environment: &[u8]) -> Option<PathBuf> {
    let named = environment
        .split(|byte| *byte == 0)
        .find_map(|it| it.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
    named.filter(|it| !it.is_empty()).map(|it| PathBuf::from(OsStr::from_bytes(it)))
}

/// `None`: a list that was cut does not tell that something is not in it.
fn library_in(maps: &str) -> Option<Library> {
    // Behind addresses, rights, offset, device and inode.
    let mut files = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    let is_ours = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libtraceweir"));
    match files.find(is_ours) {
        None => u64::try_from(maps.len()).is_ok_and(|len| len < MOST).then_some(Library::NotLoaded),
        Some(path) => Some(match path.strip_suffix(" (deleted)") {
            Some(path) => Library::Replaced(path.to_owned()),
            None => Library::Loaded(path.to_owned()),
        }),
    }
}

#[cfg(test)]
mod tests;
