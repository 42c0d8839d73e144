//! Opens the page in the browser of the user.
//!
//! All users can read the arguments of a program, so the browser gets the path of a file with the
//! address, which only this user can read.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

const START_PAGE: &str = "start.html";

/// The folder of the file with the address. Dropping it removes both.
#[derive(Debug)]
pub(crate) struct StartPage {
    folder: TempDir,
}

/// Opens a URL with `$BROWSER` or `xdg-open`, if the user has a desktop. Returns the file for the
/// browser if a program was started.
pub(crate) fn open(url: &str) -> Option<StartPage> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match std::env::var_os("BROWSER").filter(|program| !program.is_empty()) {
        // The variable may list several programs.
        Some(list) => std::env::split_paths(&list).next().map(OsString::from).unwrap_or_default(),
        None if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open".into(),
        None => return None,
    };
    let page = StartPage::write(url).ok()?;
    let mut command = Command::new(program);
    command.arg(page.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    // Waits so that the process does not stay as a zombie.
    std::thread::spawn(move || child.wait());
    Some(page)
}

impl StartPage {
    /// Writes a page that leads to an address, into a folder of this user.
    fn write(url: &str) -> io::Result<Self> {
        let runtime_folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let in_runtime_folder =
            runtime_folder.filter(|path| path.is_absolute()).and_then(|path| Self::write_in(&path, url).ok());
        in_runtime_folder.map_or_else(|| Self::write_in(&std::env::temp_dir(), url), Ok)
    }

    /// `url` contains no character that means something in HTML.
    fn write_in(parent: &Path, url: &str) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("weir-view-").permissions(Permissions::from_mode(0o700));
        let page = Self { folder: builder.tempdir_in(parent)? };
        let content = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>weir view</title>\n\
             <a href=\"{url}\">weir view</a>\n"
        );
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(page.path())?.write_all(content.as_bytes())?;
        Ok(page)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(START_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn address_is_in_a_private_file_that_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let page = StartPage::write_in(parent.path(), "http://127.0.0.1:1/token/").unwrap();
        let (path, folder) = (page.path(), page.folder.path().to_owned());
        for (path, mode) in [(&path, 0o600), (&folder, 0o700)] {
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, mode, "{}", path.display());
        }
        assert!(std::fs::read_to_string(&path).unwrap().contains("url=http://127.0.0.1:1/token/\""));
        drop(page);
        assert!(!folder.exists());
    }
}
