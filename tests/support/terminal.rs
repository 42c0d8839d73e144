//! Runs programs with their output on a terminal of a given size.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalSize {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// The usual size of a small terminal.
pub(crate) const SMALL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// Runs a command with standard output and standard error on a terminal, and returns the printed
/// text, with `\n` as the end of a line.
pub(crate) fn run_on_terminal(command: &mut Command, size: TerminalSize) -> String {
    let (controller, terminal) = open_terminal(size);
    let terminal_copy = terminal.try_clone().expect("the terminal cannot be duplicated");
    command.stdin(Stdio::null()).stdout(terminal_copy).stderr(terminal);
    let mut child = command.spawn().expect("the program did not start");
    // The command keeps its copies of the terminal open until they are replaced.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut printed = Vec::new();
    let mut chunk = [0; 4096];
    let mut controller = File::from(controller);
    // Reading fails once no process has the terminal open.
    while let Ok(length) = controller.read(&mut chunk) {
        if length == 0 {
            break;
        }
        printed.extend_from_slice(&chunk[..length]);
    }
    child.wait().expect("the program cannot be waited for");
    String::from_utf8(printed).expect("the output is not UTF-8").replace("\r\n", "\n")
}

/// Returns the controlling side and the terminal side of a new terminal.
fn open_terminal(size: TerminalSize) -> (OwnedFd, OwnedFd) {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut controller, mut terminal) = (-1, -1);
    // SAFETY: the pointers are valid for the duration of the call, and null is allowed for the name
    // and the settings.
    let result = unsafe {
        libc::openpty(&mut controller, &mut terminal, std::ptr::null_mut(), std::ptr::null(), &size)
    };
    assert_eq!(result, 0, "no terminal: {}", std::io::Error::last_os_error());
    // SAFETY: the call succeeded, so both descriptors are open, and nothing else owns them.
    unsafe { (OwnedFd::from_raw_fd(controller), OwnedFd::from_raw_fd(terminal)) }
}
