/* Information classes: TraceSetInformation, TraceQueryInformation, TraceConfigureLastBranchRecord,
 * EnumerateTraceGuidsEx. Part of evntrace.h.
 *
 *   CLASSIC_EVENT_ID stacks[] = {{SampledProfileClass, 46, {0}}};
 *   TraceSetInformation(session, TraceStackTracingInfo, stacks, sizeof stacks);
 */
#ifndef TRACEWEIR_EVNTRACE_INFO_H
#define TRACEWEIR_EVNTRACE_INFO_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows_types.h"

#ifndef WMIAPI
#define WMIAPI
#endif

typedef enum _TRACE_QUERY_INFO_CLASS {
    TraceGuidQueryList = 0,
    TraceGuidQueryInfo = 1,
    TraceGuidQueryProcess = 2,
    TraceStackTracingInfo = 3,
    TraceSystemTraceEnableFlagsInfo = 4,
    TraceSampledProfileIntervalInfo = 5,
    TraceProfileSourceConfigInfo = 6,
    TraceProfileSourceListInfo = 7,
    TracePmcEventListInfo = 8,
    TracePmcCounterListInfo = 9,
    TraceSetDisallowList = 10,
    TraceVersionInfo = 11,
    TraceGroupQueryList = 12,
    TraceGroupQueryInfo = 13,
    TraceDisallowListQuery = 14,
    TraceInfoReserved15 = 15,
    TracePeriodicCaptureStateListInfo = 16,
    TracePeriodicCaptureStateInfo = 17,
    TraceProviderBinaryTracking = 18,
    TraceMaxLoggersQuery = 19,
    TraceLbrConfigurationInfo = 20,
    TraceLbrEventListInfo = 21,
    TraceMaxPmcCounterQuery = 22,
    TraceStreamCount = 23,
    TraceStackCachingInfo = 24,
    TracePmcCounterOwners = 25,
    TraceUnifiedStackCachingInfo = 26,
    TracePmcSessionInformation = 27,
    TraceContextRegisterInfo = 28,
    MaxTraceSetInfoClass = 29
} TRACE_QUERY_INFO_CLASS, TRACE_INFO_CLASS;

/* A kernel event, by its class and its type in the class. */
typedef struct _CLASSIC_EVENT_ID {
    GUID EventGuid;
    UCHAR Type;
    UCHAR Reserved[7];
} CLASSIC_EVENT_ID, *PCLASSIC_EVENT_ID;

/* The head of the information about a provider: its registrations follow, each with the sessions
 * that enable it. */
typedef struct _TRACE_GUID_INFO {
    ULONG InstanceCount;
    ULONG Reserved;
} TRACE_GUID_INFO, *PTRACE_GUID_INFO;

#define TRACE_PROVIDER_FLAG_LEGACY 0x00000001
#define TRACE_PROVIDER_FLAG_PRE_ENABLE 0x00000002

typedef struct _TRACE_PROVIDER_INSTANCE_INFO {
    ULONG NextOffset;
    ULONG EnableCount;
    ULONG Pid;
    ULONG Flags;
} TRACE_PROVIDER_INSTANCE_INFO, *PTRACE_PROVIDER_INSTANCE_INFO;

typedef struct _TRACE_ENABLE_INFO {
    ULONG IsEnabled;
    UCHAR Level;
    UCHAR Reserved1;
    USHORT LoggerId;
    ULONG EnableProperty;
    ULONG Reserved2;
    ULONGLONG MatchAnyKeyword;
    ULONGLONG MatchAllKeyword;
} TRACE_ENABLE_INFO, *PTRACE_ENABLE_INFO;

/* Profiling: a source of samples with its interval, and the list of sources. */
typedef struct _TRACE_PROFILE_INTERVAL {
    ULONG Source;
    ULONG Interval;
} TRACE_PROFILE_INTERVAL, *PTRACE_PROFILE_INTERVAL;

typedef struct _PROFILE_SOURCE_INFO {
    ULONG NextEntryOffset;
    ULONG Source;
    ULONG MinInterval;
    ULONG MaxInterval;
    ULONG64 Reserved;
    WCHAR Description[ANYSIZE_ARRAY];
} PROFILE_SOURCE_INFO, *PPROFILE_SOURCE_INFO;

typedef struct _TRACE_VERSION_INFO {
    UINT EtwTraceProcessingVersion;
    UINT Reserved;
} TRACE_VERSION_INFO, *PTRACE_VERSION_INFO;

/* The GUIDs of the providers follow. */
typedef struct _TRACE_PERIODIC_CAPTURE_STATE_INFO {
    ULONG CaptureStateFrequencyInSeconds;
    USHORT ProviderCount;
    USHORT Reserved;
} TRACE_PERIODIC_CAPTURE_STATE_INFO, *PTRACE_PERIODIC_CAPTURE_STATE_INFO;

typedef struct _TRACE_STACK_CACHING_INFO {
    BOOLEAN Enabled;
    ULONG CacheSize;
    ULONG BucketCount;
} TRACE_STACK_CACHING_INFO, *PTRACE_STACK_CACHING_INFO;

typedef enum _ETW_PMC_COUNTER_OWNER_TYPE {
    EtwPmcOwnerFree = 0,
    EtwPmcOwnerUntagged = 1,
    EtwPmcOwnerTagged = 2,
    EtwPmcOwnerTaggedWithSource = 3
} ETW_PMC_COUNTER_OWNER_TYPE;

typedef struct _ETW_PMC_COUNTER_OWNER {
    ETW_PMC_COUNTER_OWNER_TYPE OwnerType;
    ULONG ProfileSource;
    ULONG OwnerTag;
} ETW_PMC_COUNTER_OWNER, *PETW_PMC_COUNTER_OWNER;

typedef struct _ETW_PMC_COUNTER_OWNERSHIP_STATUS {
    ULONG ProcessorNumber;
    ULONG NumberOfCounters;
    ETW_PMC_COUNTER_OWNER CounterOwners[ANYSIZE_ARRAY];
} ETW_PMC_COUNTER_OWNERSHIP_STATUS, *PETW_PMC_COUNTER_OWNERSHIP_STATUS;

/* Sources and hook ids follow. */
typedef struct _ETW_PMC_SESSION_INFO {
    ULONG NextEntryOffset;
    USHORT LoggerId;
    USHORT Reserved;
    ULONG ProfileSourceCount;
    ULONG HookIdCount;
} ETW_PMC_SESSION_INFO, *PETW_PMC_SESSION_INFO;

typedef enum _ETW_CONTEXT_REGISTER_TYPES {
    EtwContextRegisterTypeNone = 0x0,
    EtwContextRegisterTypeControl = 0x1,
    EtwContextRegisterTypeInteger = 0x2
} ETW_CONTEXT_REGISTER_TYPES;

/* The events follow, as CLASSIC_EVENT_IDs. */
typedef struct _TRACE_CONTEXT_REGISTER_INFO {
    ETW_CONTEXT_REGISTER_TYPES RegisterTypes;
    ULONG Reserved;
} TRACE_CONTEXT_REGISTER_INFO, *PTRACE_CONTEXT_REGISTER_INFO;

#define TRACE_LBR_EVENT_OPCODE 0x20
#define TRACE_LBR_MAXIMUM_EVENTS 4

/* Kinds of branches that are left out. */
typedef enum _TRACE_LBR_CONFIGURATION {
    TRACE_LBR_CONFIGURATION_NONE = 0x0,
    TRACE_LBR_CONFIGURATION_EXCLUDE_KERNEL = 0x1,
    TRACE_LBR_CONFIGURATION_EXCLUDE_USER = 0x2,
    TRACE_LBR_CONFIGURATION_EXCLUDE_JCC = 0x4,
    TRACE_LBR_CONFIGURATION_EXCLUDE_NEAR_REL_CALL = 0x8,
    TRACE_LBR_CONFIGURATION_EXCLUDE_NEAR_IND_CALL = 0x10,
    TRACE_LBR_CONFIGURATION_EXCLUDE_NEAR_RET = 0x20,
    TRACE_LBR_CONFIGURATION_EXCLUDE_NEAR_IND_JMP = 0x40,
    TRACE_LBR_CONFIGURATION_EXCLUDE_NEAR_REL_JMP = 0x80,
    TRACE_LBR_CONFIGURATION_EXCLUDE_FAR_BRANCH = 0x100,
    /* Not a kind of branch: keeps the records as a call stack, or takes them as samples. */
    TRACE_LBR_CONFIGURATION_CALLSTACK_ENABLE = 0x200,
    TRACE_LBR_CONFIGURATION_SAMPLED = 0x400
} TRACE_LBR_CONFIGURATION;

#ifdef __cplusplus
extern "C" {
#endif

/* Session information. If a buffer is too small, returns ERROR_BAD_LENGTH and the required size;
 * NULL and 0 query the size. */
ULONG WMIAPI TraceSetInformation(_In_ ULONG64 TraceId, _In_ TRACE_INFO_CLASS InformationClass,
                                 _In_reads_bytes_(InformationLength) PVOID TraceInformation, _In_ ULONG InformationLength);
ULONG WMIAPI TraceQueryInformation(_In_ ULONG64 TraceId, _In_ TRACE_INFO_CLASS InformationClass,
                                   _Out_writes_bytes_(InformationLength) PVOID TraceInformation, _In_ ULONG InformationLength,
                                   _Out_opt_ PULONG ReturnLength);
/* Sets TraceLbrConfigurationInfo and TraceLbrEventListInfo in one call, with at most
 * TRACE_LBR_MAXIMUM_EVENTS events. */
ULONG WMIAPI TraceConfigureLastBranchRecord(_In_ ULONG64 TraceId, _In_ TRACE_LBR_CONFIGURATION LbrConfiguration,
                                            _In_reads_(EventCount) const CLASSIC_EVENT_ID *Events, _In_ ULONG EventCount);
/* Lists providers and groups. If the buffer is too small, returns ERROR_INSUFFICIENT_BUFFER and the
 * required size. */
ULONG WMIAPI EnumerateTraceGuidsEx(_In_ TRACE_QUERY_INFO_CLASS TraceQueryInfoClass, _In_reads_bytes_opt_(InBufferSize) PVOID InBuffer,
                                   _In_ ULONG InBufferSize, _Out_writes_bytes_opt_(OutBufferSize) PVOID OutBuffer,
                                   _In_ ULONG OutBufferSize, _Out_ PULONG ReturnLength);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_EVNTRACE_INFO_H */
