//! Opens the page in the browser of the user.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Opens a URL with `$BROWSER` or `xdg-open`, if the user has a desktop. Returns whether a program
/// was started.
pub(crate) fn open(url: &str) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match std::env::var_os("BROWSER").filter(|program| !program.is_empty()) {
        // The variable may list several programs.
        Some(list) => std::env::split_paths(&list).next().map(OsString::from).unwrap_or_default(),
        None if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open".into(),
        None => return false,
    };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    // Waits so that the process does not stay as a zombie.
    std::thread::spawn(move || child.wait());
    true
}
