//! Enabling providers: properties and filters of EnableTraceEx2.
//!
//! Source: Documented ("ENABLE_TRACE_PARAMETERS structure", "EVENT_FILTER_DESCRIPTOR structure", evntprov.h).

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
/// Private browsing is left out.
pub const EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE: u32 = 0x0000_0200;
/// Providers inside containers too.
pub const EVENT_ENABLE_PROPERTY_ENABLE_SILOS: u32 = 0x0000_0400;
/// The container is added to each event.
pub const EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING: u32 = 0x0000_0800;

/// No filter.
pub const EVENT_FILTER_TYPE_NONE: u32 = 0;
/// A filter that the provider understands, with a header of its own. Lower types are the provider's, higher ones the system's.
pub const EVENT_FILTER_TYPE_SCHEMATIZED: u32 = 0x8000_0000;
/// Kernel events.
pub const EVENT_FILTER_TYPE_SYSTEM_FLAGS: u32 = 0x8000_0001;
/// One session asks the provider for its state.
pub const EVENT_FILTER_TYPE_TRACEHANDLE: u32 = 0x8000_0002;
/// Processes by id.
pub const EVENT_FILTER_TYPE_PID: u32 = 0x8000_0004;
/// Processes by program.
pub const EVENT_FILTER_TYPE_EXECUTABLE_NAME: u32 = 0x8000_0008;
/// Processes by package.
pub const EVENT_FILTER_TYPE_PACKAGE_ID: u32 = 0x8000_0010;
/// Processes by application of a package.
pub const EVENT_FILTER_TYPE_PACKAGE_APP_ID: u32 = 0x8000_0020;
/// Events by payload.
pub const EVENT_FILTER_TYPE_PAYLOAD: u32 = 0x8000_0100;
/// Events by id.
pub const EVENT_FILTER_TYPE_EVENT_ID: u32 = 0x8000_0200;
/// Events by name.
pub const EVENT_FILTER_TYPE_EVENT_NAME: u32 = 0x8000_0400;
/// Stacks by event id.
pub const EVENT_FILTER_TYPE_STACKWALK: u32 = 0x8000_1000;
/// Stacks by event name.
pub const EVENT_FILTER_TYPE_STACKWALK_NAME: u32 = 0x8000_2000;
/// Stacks by level and keyword.
pub const EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW: u32 = 0x8000_4000;
/// Processes by container.
pub const EVENT_FILTER_TYPE_CONTAINER: u32 = 0x8000_8000;

/// Filters of one call.
pub const MAX_EVENT_FILTERS_COUNT: usize = 13;
/// Process ids of one filter.
pub const MAX_EVENT_FILTER_PID_COUNT: usize = 8;
/// Event ids of one filter.
pub const MAX_EVENT_FILTER_EVENT_ID_COUNT: usize = 64;
/// Bytes of a filter that the provider defines.
pub const MAX_EVENT_FILTER_DATA_SIZE: usize = 1024;
/// Bytes of a payload filter.
pub const MAX_EVENT_FILTER_PAYLOAD_SIZE: usize = 4096;
/// Bytes of a filter of event names.
pub const MAX_EVENT_FILTER_EVENT_NAME_SIZE: usize = 4096;
