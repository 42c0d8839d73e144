/* A consumer of files: prints the events of one or several traces, merged by time, one line for each event.
 *
 *   cc examples/c/consumer.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o consumer
 *   ./consumer hello.etl
 */
#include "wide.h"

#include <evntrace.h>
#include <evntcons.h>

#include <time.h>

#define MAX_FILES 64

typedef struct Counts {
    ULONG events;
    ULONG buffers;
    ULONGLONG bytes;
} Counts;

/* Stamps are in units of 100 ns since 1601, which is 11644473600 s before 1970. */
static void print_time(LARGE_INTEGER stamp) {
    time_t seconds = (time_t)(stamp.QuadPart / 10000000 - 11644473600ll);
    const struct tm *utc = gmtime(&seconds);
    char text[32] = "?";
    if (utc != NULL) {
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", utc);
    }
    printf("%s.%07u", text, (unsigned)(stamp.QuadPart % 10000000));
}

static void WINAPI on_event(PEVENT_RECORD event) {
    Counts *counts = (Counts *)event->UserContext;
    const EVENT_HEADER *header = &event->EventHeader;
    counts->events++;
    counts->bytes += event->UserDataLength;
    print_time(header->TimeStamp);
    printf(" cpu %u pid %u tid %u ", (unsigned)GetEventProcessorIndex(event), (unsigned)header->ProcessId, (unsigned)header->ThreadId);
    print_guid(&header->ProviderId);
    printf(" id %u version %u level %u opcode %u keyword 0x%llx: %u bytes\n", header->EventDescriptor.Id, header->EventDescriptor.Version,
           header->EventDescriptor.Level, header->EventDescriptor.Opcode, (unsigned long long)header->EventDescriptor.Keyword,
           event->UserDataLength);
}

/* Called after each buffer; returning FALSE would end ProcessTrace. */
static ULONG WINAPI on_buffer(PEVENT_TRACE_LOGFILEW file) {
    Counts *counts = (Counts *)file->Context;
    counts->buffers++;
    return TRUE;
}

int main(int count, char **arguments) {
    static WCHAR names[MAX_FILES][1024];
    static TRACEHANDLE traces[MAX_FILES];
    Counts counts = {0, 0, 0};
    ULONG opened = 0, status = ERROR_SUCCESS;
    int code = 0;
    if (count < 2 || count > MAX_FILES + 1) {
        fprintf(stderr, "consumer FILE.etl...\n");
        return 2;
    }
    for (; opened + 1 < (ULONG)count && code == 0; opened++) {
        EVENT_TRACE_LOGFILEW file;
        memset(&file, 0, sizeof file);
        widen(arguments[opened + 1], names[opened], sizeof names[opened] / sizeof names[opened][0]);
        file.LogFileName = names[opened];
        file.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
        file.EventRecordCallback = on_event;
        file.BufferCallback = on_buffer;
        file.Context = &counts;
        traces[opened] = OpenTraceW(&file);
        if (traces[opened] == INVALID_PROCESSTRACE_HANDLE) {
            code = failed(arguments[opened + 1], GetLastError());
            break;
        }
    }
    if (code == 0) {
        status = ProcessTrace(traces, opened, NULL, NULL);
        code = status == ERROR_SUCCESS ? 0 : failed("reading", status);
    }
    while (opened > 0) {
        CloseTrace(traces[--opened]);
    }
    printf("%u events, %llu bytes in %u buffers\n", (unsigned)counts.events, (unsigned long long)counts.bytes, (unsigned)counts.buffers);
    return code;
}
