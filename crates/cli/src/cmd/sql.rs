//! `weir sql`: runs the program `weir-sql`, which queries traces and datasets with SQL.
//!
//! The program is a package of its own, because its database engine is many times larger than
//! `weir`.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cli::SqlArgs;
use crate::exit::CommandOutcome;
use crate::text::escape_path;

const PROGRAM: &str = "weir-sql";

pub(super) fn run(options: &SqlArgs) -> Result<CommandOutcome> {
    let own = std::env::current_exe().ok();
    let path_list = std::env::var_os("PATH").unwrap_or_default();
    let Some(program) = find_program(own.as_deref(), &path_list) else {
        bail!(
            "weir sql needs the program {PROGRAM}, which is neither beside weir nor in PATH: cargo install --path tables/sql builds it"
        );
    };
    // On success the program replaces this one.
    let error = Command::new(&program).args(&options.arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", escape_path(&program)))
}

/// Returns the program beside this one, or else the first in `PATH`.
fn find_program(own: Option<&Path>, path_list: &OsStr) -> Option<PathBuf> {
    let beside = own.and_then(Path::parent).map(Path::to_owned);
    let folders = beside.into_iter().chain(std::env::split_paths(path_list));
    folders
        .map(|folder| folder.join(PROGRAM))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn program_beside_weir_comes_before_that_in_path() {
        let folder = tempfile::tempdir().unwrap();
        let (beside, other) = (folder.path().join("a"), folder.path().join("b"));
        for place in [&beside, &other] {
            fs::create_dir(place).unwrap();
        }
        let own = beside.join("weir");
        let find = || find_program(Some(&own), other.as_os_str());
        assert_eq!(find(), None);
        fs::write(other.join(PROGRAM), "").unwrap();
        assert_eq!(find(), None, "the file is not executable");
        let make_executable = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        make_executable(&other.join(PROGRAM));
        assert_eq!(find(), Some(other.join(PROGRAM)));
        fs::write(beside.join(PROGRAM), "").unwrap();
        make_executable(&beside.join(PROGRAM));
        assert_eq!(find(), Some(beside.join(PROGRAM)));
    }
}
