//! A capture of kernel events in the form that sessions use, and the losses that it reports.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use traceweir_kernel::{Capture, CaptureControl, Clock};
use traceweir_session::capture::{self, CaptureClock, CapturedRecord};

/// Losses of a capture as of its last poll; final once its session has stopped. The counters are
/// updated independently.
#[derive(Debug)]
pub(crate) struct CaptureLosses {
    /// Events that the kernel dropped for lack of space, by processor.
    by_cpu: Vec<AtomicU64>,
    /// Events that the capture dropped because they were too large for a record or because too many
    /// were waiting, and stacks of such events.
    dropped: AtomicU64,
    /// Process details that were not read in time.
    unread: AtomicU64,
    /// Events that were left out because their process is unknown.
    unattributed: AtomicU64,
}

impl CaptureLosses {
    pub(crate) fn new(cpus: u16) -> Self {
        let by_cpu = (0..cpus).map(|_| AtomicU64::new(0)).collect();
        let [dropped, unread, unattributed] = [0; 3].map(AtomicU64::new);
        Self { by_cpu, dropped, unread, unattributed }
    }

    /// Returns the number of lost events for each processor.
    pub(crate) fn lost_by_cpu(&self) -> Vec<u64> {
        self.by_cpu.iter().map(|lost| lost.load(Relaxed)).collect()
    }

    /// Stores the total losses, the part of them by processor, and the unread process details.
    pub(crate) fn store(&self, lost: u64, by_cpu: &[u64], unread: u64) {
        for (counter, lost) in self.by_cpu.iter().zip(by_cpu) {
            counter.store(*lost, Relaxed);
        }
        let lost_on_cpus = by_cpu.iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        self.dropped.store(lost.saturating_sub(lost_on_cpus), Relaxed);
        self.unread.store(unread, Relaxed);
    }

    /// Stores the number of events that were left out because their process is unknown. They count
    /// neither as lost nor as events of the session's process trees.
    pub(crate) fn store_unattributed(&self, count: u64) {
        self.unattributed.store(count, Relaxed);
    }

    /// Returns the losses as messages; empty if nothing was lost.
    pub(crate) fn messages(&self) -> Vec<String> {
        let by_cpu = self.lost_by_cpu().into_iter().enumerate().filter(|(_, lost)| *lost > 0);
        let mut messages: Vec<String> = by_cpu
            .map(|(cpu, lost)| format!("{lost} kernel events of processor {cpu} found no room"))
            .collect();
        if let dropped @ 1.. = self.dropped.load(Relaxed) {
            messages.push(format!("{dropped} kernel events were too large, or too many at once"));
        }
        if let unread @ 1.. = self.unread.load(Relaxed) {
            messages.push(format!("{unread} process details were not read in time"));
        }
        if let unattributed @ 1.. = self.unattributed.load(Relaxed) {
            messages.push(format!(
                "{unattributed} disk and network events were left out: their process is unknown"
            ));
        }
        messages
    }
}

pub(crate) struct KernelCapture {
    capture: Capture,
    control: CaptureControl,
    losses: Arc<CaptureLosses>,
}

impl KernelCapture {
    pub(crate) fn new(capture: Capture, control: CaptureControl, losses: Arc<CaptureLosses>) -> Self {
        Self { capture, control, losses }
    }

    fn store_losses(&self) {
        self.losses.store(self.capture.lost(), self.capture.lost_by_cpu(), self.control.abandoned_reads());
        self.losses.store_unattributed(self.control.unattributed_events());
    }
}

/// Adapts the clocks of a session to the trait that the capture expects.
struct ClockAdapter<'a>(&'a dyn CaptureClock);

impl Clock for ClockAdapter<'_> {
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

impl capture::Capture for KernelCapture {
    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.capture.wake_fd()
    }

    fn begin(&mut self) {
        self.capture.begin();
    }

    fn poll(&mut self, clock: &dyn CaptureClock, all: bool) {
        self.capture.poll(&ClockAdapter(clock), all);
        self.store_losses();
    }

    fn peek(&self, stream: u16) -> Option<CapturedRecord> {
        let next = self.capture.peek(stream)?;
        Some(CapturedRecord { length: next.length, raw: next.raw, is_stack: next.is_stack })
    }

    fn take(&mut self, stream: u16, out: &mut [u8]) {
        self.capture.pop_into(stream, out);
    }

    fn lost(&self) -> u64 {
        self.capture.lost()
    }

    fn lost_in_kernel(&self) -> u64 {
        self.capture.lost_by_cpu().iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost))
    }

    fn end(&mut self, clock: &dyn CaptureClock) {
        self.capture.end(&ClockAdapter(clock));
        self.store_losses();
    }
}
