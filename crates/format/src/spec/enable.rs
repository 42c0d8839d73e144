//! Enabling providers: properties and filters of EnableTraceEx2.
//!
//! Source: Documented ("ENABLE_TRACE_PARAMETERS structure", "EVENT_FILTER_DESCRIPTOR structure",
//! evntprov.h).

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// The operation of an enable call (EVENT_CONTROL_CODE_…).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlCode {
    /// Disables the provider (EVENT_CONTROL_CODE_DISABLE_PROVIDER).
    Disable,
    /// Enables the provider (EVENT_CONTROL_CODE_ENABLE_PROVIDER).
    Enable,
    /// Requests the provider's state (EVENT_CONTROL_CODE_CAPTURE_STATE).
    CaptureState,
}

impl ControlCode {
    /// Returns the code with a published number; `None` for an unknown number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Disable,
            1 => Self::Enable,
            2 => Self::CaptureState,
            _ => return None,
        })
    }

    /// Returns the published number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Disable => 0,
            Self::Enable => 1,
            Self::CaptureState => 2,
        }
    }
}

impl fmt::Display for ControlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::CaptureState => "capture state",
        })
    }
}

impl From<ControlCode> for u32 {
    fn from(code: ControlCode) -> Self {
        code.number()
    }
}

/// Options of an enable (`EVENT_ENABLE_PROPERTY_…`): data that events get in addition, events that
/// are left out or included, and whether the enable is for a group or for containers too.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EnableProperties(u32);

impl EnableProperties {
    /// No property is requested.
    pub const NONE: Self = Self(0);
    /// Adds the user's security identifier to each event.
    pub const SID: Self = Self(EVENT_ENABLE_PROPERTY_SID);
    /// Adds the terminal session to each event.
    pub const TS_ID: Self = Self(EVENT_ENABLE_PROPERTY_TS_ID);
    /// Adds a call stack to each event.
    pub const STACK_TRACE: Self = Self(EVENT_ENABLE_PROPERTY_STACK_TRACE);
    /// Adds the package to each event.
    pub const PSM_KEY: Self = Self(EVENT_ENABLE_PROPERTY_PSM_KEY);
    /// Leaves out events of keyword 0.
    pub const IGNORE_KEYWORD_0: Self = Self(EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0);
    /// Enables all providers of a group, which the GUID names.
    pub const PROVIDER_GROUP: Self = Self(EVENT_ENABLE_PROPERTY_PROVIDER_GROUP);
    /// Includes events of keyword 0, regardless of the keyword masks.
    pub const ENABLE_KEYWORD_0: Self = Self(EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0);
    /// Adds the process start key to each event.
    pub const PROCESS_START_KEY: Self = Self(EVENT_ENABLE_PROPERTY_PROCESS_START_KEY);
    /// Adds a key that is the same in all sessions that get the event.
    pub const EVENT_KEY: Self = Self(EVENT_ENABLE_PROPERTY_EVENT_KEY);
    /// Leaves out events of private browsing.
    pub const EXCLUDE_INPRIVATE: Self = Self(EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE);
    /// Enables providers inside containers too.
    pub const ENABLE_SILOS: Self = Self(EVENT_ENABLE_PROPERTY_ENABLE_SILOS);
    /// Adds the container to each event.
    pub const SOURCE_CONTAINER_TRACKING: Self = Self(EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING);

    /// Creates properties from their bits.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for EnableProperties {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for EnableProperties {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for EnableProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<u32> for EnableProperties {
    fn from(bits: u32) -> Self {
        Self(bits)
    }
}

impl From<EnableProperties> for u32 {
    fn from(properties: EnableProperties) -> Self {
        properties.0
    }
}

/// The user's security identifier is added to each event.
pub const EVENT_ENABLE_PROPERTY_SID: u32 = 0x0000_0001;
/// The terminal session is added to each event.
pub const EVENT_ENABLE_PROPERTY_TS_ID: u32 = 0x0000_0002;
/// A call stack is added to each event.
pub const EVENT_ENABLE_PROPERTY_STACK_TRACE: u32 = 0x0000_0004;
/// The package is added to each event.
pub const EVENT_ENABLE_PROPERTY_PSM_KEY: u32 = 0x0000_0008;
/// Events of keyword 0 are left out.
pub const EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0: u32 = 0x0000_0010;
/// The GUID names a group of providers.
pub const EVENT_ENABLE_PROPERTY_PROVIDER_GROUP: u32 = 0x0000_0020;
/// Events of keyword 0 are included, regardless of the keyword masks.
pub const EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0: u32 = 0x0000_0040;
/// The process start key is added to each event.
pub const EVENT_ENABLE_PROPERTY_PROCESS_START_KEY: u32 = 0x0000_0080;
/// A key that is the same in all sessions that get the event is added to each event.
pub const EVENT_ENABLE_PROPERTY_EVENT_KEY: u32 = 0x0000_0100;
/// Events of private browsing are left out.
pub const EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE: u32 = 0x0000_0200;
/// Providers inside containers are enabled too.
pub const EVENT_ENABLE_PROPERTY_ENABLE_SILOS: u32 = 0x0000_0400;
/// The container is added to each event.
pub const EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING: u32 = 0x0000_0800;

/// The type of an absent filter.
pub const EVENT_FILTER_TYPE_NONE: u32 = 0;
/// A filter that the provider defines; its data follows an EVENT_FILTER_HEADER. Lower types belong
/// to the provider, higher types to the system.
pub const EVENT_FILTER_TYPE_SCHEMATIZED: u32 = 0x8000_0000;
/// Selects kernel events by flags.
pub const EVENT_FILTER_TYPE_SYSTEM_FLAGS: u32 = 0x8000_0001;
/// Names the session that requests the provider's state.
pub const EVENT_FILTER_TYPE_TRACEHANDLE: u32 = 0x8000_0002;
/// Selects processes by id.
pub const EVENT_FILTER_TYPE_PID: u32 = 0x8000_0004;
/// Selects processes by program.
pub const EVENT_FILTER_TYPE_EXECUTABLE_NAME: u32 = 0x8000_0008;
/// Selects processes by package.
pub const EVENT_FILTER_TYPE_PACKAGE_ID: u32 = 0x8000_0010;
/// Selects processes by application of a package.
pub const EVENT_FILTER_TYPE_PACKAGE_APP_ID: u32 = 0x8000_0020;
/// Selects events by payload.
pub const EVENT_FILTER_TYPE_PAYLOAD: u32 = 0x8000_0100;
/// Selects events by id.
pub const EVENT_FILTER_TYPE_EVENT_ID: u32 = 0x8000_0200;
/// Selects events by name.
pub const EVENT_FILTER_TYPE_EVENT_NAME: u32 = 0x8000_0400;
/// Selects the events that get a call stack, by event id.
pub const EVENT_FILTER_TYPE_STACKWALK: u32 = 0x8000_1000;
/// Selects the events that get a call stack, by event name.
pub const EVENT_FILTER_TYPE_STACKWALK_NAME: u32 = 0x8000_2000;
/// Selects the events that get a call stack, by level and keyword.
pub const EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW: u32 = 0x8000_4000;
/// Selects processes by container.
pub const EVENT_FILTER_TYPE_CONTAINER: u32 = 0x8000_8000;

/// Selects processes and their descendants by process id. This project adds the type; the functions
/// of ETW do not accept it.
pub const EVENT_FILTER_TYPE_PROCESS_TREE: u32 = 0xC000_0001;
/// Restricts the kernel events of a session to process trees; an addition of this project, too. Its
/// data are entries of 8 bytes: the process id of the root, and flags (bit 0: the root itself is left
/// out).
pub const SESSION_FILTER_PROCESS_TREES: u32 = 0xC000_0002;
/// Requests an event for each process that takes part, at the front of the log file; an addition of
/// this project, without data. A session that a program starts through the API of ETW has no such
/// events, because the program expects only events of its providers.
pub const SESSION_FILTER_DESCRIBE_PROCESSES: u32 = 0xC000_0003;

/// Returns whether this project, not ETW, defines this type of filter.
#[must_use]
pub const fn is_added_filter_type(kind: u32) -> bool {
    matches!(
        kind,
        EVENT_FILTER_TYPE_PROCESS_TREE | SESSION_FILTER_PROCESS_TREES | SESSION_FILTER_DESCRIBE_PROCESSES
    )
}

/// The most filters of one call.
pub const MAX_EVENT_FILTERS_COUNT: usize = 13;
/// The most process ids of one filter.
pub const MAX_EVENT_FILTER_PID_COUNT: usize = 8;
/// The most event ids of one filter.
pub const MAX_EVENT_FILTER_EVENT_ID_COUNT: usize = 64;
/// The largest size of a filter that the provider defines or that lists names of processes,
/// packages or containers, in bytes.
pub const MAX_EVENT_FILTER_DATA_SIZE: usize = 1024;
/// The largest size of a payload filter, in bytes.
pub const MAX_EVENT_FILTER_PAYLOAD_SIZE: usize = 4096;
/// The largest size of a filter of event names, in bytes.
pub const MAX_EVENT_FILTER_EVENT_NAME_SIZE: usize = 4096;
/// The most predicates of one payload filter.
pub const MAX_PAYLOAD_PREDICATES: usize = 8;

/// The comparison operator of a payload-filter predicate (PAYLOAD_OPERATOR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadOperator(pub u16);

#[allow(missing_docs)] // Names as published (PAYLOADFIELD_…).
impl PayloadOperator {
    pub const EQ: Self = Self(0);
    pub const NE: Self = Self(1);
    pub const LE: Self = Self(2);
    pub const GT: Self = Self(3);
    pub const LT: Self = Self(4);
    pub const GE: Self = Self(5);
    pub const BETWEEN: Self = Self(6);
    pub const NOTBETWEEN: Self = Self(7);
    pub const MODULO: Self = Self(8);
    pub const CONTAINS: Self = Self(20);
    pub const DOESNTCONTAIN: Self = Self(21);
    pub const IS: Self = Self(30);
    pub const ISNOT: Self = Self(31);
    pub const INVALID: Self = Self(32);
}
