//! Sampled profile, interrupts, deferred procedure calls, system calls and timers (group 0x0F).
//!
//! ```text
//!   sample, 64-bit      0 instruction pointer │ 8 thread │ C count │ E flags │ F rank
//!   flags of a sample   bit 0 in a DPC │ bit 1 in an ISR │ bits 3-7 priority
//!   interrupt, 64-bit   0 initial time │ 8 routine │ 10 u8 return value │ 11 u16 vector │
//!                       13 u8 reserved
//! ```
//!
//! Interrupts and DPCs are logged when they end: their duration is the time in the event's header
//! minus `InitialTime`. Sampling intervals are in units of 100 ns; source 0 is the timer. The
//! documentation gives an interrupt an 8-bit vector and 16 reserved bits; the schema of Windows
//! gives it a 16-bit vector and 8 reserved bits, and so does this table.
//!
//! Source: Documented ("PerfInfo class", "SampledProfile class", "ISR class", "DPC class"); sample
//! and interval Observed.

use super::Ty::{Az, Hex8, NtStatus, Pad, Ptr, RawTime, Tid, U8, U16, U32, U64, Wz};
use super::{FieldShape, Shape, f, repeated_by, shape};
use crate::spec::event::class;

const fn perf(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::PERF_INFO, version, types, fields)
}

const COLLECTION: &[(u8, &str)] = &[(0x49, "CollectionStart"), (0x4A, "CollectionEnd")];
const SPIN_LOCK: &[(u8, &str)] = &[(0x4B, "SpinLockConfigStart"), (0x4C, "SpinLockConfigEnd")];
const INTERRUPT: &[(u8, &str)] = &[(0x43, "ISR"), (0x5F, "ISR_PASS")];
const WDF: &[(u8, &str)] =
    &[(0x60, "WdfISR"), (0x61, "WdfPassiveISR"), (0x62, "WdfDPC"), (0x67, "WdfWorkItem")];

pub(super) static SHAPES: &[Shape] = &[
    perf(1, &[(0x2E, "SampleProf")], &[f("InstructionPointer", Ptr), f("ThreadId", Tid), f("Count", U16)]),
    perf(
        2,
        &[(0x2E, "SampleProf")],
        &[f("InstructionPointer", Ptr), f("ThreadId", Tid), f("Count", U16), f("Flags", Hex8), f("Rank", U8)],
    ),
    perf(
        2,
        &[(0x2F, "PmcCounterProf")],
        &[f("InstructionPointer", Ptr), f("ThreadId", Tid), f("ProfileSource", U16), f("Reserved", Pad(2))],
    ),
    perf(
        2,
        &[(0x30, "PmcCtrConfig")],
        &[f("CounterCount", U32), repeated_by("CounterName", Wz, "CounterCount")],
    ),
    perf(2, &[(0x48, "SetInterval")], &[f("Source", U32), f("NewInterval", U32), f("OldInterval", U32)]),
    perf(2, COLLECTION, &[f("Source", U32), f("NewInterval", U32), f("OldInterval", U32)]),
    perf(
        3,
        COLLECTION,
        &[f("Source", U32), f("NewInterval", U32), f("OldInterval", U32), f("SourceName", Wz)],
    ),
    perf(
        2,
        SPIN_LOCK,
        &[f("SpinThreshold", U32), f("ContentionSampleRate", U32), f("AcquireSampleRate", U32)],
    ),
    perf(
        3,
        SPIN_LOCK,
        &[
            f("SpinThreshold", U32),
            f("ContentionSampleRate", U32),
            f("AcquireSampleRate", U32),
            f("HoldThreshold", U32),
        ],
    ),
    perf(1, INTERRUPT, &[f("InitialTime", RawTime), f("Routine", Ptr), f("ReturnValue", U32)]),
    perf(
        2,
        INTERRUPT,
        &[
            f("InitialTime", RawTime),
            f("Routine", Ptr),
            f("ReturnValue", U8),
            f("Vector", U16),
            f("Reserved", Pad(1)),
        ],
    ),
    perf(
        2,
        &[(0x32, "ISR_MSI")],
        &[
            f("InitialTime", RawTime),
            f("Routine", Ptr),
            f("ReturnValue", U8),
            f("Vector", U16),
            f("Reserved", Pad(1)),
            f("MessageNumber", U32),
        ],
    ),
    perf(
        2,
        &[(0x42, "ThreadedDPC"), (0x44, "DPC"), (0x45, "TimerDPC"), (0x46, "IOTimer")],
        &[f("InitialTime", RawTime), f("Routine", Ptr)],
    ),
    perf(2, &[(0x33, "SysClEnter")], &[f("SysCallAddress", Ptr)]),
    perf(2, &[(0x34, "SysClExit")], &[f("SysCallNtStatus", NtStatus)]),
    perf(0, &[(0x22, "Mark")], &[f("Message", Az)]),
    perf(2, &[(0x3A, "DebuggerEnabled")], &[]),
    perf(2, &[(0x5C, "ISR_Unexpected")], &[f("Vector", U16)]),
    perf(
        2,
        &[(0x5D, "IoStartTimer"), (0x5E, "IoStopTimer")],
        &[f("DeviceObject", Ptr), f("TimerRoutine", Ptr)],
    ),
    perf(2, WDF, &[f("Routine", Ptr)]),
    perf(
        2,
        &[(0x68, "SetKTimer2"), (0x69, "ExpireKTimer2")],
        &[
            f("DueTime", U64),
            f("MaximumDueTime", U64),
            f("Period", U64),
            f("Timer", Ptr),
            f("Callback", Ptr),
            f("CallbackContext", Ptr),
            f("TimerFlags", Hex8),
        ],
    ),
    perf(2, &[(0x6A, "CancelKTimer2")], &[f("Timer", Ptr)]),
    perf(
        2,
        &[(0x6B, "DisableKTimer2")],
        &[f("Timer", Ptr), f("DisableCallback", Ptr), f("DisableContext", Ptr), f("TimerFlags", Hex8)],
    ),
    perf(
        2,
        &[(0x6C, "FinalizeKTimer2")],
        &[f("Timer", Ptr), f("DisableCallback", Ptr), f("DisableContext", Ptr)],
    ),
];
