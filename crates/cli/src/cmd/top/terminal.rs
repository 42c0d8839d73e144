//! The terminal while weir uses the whole of it, and its state before.
//!
//! ```text
//!   enter ──▶ raw mode, second screen, no cursor
//!   leave ◀── return, error, Ctrl-Z, a signal, a panic      a second leave does nothing
//! ```

use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::OwnedFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::ResetColor;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::feed::Message;
use crate::signals::{self, INTERRUPTED};

/// Bytes that are written to the terminal at once.
const OUTPUT_BYTES: usize = 64 << 10;

/// Whether the terminal is in the state that [`enter`] sets.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Writes to the terminal.
pub(super) type ScreenTerminal = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// Leaves the terminal when it is dropped.
pub(super) struct TerminalGuard(());

impl TerminalGuard {
    /// Takes the terminal over. A panic leaves it before its message is printed to `stderr`.
    pub(super) fn enter(stderr: OwnedFd) -> Result<(Self, ScreenTerminal)> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            let _ = rustix::stdio::dup2_stderr(&stderr);
            report(info);
        }));
        let guard = Self(());
        enter().context("cannot use the terminal")?;
        let output = BufWriter::with_capacity(OUTPUT_BYTES, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(output)).context("cannot use the terminal")?;
        Ok((guard, terminal))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        leave();
    }
}

/// Takes the terminal over, unless that was done before.
pub(super) fn enter() -> io::Result<()> {
    if !IS_ENTERED.swap(true, Ordering::SeqCst) {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
    }
    Ok(())
}

/// Restores the terminal, unless that was done before.
pub(super) fn leave() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        // The terminal may be gone, and each step helps on its own.
        let _ = execute!(io::stdout(), ResetColor, LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

/// Reports keys and signals. A second signal that ends programs ends this one at once.
pub(super) fn watch_input(messages: &Sender<Message>) -> Result<()> {
    let quits = messages.clone();
    signals::handle_interrupts(move |count| {
        if count > 1 {
            leave();
            std::process::exit(INTERRUPTED.into());
        }
        let _ = quits.send(Message::Quit);
    })?;
    let jobs: [(_, fn() -> Message); 2] = [(SIGTSTP, || Message::Suspend), (SIGCONT, || Message::Continue)];
    for (signal, to_message) in jobs {
        let jobs = messages.clone();
        let report = move |_| drop(jobs.send(to_message()));
        signals::handle_signals(&[signal], report).context("cannot handle signals")?;
    }
    let keys = messages.clone();
    let read = move || {
        loop {
            let message = match event::read() {
                Ok(Event::Key(key)) => Message::Key(key),
                Ok(Event::Resize(..)) => Message::Resized,
                Ok(_) => continue,
                Err(_) => Message::Quit,
            };
            let is_end = matches!(message, Message::Quit);
            if keys.send(message).is_err() || is_end {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).context("cannot start a thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::super::notes::NoteCapture;
    use super::*;
    use crate::skip::holds_or_skip;

    const REASON: &str = "the reason of the panic";
    const TIMEOUT: Duration = Duration::from_secs(120);

    #[test]
    #[ignore = "panics on purpose, on a terminal that another test starts"]
    fn panic_on_a_terminal() {
        let notes = NoteCapture::start().unwrap();
        let _entered = TerminalGuard::enter(notes.original().unwrap()).unwrap();
        panic!("{REASON}");
    }

    #[test]
    fn panic_restores_the_terminal_and_prints_its_message() {
        let has_tmux = Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok();
        if !holds_or_skip(has_tmux, "tmux", "tmux is not installed") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let tmux = |arguments: &[&str]| {
            let mut command = Command::new("tmux");
            command.arg("-S").arg(folder.path().join("tmux")).args(arguments).current_dir(folder.path());
            command.env_remove("TMUX").stdin(Stdio::null()).stderr(Stdio::null());
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let test = "cmd::top::terminal::tests::panic_on_a_terminal";
        let program = std::env::current_exe().unwrap();
        let script = format!(
            "stty -a > before; {} --ignored --exact {test} --nocapture; stty -a > after; sleep 600",
            program.display()
        );
        tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &script]);
        let settings = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let started = Instant::now();
        while !settings("after").ends_with('\n') && started.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(5));
        }
        let screen = tmux(&["capture-pane", "-p", "-S", "-"]);
        let second_screen = tmux(&["display-message", "-p", "#{alternate_on}"]);
        tmux(&["kill-server"]);
        assert!(screen.contains(REASON), "{screen}");
        assert_eq!(second_screen.trim(), "0");
        assert!(!settings("before").is_empty());
        assert_eq!(settings("after"), settings("before"));
    }
}
