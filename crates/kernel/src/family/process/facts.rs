//! What `/proc` tells of a process: its program, its user, where it belongs.
//!
//! ```text
//!   exe       ──▶ path, image name           status   ──▶ effective user, ids in inner namespaces
//!   cmdline   ──▶ command line, quoted       cgroup   ──▶ package, application, container
//!   stat      ──▶ parent, start, priority    sessionid ─▶ audit session
//! ```
//!
//! 1. Each file is read once and up to a bound; a process that is gone meanwhile is nothing, not an error.
//! 2. Whoever owns the process chose names and arguments: they are text and nothing else. The program itself is never opened here.
//! 3. Arguments are quoted as Windows quotes them, so that they can be told apart again; what is longer than 8 KiB ends with `…`.

use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use traceweir_format::linux::{cgroup, stat_fields};

use crate::patient::{self, PATIENCE};
use crate::proc;

/// Bytes of a file that are looked at.
const READ: u64 = 64 << 10;
/// Bytes of a command line that are kept.
pub(super) const MAX_COMMAND_LINE: usize = 8 << 10;
/// What Linux says for a process without an audit session, and the published value for one without a session.
pub(super) const NO_SESSION: u32 = u32::MAX;

/// A program that runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// The executable; empty for threads of the kernel, and where it is not told.
    pub(super) path: Vec<u8>,
    /// The last part of the path, or the name of the thread.
    pub(super) image: Vec<u8>,
    pub(super) command_line: String,
}

/// Where a process belongs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The container, or the package where it is in none.
    pub(super) package: String,
    pub(super) application: String,
    /// The PID namespace, where it is not ours.
    pub(super) namespace: Option<u64>,
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: Name,
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) faults: u64,
    /// As the scheduler's tracepoints give it: 0 is the highest, 139 the lowest.
    pub(super) priority: i64,
    pub(super) start_ticks: u64,
    /// As wait() gives it; 0 while it runs, and for those who may not know it.
    pub(super) exit_code: u32,
}

/// The name of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name([u8; 16]);

impl Name {
    pub(super) fn new(text: &[u8]) -> Self {
        let mut name = [0; 16];
        name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        crate::record::text(&self.0)
    }
}

fn read(path: &str) -> Option<Vec<u8>> {
    proc::read(path, READ)
}

/// `task`: `PID`, or `PID/task/TID`.
pub(super) fn stat(task: &str) -> Option<Stat> {
    parse_stat(&read(&format!("/proc/{task}/stat"))?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?.checked_add(1)?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat_fields(text);
    let mut field = |skipped: usize| -> Option<i128> {
        std::str::from_utf8(fields.nth(skipped)?).ok()?.parse::<i128>().ok()
    };
    let state = *text.get(close.checked_add(2)?)?;
    // Places behind the state, which is the 3rd: 4th parent, 10th and 12th faults, 18th priority, 22nd start, 52nd exit code.
    let parent = u32::try_from(field(1)?).unwrap_or(0);
    let faults = [u64::try_from(field(5)?).unwrap_or(0), u64::try_from(field(1)?).unwrap_or(0)];
    let priority = i64::try_from(field(5)?).unwrap_or(0).saturating_add(100);
    let start_ticks = u64::try_from(field(3)?).ok()?;
    let exit_code = field(29).and_then(|code| u32::try_from(code).ok()).unwrap_or(0);
    Some(Stat {
        name: Name::new(text.get(open..close)?),
        state,
        parent,
        faults: faults.iter().fold(0, |sum, some| sum.saturating_add(*some)),
        priority,
        start_ticks,
        exit_code,
    })
}

impl Stat {
    /// Whether it has ended and waits for its parent.
    pub(super) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// The program of a process. `is_fresh`: it has just begun, nobody can have changed its arguments.
pub(super) fn program(pid: u32, name: &[u8], is_fresh: bool) -> Program {
    let command_line = arguments(pid).map(|bytes| command_line(&bytes, is_fresh)).unwrap_or_default();
    Program::new(executable(pid), name, command_line)
}

/// The path of a process's executable; empty where it has none.
pub(super) fn executable(pid: u32) -> Vec<u8> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe"));
    let mut path = path.map(|path| path.into_os_string().into_vec()).unwrap_or_default();
    // What the kernel adds for a file that has no name any more.
    if let Some(before) = path.strip_suffix(b" (deleted)") {
        path.truncate(before.len());
    }
    path
}

impl Program {
    /// By its path, or the name of its thread.
    pub(super) fn new(path: Vec<u8>, name: &[u8], command_line: String) -> Self {
        let last = path.rsplit(|byte| *byte == b'/').next().filter(|last| !last.is_empty());
        let image = last.unwrap_or(name).to_vec();
        Self { path, image, command_line }
    }
}

/// The arguments of a process, each with its terminator, up to one byte more than is kept; empty while an exec is not finished.
pub(super) fn arguments(pid: u32) -> Option<Vec<u8>> {
    let limit = u64::try_from(MAX_COMMAND_LINE).ok()?.saturating_add(1);
    let read = move || proc::read(&format!("/proc/{pid}/cmdline"), limit);
    // They lie in memory that a program may serve itself.
    patient::within_of(pid, PATIENCE, read).flatten()
}

/// Arguments as one line.
pub(super) fn command_line(bytes: &[u8], is_fresh: bool) -> String {
    let kept = bytes.get(..MAX_COMMAND_LINE).unwrap_or(bytes);
    let mut arguments = kept.strip_suffix(&[0]).unwrap_or(kept);
    if !is_fresh {
        // A program that shows a title of its own fills the rest of its arguments with zeros.
        while let Some(shorter) = arguments.strip_suffix(&[0]) {
            arguments = shorter;
        }
    }
    let mut line = String::new();
    if !bytes.is_empty() {
        for (index, argument) in arguments.split(|byte| *byte == 0).enumerate() {
            if index > 0 {
                line.push(' ');
            }
            quote(&String::from_utf8_lossy(argument), &mut line);
        }
    }
    if bytes.len() > kept.len() {
        line.push('…');
    }
    line
}

/// An argument so that Windows' rules find it again: quotes where there are blanks, a backslash before each quote and before each backslash that leads up to one.
fn quote(argument: &str, line: &mut String) {
    let is_plain = !argument.is_empty() && !argument.contains([' ', '\t', '\n', '\u{b}', '"']);
    if is_plain {
        line.push_str(argument);
        return;
    }
    line.push('"');
    let mut backslashes = 0_usize;
    for c in argument.chars() {
        if c == '"' {
            (0..=backslashes).for_each(|_| line.push('\\'));
        }
        backslashes = if c == '\\' { backslashes.saturating_add(1) } else { 0 };
        line.push(c);
    }
    (0..backslashes).for_each(|_| line.push('\\'));
    line.push('"');
}

/// Who a process is, by `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// The effective user.
    pub(super) user: Option<u32>,
    /// Its id in the innermost namespace, where that is not ours.
    pub(super) inner: Option<u32>,
    /// Sizes in bytes; `None`: it has no memory of its own, or none any more.
    pub(super) sizes: Option<Sizes>,
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) peak_virtual: u64,
    pub(super) peak_resident: u64,
    pub(super) virtual_size: u64,
    pub(super) resident: u64,
    /// Anonymous memory, resident or swapped out.
    pub(super) private: u64,
}

pub(super) fn status(pid: u32) -> Option<Status> {
    let bytes = read(&format!("/proc/{pid}/status"))?;
    Some(parse_status(&String::from_utf8_lossy(&bytes)))
}

fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    let mut sizes = Sizes::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let mut words = value.split_ascii_whitespace();
        let mut kilobytes =
            || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024);
        match key {
            "Uid" => status.user = value.split_ascii_whitespace().nth(1).and_then(|uid| uid.parse().ok()),
            "NSpid" => status.inner = inner(value),
            "VmPeak" => sizes.peak_virtual = kilobytes(),
            "VmSize" => sizes.virtual_size = kilobytes(),
            "VmHWM" => sizes.peak_resident = kilobytes(),
            "VmRSS" => sizes.resident = kilobytes(),
            "RssAnon" | "VmSwap" => sizes.private = sizes.private.saturating_add(kilobytes()),
            _ => continue,
        }
    }
    status.sizes = (sizes.virtual_size > 0).then_some(sizes);
    status
}

/// The last of the ids in `NSpid`, where there is more than ours.
fn inner(ids: &str) -> Option<u32> {
    ids.split_ascii_whitespace().skip(1).last().and_then(|id| id.parse().ok())
}

/// Where a process belongs. `is_nested`: it is in a PID namespace below ours.
pub(super) fn place(pid: u32, is_nested: bool) -> Arc<Place> {
    let groups = read(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups);
    let package = cgroup::container(&groups).or_else(|| cgroup::package(&groups)).unwrap_or_default();
    let application = cgroup::application(&groups).unwrap_or_default();
    let namespace = if is_nested { namespace(pid) } else { None };
    Arc::new(Place { package, application, namespace })
}

/// The number of a process's PID namespace.
fn namespace(pid: u32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

impl Place {
    /// What `ApplicationId` is: in another PID namespace, which one and who the process is there.
    pub(super) fn application_of(&self, inner: Option<u32>, out: &mut String) {
        out.clear();
        match (self.namespace, inner) {
            (Some(namespace), Some(inner)) => drop(write!(out, "pid:[{namespace}]:{inner}")),
            (Some(namespace), None) => drop(write!(out, "pid:[{namespace}]")),
            (None, _) => out.push_str(&self.application),
        }
    }
}

/// The audit session that a process was begun in by a login.
pub(super) fn session(pid: u32) -> u32 {
    let text = read(&format!("/proc/{pid}/sessionid")).unwrap_or_default();
    std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(NO_SESSION)
}

/// Whether we have `CAP_SYS_PTRACE`.
pub(super) fn may_trace() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.is_some_and(|set| u64::from_str_radix(set.trim(), 16).unwrap_or(0) & CAP_SYS_PTRACE != 0)
}

/// How many descriptors are open.
pub(super) fn descriptors(pid: u32) -> u32 {
    // Newer kernels tell it as the size of the folder.
    let told = std::fs::metadata(format!("/proc/{pid}/fd")).map(|folder| folder.len()).unwrap_or(0);
    let count = || proc::descriptors_of(pid).take(1 << 16).count();
    if told > 0 { u32::try_from(told).unwrap_or(u32::MAX) } else { u32::try_from(count()).unwrap_or(0) }
}

/// The first 64 processors that a thread may run on; 0 where it is not known.
pub(super) fn affinity(tid: u32) -> u64 {
    let id = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(Ok(set)) = id.map(|id| rustix::thread::sched_getaffinity(Some(id))) else { return 0 };
    (0..64).filter(|cpu| set.is_set(*cpu)).fold(0, |mask, cpu| mask | 1 << cpu)
}

#[cfg(test)]
mod tests;
