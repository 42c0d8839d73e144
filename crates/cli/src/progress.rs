//! Progress on standard error, for people who wait: a bar over input, a line about a recording or about its end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use traceweir::controller::Properties;

use crate::cmd::grouped;

/// Work shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(400);

/// Shows how far a pass over the input is.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
    wanted: bool,
    calls: u32,
}

impl Progress {
    /// A bar over `total` bytes. It stays hidden when data goes to the same terminal.
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

    /// Called for each event; cheap.
    #[inline]
    pub(crate) fn at(&mut self, bytes: impl FnOnce() -> u64) {
        self.calls = self.calls.wrapping_add(1);
        if self.wanted && self.calls.is_multiple_of(4096) {
            self.show(bytes());
        }
    }

    fn show(&mut self, bytes: u64) {
        if !self.shown && self.started.elapsed() > PATIENCE {
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

/// Shows how a recording goes, in one line that changes.
pub(crate) struct Counter {
    line: ProgressBar,
}

impl Counter {
    /// A line for a terminal; nothing where `wanted` is not set.
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

    /// The session now.
    pub(crate) fn show(&self, now: &Properties) {
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

/// Shows that something is waited for, on a terminal, until it is dropped.
pub(crate) struct Waiting {
    line: ProgressBar,
}

impl Waiting {
    /// A line that moves by itself.
    pub(crate) fn new(what: &'static str) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let line = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}: what is left is written")
        {
            line.set_style(style);
        }
        line.set_message(what);
        if is_shown {
            line.enable_steady_tick(PATIENCE);
        }
        Self { line }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
