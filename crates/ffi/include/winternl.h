/* Texts with a length (ntdef.h), and information about the system by class. The only class here is
 * SystemPerformanceTraceInformation, with the group masks of a session: see
 * traceweir/nt_system_information.h for their structure, which the published header does not have
 * either.
 */
#ifndef TRACEWEIR_WINTERNL_H
#define TRACEWEIR_WINTERNL_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "ntdef.h"
#include "windows.h"

typedef enum _SYSTEM_INFORMATION_CLASS {
    SystemBasicInformation = 0,
    SystemPerformanceInformation = 2,
    SystemTimeOfDayInformation = 3,
    SystemProcessInformation = 5,
    SystemProcessorPerformanceInformation = 8,
    SystemInterruptInformation = 23,
    SystemExceptionInformation = 33,
    SystemRegistryQuotaInformation = 37,
    SystemLookasideInformation = 45,
    SystemCodeIntegrityInformation = 103,
    SystemPolicyInformation = 134
} SYSTEM_INFORMATION_CLASS;

#ifdef __cplusplus
extern "C" {
#endif

/* Both return STATUS_INVALID_INFO_CLASS for every class except SystemPerformanceTraceInformation,
 * which is 31. */
NTSTATUS WINAPI NtQuerySystemInformation(SYSTEM_INFORMATION_CLASS SystemInformationClass, PVOID SystemInformation,
                                         ULONG SystemInformationLength, PULONG ReturnLength);
NTSTATUS WINAPI NtSetSystemInformation(SYSTEM_INFORMATION_CLASS SystemInformationClass, PVOID SystemInformation,
                                       ULONG SystemInformationLength);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_WINTERNL_H */
