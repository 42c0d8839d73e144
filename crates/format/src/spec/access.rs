//! Rights to sessions, providers and groups, as an access list grants them.
//!
//! Source: Documented (evntcons.h, wmistr.h, "EventAccessControl").

/// Query a session.
pub const WMIGUID_QUERY: u32 = 0x0001;
/// Set data.
pub const WMIGUID_SET: u32 = 0x0002;
/// Be notified.
pub const WMIGUID_NOTIFICATION: u32 = 0x0004;
/// Read a description.
pub const WMIGUID_READ_DESCRIPTION: u32 = 0x0008;
/// Execute a method.
pub const WMIGUID_EXECUTE: u32 = 0x0010;
/// Start or update a real-time session.
pub const TRACELOG_CREATE_REALTIME: u32 = 0x0020;
/// Start or update a session with a log file.
pub const TRACELOG_CREATE_ONDISK: u32 = 0x0040;
/// Enable a provider.
pub const TRACELOG_GUID_ENABLE: u32 = 0x0080;
/// Not used.
pub const TRACELOG_ACCESS_KERNEL_LOGGER: u32 = 0x0100;
/// Log to a secure session.
pub const TRACELOG_LOG_EVENT: u32 = 0x0200;
/// Consume a session in real time.
pub const TRACELOG_ACCESS_REALTIME: u32 = 0x0400;
/// Register a provider.
pub const TRACELOG_REGISTER_GUIDS: u32 = 0x0800;
/// Join a group of providers.
pub const TRACELOG_JOIN_GROUP: u32 = 0x1000;
