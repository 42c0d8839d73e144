/* Classic providers, messages, controllers, consumers.
 *
 * This file has classic providers and messages. It includes the files for controllers
 * (traceweir/evntrace_control.h and those next to it) and for consumers
 * (traceweir/evntrace_consumer.h).
 *
 *   RegisterTraceGuids(ControlCallback, NULL, &MyProvider, 1, classes, NULL, NULL, &registration);
 *   ULONG ControlCallback(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
 *       if (code == WMI_ENABLE_EVENTS) logger = GetTraceLoggerHandle(buffer);
 *       ...
 *   }
 *   TraceEvent(logger, &event.Header);
 *
 * For existing programs; new ones use evntprov.h or TraceLoggingProvider.h. Functions return a
 * Win32 status, except the three named GetTrace..., which set the thread's last error. Written from
 * the published documentation of evntrace.h and wmistr.h.
 */
#ifndef _EVNTRACE_
#define _EVNTRACE_

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdarg.h>

#include "traceweir/windows_types.h"

#include "wmistr.h"
/* Included again, because INITGUID may have been defined after windows.h. */
#include "guiddef.h"

#ifndef WMIAPI
#define WMIAPI
#endif

#ifndef INVALID_HANDLE_VALUE
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#endif

/* Levels of events. */
#define TRACE_LEVEL_NONE 0
#define TRACE_LEVEL_CRITICAL 1
#define TRACE_LEVEL_FATAL 1
#define TRACE_LEVEL_ERROR 2
#define TRACE_LEVEL_WARNING 3
#define TRACE_LEVEL_INFORMATION 4
#define TRACE_LEVEL_VERBOSE 5
#define TRACE_LEVEL_RESERVED6 6
#define TRACE_LEVEL_RESERVED7 7
#define TRACE_LEVEL_RESERVED8 8
#define TRACE_LEVEL_RESERVED9 9

/* Types of events. */
#define EVENT_TRACE_TYPE_INFO 0x00
#define EVENT_TRACE_TYPE_START 0x01
#define EVENT_TRACE_TYPE_END 0x02
#define EVENT_TRACE_TYPE_STOP 0x02
#define EVENT_TRACE_TYPE_DC_START 0x03
#define EVENT_TRACE_TYPE_DC_END 0x04
#define EVENT_TRACE_TYPE_EXTENSION 0x05
#define EVENT_TRACE_TYPE_REPLY 0x06
#define EVENT_TRACE_TYPE_DEQUEUE 0x07
#define EVENT_TRACE_TYPE_RESUME 0x07
#define EVENT_TRACE_TYPE_CHECKPOINT 0x08
#define EVENT_TRACE_TYPE_SUSPEND 0x08
#define EVENT_TRACE_TYPE_WINEVT_SEND 0x09
#define EVENT_TRACE_TYPE_WINEVT_RECEIVE 0xF0
#define SYSTEM_EVENT_TYPE 1

/* Flags of a header. */
#define TRACE_HEADER_FLAG_USE_TIMESTAMP 0x00000200
#define TRACE_HEADER_FLAG_TRACED_GUID 0x00020000
#define TRACE_HEADER_FLAG_LOG_WNODE 0x00040000
#define TRACE_HEADER_FLAG_USE_GUID_PTR 0x00080000
#define TRACE_HEADER_FLAG_USE_MOF_PTR 0x00100000

#define MAX_MOF_FIELDS 16

/* Optional parts of a message. */
#define TRACE_MESSAGE_SEQUENCE 1
#define TRACE_MESSAGE_GUID 2
#define TRACE_MESSAGE_COMPONENTID 4
#define TRACE_MESSAGE_TIMESTAMP 8
#define TRACE_MESSAGE_PERFORMANCE_TIMESTAMP 16
#define TRACE_MESSAGE_SYSTEMINFO 32
#define TRACE_MESSAGE_POINTER32 0x0040
#define TRACE_MESSAGE_POINTER64 0x0080
#define TRACE_MESSAGE_FLAG_MASK 0xFFFF
#define TRACE_MESSAGE_MAXIMUM_SIZE (64 * 1024)

typedef ULONG64 TRACEHANDLE, *PTRACEHANDLE;
typedef ULONG64 TRACEGUID_HANDLE;
typedef ULONG64 TRACELOGGER_HANDLE;

typedef ULONG(WMIAPI *WMIDPREQUEST)(WMIDPREQUESTCODE RequestCode, PVOID RequestContext, ULONG *BufferSize, PVOID Buffer);

typedef struct _TRACEWEIR_EVENT_CLASS {
    UCHAR Type;
    UCHAR Level;
    USHORT Version;
} TRACEWEIR_EVENT_CLASS;

/* The header of an event, followed by the data, or by MOF_FIELDs that describe them. */
typedef struct _EVENT_TRACE_HEADER {
    USHORT Size;
    __extension__ union {
        USHORT FieldTypeFlags;
        __extension__ struct {
            UCHAR HeaderType;
            UCHAR MarkerFlags;
        };
    };
    __extension__ union {
        ULONG Version;
        TRACEWEIR_EVENT_CLASS Class;
    };
    ULONG ThreadId;
    ULONG ProcessId;
    LARGE_INTEGER TimeStamp;
    __extension__ union {
        GUID Guid;
        ULONGLONG GuidPtr;
    };
    __extension__ union {
        __extension__ struct {
            ULONG KernelTime;
            ULONG UserTime;
        };
        ULONG64 ProcessorTime;
        __extension__ struct {
            ULONG ClientContext;
            ULONG Flags;
        };
    };
} EVENT_TRACE_HEADER, *PEVENT_TRACE_HEADER;

/* The header of an event about an instance. */
typedef struct _EVENT_INSTANCE_HEADER {
    USHORT Size;
    __extension__ union {
        USHORT FieldTypeFlags;
        __extension__ struct {
            UCHAR HeaderType;
            UCHAR MarkerFlags;
        };
    };
    __extension__ union {
        ULONG Version;
        TRACEWEIR_EVENT_CLASS Class;
    };
    ULONG ThreadId;
    ULONG ProcessId;
    LARGE_INTEGER TimeStamp;
    ULONGLONG RegHandle;
    ULONG InstanceId;
    ULONG ParentInstanceId;
    __extension__ union {
        __extension__ struct {
            ULONG KernelTime;
            ULONG UserTime;
        };
        ULONG64 ProcessorTime;
        __extension__ struct {
            ULONG EventId;
            ULONG Flags;
        };
    };
    ULONGLONG ParentRegHandle;
} EVENT_INSTANCE_HEADER, *PEVENT_INSTANCE_HEADER;

typedef struct _MOF_FIELD {
    ULONG64 DataPtr;
    ULONG Length;
    ULONG DataType;
} MOF_FIELD, *PMOF_FIELD;

#define DEFINE_TRACE_MOF_FIELD(field, data, length, type)  \
    ((field)->DataPtr = (ULONG64)(ULONG_PTR)(data), (field)->Length = (ULONG)(length), (field)->DataType = (ULONG)(type))

typedef struct EVENT_INSTANCE_INFO {
    HANDLE RegHandle;
    ULONG InstanceId;
} EVENT_INSTANCE_INFO, *PEVENT_INSTANCE_INFO;

typedef struct _TRACE_GUID_REGISTRATION {
    LPCGUID Guid;
    HANDLE RegHandle;
} TRACE_GUID_REGISTRATION, *PTRACE_GUID_REGISTRATION;

/* An argument of a message, for TraceweirTraceMessage. */
typedef struct _TRACEWEIR_MESSAGE_ARGUMENT {
    const void *Data;
    SIZE_T Size;
} TRACEWEIR_MESSAGE_ARGUMENT;

#define TRACEWEIR_MESSAGE_ARGUMENTS 128

#ifdef __cplusplus
extern "C" {
#endif

ULONG WMIAPI RegisterTraceGuidsW(_In_ WMIDPREQUEST RequestAddress, _In_opt_ PVOID RequestContext, _In_ LPCGUID ControlGuid,
                                 _In_ ULONG GuidCount, PTRACE_GUID_REGISTRATION TraceGuidReg,
                                 _In_opt_ LPCWSTR MofImagePath, _In_opt_ LPCWSTR MofResourceName,
                                 _Out_ TRACEGUID_HANDLE *RegistrationHandle);
ULONG WMIAPI RegisterTraceGuidsA(_In_ WMIDPREQUEST RequestAddress, _In_opt_ PVOID RequestContext, _In_ LPCGUID ControlGuid,
                                 _In_ ULONG GuidCount, PTRACE_GUID_REGISTRATION TraceGuidReg, _In_opt_ LPCSTR MofImagePath,
                                 _In_opt_ LPCSTR MofResourceName, _Out_ TRACEGUID_HANDLE *RegistrationHandle);
#ifdef UNICODE
#define RegisterTraceGuids RegisterTraceGuidsW
#else
#define RegisterTraceGuids RegisterTraceGuidsA
#endif
ULONG WMIAPI UnregisterTraceGuids(_In_ TRACEGUID_HANDLE RegistrationHandle);

TRACELOGGER_HANDLE WMIAPI GetTraceLoggerHandle(_In_ PVOID Buffer);
UCHAR WMIAPI GetTraceEnableLevel(_In_ TRACELOGGER_HANDLE TraceHandle);
ULONG WMIAPI GetTraceEnableFlags(_In_ TRACELOGGER_HANDLE TraceHandle);

ULONG WMIAPI TraceEvent(_In_ TRACELOGGER_HANDLE TraceHandle, _In_ PEVENT_TRACE_HEADER EventTrace);
ULONG WMIAPI TraceEventInstance(_In_ TRACELOGGER_HANDLE TraceHandle, _In_ PEVENT_INSTANCE_HEADER EventTrace,
                                _In_ PEVENT_INSTANCE_INFO InstInfo, _In_opt_ PEVENT_INSTANCE_INFO ParentInstInfo);
ULONG WMIAPI CreateTraceInstanceId(_In_ HANDLE RegHandle, _Out_ PEVENT_INSTANCE_INFO InstInfo);

/* Writes a message with its arguments in an array; TraceMessage and TraceMessageVa call it. */
ULONG WMIAPI TraceweirTraceMessage(_In_ TRACELOGGER_HANDLE LoggerHandle, _In_ ULONG MessageFlags, _In_ LPCGUID MessageGuid,
                                   _In_ USHORT MessageNumber, const TRACEWEIR_MESSAGE_ARGUMENT *Arguments, ULONG Count);

#ifdef __cplusplus
}
#endif

#include "traceweir/evntrace_constants.h"
#include "traceweir/evntrace_control.h"
#include "traceweir/evntrace_info.h"
/* The published documentation puts these into evntcons.h, which includes this file. */
#include "traceweir/evntcons_access.h"

/* Arguments are pairs of an address and a SIZE_T, up to an address of NULL. A size must be a sizeof
 * or have a cast: an int has only half of the bytes. */
static inline ULONG TraceMessageVa(_In_ TRACELOGGER_HANDLE LoggerHandle, _In_ ULONG MessageFlags, _In_ LPCGUID MessageGuid,
                                   _In_ USHORT MessageNumber, _In_ va_list MessageArgList) {
    /* One more than a message can have is enough for the message to be refused. */
    TRACEWEIR_MESSAGE_ARGUMENT arguments[TRACEWEIR_MESSAGE_ARGUMENTS + 1];
    ULONG count = 0;
    while (count <= TRACEWEIR_MESSAGE_ARGUMENTS) {
        const void *data = va_arg(MessageArgList, const void *);
        if (data == NULL) {
            break;
        }
        arguments[count].Data = data;
        arguments[count].Size = va_arg(MessageArgList, SIZE_T);
        count++;
    }
    return TraceweirTraceMessage(LoggerHandle, MessageFlags, MessageGuid, MessageNumber, arguments, count);
}

/* The number is a USHORT, but the parameter before "..." must not have a type that is promoted. */
static inline ULONG TraceMessage(_In_ TRACELOGGER_HANDLE LoggerHandle, _In_ ULONG MessageFlags, _In_ LPCGUID MessageGuid,
                                 _In_ ULONG MessageNumber, ...) {
    ULONG status;
    va_list list;
    va_start(list, MessageNumber);
    status = TraceMessageVa(LoggerHandle, MessageFlags, MessageGuid, (USHORT)MessageNumber, list);
    va_end(list);
    return status;
}

#include "traceweir/evntrace_consumer.h"

#endif /* _EVNTRACE_ */
