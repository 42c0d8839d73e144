//! Shows progress on standard error: a bar for input, a line for a recording or for its end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use traceweir::session::SessionSummary;

use crate::text::grouped;

/// How long work must take before progress is shown.
const SHOW_DELAY: Duration = Duration::from_millis(400);

/// Shows the progress of a pass over the input.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
    wanted: bool,
    calls: u32,
}

impl Progress {
    /// Creates a bar for `total` bytes. It stays hidden if data goes to the same terminal.
    pub(crate) fn new(total: u64, what: &'static str, data_on_terminal: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        let wanted = std::io::stderr().is_terminal() && !data_on_terminal;
        Self { bar, started: Instant::now(), shown: false, wanted, calls: 0 }
    }

    /// Updates the bar; called for each event, so it is cheap.
    #[inline]
    pub(crate) fn update(&mut self, bytes: impl FnOnce() -> u64) {
        self.calls = self.calls.wrapping_add(1);
        if self.wanted && self.calls.is_multiple_of(4096) {
            self.show(bytes());
        }
    }

    fn show(&mut self, bytes: u64) {
        if !self.shown && self.started.elapsed() > SHOW_DELAY {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.shown = true;
        }
        if self.shown {
            self.bar.set_position(bytes);
        }
    }

    /// Removes the bar.
    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}

/// Shows the state of a recording in one line.
pub(crate) struct Counter {
    line: ProgressBar,
}

impl Counter {
    /// Creates a line on a terminal; nothing if `wanted` is not set.
    pub(crate) fn new(wanted: bool) -> Self {
        let shown = wanted && std::io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let line = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} recording {elapsed}: {msg} (Ctrl-C ends)")
        {
            line.set_style(style);
        }
        Self { line }
    }

    /// Shows the current properties of the session.
    pub(crate) fn show(&self, now: &SessionSummary) {
        let lost = now.events_lost.saturating_add(now.real_time_events_lost);
        let (events, lost) = (grouped(now.events), grouped(lost));
        self.line.set_message(format!("{events} events from {} processes, {lost} lost", now.processes));
        self.line.tick();
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// Shows on a terminal that the program waits, until it is dropped.
pub(crate) struct Waiting {
    line: ProgressBar,
}

impl Waiting {
    /// Creates a line with a moving spinner.
    pub(crate) fn new(what: &'static str) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let line = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}: writing the rest") {
            line.set_style(style);
        }
        line.set_message(what);
        if is_shown {
            line.enable_steady_tick(SHOW_DELAY);
        }
        Self { line }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
