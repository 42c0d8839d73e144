//! Reads processes of this machine from `/proc`. A value is `None` if it cannot be read, or if the
//! process has ended.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Maximum length of a process name (`comm`).
const MAX_COMM_BYTES: usize = 15;

/// Returns whether a process exists.
pub fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// Returns the user id of a process.
pub fn uid_of(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|folder| folder.uid())
}

/// Returns the program of a process: the path of its file, or else its name (`comm`).
pub fn program_of(pid: u32) -> Option<String> {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let read_comm =
        || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
    let path = file.map(|file| file.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    path.or_else(read_comm).filter(|name| !name.is_empty())
}

/// Returns the process of a thread.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Returns whether any process runs a program of this file name, ignoring case, as the filter
/// `@exe` compares names.
pub fn is_program_running(name: &str) -> bool {
    let name = name.to_lowercase();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(program_of).any(|program| {
        let file_name = program.rsplit('/').next().unwrap_or_default().to_lowercase();
        // A truncated name matches every name that begins with it.
        file_name == name
            || (file_name.len() == MAX_COMM_BYTES && !program.contains('/') && name.starts_with(&file_name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_exists_and_unknown_programs_do_not_run() {
        let pid = std::process::id();
        assert!(exists(pid) && !exists(u32::MAX));
        let in_thread =
            std::thread::spawn(|| process_of(rustix::thread::gettid().as_raw_pid().cast_unsigned()));
        assert_eq!(in_thread.join().unwrap(), Some(pid));
        assert_eq!(uid_of(pid), Some(rustix::process::geteuid().as_raw()));
        let program = program_of(pid).unwrap();
        assert_eq!(program, std::env::current_exe().unwrap().to_str().unwrap());
        assert!(is_program_running(&program.rsplit('/').next().unwrap().to_uppercase()));
        assert!(!is_program_running("traceweir-nobody-runs-this"));
    }
}
