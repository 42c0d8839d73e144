//! A capture that is looked at step by step, and payloads read by their published shapes.

use std::collections::BTreeMap;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use traceweir_format::header::Record;
use traceweir_format::kernel::{Ty, shape_of};
use traceweir_format::spec::event::class_of;
use traceweir_format::wire::{u8_at, u16_at, u32_at, u64_at};
use traceweir_kernel::{Capture, Clock, Control, Group, Groups, Wanted};

use crate::skip::skip;

/// Everything in nanoseconds.
struct Plain;

impl Clock for Plain {
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

/// One captured record.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) raw: u64,
    pub(crate) hook: u16,
    pub(crate) is_stack: bool,
    numbers: BTreeMap<&'static str, u64>,
    texts: BTreeMap<&'static str, String>,
    bytes: BTreeMap<&'static str, Vec<u8>>,
}

impl Seen {
    pub(crate) fn number(&self, name: &str) -> u64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("{name} of {self:?}"))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.texts.get(name).unwrap_or_else(|| panic!("{name} of {self:?}"))
    }

    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.bytes.get(name).unwrap_or_else(|| panic!("{name} of {self:?}"))
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
        let mut mask = [0_u32; 8];
        for Group(group) in groups {
            mask[(group >> 29) as usize] |= group & 0x1FFF_FFFF;
        }
        let wanted =
            Wanted { groups: Groups(mask), stacks: stacks.to_vec(), ring_bytes, ..Wanted::default() };
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
                let version = record.descriptor().version;
                let mut it = decode(hook, version, record.payload());
                (it.raw, it.is_stack) = (next.raw, next.is_stack);
                seen.push(it);
            }
        }
        seen.sort_by_key(|it| it.raw);
        (seen, self.capture.lost())
    }
}

fn cpus() -> u16 {
    // SAFETY: asks for a number.
    u16::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

pub(crate) fn thread_id() -> u64 {
    u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).expect("a thread")
}

/// Whether an event is one of disks, files or the network, or a stack: others are told beside.
fn is_ours(hook: u16) -> bool {
    hook == 0x1820 || [0x01, 0x04, 0x06, 0x08, 0x1B].contains(&hook.to_be_bytes()[0])
}

/// Reads a payload by its shape. Only what newer systems append may be missing.
fn decode(hook: u16, version: u8, payload: &[u8]) -> Seen {
    let class = class_of(hook);
    let opcode = hook.to_le_bytes()[0];
    let (numbers, texts, bytes) = Default::default();
    let mut seen = Seen { raw: 0, hook, is_stack: false, numbers, texts, bytes };
    if hook == 0x1820 {
        return seen;
    }
    let (shape, _) = shape_of(&class, opcode, version).unwrap_or_else(|| panic!("shape of {hook:04x}"));
    let mut rest = payload;
    for field in shape.fields.iter().filter(|field| field.name != "ExtraFlags") {
        let size = match field.ty {
            Ty::Wz => rest.chunks(2).position(|unit| unit == [0, 0]).expect("a terminator") * 2 + 2,
            ty => ty.size(8).unwrap_or_else(|| panic!("size of {ty:?}")),
        };
        let (value, after) = rest.split_at_checked(size).unwrap_or_else(|| panic!("{hook:04x} is short"));
        rest = after;
        match (field.ty, size) {
            (Ty::Wz, _) => {
                let units: Vec<u16> = value.chunks(2).map(|unit| u16_at(unit, 0)).collect();
                let text = String::from_utf16(&units).expect("text");
                seen.texts.insert(field.name, text.trim_end_matches('\0').to_owned());
            }
            (Ty::Port, _) => {
                seen.numbers.insert(field.name, u64::from(u16_at(value, 0).swap_bytes()));
            }
            (Ty::Ip4 | Ty::Ip6, _) => {
                seen.bytes.insert(field.name, value.to_vec());
            }
            (_, 1) => drop(seen.numbers.insert(field.name, u64::from(u8_at(value, 0)))),
            (_, 2) => drop(seen.numbers.insert(field.name, u64::from(u16_at(value, 0)))),
            (_, 4) => drop(seen.numbers.insert(field.name, u64::from(u32_at(value, 0)))),
            (_, 8) => drop(seen.numbers.insert(field.name, u64_at(value, 0))),
            // Of other families.
            _ => {}
        }
    }
    assert!(rest.is_empty(), "{hook:04x} has {} bytes too many", rest.len());
    seen
}
