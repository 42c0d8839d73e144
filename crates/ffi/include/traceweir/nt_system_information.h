/* The group masks of a session in NtQuerySystemInformation and NtSetSystemInformation. Microsoft
 * publishes neither the structure nor the class; programs usually define them on their own, so no
 * other header includes this one.
 */
#ifndef TRACEWEIR_NT_SYSTEM_INFORMATION_H
#define TRACEWEIR_NT_SYSTEM_INFORMATION_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "../winternl.h"

#define SystemPerformanceTraceInformation ((SYSTEM_INFORMATION_CLASS)31)

typedef enum _EVENT_TRACE_INFORMATION_CLASS {
    EventTraceKernelVersionInformation = 0,
    EventTraceGroupMaskInformation = 1
} EVENT_TRACE_INFORMATION_CLASS;

#define PERF_NUM_MASKS 8

typedef struct _PERFINFO_GROUPMASK {
    ULONG Masks[PERF_NUM_MASKS];
} PERFINFO_GROUPMASK, *PPERFINFO_GROUPMASK;

typedef struct _EVENT_TRACE_GROUPMASK_INFORMATION {
    EVENT_TRACE_INFORMATION_CLASS EventTraceInformationClass;
    ULONG64 TraceHandle;
    PERFINFO_GROUPMASK EventTraceGroupMasks;
} EVENT_TRACE_GROUPMASK_INFORMATION, *PEVENT_TRACE_GROUPMASK_INFORMATION;

#ifdef __cplusplus
extern "C" {
#endif

/* NtQuerySystemInformation and NtSetSystemInformation (winternl.h) under their other names. */
NTSTATUS WINAPI ZwQuerySystemInformation(SYSTEM_INFORMATION_CLASS SystemInformationClass, PVOID SystemInformation,
                                         ULONG SystemInformationLength, PULONG ReturnLength);
NTSTATUS WINAPI ZwSetSystemInformation(SYSTEM_INFORMATION_CLASS SystemInformationClass, PVOID SystemInformation,
                                       ULONG SystemInformationLength);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_NT_SYSTEM_INFORMATION_H */
