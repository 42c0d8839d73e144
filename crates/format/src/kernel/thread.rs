//! Threads: start, end, rundown, context switches and scheduler events.
//!
//! ```text
//!   context switch   0 new thread │ 4 old thread │ 8 priorities, states, wait reason, 1 byte each
//!                    10 wait time │ 14 reserved
//!   compact batch    0 first stamp │ 8 thread ids, 16 x u32 │ 48 base priorities, 16 x i8 │
//!                    58 records of 2, 4 or 8 bytes
//! ```
//!
//! Version 3 of start, end and rundown has two forms, with and without the thread's name; the table
//! has the name last, so a shorter payload lacks it. The header of a start event names the creating
//! thread, the payload names the new thread.
//!
//! A record of a compact batch is one context switch. Its low two bits select the form; these
//! fields follow, with their widths in bits:
//!
//! ```text
//!   0  idle, short   14 delta
//!   1  idle          30 delta
//!   2  lite          4 index │ 3 priority increment │ 6 state or wait reason │ 17 delta
//!   3  full          30 delta │ 4 index │ 6 state or wait reason │ 5 priority │ 17 wait time
//! ```
//!
//! The delta is the time since the previous switch, the index selects one of the 16 thread ids, and
//! the wait time is that of the new thread.
//!
//! Source: Documented ("Thread class", "CSwitch class", "ReadyThread class"); version 3 of start,
//! end and rundown Observed, in both forms.

use super::Ty::{Hex8, Hex32, I8, Pad, Pid, Ptr, RawTime, Rest, Tid, U8, U16, U32, U64, Wz};
use super::{FieldShape, Shape, f, repeated_by, shape, times};
use crate::spec::event::class;

const fn thread(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::THREAD, version, types, fields)
}

const LIFETIME: &[(u8, &str)] = &[(1, "Start"), (2, "End"), (3, "DCStart"), (4, "DCEnd")];

pub(super) static SHAPES: &[Shape] = &[
    // Only version 0 has the ids in this order.
    thread(0, LIFETIME, &[f("TThreadId", Tid), f("ProcessId", Pid)]),
    thread(
        1,
        &[(1, "Start"), (3, "DCStart"), (4, "DCEnd")],
        &[
            f("ProcessId", Pid),
            f("TThreadId", Tid),
            f("StackBase", Ptr),
            f("StackLimit", Ptr),
            f("UserStackBase", Ptr),
            f("UserStackLimit", Ptr),
            f("StartAddr", Ptr),
            f("Win32StartAddr", Ptr),
            f("WaitMode", I8),
        ],
    ),
    thread(1, &[(2, "End")], &[f("ProcessId", Pid), f("TThreadId", Tid)]),
    thread(
        2,
        LIFETIME,
        &[
            f("ProcessId", Pid),
            f("TThreadId", Tid),
            f("StackBase", Ptr),
            f("StackLimit", Ptr),
            f("UserStackBase", Ptr),
            f("UserStackLimit", Ptr),
            f("StartAddr", Ptr),
            f("Win32StartAddr", Ptr),
            f("TebBase", Ptr),
            f("SubProcessTag", U32),
        ],
    ),
    thread(
        3,
        LIFETIME,
        &[
            f("ProcessId", Pid),
            f("TThreadId", Tid),
            f("StackBase", Ptr),
            f("StackLimit", Ptr),
            f("UserStackBase", Ptr),
            f("UserStackLimit", Ptr),
            f("Affinity", Ptr),
            f("Win32StartAddr", Ptr),
            f("TebBase", Ptr),
            f("SubProcessTag", U32),
            f("BasePriority", U8),
            f("PagePriority", U8),
            f("IoPriority", U8),
            f("ThreadFlags", Hex8),
            f("ThreadName", Wz),
        ],
    ),
    thread(
        1,
        &[(0x24, "CSwitch")],
        &[
            f("NewThreadId", Tid),
            f("OldThreadId", Tid),
            f("NewThreadPriority", I8),
            f("OldThreadPriority", I8),
            f("NewThreadQuantum", I8),
            f("OldThreadQuantum", I8),
            f("OldThreadWaitReason", U8),
            f("OldThreadWaitMode", I8),
            f("OldThreadState", U8),
            f("OldThreadIdealProcessor", U8),
        ],
    ),
    thread(
        2,
        &[(0x24, "CSwitch")],
        &[
            f("NewThreadId", Tid),
            f("OldThreadId", Tid),
            f("NewThreadPriority", I8),
            f("OldThreadPriority", I8),
            f("PreviousCState", U8),
            f("SpareByte", I8),
            f("OldThreadWaitReason", U8),
            f("OldThreadWaitMode", I8),
            f("OldThreadState", U8),
            f("OldThreadIdealProcessor", U8),
            f("NewThreadWaitTime", U32),
            f("Reserved", Hex32),
        ],
    ),
    thread(
        3,
        &[(0x24, "CSwitch")],
        &[
            f("NewThreadId", Tid),
            f("OldThreadId", Tid),
            f("NewThreadPriority", I8),
            f("OldThreadPriority", I8),
            // The rank of the old thread, in newer kernels.
            f("PreviousCState", U8),
            // The priority decrement of the new thread, in newer kernels.
            f("SpareByte", I8),
            f("OldThreadWaitReason", U8),
            f("ThreadFlags", Hex8),
            f("OldThreadState", U8),
            f("OldThreadIdealProcessor", U8),
            f("NewThreadWaitTime", U32),
            // The remaining quantum of the old thread, in newer kernels.
            f("Reserved", Hex32),
        ],
    ),
    thread(
        2,
        &[(0x25, "CompCS")],
        &[
            f("FirstTimeStamp", RawTime),
            times("TidTable", Tid, 16),
            times("BasePriority", I8, 16),
            f("Records", Rest),
        ],
    ),
    thread(
        2,
        &[(0x32, "ReadyThread")],
        &[
            f("ThreadId", Tid),
            f("AdjustReason", U8),
            f("AdjustIncrement", I8),
            f("Flags", Hex8),
            f("Reserved", Pad(1)),
        ],
    ),
    thread(2, &[(0x48, "SetName")], &[f("ProcessId", Pid), f("ThreadId", Tid), f("ThreadName", Wz)]),
    thread(
        3,
        &[
            (0x30, "SetPriority"),
            (0x31, "SetBasePriority"),
            (0x33, "SetPagePriority"),
            (0x34, "SetIoPriority"),
        ],
        &[f("ThreadId", Tid), f("OldPriority", U8), f("NewPriority", U8), f("Reserved", Pad(2))],
    ),
    thread(
        2,
        &[(0x35, "ThreadAffinity")],
        &[f("Affinity", Ptr), f("ThreadId", Tid), f("Group", U16), f("Reserved", Pad(2))],
    ),
    thread(
        2,
        &[(0x39, "WorkerThread")],
        &[f("TThreadId", Tid), f("StartTime", U64), f("ThreadRoutine", Ptr)],
    ),
    thread(
        2,
        &[(0x29, "SpinLock")],
        &[
            f("SpinLockAddress", Ptr),
            f("CallerAddress", Ptr),
            f("AcquireTime", U64),
            f("ReleaseTime", U64),
            f("WaitTimeInCycles", U32),
            f("SpinCount", U32),
            f("ThreadId", Tid),
            f("InterruptCount", U32),
            f("Irql", U8),
            f("AcquireDepth", U8),
            f("Flag", Hex8),
            f("Reserved", Pad(1)),
        ],
    ),
    thread(
        2,
        &[(0x3C, "AntiStarvationBoost")],
        &[f("ThreadId", Tid), f("ProcessorIndex", U16), f("Priority", U8), f("Reserved", Pad(1))],
    ),
    thread(2, &[(0x3E, "KernelQueueEnqueue")], &[f("Entry", Ptr), f("ThreadId", Tid)]),
    thread(
        2,
        &[(0x3F, "KernelQueueDequeue")],
        &[f("ThreadId", Tid), f("EntryCount", U32), repeated_by("Entries", Ptr, "EntryCount")],
    ),
    thread(
        2,
        &[(0x42, "AutoBoostSetFloor")],
        &[
            f("Lock", Ptr),
            f("ThreadId", Tid),
            f("NewCpuPriorityFloor", U8),
            f("OldCpuPriority", U8),
            f("IoPriorities", Hex8),
            f("BoostFlags", Hex8),
        ],
    ),
    thread(
        2,
        &[(0x43, "AutoBoostClearFloor")],
        &[f("Lock", Ptr), f("ThreadId", Tid), f("BoostBitmap", Hex32)],
    ),
    thread(2, &[(0x44, "AutoBoostEntryExhaustion")], &[f("Lock", Ptr), f("ThreadId", Tid)]),
    thread(2, &[(0x45, "SubProcessTagChanged")], &[f("OldTag", U32), f("NewTag", U32)]),
];
