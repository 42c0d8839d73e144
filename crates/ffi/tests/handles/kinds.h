/* Every kind of handle that the library returns: how it is created, used and closed, and the status
 * of a wrong handle.
 *
 *   open_kinds(folder, manifest)     called once, before anything else; folder has manifest.etl
 */
#ifndef KINDS_H
#define KINDS_H

#include <evntcons.h>
#include <evntprov.h>
#include <evntrace.h>
#include <tdh.h>

#include <pthread.h>

#include "../c/control.h"

typedef ULONGLONG HANDLE64;

static const GUID PROVIDER = {0xC0FFEE20, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID CLASSIC = {0xC0FFEE21, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID CLASS = {0xC1A55, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID EXAMPLE = {0x6f0a4d5e, 0x3c41, 0x4a53, {0x9c, 0x0b, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a}};

static char folder[400], trace_file[450];
/* A session that runs all the time and records the events of the providers. */
static TRACEHANDLE lasting_session;
static EVENT_DESCRIPTOR filtered_event;
/* The last number in a session name, and the number of callback calls, for all threads. */
static unsigned long long session_number;
static unsigned long long calls;

static inline void *address(HANDLE64 handle) {
    return (void *)(ULONG_PTR)handle;
}

static inline HANDLE64 to_number(const void *handle) {
    return (HANDLE64)(ULONG_PTR)handle;
}

/* Providers. Their callback calls the library, with an invalid handle. */

static void NTAPI on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all, PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    static const EVENT_DESCRIPTOR event = {77, 0, 0, 4, 0, 0, 0x10};
    GUID activity;
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context, (void)code;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    EventWriteString(12345, 4, 0x10, u"nobody");
    EventWrite(12345, &event, 0, NULL);
    EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_ID, &activity);
}

static inline HANDLE64 make_provider(void) {
    REGHANDLE reg;
    EXPECT(ERROR_SUCCESS, EventRegister(&PROVIDER, on_enable, &calls, &reg));
    return reg;
}

static inline ULONG use_provider(HANDLE64 handle) {
    static const EVENT_DESCRIPTOR event = {1, 0, 0, 4, 0, 0, 0x10};
    BOOLEAN yes = TRUE;
    EVENT_DATA_DESCRIPTOR data;
    EventDataDescCreate(&data, "used", 4);
    EventProviderEnabled(handle, 4, 0x10);
    EventEnabled(handle, &event);
    EventWriteEx(handle, &event, 0, 0, NULL, NULL, 1, &data);
    EventWriteTransfer(handle, &event, &PROVIDER, &CLASS, 1, &data);
    EventWriteString(handle, 4, 0x10, u"used");
    EventSetInformation(handle, EventProviderUseDescriptorType, &yes, 1);
    return EventWrite(handle, &event, 1, &data);
}

static inline ULONG end_provider(HANDLE64 handle) {
    return EventUnregister(handle);
}

/* Classic providers, and the logger of the classic provider that was enabled last. */
static TRACEHANDLE logger;

static ULONG WMIAPI on_control(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    (void)context, (void)size;
    TRACEHANDLE current = GetTraceLoggerHandle(buffer);
    if (code == WMI_ENABLE_EVENTS) {
        GetTraceEnableLevel(current);
        GetTraceEnableFlags(current);
        __atomic_store_n(&logger, current, __ATOMIC_RELEASE);
    }
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    return ERROR_SUCCESS;
}

static inline HANDLE64 make_classic(void) {
    TRACE_GUID_REGISTRATION class_ = {&CLASS, NULL};
    TRACEHANDLE reg;
    EXPECT(ERROR_SUCCESS, RegisterTraceGuidsW(on_control, NULL, &CLASSIC, 1, &class_, NULL, NULL, &reg));
    return reg;
}

static inline ULONG end_classic(HANDLE64 handle) {
    return UnregisterTraceGuids(handle);
}

/* A registration also returns the handle of its class, which becomes invalid together with the
 * registration. The first registration stays until close_kinds. */
static HANDLE64 first_class, first_classic;

static inline ULONG use_class(HANDLE64 handle) {
    EVENT_INSTANCE_INFO info;
    return CreateTraceInstanceId(address(handle), &info);
}

/* The logger that a classic provider received. */
static inline ULONG use_logger(HANDLE64 handle) {
    struct {
        EVENT_TRACE_HEADER header;
        char data[8];
    } event;
    memset(&event, 0, sizeof event);
    event.header.Size = sizeof event;
    event.header.Guid = CLASS;
    event.header.Flags = WNODE_FLAG_TRACED_GUID;
    TraceMessage(handle, TRACE_MESSAGE_GUID, &CLASS, 1, "text", (SIZE_T)5, NULL, (SIZE_T)0);
    return TraceEvent(handle, &event.header);
}

/* Sessions of the daemon, and private ones of this process. */

static inline HANDLE64 make_session_of(ULONG mode, const char *kind) {
    char name[64];
    WCHAR wide[64];
    BLOCKW block;
    TRACEHANDLE session = 0;
    snprintf(name, sizeof name, "%s %llu", kind, __atomic_add_fetch(&session_number, 1, __ATOMIC_RELAXED));
    to_wide(wide, name);
    empty_block(&block)->p.LogFileMode = mode;
    block.p.BufferSize = 4;
    EXPECT(ERROR_SUCCESS, StartTraceW(&session, wide, &block.p));
    return session;
}

static inline HANDLE64 make_session(void) {
    return make_session_of(EVENT_TRACE_REAL_TIME_MODE, "session");
}

static inline HANDLE64 make_private(void) {
    return make_session_of(EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_BUFFERING_MODE, "own");
}

static inline ULONG use_session(HANDLE64 handle) {
    BLOCKW block;
    EVENT_FILTER_DESCRIPTOR ids;
    ENABLE_TRACE_PARAMETERS parameters;
    ULONG length;
    unsigned char information[256];
    struct {
        BOOLEAN in;
        UCHAR reserved;
        USHORT count, id;
    } event_ids = {TRUE, 0, 1, 1};
    EventFilterDescCreate(&ids, &event_ids, 6, EVENT_FILTER_TYPE_EVENT_ID);
    memset(&parameters, 0, sizeof parameters);
    parameters.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    parameters.EnableFilterDesc = &ids;
    parameters.FilterDescCount = 1;
    EnableTraceEx2(handle, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 0, &parameters);
    EnableTraceEx2(handle, &PROVIDER, EVENT_CONTROL_CODE_CAPTURE_STATE, 5, 0, 0, 0, NULL);
    EnableTraceEx2(handle, &PROVIDER, EVENT_CONTROL_CODE_DISABLE_PROVIDER, 5, 0, 0, 0, NULL);
    BYTE yes = 1;
    TraceSetInformation(handle, TraceProviderBinaryTracking, &yes, sizeof yes);
    TraceQueryInformation(handle, TraceStreamCount, information, sizeof information, &length);
    return ControlTraceW(handle, NULL, &empty_block(&block)->p, EVENT_TRACE_CONTROL_QUERY);
}

static inline ULONG end_session(HANDLE64 handle) {
    BLOCKW block;
    return ControlTraceW(handle, NULL, &empty_block(&block)->p, EVENT_TRACE_CONTROL_STOP);
}

/* Traces of a file; their callback calls the library. */

static unsigned long long delivered;

static void WINAPI on_record(PEVENT_RECORD event) {
    BYTE buffer[2048];
    ULONG size = sizeof buffer;
    __atomic_add_fetch(&delivered, 1, __ATOMIC_RELAXED);
    TdhGetEventInformation(event, 0, NULL, (PTRACE_EVENT_INFO)(void *)buffer, &size);
}

static inline HANDLE64 make_trace(void) {
    EVENT_TRACE_LOGFILEA log;
    memset(&log, 0, sizeof log);
    log.LogFileName = trace_file;
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_record;
    PROCESSTRACE_HANDLE trace = OpenTraceA(&log);
    EXPECT(TRUE, trace != INVALID_PROCESSTRACE_HANDLE);
    return trace;
}

static inline ULONG use_trace(HANDLE64 handle) {
    TRACE_LOGFILE_HEADER header;
    ULONG required_bytes;
    ProcessTraceBufferIncrementReference(handle, NULL);
    ProcessTraceAddBufferToBufferStream(handle, NULL, 0);
    return QueryTraceProcessingHandle(handle, EtwQueryLogFileHeader, NULL, 0, &header, sizeof header, &required_bytes);
}

static inline ULONG end_trace(HANDLE64 handle) {
    ULONG status = CloseTrace(handle);
    /* A trace that is being processed ends by itself. */
    return status == ERROR_CTX_CLOSE_PENDING ? ERROR_SUCCESS : status;
}

/* Handles for decoding. */

static inline HANDLE64 make_decoding(void) {
    TDH_HANDLE handle = NULL;
    EXPECT(ERROR_SUCCESS, TdhOpenDecodingHandle(&handle));
    return to_number(handle);
}

static inline ULONG use_decoding(HANDLE64 handle) {
    TDH_CONTEXT context;
    memset(&context, 0, sizeof context);
    context.ParameterType = TDH_CONTEXT_POINTERSIZE;
    context.ParameterValue = 8;
    ULONG status = TdhSetDecodingParameter((TDH_HANDLE)address(handle), &context);
    TdhGetDecodingParameter((TDH_HANDLE)address(handle), &context);
    return status;
}

static inline ULONG end_decoding(HANDLE64 handle) {
    return TdhCloseDecodingHandle((TDH_HANDLE)address(handle));
}

/* Payload filters, and combinations of them. */

static inline HANDLE64 make_filter(void) {
    WCHAR state[] = u"state", seven[] = u"7";
    PAYLOAD_FILTER_PREDICATE equals = {state, PAYLOADFIELD_EQ, seven};
    PVOID filter = NULL;
    EXPECT(ERROR_SUCCESS, TdhCreatePayloadFilter(&EXAMPLE, &filtered_event, FALSE, 1, &equals, &filter));
    return to_number(filter);
}

static inline ULONG end_descriptor(HANDLE64 handle) {
    EVENT_FILTER_DESCRIPTOR descriptor = {handle, 1, EVENT_FILTER_TYPE_PAYLOAD};
    return TdhCleanupPayloadEventFilterDescriptor(&descriptor);
}

static inline ULONG use_filter(HANDLE64 handle) {
    PVOID filter = address(handle);
    EVENT_FILTER_DESCRIPTOR descriptor;
    ULONG status = TdhAggregatePayloadFilters(1, &filter, NULL, &descriptor);
    return status == ERROR_SUCCESS ? end_descriptor(descriptor.Ptr) : status;
}

static inline ULONG end_filter(HANDLE64 handle) {
    PVOID filter = address(handle);
    return TdhDeletePayloadFilter(&filter);
}

static inline HANDLE64 make_descriptor(void) {
    EVENT_FILTER_DESCRIPTOR descriptor;
    PVOID filter = address(make_filter());
    EXPECT(ERROR_SUCCESS, TdhAggregatePayloadFilters(1, &filter, NULL, &descriptor));
    EXPECT(ERROR_SUCCESS, TdhDeletePayloadFilter(&filter));
    return descriptor.Ptr;
}

/* Texts that FormatMessage allocated. */

static inline HANDLE64 make_text(void) {
    LPWSTR text = NULL;
    EXPECT(TRUE, FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_ACCESS_DENIED, 0, (LPWSTR)&text, 0, NULL) > 0);
    return to_number(text);
}

static inline ULONG end_text(HANDLE64 handle) {
    SetLastError(ERROR_SUCCESS);
    void *remaining = LocalFree(address(handle));
    EXPECT(remaining == NULL, GetLastError() == ERROR_SUCCESS);
    return GetLastError();
}

/* Buffers that callbacks keep. */
static inline ULONG end_buffer(HANDLE64 handle) {
    return ProcessTraceBufferDecrementReference((const ETW_BUFFER_HEADER *)address(handle));
}

/* All kinds. Functions are NULL for kinds that cannot be created or used alone. */
typedef struct {
    const char *name;
    HANDLE64 (*make)(void);
    ULONG (*use)(HANDLE64);
    ULONG (*end)(HANDLE64);
    /* The status for a wrong handle, and for 0. */
    ULONG wrong_status, zero_status;
    /* Whether the handle is an address: then the library may return the value of a closed handle
     * again. */
    BOOLEAN can_repeat;
} KIND;

static const KIND KINDS[] = {
    {"provider", make_provider, use_provider, end_provider, ERROR_INVALID_HANDLE, ERROR_INVALID_HANDLE, FALSE},
    {"classic provider", make_classic, NULL, end_classic, ERROR_INVALID_PARAMETER, ERROR_INVALID_PARAMETER, FALSE},
    {"class", NULL, use_class, NULL, ERROR_INVALID_PARAMETER, ERROR_INVALID_PARAMETER, FALSE},
    {"logger", NULL, use_logger, NULL, ERROR_INVALID_HANDLE, ERROR_INVALID_HANDLE, FALSE},
    {"session", make_session, use_session, end_session, ERROR_WMI_INSTANCE_NOT_FOUND, ERROR_INVALID_PARAMETER, FALSE},
    {"session of the process", make_private, use_session, end_session, ERROR_WMI_INSTANCE_NOT_FOUND, ERROR_INVALID_PARAMETER, FALSE},
    {"trace", make_trace, use_trace, end_trace, ERROR_INVALID_HANDLE, ERROR_INVALID_HANDLE, FALSE},
    {"decoding handle", make_decoding, use_decoding, end_decoding, ERROR_INVALID_HANDLE, ERROR_INVALID_PARAMETER, FALSE},
    {"payload filter", make_filter, use_filter, end_filter, ERROR_INVALID_PARAMETER, ERROR_INVALID_PARAMETER, FALSE},
    {"filter descriptor", make_descriptor, NULL, end_descriptor, ERROR_INVALID_PARAMETER, ERROR_INVALID_PARAMETER, TRUE},
    {"text", make_text, NULL, end_text, ERROR_INVALID_HANDLE, ERROR_SUCCESS, TRUE},
    {"buffer", NULL, NULL, end_buffer, ERROR_INVALID_PARAMETER, ERROR_INVALID_PARAMETER, TRUE},
};

/* Indices in KINDS. */
enum { KIND_PROVIDER, KIND_CLASSIC, KIND_CLASS, KIND_LOGGER, KIND_SESSION, KIND_PRIVATE, KIND_TRACE, KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static inline void open_kinds(const char *folder_path, const char *manifest) {
    WCHAR path[450];
    TRACE_GUID_REGISTRATION class_ = {&CLASS, NULL};
    ULONG size = 0;
    PROVIDER_EVENT_INFO *events;
    snprintf(folder, sizeof folder, "%s", folder_path);
    snprintf(trace_file, sizeof trace_file, "%s/manifest.etl", folder_path);
    to_wide(path, manifest);
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(path));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateManifestProviderEvents((LPGUID)(ULONG_PTR)&EXAMPLE, NULL, &size));
    events = (PROVIDER_EVENT_INFO *)malloc(size);
    EXPECT(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents((LPGUID)(ULONG_PTR)&EXAMPLE, events, &size));
    filtered_event = events->EventDescriptorsArray[2];
    EXPECT(3, filtered_event.Id);
    free(events);
    lasting_session = make_session();
    EXPECT(ERROR_SUCCESS, EnableTraceEx2(lasting_session, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 0, NULL));
    EXPECT(ERROR_SUCCESS, EnableTraceEx2(lasting_session, &CLASSIC, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0x10, 0, 0, NULL));
    EXPECT(ERROR_SUCCESS, RegisterTraceGuidsW(on_control, NULL, &CLASSIC, 1, &class_, NULL, NULL, &first_classic));
    first_class = to_number(class_.RegHandle);
    WAIT_UNTIL(__atomic_load_n(&logger, __ATOMIC_ACQUIRE) != 0);
}

static inline void close_kinds(void) {
    EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(first_classic));
    EXPECT(ERROR_INVALID_PARAMETER, use_class(first_class));
    EXPECT(ERROR_INVALID_HANDLE, use_logger(logger));
    EXPECT(ERROR_SUCCESS, end_session(lasting_session));
}

#endif
