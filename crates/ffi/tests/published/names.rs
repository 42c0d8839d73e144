//! The names of the functions and macros of the published headers.
//!
//! The names are from Microsoft's documentation, the headers of mingw-w64, and the windows-sys
//! crate. All tracing functions of that crate are listed. Macros that are constants are in
//! `constants` instead.

/// A published header.
pub(crate) struct PublishedHeader {
    pub(crate) name: &'static str,
    /// Functions, and C++ classes.
    pub(crate) functions: &'static [&'static str],
    /// Macros, and functions that the header defines.
    pub(crate) macros: &'static [&'static str],
}

#[rustfmt::skip]
pub(crate) const HEADERS: [PublishedHeader; 6] = [
    PublishedHeader {
        name: "evntprov.h",
        functions: &[
            "EventActivityIdControl", "EventEnabled", "EventProviderEnabled", "EventRegister",
            "EventSetInformation", "EventUnregister", "EventWrite", "EventWriteEx", "EventWriteString",
            "EventWriteTransfer",
        ],
        macros: &[
            "EVNTAPI", "EtwGetTraitFromProviderTraits", "EventDataDescCreate", "EventDescCreate",
            "EventDescGetChannel", "EventDescGetId", "EventDescGetKeyword", "EventDescGetLevel",
            "EventDescGetOpcode", "EventDescGetTask", "EventDescGetVersion", "EventDescOrKeyword",
            "EventDescSetChannel", "EventDescSetId", "EventDescSetKeyword", "EventDescSetLevel",
            "EventDescSetOpcode", "EventDescSetTask", "EventDescSetVersion", "EventDescZero",
        ],
    },
    PublishedHeader {
        name: "evntrace.h",
        functions: &[
            "CloseTrace", "ControlTraceA", "ControlTraceW", "CreateTraceInstanceId", "EnableTrace",
            "EnableTraceEx", "EnableTraceEx2", "EnumerateTraceGuids", "EnumerateTraceGuidsEx", "FlushTraceA",
            "FlushTraceW", "GetTraceEnableFlags", "GetTraceEnableLevel", "GetTraceLoggerHandle", "OpenTraceA",
            "OpenTraceFromBufferStream", "OpenTraceFromFile", "OpenTraceFromRealTimeLogger",
            "OpenTraceFromRealTimeLoggerWithAllocationOptions", "OpenTraceW", "ProcessTrace",
            "ProcessTraceAddBufferToBufferStream", "ProcessTraceBufferDecrementReference",
            "ProcessTraceBufferIncrementReference", "QueryAllTracesA", "QueryAllTracesW", "QueryTraceA",
            "QueryTraceProcessingHandle", "QueryTraceW", "RegisterTraceGuidsA", "RegisterTraceGuidsW",
            "RemoveTraceCallback", "SetTraceCallback", "StartTraceA", "StartTraceW", "StopTraceA",
            "StopTraceW", "TraceConfigureLastBranchRecord", "TraceEvent", "TraceEventInstance", "TraceMessage", "TraceMessageVa",
            "TraceQueryInformation", "TraceSetInformation", "UnregisterTraceGuids", "UpdateTraceA",
            "UpdateTraceW",
        ],
        macros: &[
            "ControlTrace", "DEFINE_TRACE_MOF_FIELD", "EVENT_LOGGER_NAME", "EVENT_TRACE_LOGFILE", "FlushTrace",
            "GLOBAL_LOGGER_NAME", "INVALID_PROCESSTRACE_HANDLE", "KERNEL_LOGGER_NAME", "OpenTrace",
            "PEVENT_TRACE_BUFFER_CALLBACK", "PEVENT_TRACE_LOGFILE", "QueryAllTraces", "QueryTrace",
            "RegisterTraceGuids", "StartTrace", "StopTrace", "TRACE_MESSAGE_MAXIMUM_SIZE", "UpdateTrace", "WMIAPI",
        ],
    },
    PublishedHeader {
        name: "evntcons.h",
        functions: &[
            "EventAccessControl", "EventAccessQuery", "EventAccessRemove",
        ],
        macros: &[
            "GetEventProcessorIndex",
        ],
    },
    PublishedHeader {
        name: "tdh.h",
        functions: &[
            "TdhAggregatePayloadFilters", "TdhCleanupPayloadEventFilterDescriptor", "TdhCloseDecodingHandle",
            "TdhCreatePayloadFilter", "TdhDeletePayloadFilter", "TdhEnumerateManifestProviderEvents",
            "TdhEnumerateProviderFieldInformation", "TdhEnumerateProviderFilters", "TdhEnumerateProviders",
            "TdhEnumerateProvidersForDecodingSource", "TdhFormatProperty", "TdhGetDecodingParameter",
            "TdhGetEventInformation", "TdhGetEventMapInformation", "TdhGetManifestEventInformation",
            "TdhGetProperty", "TdhGetPropertySize", "TdhGetWppMessage", "TdhGetWppProperty", "TdhLoadManifest",
            "TdhLoadManifestFromBinary", "TdhLoadManifestFromMemory", "TdhOpenDecodingHandle",
            "TdhQueryProviderFieldInformation", "TdhSetDecodingParameter", "TdhUnloadManifest",
            "TdhUnloadManifestFromMemory",
        ],
        macros: &[
            "EMI_MAP_FORMAT", "EMI_MAP_INPUT", "EMI_MAP_NAME", "EMI_MAP_OUTPUT", "PEI_PROVIDER_NAME",
            "PFI_FIELD_MESSAGE", "PFI_FIELD_NAME", "PFI_FILTER_MESSAGE", "PFI_PROPERTY_NAME", "TDHAPI",
            "TEI_ACTIVITYID_NAME", "TEI_CHANNEL_NAME", "TEI_EVENT_MESSAGE", "TEI_KEYWORDS_NAME",
            "TEI_LEVEL_NAME", "TEI_MAP_NAME", "TEI_OPCODE_NAME", "TEI_PROPERTY_NAME", "TEI_PROVIDER_MESSAGE",
            "TEI_PROVIDER_NAME", "TEI_RELATEDACTIVITYID_NAME", "TEI_TASK_NAME",
        ],
    },
    PublishedHeader {
        name: "TraceLoggingProvider.h",
        functions: &[],
        macros: &[
            "TLG_EVENT_REGISTER", "TLG_EVENT_SET_INFORMATION", "TLG_EVENT_UNREGISTER", "TLG_EVENT_WRITE_EX",
            "TLG_EVENT_WRITE_TRANSFER", "TLG_HAVE_EVENT_SET_INFORMATION", "TLG_METADATA_SEGMENT_BASE",
            "TLG_NONPAGED_SEGMENT", "TLG_PAGED_SEGMENT", "TRACELOGGING_DECLARE_PROVIDER",
            "TRACELOGGING_DEFINE_PROVIDER", "TRACELOGGING_DEFINE_PROVIDER_STORAGE",
            "TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED0", "TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED1",
            "TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED2", "TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED3",
            "TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED4", "TraceLoggingAnsiString", "TraceLoggingBinary",
            "TraceLoggingBinaryBuffer", "TraceLoggingBinaryBufferEx", "TraceLoggingBinaryEx",
            "TraceLoggingBool", "TraceLoggingBoolArray", "TraceLoggingBoolFixedArray", "TraceLoggingBoolean",
            "TraceLoggingBooleanArray", "TraceLoggingBooleanFixedArray", "TraceLoggingChannel",
            "TraceLoggingChar", "TraceLoggingChar16", "TraceLoggingChar16Array",
            "TraceLoggingChar16FixedArray", "TraceLoggingCharArray", "TraceLoggingCharFixedArray",
            "TraceLoggingCodePointer", "TraceLoggingCodePointerArray", "TraceLoggingCodePointerFixedArray",
            "TraceLoggingCountedString", "TraceLoggingCountedString16", "TraceLoggingCountedUtf8String",
            "TraceLoggingCountedWideString", "TraceLoggingCustom", "TraceLoggingCustomAttribute",
            "TraceLoggingDescription", "TraceLoggingEventTag", "TraceLoggingFileTime",
            "TraceLoggingFileTimeArray", "TraceLoggingFileTimeFixedArray", "TraceLoggingFileTimeUtc",
            "TraceLoggingFileTimeUtcArray", "TraceLoggingFileTimeUtcFixedArray", "TraceLoggingFloat32",
            "TraceLoggingFloat32Array", "TraceLoggingFloat32FixedArray", "TraceLoggingFloat64",
            "TraceLoggingFloat64Array", "TraceLoggingFloat64FixedArray", "TraceLoggingGuid",
            "TraceLoggingGuidArray", "TraceLoggingGuidFixedArray", "TraceLoggingHResult",
            "TraceLoggingHexInt16", "TraceLoggingHexInt16Array", "TraceLoggingHexInt16FixedArray",
            "TraceLoggingHexInt32", "TraceLoggingHexInt32Array", "TraceLoggingHexInt32FixedArray",
            "TraceLoggingHexInt64", "TraceLoggingHexInt64Array", "TraceLoggingHexInt64FixedArray",
            "TraceLoggingHexInt8", "TraceLoggingHexInt8Array", "TraceLoggingHexInt8FixedArray",
            "TraceLoggingHexIntPtr", "TraceLoggingHexIntPtrArray", "TraceLoggingHexIntPtrFixedArray",
            "TraceLoggingHexLong", "TraceLoggingHexLongArray", "TraceLoggingHexLongFixedArray",
            "TraceLoggingHexUInt16", "TraceLoggingHexUInt16Array", "TraceLoggingHexUInt16FixedArray",
            "TraceLoggingHexUInt32", "TraceLoggingHexUInt32Array", "TraceLoggingHexUInt32FixedArray",
            "TraceLoggingHexUInt64", "TraceLoggingHexUInt64Array", "TraceLoggingHexUInt64FixedArray",
            "TraceLoggingHexUInt8", "TraceLoggingHexUInt8Array", "TraceLoggingHexUInt8FixedArray",
            "TraceLoggingHexUIntPtr", "TraceLoggingHexUIntPtrArray", "TraceLoggingHexUIntPtrFixedArray",
            "TraceLoggingHexULong", "TraceLoggingHexULongArray", "TraceLoggingHexULongFixedArray",
            "TraceLoggingIPv4Address", "TraceLoggingIPv6Address", "TraceLoggingIdVersion", "TraceLoggingInt16",
            "TraceLoggingInt16Array", "TraceLoggingInt16FixedArray", "TraceLoggingInt32",
            "TraceLoggingInt32Array", "TraceLoggingInt32FixedArray", "TraceLoggingInt64",
            "TraceLoggingInt64Array", "TraceLoggingInt64FixedArray", "TraceLoggingInt8",
            "TraceLoggingInt8Array", "TraceLoggingInt8FixedArray", "TraceLoggingIntPtr",
            "TraceLoggingIntPtrArray", "TraceLoggingIntPtrFixedArray", "TraceLoggingKeyword",
            "TraceLoggingLevel", "TraceLoggingLong", "TraceLoggingLongArray", "TraceLoggingLongFixedArray",
            "TraceLoggingNTStatus", "TraceLoggingOpcode", "TraceLoggingOptionGroup", "TraceLoggingPackedData",
            "TraceLoggingPackedDataEx", "TraceLoggingPackedField", "TraceLoggingPackedFieldEx",
            "TraceLoggingPackedMetadata", "TraceLoggingPackedMetadataEx", "TraceLoggingPackedStruct",
            "TraceLoggingPackedStructArray", "TraceLoggingPid", "TraceLoggingPointer",
            "TraceLoggingPointerArray", "TraceLoggingPointerFixedArray", "TraceLoggingPort",
            "TraceLoggingProviderEnabled", "TraceLoggingProviderId", "TraceLoggingRegister",
            "TraceLoggingRegisterEx", "TraceLoggingSetInformation", "TraceLoggingSid",
            "TraceLoggingSocketAddress", "TraceLoggingString", "TraceLoggingString16", "TraceLoggingStruct",
            "TraceLoggingSystemTime", "TraceLoggingSystemTimeArray", "TraceLoggingSystemTimeFixedArray",
            "TraceLoggingSystemTimeUtc", "TraceLoggingSystemTimeUtcArray",
            "TraceLoggingSystemTimeUtcFixedArray", "TraceLoggingTid", "TraceLoggingUInt16",
            "TraceLoggingUInt16Array", "TraceLoggingUInt16FixedArray", "TraceLoggingUInt32",
            "TraceLoggingUInt32Array", "TraceLoggingUInt32FixedArray", "TraceLoggingUInt64",
            "TraceLoggingUInt64Array", "TraceLoggingUInt64FixedArray", "TraceLoggingUInt8",
            "TraceLoggingUInt8Array", "TraceLoggingUInt8FixedArray", "TraceLoggingUIntPtr",
            "TraceLoggingUIntPtrArray", "TraceLoggingUIntPtrFixedArray", "TraceLoggingULong",
            "TraceLoggingULongArray", "TraceLoggingULongFixedArray", "TraceLoggingUnicodeString",
            "TraceLoggingUnregister", "TraceLoggingUtf8String", "TraceLoggingValue", "TraceLoggingWChar",
            "TraceLoggingWCharArray", "TraceLoggingWCharFixedArray", "TraceLoggingWideString",
            "TraceLoggingWinError", "TraceLoggingWrite", "TraceLoggingWriteActivity", "TraceLoggingWriteEx",
        ],
    },
    PublishedHeader {
        name: "TraceLoggingActivity.h",
        functions: &[
            "TraceLoggingActivity", "TraceLoggingThreadActivity", "TraceLoggingThreadActivityIdSetter",
        ],
        macros: &[
            "TraceLoggingFunction", "TraceLoggingWriteStart", "TraceLoggingWriteStop",
            "TraceLoggingWriteTagged",
        ],
    },
];
