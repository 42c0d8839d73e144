// A consumer in C that uses Traceweir: OpenTrace and ProcessTrace read the file that the argument names.
// The callback only counts the events.
#include <evntcons.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t events;

static void WINAPI on_event(PEVENT_RECORD event)
{
    (void)event;
    events++;
}

int main(int argc, char **argv)
{
    EVENT_TRACE_LOGFILEA log;
    memset(&log, 0, sizeof log);
    ULONG status;
    PROCESSTRACE_HANDLE trace;
    if (argc != 2) {
        return 2;
    }
    log.LogFileName = argv[1];
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_event;
    trace = OpenTraceA(&log);
    if (trace == INVALID_PROCESSTRACE_HANDLE) {
        fprintf(stderr, "%s cannot be opened: %u\n", argv[1], GetLastError());
        return 1;
    }
    status = ProcessTrace(&trace, 1, NULL, NULL);
    CloseTrace(trace);
    printf("%" PRIu64 "\n", events);
    return status == ERROR_SUCCESS ? 0 : 1;
}
