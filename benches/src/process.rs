//! Child processes on one core, and their processor time.
//!
//! A cost is the processor time (user and system) of the whole process from its start to its end.
//! It includes all threads, and excludes the time in which other processes had the core. So a tool
//! that uses more cores has no advantage here. Other processes that share caches or the core still
//! increase the time: record figures on a quiet machine.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// Pins this process and its children to the last allowed core, and returns its number.
///
/// The first core serves more interrupts.
pub(crate) fn pin_to_last_core() -> Result<usize> {
    let own_process = Pid::from_raw(0);
    let allowed = sched_getaffinity(own_process).map_err(Error::system("querying the allowed processors"))?;
    let last = (0..CpuSet::count()).rev().find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).unwrap_or(0);
    let mut only = CpuSet::new();
    only.set(last)
        .and_then(|()| sched_setaffinity(own_process, &only))
        .map_err(Error::system("pinning to a processor"))?;
    Ok(last)
}

/// Returns the processor time that `work` takes in this process.
pub(crate) fn measure_own_time(work: impl FnOnce()) -> Result<Duration> {
    let before = resource_usage(UsageWho::RUSAGE_SELF)?;
    work();
    Ok(resource_usage(UsageWho::RUSAGE_SELF)?.saturating_sub(before))
}

#[derive(Debug)]
pub(crate) struct ChildResult {
    /// Processor time of the child.
    pub(crate) time: Duration,
    /// Standard output, if captured.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
    pub(crate) has_succeeded: bool,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command, stdout: Stdio) -> Result<ChildResult> {
    let before = time_of_children()?;
    let ended = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output();
    let Output { status, stdout, stderr } = ended.map_err(|e| program_error(command, e.to_string()))?;
    let time = time_of_children()?.saturating_sub(before);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(ChildResult { time, stdout: text(stdout), stderr: text(stderr), has_succeeded: status.success() })
}

/// Returns the processor time of all children that have ended.
pub(crate) fn time_of_children() -> Result<Duration> {
    resource_usage(UsageWho::RUSAGE_CHILDREN)
}

/// Builds the error of a failed program.
pub(crate) fn program_error(command: &Command, reason: String) -> Error {
    Error::Program { program: command.get_program().to_string_lossy().into_owned(), reason }
}

fn resource_usage(who: UsageWho) -> Result<Duration> {
    let usage = getrusage(who).map_err(Error::system("resource usage"))?;
    let micros =
        |t: nix::sys::time::TimeVal| t.tv_sec().unsigned_abs() * 1_000_000 + t.tv_usec().unsigned_abs();
    Ok(Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
}

/// Returns the peak resident memory of this process so far, in KiB; 0 if unknown.
pub(crate) fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Returns the largest peak of resident memory of the children that have ended, in MiB.
pub(crate) fn peak_memory_of_children_mib() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(Error::system("resource usage"))?;
    // The KiB of a process are far below 2⁵³.
    #[allow(clippy::cast_precision_loss)]
    Ok(usage.max_rss() as f64 / 1024.0)
}

/// Returns the free bytes on the file system of `folder`.
pub(crate) fn free_bytes(folder: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(folder).map_err(Error::system("free space"))?;
    Ok(stat.blocks_available() * stat.fragment_size())
}

/// Serialises tests that start children: the system reports the time of all children of a process
/// together.
#[cfg(test)]
pub(crate) fn lock_children() -> std::sync::MutexGuard<'static, ()> {
    static CHILDREN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    CHILDREN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_charged_for_its_work_and_not_for_its_sleep() {
        let _alone = lock_children();
        let busy = run(
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]),
            Stdio::null(),
        );
        let idle = run(Command::new("sleep").arg("0.3"), Stdio::null());
        let (busy, idle) = (busy.unwrap(), idle.unwrap());
        assert!(busy.has_succeeded && idle.has_succeeded);
        assert!(idle.time < Duration::from_millis(200) && busy.time > Duration::ZERO, "{idle:?} {busy:?}");
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(peak_memory_kib() > 100);
    }
}
