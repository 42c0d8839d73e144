//! Sizes and offsets of every structure, and values of every constant that C and Rust define. The
//! tests generate a C source of static assertions from the Rust definitions.

mod controller;

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use traceweir::provider::{DataDescriptor, MAX_BLOCKS};
use traceweir::{EventDescriptor, Guid, classic};
use traceweir_c::types::{
    EventInstanceHeader, EventInstanceInfo, EventTraceHeader, FilterDescriptor, MessageArgument, MofField,
    TraceGuidRegistration, WnodeHeader,
};
use traceweir_format::header::message;
use traceweir_format::spec::{enable, event};

use crate::support::{C, CPP, STRICT_FLAGS, crate_path, expect_success};

/// Adds checks of a structure: `structure!(out, C name, Rust type { C field: Rust field, … })`
macro_rules! structure {
    ($out:ident, $c:literal, $rust:ty { $($c_field:literal: $field:ident),* $(,)? }) => {
        check_size(&mut $out, $c, size_of::<$rust>(), align_of::<$rust>());
        $(check_offset(&mut $out, $c, $c_field, offset_of!($rust, $field));)*
    };
}

mod consumer;

fn check_size(out: &mut String, name: &str, size: usize, align: usize) {
    writeln!(out, "CHECK(sizeof({name}) == {size}); CHECK(ALIGN({name}) == {align});").unwrap();
}

/// Adds a check of an offset. Compilers support `offsetof` of a member of a member, such as
/// `Class.Type`, but C++ does not require it.
fn check_offset(out: &mut String, name: &str, field: &str, offset: usize) {
    writeln!(out, "CHECK(offsetof({name}, {field}) == {offset});").unwrap();
}

/// Adds checks of the structures that Rust also defines.
fn add_shared_structures(mut out: String) -> String {
    structure!(out, "GUID", Guid { "Data1": data1, "Data2": data2, "Data3": data3, "Data4": data4 });
    structure!(out, "EVENT_DESCRIPTOR", EventDescriptor {
        "Id": id, "Version": version, "Channel": channel, "Level": level, "Opcode": opcode, "Task": task, "Keyword": keyword,
    });
    structure!(out, "EVENT_DATA_DESCRIPTOR", DataDescriptor {
        "Ptr": ptr, "Size": size, "Reserved": kind, "Type": kind, "Reserved1": reserved1, "Reserved2": reserved2,
    });
    structure!(out, "EVENT_FILTER_DESCRIPTOR", FilterDescriptor { "Ptr": ptr, "Size": size, "Type": kind });
    structure!(out, "WNODE_HEADER", WnodeHeader {
        "BufferSize": buffer_size, "ProviderId": provider_id, "HistoricalContext": historical_context, "Version": historical_context,
        "CountLost": time_stamp, "KernelHandle": time_stamp, "TimeStamp": time_stamp,
        "Guid": guid, "ClientContext": client_context, "Flags": flags,
    });
    structure!(out, "EVENT_TRACE_HEADER", EventTraceHeader {
        "Size": size, "FieldTypeFlags": field_type_flags, "HeaderType": field_type_flags, "Version": kind, "Class": kind,
        "Class.Type": kind, "Class.Level": level, "Class.Version": version, "ThreadId": thread_id, "ProcessId": process_id, "TimeStamp": time_stamp,
        "Guid": guid, "GuidPtr": guid, "KernelTime": client_context, "UserTime": flags, "ProcessorTime": client_context,
        "ClientContext": client_context, "Flags": flags,
    });
    structure!(out, "EVENT_INSTANCE_HEADER", EventInstanceHeader {
        "Size": size, "FieldTypeFlags": field_type_flags, "HeaderType": field_type_flags, "Version": kind, "Class": kind,
        "Class.Type": kind, "Class.Level": level,
        "Class.Version": version, "ThreadId": thread_id, "ProcessId": process_id, "TimeStamp": time_stamp, "RegHandle": reg_handle,
        "InstanceId": instance_id, "ParentInstanceId": parent_instance_id, "KernelTime": client_context, "UserTime": flags,
        "ProcessorTime": client_context, "EventId": client_context, "Flags": flags, "ParentRegHandle": parent_reg_handle,
    });
    structure!(out, "EVENT_INSTANCE_INFO", EventInstanceInfo { "RegHandle": reg_handle, "InstanceId": instance_id });
    structure!(out, "TRACE_GUID_REGISTRATION", TraceGuidRegistration { "Guid": guid, "RegHandle": reg_handle });
    structure!(out, "MOF_FIELD", MofField { "DataPtr": data_ptr, "Length": length, "DataType": data_type });
    structure!(out, "TRACEWEIR_MESSAGE_ARGUMENT", MessageArgument { "Data": data, "Size": size });
    out
}

/// Adds checks of types by their published sizes. Most of these types exist only in C.
fn add_published_types(mut out: String) -> String {
    // Type, size, alignment.
    let sizes: [(&str, usize, usize); 41] = [
        ("BYTE", 1, 1),
        ("UCHAR", 1, 1),
        ("BOOLEAN", 1, 1),
        ("CHAR", 1, 1),
        ("SHORT", 2, 2),
        ("USHORT", 2, 2),
        ("WORD", 2, 2),
        ("WCHAR", 2, 2),
        ("INT", 4, 4),
        ("UINT", 4, 4),
        ("BOOL", 4, 4),
        ("LONG", 4, 4),
        ("ULONG", 4, 4),
        ("DWORD", 4, 4),
        ("HRESULT", 4, 4),
        ("NTSTATUS", 4, 4),
        ("LONGLONG", 8, 8),
        ("ULONGLONG", 8, 8),
        ("LONG64", 8, 8),
        ("ULONG64", 8, 8),
        ("LARGE_INTEGER", 8, 8),
        ("ULARGE_INTEGER", 8, 8),
        ("HANDLE", 8, 8),
        ("PSID", 8, 8),
        ("SIZE_T", 8, 8),
        ("LONG_PTR", 8, 8),
        ("FILETIME", 8, 4),
        ("SYSTEMTIME", 16, 2),
        ("TIME_ZONE_INFORMATION", 172, 4),
        ("SID_IDENTIFIER_AUTHORITY", 6, 1),
        ("SID", 12, 4),
        ("REGHANDLE", 8, 8),
        ("TRACEHANDLE", 8, 8),
        ("EVENT_FILTER_HEADER", 24, 8),
        ("EVENT_FILTER_EVENT_ID", 6, 2),
        ("EVENT_FILTER_EVENT_NAME", 24, 8),
        ("EVENT_FILTER_LEVEL_KW", 24, 8),
        ("EVENT_INFO_CLASS", 4, 4),
        ("ETW_PROVIDER_TRAIT_TYPE", 4, 4),
        ("TRACEWEIR_EVENT_CLASS", 4, 2),
        ("WMIDPREQUESTCODE", 4, 4),
    ];
    for (name, bytes, align) in sizes {
        check_size(&mut out, name, bytes, align);
    }
    for (name, fields) in PUBLISHED_OFFSETS {
        for (field, at) in *fields {
            check_offset(&mut out, name, field, *at);
        }
    }
    out
}

/// Members of structures that only C has, and members of other structures that Rust does not name.
#[rustfmt::skip]
const PUBLISHED_OFFSETS: &[(&str, &[(&str, usize)])] = &[
    ("FILETIME", &[("dwLowDateTime", 0), ("dwHighDateTime", 4)]),
    ("SYSTEMTIME", &[
        ("wYear", 0), ("wMonth", 2), ("wDayOfWeek", 4), ("wDay", 6), ("wHour", 8), ("wMinute", 10), ("wSecond", 12), ("wMilliseconds", 14),
    ]),
    ("TIME_ZONE_INFORMATION", &[
        ("Bias", 0), ("StandardName", 4), ("StandardDate", 68), ("StandardBias", 84), ("DaylightName", 88), ("DaylightDate", 152),
        ("DaylightBias", 168),
    ]),
    ("LARGE_INTEGER", &[("LowPart", 0), ("HighPart", 4), ("u", 0), ("u.HighPart", 4), ("QuadPart", 0)]),
    ("ULARGE_INTEGER", &[("LowPart", 0), ("HighPart", 4), ("u", 0), ("u.HighPart", 4), ("QuadPart", 0)]),
    ("SID_IDENTIFIER_AUTHORITY", &[("Value", 0)]),
    ("SID", &[("Revision", 0), ("SubAuthorityCount", 1), ("IdentifierAuthority", 2), ("SubAuthority", 8)]),
    ("EVENT_FILTER_HEADER", &[("Id", 0), ("Version", 2), ("Reserved", 3), ("InstanceId", 8), ("Size", 16), ("NextOffset", 20)]),
    ("EVENT_FILTER_EVENT_ID", &[("FilterIn", 0), ("Reserved", 1), ("Count", 2), ("Events", 4)]),
    ("EVENT_FILTER_EVENT_NAME", &[
        ("MatchAnyKeyword", 0), ("MatchAllKeyword", 8), ("Level", 16), ("FilterIn", 17), ("NameCount", 18), ("Names", 20),
    ]),
    ("EVENT_FILTER_LEVEL_KW", &[("MatchAnyKeyword", 0), ("MatchAllKeyword", 8), ("Level", 16), ("FilterIn", 17)]),
    ("TRACEWEIR_EVENT_CLASS", &[("Type", 0), ("Level", 1), ("Version", 2)]),
    ("WNODE_HEADER", &[("Linkage", 12)]),
    ("EVENT_TRACE_HEADER", &[("MarkerFlags", 3)]),
    ("EVENT_INSTANCE_HEADER", &[("MarkerFlags", 3)]),
];

macro_rules! constants {
    ($out:ident, $($module:ident :: { $($name:ident),* $(,)? }),* $(,)?) => {
        $($(writeln!($out, "CHECK({} == {});", stringify!($name), $module::$name).unwrap();)*)*
    };
}

/// Adds checks of the constants that Rust also defines.
fn add_shared_constants(mut out: String) -> String {
    constants!(out, event::{
        EVENT_WRITE_FLAG_NO_FAULTING, EVENT_WRITE_FLAG_INPRIVATE, EVENT_ACTIVITY_CTRL_GET_ID, EVENT_ACTIVITY_CTRL_SET_ID,
        EVENT_ACTIVITY_CTRL_CREATE_ID, EVENT_ACTIVITY_CTRL_GET_SET_ID, EVENT_ACTIVITY_CTRL_CREATE_SET_ID,
        EVENT_DATA_DESCRIPTOR_TYPE_NONE, EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA,
        EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE,
    }, enable::{
        EVENT_FILTER_TYPE_NONE, EVENT_FILTER_TYPE_SCHEMATIZED, EVENT_FILTER_TYPE_SYSTEM_FLAGS, EVENT_FILTER_TYPE_TRACEHANDLE,
        EVENT_FILTER_TYPE_PID, EVENT_FILTER_TYPE_EXECUTABLE_NAME, EVENT_FILTER_TYPE_PACKAGE_ID,
        EVENT_FILTER_TYPE_PACKAGE_APP_ID, EVENT_FILTER_TYPE_PAYLOAD, EVENT_FILTER_TYPE_EVENT_ID,
        EVENT_FILTER_TYPE_EVENT_NAME, EVENT_FILTER_TYPE_STACKWALK, EVENT_FILTER_TYPE_STACKWALK_NAME,
        EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, EVENT_FILTER_TYPE_CONTAINER, MAX_EVENT_FILTERS_COUNT,
        MAX_EVENT_FILTER_PID_COUNT, MAX_EVENT_FILTER_EVENT_ID_COUNT, MAX_EVENT_FILTER_DATA_SIZE,
        MAX_EVENT_FILTER_PAYLOAD_SIZE, MAX_EVENT_FILTER_EVENT_NAME_SIZE,
    }, message::{
        TRACE_MESSAGE_SEQUENCE, TRACE_MESSAGE_GUID, TRACE_MESSAGE_COMPONENTID, TRACE_MESSAGE_TIMESTAMP,
        TRACE_MESSAGE_PERFORMANCE_TIMESTAMP, TRACE_MESSAGE_SYSTEMINFO, TRACE_MESSAGE_POINTER32, TRACE_MESSAGE_POINTER64,
    });
    for (name, class) in [
        ("EventProviderBinaryTrackInfo", event::EventInfoClass::EventProviderBinaryTrackInfo),
        ("EventProviderSetReserved1", event::EventInfoClass::EventProviderSetReserved1),
        ("EventProviderSetTraits", event::EventInfoClass::EventProviderSetTraits),
        ("EventProviderUseDescriptorType", event::EventInfoClass::EventProviderUseDescriptorType),
        ("MaxEventInfo", event::EventInfoClass::MaxEventInfo),
    ] {
        writeln!(out, "CHECK({name} == {});", class.0).unwrap();
    }
    let [arguments, fields] = [classic::MAX_ARGUMENTS, classic::MAX_FIELDS];
    writeln!(out, "CHECK(MAX_EVENT_DATA_DESCRIPTORS == {MAX_BLOCKS});").unwrap();
    writeln!(out, "CHECK(TRACEWEIR_MESSAGE_ARGUMENTS == {arguments}); CHECK(MAX_MOF_FIELDS == {fields});")
        .unwrap();
    for (name, value) in [
        ("WNODE_FLAG_TRACED_GUID", classic::flag::WNODE_FLAG_TRACED_GUID),
        ("WNODE_FLAG_LOG_WNODE", classic::flag::WNODE_FLAG_LOG_WNODE),
        ("WNODE_FLAG_USE_GUID_PTR", classic::flag::WNODE_FLAG_USE_GUID_PTR),
        ("WNODE_FLAG_USE_MOF_PTR", classic::flag::WNODE_FLAG_USE_MOF_PTR),
        ("WNODE_FLAG_USE_TIMESTAMP", classic::flag::WNODE_FLAG_USE_TIMESTAMP),
        ("(ULONG)WMI_ENABLE_EVENTS", classic::Request::Enable.code()),
        ("(ULONG)WMI_DISABLE_EVENTS", classic::Request::Disable.code()),
        ("(ULONG)WMI_CAPTURE_STATE", classic::Request::CaptureState.code()),
        ("(ULONG)HRESULT_FROM(0)", 0),
        ("(ULONG)HRESULT_FROM(50)", 0x8007_0032),
        ("(ULONG)HRESULT_FROM(0xC0000188u)", 0xC000_0188),
        ("(ULONG)E_INVALIDARG", 0x8007_0057),
        ("(ULONG)STATUS_NOT_SUPPORTED", 0xC000_00BB),
        ("(ULONG)STATUS_ENTRYPOINT_NOT_FOUND", 0xC000_0139),
    ] {
        writeln!(out, "CHECK({name} == {value}u);").unwrap();
    }
    out
}

/// Returns the named structures that a header defines, with their members. Members of anonymous
/// members count as members of the structure.
fn parse_structures(header: &str) -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(crate_path("include").join(header)).unwrap();
    let mut structures = Vec::new();
    // For each open brace: the members so far.
    let mut open: Vec<Vec<String>> = Vec::new();
    for line in text.lines().map(str::trim) {
        let begins_structure = ["typedef struct", "typedef union", "struct", "union", "__extension__"]
            .iter()
            .any(|word| line.starts_with(word));
        if begins_structure && line.ends_with('{') {
            open.push(Vec::new());
        } else if let Some(name) = line.strip_prefix('}')
            && let Some(members) = open.pop()
        {
            let name = name.trim().trim_end_matches(';').split(',').next().unwrap_or_default().trim();
            match (open.last_mut(), name) {
                (None, name) => structures.push((name.to_owned(), members)),
                (Some(outer), "") => outer.extend(members),
                (Some(outer), name) => outer.push(name.to_owned()),
            }
        } else if let Some(members) = open.last_mut()
            && let Some(declaration) = line.strip_suffix(';')
            // Bit-fields have no offset.
            && !declaration.contains(" : ")
        {
            let name = declaration.split('[').next().unwrap_or_default();
            members.push(name.rsplit([' ', '*']).next().unwrap_or_default().to_owned());
        }
    }
    assert!(open.is_empty(), "{header}: braces without an end: {open:?}");
    structures
}

/// Checks that no structure and no member of the headers is missing from the source.
fn assert_complete(source: &str) {
    let mut count = 0;
    for header in
        ["windows.h", "guiddef.h", "evntprov.h", "evntrace.h", "evntcons.h", "traceweir/evntrace_consumer.h"]
    {
        for (name, members) in parse_structures(header) {
            assert!(
                source.contains(&format!("CHECK(sizeof({name}) == ")),
                "{header}: no check of the size of {name}"
            );
            assert!(!members.is_empty(), "{header}: {name} has no members");
            for member in members {
                let row = format!("CHECK(offsetof({name}, {member}) == ");
                assert!(source.contains(&row), "{header}: no check of {member} of {name}");
                count += 1;
            }
        }
    }
    assert!(count > 120, "{count} members were found");
}

#[test]
fn c_and_rust_agree_on_every_structure_and_constant() {
    let prologue = "#include <evntprov.h>\n#include <evntrace.h>\n#include <evntcons.h>\n#include <winmeta.h>\n\
                #define HRESULT_FROM(code) __HRESULT_FROM_WIN32(code)\n\
                #ifdef __cplusplus\n#define CHECK(row) static_assert(row, #row)\n#define ALIGN(type) alignof(type)\n\
                #else\n#define CHECK(row) _Static_assert(row, #row)\n#define ALIGN(type) _Alignof(type)\n#endif\n";
    let source = consumer::add_checks(add_shared_constants(add_published_types(add_shared_structures(
        prologue.to_owned(),
    ))));
    assert!(source.lines().count() > 150);
    let source = controller::add_checks(source);
    assert_complete(&source);
    let folder = tempfile::tempdir().unwrap();
    for language in [C, CPP] {
        let file = folder.path().join(format!("layout.{}", language.extension));
        std::fs::write(&file, &source).unwrap();
        for compiler in language.compilers() {
            for standard in language.standards {
                let mut command = Command::new(compiler);
                command
                    .args(STRICT_FLAGS)
                    .arg("-fsyntax-only")
                    .arg(format!("-std={standard}"))
                    .arg("-I")
                    .arg(crate_path("include"));
                expect_success(command.arg(&file));
            }
        }
    }
}
