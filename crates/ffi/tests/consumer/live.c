/* Opens the live session that the first argument names, and prints its events. The second argument
 * says how the trace ends:
 *   stop      the session is stopped from outside
 *   inside    the callback closes the trace at event 99
 *   outside   another thread closes the trace after event 99
 */
#include <pthread.h>
#include <string.h>

#include "../c/check.h"
#include "print.h"

static PROCESSTRACE_HANDLE trace;
static const char *ending;
static volatile int has_event_99;

static void WINAPI on_event(PEVENT_RECORD event) {
    static int is_first = 1;
    if (is_first) {
        /* The log file header comes first. */
        EXPECT(0x68FDD900, event->EventHeader.ProviderId.Data1);
        EXPECT(0, event->EventHeader.EventDescriptor.Opcode);
        is_first = 0;
        return;
    }
    if (event->EventHeader.ProviderId.Data1 == 0x68FDD900) {
        return;
    }
    print_record(event);
    fflush(stdout);
    if (event->EventHeader.EventDescriptor.Id == 99) {
        has_event_99 = 1;
        if (strcmp(ending, "inside") == 0) {
            EXPECT(ERROR_CTX_CLOSE_PENDING, CloseTrace(trace));
        }
    }
}

static void *close_after_event_99(void *unused) {
    (void)unused;
    WAIT_UNTIL(has_event_99);
    EXPECT(ERROR_CTX_CLOSE_PENDING, CloseTrace(trace));
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    EVENT_TRACE_LOGFILEA log = {0};
    if (count < 3) {
        return 2;
    }
    ending = arguments[2];
    log.LoggerName = arguments[1];
    log.ProcessTraceMode = PROCESS_TRACE_MODE_REAL_TIME | PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_event;
    trace = OpenTraceA(&log);
    PROCESSTRACE_HANDLE second_trace = OpenTraceA(&log);
    if (trace == INVALID_PROCESSTRACE_HANDLE || second_trace == INVALID_PROCESSTRACE_HANDLE) {
        fprintf(stderr, "%u\n", GetLastError());
        return 1;
    }
    PROCESSTRACE_HANDLE both_traces[2] = {trace, second_trace};
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTrace(both_traces, 2, NULL, NULL));
    EXPECT(ERROR_SUCCESS, CloseTrace(second_trace));
    printf("ready\n");
    fflush(stdout);
    if (strcmp(ending, "outside") == 0) {
        EXPECT(0, pthread_create(&thread, NULL, close_after_event_99, NULL));
    }
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    if (strcmp(ending, "outside") == 0) {
        pthread_join(thread, NULL);
    }
    EXPECT(strcmp(ending, "stop") == 0 ? ERROR_SUCCESS : ERROR_INVALID_HANDLE, CloseTrace(trace));
    printf("done\n");
    return 0;
}
