//! Disk transfers, their start events, driver calls, and requests that a volume manager splits.
//!
//! ```text
//!   read, write   64-bit, version 3   0 disk │ 4 flags │ 8 size │ C reserved │ 10 offset
//!                                     18 file │ 20 Irp │ 28 response │ 30 thread
//!   flush         64-bit, version 3   0 disk │ 4 flags │ 8 response │ 10 Irp │ 18 thread
//! ```
//!
//! `HighResResponseTime` counts ticks of the performance counter. `FileObject` is the key of a
//! file-name event. The low 16 bits of `IrpFlags` are the flags of the request, bits 17 to 19 its
//! priority: 1 very low, 2 low, 3 normal, 4 high, 5 critical.
//!
//! Source: Documented ("DiskIo class", "DiskIo_TypeGroup1 class", "SplitIo class"); version 3 of
//! transfers, flushes and starts Observed.

use super::Ty::{Hex32, Ptr, Tid, U32, U64};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn disk(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::DISK_IO, version, types, fields)
}

const TRANSFER: &[(u8, &str)] = &[(0x0A, "Read"), (0x0B, "Write")];
const START: &[(u8, &str)] = &[(0x0C, "ReadInit"), (0x0D, "WriteInit"), (0x0F, "FlushInit")];

pub(super) static SHAPES: &[Shape] = &[
    disk(
        0,
        TRANSFER,
        &[
            f("DiskNumber", U32),
            f("IrpFlags", Hex32),
            f("TransferSize", U32),
            f("Reserved", U32),
            f("ByteOffset", U64),
            f("FileObject", Ptr),
        ],
    ),
    disk(
        1,
        TRANSFER,
        &[
            f("DiskNumber", U32),
            f("IrpFlags", Hex32),
            f("TransferSize", U32),
            f("ResponseTime", U32),
            f("ByteOffset", U64),
            f("FileObject", Ptr),
            f("HighResResponseTime", U64),
        ],
    ),
    disk(
        2,
        TRANSFER,
        &[
            f("DiskNumber", U32),
            f("IrpFlags", Hex32),
            f("TransferSize", U32),
            f("Reserved", U32),
            f("ByteOffset", U64),
            f("FileObject", Ptr),
            f("Irp", Ptr),
            f("HighResResponseTime", U64),
        ],
    ),
    disk(
        3,
        &[(0x0A, "Read"), (0x0B, "Write"), (0x37, "OpticalRead"), (0x38, "OpticalWrite")],
        &[
            f("DiskNumber", U32),
            f("IrpFlags", Hex32),
            f("TransferSize", U32),
            f("Reserved", U32),
            f("ByteOffset", U64),
            f("FileObject", Ptr),
            f("Irp", Ptr),
            f("HighResResponseTime", U64),
            f("IssuingThreadId", Tid),
        ],
    ),
    disk(
        2,
        &[(0x0E, "FlushBuffers")],
        &[f("DiskNumber", U32), f("IrpFlags", Hex32), f("HighResResponseTime", U64), f("Irp", Ptr)],
    ),
    disk(
        3,
        &[(0x0E, "FlushBuffers"), (0x39, "OpticalFlushBuffers")],
        &[
            f("DiskNumber", U32),
            f("IrpFlags", Hex32),
            f("HighResResponseTime", U64),
            f("Irp", Ptr),
            f("IssuingThreadId", Tid),
        ],
    ),
    disk(2, START, &[f("Irp", Ptr)]),
    disk(
        3,
        &[
            (0x0C, "ReadInit"),
            (0x0D, "WriteInit"),
            (0x0F, "FlushInit"),
            (0x3A, "OpticalReadInit"),
            (0x3B, "OpticalWriteInit"),
            (0x3C, "OpticalFlushInit"),
        ],
        &[f("Irp", Ptr), f("IssuingThreadId", Tid)],
    ),
    disk(
        2,
        &[(0x22, "DrvMjFnCall")],
        &[
            f("MajorFunction", U32),
            f("MinorFunction", U32),
            f("RoutineAddr", Ptr),
            f("FileObject", Ptr),
            f("Irp", Ptr),
            f("UniqMatchId", U32),
        ],
    ),
    disk(2, &[(0x23, "DrvMjFnRet"), (0x35, "DrvComplReqRet")], &[f("Irp", Ptr), f("UniqMatchId", U32)]),
    disk(2, &[(0x25, "DrvComplRout")], &[f("Routine", Ptr), f("IrpPtr", Ptr), f("UniqMatchId", U32)]),
    disk(2, &[(0x34, "DrvComplReq")], &[f("RoutineAddr", Ptr), f("Irp", Ptr), f("UniqMatchId", U32)]),
    shape(class::SPLIT_IO, 2, &[(0x20, "VolMgr")], &[f("ParentIrp", Ptr), f("ChildIrp", Ptr)]),
];
