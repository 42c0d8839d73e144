//! Structures and constants of controllers.

use std::fmt::Write as _;
use std::mem::offset_of;

use traceweir::controller::access::Rights;
use traceweir_c::types::controller::{
    EnableTraceParameters, EnableTraceParametersV1, EventTraceProperties, EventTracePropertiesV2,
    TraceGuidProperties,
};
use traceweir_format::spec::info::{InfoClass, MAX_TRACE_SET_INFO_CLASS};
use traceweir_format::spec::{access, enable, session};

use super::{check_offset, check_size, parse_structures};

/// Adds checks of the members of EVENT_TRACE_PROPERTIES to structure `name`.
/// EVENT_TRACE_PROPERTIES_V2 begins with the same members.
fn add_properties_members(out: &mut String, name: &str) {
    macro_rules! members {
        ($($c:literal $field:ident,)*) => {$(check_offset(out, name, $c, offset_of!(EventTraceProperties, $field));)*};
    }
    members! {
        "Wnode" wnode,
        "BufferSize" buffer_size,
        "MinimumBuffers" minimum_buffers,
        "MaximumBuffers" maximum_buffers,
        "MaximumFileSize" maximum_file_size,
        "LogFileMode" log_file_mode,
        "FlushTimer" flush_timer,
        "EnableFlags" enable_flags,
        "AgeLimit" flush_threshold,
        "FlushThreshold" flush_threshold,
        "NumberOfBuffers" number_of_buffers,
        "FreeBuffers" free_buffers,
        "EventsLost" events_lost,
        "BuffersWritten" buffers_written,
        "LogBuffersLost" log_buffers_lost,
        "RealTimeBuffersLost" real_time_buffers_lost,
        "LoggerThreadId" logger_thread_id,
        "LogFileNameOffset" log_file_name_offset,
        "LoggerNameOffset" logger_name_offset,
    }
}

/// The headers for controllers.
const HEADERS: [&str; 3] =
    ["traceweir/evntrace_control.h", "traceweir/evntrace_info.h", "traceweir/evntcons_access.h"];

/// Adds checks of all structures and constants to the source, and fails if the headers define a
/// structure or member that is not checked.
pub(super) fn add_checks(out: String) -> String {
    let source = add_constants(add_published(add_structures(out)));
    for (name, members) in HEADERS.into_iter().flat_map(parse_structures) {
        assert!(source.contains(&format!("CHECK(sizeof({name}) == ")), "no check of the size of {name}");
        for member in members {
            assert!(
                source.contains(&format!("CHECK(offsetof({name}, {member}) == ")),
                "no check of {member} of {name}"
            );
        }
    }
    source
}

/// Adds checks of the structures that Rust also defines.
fn add_structures(mut out: String) -> String {
    let name = "EVENT_TRACE_PROPERTIES";
    check_size(&mut out, name, size_of::<EventTraceProperties>(), align_of::<EventTraceProperties>());
    add_properties_members(&mut out, name);
    let name = "EVENT_TRACE_PROPERTIES_V2";
    check_size(&mut out, name, size_of::<EventTracePropertiesV2>(), align_of::<EventTracePropertiesV2>());
    add_properties_members(&mut out, name);
    for (member, at) in [
        ("V2Control", offset_of!(EventTracePropertiesV2, v2_control)),
        ("FilterDescCount", offset_of!(EventTracePropertiesV2, filter_desc_count)),
        ("FilterDesc", offset_of!(EventTracePropertiesV2, filter_desc)),
        ("V2Options", offset_of!(EventTracePropertiesV2, v2_options)),
    ] {
        check_offset(&mut out, name, member, at);
    }
    let add_v1_members = |out: &mut String, name: &str| {
        check_offset(out, name, "Version", offset_of!(EnableTraceParametersV1, version));
        check_offset(out, name, "EnableProperty", offset_of!(EnableTraceParametersV1, enable_property));
        check_offset(out, name, "ControlFlags", offset_of!(EnableTraceParametersV1, control_flags));
        check_offset(out, name, "SourceId", offset_of!(EnableTraceParametersV1, source_id));
        check_offset(out, name, "EnableFilterDesc", offset_of!(EnableTraceParametersV1, enable_filter_desc));
    };
    let name = "ENABLE_TRACE_PARAMETERS_V1";
    check_size(&mut out, name, size_of::<EnableTraceParametersV1>(), align_of::<EnableTraceParametersV1>());
    add_v1_members(&mut out, name);
    let name = "ENABLE_TRACE_PARAMETERS";
    check_size(&mut out, name, size_of::<EnableTraceParameters>(), align_of::<EnableTraceParameters>());
    add_v1_members(&mut out, name);
    check_offset(&mut out, name, "FilterDescCount", offset_of!(EnableTraceParameters, filter_desc_count));
    let name = "TRACE_GUID_PROPERTIES";
    check_size(&mut out, name, size_of::<TraceGuidProperties>(), align_of::<TraceGuidProperties>());
    for (member, at) in [
        ("Guid", offset_of!(TraceGuidProperties, guid)),
        ("GuidType", offset_of!(TraceGuidProperties, guid_type)),
        ("LoggerId", offset_of!(TraceGuidProperties, logger_id)),
        ("EnableLevel", offset_of!(TraceGuidProperties, enable_level)),
        ("EnableFlags", offset_of!(TraceGuidProperties, enable_flags)),
        ("IsEnable", offset_of!(TraceGuidProperties, is_enable)),
    ] {
        check_offset(&mut out, name, member, at);
    }
    out
}

/// A structure: name, size, alignment, members with their offsets.
type PublishedStructure = (&'static str, usize, usize, &'static [(&'static str, usize)]);

/// Published structures that only C has, most of them for information classes.
#[rustfmt::skip]
const PUBLISHED: &[PublishedStructure] = &[
    ("CLASSIC_EVENT_ID", 24, 4, &[("EventGuid", 0), ("Type", 16), ("Reserved", 17)]),
    ("TRACE_GUID_INFO", 8, 4, &[("InstanceCount", 0), ("Reserved", 4)]),
    ("TRACE_PROVIDER_INSTANCE_INFO", 16, 4, &[("NextOffset", 0), ("EnableCount", 4), ("Pid", 8), ("Flags", 12)]),
    ("TRACE_ENABLE_INFO", 32, 8, &[
        ("IsEnabled", 0), ("Level", 4), ("Reserved1", 5), ("LoggerId", 6), ("EnableProperty", 8), ("Reserved2", 12), ("MatchAnyKeyword", 16),
        ("MatchAllKeyword", 24),
    ]),
    ("TRACE_PROFILE_INTERVAL", 8, 4, &[("Source", 0), ("Interval", 4)]),
    ("PROFILE_SOURCE_INFO", 32, 8, &[
        ("NextEntryOffset", 0), ("Source", 4), ("MinInterval", 8), ("MaxInterval", 12), ("Reserved", 16), ("Description", 24),
    ]),
    ("TRACE_VERSION_INFO", 8, 4, &[("EtwTraceProcessingVersion", 0), ("Reserved", 4)]),
    ("TRACE_PERIODIC_CAPTURE_STATE_INFO", 8, 4, &[("CaptureStateFrequencyInSeconds", 0), ("ProviderCount", 4), ("Reserved", 6)]),
    ("TRACE_STACK_CACHING_INFO", 12, 4, &[("Enabled", 0), ("CacheSize", 4), ("BucketCount", 8)]),
    ("ETW_PMC_COUNTER_OWNER", 12, 4, &[("OwnerType", 0), ("ProfileSource", 4), ("OwnerTag", 8)]),
    ("ETW_PMC_COUNTER_OWNERSHIP_STATUS", 20, 4, &[("ProcessorNumber", 0), ("NumberOfCounters", 4), ("CounterOwners", 8)]),
    ("ETW_PMC_SESSION_INFO", 16, 4, &[
        ("NextEntryOffset", 0), ("LoggerId", 4), ("Reserved", 6), ("ProfileSourceCount", 8), ("HookIdCount", 12),
    ]),
    ("TRACE_CONTEXT_REGISTER_INFO", 8, 4, &[("RegisterTypes", 0), ("Reserved", 4)]),
    ("TRACE_QUERY_INFO_CLASS", 4, 4, &[]),
    ("TRACE_INFO_CLASS", 4, 4, &[]),
    ("EVENTSECURITYOPERATION", 4, 4, &[]),
    ("CONTROLTRACE_ID", 8, 8, &[]),
];

/// Adds checks of the structures that only C has.
fn add_published(mut out: String) -> String {
    for (name, bytes, align, members) in PUBLISHED {
        check_size(&mut out, name, *bytes, *align);
        for (member, at) in *members {
            check_offset(&mut out, name, member, *at);
        }
    }
    out
}

/// Adds checks of the constants that Rust also defines.
fn add_constants(mut out: String) -> String {
    let mut check = |name: &str, value: u32| writeln!(out, "CHECK({name} == {value}u);").unwrap();
    macro_rules! check_constants {
        ($($module:ident::{$($name:ident),* $(,)?}),* $(,)?) => {$($(check(stringify!($name), $module::$name);)*)*};
    }
    check_constants!(enable::{
        EVENT_ENABLE_PROPERTY_SID, EVENT_ENABLE_PROPERTY_TS_ID, EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_ENABLE_PROPERTY_PSM_KEY,
        EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0,
        EVENT_ENABLE_PROPERTY_PROCESS_START_KEY, EVENT_ENABLE_PROPERTY_EVENT_KEY, EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE,
        EVENT_ENABLE_PROPERTY_ENABLE_SILOS, EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING,
    }, session::{
        EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_NEWFILE,
        EVENT_TRACE_FILE_MODE_PREALLOCATE, EVENT_TRACE_NONSTOPPABLE_MODE, EVENT_TRACE_SECURE_MODE, EVENT_TRACE_REAL_TIME_MODE,
        EVENT_TRACE_DELAY_OPEN_FILE_MODE, EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_ADD_HEADER_MODE,
        EVENT_TRACE_USE_KBYTES_FOR_SIZE, EVENT_TRACE_USE_GLOBAL_SEQUENCE, EVENT_TRACE_USE_LOCAL_SEQUENCE, EVENT_TRACE_RELOG_MODE,
        EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_MODE_RESERVED, EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN,
        EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN, EVENT_TRACE_USE_PAGED_MEMORY, EVENT_TRACE_SYSTEM_LOGGER_MODE,
        EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_INDEPENDENT_SESSION_MODE, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
        EVENT_TRACE_ADDTO_TRIAGE_DUMP,
    });
    for (rights, name, _) in Rights::NAMED {
        check(name, rights.0);
    }
    check("WMIGUID_ALL_ACCESS", Rights::WMIGUID_ALL_ACCESS.0);
    for (name, operation) in [
        ("(ULONG)EventSecuritySetDACL", access::SecurityOperation::SET_DACL),
        ("(ULONG)EventSecuritySetSACL", access::SecurityOperation::SET_SACL),
        ("(ULONG)EventSecurityAddDACL", access::SecurityOperation::ADD_DACL),
        ("(ULONG)EventSecurityAddSACL", access::SecurityOperation::ADD_SACL),
    ] {
        check(name, operation.0);
    }
    for class in InfoClass::ALL {
        check(&format!("(ULONG){}", class.name()), class.number());
    }
    check("(ULONG)MaxTraceSetInfoClass", MAX_TRACE_SET_INFO_CLASS);
    out
}
