//! Stacks of other events (group 0x18), and samples of taken branches (group 0x0C).
//!
//! ```text
//!   stack        0 event time │ 8 process │ C thread │ 10 frames, innermost first, to the end
//!   reference    0 event time │ 8 process │ C thread │ 10 key
//!   definition   0 key │ frames, innermost first, to the end
//!   registers    0 event time │ 8 process │ C thread │ 10 kinds │ 14 count │ 18 registers
//!                (layout of this project: `docs/spec/kernel-events.md`)
//!   branches     0 event time │ 8 process │ C thread │ 10 flags │ { from, to, reserved } …
//! ```
//!
//! A stack follows its event, which has the same time and thread. The kernel part and the user part
//! of a stack may be two events. Windows defines a key after its references and may define it
//! again: a reference means the first definition at or after it, or the last definition if there is
//! none.
//!
//! Source: Documented ("StackWalk_Event class"); Observed except for branches and registers.

use super::Ty::{Hex32, Hex64, Pid, Ptr, RawTime, Tid, U32};
use super::{FieldShape, Shape, f, repeated_by, shape, to_end};
use crate::spec::event::class;

const fn stack(types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::STACK_WALK, 2, types, fields)
}

pub(super) static SHAPES: &[Shape] = &[
    stack(
        &[(0x20, "Stack")],
        &[f("EventTimeStamp", RawTime), f("ProcessId", Pid), f("ThreadId", Tid), to_end("Stack", Ptr)],
    ),
    stack(
        &[(0x22, "StackKeyCreate"), (0x23, "StackKeyDelete"), (0x24, "StackKeyRundown")],
        &[f("StackKey", Ptr), to_end("Stack", Ptr)],
    ),
    stack(
        &[(0x25, "StackKeyKernel"), (0x26, "StackKeyUser")],
        &[f("EventTimeStamp", RawTime), f("ProcessId", Pid), f("ThreadId", Tid), f("StackKey", Ptr)],
    ),
    stack(
        &[(0x30, "ContextRegisters")],
        &[
            f("EventTimeStamp", RawTime),
            f("ProcessId", Pid),
            f("ThreadId", Tid),
            // 1 control, 2 integer.
            f("RegisterTypes", Hex32),
            f("RegisterCount", U32),
            repeated_by("Registers", Hex64, "RegisterCount"),
        ],
    ),
    shape(
        class::LBR,
        2,
        &[(0x20, "Sample")],
        &[
            f("EventTimeStamp", RawTime),
            f("ProcessId", Pid),
            f("ThreadId", Tid),
            // 32 bits, padded to the size of a pointer in 64-bit events.
            f("FilterFlags", Ptr),
            // Triples: from, to, reserved.
            to_end("Branches", Ptr),
        ],
    ),
];
