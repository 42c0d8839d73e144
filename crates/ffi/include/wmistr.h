/* The part of wmistr.h for tracing: WNODE_HEADER, its flags, and the codes of control callbacks.
 * There are no WMI data blocks here.
 */
#ifndef _WMISTR_
#define _WMISTR_

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "traceweir/windows_types.h"

/* Flags of a WNODE_HEADER. */
#define WNODE_FLAG_USE_TIMESTAMP 0x00000200
#define WNODE_FLAG_TRACED_GUID 0x00020000
#define WNODE_FLAG_LOG_WNODE 0x00040000
#define WNODE_FLAG_USE_GUID_PTR 0x00080000
#define WNODE_FLAG_USE_MOF_PTR 0x00100000

typedef enum {
    WMI_GET_ALL_DATA = 0,
    WMI_GET_SINGLE_INSTANCE = 1,
    WMI_SET_SINGLE_INSTANCE = 2,
    WMI_SET_SINGLE_ITEM = 3,
    WMI_ENABLE_EVENTS = 4,
    WMI_DISABLE_EVENTS = 5,
    WMI_ENABLE_COLLECTION = 6,
    WMI_DISABLE_COLLECTION = 7,
    WMI_REGINFO = 8,
    WMI_EXECUTE_METHOD = 9,
    WMI_CAPTURE_STATE = 10
} WMIDPREQUESTCODE;

/* The buffer of a control callback, and the start of EVENT_TRACE_PROPERTIES. In a callback,
 * HistoricalContext is the logger that GetTraceLoggerHandle returns. */
typedef struct _WNODE_HEADER {
    ULONG BufferSize;
    ULONG ProviderId;
    __extension__ union {
        ULONG64 HistoricalContext;
        __extension__ struct {
            ULONG Version;
            ULONG Linkage;
        };
    };
    __extension__ union {
        ULONG CountLost;
        HANDLE KernelHandle;
        LARGE_INTEGER TimeStamp;
    };
    GUID Guid;
    ULONG ClientContext;
    ULONG Flags;
} WNODE_HEADER, *PWNODE_HEADER;

#endif /* _WMISTR_ */
