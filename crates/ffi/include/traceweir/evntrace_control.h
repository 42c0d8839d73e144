/* Controllers: sessions and the providers that they enable. Part of evntrace.h.
 *
 *   struct { EVENT_TRACE_PROPERTIES p; WCHAR names[2][1024]; } s = {0};
 *   s.p.Wnode.BufferSize = sizeof s;
 *   s.p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
 *   s.p.LogFileMode = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
 *   s.p.LoggerNameOffset = sizeof s.p;                        StartTrace copies the name there
 *   s.p.LogFileNameOffset = sizeof s.p + sizeof s.names[0];   the file name is there already
 *   StartTraceW(&session, u"lunch", &s.p);
 *   EnableTraceEx2(session, &MyProvider, EVENT_CONTROL_CODE_ENABLE_PROVIDER,
 *                  TRACE_LEVEL_INFORMATION, 0, 0, 0, NULL);
 *   ControlTraceW(session, NULL, &s.p, EVENT_TRACE_CONTROL_STOP);
 *
 * A session outlives the program that started it. If there is no system daemon, StartTrace starts
 * the user's own daemon.
 */
#ifndef TRACEWEIR_EVNTRACE_CONTROL_H
#define TRACEWEIR_EVNTRACE_CONTROL_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

/* For EVENT_FILTER_DESCRIPTOR. */
#include "../evntprov.h"
#include "evntrace_constants.h"

/* The id of a session; 0 is none. An id is never used again for another session. */
typedef ULONG64 CONTROLTRACE_ID, *PCONTROLTRACE_ID;

/* StartTrace for handles of type uint64_t; see guiddef.h. */
#ifdef TRACEWEIR_LONG_HANDLES
#define TRACEWEIR_FRIENDS_OF_PROPERTIES \
    template <typename Handle>                                                                                                        \
    friend typename traceweir::LongHandle<Handle>::Status StartTraceW(Handle *TraceId, LPCWSTR InstanceName,                          \
                                                                      struct _EVENT_TRACE_PROPERTIES *Properties) {                   \
        return StartTraceW(reinterpret_cast<typename traceweir::PublishedHandle<Handle>::Type *>(TraceId), InstanceName, Properties); \
    }                                                                                                                                 \
    template <typename Handle>                                                                                                        \
    friend typename traceweir::LongHandle<Handle>::Status StartTraceA(Handle *TraceId, LPCSTR InstanceName,                           \
                                                                      struct _EVENT_TRACE_PROPERTIES *Properties) {                   \
        return StartTraceA(reinterpret_cast<typename traceweir::PublishedHandle<Handle>::Type *>(TraceId), InstanceName, Properties); \
    }
#else
#define TRACEWEIR_FRIENDS_OF_PROPERTIES
#endif

/* The properties of a session, for input and output. The names follow it, at offsets from its
 * start, in the same Wnode.BufferSize bytes: char16_t for functions that end with W, UTF-8 for
 * those that end with A. */
#ifdef __cplusplus
extern "C++" {
#endif
typedef struct _EVENT_TRACE_PROPERTIES {
    WNODE_HEADER Wnode;
    ULONG BufferSize;
    ULONG MinimumBuffers;
    ULONG MaximumBuffers;
    ULONG MaximumFileSize;
    ULONG LogFileMode;
    ULONG FlushTimer;
    ULONG EnableFlags;
    __extension__ union {
        LONG AgeLimit;
        LONG FlushThreshold;
    };
    ULONG NumberOfBuffers;
    ULONG FreeBuffers;
    ULONG EventsLost;
    ULONG BuffersWritten;
    ULONG LogBuffersLost;
    ULONG RealTimeBuffersLost;
    HANDLE LoggerThreadId;
    ULONG LogFileNameOffset;
    ULONG LoggerNameOffset;
    TRACEWEIR_FRIENDS_OF_PROPERTIES
} EVENT_TRACE_PROPERTIES, *PEVENT_TRACE_PROPERTIES;
#ifdef __cplusplus
}
#endif

/* EVENT_TRACE_PROPERTIES with more members: WNODE_FLAG_VERSIONED_PROPERTIES is set, and
 * VersionNumber is 2. */
typedef struct _EVENT_TRACE_PROPERTIES_V2 {
    WNODE_HEADER Wnode;
    ULONG BufferSize;
    ULONG MinimumBuffers;
    ULONG MaximumBuffers;
    ULONG MaximumFileSize;
    ULONG LogFileMode;
    ULONG FlushTimer;
    ULONG EnableFlags;
    __extension__ union {
        LONG AgeLimit;
        LONG FlushThreshold;
    };
    ULONG NumberOfBuffers;
    ULONG FreeBuffers;
    ULONG EventsLost;
    ULONG BuffersWritten;
    ULONG LogBuffersLost;
    ULONG RealTimeBuffersLost;
    HANDLE LoggerThreadId;
    ULONG LogFileNameOffset;
    ULONG LoggerNameOffset;
    __extension__ union {
        __extension__ struct {
            ULONG VersionNumber : 8;
        };
        ULONG V2Control;
    };
    ULONG FilterDescCount;
    PEVENT_FILTER_DESCRIPTOR FilterDesc;
    __extension__ union {
        __extension__ struct {
            ULONG Wow : 1;
            ULONG QpcDeltaTracking : 1;
            ULONG LargeMdlPages : 1;
            ULONG ExcludeKernelStack : 1;
        };
        ULONG64 V2Options;
    };
} EVENT_TRACE_PROPERTIES_V2, *PEVENT_TRACE_PROPERTIES_V2;

/* Options of an enable, apart from level and keywords: version 1 has one filter at most, version 2
 * an array. */
typedef struct _ENABLE_TRACE_PARAMETERS_V1 {
    ULONG Version;
    ULONG EnableProperty;
    ULONG ControlFlags;
    GUID SourceId;
    PEVENT_FILTER_DESCRIPTOR EnableFilterDesc;
} ENABLE_TRACE_PARAMETERS_V1, *PENABLE_TRACE_PARAMETERS_V1;

typedef struct _ENABLE_TRACE_PARAMETERS {
    ULONG Version;
    ULONG EnableProperty;
    ULONG ControlFlags;
    GUID SourceId;
    PEVENT_FILTER_DESCRIPTOR EnableFilterDesc;
    ULONG FilterDescCount;
} ENABLE_TRACE_PARAMETERS, *PENABLE_TRACE_PARAMETERS;

typedef struct _TRACE_GUID_PROPERTIES {
    GUID Guid;
    ULONG GuidType;
    ULONG LoggerId;
    ULONG EnableLevel;
    ULONG EnableFlags;
    BOOLEAN IsEnable;
} TRACE_GUID_PROPERTIES, *PTRACE_GUID_PROPERTIES;

#ifdef __cplusplus
extern "C" {
#endif

ULONG WMIAPI StartTraceW(_Out_ CONTROLTRACE_ID *TraceId, _In_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI StartTraceA(_Out_ CONTROLTRACE_ID *TraceId, _In_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);

/* The session is found by name or, if that is NULL, by id. ERROR_MORE_DATA: the action was done,
 * but a name does not fit. */
ULONG WMIAPI ControlTraceW(CONTROLTRACE_ID TraceId, _In_opt_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties,
                           _In_ ULONG ControlCode);
ULONG WMIAPI ControlTraceA(CONTROLTRACE_ID TraceId, _In_opt_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties,
                           _In_ ULONG ControlCode);
ULONG WMIAPI StopTraceW(CONTROLTRACE_ID TraceId, _In_opt_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI StopTraceA(CONTROLTRACE_ID TraceId, _In_opt_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI QueryTraceW(CONTROLTRACE_ID TraceId, _In_opt_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI QueryTraceA(CONTROLTRACE_ID TraceId, _In_opt_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI UpdateTraceW(CONTROLTRACE_ID TraceId, _In_opt_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI UpdateTraceA(CONTROLTRACE_ID TraceId, _In_opt_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI FlushTraceW(CONTROLTRACE_ID TraceId, _In_opt_ LPCWSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);
ULONG WMIAPI FlushTraceA(CONTROLTRACE_ID TraceId, _In_opt_ LPCSTR InstanceName, _Inout_ PEVENT_TRACE_PROPERTIES Properties);

/* Fills one block of the array for each session. Returns ERROR_MORE_DATA if there are more sessions
 * than blocks. */
ULONG WMIAPI QueryAllTracesW(_Out_writes_(PropertyArrayCount) PEVENT_TRACE_PROPERTIES *PropertyArray, _In_ ULONG PropertyArrayCount,
                             _Out_ PULONG LoggerCount);
ULONG WMIAPI QueryAllTracesA(_Out_writes_(PropertyArrayCount) PEVENT_TRACE_PROPERTIES *PropertyArray, _In_ ULONG PropertyArrayCount,
                             _Out_ PULONG LoggerCount);

#ifdef UNICODE
#define StartTrace StartTraceW
#define ControlTrace ControlTraceW
#define StopTrace StopTraceW
#define QueryTrace QueryTraceW
#define UpdateTrace UpdateTraceW
#define FlushTrace FlushTraceW
#define QueryAllTraces QueryAllTracesW
#else
#define StartTrace StartTraceA
#define ControlTrace ControlTraceA
#define StopTrace StopTraceA
#define QueryTrace QueryTraceA
#define UpdateTrace UpdateTraceA
#define FlushTrace FlushTraceA
#define QueryAllTraces QueryAllTracesA
#endif

/* Timeout in milliseconds: 0 waits at most 50 ms and only for the calling process, 0xFFFFFFFF waits
 * without limit. After ERROR_TIMEOUT the enable remains in effect. */
ULONG WMIAPI EnableTraceEx2(_In_ CONTROLTRACE_ID TraceId, _In_ LPCGUID ProviderId, _In_ ULONG ControlCode, _In_ UCHAR Level,
                            _In_ ULONGLONG MatchAnyKeyword, _In_ ULONGLONG MatchAllKeyword, _In_ ULONG Timeout,
                            _In_opt_ PENABLE_TRACE_PARAMETERS EnableParameters);
ULONG WMIAPI EnableTraceEx(_In_ LPCGUID ProviderId, _In_opt_ LPCGUID SourceId, _In_ CONTROLTRACE_ID TraceId, _In_ ULONG IsEnabled,
                           _In_ UCHAR Level, _In_ ULONGLONG MatchAnyKeyword, _In_ ULONGLONG MatchAllKeyword,
                           _In_ ULONG EnableProperty, _In_opt_ PEVENT_FILTER_DESCRIPTOR EnableFilterDesc);
ULONG WMIAPI EnableTrace(_In_ ULONG Enable, _In_ ULONG EnableFlag, _In_ ULONG EnableLevel, _In_ LPCGUID ControlGuid,
                         _In_ CONTROLTRACE_ID TraceId);

/* Lists the registered providers. Returns ERROR_MORE_DATA if there are more providers than
 * elements. */
ULONG WMIAPI EnumerateTraceGuids(PTRACE_GUID_PROPERTIES *GuidPropertiesArray, _In_ ULONG PropertyArrayCount,
                                 _Out_ PULONG GuidCount);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_EVNTRACE_CONTROL_H */
