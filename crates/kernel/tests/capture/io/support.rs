//! A capture that is looked at step by step, and payloads read by their published shapes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::header::Record;
use traceweir_kernel::{Capture, Control, Group, Groups, Wanted};

use crate::support::skip::skip;
use crate::support::{Fields, Plain, cpus};

/// The hook of stacks.
const STACK: u16 = 0x1820;

/// One captured record.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) raw: u64,
    pub(crate) hook: u16,
    pub(crate) is_stack: bool,
    fields: Fields,
}

impl Seen {
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

/// A capture under way.
pub(crate) struct Running {
    capture: Capture,
    control: Control,
}

impl Running {
    pub(crate) fn start(groups: &[Group], stacks: &[u16]) -> Option<Self> {
        Self::start_with_rings(groups, stacks, 8 << 20)
    }

    pub(crate) fn start_with_rings(groups: &[Group], stacks: &[u16], ring_bytes: usize) -> Option<Self> {
        let groups = Groups::of(groups);
        let wanted = Wanted { groups, stacks: stacks.to_vec(), ring_bytes, ..Wanted::default() };
        match Capture::start(&wanted, cpus(), cpus()) {
            Ok((capture, control)) => {
                let mut running = Self { capture, control };
                running.look();
                Some(running)
            }
            Err(error) => {
                skip("kernel events", &error.to_string());
                None
            }
        }
    }

    /// Whether the kernel has a tracepoint.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.control.missing().iter().any(|it| it == name)
    }

    pub(crate) fn look(&mut self) {
        self.capture.look(&Plain, false);
    }

    /// Waits until the capture wants to be looked at; whether it did.
    pub(crate) fn is_woken(&self) -> bool {
        let mut waiting = [PollFd::from_borrowed_fd(self.capture.wake(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
        poll(&mut waiting, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Everything that was captured, in time order. Every payload is what its shape says, to the last byte.
    pub(crate) fn end(self) -> Vec<Seen> {
        let (seen, lost) = self.end_with_losses();
        assert_eq!(lost, 0);
        seen
    }

    /// The same, and how many records were lost.
    pub(crate) fn end_with_losses(mut self) -> (Vec<Seen>, u64) {
        self.capture.end(&Plain);
        let mut seen = Vec::new();
        for cpu in 0..cpus() {
            while let Some(next) = self.capture.peek(cpu) {
                let mut bytes = vec![0; next.length];
                self.capture.take(cpu, &mut bytes);
                let record = Record::parse(&bytes, cpu).expect("a record");
                let Some(hook) = record.hook().filter(|hook| is_ours(*hook)) else { continue };
                let fields = if hook == STACK { Fields::default() } else { Fields::of(&record) };
                seen.push(Seen { raw: next.raw, hook, is_stack: next.is_stack, fields });
            }
        }
        seen.sort_by_key(|it| it.raw);
        (seen, self.capture.lost())
    }
}

pub(crate) fn thread_id() -> u64 {
    u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).expect("a thread")
}

/// Whether an event is one of disks, files or the network, or a stack: others are told beside.
fn is_ours(hook: u16) -> bool {
    hook == STACK || [0x01, 0x04, 0x06, 0x08, 0x1B].contains(&hook.to_be_bytes()[0])
}
