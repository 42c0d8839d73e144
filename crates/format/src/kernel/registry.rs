//! Registry keys, values, transactions and hives (group 0x09).
//!
//! ```text
//!   version 2, 64-bit   0 initial time │ 8 status │ C index │ 10 key control block │ 18 key name
//! ```
//!
//! Names are relative to the key control block; full names come from its create and rundown events.
//!
//! Source: Documented ("Registry class", "Registry_TypeGroup1 class"); the types from 0x1E on
//! follow the schema of Windows. A public header puts the operation time of a transaction first;
//! Windows' schema, and so this table, does not.

use super::Ty::{Guid, Hex32, I64, NtStatus, Ptr, RawTime, U8, U32, U64, Wz};
use super::{FieldShape, Shape, f, shape};
use crate::spec::event::class;

const fn registry(version: u8, types: &'static [(u8, &'static str)], fields: &'static [FieldShape]) -> Shape {
    shape(class::REGISTRY, version, types, fields)
}

/// The event types of keys and values; the name of type 0x16 depends on the version.
macro_rules! on_keys {
    ($type_16:literal) => {
        &[
            (0x0A, "Create"),
            (0x0B, "Open"),
            (0x0C, "Delete"),
            (0x0D, "Query"),
            (0x0E, "SetValue"),
            (0x0F, "DeleteValue"),
            (0x10, "QueryValue"),
            (0x11, "EnumerateKey"),
            (0x12, "EnumerateValueKey"),
            (0x13, "QueryMultipleValue"),
            (0x14, "SetInformation"),
            (0x15, "Flush"),
            (0x16, $type_16),
            (0x17, "KCBDelete"),
            (0x18, "KCBRundownBegin"),
            (0x19, "KCBRundownEnd"),
            (0x1A, "Virtualize"),
            (0x1B, "Close"),
            (0x1C, "SetSecurity"),
            (0x1D, "QuerySecurity"),
        ]
    };
}

const TRANSACTION: &[(u8, &str)] = &[(0x1E, "TxRCommit"), (0x1F, "TxRPrepare"), (0x20, "TxRRollback")];

pub(super) static SHAPES: &[Shape] = &[
    registry(
        0,
        on_keys!("RunDown"),
        &[f("Status", Ptr), f("KeyHandle", Ptr), f("ElapsedTime", I64), f("KeyName", Wz)],
    ),
    registry(
        1,
        on_keys!("RunDown"),
        &[f("Status", Ptr), f("KeyHandle", Ptr), f("ElapsedTime", I64), f("Index", U32), f("KeyName", Wz)],
    ),
    registry(
        2,
        on_keys!("KCBCreate"),
        &[
            f("InitialTime", RawTime),
            f("Status", NtStatus),
            f("Index", U32),
            f("KeyHandle", Ptr),
            f("KeyName", Wz),
        ],
    ),
    registry(
        2,
        TRANSACTION,
        &[
            f("TxrGUID", Guid),
            f("Status", NtStatus),
            f("UowCount", U32),
            f("OperationTime", U64),
            f("Hive", Wz),
        ],
    ),
    registry(
        2,
        &[(0x22, "Counters")],
        &[
            f("Counter1", U64),
            f("Counter2", U64),
            f("Counter3", U64),
            f("Counter4", U64),
            f("Counter5", U64),
            f("Counter6", U64),
            f("Counter7", U64),
            f("Counter8", U64),
            f("Counter9", U64),
            f("Counter10", U64),
            f("Counter11", U64),
        ],
    ),
    registry(2, &[(0x23, "Config")], &[f("CurrentControlSet", U32)]),
    registry(
        2,
        &[(0x24, "HiveInit")],
        &[f("Hive", Ptr), f("OperationType", U32), f("PoolTag", Hex32), f("Size", U32), f("FileName", Wz)],
    ),
    registry(2, &[(0x25, "HiveDestroy")], &[f("Hive", Ptr), f("FileName", Wz), f("Path", Wz)]),
    registry(2, &[(0x26, "HiveLink")], &[f("Hive", Ptr), f("Path", Wz)]),
    registry(
        2,
        &[(0x27, "HiveDCEnd")],
        &[f("Size", U64), f("Hive", Ptr), f("LoadedKeyCount", U32), f("FileName", Wz), f("LinkPath", Wz)],
    ),
    registry(2, &[(0x28, "HiveDirty")], &[f("Hive", Ptr), f("LinkPath", Wz), f("DirtyReason", U32)]),
    registry(
        2,
        &[(0x30, "ChangeNotify")],
        &[
            f("Notification", Ptr),
            f("KeyHandle", Ptr),
            f("Type", U8),
            f("WatchSubtree", U8),
            f("Primary", U8),
        ],
    ),
];
