//! Enabling providers: properties and filters of EnableTraceEx2.
//!
//! Source: Documented ("ENABLE_TRACE_PARAMETERS structure", "EVENT_FILTER_DESCRIPTOR structure",
//! evntprov.h).

/// The caller's security identifier is added to each event.
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
/// Events of keyword 0 are taken whatever the masks say.
pub const EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0: u32 = 0x0000_0040;
/// The process start key is added to each event.
pub const EVENT_ENABLE_PROPERTY_PROCESS_START_KEY: u32 = 0x0000_0080;
/// A key that is the same in all sessions that get the event is added to it.
pub const EVENT_ENABLE_PROPERTY_EVENT_KEY: u32 = 0x0000_0100;
/// Events of private browsing are left out.
pub const EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE: u32 = 0x0000_0200;
/// Providers inside containers are enabled too.
pub const EVENT_ENABLE_PROPERTY_ENABLE_SILOS: u32 = 0x0000_0400;
/// The container is added to each event.
pub const EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING: u32 = 0x0000_0800;

/// The type of an absent filter.
pub const EVENT_FILTER_TYPE_NONE: u32 = 0;
/// A filter that the provider understands, with its own header. Lower types are the provider's,
/// higher ones the system's.
pub const EVENT_FILTER_TYPE_SCHEMATIZED: u32 = 0x8000_0000;
/// Selects kernel events by flags.
pub const EVENT_FILTER_TYPE_SYSTEM_FLAGS: u32 = 0x8000_0001;
/// One session asks the provider for its state.
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
/// Selects stacks by event id.
pub const EVENT_FILTER_TYPE_STACKWALK: u32 = 0x8000_1000;
/// Selects stacks by event name.
pub const EVENT_FILTER_TYPE_STACKWALK_NAME: u32 = 0x8000_2000;
/// Selects stacks by level and keyword.
pub const EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW: u32 = 0x8000_4000;
/// Selects processes by container.
pub const EVENT_FILTER_TYPE_CONTAINER: u32 = 0x8000_8000;

/// The most filters of one call.
pub const MAX_EVENT_FILTERS_COUNT: usize = 13;
/// The most process ids of one filter.
pub const MAX_EVENT_FILTER_PID_COUNT: usize = 8;
/// The most event ids of one filter.
pub const MAX_EVENT_FILTER_EVENT_ID_COUNT: usize = 64;
/// The largest size of a filter that the provider defines, in bytes.
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
