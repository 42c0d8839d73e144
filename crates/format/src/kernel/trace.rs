//! Group 0: the log-file header, group masks and other events about the trace itself; and the
//! markers of real-time loss.
//!
//! ```text
//!   log-file header   64-bit: 280 bytes (0x118), 32-bit: 272 (0x110), then two UTF-16 strings
//!   group masks       8 x u32, then, in version 2, the kernel's event version
//! ```
//!
//! Since Windows 7 the two pointers of the header hold timer sources, not addresses. `Version` is
//! four bytes: major and minor version of the system, then of the log layout.
//!
//! Source: Documented ("EventTrace_Header class", "TRACE_LOGFILE_HEADER"); Observed for the header,
//! the masks, the completed rundown and the partition. The loss markers are delivered to consumers
//! and normally not stored.

use super::Ty::{Az, Bytes, FileTime, Guid, Hex32, Hex64, I64, Pad, Ptr, U16, U32, Wz};
use super::{FieldShape, Shape, f, repeated_by, shape};
use crate::spec::event::class;

const fn trace(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::EVENT_TRACE, version, types, fields)
}

const MASKS: &[(u8, &str)] = &[(0x05, "Extension"), (0x20, "EndExtension")];

pub(super) static SHAPES: &[Shape] = &[
    trace(
        0,
        &[(0x00, "Header")],
        &[
            f("BufferSize", U32),
            f("Version", U32),
            f("ProviderVersion", U32),
            f("NumberOfProcessors", U32),
            f("EndTime", FileTime),
            f("TimerResolution", U32),
            f("MaxFileSize", U32),
            f("LogFileMode", Hex32),
            f("BuffersWritten", U32),
            f("StartBuffers", U32),
            f("PointerSize", U32),
            f("EventsLost", U32),
            f("CPUSpeed", U32),
            f("LoggerName", Ptr),
            f("LogFileName", Ptr),
            f("TimeZoneInformation", Bytes(172)),
            f("Padding", Pad(4)),
            f("BootTime", FileTime),
            f("PerfFreq", I64),
            f("StartTime", FileTime),
            f("ReservedFlags", U32),
            f("BuffersLost", U32),
            f("SessionNameString", Wz),
            f("LogFileNameString", Wz),
        ],
    ),
    trace(
        0,
        MASKS,
        &[
            f("GroupMask1", Hex32),
            f("GroupMask2", Hex32),
            f("GroupMask3", Hex32),
            f("GroupMask4", Hex32),
            f("GroupMask5", Hex32),
            f("GroupMask6", Hex32),
            f("GroupMask7", Hex32),
            f("GroupMask8", Hex32),
        ],
    ),
    trace(
        2,
        MASKS,
        &[
            f("GroupMask1", Hex32),
            f("GroupMask2", Hex32),
            f("GroupMask3", Hex32),
            f("GroupMask4", Hex32),
            f("GroupMask5", Hex32),
            f("GroupMask6", Hex32),
            f("GroupMask7", Hex32),
            f("GroupMask8", Hex32),
            f("KernelEventVersion", U32),
        ],
    ),
    trace(2, &[(0x08, "RDComplete")], &[]),
    trace(2, &[(0x40, "DbgIdRSDS")], &[f("GuidSig", Guid), f("Age", U32), f("PdbName", Az)]),
    trace(2, &[(0x42, "BuildInfo")], &[f("BuildString", Az)]),
    trace(
        2,
        &[(0x43, "ProviderBinaryPath")],
        &[f("GuidCount", U32), repeated_by("Guid", Guid, "GuidCount"), f("BinaryPath", Wz)],
    ),
    // The module `binary_path` describes this layout, which is the project's own.
    trace(
        3,
        &[(0x43, "ProviderBinaryPath")],
        &[
            f("RegHandle", Hex64),
            f("ProcessId", U32),
            f("GuidCount", U32),
            repeated_by("Guid", Guid, "GuidCount"),
            f("BinaryPath", Wz),
            f("BuildId", Wz),
        ],
    ),
    trace(
        2,
        &[(0x50, "PartitionInfoExtension")],
        &[
            f("EventVersion", U16),
            f("Reserved", Pad(2)),
            f("PartitionType", U32),
            f("QpcOffsetFromRoot", I64),
            f("PartitionId", Guid),
            f("ParentId", Guid),
        ],
    ),
    shape(class::LOST_EVENT, 0, &[(32, "RTLostEvent"), (33, "RTLostBuffer"), (34, "RTLostFile")], &[]),
];
