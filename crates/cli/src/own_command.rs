//! The command that starts this program from a shell.

use std::fs;
use std::path::Path;

use crate::text::quote_path_for_shell;

/// The name under which this program is installed.
const NAME: &str = "weir";

/// Returns what to type to run this program: its name if the shell finds this program by that name,
/// or else its path, quoted.
pub(crate) fn own_command() -> String {
    let Ok(program) = std::env::current_exe() else { return NAME.to_owned() };
    let path_list = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path_list);
    command_for(&program, folders.find_map(|folder| find_program(&folder)).as_deref())
}

/// Returns the file that a folder of `PATH` has for the name, if a shell would run it.
fn find_program(folder: &Path) -> Option<std::path::PathBuf> {
    let file = folder.join(NAME);
    let is_program = rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file();
    is_program.then_some(file)
}

fn command_for(program: &Path, found: Option<&Path>) -> String {
    let is_this_program =
        found.is_some_and(|found| fs::canonicalize(found).is_ok_and(|found| found == program));
    if is_this_program { NAME.to_owned() } else { quote_path_for_shell(program) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_named_unless_the_shell_finds_this_program() {
        let folder = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(folder.path()).unwrap();
        let program = folder.join("my tools").join(NAME);
        fs::create_dir(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        let quoted = format!("'{}'", program.display());
        assert_eq!(command_for(&program, None), quoted);
        let link = folder.join(NAME);
        std::os::unix::fs::symlink(&program, &link).unwrap();
        assert_eq!(command_for(&program, Some(&link)), NAME);
        let other = folder.join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(command_for(&program, Some(&other)), quoted);
    }
}
