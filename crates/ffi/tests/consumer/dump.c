/* Prints the events of files:
 *   dump records FILES              as EVENT_RECORD
 *   dump raw FILES                  as EVENT_RECORD with raw time stamps
 *   dump classic FILES              as EVENT_TRACE
 *   dump buffers FILES              as EVENT_RECORD, and the number of buffers
 *   dump window START END FILES     the events between two times (FILETIMEs)
 *   dump relay BUFFERS FILE         from a stream, to which this program adds the BUFFERS buffers
 *                                   of the file
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../c/check.h"
#include "print.h"

static unsigned long long events, buffers;
static int context;

static void WINAPI on_record(PEVENT_RECORD event) {
    events++;
    EXPECT(&context, event->UserContext);
    print_record(event);
}

static void WINAPI on_trace(PEVENT_TRACE event) {
    events++;
    printf("%lld %08x %u %u %u ids %u %u payload %u %016llx\n", event->Header.TimeStamp.QuadPart, event->Header.Guid.Data1,
           event->Header.Class.Version, event->Header.Class.Level, event->Header.Class.Type, event->Header.ThreadId,
           event->Header.ProcessId, event->MofLength, hash(HASH_START, event->MofData, event->MofLength));
}

static ULONG WINAPI on_logfile(PEVENT_TRACE_LOGFILEA log) {
    buffers++;
    EXPECT(&context, log->Context);
    EXPECT(buffers, log->BuffersRead);
    /* A buffer has at least its header, of 72 bytes. */
    EXPECT(TRUE, log->Filled >= 72 && log->LogfileHeader.BufferSize == log->BufferSize);
    EXPECT(0, log->LoggerName);
    /* The name ends with ".etl". */
    EXPECT('l', log->LogFileName[strlen(log->LogFileName) - 1]);
    return TRUE;
}

static PROCESSTRACE_HANDLE open_file(char *name, ULONG mode, BOOL has_buffer_callback) {
    EVENT_TRACE_LOGFILEA log = {0};
    log.LogFileName = name;
    log.ProcessTraceMode = mode;
    log.Context = &context;
    if (mode & PROCESS_TRACE_MODE_EVENT_RECORD) {
        log.EventRecordCallback = on_record;
    } else {
        log.EventCallback = on_trace;
    }
    log.BufferCallback = has_buffer_callback ? on_logfile : NULL;
    PROCESSTRACE_HANDLE trace = OpenTraceA(&log);
    if (trace == INVALID_PROCESSTRACE_HANDLE) {
        fprintf(stderr, "%s: %u\n", name, GetLastError());
        exit(1);
    }
    EXPECT(TRUE, log.LogfileHeader.NumberOfProcessors > 0 && log.BufferSize == log.LogfileHeader.BufferSize);
    return trace;
}

/* Another thread adds the buffers of a file, kept after their callback, to a stream. */
#define MAX_BUFFERS 4096
static const ETW_BUFFER_HEADER *kept[MAX_BUFFERS];
static ULONG sizes[MAX_BUFFERS];
static unsigned kept_count, expected_count;
static volatile unsigned returned_count;
static PROCESSTRACE_HANDLE stream;

static BOOL WINAPI on_buffer(const ETW_BUFFER_HEADER *buffer, ULONG size, const ETW_BUFFER_CALLBACK_INFORMATION *info, PVOID callback_context) {
    EXPECT(&context, callback_context);
    EXPECT(++buffers, info->BuffersRead);
    EXPECT(size, buffer->FilledBytes);
    EXPECT(TRUE, info->LogfileHeader->NumberOfProcessors > 0);
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(info->TraceHandle, buffer + 1));
    EXPECT(ERROR_INVALID_HANDLE, ProcessTraceBufferIncrementReference(info->TraceHandle + 7, buffer));
    EXPECT(ERROR_SUCCESS, ProcessTraceBufferIncrementReference(info->TraceHandle, buffer));
    EXPECT(TRUE, kept_count < MAX_BUFFERS);
    sizes[kept_count] = size;
    __atomic_store_n(&kept[kept_count++], buffer, __ATOMIC_RELEASE);
    return TRUE;
}

static void WINAPI on_completion(const ETW_BUFFER_HEADER *buffer, PVOID callback_context) {
    EXPECT(&context, callback_context);
    EXPECT(kept[returned_count], buffer);
    __atomic_store_n(&returned_count, returned_count + 1, __ATOMIC_RELEASE);
}

static volatile unsigned has_read_file;

static void *read_file(void *name) {
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, NULL, NULL, on_buffer, &context};
    WCHAR wide[4096] = {0};
    for (size_t at = 0; at < strlen((char *)name); at++) {
        wide[at] = (WCHAR)((char *)name)[at];
    }
    TRACE_LOGFILE_HEADER header;
    PROCESSTRACE_HANDLE trace = OpenTraceFromFile(wide, &options, &header);
    EXPECT(TRUE, trace != INVALID_PROCESSTRACE_HANDLE && header.NumberOfProcessors > 0);
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    __atomic_store_n(&has_read_file, 1, __ATOMIC_RELEASE);
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
    return NULL;
}

static void *feed_stream(void *name) {
    pthread_t reader;
    EXPECT(0, pthread_create(&reader, NULL, read_file, name));
    for (unsigned fed = 0; fed < expected_count; fed++) {
        WAIT_UNTIL(__atomic_load_n(&kept[fed], __ATOMIC_ACQUIRE) != NULL);
        EXPECT(TRUE, kept[fed] != NULL);
        EXPECT(ERROR_SUCCESS, ProcessTraceAddBufferToBufferStream(stream, kept[fed], sizes[fed]));
        EXPECT(ERROR_NOT_SUPPORTED, ProcessTraceBufferIncrementReference(stream, kept[fed]));
        WAIT_UNTIL(__atomic_load_n(&returned_count, __ATOMIC_ACQUIRE) > fed);
        EXPECT(fed + 1, __atomic_load_n(&returned_count, __ATOMIC_ACQUIRE));
    }
    /* ProcessTrace of the file waits, because no buffer was released. If it did not wait, it would
     * return within this time. */
    usleep(500000);
    EXPECT(0, __atomic_load_n(&has_read_file, __ATOMIC_ACQUIRE));
    for (unsigned at = 0; at < expected_count; at++) {
        EXPECT(ERROR_SUCCESS, ProcessTraceBufferDecrementReference(kept[at]));
        EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferDecrementReference(kept[at]));
    }
    pthread_join(reader, NULL);
    EXPECT(1, has_read_file);
    EXPECT(expected_count, kept_count);
    EXPECT(ERROR_CTX_CLOSE_PENDING, CloseTrace(stream));
    EXPECT(ERROR_INVALID_HANDLE, CloseTrace(stream));
    return NULL;
}

static void relay_buffers(char *name) {
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, on_record, &context, NULL, NULL};
    stream = OpenTraceFromBufferStream(&options, on_completion, &context);
    EXPECT(TRUE, stream != INVALID_PROCESSTRACE_HANDLE);
    pthread_t feeder;
    EXPECT(0, pthread_create(&feeder, NULL, feed_stream, name));
    EXPECT(ERROR_SUCCESS, ProcessTrace(&stream, 1, NULL, NULL));
    pthread_join(feeder, NULL);
}

int main(int count, char **arguments) {
    PROCESSTRACE_HANDLE traces[64] = {0};
    const char *form = arguments[1];
    /* A call that never returns fails the test. */
    alarm(200);
    if (strcmp(form, "relay") == 0) {
        expected_count = (unsigned)strtoul(arguments[2], NULL, 10);
        EXPECT(TRUE, expected_count > 0 && expected_count <= MAX_BUFFERS);
        relay_buffers(arguments[3]);
        return 0;
    }
    ULONG mode = strcmp(form, "classic") == 0 ? 0 : PROCESS_TRACE_MODE_EVENT_RECORD;
    mode |= strcmp(form, "raw") == 0 ? PROCESS_TRACE_MODE_RAW_TIMESTAMP : 0;
    BOOL has_buffer_callback = strcmp(form, "buffers") == 0;
    FILETIME start = {0, 0}, end = {0, 0};
    BOOL has_window = strcmp(form, "window") == 0;
    int first_file = 2;
    if (has_window) {
        unsigned long long from = strtoull(arguments[2], NULL, 10), to = strtoull(arguments[3], NULL, 10);
        start.dwLowDateTime = (DWORD)from, start.dwHighDateTime = (DWORD)(from >> 32);
        end.dwLowDateTime = (DWORD)to, end.dwHighDateTime = (DWORD)(to >> 32);
        first_file = 4;
    }
    for (int at = first_file; at < count; at++) {
        traces[at - first_file] = open_file(arguments[at], mode, has_buffer_callback);
    }
    EXPECT(ERROR_SUCCESS, ProcessTrace(traces, (ULONG)(count - first_file), has_window ? &start : NULL, has_window ? &end : NULL));
    for (int at = first_file; at < count; at++) {
        EXPECT(ERROR_SUCCESS, CloseTrace(traces[at - first_file]));
        EXPECT(ERROR_INVALID_HANDLE, CloseTrace(traces[at - first_file]));
    }
    if (has_buffer_callback) {
        printf("buffers %llu\n", buffers);
    }
    return 0;
}
