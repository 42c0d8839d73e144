//! A capture of the kernel's events, as sessions know captures; and what it has lost, for who asks.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use traceweir_kernel::{Capture, Clock};
use traceweir_session::capture::{self, CaptureClock, Captured};

/// Events that the kernel had no room for, by processor. Each number stands for itself.
#[derive(Debug)]
pub(crate) struct Losses(Vec<AtomicU64>);

impl Losses {
    /// None so far, of so many processors.
    pub(crate) fn new(cpus: u16) -> Self {
        Self((0..cpus).map(|_| AtomicU64::new(0)).collect())
    }

    /// How many each processor has lost so far.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.iter().map(|lost| lost.load(Relaxed)).collect()
    }

    fn note(&self, lost: &[u64]) {
        for (place, lost) in self.0.iter().zip(lost) {
            place.store(*lost, Relaxed);
        }
    }
}

/// What a session captures of the kernel.
pub(crate) struct Source {
    capture: Capture,
    losses: Arc<Losses>,
}

impl Source {
    pub(crate) fn new(capture: Capture, losses: Arc<Losses>) -> Self {
        Self { capture, losses }
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

    fn look(&mut self, clock: &dyn CaptureClock, all: bool) {
        self.capture.look(&Clocks(clock), all);
        self.losses.note(self.capture.lost_by_cpu());
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

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.capture.end(&Clocks(clock));
        self.losses.note(self.capture.lost_by_cpu());
    }
}
