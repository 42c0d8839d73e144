//! Constants and small structures of event headers: descriptors, header types, flags, extended-data
//! types, class GUIDs.
//!
//! Source: Documented ("EVENT_DESCRIPTOR", "EVENT_HEADER", "EVENT_HEADER_EXTENDED_DATA_ITEM");
//! the header types and the table of groups and classes are Observed.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign};

use crate::guid::Guid;

/// The identity of an event within its provider (EVENT_DESCRIPTOR).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventDescriptor {
    /// Id of the event within its provider.
    pub id: u16,
    /// Version of the event's layout.
    pub version: u8,
    /// Channel; 11 marks TraceLogging.
    pub channel: u8,
    /// Severity: 1 critical … 5 verbose, 0 always.
    pub level: u8,
    /// Step within a task: 1 start, 2 stop, ….
    pub opcode: u8,
    /// Task number, defined by the provider.
    pub task: u16,
    /// Keyword bits that classify the event.
    pub keyword: u64,
}

impl EventDescriptor {
    /// Size of the structure in bytes.
    pub const SIZE: usize = 16;

    /// Parses the 16 bytes of the structure.
    #[must_use]
    pub fn from_bytes(b: &[u8; 16]) -> Self {
        Self {
            id: u16::from_le_bytes([b[0], b[1]]),
            version: b[2],
            channel: b[3],
            level: b[4],
            opcode: b[5],
            task: u16::from_le_bytes([b[6], b[7]]),
            keyword: u64::from_le_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
        }
    }

    /// Returns whether the event is a piece of a manifest, which EventSource sends in events with
    /// id and task 0xFFFE and opcode 0xFE.
    #[must_use]
    pub const fn is_manifest_chunk(&self) -> bool {
        self.id == 0xFFFE && self.task == 0xFFFE && self.opcode == 0xFE
    }

    /// Encodes the 16 bytes of the structure.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        let (id, task, keyword) =
            (self.id.to_le_bytes(), self.task.to_le_bytes(), self.keyword.to_le_bytes());
        let Self { version, channel, level, opcode, .. } = *self;
        [
            id[0], id[1], version, channel, level, opcode, task[0], task[1], keyword[0], keyword[1],
            keyword[2], keyword[3], keyword[4], keyword[5], keyword[6], keyword[7],
        ]
    }
}

/// Keyword bits: the categories of an event, or those that a session selects.
///
/// ```
/// use traceweir_format::spec::event::Keywords;
///
/// const NETWORK: Keywords = Keywords::new(0x1);
/// const DISK: Keywords = Keywords::new(0x2);
/// assert_eq!((NETWORK | DISK).to_string(), "0x3");
/// assert!((NETWORK | DISK).contains(DISK));
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keywords(u64);

impl Keywords {
    /// No keyword. A session that selects no keyword gets the events of all keywords.
    pub const NONE: Self = Self(0);
    /// The mask of every keyword.
    pub const ALL: Self = Self(u64::MAX);

    /// Creates keywords from their bits.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether all keywords of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether at least one keyword of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Keywords {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Keywords {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Keywords {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<u64> for Keywords {
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}

impl From<Keywords> for u64 {
    fn from(keywords: Keywords) -> Self {
        keywords.0
    }
}

/// The channel that marks a TraceLogging event.
pub const CHANNEL_TRACELOGGING: u8 = 11;

/// On disk: extended data items follow the header.
pub const EVENT_HEADER_FLAG_EXTENDED_INFO: u16 = 0x0001;
/// The session is private to a process; KernelTime and UserTime together hold one 64-bit
/// ProcessorTime.
pub const EVENT_HEADER_FLAG_PRIVATE_SESSION: u16 = 0x0002;
/// The payload is one NUL-terminated UTF-16 string.
pub const EVENT_HEADER_FLAG_STRING_ONLY: u16 = 0x0004;
/// The record is a WPP message.
pub const EVENT_HEADER_FLAG_TRACE_MESSAGE: u16 = 0x0008;
/// The CPU times are not meaningful.
pub const EVENT_HEADER_FLAG_NO_CPUTIME: u16 = 0x0010;
/// Written by a 32-bit program.
pub const EVENT_HEADER_FLAG_32_BIT_HEADER: u16 = 0x0020;
/// Written by a 64-bit program.
pub const EVENT_HEADER_FLAG_64_BIT_HEADER: u16 = 0x0040;
/// The provider id is the decode GUID of the traits.
pub const EVENT_HEADER_FLAG_DECODE_GUID: u16 = 0x0080;
/// The record is a classic event.
pub const EVENT_HEADER_FLAG_CLASSIC_HEADER: u16 = 0x0100;
/// The buffer context holds a 16-bit processor index.
pub const EVENT_HEADER_FLAG_PROCESSOR_INDEX: u16 = 0x0200;

/// EventWriteEx: the call must not cause page faults. Traceweir ignores it.
pub const EVENT_WRITE_FLAG_NO_FAULTING: u32 = 1;
/// EventWriteEx: the event is about an activity in private browsing.
pub const EVENT_WRITE_FLAG_INPRIVATE: u32 = 2;

/// Type of a data descriptor: payload.
pub const EVENT_DATA_DESCRIPTOR_TYPE_NONE: u8 = 0;
/// Type of a data descriptor: event metadata, which becomes an extended data item of type
/// EVENT_SCHEMA_TL.
pub const EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA: u8 = 1;
/// Type of a data descriptor: provider metadata, which becomes an extended data item of type
/// PROV_TRAITS.
pub const EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA: u8 = 2;
/// Type of a data descriptor: the time stamp of the event.
pub const EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE: u8 = 3;

/// The settings of EventSetInformation (EVENT_INFO_CLASS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventInfoClass(pub u32);

#[allow(missing_docs, non_upper_case_globals)] // Names as published.
impl EventInfoClass {
    pub const EventProviderBinaryTrackInfo: Self = Self(0);
    pub const EventProviderSetReserved1: Self = Self(1);
    pub const EventProviderSetTraits: Self = Self(2);
    pub const EventProviderUseDescriptorType: Self = Self(3);
    /// The first invalid number.
    pub const MaxEventInfo: Self = Self(4);
}

/// EventActivityIdControl: returns the thread's activity id.
pub const EVENT_ACTIVITY_CTRL_GET_ID: u32 = 1;
/// EventActivityIdControl: sets the thread's activity id.
pub const EVENT_ACTIVITY_CTRL_SET_ID: u32 = 2;
/// EventActivityIdControl: returns a new activity id.
pub const EVENT_ACTIVITY_CTRL_CREATE_ID: u32 = 3;
/// EventActivityIdControl: swaps the thread's activity id with the caller's.
pub const EVENT_ACTIVITY_CTRL_GET_SET_ID: u32 = 4;
/// EventActivityIdControl: sets a new activity id for the thread and returns the old one.
pub const EVENT_ACTIVITY_CTRL_CREATE_SET_ID: u32 = 5;

/// The type of a record's header, from the record's first four bytes (TRACE_HEADER_TYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeaderType(pub u8);

#[allow(missing_docs)] // Names as published; layouts are in `header`.
impl HeaderType {
    pub const SYSTEM32: Self = Self(1);
    pub const SYSTEM64: Self = Self(2);
    pub const COMPACT32: Self = Self(3);
    pub const COMPACT64: Self = Self(4);
    pub const FULL_HEADER32: Self = Self(10);
    pub const INSTANCE32: Self = Self(11);
    pub const TIMED: Self = Self(12);
    pub const ERROR: Self = Self(13);
    pub const WNODE_HEADER: Self = Self(14);
    pub const MESSAGE: Self = Self(15);
    pub const PERFINFO32: Self = Self(16);
    pub const PERFINFO64: Self = Self(17);
    pub const EVENT_HEADER32: Self = Self(18);
    pub const EVENT_HEADER64: Self = Self(19);
    pub const FULL_HEADER64: Self = Self(20);
    pub const INSTANCE64: Self = Self(21);
}

/// The type of an extended data item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtType(pub u16);

#[allow(missing_docs)] // Names as published; contents are in `header::extended`.
impl ExtType {
    pub const RELATED_ACTIVITYID: Self = Self(1);
    pub const SID: Self = Self(2);
    pub const TS_ID: Self = Self(3);
    pub const INSTANCE_INFO: Self = Self(4);
    pub const STACK_TRACE32: Self = Self(5);
    pub const STACK_TRACE64: Self = Self(6);
    pub const PEBS_INDEX: Self = Self(7);
    pub const PMC_COUNTERS: Self = Self(8);
    pub const PSM_KEY: Self = Self(9);
    pub const EVENT_KEY: Self = Self(10);
    pub const EVENT_SCHEMA_TL: Self = Self(11);
    pub const PROV_TRAITS: Self = Self(12);
    pub const PROCESS_START_KEY: Self = Self(13);
    pub const CONTROL_GUID: Self = Self(14);
    pub const QPC_DELTA: Self = Self(15);
    pub const CONTAINER_ID: Self = Self(16);
    pub const STACK_KEY32: Self = Self(17);
    pub const STACK_KEY64: Self = Self(18);
}

/// Class GUIDs of kernel events, of lost events and of the events that merging adds, and the GUID
/// of the NT Kernel Logger (`SYSTEM_TRACE_CONTROL`).
#[allow(missing_docs)] // Each name says which class it is.
pub mod class {
    use super::Guid;

    pub const EVENT_TRACE: Guid = Guid::from_u128(0x68fdd900_4a3e_11d1_84f4_0000f80464e3);
    pub const DISK_IO: Guid = Guid::from_u128(0x3d6fa8d4_fe05_11d0_9dda_00c04fd7ba7c);
    pub const PAGE_FAULT: Guid = Guid::from_u128(0x3d6fa8d3_fe05_11d0_9dda_00c04fd7ba7c);
    pub const PROCESS: Guid = Guid::from_u128(0x3d6fa8d0_fe05_11d0_9dda_00c04fd7ba7c);
    pub const FILE_IO: Guid = Guid::from_u128(0x90cbdc39_4a3e_11d1_84f4_0000f80464e3);
    pub const THREAD: Guid = Guid::from_u128(0x3d6fa8d1_fe05_11d0_9dda_00c04fd7ba7c);
    pub const TCP_IP: Guid = Guid::from_u128(0x9a280ac0_c8e0_11d1_84e2_00c04fb998a2);
    pub const JOB: Guid = Guid::from_u128(0x3282fc76_feed_498e_8aa7_e70f459d430e);
    pub const UDP_IP: Guid = Guid::from_u128(0xbf3a50c5_a9c9_4988_a005_2df0b7c80f80);
    pub const REGISTRY: Guid = Guid::from_u128(0xae53722e_c863_11d2_8659_00c04fa321a1);
    pub const DBG_PRINT: Guid = Guid::from_u128(0x13976d09_a327_438c_950b_7f03192815c7);
    pub const CONFIG: Guid = Guid::from_u128(0x01853a65_418f_4f36_aefc_dc0f1d2fd235);
    pub const LBR: Guid = Guid::from_u128(0x99134383_5248_43fc_834b_529454e75df3);
    pub const WNF: Guid = Guid::from_u128(0x42695762_ea50_497a_9068_5cbbb35e0b95);
    pub const POOL: Guid = Guid::from_u128(0x0268a8b6_74fd_4302_9dd0_6e8f1795c0cf);
    pub const PERF_INFO: Guid = Guid::from_u128(0xce1dbfb4_137e_4da6_87b0_3f59aa102cbc);
    pub const HEAP: Guid = Guid::from_u128(0x222962ab_6180_4b88_a825_346b75f2a24a);
    pub const OBJECT: Guid = Guid::from_u128(0x89497f50_effe_4440_8cf2_ce6b1cdcaca7);
    pub const POWER: Guid = Guid::from_u128(0xe43445e0_0903_48c3_b878_ff0fccebdd04);
    pub const MOD_BOUND: Guid = Guid::from_u128(0xa9152f00_3f58_4bee_92a1_70c7d079d5dd);
    pub const IMAGE: Guid = Guid::from_u128(0x2cb15d1d_5fc1_11d2_abe1_00a0c911f518);
    pub const DPC: Guid = Guid::from_u128(0xb2d14872_7c5b_463d_8419_ee9bf7d23e04);
    pub const CC: Guid = Guid::from_u128(0x7687a439_f752_45b8_b741_321aec0f8df9);
    pub const CRIT_SEC: Guid = Guid::from_u128(0x3ac66736_cc59_4cff_8115_8df50e39816b);
    pub const STACK_WALK: Guid = Guid::from_u128(0xdef2fe46_7bd6_4b80_bd94_f57fe20d0ce3);
    pub const UMS: Guid = Guid::from_u128(0x9aec974b_5b8e_4118_9b92_3186d8002ce5);
    pub const ALPC: Guid = Guid::from_u128(0x45d8cccd_539f_4b72_a8b7_5c683142609a);
    pub const SPLIT_IO: Guid = Guid::from_u128(0xd837ca92_12b9_44a5_ad6a_3a65b3578aa8);
    pub const THREAD_POOL: Guid = Guid::from_u128(0xc861d0e2_a2c1_4d36_9f9c_970bab943a12);
    pub const HYPERVISOR: Guid = Guid::from_u128(0x7f2a405c_69b5_4bf9_a1f5_30e8f1afab5e);
    pub const HYPERVISOR_X: Guid = Guid::from_u128(0x2ce9a149_effe_42f0_a635_a1d39e26c8f2);

    pub const SYSTEM_TRACE_CONTROL: Guid = Guid::from_u128(0x9e814aad_3204_11d2_9a82_006008a86939);
    pub const LOST_EVENT: Guid = Guid::from_u128(0x6a399ae0_4bc6_4de9_870b_3657f8947e7e);
    pub const IMAGE_ID: Guid = Guid::from_u128(0xb3e675d7_2554_4f18_830b_2762732560de);
    pub const SYS_CONFIG_EX: Guid = Guid::from_u128(0x9b79ee91_b5fd_41c0_a243_4248e266e9d0);
    pub const EVENT_METADATA: Guid = Guid::from_u128(0xbbccf6c1_6cd1_48c4_80ff_839482e37671);
    pub const WIN_SAT: Guid = Guid::from_u128(0xed54dff8_c409_4cf6_bf83_05e1e61a09c4);

    /// Class and name of each event group, indexed by the high byte of the hook id.
    pub const GROUPS: [(Guid, &str); 31] = [
        (EVENT_TRACE, "EventTrace"),
        (DISK_IO, "DiskIo"),
        (PAGE_FAULT, "PageFault"),
        (PROCESS, "Process"),
        (FILE_IO, "FileIo"),
        (THREAD, "Thread"),
        (TCP_IP, "TcpIp"),
        (JOB, "Job"),
        (UDP_IP, "UdpIp"),
        (REGISTRY, "Registry"),
        (DBG_PRINT, "DbgPrint"),
        (CONFIG, "SystemConfig"),
        (LBR, "Lbr"),
        (WNF, "Wnf"),
        (POOL, "Pool"),
        (PERF_INFO, "PerfInfo"),
        (HEAP, "Heap"),
        (OBJECT, "Object"),
        (POWER, "Power"),
        (MOD_BOUND, "ModBound"),
        (IMAGE, "Image"),
        (DPC, "Dpc"),
        (CC, "Cc"),
        (CRIT_SEC, "CritSec"),
        (STACK_WALK, "StackWalk"),
        (UMS, "Ums"),
        (ALPC, "Alpc"),
        (SPLIT_IO, "SplitIo"),
        (THREAD_POOL, "ThreadPool"),
        (HYPERVISOR, "Hypervisor"),
        (HYPERVISOR_X, "HypervisorX"),
    ];
}
