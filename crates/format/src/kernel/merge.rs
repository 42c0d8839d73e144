//! Events that merging adds to a trace: identities of images, paths and volumes, assessment
//! results, schemas.
//!
//! ```text
//!   class          types
//!   ImageID        0 identity │ 32 no debug record │ 36, 37 PDB │ 38 portable PDB │
//!                  40 deterministic │ 64 file version
//!   SysConfigEx    32 build │ 33 system paths │ 34 volume without letter │ 35 volume mapping │
//!                  37 (no name known)
//!   WinSat         33, 35, 37 compressed XML
//!   MetaData       32 TRACE_EVENT_INFO │ 33 EVENT_MAP_INFO
//! ```
//!
//! These events have classic headers, not kernel ones. `ImageSize` is pointer-sized in the
//! identity, and has four bytes in the file version. A binary is found by time stamp and size, its
//! symbols by signature and age. The bytes after the fixed part of the schema events are not
//! decoded here: offsets in them count from the start of the structure, and the decoder parses
//! them.
//!
//! Source: Observed, all except types 38 and 40 of ImageID; Documented ("TRACE_EVENT_INFO",
//! "EVENT_MAP_INFO").

use super::Ty::{FileTime, Guid, Hex32, Hex64, Lznt1Text, Pid, Ptr, Rest, Size, U8, U16, U32, Utf8z, Wz};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn image_id(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::IMAGE_ID, version, types, fields)
}

const fn config_ex(types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::SYS_CONFIG_EX, 0, types, fields)
}

pub(super) static SHAPES: &[Shape] = &[
    image_id(
        2,
        &[(0, "Info")],
        &[
            f("ImageBase", Ptr),
            f("ImageSize", Size),
            f("ProcessId", Pid),
            f("TimeDateStamp", U32),
            f("OriginalFileName", Wz),
        ],
    ),
    image_id(2, &[(32, "None")], &[f("ImageBase", Ptr), f("ProcessId", Pid)]),
    image_id(
        2,
        &[(36, "DbgID_RSDS"), (37, "DbgID_ILRSDS")],
        &[
            f("ImageBase", Ptr),
            f("ProcessId", Pid),
            f("GuidSig", Guid),
            f("Age", U32),
            f("PdbFileName", Utf8z),
        ],
    ),
    image_id(
        2,
        &[(38, "DbgPPDB")],
        &[
            f("ImageBase", Ptr),
            f("ProcessId", Pid),
            f("TimeDateStamp", U32),
            f("MajorVersion", U16),
            f("MinorVersion", U16),
        ],
    ),
    image_id(2, &[(40, "DbgDeterm")], &[f("ImageBase", Ptr), f("ProcessId", Pid)]),
    image_id(
        0,
        &[(64, "FileVersion")],
        &[
            f("ImageSize", U32),
            f("TimeDateStamp", U32),
            f("OrigFileName", Wz),
            f("FileDescription", Wz),
            f("FileVersion", Wz),
            f("BinFileVersion", Wz),
            f("VerLanguage", Wz),
            f("ProductName", Wz),
            f("CompanyName", Wz),
            f("ProductVersion", Wz),
            f("FileId", Wz),
            f("ProgramId", Wz),
        ],
    ),
    config_ex(&[(32, "BuildInfo")], &[f("InstallDate", FileTime), f("BuildLab", Wz), f("ProductName", Wz)]),
    config_ex(&[(33, "SystemPaths")], &[f("SystemDirectory", Wz), f("SystemWindowsDirectory", Wz)]),
    config_ex(&[(34, "UnknownVolume")], &[f("VolumePath", Wz)]),
    config_ex(&[(35, "VolumeMapping")], &[f("NtPath", Wz), f("DosPath", Wz)]),
    config_ex(
        &[(37, "Opcode(37)")],
        &[f("FileVersionLow", Hex32), f("FileVersionHigh", Hex32), f("Value1", U32), f("Value2", U32)],
    ),
    shape(
        class::WIN_SAT,
        0,
        &[(33, "WinSPR"), (35, "Metrics"), (37, "SystemConfig")],
        // The first field is 1 in all known traces.
        &[f("Version", U32), f("Xml", Lznt1Text)],
    ),
    shape(
        class::EVENT_METADATA,
        0,
        &[(32, "EventInfo")],
        &[
            f("ProviderGuid", Guid),
            f("EventGuid", Guid),
            f("Id", U16),
            f("Version", U8),
            f("Channel", U8),
            f("Level", U8),
            f("Opcode", U8),
            f("Task", U16),
            f("Keyword", Hex64),
            f("DecodingSource", U32),
            f("ProviderNameOffset", U32),
            f("LevelNameOffset", U32),
            f("ChannelNameOffset", U32),
            f("KeywordsNameOffset", U32),
            f("TaskNameOffset", U32),
            f("OpcodeNameOffset", U32),
            f("EventMessageOffset", U32),
            f("ProviderMessageOffset", U32),
            f("BinaryXMLOffset", U32),
            f("BinaryXMLSize", U32),
            f("EventNameOffset", U32),
            f("EventAttributesOffset", U32),
            f("PropertyCount", U32),
            f("TopLevelPropertyCount", U32),
            f("TemplateFlags", Hex32),
            f("Properties", Rest),
        ],
    ),
    shape(
        class::EVENT_METADATA,
        0,
        &[(33, "EventMapInfo")],
        &[
            f("ProviderGuid", Guid),
            f("NameOffset", U32),
            f("Flag", Hex32),
            f("EntryCount", U32),
            f("MapEntryValueType", U32),
            f("MapEntries", Rest),
        ],
    ),
];
