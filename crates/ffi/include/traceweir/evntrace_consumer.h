/* The consumer part of evntrace.h, which includes this file: events of files, of live sessions and
 * of buffers.
 *
 *   EVENT_TRACE_LOGFILEW log = {0};
 *   log.LogFileName = (LPWSTR)u"trace.etl";                   or LoggerName, and in the mode below
 *                                                             PROCESS_TRACE_MODE_REAL_TIME
 *   log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;   evntcons.h
 *   log.EventRecordCallback = OnEvent;
 *   PROCESSTRACE_HANDLE trace = OpenTraceW(&log);
 *   if (trace != INVALID_PROCESSTRACE_HANDLE) {
 *       ProcessTrace(&trace, 1, NULL, NULL);                  calls OnEvent, in the order of time
 *       CloseTrace(trace);
 *   }
 *
 * The arguments of a callback are valid until it returns. Written from the published documentation
 * of evntrace.h.
 */
#ifndef TRACEWEIR_EVNTRACE_CONSUMER_H
#define TRACEWEIR_EVNTRACE_CONSUMER_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

typedef ULONG64 PROCESSTRACE_HANDLE;
#define INVALID_PROCESSTRACE_HANDLE ((PROCESSTRACE_HANDLE)INVALID_HANDLE_VALUE)

struct _EVENT_RECORD;
struct _EVENT_TRACE_LOGFILEW;
struct _EVENT_TRACE_LOGFILEA;

/* The processor and logger of an event. GetEventProcessorIndex of evntcons.h returns the
 * processor. */
#ifndef ETW_BUFFER_CONTEXT_DEF
#define ETW_BUFFER_CONTEXT_DEF
typedef struct _ETW_BUFFER_CONTEXT {
    __extension__ union {
        __extension__ struct {
            UCHAR ProcessorNumber;
            UCHAR Alignment;
        };
        USHORT ProcessorIndex;
    };
    USHORT LoggerId;
} ETW_BUFFER_CONTEXT, *PETW_BUFFER_CONTEXT;
#endif

typedef struct _TRACEWEIR_VERSION_DETAIL {
    UCHAR MajorVersion;
    UCHAR MinorVersion;
    UCHAR SubVersion;
    UCHAR SubMinorVersion;
} TRACEWEIR_VERSION_DETAIL;

/* The header of a file or session. The two names are NULL: the names of session and file follow the
 * structure in the first event. */
typedef struct _TRACE_LOGFILE_HEADER {
    ULONG BufferSize;
    __extension__ union {
        ULONG Version;
        TRACEWEIR_VERSION_DETAIL VersionDetail;
    };
    ULONG ProviderVersion;
    ULONG NumberOfProcessors;
    LARGE_INTEGER EndTime;
    ULONG TimerResolution;
    ULONG MaximumFileSize;
    ULONG LogFileMode;
    ULONG BuffersWritten;
    __extension__ union {
        GUID LogInstanceGuid;
        __extension__ struct {
            ULONG StartBuffers;
            ULONG PointerSize;
            ULONG EventsLost;
            ULONG CpuSpeedInMHz;
        };
    };
    LPWSTR LoggerName;
    LPWSTR LogFileName;
    TIME_ZONE_INFORMATION TimeZone;
    LARGE_INTEGER BootTime;
    LARGE_INTEGER PerfFreq;
    LARGE_INTEGER StartTime;
    ULONG ReservedFlags;
    ULONG BuffersLost;
} TRACE_LOGFILE_HEADER, *PTRACE_LOGFILE_HEADER;

/* TRACE_LOGFILE_HEADER in files of 32-bit systems. */
typedef struct _TRACE_LOGFILE_HEADER32 {
    ULONG BufferSize;
    __extension__ union {
        ULONG Version;
        TRACEWEIR_VERSION_DETAIL VersionDetail;
    };
    ULONG ProviderVersion;
    ULONG NumberOfProcessors;
    LARGE_INTEGER EndTime;
    ULONG TimerResolution;
    ULONG MaximumFileSize;
    ULONG LogFileMode;
    ULONG BuffersWritten;
    __extension__ union {
        GUID LogInstanceGuid;
        __extension__ struct {
            ULONG StartBuffers;
            ULONG PointerSize;
            ULONG EventsLost;
            ULONG CpuSpeedInMHz;
        };
    };
    ULONG32 LoggerName;
    ULONG32 LogFileName;
    TIME_ZONE_INFORMATION TimeZone;
    LARGE_INTEGER BootTime;
    LARGE_INTEGER PerfFreq;
    LARGE_INTEGER StartTime;
    ULONG ReservedFlags;
    ULONG BuffersLost;
} TRACE_LOGFILE_HEADER32, *PTRACE_LOGFILE_HEADER32;

/* TRACE_LOGFILE_HEADER in files of 64-bit systems. */
typedef struct _TRACE_LOGFILE_HEADER64 {
    ULONG BufferSize;
    __extension__ union {
        ULONG Version;
        TRACEWEIR_VERSION_DETAIL VersionDetail;
    };
    ULONG ProviderVersion;
    ULONG NumberOfProcessors;
    LARGE_INTEGER EndTime;
    ULONG TimerResolution;
    ULONG MaximumFileSize;
    ULONG LogFileMode;
    ULONG BuffersWritten;
    __extension__ union {
        GUID LogInstanceGuid;
        __extension__ struct {
            ULONG StartBuffers;
            ULONG PointerSize;
            ULONG EventsLost;
            ULONG CpuSpeedInMHz;
        };
    };
    ULONG64 LoggerName;
    ULONG64 LogFileName;
    TIME_ZONE_INFORMATION TimeZone;
    LARGE_INTEGER BootTime;
    LARGE_INTEGER PerfFreq;
    LARGE_INTEGER StartTime;
    ULONG ReservedFlags;
    ULONG BuffersLost;
} TRACE_LOGFILE_HEADER64, *PTRACE_LOGFILE_HEADER64;

/* An event for callbacks of the older kind. */
typedef struct _EVENT_TRACE {
    EVENT_TRACE_HEADER Header;
    ULONG InstanceId;
    ULONG ParentInstanceId;
    GUID ParentGuid;
    PVOID MofData;
    ULONG MofLength;
    __extension__ union {
        ULONG ClientContext;
        ETW_BUFFER_CONTEXT BufferContext;
    };
} EVENT_TRACE, *PEVENT_TRACE;

typedef VOID(WINAPI *PEVENT_CALLBACK)(PEVENT_TRACE pEvent);
typedef VOID(WINAPI *PEVENT_RECORD_CALLBACK)(struct _EVENT_RECORD *EventRecord);
/* Called after each buffer; FALSE ends ProcessTrace with ERROR_CANCELLED. */
typedef ULONG(WINAPI *PEVENT_TRACE_BUFFER_CALLBACKW)(struct _EVENT_TRACE_LOGFILEW *Logfile);
typedef ULONG(WINAPI *PEVENT_TRACE_BUFFER_CALLBACKA)(struct _EVENT_TRACE_LOGFILEA *Logfile);

/* The trace to open, and the callbacks. Only PROCESS_TRACE_MODE_EVENT_RECORD decides whether the
 * event callback receives records. */
typedef struct _EVENT_TRACE_LOGFILEW {
    LPWSTR LogFileName;
    LPWSTR LoggerName;
    LONGLONG CurrentTime;
    ULONG BuffersRead;
    __extension__ union {
        ULONG LogFileMode;
        ULONG ProcessTraceMode;
    };
    EVENT_TRACE CurrentEvent;
    TRACE_LOGFILE_HEADER LogfileHeader;
    PEVENT_TRACE_BUFFER_CALLBACKW BufferCallback;
    ULONG BufferSize;
    ULONG Filled;
    ULONG EventsLost;
    __extension__ union {
        PEVENT_CALLBACK EventCallback;
        PEVENT_RECORD_CALLBACK EventRecordCallback;
    };
    ULONG IsKernelTrace;
    PVOID Context;
} EVENT_TRACE_LOGFILEW, *PEVENT_TRACE_LOGFILEW;

typedef struct _EVENT_TRACE_LOGFILEA {
    LPSTR LogFileName;
    LPSTR LoggerName;
    LONGLONG CurrentTime;
    ULONG BuffersRead;
    __extension__ union {
        ULONG LogFileMode;
        ULONG ProcessTraceMode;
    };
    EVENT_TRACE CurrentEvent;
    TRACE_LOGFILE_HEADER LogfileHeader;
    PEVENT_TRACE_BUFFER_CALLBACKA BufferCallback;
    ULONG BufferSize;
    ULONG Filled;
    ULONG EventsLost;
    __extension__ union {
        PEVENT_CALLBACK EventCallback;
        PEVENT_RECORD_CALLBACK EventRecordCallback;
    };
    ULONG IsKernelTrace;
    PVOID Context;
} EVENT_TRACE_LOGFILEA, *PEVENT_TRACE_LOGFILEA;

/* The header of a buffer. FilledBytes is the number of valid bytes, including the header. */
typedef struct _ETW_BUFFER_HEADER {
    ULONG Reserved1[4];
    LARGE_INTEGER TimeStamp;
    ULONG Reserved2[4];
    ETW_BUFFER_CONTEXT ClientContext;
    ULONG Reserved3;
    ULONG FilledBytes;
    ULONG Reserved4[5];
} ETW_BUFFER_HEADER, *PETW_BUFFER_HEADER;

typedef struct _ETW_BUFFER_CALLBACK_INFORMATION {
    PROCESSTRACE_HANDLE TraceHandle;
    const TRACE_LOGFILE_HEADER *LogfileHeader;
    ULONG BuffersRead;
} ETW_BUFFER_CALLBACK_INFORMATION, *PETW_BUFFER_CALLBACK_INFORMATION;

/* Called with each buffer; FALSE ends ProcessTrace with ERROR_CANCELLED. */
typedef BOOL(WINAPI *PETW_BUFFER_CALLBACK)(const ETW_BUFFER_HEADER *Buffer, ULONG BufferSize,
                                           const ETW_BUFFER_CALLBACK_INFORMATION *ConsumerInfo, PVOID CallbackContext);
/* Called when a buffer of a stream belongs to the program again. */
typedef VOID(WINAPI *PETW_BUFFER_COMPLETION_CALLBACK)(const ETW_BUFFER_HEADER *Buffer, PVOID CallbackContext);

typedef enum _ETW_PROCESS_TRACE_MODES {
    ETW_PROCESS_TRACE_MODE_NONE = 0x00000000,
    ETW_PROCESS_TRACE_MODE_RAW_TIMESTAMP = 0x00000001
} ETW_PROCESS_TRACE_MODES;

typedef struct _ETW_OPEN_TRACE_OPTIONS {
    ETW_PROCESS_TRACE_MODES ProcessTraceModes;
    PEVENT_RECORD_CALLBACK EventCallback;
    PVOID EventCallbackContext;
    PETW_BUFFER_CALLBACK BufferCallback;
    PVOID BufferCallbackContext;
} ETW_OPEN_TRACE_OPTIONS, *PETW_OPEN_TRACE_OPTIONS;

typedef enum _ETW_PROCESS_HANDLE_INFO_TYPE {
    EtwQueryPartitionInformation = 1,
    EtwQueryPartitionInformationV2 = 2,
    EtwQueryLastDroppedTimes = 3,
    EtwQueryLogFileHeader = 4,
    EtwQueryProcessHandleInfoMax = 5
} ETW_PROCESS_HANDLE_INFO_TYPE;

typedef struct _ETW_TRACE_PARTITION_INFORMATION {
    GUID PartitionId;
    GUID ParentId;
    LONGLONG QpcOffsetFromRoot;
    ULONG PartitionType;
} ETW_TRACE_PARTITION_INFORMATION, *PETW_TRACE_PARTITION_INFORMATION;

typedef struct _ETW_TRACE_PARTITION_INFORMATION_V2 {
    LONGLONG QpcOffsetFromRoot;
    ULONG PartitionType;
    LPWSTR PartitionId;
    LPWSTR ParentId;
} ETW_TRACE_PARTITION_INFORMATION_V2, *PETW_TRACE_PARTITION_INFORMATION_V2;

#ifdef __cplusplus
extern "C" {
#endif

/* On failure, these functions set the last error and return INVALID_PROCESSTRACE_HANDLE. */
PROCESSTRACE_HANDLE WMIAPI OpenTraceW(_Inout_ PEVENT_TRACE_LOGFILEW Logfile);
PROCESSTRACE_HANDLE WMIAPI OpenTraceA(_Inout_ PEVENT_TRACE_LOGFILEA Logfile);
PROCESSTRACE_HANDLE WMIAPI OpenTraceFromFile(_In_ LPCWSTR LogFileName, _In_ const ETW_OPEN_TRACE_OPTIONS *Options,
                                             _Out_opt_ TRACE_LOGFILE_HEADER *LogFileHeader);
PROCESSTRACE_HANDLE WMIAPI OpenTraceFromRealTimeLogger(_In_ LPCWSTR LoggerName, _In_ const ETW_OPEN_TRACE_OPTIONS *Options,
                                                       _Out_opt_ TRACE_LOGFILE_HEADER *LogFileHeader);
PROCESSTRACE_HANDLE WMIAPI OpenTraceFromRealTimeLoggerWithAllocationOptions(
    _In_ LPCWSTR LoggerName, _In_ const ETW_OPEN_TRACE_OPTIONS *Options, ULONG_PTR AllocationSize,
    _In_opt_ HANDLE MemoryPartitionHandle, _Out_opt_ TRACE_LOGFILE_HEADER *LogFileHeader);
PROCESSTRACE_HANDLE WMIAPI OpenTraceFromBufferStream(_In_ const ETW_OPEN_TRACE_OPTIONS *Options,
                                                     _In_ PETW_BUFFER_COMPLETION_CALLBACK BufferCompletionCallback,
                                                     _In_opt_ PVOID BufferCompletionContext);

/* Returns when all events of all handles have been delivered, or when processing is ended early. */
ULONG WMIAPI ProcessTrace(_In_reads_(HandleCount) const PROCESSTRACE_HANDLE *HandleArray, _In_ ULONG HandleCount,
                          _In_opt_ const FILETIME *StartTime, _In_opt_ const FILETIME *EndTime);
/* While ProcessTrace runs, returns ERROR_CTX_CLOSE_PENDING, which is a success. ProcessTrace then
 * delivers the events that have already arrived, and returns. */
ULONG WMIAPI CloseTrace(_In_ PROCESSTRACE_HANDLE TraceHandle);

/* For buffer callbacks. A buffer is kept until its reference count has been decremented as often as
 * it was incremented. ProcessTrace waits for that. */
ULONG WMIAPI ProcessTraceBufferIncrementReference(_In_ PROCESSTRACE_HANDLE TraceHandle, _In_ const ETW_BUFFER_HEADER *Buffer);
ULONG WMIAPI ProcessTraceBufferDecrementReference(_In_ const ETW_BUFFER_HEADER *Buffer);
/* The buffer must not change until the completion callback has received it. */
ULONG WMIAPI ProcessTraceAddBufferToBufferStream(_In_ PROCESSTRACE_HANDLE TraceHandle, _In_ const ETW_BUFFER_HEADER *Buffer,
                                                 _In_ ULONG BufferSize);

ULONG WMIAPI QueryTraceProcessingHandle(_In_ PROCESSTRACE_HANDLE ProcessingHandle,
                                        _In_ ETW_PROCESS_HANDLE_INFO_TYPE InformationClass, _In_opt_ PVOID InBuffer,
                                        _In_ ULONG InBufferSize, PVOID OutBuffer, _In_ ULONG OutBufferSize,
                                        _Out_ PULONG ReturnLength);

/* Sets a callback for the classic events of a class in all traces. It is called before the callback
 * of the trace. */
ULONG WMIAPI SetTraceCallback(_In_ LPCGUID pGuid, _In_ PEVENT_CALLBACK EventCallback);
ULONG WMIAPI RemoveTraceCallback(_In_ LPCGUID pGuid);

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define EVENT_TRACE_LOGFILE EVENT_TRACE_LOGFILEW
#define PEVENT_TRACE_LOGFILE PEVENT_TRACE_LOGFILEW
#define PEVENT_TRACE_BUFFER_CALLBACK PEVENT_TRACE_BUFFER_CALLBACKW
#define OpenTrace OpenTraceW
#else
#define EVENT_TRACE_LOGFILE EVENT_TRACE_LOGFILEA
#define PEVENT_TRACE_LOGFILE PEVENT_TRACE_LOGFILEA
#define PEVENT_TRACE_BUFFER_CALLBACK PEVENT_TRACE_BUFFER_CALLBACKA
#define OpenTrace OpenTraceA
#endif

#endif /* TRACEWEIR_EVNTRACE_CONSUMER_H */
