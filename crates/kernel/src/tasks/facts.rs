//! Facts about a process from `/proc`: its program, its user, its package and namespace.
//!
//! ```text
//!   exe       ──▶ path, image name           status   ──▶ effective user, ids in inner namespaces
//!   cmdline   ──▶ command line, quoted       cgroup   ──▶ package, application, container
//!   stat      ──▶ parent, start, priority    sessionid ─▶ audit session
//! ```
//!
//! 1. Each file is read once and up to a bound. For a process that has ended meanwhile the
//!    functions return nothing, not an error.
//! 2. The owner of the process chose names and arguments: they are treated as plain text. The
//!    executable itself is never opened here.
//! 3. Arguments are quoted by the rules of Windows, so that a reader can split them again. A line
//!    longer than 8 KiB ends with `…`.

use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use traceweir_format::linux::{cgroup, stat_fields};

use crate::blocking::{self, READ_TIMEOUT};
use crate::proc;

/// The most bytes that are read of a file.
const MAX_READ_BYTES: u64 = 64 << 10;
/// The most bytes of arguments that a command line shows.
pub(crate) const MAX_COMMAND_LINE_BYTES: usize = 8 << 10;
/// Linux's value for a process without an audit session, and the documented value for a process
/// without a session.
pub(crate) const NO_SESSION: u32 = u32::MAX;

/// The program that a process runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RunningProgram {
    /// Path of the executable; empty for kernel threads and where the kernel does not reveal it.
    pub(crate) path: Vec<u8>,
    /// The last component of the path, or the thread name.
    pub(crate) image: Vec<u8>,
    pub(crate) command_line: String,
}

/// Package, application and PID namespace of a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AppIdentity {
    /// The container, or the package of a process outside containers.
    pub(crate) package: String,
    pub(crate) application: String,
    /// The PID namespace, if it is not ours.
    pub(crate) namespace: Option<u64>,
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcStat {
    pub(crate) name: ThreadName,
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) faults: u64,
    /// The priority on the scale of the scheduler's tracepoints: 0 is the highest, 139 the lowest.
    pub(crate) priority: i64,
    pub(crate) start_ticks: u64,
    /// The exit code, encoded as `wait()` returns it; 0 while the process runs, and for readers
    /// without permission.
    pub(crate) exit_code: u32,
}

/// The name of a thread, at most 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadName([u8; 16]);

impl ThreadName {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut name = [0; 16];
        name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Self(name)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        crate::record::until_nul(&self.0)
    }
}

fn read_bounded(path: &str) -> Option<Vec<u8>> {
    proc::read_file(path, MAX_READ_BYTES)
}

/// Reads the `stat` file of a process or thread. `task` is `PID` or `PID/task/TID`.
pub(crate) fn read_stat(task: &str) -> Option<ProcStat> {
    parse_stat(&read_bounded(&format!("/proc/{task}/stat"))?)
}

fn parse_stat(text: &[u8]) -> Option<ProcStat> {
    let open = text.iter().position(|byte| *byte == b'(')?.checked_add(1)?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat_fields(text);
    let mut field = |skipped: usize| -> Option<i128> {
        std::str::from_utf8(fields.nth(skipped)?).ok()?.parse::<i128>().ok()
    };
    let state = *text.get(close.checked_add(2)?)?;
    // Numbers of the fields read after the state (3): parent 4, faults 10 and 12, priority 18,
    // start 22, exit code 52. The argument of `field` is the number of fields to skip.
    let parent = u32::try_from(field(1)?).unwrap_or(0);
    let faults = [u64::try_from(field(5)?).unwrap_or(0), u64::try_from(field(1)?).unwrap_or(0)];
    // The file has the priority minus 100.
    let priority = i64::try_from(field(5)?).unwrap_or(0).saturating_add(100);
    let start_ticks = u64::try_from(field(3)?).ok()?;
    let exit_code = field(29).and_then(|code| u32::try_from(code).ok()).unwrap_or(0);
    Some(ProcStat {
        name: ThreadName::new(text.get(open..close)?),
        state,
        parent,
        faults: faults.iter().fold(0, |sum, count| sum.saturating_add(*count)),
        priority,
        start_ticks,
        exit_code,
    })
}

impl ProcStat {
    /// Returns whether the task has ended and waits for its parent.
    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Reads the program of a process. `has_just_started`: the program has just started and cannot have
/// changed its arguments.
pub(crate) fn read_program(pid: u32, name: &[u8], has_just_started: bool) -> RunningProgram {
    let command_line =
        read_arguments(pid).map(|bytes| join_arguments(&bytes, has_just_started)).unwrap_or_default();
    RunningProgram::new(read_executable_path(pid), name, command_line)
}

/// Returns the path of a process's executable; empty if it has none.
pub(crate) fn read_executable_path(pid: u32) -> Vec<u8> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe"));
    let mut path = path.map(|path| path.into_os_string().into_vec()).unwrap_or_default();
    // The suffix that the kernel adds to the path of an unlinked file.
    if let Some(before) = path.strip_suffix(b" (deleted)") {
        path.truncate(before.len());
    }
    path
}

impl RunningProgram {
    /// Takes the image name from the path or, where that is empty, from the thread name.
    pub(crate) fn new(path: Vec<u8>, name: &[u8], command_line: String) -> Self {
        let last = path.rsplit(|byte| *byte == b'/').next().filter(|last| !last.is_empty());
        let image = last.unwrap_or(name).to_vec();
        Self { path, image, command_line }
    }
}

/// Returns the arguments of a process, each with its terminating zero; empty while an exec is not
/// finished. At most `MAX_COMMAND_LINE_BYTES + 1` bytes: the extra byte shows that the command line
/// was cut.
pub(crate) fn read_arguments(pid: u32) -> Option<Vec<u8>> {
    let limit = u64::try_from(MAX_COMMAND_LINE_BYTES).ok()?.saturating_add(1);
    let read = move || proc::read_file(&format!("/proc/{pid}/cmdline"), limit);
    // The arguments lie in the memory of the process, which can block reads of it (for example with
    // userfaultfd), so the read has a timeout.
    blocking::run_for_process(pid, READ_TIMEOUT, read).flatten()
}

/// Joins arguments into one line.
pub(crate) fn join_arguments(bytes: &[u8], has_just_started: bool) -> String {
    let shown_bytes = bytes.get(..MAX_COMMAND_LINE_BYTES).unwrap_or(bytes);
    let mut arguments = shown_bytes.strip_suffix(&[0]).unwrap_or(shown_bytes);
    if !has_just_started {
        // A program that changes its title fills the remaining bytes of its arguments with zeros.
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
            push_quoted(&String::from_utf8_lossy(argument), &mut line);
        }
    }
    if bytes.len() > shown_bytes.len() {
        line.push('…');
    }
    line
}

/// Appends an argument by the rules of Windows. An empty argument, and one with blanks or quotation
/// marks, gets quotation marks around it, and a backslash before each inner quotation mark and
/// before each backslash that precedes a quotation mark.
fn push_quoted(argument: &str, line: &mut String) {
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

/// Fields of `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcStatus {
    /// The effective user id.
    pub(crate) user: Option<u32>,
    /// The id in the innermost PID namespace, if that is not ours.
    pub(crate) inner_pid: Option<u32>,
    /// `None` for kernel threads and for processes that have released their memory.
    pub(crate) sizes: Option<MemorySizes>,
}

/// Memory sizes of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemorySizes {
    pub(crate) peak_virtual: u64,
    pub(crate) peak_resident: u64,
    pub(crate) virtual_size: u64,
    pub(crate) resident: u64,
    /// Anonymous memory, resident or swapped out.
    pub(crate) private: u64,
}

pub(crate) fn read_status(pid: u32) -> Option<ProcStatus> {
    let bytes = read_bounded(&format!("/proc/{pid}/status"))?;
    Some(parse_status(&String::from_utf8_lossy(&bytes)))
}

fn parse_status(text: &str) -> ProcStatus {
    let mut status = ProcStatus::default();
    let mut sizes = MemorySizes::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let mut words = value.split_ascii_whitespace();
        let mut size_bytes =
            || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024);
        match key {
            "Uid" => status.user = value.split_ascii_whitespace().nth(1).and_then(|uid| uid.parse().ok()),
            "NSpid" => status.inner_pid = parse_innermost_id(value),
            "VmPeak" => sizes.peak_virtual = size_bytes(),
            "VmSize" => sizes.virtual_size = size_bytes(),
            "VmHWM" => sizes.peak_resident = size_bytes(),
            "VmRSS" => sizes.resident = size_bytes(),
            "RssAnon" | "VmSwap" => sizes.private = sizes.private.saturating_add(size_bytes()),
            _ => continue,
        }
    }
    status.sizes = (sizes.virtual_size > 0).then_some(sizes);
    status
}

/// Returns the last id in `NSpid`; `None` if `NSpid` has only the id in our namespace.
fn parse_innermost_id(ids: &str) -> Option<u32> {
    ids.split_ascii_whitespace().skip(1).last().and_then(|id| id.parse().ok())
}

/// Reads package, application and namespace of a process. `is_nested`: its PID namespace is below
/// ours.
pub(crate) fn read_app_identity(pid: u32, is_nested: bool) -> Arc<AppIdentity> {
    let groups = read_bounded(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups);
    let package = cgroup::container(&groups).or_else(|| cgroup::package(&groups)).unwrap_or_default();
    let application = cgroup::application(&groups).unwrap_or_default();
    let namespace = if is_nested { read_pid_namespace(pid) } else { None };
    Arc::new(AppIdentity { package, application, namespace })
}

/// Returns the inode number of a process's PID namespace.
fn read_pid_namespace(pid: u32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

impl AppIdentity {
    /// Writes `ApplicationId`: the application or, in another PID namespace, that namespace and the
    /// process id in it.
    pub(crate) fn write_application_id(&self, inner_pid: Option<u32>, out: &mut String) {
        out.clear();
        match (self.namespace, inner_pid) {
            (Some(namespace), Some(inner_pid)) => drop(write!(out, "pid:[{namespace}]:{inner_pid}")),
            (Some(namespace), None) => drop(write!(out, "pid:[{namespace}]")),
            (None, _) => out.push_str(&self.application),
        }
    }
}

/// Returns the audit session of the login that a process belongs to.
pub(crate) fn read_audit_session(pid: u32) -> u32 {
    let text = read_bounded(&format!("/proc/{pid}/sessionid")).unwrap_or_default();
    std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(NO_SESSION)
}

pub(crate) fn has_cap_sys_ptrace() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = read_bounded("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.is_some_and(|set| u64::from_str_radix(set.trim(), 16).unwrap_or(0) & CAP_SYS_PTRACE != 0)
}

/// Counts the open file descriptors of a process.
pub(crate) fn count_descriptors(pid: u32) -> u32 {
    // Newer kernels report the count as the size of the directory.
    let size = std::fs::metadata(format!("/proc/{pid}/fd")).map(|folder| folder.len()).unwrap_or(0);
    let count = || proc::list_descriptors(pid).take(1 << 16).count();
    if size > 0 { u32::try_from(size).unwrap_or(u32::MAX) } else { u32::try_from(count()).unwrap_or(0) }
}

/// Returns the mask of the first 64 processors that a thread may run on; 0 if it is unknown.
pub(crate) fn read_affinity(tid: u32) -> u64 {
    let id = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(Ok(set)) = id.map(|id| rustix::thread::sched_getaffinity(Some(id))) else { return 0 };
    (0..64).filter(|cpu| set.is_set(*cpu)).fold(0, |mask, cpu| mask | 1 << cpu)
}

#[cfg(test)]
mod tests;
