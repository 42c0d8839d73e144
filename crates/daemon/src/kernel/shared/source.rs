//! The capture as the hub uses it. Tests of the hub replace it.

use std::os::fd::BorrowedFd;

use traceweir_kernel::{Capture, CaptureControl, CaptureSettings, Clock, QueuedRecord};
use traceweir_session::Result;
use traceweir_transport::cpu;

use super::queue::Losses;
use crate::kernel::capture_error;

/// Opens a capture.
pub(crate) type OpenSource = dyn Fn(&CaptureSettings) -> Result<OpenedSource> + Send + Sync;

/// A capture that has just been opened.
pub(crate) struct OpenedSource {
    pub(super) events: Box<dyn EventSource>,
    pub(super) control: Box<dyn SourceControl>,
}

/// The part of a capture that returns events.
pub(super) trait EventSource: Send {
    fn poll(&mut self, includes_newer: bool);
    fn peek(&self) -> Option<QueuedRecord>;
    fn pop_into(&mut self, out: &mut [u8]);
    fn wake_fd(&self) -> BorrowedFd<'_>;
    fn losses(&self) -> Losses;
}

/// The part of a capture that changes it.
pub(super) trait SourceControl: Send + Sync {
    fn set(&self, settings: &CaptureSettings) -> Result<()>;
    /// Requests a rundown at the next poll. It precedes the other events of that poll.
    fn run_down(&self);
    fn missing_events(&self) -> Vec<String>;
}

/// Opens a capture of the kernel.
pub(super) fn open_capture(settings: &CaptureSettings) -> Result<OpenedSource> {
    // One queue for all processors, so that the events are in order of time.
    let (capture, control) = Capture::start(settings, cpu::possible(), 1).map_err(|e| capture_error(&e))?;
    Ok(OpenedSource { events: Box::new(capture), control: Box::new(control) })
}

/// A clock whose values all count nanoseconds: each session converts them itself.
struct NanosecondClock;

impl Clock for NanosecondClock {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }

    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}

impl EventSource for Capture {
    fn poll(&mut self, includes_newer: bool) {
        self.poll(&NanosecondClock, includes_newer);
    }

    fn peek(&self) -> Option<QueuedRecord> {
        self.peek(0)
    }

    fn pop_into(&mut self, out: &mut [u8]) {
        self.pop_into(0, out);
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake_fd()
    }

    fn losses(&self) -> Losses {
        let in_kernel = self.lost_by_cpu().iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        Losses { in_kernel, all: self.lost() }
    }
}

impl SourceControl for CaptureControl {
    fn set(&self, settings: &CaptureSettings) -> Result<()> {
        self.set(settings).map_err(|e| capture_error(&e))
    }

    fn run_down(&self) {
        self.run_down();
    }

    fn missing_events(&self) -> Vec<String> {
        self.missing_events()
    }
}
