//! Processes: start, end, rundown, counters, and wake events.
//!
//! ```text
//!   version 4, 64-bit   0 key │ 8 pid │ C parent │ 10 session │ 14 exit │ 18 directory table │
//!                       20 flags │ 24 SID block │ strings
//!   SID block           u32 0                                    4 bytes, no SID
//!                       two pointers, meaningless │ SID          otherwise
//! ```
//!
//! The exit status is 259 while the process runs; the session is 0xFFFFFFFF if there is none.
//!
//! Source: Documented ("Process class", "Process_TypeGroup1 class"); versions 4 and 5, Terminate
//! and the counters Observed.

use super::Ty::{Az, FileTime, Hex32, I32, Pad, Pid, Ptr, SidBlock, Size, U32, Wz};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn process(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::PROCESS, version, types, fields)
}

const LIFETIME: &[(u8, &str)] = &[(1, "Start"), (2, "End"), (3, "DCStart"), (4, "DCEnd")];
/// The event of a process that has ended but is still referenced (Defunct) has the same layouts in
/// versions 2 to 4. Its version 5 has a separate layout.
const LIFETIME_AND_DEFUNCT: &[(u8, &str)] =
    &[(1, "Start"), (2, "End"), (3, "DCStart"), (4, "DCEnd"), (0x27, "Defunct")];

const WAKE_COUNTERS: &[(u8, &str)] = &[
    (0x30, "WakeChargeUser"),
    (0x31, "WakeChargeExecution"),
    (0x32, "WakeChargeKernel"),
    (0x33, "WakeChargeInstrumentation"),
    (0x34, "WakeChargePreserveProcess"),
    (0x40, "WakeReleaseUser"),
    (0x41, "WakeReleaseExecution"),
    (0x42, "WakeReleaseKernel"),
    (0x43, "WakeReleaseInstrumentation"),
    (0x44, "WakeReleasePreserveProcess"),
    (0x50, "WakeDropUser"),
    (0x51, "WakeDropExecution"),
    (0x52, "WakeDropKernel"),
    (0x53, "WakeDropInstrumentation"),
    (0x54, "WakeDropPreserveProcess"),
];

const WAKE_EVENTS: &[(u8, &str)] = &[
    (0x60, "WakeEventUser"),
    (0x61, "WakeEventExecution"),
    (0x62, "WakeEventKernel"),
    (0x63, "WakeEventInstrumentation"),
];

pub(super) static SHAPES: &[Shape] = &[
    process(
        0,
        LIFETIME,
        &[f("ProcessId", Size), f("ParentId", Size), f("UserSID", SidBlock), f("ImageFileName", Az)],
    ),
    process(
        1,
        LIFETIME,
        &[
            f("PageDirectoryBase", Ptr),
            f("ProcessId", Pid),
            f("ParentId", Pid),
            f("SessionId", U32),
            f("ExitStatus", I32),
            f("UserSID", SidBlock),
            f("ImageFileName", Az),
        ],
    ),
    process(
        2,
        LIFETIME_AND_DEFUNCT,
        &[
            f("UniqueProcessKey", Ptr),
            f("ProcessId", Pid),
            f("ParentId", Pid),
            f("SessionId", U32),
            f("ExitStatus", I32),
            f("UserSID", SidBlock),
            f("ImageFileName", Az),
            f("CommandLine", Wz),
        ],
    ),
    process(
        3,
        LIFETIME_AND_DEFUNCT,
        &[
            f("UniqueProcessKey", Ptr),
            f("ProcessId", Pid),
            f("ParentId", Pid),
            f("SessionId", U32),
            f("ExitStatus", I32),
            f("DirectoryTableBase", Ptr),
            f("UserSID", SidBlock),
            f("ImageFileName", Az),
            f("CommandLine", Wz),
        ],
    ),
    process(
        4,
        LIFETIME_AND_DEFUNCT,
        &[
            f("UniqueProcessKey", Ptr),
            f("ProcessId", Pid),
            f("ParentId", Pid),
            f("SessionId", U32),
            f("ExitStatus", I32),
            f("DirectoryTableBase", Ptr),
            f("Flags", Hex32),
            f("UserSID", SidBlock),
            f("ImageFileName", Az),
            f("CommandLine", Wz),
            f("PackageFullName", Wz),
            f("ApplicationId", Wz),
        ],
    ),
    process(
        5,
        &[(0x27, "Defunct")],
        &[
            f("UniqueProcessKey", Ptr),
            f("ProcessId", Pid),
            f("ParentId", Pid),
            f("SessionId", U32),
            f("ExitStatus", I32),
            f("DirectoryTableBase", Ptr),
            f("Flags", Hex32),
            f("UserSID", SidBlock),
            f("ImageFileName", Az),
            f("CommandLine", Wz),
            f("PackageFullName", Wz),
            f("ApplicationId", Wz),
            f("ExitTime", FileTime),
        ],
    ),
    process(2, &[(0x0B, "Terminate")], &[f("ProcessId", Pid)]),
    process(
        2,
        &[(0x20, "PerfCtr"), (0x21, "PerfCtrRundown")],
        &[
            f("ProcessId", Pid),
            f("PageFaultCount", U32),
            f("HandleCount", U32),
            f("Reserved", Pad(4)),
            f("PeakVirtualSize", Size),
            f("PeakWorkingSetSize", Size),
            f("PeakPagefileUsage", Size),
            f("QuotaPeakPagedPoolUsage", Size),
            f("QuotaPeakNonPagedPoolUsage", Size),
            f("VirtualSize", Size),
            f("WorkingSetSize", Size),
            f("PagefileUsage", Size),
            f("QuotaPagedPoolUsage", Size),
            f("QuotaNonPagedPoolUsage", Size),
            f("PrivatePageCount", Size),
        ],
    ),
    process(2, &[(0x23, "InSwap")], &[f("DirectoryTableBase", Ptr), f("ProcessId", Pid)]),
    process(2, WAKE_COUNTERS, &[f("Object", Ptr), f("Tag", Ptr), f("ProcessId", Pid), f("Count", U32)]),
    process(2, WAKE_EVENTS, &[f("Object", Ptr)]),
];
