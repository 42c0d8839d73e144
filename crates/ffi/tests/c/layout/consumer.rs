//! Structures and constants of evntcons.h and of the consumer half of evntrace.h.

use std::fmt::Write as _;
use std::mem::offset_of;

use traceweir_c::consumer::layout::{
    BufferCallbackInformation, BufferContext, BufferHeader, ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP,
    EventHeader, EventRecord, EventTrace, EventTraceLogfile, ExtendedDataItem, InstanceItem,
    OpenTraceOptions, PROCESS_TRACE_MODE_EVENT_RECORD, PROCESS_TRACE_MODE_RAW_TIMESTAMP,
    PROCESS_TRACE_MODE_REAL_TIME, PartitionInformation, PartitionInformationV2, TimeZoneInformation,
    TraceLogfileHeader,
};
use traceweir_format::spec::event::{self, ExtType};

use super::{check_offset, check_size};

/// Adds checks of all structures and constants to the source.
pub(super) fn add_checks(out: String) -> String {
    add_constants(add_published(add_traces(add_records(out))))
}

fn add_records(mut out: String) -> String {
    structure!(out, "EVENT_HEADER", EventHeader {
        "Size": size, "HeaderType": header_type, "Flags": flags, "EventProperty": event_property, "ThreadId": thread_id,
        "ProcessId": process_id, "TimeStamp": time_stamp, "ProviderId": provider_id, "EventDescriptor": event_descriptor,
        "KernelTime": kernel_time, "UserTime": user_time, "ProcessorTime": kernel_time, "ActivityId": activity_id,
    });
    structure!(out, "ETW_BUFFER_CONTEXT", BufferContext {
        "ProcessorNumber": processor_index, "ProcessorIndex": processor_index, "LoggerId": logger_id,
    });
    structure!(out, "EVENT_HEADER_EXTENDED_DATA_ITEM", ExtendedDataItem {
        "Reserved1": reserved1, "ExtType": ext_type, "DataSize": data_size, "DataPtr": data_ptr,
    });
    structure!(out, "EVENT_EXTENDED_ITEM_INSTANCE", InstanceItem {
        "InstanceId": instance_id, "ParentInstanceId": parent_instance_id, "ParentGuid": parent_guid,
    });
    structure!(out, "EVENT_RECORD", EventRecord {
        "EventHeader": event_header, "BufferContext": buffer_context, "ExtendedDataCount": extended_data_count,
        "UserDataLength": user_data_length, "ExtendedData": extended_data, "UserData": user_data, "UserContext": user_context,
    });
    structure!(out, "EVENT_TRACE", EventTrace {
        "Header": header, "InstanceId": instance_id, "ParentInstanceId": parent_instance_id, "ParentGuid": parent_guid,
        "MofData": mof_data, "MofLength": mof_length, "ClientContext": buffer_context, "BufferContext": buffer_context,
    });
    out
}

fn add_traces(mut out: String) -> String {
    structure!(out, "TIME_ZONE_INFORMATION", TimeZoneInformation {
        "Bias": bias, "StandardName": standard_name, "StandardDate": standard_date, "StandardBias": standard_bias,
        "DaylightName": daylight_name, "DaylightDate": daylight_date, "DaylightBias": daylight_bias,
    });
    for name in ["TRACE_LOGFILE_HEADER", "TRACE_LOGFILE_HEADER64"] {
        add_log_file_header(&mut out, name);
    }
    for name in ["EVENT_TRACE_LOGFILEW", "EVENT_TRACE_LOGFILEA"] {
        add_log_file(&mut out, name);
    }
    structure!(out, "ETW_BUFFER_HEADER", BufferHeader {
        "Reserved1": reserved1, "TimeStamp": time_stamp, "Reserved2": reserved2, "ClientContext": client_context,
        "Reserved3": reserved3, "FilledBytes": filled_bytes, "Reserved4": reserved4,
    });
    structure!(out, "ETW_BUFFER_CALLBACK_INFORMATION", BufferCallbackInformation {
        "TraceHandle": trace_handle, "LogfileHeader": logfile_header, "BuffersRead": buffers_read,
    });
    structure!(out, "ETW_OPEN_TRACE_OPTIONS", OpenTraceOptions {
        "ProcessTraceModes": process_trace_modes, "EventCallback": event_callback, "EventCallbackContext": event_callback_context,
        "BufferCallback": buffer_callback, "BufferCallbackContext": buffer_callback_context,
    });
    structure!(out, "ETW_TRACE_PARTITION_INFORMATION", PartitionInformation {
        "PartitionId": partition_id, "ParentId": parent_id, "QpcOffsetFromRoot": qpc_offset_from_root, "PartitionType": partition_type,
    });
    structure!(out, "ETW_TRACE_PARTITION_INFORMATION_V2", PartitionInformationV2 {
        "QpcOffsetFromRoot": qpc_offset_from_root, "PartitionType": partition_type, "PartitionId": partition_id, "ParentId": parent_id,
    });
    out
}

fn add_log_file_header(out: &mut String, name: &str) {
    type Header = TraceLogfileHeader;
    check_size(out, name, size_of::<Header>(), align_of::<Header>());
    for (field, at) in [
        ("BufferSize", offset_of!(Header, buffer_size)),
        ("Version", offset_of!(Header, versions)),
        ("VersionDetail", offset_of!(Header, versions)),
        ("ProviderVersion", offset_of!(Header, provider_version)),
        ("NumberOfProcessors", offset_of!(Header, number_of_processors)),
        ("EndTime", offset_of!(Header, end_time)),
        ("TimerResolution", offset_of!(Header, timer_resolution)),
        ("MaximumFileSize", offset_of!(Header, maximum_file_size)),
        ("LogFileMode", offset_of!(Header, log_file_mode)),
        ("BuffersWritten", offset_of!(Header, buffers_written)),
        ("LogInstanceGuid", offset_of!(Header, start_buffers)),
        ("StartBuffers", offset_of!(Header, start_buffers)),
        ("PointerSize", offset_of!(Header, pointer_size)),
        ("EventsLost", offset_of!(Header, events_lost)),
        ("CpuSpeedInMHz", offset_of!(Header, cpu_speed_in_mhz)),
        ("LoggerName", offset_of!(Header, logger_name)),
        ("LogFileName", offset_of!(Header, log_file_name)),
        ("TimeZone", offset_of!(Header, time_zone)),
        ("BootTime", offset_of!(Header, boot_time)),
        ("PerfFreq", offset_of!(Header, perf_freq)),
        ("StartTime", offset_of!(Header, start_time)),
        ("ReservedFlags", offset_of!(Header, reserved_flags)),
        ("BuffersLost", offset_of!(Header, buffers_lost)),
    ] {
        check_offset(out, name, field, at);
    }
}

fn add_log_file(out: &mut String, name: &str) {
    type Logfile = EventTraceLogfile;
    check_size(out, name, size_of::<Logfile>(), align_of::<Logfile>());
    for (field, at) in [
        ("LogFileName", offset_of!(Logfile, log_file_name)),
        ("LoggerName", offset_of!(Logfile, logger_name)),
        ("CurrentTime", offset_of!(Logfile, current_time)),
        ("BuffersRead", offset_of!(Logfile, buffers_read)),
        ("LogFileMode", offset_of!(Logfile, process_trace_mode)),
        ("ProcessTraceMode", offset_of!(Logfile, process_trace_mode)),
        ("CurrentEvent", offset_of!(Logfile, current_event)),
        ("LogfileHeader", offset_of!(Logfile, logfile_header)),
        ("BufferCallback", offset_of!(Logfile, buffer_callback)),
        ("BufferSize", offset_of!(Logfile, buffer_size)),
        ("Filled", offset_of!(Logfile, filled)),
        ("EventsLost", offset_of!(Logfile, events_lost)),
        ("EventCallback", offset_of!(Logfile, event_callback)),
        ("EventRecordCallback", offset_of!(Logfile, event_callback)),
        ("IsKernelTrace", offset_of!(Logfile, is_kernel_trace)),
        ("Context", offset_of!(Logfile, context)),
    ] {
        check_offset(out, name, field, at);
    }
}

/// A structure: name, size, alignment, members with their offsets.
type PublishedStructure = (&'static str, usize, usize, &'static [(&'static str, usize)]);

/// Published structures and members that only C has.
#[rustfmt::skip]
const PUBLISHED: &[PublishedStructure] = &[
    ("PROCESSTRACE_HANDLE", 8, 8, &[]),
    ("ETW_PROCESS_HANDLE_INFO_TYPE", 4, 4, &[]),
    ("ETW_PROCESS_TRACE_MODES", 4, 4, &[]),
    ("ETW_BUFFER_CONTEXT", 4, 2, &[("Alignment", 1)]),
    ("TRACEWEIR_VERSION_DETAIL", 4, 1, &[("MajorVersion", 0), ("MinorVersion", 1), ("SubVersion", 2), ("SubMinorVersion", 3)]),
    ("TRACE_LOGFILE_HEADER32", 272, 8, &[
        ("BufferSize", 0), ("Version", 4), ("VersionDetail", 4), ("ProviderVersion", 8), ("NumberOfProcessors", 12), ("EndTime", 16),
        ("TimerResolution", 24), ("MaximumFileSize", 28), ("LogFileMode", 32), ("BuffersWritten", 36), ("LogInstanceGuid", 40),
        ("StartBuffers", 40), ("PointerSize", 44), ("EventsLost", 48), ("CpuSpeedInMHz", 52), ("LoggerName", 56), ("LogFileName", 60),
        ("TimeZone", 64), ("BootTime", 240), ("PerfFreq", 248), ("StartTime", 256), ("ReservedFlags", 264), ("BuffersLost", 268),
    ]),
    ("EVENT_EXTENDED_ITEM_RELATED_ACTIVITYID", 16, 4, &[("RelatedActivityId", 0)]),
    ("EVENT_EXTENDED_ITEM_TS_ID", 4, 4, &[("SessionId", 0)]),
    ("EVENT_EXTENDED_ITEM_STACK_TRACE32", 16, 8, &[("MatchId", 0), ("Address", 8)]),
    ("EVENT_EXTENDED_ITEM_STACK_TRACE64", 16, 8, &[("MatchId", 0), ("Address", 8)]),
    ("EVENT_EXTENDED_ITEM_STACK_KEY32", 16, 8, &[("MatchId", 0), ("StackKey", 8), ("Padding", 12)]),
    ("EVENT_EXTENDED_ITEM_STACK_KEY64", 16, 8, &[("MatchId", 0), ("StackKey", 8)]),
    ("EVENT_EXTENDED_ITEM_PEBS_INDEX", 8, 8, &[("PebsIndex", 0)]),
    ("EVENT_EXTENDED_ITEM_PMC_COUNTERS", 8, 8, &[("Counter", 0)]),
    ("EVENT_EXTENDED_ITEM_PROCESS_START_KEY", 8, 8, &[("ProcessStartKey", 0)]),
    ("EVENT_EXTENDED_ITEM_EVENT_KEY", 8, 8, &[("Key", 0)]),
];

fn add_published(mut out: String) -> String {
    for (name, bytes, align, fields) in PUBLISHED {
        check_size(&mut out, name, *bytes, *align);
        fields.iter().for_each(|(field, at)| check_offset(&mut out, name, field, *at));
    }
    out
}

fn add_constants(mut out: String) -> String {
    macro_rules! flags {
        ($($name:ident),* $(,)?) => {
            $(writeln!(out, "CHECK({} == {});", stringify!($name), event::$name).unwrap();)*
        };
    }
    flags!(
        EVENT_HEADER_FLAG_EXTENDED_INFO,
        EVENT_HEADER_FLAG_PRIVATE_SESSION,
        EVENT_HEADER_FLAG_STRING_ONLY,
        EVENT_HEADER_FLAG_TRACE_MESSAGE,
        EVENT_HEADER_FLAG_NO_CPUTIME,
        EVENT_HEADER_FLAG_32_BIT_HEADER,
        EVENT_HEADER_FLAG_64_BIT_HEADER,
        EVENT_HEADER_FLAG_DECODE_GUID,
        EVENT_HEADER_FLAG_CLASSIC_HEADER,
        EVENT_HEADER_FLAG_PROCESSOR_INDEX,
    );
    for (name, kind) in [
        ("RELATED_ACTIVITYID", ExtType::RELATED_ACTIVITYID),
        ("INSTANCE_INFO", ExtType::INSTANCE_INFO),
        ("STACK_TRACE32", ExtType::STACK_TRACE32),
        ("STACK_TRACE64", ExtType::STACK_TRACE64),
        ("PMC_COUNTERS", ExtType::PMC_COUNTERS),
        ("EVENT_SCHEMA_TL", ExtType::EVENT_SCHEMA_TL),
        ("PROV_TRAITS", ExtType::PROV_TRAITS),
        ("CONTROL_GUID", ExtType::CONTROL_GUID),
    ] {
        writeln!(out, "CHECK(EVENT_HEADER_EXT_TYPE_{name} == {});", kind.0).unwrap();
    }
    for (name, value) in [
        ("PROCESS_TRACE_MODE_REAL_TIME", PROCESS_TRACE_MODE_REAL_TIME),
        ("PROCESS_TRACE_MODE_RAW_TIMESTAMP", PROCESS_TRACE_MODE_RAW_TIMESTAMP),
        ("PROCESS_TRACE_MODE_EVENT_RECORD", PROCESS_TRACE_MODE_EVENT_RECORD),
        ("ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP", ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP),
        ("EtwQueryPartitionInformation", 1),
        ("EtwQueryPartitionInformationV2", 2),
        ("EtwQueryLastDroppedTimes", 3),
        ("EtwQueryLogFileHeader", 4),
        ("EtwQueryProcessHandleInfoMax", 5),
        ("EVENT_HEADER_EXT_TYPE_MAX", 19),
    ] {
        writeln!(out, "CHECK((ULONG){name} == {value}u);").unwrap();
    }
    out
}
