//! Page faults and virtual memory.
//!
//! ```text
//!   exceptions:page_fault_user, _kernel   address, ip, error_code     ──▶  0x020B, 0x020C, 0x020F: what the error code tells
//!   major faults                          address                     ──▶  0x0220 hard fault
//!   syscalls: mmap (anonymous), brk, mremap, munmap, enter and exit   ──▶  0x0262 allocation, 0x0263 release
//!
//!   error_code   bit 0 the page was there │ bit 1 write
//!                not there              0x020B demand zero         a page is brought in; whether of zeros, of the cache or of a disk is decided later
//!                there, write           0x020C copy on write       the page may not be written to as it is
//!                there, no write        0x020F access violation
//! ```
//!
//! 1. A fault is told where it happens, before it is served. What a disk had to serve is told again as a hard fault, behind it.
//! 2. A hard fault began when its fault was seen (group PAGE_FAULTS); where faults are not captured, its beginning is its end.
//! 3. A system call is told when it has succeeded, by what it asked for, which is remembered in between.
//! 4. Where a heap ends belongs to one address space: a process that begins, or runs another program, has a heap that nobody has seen yet.

use perf_event_open_sys::bindings as sys;
use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::out::Out;
use crate::per_thread::PerThread;
use crate::record::{Context, Other, Parts};
use crate::spec::{Event, Source, Spec};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last fault of a thread: its page, and when it was.
    faults: PerThread<(u64, u64)>,
    /// What a thread asks for.
    calls: PerThread<Call>,
    /// Where the heap of a process ends.
    breaks: PerThread<u64>,
}

/// A system call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Map { length: u64, flags: u32 },
    Unmap { start: u64, length: u64 },
    Move { start: u64, old: u64, new: u64 },
    Break,
}

const DEMAND_ZERO: u16 = 0x020B;
const COPY_ON_WRITE: u16 = 0x020C;
const ACCESS_VIOLATION: u16 = 0x020F;
const HARD_FAULT: u16 = 0x0220;
const ALLOC: u16 = 0x0262;
const FREE: u16 = 0x0263;

/// Bits of an error code.
const WAS_THERE: u64 = 1;
const WAS_WRITE: u64 = 2;

/// Types of allocations.
const COMMIT: u32 = 0x1000;
const RESERVE: u32 = 0x2000;
const RELEASE: u32 = 0x8000;

const FAULT_HOOKS: &[u16] = &[DEMAND_ZERO, COPY_ON_WRITE, ACCESS_VIOLATION];
const FAULT_FIELDS: &[&str] = &["address", "ip", "error_code"];

const fn fault(name: &'static str) -> Spec {
    Spec::tracepoint(("exceptions", name), &[Group::PAGE_FAULTS], FAULT_HOOKS, FAULT_FIELDS, faulted)
}

const fn enter(
    name: &'static str,
    fields: &'static [&'static str],
    on: fn(&mut All, &Event<'_>, &mut Out<'_>),
) -> Spec {
    Spec::tracepoint(("syscalls", name), &[Group::VIRTUAL_ALLOC], &[], fields, on)
}

const fn exit(name: &'static str, hooks: &'static [u16]) -> Spec {
    Spec::tracepoint(("syscalls", name), &[Group::VIRTUAL_ALLOC], hooks, &["ret"], returned)
}

pub(crate) static SPECS: &[Spec] = &[
    fault("page_fault_user"),
    fault("page_fault_kernel"),
    Spec {
        source: Source::Software { counter: sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ as u64, period: 1 },
        groups: &[Group::HARD_FAULTS],
        hooks: &[HARD_FAULT],
        fields: &[],
        parts: Parts::ADDR,
        wakes: false,
        is_for_own: false,
        filter: None,
        on: read_in,
    },
    // All faults of single threads: the kernel's counter does not tell of which kind.
    Spec {
        source: Source::Software { counter: sys::PERF_COUNT_SW_PAGE_FAULTS_MIN as u64, period: 1 },
        groups: &[Group::PAGE_FAULTS],
        hooks: &[DEMAND_ZERO],
        fields: &[],
        parts: Parts::ADDR.with(Parts::IP),
        wakes: false,
        is_for_own: true,
        filter: None,
        on: brought_in,
    },
    enter("sys_enter_mmap", &["len", "prot", "flags"], maps),
    exit("sys_exit_mmap", &[ALLOC]),
    enter("sys_enter_munmap", &["addr", "len"], unmaps),
    exit("sys_exit_munmap", &[FREE]),
    enter("sys_enter_mremap", &["addr", "old_len", "new_len"], moves),
    exit("sys_exit_mremap", &[ALLOC, FREE]),
    enter("sys_enter_brk", &[], breaks),
    exit("sys_exit_brk", &[ALLOC, FREE]),
];

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The page that an address is in.
fn page_of(address: u64) -> u64 {
    address & !page_size().wrapping_sub(1)
}

fn faulted(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (address, ip, code) = (event.u64(0), event.u64(1), event.u64(2));
    state.memory.faults.put(event.sample.tid, (page_of(address), event.sample.time));
    let hook = match (code & WAS_THERE != 0, code & WAS_WRITE != 0) {
        (false, _) => DEMAND_ZERO,
        (true, true) => COPY_ON_WRITE,
        (true, false) => ACCESS_VIOLATION,
    };
    let mut payload = out.payload();
    payload.put_u64(address).put_u64(ip);
    out.perfinfo(hook, 2, payload);
}

fn brought_in(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let mut payload = out.payload();
    payload.put_u64(event.sample.addr).put_u64(event.sample.ip);
    out.perfinfo(DEMAND_ZERO, 2, payload);
}

fn read_in(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let sample = event.sample;
    let begun = state.memory.faults.take(sample.tid).filter(|(page, _)| *page == page_of(sample.addr));
    let time = begun.map_or(sample.time, |(_, time)| time);
    let mut payload = out.payload();
    // Neither the file nor the place in it is told.
    payload.put_i64(out.stamp(time)).put_u64(0).put_u64(sample.addr).put_u64(0);
    payload.put_u32(sample.tid).put_u32(u32::try_from(page_size()).unwrap_or(u32::MAX));
    out.perfinfo(HARD_FAULT, 2, payload);
}

fn maps(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
    // What is mapped of a file is no allocation.
    if event.u64(2) & ANONYMOUS == 0 {
        state.memory.calls.take(event.sample.tid);
        return;
    }
    // What nobody may touch is an address range, and no memory.
    let flags = if event.u64(1) == 0 { RESERVE } else { RESERVE | COMMIT };
    state.memory.calls.put(event.sample.tid, Call::Map { length: event.u64(0), flags });
}

fn unmaps(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    let call = Call::Unmap { start: event.u64(0), length: event.u64(1) };
    state.memory.calls.put(event.sample.tid, call);
}

fn moves(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    let call = Call::Move { start: event.u64(0), old: event.u64(1), new: event.u64(2) };
    state.memory.calls.put(event.sample.tid, call);
}

fn breaks(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    state.memory.calls.put(event.sample.tid, Call::Break);
}

fn returned(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (pid, result) = (event.sample.pid, event.u64(0));
    let Some(call) = state.memory.calls.take(event.sample.tid) else { return };
    let before = match call {
        Call::Break => state.memory.breaks.take(pid),
        _ => None,
    };
    if call == Call::Break {
        state.memory.breaks.put(pid, result);
    }
    for change in changes(call, before, result).into_iter().flatten() {
        change.tell(pid, out);
    }
}

/// A process has another address space than what was seen under its id.
pub(crate) fn on_other(state: &mut All, _: &Context, other: &Other<'_>, _: &mut Out<'_>) {
    match *other {
        Other::Comm { pid, is_exec: true, .. } => drop(state.memory.breaks.take(pid)),
        Other::Fork { pid, ppid, .. } if pid != ppid => drop(state.memory.breaks.take(pid)),
        _ => {}
    }
}

/// Records were lost: a call that ends, or a fault that is served, may be another than the one that was seen to begin, and a heap that of another program.
pub(crate) fn forget(state: &mut All) {
    state.memory = State::default();
}

/// A range that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    hook: u16,
    start: u64,
    length: u64,
    flags: u32,
}

impl Change {
    /// In whole pages, as the kernel deals them out.
    fn new(hook: u16, start: u64, length: u64, flags: u32) -> Option<Self> {
        let length = page_of(length.saturating_add(page_size().wrapping_sub(1)));
        (length > 0).then_some(Self { hook, start, length, flags })
    }

    fn tell(self, pid: u32, out: &mut Out<'_>) {
        let mut payload = out.payload();
        payload.put_u64(self.start).put_u64(self.length).put_u32(pid).put_u32(self.flags);
        out.perfinfo(self.hook, 2, payload);
    }
}

/// What a system call has changed, by what it was asked for and what it returned. `before`: where the heap ended, if that is known.
fn changes(call: Call, before: Option<u64>, result: u64) -> [Option<Change>; 2] {
    const FIRST_ERROR: u64 = -4095_i64 as u64;
    if result >= FIRST_ERROR {
        return [None, None];
    }
    let came = |start, length, flags| Change::new(ALLOC, start, length, flags);
    let went = |start, length| Change::new(FREE, start, length, RELEASE);
    match call {
        Call::Map { length, flags } => [came(result, length, flags), None],
        Call::Unmap { start, length } => [went(start, length), None],
        Call::Move { start, old, new } if start != result => {
            [went(start, old), came(result, new, RESERVE | COMMIT)]
        }
        Call::Move { start, old, new } => [
            came(start.saturating_add(old), new.saturating_sub(old), RESERVE | COMMIT),
            went(start.saturating_add(new), old.saturating_sub(new)),
        ],
        Call::Break => {
            let before = before.unwrap_or(result);
            [
                came(before, result.saturating_sub(before), RESERVE | COMMIT),
                went(result, before.saturating_sub(result)),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plain;
    use crate::out::{Beside, Queue};

    fn told(call: Call, before: Option<u64>, result: u64) -> Vec<(u16, u64, u64, u32)> {
        let all = changes(call, before, result).into_iter().flatten();
        all.map(|it| (it.hook, it.start, it.length, it.flags)).collect()
    }

    #[test]
    fn ranges_are_what_the_kernel_deals_out() {
        let page = page_size();
        let map = Call::Map { length: page + 1, flags: 0x3000 };
        assert_eq!(told(map, None, 0x7000_0000), [(0x0262, 0x7000_0000, 2 * page, 0x3000)]);
        assert_eq!(told(map, None, -12_i64 as u64), [], "no memory");
        let unmap = Call::Unmap { start: 0x7000_0000, length: 1 };
        assert_eq!(told(unmap, None, 0), [(0x0263, 0x7000_0000, page, 0x8000)]);
        let moved = Call::Move { start: 0x1000_0000, old: page, new: 2 * page };
        let there = [(0x0263, 0x1000_0000, page, 0x8000), (0x0262, 0x2000_0000, 2 * page, 0x3000)];
        assert_eq!(told(moved, None, 0x2000_0000), there);
        assert_eq!(told(moved, None, 0x1000_0000), [(0x0262, 0x1000_0000 + page, page, 0x3000)]);
        let shrunk = Call::Move { start: 0x1000_0000, old: 3 * page, new: page };
        assert_eq!(told(shrunk, None, 0x1000_0000), [(0x0263, 0x1000_0000 + page, 2 * page, 0x8000)]);
        let extreme = Call::Move { start: u64::MAX, old: u64::MAX, new: 0 };
        assert!(told(extreme, None, 5).len() <= 2, "whatever a program asks for");
    }

    #[test]
    fn a_loss_ends_calls_and_faults_that_are_under_way() {
        let mut state = All::default();
        state.memory.calls.put(7, Call::Break);
        state.memory.faults.put(7, (1, 2));
        state.memory.breaks.put(7, 3);
        crate::family::forget(&mut state);
        assert_eq!((state.memory.calls.take(7), state.memory.faults.take(7)), (None, None));
        assert_eq!(state.memory.breaks.take(7), None, "an exec may be among what is lost");
    }

    #[test]
    fn a_heap_is_that_of_one_program_of_one_process() {
        // Above the largest id that Linux gives.
        let process = 5_000_000;
        let mut state = All::default();
        let (mut queues, beside, mut too_large) = ([Queue::default()], Beside::default(), 0);
        let mut out = Out::new(&mut queues, &Plain, &beside, &mut too_large);
        let mut kept = |other| {
            state.memory.breaks.put(process, 0x5555_0000);
            let context = Context { time: 1, pid: process, tid: process };
            crate::family::on_other(&mut state, &context, &other, &mut out);
            state.memory.breaks.take(process).is_some()
        };
        let comm = |is_exec| Other::Comm { pid: process, tid: process, name: b"a", is_exec };
        let fork = |ppid, tid| Other::Fork { pid: process, ppid, tid, ptid: ppid };
        assert!(!kept(fork(1, process)), "another process had this id");
        assert!(kept(fork(process, process + 1)), "a thread has the heap of its process");
        assert!(kept(comm(false)), "a name is no program");
        assert!(!kept(comm(true)), "another program has another heap");
    }

    #[test]
    fn a_heap_grows_and_shrinks_from_where_it_was_seen() {
        let page = page_size();
        let at = 0x5555_0000;
        assert_eq!(told(Call::Break, None, at), []);
        assert_eq!(told(Call::Break, Some(at), at + page), [(0x0262, at, page, 0x3000)]);
        assert_eq!(told(Call::Break, Some(at + page), at), [(0x0263, at, page, 0x8000)]);
    }
}
