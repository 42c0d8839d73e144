//! A capture of the kernel's events, as sessions know captures; and what it has lost, for who asks.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use traceweir_kernel::{Capture, Clock, Control};
use traceweir_session::capture::{self, CaptureClock, Captured};

/// What a capture has not got, as of its last look; final once its session has stopped. Each number stands for itself.
#[derive(Debug)]
pub(crate) struct Losses {
    /// Events that the kernel had no room for, by processor.
    by_cpu: Vec<AtomicU64>,
    /// Events that no record has room for, or that came when too many waited; stacks of events that were lost so, too.
    too_large: AtomicU64,
    /// Facts about processes that were not read in time.
    unread: AtomicU64,
}

impl Losses {
    /// None so far, of so many processors.
    pub(crate) fn new(cpus: u16) -> Self {
        let by_cpu = (0..cpus).map(|_| AtomicU64::new(0)).collect();
        Self { by_cpu, too_large: AtomicU64::new(0), unread: AtomicU64::new(0) }
    }

    /// How many each processor has lost so far.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.by_cpu.iter().map(|lost| lost.load(Relaxed)).collect()
    }

    /// Notes what is lost, of that by processor, and what was not read.
    pub(crate) fn note(&self, lost: u64, by_cpu: &[u64], unread: u64) {
        for (place, lost) in self.by_cpu.iter().zip(by_cpu) {
            place.store(*lost, Relaxed);
        }
        let of_cpus = by_cpu.iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        self.too_large.store(lost.saturating_sub(of_cpus), Relaxed);
        self.unread.store(unread, Relaxed);
    }

    /// The same in words, nothing where there is nothing.
    pub(crate) fn told(&self) -> Vec<String> {
        let by_cpu = self.all().into_iter().enumerate().filter(|(_, lost)| *lost > 0);
        let mut told: Vec<String> = by_cpu
            .map(|(cpu, lost)| format!("{lost} kernel events of processor {cpu} found no room"))
            .collect();
        if let too_large @ 1.. = self.too_large.load(Relaxed) {
            told.push(format!("{too_large} kernel events were too large, or too many at once"));
        }
        if let unread @ 1.. = self.unread.load(Relaxed) {
            told.push(format!(
                "{unread} facts about processes were not read: whoever keeps them took too long"
            ));
        }
        told
    }
}

/// What a session captures of the kernel.
pub(crate) struct Source {
    capture: Capture,
    control: Control,
    losses: Arc<Losses>,
}

impl Source {
    pub(crate) fn new(capture: Capture, control: Control, losses: Arc<Losses>) -> Self {
        Self { capture, control, losses }
    }

    fn note_losses(&self) {
        self.losses.note(self.capture.lost(), self.capture.lost_by_cpu(), self.control.unread());
    }
}

/// The clocks of a session, as the capture asks for them.
struct Clocks<'a>(&'a dyn CaptureClock);

impl Clock for Clocks<'_> {
    fn raw(&self, ns: u64) -> u64 {
        self.0.raw(ns)
    }

    fn stamp(&self, ns: u64) -> i64 {
        self.0.stamp(ns)
    }

    fn ticks(&self, ns: u64) -> u64 {
        self.0.ticks(ns)
    }
}

impl capture::Capture for Source {
    fn wake(&self) -> BorrowedFd<'_> {
        self.capture.wake()
    }

    fn begin(&mut self) {
        self.capture.begin();
    }

    fn look(&mut self, clock: &dyn CaptureClock, all: bool) {
        self.capture.look(&Clocks(clock), all);
        self.note_losses();
    }

    fn peek(&self, stream: u16) -> Option<Captured> {
        let next = self.capture.peek(stream)?;
        Some(Captured { length: next.length, raw: next.raw, is_stack: next.is_stack })
    }

    fn take(&mut self, stream: u16, out: &mut [u8]) {
        self.capture.take(stream, out);
    }

    fn lost(&self) -> u64 {
        self.capture.lost()
    }

    fn lost_in_kernel(&self) -> u64 {
        self.capture.lost_by_cpu().iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost))
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.capture.end(&Clocks(clock));
        self.note_losses();
    }
}
