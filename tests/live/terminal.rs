//! Tests of `weir` on a terminal, which tmux provides: progress, Ctrl-C, colours, and widths.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{SHOP, arg, shop_events_in, start_shop};
use crate::util::skip::holds_or_skip;
use crate::util::{Daemon, eventually};

pub(super) const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// Columns and lines of the terminals on which each command is tested.
pub(super) const SIZES: [(usize, usize); 2] = [(80, 24), (200, 60)];
const ESCAPE: char = '\u{1b}';

/// A terminal of tmux that runs one shell command. Dropping this value ends the terminal.
pub(super) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Starts a shell command on a terminal of this size. The terminal stays when the command ends,
    /// and its last line is then `exit status N`. The shell catches Ctrl-C, which also reaches it.
    pub(super) fn start(daemon: &Daemon, (columns, lines): (usize, usize), shell_command: &str) -> Self {
        // A server that is ending could still use the socket of an earlier terminal.
        static NEXT_SOCKET: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_SOCKET.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { socket: daemon.path(&format!("tmux-{number}")) };
        let settings = daemon.path("tmux.conf");
        std::fs::write(&settings, "set -g status off\nset -g default-terminal tmux-256color\n").unwrap();
        let script =
            format!("trap : INT; {shell_command}; result=$?; echo; echo exit status $result; exec sleep 600");
        let status = terminal
            .command(&["-f", arg(&settings), "new-session", "-d"])
            .args(["-x", &columns.to_string(), "-y", &lines.to_string(), &script])
            .current_dir(daemon.folder())
            .env("TRACEWEIR_RUNTIME_DIR", daemon.folder())
            .env("PATH", path_with_weir())
            .env_remove("NO_COLOR")
            .status()
            .unwrap();
        assert!(status.success(), "tmux did not start: {status}");
        terminal
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments).stdin(Stdio::null()).env_remove("TMUX");
        command
    }

    pub(super) fn output(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the text on the screen and above it, without colours.
    pub(super) fn text(&self) -> String {
        self.output(&["capture-pane", "-p", "-S", "-"])
    }

    /// Returns the text with wrapped lines joined.
    pub(super) fn joined_text(&self) -> String {
        self.output(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// Returns the joined text with the escape sequences of colours.
    fn coloured_text(&self) -> String {
        self.output(&["capture-pane", "-p", "-e", "-J", "-S", "-"])
    }

    /// Fails if a line was wider than the terminal.
    #[track_caller]
    fn assert_no_line_is_wrapped(&self) {
        let joined = self.joined_text();
        let lines = |text: &str| {
            let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&joined), lines(&self.text()), "a line is wider than the terminal");
    }

    pub(super) fn press(&self, key: &str) {
        self.output(&["send-keys", key]);
    }

    /// Waits for the end of the command and returns its exit status.
    pub(super) fn wait_for_exit(&self) -> i32 {
        eventually("the command ends", || {
            let text = self.text();
            let line = text.lines().map(str::trim_end).rfind(|line| !line.is_empty())?;
            line.strip_prefix("exit status ")?.parse().ok()
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).stderr(Stdio::null()).status();
    }
}

/// Returns a search path that has weir, so that the printed commands are short.
fn path_with_weir() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folder = Path::new(WEIR).parent().unwrap().to_owned();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).unwrap()
}

pub(super) fn has_tmux() -> bool {
    let runs =
        Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    holds_or_skip(runs, "tmux", "tmux is not installed")
}

/// Returns whether the file has grown beyond its header, so that a recording is under way.
fn has_events(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.len() > 0)
}

#[test]
fn record_shows_progress_and_ends_with_ctrl_c() {
    if !has_tmux() {
        return;
    }
    for size in SIZES {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let _shop = start_shop(&daemon);
        let terminal =
            Terminal::start(&daemon, size, &format!("{WEIR} record -p {SHOP} -o {}", file.display()));
        eventually("the progress line counts events", || {
            let text = terminal.text();
            let line = text.lines().find(|line| line.contains("recording"))?;
            let (_, counters) = line.split_once(": ")?;
            (!counters.starts_with("0 events") && counters.contains(" from 1 process")).then_some(())
        });
        terminal.assert_no_line_is_wrapped();
        terminal.press("C-c");
        assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.text());
        let text = terminal.text();
        assert!(!text.contains("Ctrl-C ends"), "the progress line is left on the terminal:\n{text}");
        assert!(text.contains(SHOP) || text.contains("event"), "the summary is missing:\n{text}");
        terminal.assert_no_line_is_wrapped();
        assert!(has_events(&file) && !shop_events_in(&file).is_empty());
    }
}

#[test]
fn watch_prints_in_colour_and_ends_with_ctrl_c() {
    if !has_tmux() {
        return;
    }
    for size in SIZES {
        let daemon = Daemon::start();
        let _shop = start_shop(&daemon);
        let terminal = Terminal::start(&daemon, size, &format!("{WEIR} watch -p {SHOP}"));
        eventually("events fill the screen", || {
            (terminal.joined_text().matches("Brew").count() > 5).then_some(())
        });
        assert!(terminal.coloured_text().contains(ESCAPE), "there is no colour on a terminal");
        terminal.press("C-c");
        assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.text());
    }
}

#[test]
fn output_to_a_pipe_has_no_colour() {
    if !has_tmux() {
        return;
    }
    let daemon = Daemon::start();
    let _shop = start_shop(&daemon);
    let terminal =
        Terminal::start(&daemon, SIZES[0], &format!("{WEIR} watch -p {SHOP} --head 20 2>/dev/null | cat"));
    assert_eq!(terminal.wait_for_exit(), 0);
    let text = terminal.coloured_text();
    assert!(text.contains("Brew"), "{text}");
    assert!(!text.contains(ESCAPE), "{text}");
}

#[test]
fn tables_fit_the_terminal() {
    if !has_tmux() {
        return;
    }
    for size in SIZES {
        let daemon = Daemon::start();
        let file = daemon.path("a.etl");
        let record =
            format!("record --no-kernel -o {} -- {WEIR} demo-shop --orders 20 --pause 0", file.display());
        daemon.weir(record.split(' ')).expect(0);
        let terminal = Terminal::start(&daemon, size, &format!("{WEIR} stats {}", file.display()));
        assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.text());
        assert!(terminal.text().contains(SHOP), "{}", terminal.text());
        terminal.assert_no_line_is_wrapped();
    }
}
