//! Shows progress on standard error: a bar for input, a line for a recording or for its end.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use traceweir::session::SessionSummary;
use traceweir_analysis::observer::{PassProgress, ReadObserver, ReadPass, Warning};

use crate::reading::print_reading_warning;
use crate::text::{format_count, format_number};

/// How long work must take before progress is shown.
const SHOW_DELAY: Duration = Duration::from_millis(400);

/// Columns that a line of progress leaves free, for `^C` and the cursor.
const RESERVED_COLUMNS: usize = 3;

/// Shows the progress of reading traces as bars, and prints warnings.
pub(crate) struct TerminalObserver {
    /// Whether bars may be shown.
    is_allowed: bool,
}

impl TerminalObserver {
    /// Creates an observer. Its bars stay hidden if data goes to the same terminal.
    pub(crate) fn create(is_data_on_terminal: bool) -> Arc<dyn ReadObserver> {
        Arc::new(Self { is_allowed: std::io::stderr().is_terminal() && !is_data_on_terminal })
    }
}

impl ReadObserver for TerminalObserver {
    fn begin_pass(&self, pass: ReadPass, total_bytes: u64) -> Option<PassProgress> {
        let message = match pass {
            ReadPass::Survey => "looking for schemas",
            ReadPass::Events => "reading",
        };
        self.is_allowed.then(|| {
            let mut bar = PassBar::new(total_bytes, message);
            Box::new(move |bytes| bar.show_position(bytes)) as PassProgress
        })
    }

    fn warn(&self, warning: &Warning) {
        print_reading_warning(warning);
    }
}

/// The bar of a pass, which disappears when it is dropped.
struct PassBar {
    bar: ProgressBar,
    started: Instant,
    is_shown: bool,
}

impl PassBar {
    fn new(total: u64, message: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(message);
        Self { bar, started: Instant::now(), is_shown: false }
    }

    fn show_position(&mut self, bytes: u64) {
        if !self.is_shown && self.started.elapsed() > SHOW_DELAY {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.is_shown = true;
        }
        if self.is_shown {
            self.bar.set_position(bytes);
        }
    }
}

impl Drop for PassBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows the state of a recording in one line.
///
/// The line ends before the last columns of the terminal: the terminal prints `^C` at its end when
/// the user ends the recording, and a line of the full width would wrap and stay on the screen.
pub(crate) struct RecordingLine {
    is_shown: bool,
    started: Instant,
}

impl RecordingLine {
    /// Creates a line on a terminal; hidden if `is_allowed` is not set.
    pub(crate) fn new(is_allowed: bool) -> Self {
        Self { is_shown: is_allowed && std::io::stderr().is_terminal(), started: Instant::now() }
    }

    /// Shows the current counters of the session.
    pub(crate) fn show_counters(&self, summary: &SessionSummary) {
        if !self.is_shown {
            return;
        }
        let lost = summary.events_lost.saturating_add(summary.real_time_events_lost);
        let (events, lost) = (format_count(summary.events, "event"), format_number(lost));
        let (processes, seconds) =
            (format_count(summary.processes.into(), "process"), self.started.elapsed().as_secs());
        let line = format!("recording {seconds}s: {events} from {processes}, {lost} lost (Ctrl-C ends)");
        let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let shown: String = line.chars().take(columns.saturating_sub(RESERVED_COLUMNS)).collect();
        replace_line(&shown);
    }
}

impl Drop for RecordingLine {
    fn drop(&mut self) {
        if self.is_shown {
            replace_line("");
        }
    }
}

/// Replaces the last line of the terminal. An error is ignored: the recording is more important.
fn replace_line(text: &str) {
    let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{text}");
}

/// Shows on a terminal that the program waits, until this value is dropped.
pub(crate) struct WaitLine {
    line: ProgressBar,
}

impl WaitLine {
    /// Creates a line with a moving spinner.
    pub(crate) fn new(message: &'static str) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let line = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}: writing the rest") {
            line.set_style(style);
        }
        line.set_message(message);
        if is_shown {
            line.enable_steady_tick(SHOW_DELAY);
        }
        Self { line }
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
