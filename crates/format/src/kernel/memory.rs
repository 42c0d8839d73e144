//! Page faults, virtual memory and the ranges of heaps (group 0x02).
//!
//! ```text
//!   fault        address │ program counter                     (the type is the kind of fault)
//!   hard fault   64-bit  0 initial time │ 8 offset │ 10 address │ 18 file │ 20 thread │ 24 size
//! ```
//!
//! A hard fault is logged when its read is done: its duration is the header's time minus
//! `InitialTime`.
//!
//! Source: Documented ("PageFault_V2 class" and its types); the hard fault Observed.

use super::Ty::{Hex16, Hex32, Pad, Pid, Ptr, RawTime, Rest, Size, Tid, U32, U64};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn memory(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::PAGE_FAULT, version, types, fields)
}

const FAULTS: &[(u8, &str)] = &[
    (0x0A, "TransitionFault"),
    (0x0B, "DemandZeroFault"),
    (0x0C, "CopyOnWrite"),
    (0x0D, "GuardPageFault"),
    (0x0E, "HardPageFault"),
    (0x0F, "AccessViolation"),
];

pub(super) static SHAPES: &[Shape] = &[
    memory(2, FAULTS, &[f("VirtualAddress", Ptr), f("ProgramCounter", Ptr)]),
    memory(
        2,
        &[(0x20, "HardFault")],
        &[
            f("InitialTime", RawTime),
            f("ReadOffset", U64),
            f("VirtualAddress", Ptr),
            f("FileObject", Ptr),
            f("TThreadId", Tid),
            f("ByteCount", U32),
        ],
    ),
    memory(
        2,
        &[(0x62, "VirtualAlloc"), (0x63, "VirtualFree")],
        &[f("BaseAddress", Ptr), f("RegionSize", Size), f("ProcessId", Pid), f("Flags", Hex32)],
    ),
    memory(
        2,
        &[(0x80, "VirtualAllocDCStart"), (0x81, "VirtualAllocDCEnd")],
        &[
            f("BaseAddress", Ptr),
            f("RegionSize", Size),
            f("ProcessId", Pid),
            f("Flags", Hex32),
            f("CommitSizeInBytes", Size),
        ],
    ),
    memory(
        2,
        &[(0x64, "HRRundown")],
        &[
            f("HeapHandle", Ptr),
            f("Flags", Hex32),
            f("ProcessId", Pid),
            f("RangeCount", U32),
            f("Ranges", Rest),
        ],
    ),
    memory(
        3,
        &[(0x64, "HRRundown")],
        &[
            f("HeapHandle", Ptr),
            f("Flags", Hex32),
            f("ProcessId", Pid),
            f("RangeCount", U32),
            f("Reserved", Pad(4)),
            f("Ranges", Rest),
        ],
    ),
    memory(2, &[(0x65, "HRCreate")], &[f("HeapHandle", Ptr), f("FirstRangeSize", Size), f("Flags", Hex32)]),
    memory(
        2,
        &[(0x66, "HRReserve"), (0x67, "HRRelease")],
        &[f("HeapHandle", Ptr), f("Address", Ptr), f("Size", Size)],
    ),
    memory(2, &[(0x68, "HRDestroy")], &[f("HeapHandle", Ptr)]),
    memory(
        2,
        &[(0x69, "ImageLoadBacked")],
        &[f("FileObject", Ptr), f("DeviceChar", Hex32), f("FileChar", Hex16), f("LoadFlags", Hex16)],
    ),
    memory(
        2,
        &[(0x7F, "VirtualRotate"), (0x86, "MemReset")],
        &[f("BaseAddress", Ptr), f("SizeInBytes", Size), f("Flags", Hex32)],
    ),
];
