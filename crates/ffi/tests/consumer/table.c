/* The table of consumer calls and their status; the argument is a folder with a trace manifest.etl,
 * an empty file and a file that is not a trace. */
#include <errno.h>
#include <evntcons.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../c/check.h"

#define OPEN_FAILS(status, call)                   \
    do {                                           \
        SetLastError(0);                           \
        errno = 0;                                 \
        EXPECT(INVALID_PROCESSTRACE_HANDLE, call); \
        EXPECT(status, errno);                     \
        EXPECT(status, GetLastError());            \
    } while (0)

static char trace_name[4096], folder[4096];
static unsigned long long events, class_events;
static PROCESSTRACE_HANDLE own_trace;
static int closed_in_callback;

static const GUID event_trace_guid = {0x68FDD900, 0x4A3E, 0x11D1, {0x84, 0xF4, 0x00, 0x00, 0xF8, 0x04, 0x64, 0xE3}};

static const char *path_in(const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static PROCESSTRACE_HANDLE open_trace(const char *file, const char *logger, ULONG mode, PEVENT_RECORD_CALLBACK callback) {
    EVENT_TRACE_LOGFILEA log = {0};
    log.LogFileName = (char *)file;
    log.LoggerName = (char *)logger;
    log.ProcessTraceMode = mode;
    log.EventRecordCallback = callback;
    return OpenTraceA(&log);
}

static void WINAPI count_event(PEVENT_RECORD event) {
    (void)event;
    __atomic_add_fetch(&events, 1, __ATOMIC_RELAXED);
}

static void WINAPI count_class(PEVENT_TRACE event) {
    EXPECT(0x68FDD900, event->Header.Guid.Data1);
    class_events++;
}

static void WINAPI count_replaced(PEVENT_TRACE event) {
    (void)event;
    events++;
}

#define RECORDS PROCESS_TRACE_MODE_EVENT_RECORD

static void check_open(void) {
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceA(NULL));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceW(NULL));
    OPEN_FAILS(ERROR_BAD_PATHNAME, open_trace(NULL, NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_BAD_PATHNAME, open_trace("", NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_BAD_PATHNAME, open_trace(folder, NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, open_trace(trace_name, "session", RECORDS, count_event));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, open_trace(NULL, "session", RECORDS, count_event));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, open_trace(trace_name, NULL, RECORDS | PROCESS_TRACE_MODE_REAL_TIME, count_event));
    OPEN_FAILS(ERROR_WMI_INSTANCE_NOT_FOUND, open_trace(NULL, "no such session", RECORDS | PROCESS_TRACE_MODE_REAL_TIME, count_event));
    OPEN_FAILS(ERROR_FILE_NOT_FOUND, open_trace(path_in("missing.etl"), NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_PATH_NOT_FOUND, open_trace(path_in("missing/missing.etl"), NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_FILE_CORRUPT, open_trace(path_in("empty"), NULL, RECORDS, count_event));
    OPEN_FAILS(ERROR_FILE_CORRUPT, open_trace(path_in("text"), NULL, RECORDS, count_event));
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, count_event, NULL, NULL, NULL};
    ETW_OPEN_TRACE_OPTIONS unknown_mode = {(ETW_PROCESS_TRACE_MODES)2, count_event, NULL, NULL, NULL};
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceFromFile(NULL, &options, NULL));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceFromFile(u"missing.etl", NULL, NULL));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceFromFile(u"missing.etl", &unknown_mode, NULL));
    OPEN_FAILS(ERROR_BAD_PATHNAME, OpenTraceFromFile(u"", &options, NULL));
    OPEN_FAILS(ERROR_FILE_NOT_FOUND, OpenTraceFromFile(u"missing.etl", &options, NULL));
    OPEN_FAILS(ERROR_WMI_INSTANCE_NOT_FOUND, OpenTraceFromRealTimeLogger(u"none", &options, NULL));
    OPEN_FAILS(ERROR_WMI_INSTANCE_NOT_FOUND, OpenTraceFromRealTimeLoggerWithAllocationOptions(u"none", &options, 1 << 20, NULL, NULL));
    OPEN_FAILS(ERROR_NOT_SUPPORTED, OpenTraceFromRealTimeLoggerWithAllocationOptions(u"none", &options, 0, &options, NULL));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceFromBufferStream(NULL, NULL, NULL));
    OPEN_FAILS(ERROR_INVALID_PARAMETER, OpenTraceFromBufferStream(&options, NULL, NULL));
}

static void WINAPI count_completion(const ETW_BUFFER_HEADER *buffer, PVOID count) {
    (void)buffer;
    ++*(unsigned *)count;
}

static void check_process(void) {
    FILETIME early = {1, 0}, late = {2, 0};
    PROCESSTRACE_HANDLE many[65];
    for (unsigned at = 0; at < 65; at++) {
        many[at] = open_trace(trace_name, NULL, RECORDS, count_event);
    }
    PROCESSTRACE_HANDLE twice[2] = {many[0], many[0]};
    EXPECT(ERROR_BAD_LENGTH, ProcessTrace(many, 0, NULL, NULL));
    EXPECT(ERROR_BAD_LENGTH, ProcessTrace(NULL, 0, NULL, NULL));
    EXPECT(ERROR_BAD_LENGTH, ProcessTrace(many, 65, NULL, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTrace(NULL, 1, NULL, NULL));
    EXPECT(ERROR_INVALID_HANDLE, ProcessTrace(twice, 2, NULL, NULL));
    EXPECT(ERROR_INVALID_TIME, ProcessTrace(many, 1, &late, &early));
    /* None of these calls used up a handle. */
    events = 0;
    EXPECT(ERROR_SUCCESS, ProcessTrace(many, 1, NULL, NULL));
    unsigned long long events_per_trace = events;
    EXPECT(TRUE, events_per_trace > 0);
    EXPECT(ERROR_SUCCESS, ProcessTrace(many + 1, 64, NULL, NULL));
    EXPECT(65 * events_per_trace, events);
    /* A file is read again from its start. */
    EXPECT(ERROR_SUCCESS, ProcessTrace(many, 1, NULL, NULL));
    EXPECT(66 * events_per_trace, events);
    for (unsigned at = 0; at < 65; at++) {
        EXPECT(ERROR_SUCCESS, CloseTrace(many[at]));
        EXPECT(ERROR_INVALID_HANDLE, CloseTrace(many[at]));
    }
    /* A window before the first event contains no events. */
    PROCESSTRACE_HANDLE trace = open_trace(trace_name, NULL, RECORDS, count_event);
    events = 0;
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, &early, &late));
    EXPECT(0, events);
    CloseTrace(trace);
}

static void check_streams(void) {
    unsigned returned_count = 0;
    unsigned long long buffer[128];
    const ETW_BUFFER_HEADER *header = (const ETW_BUFFER_HEADER *)(const void *)buffer;
    memset(buffer, 0, sizeof buffer);
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, count_event, NULL, NULL, NULL};
    PROCESSTRACE_HANDLE stream = OpenTraceFromBufferStream(&options, count_completion, &returned_count);
    PROCESSTRACE_HANDLE file = open_trace(trace_name, NULL, RECORDS, count_event);
    PROCESSTRACE_HANDLE both[2] = {stream, file};
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTrace(both, 2, NULL, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceAddBufferToBufferStream(stream, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceAddBufferToBufferStream(stream, header, 0));
    /* One byte less than the header of a buffer. */
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceAddBufferToBufferStream(stream, header, 71));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceAddBufferToBufferStream(stream, header, sizeof buffer));
    memset(buffer, 0xFF, sizeof buffer);
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceAddBufferToBufferStream(stream, header, sizeof buffer));
    EXPECT(ERROR_INVALID_HANDLE, ProcessTraceAddBufferToBufferStream(file, header, sizeof buffer));
    EXPECT(ERROR_INVALID_HANDLE, ProcessTraceAddBufferToBufferStream(5, header, sizeof buffer));
    EXPECT(0, returned_count);
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferDecrementReference(header));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferDecrementReference(NULL));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(file, header));
    EXPECT(ERROR_SUCCESS, CloseTrace(stream));
    EXPECT(ERROR_INVALID_HANDLE, ProcessTraceAddBufferToBufferStream(stream, header, sizeof buffer));
    EXPECT(ERROR_SUCCESS, CloseTrace(file));
}

static void check_queries(void) {
    unsigned char out[4096];
    ULONG required_bytes = 0;
    TRACE_LOGFILE_HEADER header;
    ETW_TRACE_PARTITION_INFORMATION partition;
    PROCESSTRACE_HANDLE trace = open_trace(trace_name, NULL, RECORDS, count_event);
    EXPECT(ERROR_INVALID_HANDLE, QueryTraceProcessingHandle(trace + 1, EtwQueryLogFileHeader, NULL, 0, out, sizeof out, &required_bytes));
    EXPECT(ERROR_NOT_SUPPORTED, QueryTraceProcessingHandle(trace, (ETW_PROCESS_HANDLE_INFO_TYPE)0, NULL, 0, out, sizeof out, &required_bytes));
    EXPECT(ERROR_NOT_SUPPORTED, QueryTraceProcessingHandle(trace, EtwQueryProcessHandleInfoMax, NULL, 0, out, sizeof out, &required_bytes));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, NULL, 0, &required_bytes));
    EXPECT(sizeof header, required_bytes);
    EXPECT(ERROR_INSUFFICIENT_BUFFER, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, out, required_bytes - 1, &required_bytes));
    EXPECT(ERROR_INVALID_PARAMETER, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, NULL, sizeof out, &required_bytes));
    EXPECT(ERROR_INVALID_PARAMETER, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, out, sizeof out, NULL));
    EXPECT(ERROR_SUCCESS, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, &header, sizeof header, &required_bytes));
    EXPECT(TRUE, header.NumberOfProcessors > 0 && header.BufferSize >= 1024 && header.StartTime.QuadPart > 0);
    EXPECT(ERROR_SUCCESS, QueryTraceProcessingHandle(trace, EtwQueryPartitionInformation, NULL, 0, &partition, sizeof partition, &required_bytes));
    EXPECT(48, required_bytes);
    EXPECT(0, partition.PartitionType);
    EXPECT(ERROR_SUCCESS, QueryTraceProcessingHandle(trace, EtwQueryPartitionInformationV2, NULL, 0, out, sizeof out, &required_bytes));
    EXPECT(32, required_bytes);
    EXPECT(ERROR_SUCCESS, QueryTraceProcessingHandle(trace, EtwQueryLastDroppedTimes, NULL, 0, out, sizeof out, &required_bytes));
    EXPECT(8 + 8 * header.NumberOfProcessors, required_bytes);
    EXPECT(header.NumberOfProcessors, *(ULONG *)(void *)out);
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
    EXPECT(ERROR_INVALID_HANDLE, QueryTraceProcessingHandle(trace, EtwQueryLogFileHeader, NULL, 0, out, sizeof out, &required_bytes));
}

static void check_class_callbacks(void) {
    GUID unknown_class = {1, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}};
    EXPECT(ERROR_INVALID_PARAMETER, SetTraceCallback(NULL, count_class));
    EXPECT(ERROR_INVALID_PARAMETER, SetTraceCallback(&unknown_class, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, RemoveTraceCallback(NULL));
    EXPECT(ERROR_WMI_GUID_NOT_FOUND, RemoveTraceCallback(&unknown_class));
    EXPECT(ERROR_SUCCESS, SetTraceCallback(&event_trace_guid, count_replaced));
    EXPECT(ERROR_SUCCESS, SetTraceCallback(&event_trace_guid, count_class));
    PROCESSTRACE_HANDLE trace = open_trace(trace_name, NULL, RECORDS, count_event);
    events = 0;
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(TRUE, class_events > 0 && class_events < events);
    EXPECT(ERROR_SUCCESS, RemoveTraceCallback(&event_trace_guid));
    EXPECT(ERROR_WMI_GUID_NOT_FOUND, RemoveTraceCallback(&event_trace_guid));
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
}

/* A callback that calls the library: for its own handle, and to process a whole other trace. */
static void WINAPI call_library_in_callback(PEVENT_RECORD event) {
    ULONG required_bytes;
    unsigned char out[280];
    (void)event;
    events++;
    EXPECT(ERROR_INVALID_HANDLE, ProcessTrace(&own_trace, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, QueryTraceProcessingHandle(own_trace, EtwQueryLogFileHeader, NULL, 0, out, sizeof out, &required_bytes));
    if (events == 3) {
        unsigned long long before = events;
        PROCESSTRACE_HANDLE inner = open_trace(trace_name, NULL, RECORDS, count_event);
        EXPECT(ERROR_SUCCESS, ProcessTrace(&inner, 1, NULL, NULL));
        EXPECT(ERROR_SUCCESS, CloseTrace(inner));
        EXPECT(TRUE, events > before);
        events = before;
        EXPECT(ERROR_CTX_CLOSE_PENDING, CloseTrace(own_trace));
        EXPECT(ERROR_INVALID_HANDLE, CloseTrace(own_trace));
        closed_in_callback = 1;
        own_trace = open_trace(trace_name, NULL, RECORDS, NULL);
        EXPECT(TRUE, own_trace != INVALID_PROCESSTRACE_HANDLE);
    }
}

static ULONG WINAPI stop_at_buffer(PEVENT_TRACE_LOGFILEA log) {
    (void)log;
    return FALSE;
}

static void check_callbacks(void) {
    events = 0;
    own_trace = open_trace(trace_name, NULL, RECORDS, call_library_in_callback);
    PROCESSTRACE_HANDLE trace = own_trace;
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(3, events);
    EXPECT(1, closed_in_callback);
    EXPECT(ERROR_SUCCESS, ProcessTrace(&own_trace, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, CloseTrace(own_trace));
    EVENT_TRACE_LOGFILEA log = {0};
    log.LogFileName = trace_name;
    log.BufferCallback = stop_at_buffer;
    trace = OpenTraceA(&log);
    EXPECT(ERROR_CANCELLED, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
}

/* Many threads open, process and close their own handles and those of others at once. */
static volatile PROCESSTRACE_HANDLE shared[8];

static void *use_shared_handles(void *number) {
    unsigned long long seed = (unsigned long long)(uintptr_t)number * 0x9E3779B97F4A7C15ull + 1;
    for (unsigned round = 0; round < 60; round++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        unsigned slot = (unsigned)(seed >> 60) & 7;
        PROCESSTRACE_HANDLE handle = open_trace(trace_name, NULL, RECORDS, count_event);
        PROCESSTRACE_HANDLE previous = __atomic_exchange_n(&shared[slot], handle, __ATOMIC_ACQ_REL);
        PROCESSTRACE_HANDLE foreign = __atomic_load_n(&shared[(slot + 1) & 7], __ATOMIC_ACQUIRE);
        ULONG status = ProcessTrace(&handle, 1, NULL, NULL);
        if (status != ERROR_SUCCESS && status != ERROR_INVALID_HANDLE) {
            abort();
        }
        status = CloseTrace(previous);
        if (status != ERROR_SUCCESS && status != ERROR_INVALID_HANDLE && status != ERROR_CTX_CLOSE_PENDING) {
            abort();
        }
        status = ProcessTrace(&foreign, 1, NULL, NULL);
        if (status != ERROR_SUCCESS && status != ERROR_INVALID_HANDLE) {
            abort();
        }
        if (CloseTrace(seed) != ERROR_INVALID_HANDLE || ProcessTrace((PROCESSTRACE_HANDLE *)&seed, 1, NULL, NULL) != ERROR_INVALID_HANDLE) {
            abort();
        }
    }
    return NULL;
}

static void check_threads(void) {
    pthread_t workers[8];
    for (unsigned at = 0; at < 8; at++) {
        EXPECT(0, pthread_create(&workers[at], NULL, use_shared_handles, (void *)(uintptr_t)(at + 1)));
    }
    for (unsigned at = 0; at < 8; at++) {
        pthread_join(workers[at], NULL);
    }
    for (unsigned at = 0; at < 8; at++) {
        ULONG status = shared[at] == 0 ? ERROR_SUCCESS : CloseTrace(shared[at]);
        EXPECT(TRUE, status == ERROR_SUCCESS || status == ERROR_INVALID_HANDLE);
    }
}

static void check_handles(void) {
    static const PROCESSTRACE_HANDLE invalid[] = {0, 1, 2, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x100000000ull - 1, 0x8000000000000000ull,
                                                INVALID_PROCESSTRACE_HANDLE, INVALID_PROCESSTRACE_HANDLE - 1};
    for (unsigned at = 0; at < sizeof invalid / sizeof *invalid; at++) {
        EXPECT(ERROR_INVALID_HANDLE, CloseTrace(invalid[at]));
        EXPECT(ERROR_INVALID_HANDLE, ProcessTrace(&invalid[at], 1, NULL, NULL));
    }
}

int main(int count, char **arguments) {
    if (count < 2) {
        return 2;
    }
    snprintf(folder, sizeof folder, "%s", arguments[1]);
    snprintf(trace_name, sizeof trace_name, "%s", path_in("manifest.etl"));
    check_handles();
    check_open();
    check_process();
    check_streams();
    check_queries();
    check_class_callbacks();
    check_callbacks();
    check_threads();
    return report_rows();
}
