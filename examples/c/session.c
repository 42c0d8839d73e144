/* A controller: starts a session that writes a file, enables a provider in it, and stops the session at the end of standard input.
 *
 *   cc examples/c/session.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o session
 *   ./session Hello hello.etl '{3d1c9f52-6c1e-4a3b-9a52-0a8f0b1d7c11}'          in another terminal ./hello; then Ctrl-D
 */
#include "wide.h"

#include <evntrace.h>

/* The structure, followed by space for the names of the session and its file. */
typedef struct Properties {
    EVENT_TRACE_PROPERTIES trace;
    WCHAR session[256];
    WCHAR file[1024];
} Properties;

static void prepare(Properties *properties) {
    memset(properties, 0, sizeof *properties);
    properties->trace.Wnode.BufferSize = sizeof *properties;
    properties->trace.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    properties->trace.LoggerNameOffset = offsetof(Properties, session);
    properties->trace.LogFileNameOffset = offsetof(Properties, file);
}

/* Starts the session. Stops a session with this name first, if an earlier run left one. */
static ULONG start(TRACEHANDLE *handle, const WCHAR *name, const char *file, Properties *properties) {
    ULONG status = ERROR_ALREADY_EXISTS;
    for (int attempt = 0; attempt < 2 && status == ERROR_ALREADY_EXISTS; attempt++) {
        if (attempt > 0) {
            prepare(properties);
            ControlTraceW(0, name, &properties->trace, EVENT_TRACE_CONTROL_STOP);
        }
        prepare(properties);
        properties->trace.Wnode.ClientContext = 1; /* The clock: QueryPerformanceCounter. */
        properties->trace.LogFileMode = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
        properties->trace.BufferSize = 64; /* KB */
        properties->trace.FlushTimer = 1;
        widen(file, properties->file, sizeof properties->file / sizeof properties->file[0]);
        status = StartTraceW(handle, name, &properties->trace);
    }
    return status;
}

int main(int count, char **arguments) {
    static Properties properties;
    TRACEHANDLE handle = 0;
    WCHAR name[256];
    GUID provider;
    ULONG status;
    if (count != 4 || !parse_guid(arguments[3], &provider)) {
        fprintf(stderr, "session NAME FILE.etl {PROVIDER}\n");
        return 2;
    }
    widen(arguments[1], name, sizeof name / sizeof name[0]);
    status = start(&handle, name, arguments[2], &properties);
    if (status != ERROR_SUCCESS) {
        return failed("the session cannot be started", status);
    }
    /* Enables all events up to level verbose, and waits up to five seconds for the processes of the provider. */
    status = EnableTraceEx2(handle, &provider, EVENT_CONTROL_CODE_ENABLE_PROVIDER, TRACE_LEVEL_VERBOSE, 0, 0, 5000, NULL);
    if (status != ERROR_SUCCESS) {
        failed("the provider cannot be enabled", status);
    } else {
        printf("recording\n");
        fflush(stdout);
        while (getchar() != EOF) {
        }
        EnableTraceEx2(handle, &provider, EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0, 0, NULL);
    }
    prepare(&properties);
    ULONG stop_status = ControlTraceW(handle, NULL, &properties.trace, EVENT_TRACE_CONTROL_STOP);
    if (stop_status != ERROR_SUCCESS) {
        return failed("the session cannot be stopped", stop_status);
    }
    printf("wrote %u buffers to ", (unsigned)properties.trace.BuffersWritten);
    print_wide(properties.file);
    printf(", %u events lost\n", (unsigned)properties.trace.EventsLost);
    return status == ERROR_SUCCESS ? 0 : 1;
}
