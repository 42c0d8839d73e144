//! Arguments of programs, as they were when they began: the kernel hands over the top of the new stack with each exec.
//!
//! ```text
//!   stack pointer ─▶ argc │ argv[0] … argv[argc−1] │ 0 │ envp … │ 0 │ auxiliary vector │ a gap by chance, up to 8 KiB │ "argv[0]\0argv[1]\0…"
//! ```
//!
//! `/proc` tells the same, but only as long as the program runs, and what it runs later: a program that lives for a millisecond is gone when one looks.
//!
//! The kernel hands over only what is in memory: where the gap has a page that nobody has touched, the texts behind it are missing (about one program in three), and `/proc`
//! is asked after all, at once.
//!
//! 1. The samples have rings of their own, because they are large, and because they come behind the records of the exec: they are read in front of them.
//! 2. A ring that is full loses arguments, not events: `/proc` is asked then.
//! 3. `/proc` is believed only as far as it tells of the same program: what has no arguments is being begun or has ended, what has others has begun something else.
//! 4. The stack is the program's: nothing on it is believed further than that it is text.

use std::collections::HashMap;

use perf_event_open_sys::bindings as sys;
use traceweir_format::wire::u64_at;

use super::facts::{self, MAX_COMMAND_LINE};
use crate::perf_ring::{Attr, Event, RECORD_HEAD, Ring};
use crate::record::{self, Parts};
use crate::spec;
use crate::tracefs::{Field, Tracefs};

/// Bytes of a stack that come with an exec: the gap, the pointers, and a long command line.
const STACK_BYTES: u32 = 16 << 10;
/// Bytes of each processor's ring: some sixty programs between two looks.
const RING_BYTES: usize = 1 << 20;
/// Programs that are remembered, at most.
const MAX_TOLD: usize = 1 << 10;
/// Looks after which one is forgotten.
const KEPT: u32 = 3;
/// Arguments of a program that are looked at.
const MAX_ARGUMENTS: u64 = 4096;

const PARTS: Parts = Parts::ALWAYS.with(Parts::RAW).with(Parts::REGS_USER).with(Parts::STACK_USER);

/// The stack pointer among the registers that perf events know.
#[cfg(target_arch = "x86_64")]
const STACK_POINTER: Option<u64> = Some(7);
#[cfg(target_arch = "aarch64")]
const STACK_POINTER: Option<u64> = Some(31);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const STACK_POINTER: Option<u64> = None;

/// Programs that began.
#[derive(Debug, Default)]
pub(super) struct Execs {
    rings: Vec<Ring>,
    file_name: Option<Field>,
    /// By process.
    told: HashMap<u32, Vec<Exec>>,
    count: usize,
    look: u32,
}

/// A program that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) time: u64,
    /// As it was asked for.
    pub(super) file_name: Vec<u8>,
    /// Each with its terminator, up to one byte more than is kept of a command line; empty: not known.
    pub(super) arguments: Vec<u8>,
    /// The executable; empty: not known.
    pub(super) path: Vec<u8>,
    look: u32,
}

impl Exec {
    /// Adds what `/proc` tells, as long as that is about this program.
    fn complete(&mut self, pid: u32) {
        // In this order: whatever begins in between has other arguments, or none so far.
        let path = facts::executable(pid);
        let arguments = facts::arguments(pid).unwrap_or_default();
        if arguments.is_empty() || !self.arguments.is_empty() && self.arguments != arguments {
            return;
        }
        (self.path, self.arguments) = (path, arguments);
    }
}

impl Execs {
    /// Begins to listen, as far as that is possible here.
    pub(super) fn open() -> Self {
        let mut execs = Self::default();
        let Some(register) = STACK_POINTER else { return execs };
        let format = Tracefs::open().and_then(|tracefs| tracefs.format("sched", "sched_process_exec"));
        let Ok(format) = format else { return execs };
        execs.file_name = format.field("filename");
        let mut attr = Attr {
            type_: sys::PERF_TYPE_TRACEPOINT,
            config: format.id,
            sample_type: PARTS.0,
            sample_regs_user: 1 << register,
            sample_stack_user: STACK_BYTES,
            clockid: libc::CLOCK_MONOTONIC_RAW,
            ..Attr::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        let open = |cpu| Event::open(&attr, -1, cpu).and_then(|event| Ring::new(event, RING_BYTES));
        for cpu in 0..i32::from(u16::MAX) {
            match open(cpu) {
                Ok(ring) => execs.rings.push(ring),
                // One that is switched off; behind the last there is another error.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(_) => break,
            }
        }
        execs
    }

    /// Reads what has come, and forgets what is old.
    pub(super) fn look(&mut self) {
        self.look = self.look.wrapping_add(1);
        let look = self.look;
        for execs in self.told.values_mut() {
            execs.retain(|exec| look.wrapping_sub(exec.look) < KEPT);
        }
        self.told.retain(|_, execs| !execs.is_empty());
        self.count = self.told.values().map(Vec::len).sum();
        self.drain();
    }

    /// Reads what has come, and looks at once at those that it was.
    fn drain(&mut self) {
        let mut came = Vec::new();
        let mut rings = std::mem::take(&mut self.rings);
        for ring in &mut rings {
            ring.look();
            while let Some(record) = ring.peek() {
                let length = record.len();
                if record::is_sample(record) {
                    came.extend(self.take_in(record));
                }
                ring.skip(length.max(RECORD_HEAD));
            }
            ring.release();
        }
        self.rings = rings;
        for pid in came {
            // Of several programs `/proc` tells of the last.
            let last =
                self.told.get_mut(&pid).and_then(|execs| execs.iter_mut().max_by_key(|exec| exec.time));
            if let Some(exec) = last.filter(|exec| exec.path.is_empty()) {
                exec.complete(pid);
            }
        }
    }

    /// Remembers a program, and gives its process.
    fn take_in(&mut self, record: &[u8]) -> Option<u32> {
        let sample = record::sample(record, PARTS, 0, (1, 0)).filter(|_| self.count < MAX_TOLD)?;
        let event = spec::Event { sample, fields: &[self.file_name], tag: 0 };
        let exec = Exec {
            time: sample.time,
            file_name: event.text(0).to_vec(),
            arguments: arguments(u64_at(sample.user_regs, 0), sample.user_stack).unwrap_or_default(),
            path: Vec::new(),
            look: self.look,
        };
        self.count = self.count.saturating_add(1);
        self.told.entry(sample.pid).or_default().push(exec);
        Some(sample.pid)
    }

    /// The program that a process began at or behind this time, first of all.
    pub(super) fn take(&mut self, pid: u32, time: u64) -> Option<Exec> {
        let is_there = |told: &Vec<Exec>| told.iter().any(|exec| exec.time >= time);
        if !self.told.get(&pid).is_some_and(is_there) {
            self.drain();
        }
        let execs = self.told.get_mut(&pid)?;
        execs.retain(|exec| exec.time >= time);
        execs.sort_by_key(|exec| exec.time);
        let exec = if execs.is_empty() { None } else { Some(execs.remove(0)) };
        if execs.is_empty() {
            self.told.remove(&pid);
        }
        exec
    }
}

/// The arguments on a new stack that begins at this address; `None` where it is not all there, or does not look like one (a program of 32 bits).
fn arguments(pointer: u64, stack: &[u8]) -> Option<Vec<u8>> {
    let count = u64_at(stack, 0);
    if count > MAX_ARGUMENTS || stack.len() < 8 {
        return None;
    }
    let mut out = Vec::new();
    for index in 0..count {
        let place = usize::try_from(index.checked_mul(8)?.checked_add(8)?).ok()?;
        let at = usize::try_from(u64_at(stack, place).checked_sub(pointer)?).ok()?;
        let rest = stack.get(at..).filter(|rest| rest.contains(&0))?;
        let argument = record::text(rest);
        out.extend_from_slice(argument);
        out.push(0);
        if out.len() > MAX_COMMAND_LINE {
            break;
        }
    }
    out.truncate(MAX_COMMAND_LINE.saturating_add(1));
    Some(out)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use traceweir_format::wire::Put;

    const POINTER: u64 = 0x7FFF_0000_1000;

    /// A stack as the kernel lays it out, with a gap.
    fn stack(arguments: &[&[u8]], gap: usize) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(arguments.len() as u64);
        let mut at = POINTER + 8 * (arguments.len() as u64 + 2) + gap as u64;
        for argument in arguments {
            out.put_u64(at);
            at += argument.len() as u64 + 1;
        }
        out.put_u64(0);
        out.resize(out.len() + gap, 0);
        for argument in arguments {
            out.put(argument).put_u8(0);
        }
        out
    }

    #[test]
    fn arguments_are_found_behind_the_gap() {
        assert_eq!(arguments(POINTER, &stack(&[b"ls", b"", b"-l"], 777)).unwrap(), b"ls\0\0-l\0");
        assert_eq!(arguments(POINTER, &stack(&[], 0)).unwrap(), b"");
    }

    #[test]
    fn what_is_too_long_is_cut_and_what_is_none_is_none() {
        let long = vec![b'x'; MAX_COMMAND_LINE + 7];
        let cut = arguments(POINTER, &stack(&[b"a", &long, b"b"], 10)).unwrap();
        assert_eq!(cut.len(), MAX_COMMAND_LINE + 1);
        let mut short = stack(&[b"a", b"b"], 100);
        short.truncate(short.len() - 2);
        assert_eq!(arguments(POINTER, &short), None);
        assert_eq!(arguments(POINTER, &[]), None);
        assert_eq!(arguments(POINTER, &[0xFF; 64]), None);
        assert_eq!(arguments(POINTER + 0x1_0000, &stack(&[b"a"], 0)), None);
        assert_eq!(arguments(POINTER - 0x1_0000, &stack(&[b"a"], 0)), None);
        let whole = stack(&[b"one", b"two"], 9);
        for length in 0..whole.len() {
            assert_eq!(arguments(POINTER, &whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn proc_is_believed_about_the_same_program_only() {
        let pid = std::process::id();
        let exec = |arguments: &[u8]| {
            let arguments = arguments.to_vec();
            let mut exec = Exec { time: 0, file_name: vec![], arguments, path: vec![], look: 0 };
            exec.complete(pid);
            exec
        };
        let own = facts::arguments(pid).unwrap();
        let (unknown, same, other) = (exec(b""), exec(&own), exec(b"other\0"));
        assert_eq!((&unknown.arguments, &unknown.path), (&own, &facts::executable(pid)));
        assert_eq!(unknown, same);
        assert_eq!((other.arguments, other.path), (b"other\0".to_vec(), vec![]));
    }

    #[test]
    fn of_several_programs_the_next_is_taken() {
        let exec = |time| Exec { time, file_name: vec![], arguments: vec![], path: vec![], look: 0 };
        let mut execs = Execs::default();
        execs.told.insert(7, vec![exec(30), exec(20), exec(10)]);
        assert_eq!(execs.take(7, 15).map(|exec| exec.time), Some(20));
        assert_eq!(execs.take(7, 25).map(|exec| exec.time), Some(30));
        assert_eq!(execs.take(7, 0), None);
        execs.told.insert(8, vec![exec(30)]);
        (0..KEPT).for_each(|_| execs.look());
        assert!(execs.told.is_empty() && execs.count == 0);
    }
}
