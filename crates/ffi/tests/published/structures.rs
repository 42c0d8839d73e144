//! Every structure for tracing in the windows-sys crate, member by member. The crate is generated
//! from the metadata of Windows.

use std::mem::offset_of;

use windows_sys::Win32::System::Diagnostics::Etw;

use crate::layout::StructureLayout;

/// Adds the layout of a structure: `structure!(out, NAME { member, Anonymous.member, … })`. In C,
/// members of anonymous members are members of the structure.
macro_rules! structure {
    ($out:ident, $name:ident { $($($part:ident).+),* $(,)? }) => {
        $out.push(StructureLayout {
            name: stringify!($name),
            size: size_of::<Etw::$name>(),
            align: align_of::<Etw::$name>(),
            members: vec![$((stringify!($($part).+), offset_of!(Etw::$name, $($part).+))),*],
        });
    };
}

#[rustfmt::skip]
pub(crate) fn list_layouts() -> Vec<StructureLayout> {
    let mut out = Vec::new();
    structure!(out, CLASSIC_EVENT_ID { EventGuid, Type, Reserved });
    structure!(out, ENABLE_TRACE_PARAMETERS { Version, EnableProperty, ControlFlags, SourceId, EnableFilterDesc, FilterDescCount });
    structure!(out, ENABLE_TRACE_PARAMETERS_V1 { Version, EnableProperty, ControlFlags, SourceId, EnableFilterDesc });
    structure!(out, ETW_BUFFER_CALLBACK_INFORMATION { TraceHandle, LogfileHeader, BuffersRead });
    structure!(out, ETW_BUFFER_CONTEXT { Anonymous.Anonymous.ProcessorNumber, Anonymous.Anonymous.Alignment, Anonymous.ProcessorIndex, LoggerId });
    structure!(out, ETW_BUFFER_HEADER { Reserved1, TimeStamp, Reserved2, ClientContext, Reserved3, FilledBytes, Reserved4 });
    structure!(out, ETW_OPEN_TRACE_OPTIONS { ProcessTraceModes, EventCallback, EventCallbackContext, BufferCallback, BufferCallbackContext });
    structure!(out, ETW_PMC_COUNTER_OWNER { OwnerType, ProfileSource, OwnerTag });
    structure!(out, ETW_PMC_COUNTER_OWNERSHIP_STATUS { ProcessorNumber, NumberOfCounters, CounterOwners });
    structure!(out, ETW_PMC_SESSION_INFO { NextEntryOffset, LoggerId, Reserved, ProfileSourceCount, HookIdCount });
    structure!(out, ETW_TRACE_PARTITION_INFORMATION { PartitionId, ParentId, QpcOffsetFromRoot, PartitionType });
    structure!(out, ETW_TRACE_PARTITION_INFORMATION_V2 { QpcOffsetFromRoot, PartitionType, PartitionId, ParentId });
    structure!(out, EVENT_DATA_DESCRIPTOR { Ptr, Size, Anonymous.Reserved, Anonymous.Anonymous.Type, Anonymous.Anonymous.Reserved1, Anonymous.Anonymous.Reserved2 });
    structure!(out, EVENT_DESCRIPTOR { Id, Version, Channel, Level, Opcode, Task, Keyword });
    structure!(out, EVENT_EXTENDED_ITEM_EVENT_KEY { Key });
    structure!(out, EVENT_EXTENDED_ITEM_INSTANCE { InstanceId, ParentInstanceId, ParentGuid });
    structure!(out, EVENT_EXTENDED_ITEM_PEBS_INDEX { PebsIndex });
    structure!(out, EVENT_EXTENDED_ITEM_PMC_COUNTERS { Counter });
    structure!(out, EVENT_EXTENDED_ITEM_PROCESS_START_KEY { ProcessStartKey });
    structure!(out, EVENT_EXTENDED_ITEM_RELATED_ACTIVITYID { RelatedActivityId });
    structure!(out, EVENT_EXTENDED_ITEM_STACK_KEY32 { MatchId, StackKey, Padding });
    structure!(out, EVENT_EXTENDED_ITEM_STACK_KEY64 { MatchId, StackKey });
    structure!(out, EVENT_EXTENDED_ITEM_STACK_TRACE32 { MatchId, Address });
    structure!(out, EVENT_EXTENDED_ITEM_STACK_TRACE64 { MatchId, Address });
    structure!(out, EVENT_EXTENDED_ITEM_TS_ID { SessionId });
    structure!(out, EVENT_FILTER_DESCRIPTOR { Ptr, Size, Type });
    structure!(out, EVENT_FILTER_EVENT_ID { FilterIn, Reserved, Count, Events });
    structure!(out, EVENT_FILTER_EVENT_NAME { MatchAnyKeyword, MatchAllKeyword, Level, FilterIn, NameCount, Names });
    structure!(out, EVENT_FILTER_HEADER { Id, Version, Reserved, InstanceId, Size, NextOffset });
    structure!(out, EVENT_FILTER_LEVEL_KW { MatchAnyKeyword, MatchAllKeyword, Level, FilterIn });
    structure!(out, EVENT_HEADER { Size, HeaderType, Flags, EventProperty, ThreadId, ProcessId, TimeStamp, ProviderId, EventDescriptor, Anonymous.Anonymous.KernelTime, Anonymous.Anonymous.UserTime, Anonymous.ProcessorTime, ActivityId });
    structure!(out, EVENT_HEADER_EXTENDED_DATA_ITEM { Reserved1, ExtType, DataSize, DataPtr });
    structure!(out, EVENT_INSTANCE_HEADER { Size, Anonymous1.FieldTypeFlags, Anonymous1.Anonymous.HeaderType, Anonymous1.Anonymous.MarkerFlags, Anonymous2.Version, Anonymous2.Class, Anonymous2.Class.Type, Anonymous2.Class.Level, Anonymous2.Class.Version, ThreadId, ProcessId, TimeStamp, RegHandle, InstanceId, ParentInstanceId, Anonymous3.Anonymous1.KernelTime, Anonymous3.Anonymous1.UserTime, Anonymous3.ProcessorTime, Anonymous3.Anonymous2.EventId, Anonymous3.Anonymous2.Flags, ParentRegHandle });
    structure!(out, EVENT_INSTANCE_INFO { RegHandle, InstanceId });
    structure!(out, EVENT_MAP_ENTRY { OutputOffset, Anonymous.Value, Anonymous.InputOffset });
    structure!(out, EVENT_MAP_INFO { NameOffset, Flag, EntryCount, Anonymous.MapEntryValueType, Anonymous.FormatStringOffset, MapEntryArray });
    structure!(out, EVENT_PROPERTY_INFO { Flags, NameOffset, Anonymous1.nonStructType, Anonymous1.nonStructType.InType, Anonymous1.nonStructType.OutType, Anonymous1.nonStructType.MapNameOffset, Anonymous1.structType, Anonymous1.structType.StructStartIndex, Anonymous1.structType.NumOfStructMembers, Anonymous1.structType.padding, Anonymous1.customSchemaType, Anonymous1.customSchemaType.InType, Anonymous1.customSchemaType.OutType, Anonymous1.customSchemaType.CustomSchemaOffset, Anonymous2.count, Anonymous2.countPropertyIndex, Anonymous3.length, Anonymous3.lengthPropertyIndex, Anonymous4.Reserved });
    structure!(out, EVENT_RECORD { EventHeader, BufferContext, ExtendedDataCount, UserDataLength, ExtendedData, UserData, UserContext });
    structure!(out, EVENT_TRACE { Header, InstanceId, ParentInstanceId, ParentGuid, MofData, MofLength, Anonymous.ClientContext, Anonymous.BufferContext });
    structure!(out, EVENT_TRACE_HEADER { Size, Anonymous1.FieldTypeFlags, Anonymous1.Anonymous.HeaderType, Anonymous1.Anonymous.MarkerFlags, Anonymous2.Version, Anonymous2.Class, Anonymous2.Class.Type, Anonymous2.Class.Level, Anonymous2.Class.Version, ThreadId, ProcessId, TimeStamp, Anonymous3.Guid, Anonymous3.GuidPtr, Anonymous4.Anonymous1.KernelTime, Anonymous4.Anonymous1.UserTime, Anonymous4.ProcessorTime, Anonymous4.Anonymous2.ClientContext, Anonymous4.Anonymous2.Flags });
    structure!(out, EVENT_TRACE_LOGFILEA { LogFileName, LoggerName, CurrentTime, BuffersRead, Anonymous1.LogFileMode, Anonymous1.ProcessTraceMode, CurrentEvent, LogfileHeader, BufferCallback, BufferSize, Filled, EventsLost, Anonymous2.EventCallback, Anonymous2.EventRecordCallback, IsKernelTrace, Context });
    structure!(out, EVENT_TRACE_LOGFILEW { LogFileName, LoggerName, CurrentTime, BuffersRead, Anonymous1.LogFileMode, Anonymous1.ProcessTraceMode, CurrentEvent, LogfileHeader, BufferCallback, BufferSize, Filled, EventsLost, Anonymous2.EventCallback, Anonymous2.EventRecordCallback, IsKernelTrace, Context });
    structure!(out, EVENT_TRACE_PROPERTIES { Wnode, BufferSize, MinimumBuffers, MaximumBuffers, MaximumFileSize, LogFileMode, FlushTimer, EnableFlags, Anonymous.AgeLimit, Anonymous.FlushThreshold, NumberOfBuffers, FreeBuffers, EventsLost, BuffersWritten, LogBuffersLost, RealTimeBuffersLost, LoggerThreadId, LogFileNameOffset, LoggerNameOffset });
    structure!(out, EVENT_TRACE_PROPERTIES_V2 { Wnode, BufferSize, MinimumBuffers, MaximumBuffers, MaximumFileSize, LogFileMode, FlushTimer, EnableFlags, Anonymous1.AgeLimit, Anonymous1.FlushThreshold, NumberOfBuffers, FreeBuffers, EventsLost, BuffersWritten, LogBuffersLost, RealTimeBuffersLost, LoggerThreadId, LogFileNameOffset, LoggerNameOffset, Anonymous2.V2Control, FilterDescCount, FilterDesc, Anonymous3.V2Options });
    structure!(out, MOF_FIELD { DataPtr, Length, DataType });
    structure!(out, PAYLOAD_FILTER_PREDICATE { FieldName, CompareOp, Value });
    structure!(out, PROFILE_SOURCE_INFO { NextEntryOffset, Source, MinInterval, MaxInterval, Reserved, Description });
    structure!(out, PROPERTY_DATA_DESCRIPTOR { PropertyName, ArrayIndex, Reserved });
    structure!(out, PROVIDER_ENUMERATION_INFO { NumberOfProviders, Reserved, TraceProviderInfoArray });
    structure!(out, PROVIDER_EVENT_INFO { NumberOfEvents, Reserved, EventDescriptorsArray });
    structure!(out, PROVIDER_FIELD_INFO { NameOffset, DescriptionOffset, Value });
    structure!(out, PROVIDER_FIELD_INFOARRAY { NumberOfElements, FieldType, FieldInfoArray });
    structure!(out, PROVIDER_FILTER_INFO { Id, Version, MessageOffset, Reserved, PropertyCount, EventPropertyInfoArray });
    structure!(out, TDH_CONTEXT { ParameterValue, ParameterType, ParameterSize });
    structure!(out, TRACE_ENABLE_INFO { IsEnabled, Level, Reserved1, LoggerId, EnableProperty, Reserved2, MatchAnyKeyword, MatchAllKeyword });
    structure!(out, TRACE_EVENT_INFO { ProviderGuid, EventGuid, EventDescriptor, DecodingSource, ProviderNameOffset, LevelNameOffset, ChannelNameOffset, KeywordsNameOffset, TaskNameOffset, OpcodeNameOffset, EventMessageOffset, ProviderMessageOffset, BinaryXMLOffset, BinaryXMLSize, Anonymous1.EventNameOffset, Anonymous1.ActivityIDNameOffset, Anonymous2.EventAttributesOffset, Anonymous2.RelatedActivityIDNameOffset, PropertyCount, TopLevelPropertyCount, Anonymous3.Flags, EventPropertyInfoArray });
    structure!(out, TRACE_GUID_INFO { InstanceCount, Reserved });
    structure!(out, TRACE_GUID_PROPERTIES { Guid, GuidType, LoggerId, EnableLevel, EnableFlags, IsEnable });
    structure!(out, TRACE_GUID_REGISTRATION { Guid, RegHandle });
    structure!(out, TRACE_LOGFILE_HEADER { BufferSize, Anonymous1.Version, Anonymous1.VersionDetail, Anonymous1.VersionDetail.MajorVersion, Anonymous1.VersionDetail.MinorVersion, Anonymous1.VersionDetail.SubVersion, Anonymous1.VersionDetail.SubMinorVersion, ProviderVersion, NumberOfProcessors, EndTime, TimerResolution, MaximumFileSize, LogFileMode, BuffersWritten, Anonymous2.LogInstanceGuid, Anonymous2.Anonymous.StartBuffers, Anonymous2.Anonymous.PointerSize, Anonymous2.Anonymous.EventsLost, Anonymous2.Anonymous.CpuSpeedInMHz, LoggerName, LogFileName, TimeZone, BootTime, PerfFreq, StartTime, ReservedFlags, BuffersLost });
    structure!(out, TRACE_LOGFILE_HEADER32 { BufferSize, Anonymous1.Version, Anonymous1.VersionDetail, Anonymous1.VersionDetail.MajorVersion, Anonymous1.VersionDetail.MinorVersion, Anonymous1.VersionDetail.SubVersion, Anonymous1.VersionDetail.SubMinorVersion, ProviderVersion, NumberOfProcessors, EndTime, TimerResolution, MaximumFileSize, LogFileMode, BuffersWritten, Anonymous2.LogInstanceGuid, Anonymous2.Anonymous.StartBuffers, Anonymous2.Anonymous.PointerSize, Anonymous2.Anonymous.EventsLost, Anonymous2.Anonymous.CpuSpeedInMHz, LoggerName, LogFileName, TimeZone, BootTime, PerfFreq, StartTime, ReservedFlags, BuffersLost });
    structure!(out, TRACE_LOGFILE_HEADER64 { BufferSize, Anonymous1.Version, Anonymous1.VersionDetail, Anonymous1.VersionDetail.MajorVersion, Anonymous1.VersionDetail.MinorVersion, Anonymous1.VersionDetail.SubVersion, Anonymous1.VersionDetail.SubMinorVersion, ProviderVersion, NumberOfProcessors, EndTime, TimerResolution, MaximumFileSize, LogFileMode, BuffersWritten, Anonymous2.LogInstanceGuid, Anonymous2.Anonymous.StartBuffers, Anonymous2.Anonymous.PointerSize, Anonymous2.Anonymous.EventsLost, Anonymous2.Anonymous.CpuSpeedInMHz, LoggerName, LogFileName, TimeZone, BootTime, PerfFreq, StartTime, ReservedFlags, BuffersLost });
    structure!(out, TRACE_PERIODIC_CAPTURE_STATE_INFO { CaptureStateFrequencyInSeconds, ProviderCount, Reserved });
    structure!(out, TRACE_PROFILE_INTERVAL { Source, Interval });
    structure!(out, TRACE_PROVIDER_INFO { ProviderGuid, SchemaSource, ProviderNameOffset });
    structure!(out, TRACE_PROVIDER_INSTANCE_INFO { NextOffset, EnableCount, Pid, Flags });
    structure!(out, TRACE_STACK_CACHING_INFO { Enabled, CacheSize, BucketCount });
    structure!(out, TRACE_VERSION_INFO { EtwTraceProcessingVersion, Reserved });
    structure!(out, WNODE_HEADER { BufferSize, ProviderId, Anonymous1.HistoricalContext, Anonymous1.Anonymous.Version, Anonymous1.Anonymous.Linkage, Anonymous2.CountLost, Anonymous2.KernelHandle, Anonymous2.TimeStamp, Guid, ClientContext, Flags });
    out
}
