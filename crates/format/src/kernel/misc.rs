//! Small groups: debug prints (0x0A), pool (0x0E), objects and handles (0x11), ALPC (0x1A).
//!
//! ```text
//!   pool     type │ tag │ bytes │ entry │ session, for a session pool
//!   handle   object │ handle │ object type │ name
//! ```
//!
//! Source: Documented ("ALPC class", "ObjectTraceEvent class"); the rest follows the schema
//! of Windows.

use super::Ty::{Az, Hex32, NtStatus, Pad, Pid, Ptr, Size, U16, U32, Wz};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn pool(types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::POOL, 2, types, fields)
}

const fn object(types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::OBJECT, 2, types, fields)
}

const fn alpc(types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::ALPC, 2, types, fields)
}

const ALPC_MESSAGES: &[(u8, &str)] =
    &[(0x21, "ALPC-Send-Message"), (0x22, "ALPC-Receive-Message"), (0x23, "ALPC-Wait-For-Reply")];

pub(super) static SHAPES: &[Shape] = &[
    shape(
        class::DBG_PRINT,
        2,
        &[(0x20, "DbgPrint")],
        &[f("Component", U32), f("Level", U32), f("Message", Az)],
    ),
    pool(
        &[(0x20, "AllocPool"), (0x22, "FreePool")],
        &[f("Type", U32), f("Tag", Hex32), f("NumberOfBytes", Size), f("Entry", Ptr)],
    ),
    pool(
        &[(0x21, "AllocSessionPool"), (0x23, "FreeSessionPool")],
        &[f("Type", U32), f("Tag", Hex32), f("NumberOfBytes", Size), f("Entry", Ptr), f("SessionId", U32)],
    ),
    object(
        &[(0x20, "CreateHandle"), (0x21, "CloseHandle")],
        &[f("Object", Ptr), f("Handle", Hex32), f("ObjectType", U16), f("ObjectName", Wz)],
    ),
    object(
        &[(0x22, "DuplicateHandle")],
        &[
            f("Object", Ptr),
            f("SourceHandle", Hex32),
            f("TargetHandle", Hex32),
            f("TargetProcessId", Pid),
            f("ObjectType", U16),
        ],
    ),
    object(
        &[(0x24, "TypeDCStart"), (0x25, "TypeDCEnd")],
        &[f("ObjectType", U16), f("Reserved", Pad(2)), f("TypeName", Wz)],
    ),
    object(
        &[(0x26, "HandleDCStart"), (0x27, "HandleDCEnd")],
        &[
            f("Object", Ptr),
            f("ProcessId", Pid),
            f("Handle", Hex32),
            f("ObjectType", U16),
            f("ObjectName", Wz),
        ],
    ),
    object(&[(0x30, "CreateObject"), (0x31, "DeleteObject")], &[f("Object", Ptr), f("ObjectType", U16)]),
    object(
        &[(0x32, "ReferenceObject"), (0x33, "DereferenceObject")],
        &[f("Object", Ptr), f("Tag", Hex32), f("Count", U32)],
    ),
    alpc(ALPC_MESSAGES, &[f("MessageID", U32)]),
    alpc(&[(0x24, "ALPC-Wait-For-New-Message")], &[f("IsServerPort", U32), f("PortName", Wz)]),
    alpc(&[(0x25, "ALPC-Unwait")], &[f("Status", NtStatus)]),
];
