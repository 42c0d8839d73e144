//! The macros, and the functions that they evaluate at compile time.

use traceweir_format::spec::event::EventDescriptor;

use super::types::{Channel, Level, Opcode};

/// Defines a static [`Provider`](crate::tracelogging::Provider).
/// `define_provider!(SYMBOL, "Name", options…)` defines the static `SYMBOL`, a provider with the
/// name `Name`.
///
/// | Option | Meaning | Otherwise |
/// |---|---|---|
/// | `id("GUID")` | the provider's id | the hash of its name |
/// | `group_id("GUID")` | the group it belongs to | none |
/// | `debug()` | prints the expansion while compiling | |
///
/// Options of the crate `eventheader`, such as `group_name("name")`, are accepted and ignored. The
/// static is private to the module; it begins unregistered, and until
/// [`register`](crate::tracelogging::Provider::register) its events are dropped.
///
/// ```
/// traceweir::define_provider!(PLAIN, "MyCompany.MyComponent");
/// traceweir::define_provider!(
///     GROUPED,
///     "MyCompany.Grouped",
///     id("80c257fb-c6bc-4538-a4c4-c7b863d46a8c"),
///     group_id("f73b8292-f610-4fa7-ba62-708353d162c4"),
/// );
/// assert_eq!(PLAIN.id().to_string(), "ce5fa4ea-ab00-5402-8b76-9f76ac858fb5");
/// assert_eq!(GROUPED.name(), "MyCompany.Grouped");
/// ```
#[macro_export]
macro_rules! define_provider {
    ($($arguments:tt)*) => { $crate::__tlg::define_provider!{ [$crate] $($arguments)* } };
}

/// Writes an event if any session wants it. `write_event!(SYMBOL, "Event", options and fields…)`
/// returns a Win32 status: 0 if the event was written or no session wants it.
///
/// Options are constants, except `activity_id` and `related_id`:
///
/// | Option | Otherwise |
/// |---|---|
/// | `level(Warning)`, `level(Level::Warning)`, `level(3)` | `Verbose` |
/// | `keyword(0x10)`, more of them are OR-ed | 1 |
/// | `opcode(Start)` | `Info` |
/// | `task(7)` | 0 |
/// | `tag(0x123)`, 28 bits | 0 |
/// | `id_version(23, 1)` | 0, 0 |
/// | `channel(TraceLogging)` | `TraceLogging` |
/// | `activity_id(&id)`, `related_id(&id)`: `&Guid` or `&[u8; 16]` | the thread's, none |
/// | `debug()` prints the expansion while compiling | |
///
/// Fields are `type("name", value, tag(n), format(Hex))`, where the value is a reference and the
/// options may be omitted:
///
/// | Type | Value |
/// |---|---|
/// | `u8 u16 u32 u64 i8 i16 i32 i64 usize isize`* | `&u8` … `&isize` |
/// | `u8_hex` … `isize_hex`* | `&u8` … `&isize` |
/// | `f32 f64`* | `&f32`, `&f64` |
/// | `bool8`* | `&bool` |
/// | `bool32`* | `&i32` |
/// | `char8_cp1252`* | `&u8` |
/// | `char16`* | `&u16` |
/// | `pointer codepointer`* | `&usize` |
/// | `guid`* | `&Guid` |
/// | `pid tid`* | `&u32` |
/// | `port`* | `&u16` |
/// | `ipv4`* | `&[u8; 4]` |
/// | `ipv6 ipv6c` | `&[u8; 16]` |
/// | `socketaddress socketaddressc binary binaryc` | bytes |
/// | `str8 str8_cp1252 str8_json str8_xml` | `&str` or bytes |
/// | `cstr8 cstr8_cp1252 cstr8_json cstr8_xml` | `&str` or bytes, written up to the first zero |
/// | `str16 str16_json str16_xml` | `&[u16]` |
/// | `cstr16 cstr16_json cstr16_xml` | `&[u16]`, written up to the first zero |
/// | `errno hresult win_ntstatus`* | `&i32` |
/// | `win_error`* | `&u32` |
/// | `systemtime` | `&SystemTime` |
/// | `time32` | `&i32`, seconds since 1970 |
/// | `time64` | `&i64`, seconds since 1970 |
/// | `win_filetime`* | `&i64`, units of 100 ns since 1601 |
/// | `win_systemtime win_systemtime_utc`* | `&[u16; 8]` |
/// | `win_sid` | bytes of a SID; panics if there are too few |
/// | `struct("name", tag(n), { fields })` | |
///
/// \* All types of the row also exist with the suffix `_slice`, for slices.
///
/// The table of [`InType`](crate::tracelogging::InType) has the encoding of each type. The encoding
/// of the following parts is not checked: `raw_field("name", U8, bytes)`, `raw_field_slice`,
/// `raw_meta("name", U32)`, `raw_meta_slice`, `raw_struct("name", 2)`, `raw_struct_slice`,
/// `raw_data(bytes)`.
///
/// An event that exceeds one of these limits does not compile:
///
/// - 128 fields;
/// - 127 members of a structure;
/// - 128 blocks of data: one for a value of fixed size, two for others, two for the metadata.
///
/// ```
/// traceweir::define_provider!(KITCHEN, "Example.Kitchen");
///
/// let status = traceweir::write_event!(
///     KITCHEN,
///     "Order",
///     level(Warning),
///     str8("dish", "pie"),
///     struct("table", { u16("number", &12), u8_slice("seats", &[1, 2, 3]) }),
/// );
/// assert_eq!(status, 0, "no session wants it");
/// ```
#[macro_export]
macro_rules! write_event {
    ($($arguments:tt)*) => { $crate::__tlg::write_event!{ [$crate] $($arguments)* } };
}

/// Returns whether [`write_event!`](crate::write_event) with this level and keyword would write:
/// `provider_enabled!(SYMBOL, Level::Verbose, 0x10)`, both constants.
///
/// ```
/// # traceweir::define_provider!(PROVIDER, "Example.Enabled");
/// use traceweir::tracelogging::Level;
/// assert!(!traceweir::provider_enabled!(PROVIDER, Level::Verbose, 0x10));
/// ```
#[macro_export]
macro_rules! provider_enabled {
    ($provider:path, $level:expr, $keyword:expr $(,)?) => {{
        const __TLG_LEVEL: $crate::__tlg::Level = $level;
        const __TLG_KEYWORD: ::core::primitive::u64 = $keyword;
        $provider.enabled(__TLG_LEVEL, __TLG_KEYWORD)
    }};
}

/// Builds the descriptor of an event.
#[must_use]
pub const fn descriptor(
    id: u16,
    version: u8,
    channel: Channel,
    level: Level,
    opcode: Opcode,
    task: u16,
    keyword: u64,
) -> EventDescriptor {
    let (channel, level, opcode) = (channel.as_int(), level.as_int(), opcode.as_int());
    EventDescriptor { id, version, channel, level, opcode, task, keyword }
}

/// Checks a tag; more than 28 bits do not compile.
#[must_use]
pub const fn tag(tag: u32) -> u32 {
    assert!(tag <= 0x0FFF_FFFF, "a tag has 28 bits: this one has more");
    tag
}

/// Checks the size of metadata; more than its size field can hold does not compile.
#[must_use]
pub const fn checked_size(size: usize) -> usize {
    assert!(
        size <= 0xFFFF,
        "the names of an event and of its fields, with their types, take more than 65,535 bytes"
    );
    size
}
