/* Starts the kernel logger with call stacks, and merges traces. */
#ifndef TRACEWEIR_KERNELTRACECONTROL_H
#define TRACEWEIR_KERNELTRACECONTROL_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "evntrace.h"

/* Data that a merge adds. Traces of this system have image identities, the build and the paths from
 * the start, so only EVENT_METADATA and COMPRESS_TRACE make a difference. */
#define EVENT_TRACE_MERGE_EXTENDED_DATA_NONE 0x00000000
#define EVENT_TRACE_MERGE_EXTENDED_DATA_IMAGEID 0x00000001
#define EVENT_TRACE_MERGE_EXTENDED_DATA_BUILDINFO 0x00000002
#define EVENT_TRACE_MERGE_EXTENDED_DATA_VOLUME_MAPPING 0x00000004
#define EVENT_TRACE_MERGE_EXTENDED_DATA_WINSAT 0x00000008
#define EVENT_TRACE_MERGE_EXTENDED_DATA_EVENT_METADATA 0x00000010
#define EVENT_TRACE_MERGE_EXTENDED_DATA_PERFTRACK_METADATA 0x00000020
#define EVENT_TRACE_MERGE_EXTENDED_DATA_NETWORK_INTERFACE 0x00000040
#define EVENT_TRACE_MERGE_EXTENDED_DATA_NGEN_PDB 0x00000080
#define EVENT_TRACE_MERGE_EXTENDED_DATA_COMPRESS_TRACE 0x10000000
#define EVENT_TRACE_MERGE_EXTENDED_DATA_DEFAULT 0x000FFFFF
#define EVENT_TRACE_MERGE_EXTENDED_DATA_ALL 0xFFFFFFFF

/* Events that carry schemas. */
#define EVENT_METADATA_LOG_TYPE_TRACE_EVENT_INFO 0x20
#define EVENT_METADATA_LOG_TYPE_EVENT_MAP_INFO 0x21

/* A kernel event that is followed by its call stack. */
typedef struct _STACK_TRACING_EVENT_ID {
    GUID EventGuid;
    UCHAR Type;
    UCHAR Reserved[7];
} STACK_TRACING_EVENT_ID, *PSTACK_TRACING_EVENT_ID;

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the session "NT Kernel Logger"; names in Properties are UTF-16. */
ULONG WINAPI StartKernelTrace(_Out_ PTRACEHANDLE TraceHandle, _Inout_ PEVENT_TRACE_PROPERTIES Properties,
                              _In_ STACK_TRACING_EVENT_ID StackTracingEventIds[], ULONG cStackTracingEventIds);
/* Merges traces in the order of time. The merged file may replace an existing file, but none of the
 * traces. */
ULONG WINAPI CreateMergedTraceFile(_In_ LPCWSTR wszMergedFileName, _In_ LPCWSTR wszTraceFileNames[], ULONG cTraceFileNames,
                                   DWORD dwExtendedDataFlags);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_KERNELTRACECONTROL_H */
