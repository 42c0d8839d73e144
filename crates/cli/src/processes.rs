//! Reads processes of this machine from `/proc`. Values that cannot be read, or of a process that
//! has ended, are `None`.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Maximum length of a process name (`comm`), in bytes.
const SHORT_NAME: usize = 15;

/// Returns whether a process exists.
pub(crate) fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// Returns the user id of a process.
pub(crate) fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|folder| folder.uid())
}

/// Returns the program of a process: the path of its file, else its name (`comm`).
pub(crate) fn program(pid: u32) -> Option<String> {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let shown =
        || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
    let path = file.map(|file| file.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    path.or_else(shown).filter(|name| !name.is_empty())
}

/// Returns whether any process runs a program of this file name, ignoring case, as the filter by
/// program compares it.
pub(crate) fn runs(name: &str) -> bool {
    let wanted = name.to_lowercase();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(program).any(|program| {
        let own = program.rsplit('/').next().unwrap_or_default().to_lowercase();
        // A truncated name may be any name that begins with it.
        own == wanted || (own.len() == SHORT_NAME && !program.contains('/') && wanted.starts_with(&own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_exists_and_unknown_programs_do_not_run() {
        let own = std::process::id();
        assert!(exists(own) && !exists(u32::MAX));
        assert_eq!(owner(own), Some(rustix::process::geteuid().as_raw()));
        let program = program(own).unwrap();
        assert_eq!(program, std::env::current_exe().unwrap().to_str().unwrap());
        assert!(runs(&program.rsplit('/').next().unwrap().to_uppercase()));
        assert!(!runs("traceweir-nobody-runs-this"));
    }
}
