//! Page faults and virtual memory.
//!
//! ```text
//!   exceptions:page_fault_user, _kernel   address, ip, error_code  ──▶  0x020B, 0x020C, 0x020F
//!   major faults                          address                  ──▶  0x0220 hard fault
//!   syscalls: mmap (anonymous), brk, mremap, munmap: enter, exit   ──▶  0x0262 allocation,
//!                                                                       0x0263 release
//!
//!   error_code   bit 0 the page was present │ bit 1 write
//!       not present         0x020B demand zero: a page is mapped; whether its content is zeros,
//!                           from the page cache or from a disk is decided later
//!       present, write      0x020C copy on write: the page is not writable as it is
//!       present, no write   0x020F access violation
//! ```
//!
//! 1. A fault is written when it occurs, before the kernel resolves it. A fault that needed a disk
//!    read is written a second time, as a hard fault, when it is resolved.
//! 2. `InitialTime` of a hard fault is the time of the first of these events. If group PAGE_FAULTS
//!    is not captured, it is the time of the hard fault event itself.
//! 3. A system call is written when it has succeeded; its arguments are kept from entry to exit.
//! 4. The end of a heap belongs to one address space. After a fork or an exec it is unknown until
//!    the process calls `brk`, and that first call writes no event.

use perf_event_open_sys::bindings as sys;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::{Context, EventFamily, Row, SampleHandler};
use crate::groups::Group;
use crate::maps::{page_size, page_start};
use crate::out::Out;
use crate::per_task::PerTask;
use crate::record::{SampleParts, Sideband, SidebandRecord};
use crate::spec::{PerfSource, SampleEvent};

/// The memory family: faults and system calls in progress, and the ends of heaps.
#[derive(Debug, Default)]
pub(crate) struct MemoryFamily {
    /// The page and the time of each thread's last fault.
    faults: PerTask<(u64, u64)>,
    /// The call that each thread is in.
    calls: PerTask<MemoryCall>,
    /// The end of each process's heap, by process id.
    heap_ends: PerTask<u64>,
}

/// A system call in progress, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryCall {
    Map { length: u64, flags: u32 },
    Unmap { start: u64, length: u64 },
    Move { start: u64, old_length: u64, new_length: u64 },
    SetHeapEnd,
}

const FAULT_HOOKS: &[u16] = &[hook::DEMAND_ZERO_FAULT, hook::COPY_ON_WRITE, hook::ACCESS_VIOLATION];
const FAULT_LAYOUT: PayloadLayout = PayloadLayout::shared(FAULT_HOOKS, 2);
const HARD_FAULT_LAYOUT: PayloadLayout = PayloadLayout::new(hook::HARD_FAULT, 2);
const ALLOC_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::VIRTUAL_ALLOC, hook::VIRTUAL_FREE], 2);

// Bits of the error code.
const PAGE_PRESENT: u64 = 1;
const WRITE_ACCESS: u64 = 2;

// Allocation types of Windows.
const MEM_COMMIT: u32 = 0x1000;
const MEM_RESERVE: u32 = 0x2000;
const MEM_RELEASE: u32 = 0x8000;

const FAULT_FIELDS: &[&str] = &["address", "ip", "error_code"];

const fn fault_row(name: &'static str) -> Row<MemoryFamily> {
    let groups = &[Group::PAGE_FAULTS];
    Row::tracepoint(("exceptions", name), groups, FAULT_HOOKS, FAULT_FIELDS, MemoryFamily::on_fault)
}

const fn enter_row(
    name: &'static str,
    fields: &'static [&'static str],
    on_sample: SampleHandler<MemoryFamily>,
) -> Row<MemoryFamily> {
    Row::tracepoint(("syscalls", name), &[Group::VIRTUAL_ALLOC], &[], fields, on_sample)
}

const fn exit_row(name: &'static str, hooks: &'static [u16]) -> Row<MemoryFamily> {
    Row::tracepoint(("syscalls", name), &[Group::VIRTUAL_ALLOC], hooks, &["ret"], MemoryFamily::on_return)
}

static ROWS: &[Row<MemoryFamily>] = &[
    fault_row("page_fault_user"),
    fault_row("page_fault_kernel"),
    Row::new(
        PerfSource::Software { counter: sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ as u64, period: 1 },
        &[Group::HARD_FAULTS],
        &[hook::HARD_FAULT],
        SampleParts::ADDR,
        MemoryFamily::on_major_fault,
    ),
    // Minor faults in scope `Own`, which has no tracepoints: the kernel's counter does not
    // report the kind of fault.
    Row::new(
        PerfSource::Software { counter: sys::PERF_COUNT_SW_PAGE_FAULTS_MIN as u64, period: 1 },
        &[Group::PAGE_FAULTS],
        &[hook::DEMAND_ZERO_FAULT],
        SampleParts::ADDR.with(SampleParts::IP),
        |_, event, _, out| write_fault(hook::DEMAND_ZERO_FAULT, event.sample.addr, event.sample.ip, out),
    )
    .with_own_scope_only(),
    enter_row("sys_enter_mmap", &["len", "prot", "flags"], MemoryFamily::on_mmap),
    exit_row("sys_exit_mmap", &[hook::VIRTUAL_ALLOC]),
    enter_row("sys_enter_munmap", &["addr", "len"], |memory, event, _, _| {
        memory.calls.put(event.sample.tid, MemoryCall::Unmap { start: event.u64(0), length: event.u64(1) });
    }),
    exit_row("sys_exit_munmap", &[hook::VIRTUAL_FREE]),
    enter_row("sys_enter_mremap", &["addr", "old_len", "new_len"], |memory, event, _, _| {
        let call =
            MemoryCall::Move { start: event.u64(0), old_length: event.u64(1), new_length: event.u64(2) };
        memory.calls.put(event.sample.tid, call);
    }),
    exit_row("sys_exit_mremap", &[hook::VIRTUAL_ALLOC, hook::VIRTUAL_FREE]),
    enter_row("sys_enter_brk", &[], |memory, event, _, _| {
        memory.calls.put(event.sample.tid, MemoryCall::SetHeapEnd)
    }),
    exit_row("sys_exit_brk", &[hook::VIRTUAL_ALLOC, hook::VIRTUAL_FREE]),
];

impl EventFamily for MemoryFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Drops the heap end of a process that has a new address space.
    fn on_sideband(&mut self, record: &SidebandRecord<'_>, _: &mut Context, _: &mut Out<'_>) {
        match record.body {
            Sideband::Comm { pid, is_exec: true, .. } => drop(self.heap_ends.take(pid)),
            Sideband::Fork { pid, ppid, .. } if pid != ppid => drop(self.heap_ends.take(pid)),
            _ => {}
        }
    }

    /// Drops all state: the next exit or major fault may belong to another call or fault, and a
    /// heap end to another program.
    fn forget_after_loss(&mut self) {
        *self = Self::default();
    }
}

impl MemoryFamily {
    fn on_fault(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        let (address, ip, code) = (event.u64(0), event.u64(1), event.u64(2));
        self.faults.put(event.sample.tid, (page_start(address), event.sample.time));
        let hook = match (code & PAGE_PRESENT != 0, code & WRITE_ACCESS != 0) {
            (false, _) => hook::DEMAND_ZERO_FAULT,
            (true, true) => hook::COPY_ON_WRITE,
            (true, false) => hook::ACCESS_VIOLATION,
        };
        write_fault(hook, address, ip, out);
    }

    fn on_major_fault(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        let sample = event.sample;
        let fault = self.faults.take(sample.tid).filter(|(page, _)| *page == page_start(sample.addr));
        let time = fault.map_or(sample.time, |(_, time)| time);
        let mut payload = out.new_payload();
        // The kernel reports neither the file nor the offset in it.
        put_kernel_event!(&mut payload, HARD_FAULT_LAYOUT, {
            InitialTime: out.to_stamp(time),
            VirtualAddress: sample.addr,
            TThreadId: sample.tid,
            ByteCount: u32::try_from(page_size()).unwrap_or(u32::MAX),
        });
        out.write_perfinfo(hook::HARD_FAULT, HARD_FAULT_LAYOUT.version(), payload);
    }

    fn on_mmap(&mut self, event: &SampleEvent<'_>, _: &mut Context, _: &mut Out<'_>) {
        const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
        // A mapped file is not an allocation.
        if event.u64(2) & ANONYMOUS == 0 {
            self.calls.take(event.sample.tid);
            return;
        }
        // Memory without any access is reserved but not committed.
        let flags = if event.u64(1) == 0 { MEM_RESERVE } else { MEM_RESERVE | MEM_COMMIT };
        self.calls.put(event.sample.tid, MemoryCall::Map { length: event.u64(0), flags });
    }

    fn on_return(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        let (pid, result) = (event.sample.pid, event.u64(0));
        let Some(call) = self.calls.take(event.sample.tid) else { return };
        let mut old_heap_end = None;
        if call == MemoryCall::SetHeapEnd {
            old_heap_end = self.heap_ends.take(pid);
            self.heap_ends.put(pid, result);
        }
        for change in list_changes(call, old_heap_end, result).into_iter().flatten() {
            change.write(pid, out);
        }
    }
}

fn write_fault(hook: u16, address: u64, ip: u64, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, FAULT_LAYOUT, { VirtualAddress: address, ProgramCounter: ip });
    out.write_perfinfo(hook, FAULT_LAYOUT.version(), payload);
}

/// A range of memory that was allocated or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AllocationChange {
    hook: u16,
    start: u64,
    length: u64,
    flags: u32,
}

impl AllocationChange {
    /// Rounds the length up to whole pages, as the kernel does; `None` for an empty range.
    fn new(hook: u16, start: u64, length: u64, flags: u32) -> Option<Self> {
        let length = page_start(length.saturating_add(page_size().wrapping_sub(1)));
        (length > 0).then_some(Self { hook, start, length, flags })
    }

    fn write(self, pid: u32, out: &mut Out<'_>) {
        let mut payload = out.new_payload();
        put_kernel_event!(&mut payload, ALLOC_LAYOUT, {
            BaseAddress: self.start,
            RegionSize: self.length,
            ProcessId: pid,
            Flags: self.flags,
        });
        out.write_perfinfo(self.hook, ALLOC_LAYOUT.version(), payload);
    }
}

/// Returns the changes that a system call made, by its arguments and its return value.
/// `old_heap_end`: the old end of the heap, if it is known.
fn list_changes(call: MemoryCall, old_heap_end: Option<u64>, result: u64) -> [Option<AllocationChange>; 2] {
    // Return values from -4095 to -1 are error numbers.
    const FIRST_ERROR: u64 = -4095_i64 as u64;
    if result >= FIRST_ERROR {
        return [None, None];
    }
    let allocated = |start, length, flags| AllocationChange::new(hook::VIRTUAL_ALLOC, start, length, flags);
    let released = |start, length| AllocationChange::new(hook::VIRTUAL_FREE, start, length, MEM_RELEASE);
    match call {
        MemoryCall::Map { length, flags } => [allocated(result, length, flags), None],
        MemoryCall::Unmap { start, length } => [released(start, length), None],
        MemoryCall::Move { start, old_length, new_length } if start != result => {
            [released(start, old_length), allocated(result, new_length, MEM_RESERVE | MEM_COMMIT)]
        }
        MemoryCall::Move { start, old_length, new_length } => [
            allocated(
                start.saturating_add(old_length),
                new_length.saturating_sub(old_length),
                MEM_RESERVE | MEM_COMMIT,
            ),
            released(start.saturating_add(new_length), old_length.saturating_sub(new_length)),
        ],
        MemoryCall::SetHeapEnd => {
            let old_heap_end = old_heap_end.unwrap_or(result);
            [
                allocated(old_heap_end, result.saturating_sub(old_heap_end), MEM_RESERVE | MEM_COMMIT),
                released(result, old_heap_end.saturating_sub(result)),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::NanosecondClock;
    use crate::family::testing::{assert_written, run_row_with_numbers, to_hex};
    use crate::out::RecordQueue;
    use crate::record::PerfSample;
    use crate::settings::EventExtras;

    #[test]
    fn payloads_have_the_documented_layout() {
        let (mut memory, mut context) = (MemoryFamily::default(), Context::default());
        let write = |out: &mut Out<'_>| {
            let mut run = |name: &str, time, numbers: &[u64]| {
                let (addr, ip) = (0x7F00_0001_2345, 0x40_5678);
                let sample = PerfSample { time, pid: 0x0A11, tid: 0x0A12, addr, ip, ..PerfSample::default() };
                run_row_with_numbers(&mut memory, &mut context, name, sample, numbers, out);
            };
            for code in [0, 1, 3] {
                run("exceptions:page_fault_user", 0x0111, &[0x7F00_0001_2345, 0x40_1234, code]);
            }
            run(&format!("software event {}", sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ), 0x0222, &[]);
            run(&format!("software event {}", sys::PERF_COUNT_SW_PAGE_FAULTS_MIN), 0x0333, &[]);
            run("syscalls:sys_enter_mmap", 0, &[1 << 20, 1, libc::MAP_ANONYMOUS as u64]);
            run("syscalls:sys_exit_mmap", 0, &[0x7F00_0000_0000]);
            run("syscalls:sys_enter_munmap", 0, &[0x7F00_0000_0000, 1 << 20]);
            run("syscalls:sys_exit_munmap", 0, &[0]);
        };
        let page = to_hex(&u32::try_from(page_size()).unwrap().to_le_bytes());
        let hard_fault =
            "0220 02 1101000000000000 0000000000000000 45230100007f0000 0000000000000000 120a0000";
        // Hook id, version, payload.
        assert_written(
            write,
            &[
                "020b 02 45230100007f0000 3412400000000000",
                "020f 02 45230100007f0000 3412400000000000",
                "020c 02 45230100007f0000 3412400000000000",
                &(hard_fault.to_owned() + &page),
                "020b 02 45230100007f0000 7856400000000000",
                "0262 02 00000000007f0000 0000100000000000 110a0000 00300000",
                "0263 02 00000000007f0000 0000100000000000 110a0000 00800000",
            ],
        );
    }

    fn change_values(call: MemoryCall, old_heap_end: Option<u64>, result: u64) -> Vec<(u16, u64, u64, u32)> {
        let changes = list_changes(call, old_heap_end, result).into_iter().flatten();
        changes.map(|change| (change.hook, change.start, change.length, change.flags)).collect()
    }

    #[test]
    fn calls_change_whole_pages() {
        let page = page_size();
        let map = MemoryCall::Map { length: page + 1, flags: MEM_RESERVE | MEM_COMMIT };
        assert_eq!(
            change_values(map, None, 0x7000_0000),
            [(hook::VIRTUAL_ALLOC, 0x7000_0000, 2 * page, MEM_RESERVE | MEM_COMMIT)]
        );
        assert_eq!(change_values(map, None, -i64::from(libc::ENOMEM) as u64), [], "a failed call counts");
        let unmap = MemoryCall::Unmap { start: 0x7000_0000, length: 1 };
        assert_eq!(change_values(unmap, None, 0), [(hook::VIRTUAL_FREE, 0x7000_0000, page, MEM_RELEASE)]);
        let moved = MemoryCall::Move { start: 0x1000_0000, old_length: page, new_length: 2 * page };
        let moved_ranges = [
            (hook::VIRTUAL_FREE, 0x1000_0000, page, MEM_RELEASE),
            (hook::VIRTUAL_ALLOC, 0x2000_0000, 2 * page, MEM_RESERVE | MEM_COMMIT),
        ];
        assert_eq!(change_values(moved, None, 0x2000_0000), moved_ranges);
        assert_eq!(
            change_values(moved, None, 0x1000_0000),
            [(hook::VIRTUAL_ALLOC, 0x1000_0000 + page, page, MEM_RESERVE | MEM_COMMIT)]
        );
        let shrunk = MemoryCall::Move { start: 0x1000_0000, old_length: 3 * page, new_length: page };
        assert_eq!(
            change_values(shrunk, None, 0x1000_0000),
            [(hook::VIRTUAL_FREE, 0x1000_0000 + page, 2 * page, MEM_RELEASE)]
        );
        // No arithmetic overflows.
        let extreme = MemoryCall::Move { start: u64::MAX, old_length: u64::MAX, new_length: 0 };
        assert!(change_values(extreme, None, 5).len() <= 2);
    }

    #[test]
    fn lost_records_drop_calls_faults_and_heaps() {
        let mut memory = MemoryFamily::default();
        memory.calls.put(7, MemoryCall::SetHeapEnd);
        memory.faults.put(7, (1, 2));
        memory.heap_ends.put(7, 3);
        memory.forget_after_loss();
        assert_eq!((memory.calls.take(7), memory.faults.take(7)), (None, None));
        assert_eq!(memory.heap_ends.take(7), None, "the heap end was kept");
    }

    #[test]
    fn heap_end_belongs_to_one_program_of_one_process() {
        // Larger than the largest id that Linux assigns.
        let process = 5_000_000;
        let (mut memory, mut context) = (MemoryFamily::default(), Context::default());
        let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
        let mut out = Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records);
        let mut keeps_heap_end = |body| {
            memory.heap_ends.put(process, 0x5555_0000);
            let record = SidebandRecord { time: 1, pid: process, tid: process, body };
            memory.on_sideband(&record, &mut context, &mut out);
            memory.heap_ends.take(process).is_some()
        };
        let comm = |is_exec| Sideband::Comm { pid: process, tid: process, name: b"a", is_exec };
        let fork = |ppid, tid| Sideband::Fork { pid: process, ppid, tid, ptid: ppid };
        assert!(!keeps_heap_end(fork(1, process)), "kept for a new process with a used id");
        assert!(keeps_heap_end(fork(process, process + 1)), "dropped by a new thread");
        assert!(keeps_heap_end(comm(false)), "dropped by a new thread name");
        assert!(!keeps_heap_end(comm(true)), "kept for another program");
    }

    #[test]
    fn heap_grows_and_shrinks_from_its_known_end() {
        let page = page_size();
        let heap_end = 0x5555_0000;
        assert_eq!(change_values(MemoryCall::SetHeapEnd, None, heap_end), []);
        assert_eq!(
            change_values(MemoryCall::SetHeapEnd, Some(heap_end), heap_end + page),
            [(hook::VIRTUAL_ALLOC, heap_end, page, MEM_RESERVE | MEM_COMMIT)]
        );
        assert_eq!(
            change_values(MemoryCall::SetHeapEnd, Some(heap_end + page), heap_end),
            [(hook::VIRTUAL_FREE, heap_end, page, MEM_RELEASE)]
        );
    }
}
