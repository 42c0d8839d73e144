//! Images: load, unload, rundown, and the events of the user-mode loader.
//!
//! ```text
//!   version 3                64-bit   32-bit                          64-bit   32-bit
//!             base               0        0       signature              1C       14
//!             size               8        4       default base           20       18
//!             process           10        8       4 x reserved           28       1C
//!             checksum          14        C       name                   38       2C
//!             time              18       10
//! ```
//!
//! The numbers are hexadecimal offsets in the payloads of 64-bit and of 32-bit events.
//!
//! A load has the hook id 0x030A, of the process group, but is delivered as type 10 of the image
//! class. `TimeDateStamp` is 0 in the rundown of user images; merging adds it (see `merge`).
//!
//! In versions 0 and 1 only the load is documented; unload and rundown have its layout, as in later
//! versions.
//!
//! Source: Documented ("Image class", "Image_Load class"); versions 2 and 3, the kernel base and
//! the hypercall page Observed. The loader's events follow the schema of Windows.

use super::Ty::{Hex8, Hex32, I8, Pad, Pid, Ptr, Size, U8, U32, Wz};
use super::{FieldShape, Shape, Ty, f, shape};
use crate::spec::event::class;

const fn image(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::IMAGE, version, types, fields)
}

const LIFETIME: &[(u8, &str)] = &[(10, "Load"), (2, "UnLoad"), (3, "DCStart"), (4, "DCEnd")];

const LOADER_MARKS: &[(u8, &str)] = &[
    (0x80, "LoaderLockAttempt"),
    (0x81, "LoaderLockAcquire"),
    (0x82, "LoaderLockTriedAndFailed"),
    (0x83, "LoaderLockWait"),
    (0x84, "ProcessInitDone"),
    (0x85, "CreateSectionBegin"),
    (0x86, "CreateSectionEnd"),
    (0x87, "MapViewBegin"),
];

const LOADER_BASES: &[(u8, &str)] = &[
    (0x90, "RelocateImageBegin"),
    (0x91, "RelocateImageEnd"),
    (0x92, "HandleOldDescsBegin"),
    (0x93, "HandleOldDescsEnd"),
    (0x94, "HandleNewDescsBegin"),
    (0x95, "HandleNewDescsEnd"),
    (0x96, "DllMainExit"),
];

const LOADER_TEXTS: &[(u8, &str)] = &[
    (0xA0, "FindDllByName"),
    (0xA1, "MapViewEnd"),
    (0xA2, "LoaderLockRelease"),
    (0xA3, "DllMainEnter"),
    (0xA4, "LoaderError"),
    (0xA5, "MapViewStart"),
    (0xA6, "SnappingStart"),
    (0xA7, "SnappingEnd"),
    (0xA8, "LoadingStart"),
    (0xA9, "LoadingEnd"),
    (0xAA, "FoundKnownDll"),
    (0xAB, "AbnormalTermination"),
    (0xAC, "ModulePlaceHolder"),
    (0xAD, "ReadyToInit"),
    (0xAE, "ReadyToRun"),
    (0xD0, "ApiSetResolving"),
    (0xD1, "ApiSetHosted"),
    (0xD2, "ApiSetUnhosted"),
    (0xD3, "ApiSetUnresolved"),
];

/// The loader's base addresses have 64 bits, also in 32-bit events.
const LOADER_ADDRESS: Ty = Ty::Hex64;

pub(super) static SHAPES: &[Shape] = &[
    image(0, LIFETIME, &[f("BaseAddress", Ptr), f("ModuleSize", U32), f("ImageFileName", Wz)]),
    image(1, LIFETIME, &[f("ImageBase", Ptr), f("ImageSize", Size), f("ProcessId", Pid), f("FileName", Wz)]),
    image(
        2,
        LIFETIME,
        &[
            f("ImageBase", Ptr),
            f("ImageSize", Size),
            f("ProcessId", Pid),
            f("ImageChecksum", U32),
            f("TimeDateStamp", U32),
            f("Reserved0", Hex32),
            f("DefaultBase", Ptr),
            f("Reserved1", Hex32),
            f("Reserved2", Hex32),
            f("Reserved3", Hex32),
            f("Reserved4", Hex32),
            f("FileName", Wz),
        ],
    ),
    image(
        3,
        LIFETIME,
        &[
            f("ImageBase", Ptr),
            f("ImageSize", Size),
            f("ProcessId", Pid),
            f("ImageChecksum", U32),
            f("TimeDateStamp", U32),
            // Bit 0x10: signed by a catalogue; 0x20: by an embedded signature.
            f("SignatureLevel", Hex8),
            f("SignatureType", U8),
            f("Reserved0", Pad(2)),
            f("DefaultBase", Ptr),
            // Not zero for user images.
            f("Reserved1", Hex32),
            f("Reserved2", Hex32),
            f("Reserved3", Hex32),
            f("Reserved4", Hex32),
            f("FileName", Wz),
        ],
    ),
    image(2, &[(0x21, "KernelBase")], &[f("ImageBase", Ptr)]),
    image(2, &[(0x22, "HypercallPage")], &[f("HypercallPageVa", Ptr)]),
    image(2, LOADER_MARKS, &[]),
    image(2, LOADER_BASES, &[f("BaseAddress", LOADER_ADDRESS)]),
    image(
        2,
        LOADER_TEXTS,
        &[f("BaseAddress", LOADER_ADDRESS), f("ErrorOpcode", U8), f("Code", I8), f("String", Wz)],
    ),
    image(
        2,
        &[(0xB0, "NewDllLoad"), (0xB1, "NewDllLoadAsData")],
        &[
            f("NewDllBaseAddress", Ptr),
            f("ParentDllBaseAddress", Ptr),
            f("LoadReason", U32),
            f("FilePath", Wz),
        ],
    ),
    image(
        2,
        &[(0xC0, "DllSearchPathExternal"), (0xC1, "DllSearchPathInternal")],
        &[
            f("BaseAddress", LOADER_ADDRESS),
            f("ErrorOpcode", U8),
            f("Code", I8),
            f("String1", Wz),
            f("String2", Wz),
        ],
    ),
    image(
        2,
        &[(0xD4, "DllSearchResults")],
        &[
            f("LdrLoadFlags", Hex32),
            f("LdrSearchFlags", Hex32),
            f("SearchInfo", Hex32),
            f("LoadReason", U32),
            f("FullDllName", Wz),
        ],
    ),
    image(
        2,
        &[(0xD5, "DllPathSearchResults")],
        &[f("SearchInfo", Hex32), f("Cwd", Wz), f("AppDir", Wz), f("DllDir", Wz), f("DllLoadDir", Wz)],
    ),
];
