//! Processes of this machine, as `/proc` tells of them. One that may not be looked at, or is gone meanwhile, is told as far as it goes.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Bytes of a name that the system keeps for a process whose program may not be asked for.
const SHORT_NAME: usize = 15;

/// Whether there is a process of this id.
pub(crate) fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// The user id that a process runs as.
pub(crate) fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|folder| folder.uid())
}

/// The program that a process runs: the path of its file, else the name that it shows.
pub(crate) fn program(pid: u32) -> Option<String> {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let shown =
        || fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
    let path = file.map(|file| file.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    path.or_else(shown).filter(|name| !name.is_empty())
}

/// Whether any process runs a program of this file name, without regard to case, as a filter by program compares it.
pub(crate) fn runs(name: &str) -> bool {
    let wanted = name.to_lowercase();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(program).any(|program| {
        let own = program.rsplit('/').next().unwrap_or_default().to_lowercase();
        // A name that was cut may be any that begins like this.
        own == wanted || (own.len() == SHORT_NAME && !program.contains('/') && wanted.starts_with(&own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_nobody_runs_nonsense() {
        let own = std::process::id();
        assert!(exists(own) && !exists(u32::MAX));
        assert_eq!(owner(own), Some(rustix::process::geteuid().as_raw()));
        let program = program(own).unwrap();
        assert_eq!(program, std::env::current_exe().unwrap().to_str().unwrap());
        assert!(runs(&program.rsplit('/').next().unwrap().to_uppercase()));
        assert!(!runs("traceweir-nobody-runs-this"));
    }
}
