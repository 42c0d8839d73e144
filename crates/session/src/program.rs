//! The program that a process runs, from `/proc`.

use crate::cgroup::read_limited;

/// Longest command line in an event, in characters; a longer one ends with `…`.
const MAX_COMMAND_LINE_CHARS: usize = 512;

/// The program that a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Id of the parent process; 0 if it is unknown.
    pub parent: u32,
    /// Last component of the path of the executable, or the name of the first thread.
    pub image: String,
    /// Arguments, separated by spaces; those with spaces are quoted.
    pub command_line: String,
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
        let arguments = read_limited(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        Some(Self { parent, image: image.unwrap_or_default(), command_line: join_arguments(&arguments) })
    }
}

/// Joins arguments that end with NUL.
fn join_arguments(arguments: &str) -> String {
    let quote = |argument: &str| match argument.is_empty() || argument.contains([' ', '\t', '"']) {
        true => format!("\"{}\"", argument.replace('"', "\\\"")),
        false => argument.to_owned(),
    };
    let arguments = arguments.strip_suffix('\0').unwrap_or(arguments);
    if arguments.is_empty() {
        return String::new();
    }
    let line = arguments.split('\0').map(quote).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_COMMAND_LINE_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_has_its_parent_image_and_arguments() {
        let program = Program::read(std::process::id()).unwrap();
        assert_eq!(program.parent, std::os::unix::process::parent_id());
        let executable = std::env::current_exe().unwrap();
        assert_eq!(executable.file_name().unwrap().to_str(), Some(program.image.as_str()));
        assert!(program.command_line.contains(&program.image), "{}", program.command_line);
        assert_eq!(Program::read(u32::MAX), None);
    }

    #[test]
    fn arguments_are_quoted_and_bounded() {
        assert_eq!(join_arguments("a\0b c\0\0d\"\0"), "a \"b c\" \"\" \"d\\\"\"");
        assert_eq!((join_arguments(""), join_arguments("x")), (String::new(), "x".to_owned()));
        let long = join_arguments(&"ü".repeat(4000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_COMMAND_LINE_CHARS + 1, true));
    }
}
