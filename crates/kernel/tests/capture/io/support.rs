//! Captures that a test polls step by step, with decoded payloads.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook::STACK_WALK;
use traceweir_kernel::{Capture, CaptureControl, CaptureSettings, Group, Groups};

use crate::support;
use crate::support::{Fields, NanosecondClock, cpu_count};

/// A captured record with its decoded payload.
#[derive(Clone, Debug)]
pub(crate) struct CapturedEvent {
    pub(crate) stamp: u64,
    pub(crate) hook: u16,
    pub(crate) is_stack: bool,
    fields: Fields,
}

impl CapturedEvent {
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.fields.number(name)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.text(name)
    }

    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.fields.bytes(name)
    }
}

pub(crate) struct RunningCapture {
    capture: Capture,
    control: CaptureControl,
}

impl RunningCapture {
    /// Starts a capture with stacks for these hooks. Skips the test and returns `None` if it does
    /// not start.
    pub(crate) fn start(groups: &[Group], stacks: &[u16]) -> Option<Self> {
        Self::start_with_rings(groups, stacks, 8 << 20)
    }

    pub(crate) fn start_with_rings(groups: &[Group], stacks: &[u16], ring_bytes: usize) -> Option<Self> {
        let groups = Groups::new(groups);
        let settings =
            CaptureSettings { groups, stacks: stacks.to_vec(), ring_bytes, ..CaptureSettings::default() };
        let (capture, control) = support::start_or_skip(&settings, cpu_count())?;
        let mut running = Self { capture, control };
        running.poll();
        Some(running)
    }

    pub(crate) fn has_tracepoint(&self, name: &str) -> bool {
        !self.control.missing_events().iter().any(|missing| missing == name)
    }

    pub(crate) fn poll(&mut self) {
        self.capture.poll(&NanosecondClock, false);
    }

    /// Waits until the capture requests a poll. Returns whether it did.
    pub(crate) fn wait_for_wake(&self) -> bool {
        let mut waiting = [PollFd::from_borrowed_fd(self.capture.wake_fd(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
        poll(&mut waiting, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Ends the capture and returns its disk, file and network events and stacks in time order.
    /// Panics if records were lost, or if a payload does not match its documented layout.
    pub(crate) fn end(self) -> Vec<CapturedEvent> {
        let (events, lost) = self.end_with_losses();
        assert_eq!(lost, 0);
        events
    }

    /// Like [`end`](Self::end), but returns the number of lost records instead of panicking.
    pub(crate) fn end_with_losses(mut self) -> (Vec<CapturedEvent>, u64) {
        self.capture.end(&NanosecondClock);
        let mut events = Vec::new();
        for cpu in 0..cpu_count() {
            while let Some((next, bytes)) = support::pop_record(&mut self.capture, cpu) {
                let record = Record::parse(&bytes, cpu).expect("invalid record");
                let Some(hook) = record.hook().filter(|hook| is_io_event(*hook)) else { continue };
                let fields = if hook == STACK_WALK { Fields::default() } else { Fields::parse(&record) };
                events.push(CapturedEvent { stamp: next.raw, hook, is_stack: next.is_stack, fields });
            }
        }
        events.sort_by_key(|event| event.stamp);
        (events, self.capture.lost())
    }
}

pub(crate) fn this_thread_id() -> u64 {
    u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).expect("the thread id is not positive")
}

/// Returns whether an event is a disk, file or network event or a stack. Captures contain others
/// too.
fn is_io_event(hook: u16) -> bool {
    // The event groups of disk, file, TCP, UDP and split I/O.
    hook == STACK_WALK || [0x01, 0x04, 0x06, 0x08, 0x1B].contains(&hook.to_be_bytes()[0])
}
