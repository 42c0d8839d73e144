//! Arguments of programs at their exec: the kernel copies the top of the new stack into each
//! `sched_process_exec` sample.
//!
//! ```text
//!   stack pointer ─▶ argc │ argv[0] … argv[argc−1] │ 0 │ envp … │ 0 │ auxiliary vector
//!                    │ a random gap, up to 8 KiB │ "argv[0]\0argv[1]\0…"
//! ```
//!
//! `/proc` has the same arguments, but only while the program runs, and after another exec it has
//! those of the next program. A program that lives for a millisecond is gone before `/proc` is
//! read.
//!
//! The kernel copies only resident pages. If the gap contains a page that was never touched, the
//! strings after it are missing (about one program in three), and `/proc` is read at once instead.
//!
//! 1. The samples have their own rings, because they are large. Each poll reads these rings before
//!    the other rings of the capture. The sample of an exec is written after its other records, so
//!    `take_exec` reads these rings again if the sample is missing.
//! 2. A full ring loses arguments, not events: `/proc` is read instead.
//! 3. `/proc` is not used if it shows no arguments (the program is still starting or has ended), or
//!    arguments other than those on the stack (the process has executed another program). If the
//!    stack gave no arguments, those in `/proc` are used unchecked.
//! 4. The program controls its stack: its contents are treated as text and trusted no further.

use std::collections::HashMap;

use perf_event_open_sys::bindings as sys;
use traceweir_format::wire::u64_at;

use super::facts::{self, MAX_COMMAND_LINE_BYTES};
use crate::perf_ring::{Attr, PerfEvent, PerfRing, RECORD_HEADER_BYTES};
use crate::record::{self, RegisterCounts, SampleParts};
use crate::spec::SampleEvent;
use crate::tracefs::{Tracefs, TracepointField};

/// Bytes of stack copied with an exec: the gap, the pointers and a long command line.
const STACK_BYTES: u32 = 16 << 10;
/// Size of each processor's ring: enough for about sixty execs between two polls.
const RING_BYTES: usize = 1 << 20;
/// The most execs that are kept.
const MAX_EXECS: usize = 1 << 10;
/// Number of polls after which an exec is dropped.
const KEPT_POLLS: u32 = 3;
/// The most arguments of one program: a stack that claims more is rejected.
const MAX_ARGUMENTS: u64 = 4096;

const EXEC_SAMPLE_PARTS: SampleParts =
    SampleParts::ALWAYS.with(SampleParts::RAW).with(SampleParts::REGS_USER).with(SampleParts::STACK_USER);

/// Index of the stack pointer among perf's registers.
#[cfg(target_arch = "x86_64")]
const STACK_POINTER_REGISTER: Option<u64> = Some(7);
#[cfg(target_arch = "aarch64")]
const STACK_POINTER_REGISTER: Option<u64> = Some(31);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const STACK_POINTER_REGISTER: Option<u64> = None;

/// Recent execs, and the rings that report them.
#[derive(Debug, Default)]
pub(super) struct Execs {
    rings: Vec<PerfRing>,
    /// The field of `sched_process_exec` with the path passed to `execve`.
    file_name_field: Option<TracepointField>,
    by_process: HashMap<u32, Vec<Exec>>,
    /// The number of execs in `by_process` at the start of the last poll, plus those added since.
    /// `take_exec` does not decrease it.
    count: usize,
    poll: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) time_ns: u64,
    /// The path passed to `execve`.
    pub(super) file_name: Vec<u8>,
    /// The arguments, each with its terminating zero; empty if unknown. At most
    /// `MAX_COMMAND_LINE_BYTES + 1` bytes: the extra byte shows that the command line was cut.
    pub(super) arguments: Vec<u8>,
    /// Path of the executable; empty if unknown.
    pub(super) path: Vec<u8>,
    poll: u32,
}

impl Exec {
    /// Adds path and arguments from `/proc`, unless it shows no arguments or arguments other than
    /// those on the stack.
    fn complete_from_proc(&mut self, pid: u32) {
        // The path is read first: a program that starts in between has no arguments yet, or usually
        // arguments other than those on the stack.
        let path = facts::read_executable_path(pid);
        let arguments = facts::read_arguments(pid).unwrap_or_default();
        if arguments.is_empty() || !self.arguments.is_empty() && self.arguments != arguments {
            return;
        }
        (self.path, self.arguments) = (path, arguments);
    }
}

impl Execs {
    /// Opens the rings, as far as the kernel permits.
    pub(super) fn open() -> Self {
        let mut execs = Self::default();
        let Some(register) = STACK_POINTER_REGISTER else { return execs };
        let format = Tracefs::open().and_then(|tracefs| tracefs.read_format("sched", "sched_process_exec"));
        let Ok(format) = format else { return execs };
        execs.file_name_field = format.find_field("filename");
        let mut attr = Attr {
            type_: sys::PERF_TYPE_TRACEPOINT,
            config: format.id,
            sample_type: EXEC_SAMPLE_PARTS.0,
            sample_regs_user: 1 << register,
            sample_stack_user: STACK_BYTES,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        let open = |cpu| PerfEvent::open(&attr, -1, cpu).and_then(|event| PerfRing::new(event, RING_BYTES));
        for cpu in 0..i32::from(u16::MAX) {
            match open(cpu) {
                Ok(ring) => execs.rings.push(ring),
                // ENODEV: this processor is offline. After the last processor the kernel returns a
                // different error.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(_) => break,
            }
        }
        execs
    }

    /// Reads the rings and drops old execs.
    pub(super) fn poll(&mut self) {
        self.poll = self.poll.wrapping_add(1);
        let poll = self.poll;
        for execs in self.by_process.values_mut() {
            execs.retain(|exec| poll.wrapping_sub(exec.poll) < KEPT_POLLS);
        }
        self.by_process.retain(|_, execs| !execs.is_empty());
        self.count = self.by_process.values().map(Vec::len).sum();
        self.drain();
    }

    /// Reads the rings and completes the new execs from `/proc` at once.
    fn drain(&mut self) {
        let mut new_processes = Vec::new();
        let mut rings = std::mem::take(&mut self.rings);
        for ring in &mut rings {
            ring.poll();
            while let Some(record) = ring.peek() {
                let length = record.len();
                if record::is_sample(record) {
                    new_processes.extend(self.add_sample(record));
                }
                ring.skip(length.max(RECORD_HEADER_BYTES));
            }
            ring.release();
        }
        self.rings = rings;
        for pid in new_processes {
            // After several execs `/proc` describes the last.
            let execs = self.by_process.get_mut(&pid);
            let last = execs.and_then(|execs| execs.iter_mut().max_by_key(|exec| exec.time_ns));
            if let Some(exec) = last.filter(|exec| exec.path.is_empty()) {
                exec.complete_from_proc(pid);
            }
        }
    }

    /// Stores the exec of a sample and returns its process id.
    fn add_sample(&mut self, record: &[u8]) -> Option<u32> {
        let sample =
            record::parse_sample(record, EXEC_SAMPLE_PARTS, 0, RegisterCounts { user: 1, interrupted: 0 })
                .filter(|_| self.count < MAX_EXECS)?;
        let event = SampleEvent { sample, fields: &[self.file_name_field], source_id: 0 };
        let exec = Exec {
            time_ns: sample.time,
            file_name: event.text(0).to_vec(),
            arguments: parse_arguments(u64_at(sample.user_regs, 0), sample.user_stack).unwrap_or_default(),
            path: Vec::new(),
            poll: self.poll,
        };
        self.count = self.count.saturating_add(1);
        self.by_process.entry(sample.pid).or_default().push(exec);
        Some(sample.pid)
    }

    /// Removes and returns the first exec of a process at or after `time`. Drops earlier ones.
    pub(super) fn take_exec(&mut self, pid: u32, time: u64) -> Option<Exec> {
        let is_present = |execs: &Vec<Exec>| execs.iter().any(|exec| exec.time_ns >= time);
        if !self.by_process.get(&pid).is_some_and(is_present) {
            self.drain();
        }
        let execs = self.by_process.get_mut(&pid)?;
        execs.retain(|exec| exec.time_ns >= time);
        execs.sort_by_key(|exec| exec.time_ns);
        let exec = if execs.is_empty() { None } else { Some(execs.remove(0)) };
        if execs.is_empty() {
            self.by_process.remove(&pid);
        }
        exec
    }
}

/// Returns the arguments on a new stack whose lowest address is `pointer`; `None` if the copy is
/// incomplete or is not laid out like a 64-bit stack (a 32-bit program).
fn parse_arguments(pointer: u64, stack: &[u8]) -> Option<Vec<u8>> {
    let count = u64_at(stack, 0);
    if count > MAX_ARGUMENTS || stack.len() < 8 {
        return None;
    }
    let mut out = Vec::new();
    for index in 0..count {
        let slot = usize::try_from(index.checked_mul(8)?.checked_add(8)?).ok()?;
        let start = usize::try_from(u64_at(stack, slot).checked_sub(pointer)?).ok()?;
        let tail = stack.get(start..).filter(|tail| tail.contains(&0))?;
        let argument = record::until_nul(tail);
        out.extend_from_slice(argument);
        out.push(0);
        if out.len() > MAX_COMMAND_LINE_BYTES {
            break;
        }
    }
    out.truncate(MAX_COMMAND_LINE_BYTES.saturating_add(1));
    Some(out)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use traceweir_format::wire::Put;

    const STACK_ADDRESS: u64 = 0x7FFF_0000_1000;

    /// Builds a stack as the kernel lays it out, with a gap.
    fn build_stack(arguments: &[&[u8]], gap: usize) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(arguments.len() as u64);
        let mut address = STACK_ADDRESS + 8 * (arguments.len() as u64 + 2) + gap as u64;
        for argument in arguments {
            out.put_u64(address);
            address += argument.len() as u64 + 1;
        }
        out.put_u64(0);
        out.resize(out.len() + gap, 0);
        for argument in arguments {
            out.put(argument).put_u8(0);
        }
        out
    }

    #[test]
    fn arguments_are_found_after_the_gap() {
        assert_eq!(
            parse_arguments(STACK_ADDRESS, &build_stack(&[b"ls", b"", b"-l"], 777)).unwrap(),
            b"ls\0\0-l\0"
        );
        assert_eq!(parse_arguments(STACK_ADDRESS, &build_stack(&[], 0)).unwrap(), b"");
    }

    #[test]
    fn long_arguments_are_cut_and_invalid_stacks_rejected() {
        let long = vec![b'x'; MAX_COMMAND_LINE_BYTES + 7];
        let cut = parse_arguments(STACK_ADDRESS, &build_stack(&[b"a", &long, b"b"], 10)).unwrap();
        assert_eq!(cut.len(), MAX_COMMAND_LINE_BYTES + 1);
        let mut short = build_stack(&[b"a", b"b"], 100);
        short.truncate(short.len() - 2);
        assert_eq!(parse_arguments(STACK_ADDRESS, &short), None);
        assert_eq!(parse_arguments(STACK_ADDRESS, &[]), None);
        assert_eq!(parse_arguments(STACK_ADDRESS, &[0xFF; 64]), None);
        assert_eq!(parse_arguments(STACK_ADDRESS + 0x1_0000, &build_stack(&[b"a"], 0)), None);
        assert_eq!(parse_arguments(STACK_ADDRESS - 0x1_0000, &build_stack(&[b"a"], 0)), None);
        let complete = build_stack(&[b"one", b"two"], 9);
        for length in 0..complete.len() {
            assert_eq!(parse_arguments(STACK_ADDRESS, &complete[..length]), None, "{length}");
        }
    }

    #[test]
    fn proc_completes_only_the_same_program() {
        let pid = std::process::id();
        let exec = |arguments: &[u8]| {
            let arguments = arguments.to_vec();
            let mut exec = Exec { time_ns: 0, file_name: vec![], arguments, path: vec![], poll: 0 };
            exec.complete_from_proc(pid);
            exec
        };
        let own = facts::read_arguments(pid).unwrap();
        let (unknown, same, other) = (exec(b""), exec(&own), exec(b"other\0"));
        assert_eq!((&unknown.arguments, &unknown.path), (&own, &facts::read_executable_path(pid)));
        assert_eq!(unknown, same);
        assert_eq!((other.arguments, other.path), (b"other\0".to_vec(), vec![]));
    }

    #[test]
    fn take_exec_returns_the_next_of_several() {
        let exec = |time_ns| Exec { time_ns, file_name: vec![], arguments: vec![], path: vec![], poll: 0 };
        let mut execs = Execs::default();
        execs.by_process.insert(7, vec![exec(30), exec(20), exec(10)]);
        assert_eq!(execs.take_exec(7, 15).map(|exec| exec.time_ns), Some(20));
        assert_eq!(execs.take_exec(7, 25).map(|exec| exec.time_ns), Some(30));
        assert_eq!(execs.take_exec(7, 0), None);
        execs.by_process.insert(8, vec![exec(30)]);
        (0..KEPT_POLLS).for_each(|_| execs.poll());
        assert!(execs.by_process.is_empty() && execs.count == 0);
    }
}
