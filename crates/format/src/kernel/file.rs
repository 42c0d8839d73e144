//! File names, file operations, mapped views and file-system filters (group 0x04).
//!
//! ```text
//!   name          FileObject │ FileName
//!   operation     [Offset] │ IrpPtr │ TTID (version 2) │ FileObject │ [FileKey] │ [ExtraInfo] │
//!                 TTID (version 3) │ other fields of the operation
//! ```
//!
//! `FileKey` of an operation equals `FileObject` of a name event. The upper 8 bits of
//! `CreateOptions` are the disposition, the lower 24 the options of the native create call. The
//! thread id is a pointer-sized field in version 2, and four bytes at a later position in version
//! 3.
//!
//! Source: Documented ("FileIo class" and its types) for version 2; names Observed. Version 3
//! follows the schema of Windows.

use super::Ty::{Hex32, Hex64, NtStatus, Pid, Ptr, RawTime, Size, Tid, U32, U64, Wz};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn file(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::FILE_IO, version, types, fields)
}

const CREATE: &[(u8, &str)] = &[(0x40, "Create")];
const SIMPLE: &[(u8, &str)] = &[(0x41, "Cleanup"), (0x42, "Close"), (0x49, "Flush")];
const TRANSFER: &[(u8, &str)] = &[(0x43, "Read"), (0x44, "Write")];
const INFO: &[(u8, &str)] =
    &[(0x45, "SetInfo"), (0x46, "Delete"), (0x47, "Rename"), (0x4A, "QueryInfo"), (0x4B, "FSControl")];
const DIRECTORY: &[(u8, &str)] = &[(0x48, "DirEnum"), (0x4D, "DirNotify")];
const PATH: &[(u8, &str)] = &[(0x4F, "DeletePath"), (0x50, "RenamePath"), (0x51, "SetLinkPath")];

pub(super) static SHAPES: &[Shape] = &[
    file(
        0,
        &[(0x00, "Name"), (0x20, "FileCreate"), (0x23, "FileDelete"), (0x24, "FileRundown")],
        &[f("FileObject", Ptr), f("FileName", Wz)],
    ),
    file(
        2,
        &[(0x25, "MapFile"), (0x26, "UnmapFile"), (0x27, "MapFileDCStart"), (0x28, "MapFileDCEnd")],
        &[
            f("ViewBase", Ptr),
            f("FileObject", Ptr),
            f("MiscInfo", Hex64),
            f("ViewSize", Size),
            f("ProcessId", Pid),
        ],
    ),
    file(
        2,
        CREATE,
        &[
            f("IrpPtr", Ptr),
            f("TTID", Size),
            f("FileObject", Ptr),
            f("CreateOptions", Hex32),
            f("FileAttributes", Hex32),
            f("ShareAccess", Hex32),
            f("OpenPath", Wz),
        ],
    ),
    file(
        3,
        CREATE,
        &[
            f("IrpPtr", Ptr),
            f("FileObject", Ptr),
            f("TTID", Tid),
            f("CreateOptions", Hex32),
            f("FileAttributes", Hex32),
            f("ShareAccess", Hex32),
            f("OpenPath", Wz),
        ],
    ),
    file(2, SIMPLE, &[f("IrpPtr", Ptr), f("TTID", Size), f("FileObject", Ptr), f("FileKey", Ptr)]),
    file(3, SIMPLE, &[f("IrpPtr", Ptr), f("FileObject", Ptr), f("FileKey", Ptr), f("TTID", Tid)]),
    file(
        2,
        TRANSFER,
        &[
            f("Offset", U64),
            f("IrpPtr", Ptr),
            f("TTID", Size),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("IoSize", U32),
            f("IoFlags", Hex32),
        ],
    ),
    file(
        3,
        TRANSFER,
        &[
            f("Offset", U64),
            f("IrpPtr", Ptr),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("TTID", Tid),
            f("IoSize", U32),
            f("IoFlags", Hex32),
            // Newer kernels append this field without raising the version.
            f("ExtraFlags", Hex32),
        ],
    ),
    file(
        2,
        INFO,
        &[
            f("IrpPtr", Ptr),
            f("TTID", Size),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("ExtraInfo", Ptr),
            f("InfoClass", U32),
        ],
    ),
    file(
        3,
        INFO,
        &[
            f("IrpPtr", Ptr),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("ExtraInfo", Ptr),
            f("TTID", Tid),
            f("InfoClass", U32),
        ],
    ),
    file(
        2,
        DIRECTORY,
        &[
            f("IrpPtr", Ptr),
            f("TTID", Size),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("Length", U32),
            f("InfoClass", U32),
            f("FileIndex", U32),
            f("FileName", Wz),
        ],
    ),
    file(
        3,
        DIRECTORY,
        &[
            f("IrpPtr", Ptr),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("TTID", Tid),
            f("Length", U32),
            f("InfoClass", U32),
            f("FileIndex", U32),
            f("FileName", Wz),
        ],
    ),
    file(2, &[(0x4C, "OperationEnd")], &[f("IrpPtr", Ptr), f("ExtraInfo", Ptr), f("NtStatus", NtStatus)]),
    file(
        2,
        PATH,
        &[
            f("IrpPtr", Ptr),
            f("TTID", Size),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("ExtraInfo", Ptr),
            f("InfoClass", U32),
            f("FileName", Wz),
        ],
    ),
    file(
        3,
        PATH,
        &[
            f("IrpPtr", Ptr),
            f("FileObject", Ptr),
            f("FileKey", Ptr),
            f("ExtraInfo", Ptr),
            f("TTID", Tid),
            f("InfoClass", U32),
            f("FileName", Wz),
        ],
    ),
    file(
        2,
        &[(0x60, "PreOpInit"), (0x61, "PostOpInit")],
        &[
            f("RoutineAddr", Ptr),
            f("FileObject", Ptr),
            f("FileContext", Ptr),
            f("IrpPtr", Ptr),
            f("CallbackDataPtr", Ptr),
            f("MajorFunction", U32),
        ],
    ),
    file(
        2,
        &[(0x62, "PreOpCompletion"), (0x63, "PostOpCompletion")],
        &[
            f("InitialTime", RawTime),
            f("RoutineAddr", Ptr),
            f("FileObject", Ptr),
            f("FileContext", Ptr),
            f("IrpPtr", Ptr),
            f("CallbackDataPtr", Ptr),
            f("MajorFunction", U32),
        ],
    ),
    file(
        2,
        &[(0x64, "PreOpFailure"), (0x65, "PostOpFailure")],
        &[
            f("RoutineAddr", Ptr),
            f("FileObject", Ptr),
            f("FileContext", Ptr),
            f("IrpPtr", Ptr),
            f("CallbackDataPtr", Ptr),
            f("MajorFunction", U32),
            f("Status", NtStatus),
        ],
    ),
];
