//! The program that a process runs, from `/proc`.
//!
//! The command line is not read: the process can block the reader, and its arguments may be secret to
//! the owner of a session.

use crate::cgroup::read_limited;

/// The program that a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Id of the parent process; 0 if it is unknown.
    pub parent: u32,
    /// Last component of the path of the executable, or the name of the first thread.
    pub image: String,
}

impl Program {
    /// Reads the program of a process; `None` if there is no such process.
    #[must_use]
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let stat = read_limited(&format!("/proc/{pid}/stat"))?;
        let (before, after) = stat.rsplit_once(')')?;
        let parent = after.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let name = executable.as_ref().and_then(|path| path.file_name());
        let image = name.map(|name| name.to_string_lossy().into_owned());
        let image = image.or_else(|| before.split_once('(').map(|(_, name)| name.to_owned()));
        Some(Self { parent, image: image.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_has_its_parent_and_image() {
        let program = Program::read(std::process::id()).unwrap();
        assert_eq!(program.parent, std::os::unix::process::parent_id());
        let executable = std::env::current_exe().unwrap();
        assert_eq!(executable.file_name().unwrap().to_str(), Some(program.image.as_str()));
        assert_eq!(Program::read(u32::MAX), None);
    }
}
