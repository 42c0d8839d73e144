/* Lists the running sessions as logman does, or one session in full, or the registered providers.
 *
 *   cc examples/c/list.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o list
 *   ./list                    sessions
 *   ./list NAME               one session
 *   ./list -providers         providers, with the sessions that enable them
 */
#include "wide.h"

#include <evntrace.h>

#define MAX_SESSIONS 64

typedef struct Properties {
    EVENT_TRACE_PROPERTIES trace;
    WCHAR session[1024];
    WCHAR file[1024];
} Properties;

static void prepare(Properties *properties) {
    memset(properties, 0, sizeof *properties);
    properties->trace.Wnode.BufferSize = sizeof *properties;
    properties->trace.LoggerNameOffset = offsetof(Properties, session);
    properties->trace.LogFileNameOffset = offsetof(Properties, file);
}

static int list_sessions(void) {
    static Properties properties[MAX_SESSIONS];
    EVENT_TRACE_PROPERTIES *pointers[MAX_SESSIONS];
    ULONG count = 0, status;
    for (ULONG at = 0; at < MAX_SESSIONS; at++) {
        prepare(&properties[at]);
        pointers[at] = &properties[at].trace;
    }
    status = QueryAllTracesW(pointers, MAX_SESSIONS, &count);
    if (status != ERROR_SUCCESS && status != ERROR_MORE_DATA) {
        return failed("the sessions cannot be queried", status);
    }
    printf("%-8s %-10s %-10s %s\n", "buffers", "lost", "mode", "session");
    for (ULONG at = 0; at < count && at < MAX_SESSIONS; at++) {
        const EVENT_TRACE_PROPERTIES *trace = &properties[at].trace;
        printf("%-8u %-10u 0x%08x ", (unsigned)trace->NumberOfBuffers, (unsigned)trace->EventsLost, (unsigned)trace->LogFileMode);
        print_wide(properties[at].session);
        printf("\n");
    }
    if (status == ERROR_MORE_DATA) {
        printf("and %u more\n", (unsigned)(count - MAX_SESSIONS));
    }
    return 0;
}

static int show_session(const char *argument) {
    static Properties properties;
    WCHAR name[256];
    ULONG status;
    prepare(&properties);
    widen(argument, name, sizeof name / sizeof name[0]);
    status = ControlTraceW(0, name, &properties.trace, EVENT_TRACE_CONTROL_QUERY);
    if (status != ERROR_SUCCESS) {
        return failed(argument, status);
    }
    printf("Name:             ");
    print_wide(properties.session);
    printf("\nLog file:         ");
    print_wide(properties.file);
    printf("\nMode:             0x%08x\n", (unsigned)properties.trace.LogFileMode);
    printf("Buffer size:      %u KB\n", (unsigned)properties.trace.BufferSize);
    printf("Buffers:          %u (%u to %u), %u free\n", (unsigned)properties.trace.NumberOfBuffers, (unsigned)properties.trace.MinimumBuffers,
           (unsigned)properties.trace.MaximumBuffers, (unsigned)properties.trace.FreeBuffers);
    printf("Buffers written:  %u\n", (unsigned)properties.trace.BuffersWritten);
    printf("Events lost:      %u\n", (unsigned)properties.trace.EventsLost);
    printf("Buffers lost:     %u, live %u\n", (unsigned)properties.trace.LogBuffersLost, (unsigned)properties.trace.RealTimeBuffersLost);
    return 0;
}

/* Queries until the buffer is large enough: the answer may grow between two calls. The caller frees the buffer. */
static void *enumerate(TRACE_QUERY_INFO_CLASS info_class, void *input, ULONG input_size, ULONG *size) {
    void *buffer = NULL;
    ULONG status, capacity = 0;
    *size = 0;
    do {
        capacity = *size;
        free(buffer);
        buffer = malloc(capacity > 0 ? capacity : 1);
        status = EnumerateTraceGuidsEx(info_class, input, input_size, buffer, capacity, size);
    } while (status == ERROR_INSUFFICIENT_BUFFER && *size > capacity);
    if (status != ERROR_SUCCESS) {
        failed("the providers cannot be enumerated", status);
        free(buffer);
        return NULL;
    }
    return buffer;
}

/* Prints the registrations of a provider. In the buffer, each registration is followed by its enables, one per session. */
static void show_provider(GUID *provider) {
    ULONG size;
    char *buffer = (char *)enumerate(TraceGuidQueryInfo, provider, sizeof *provider, &size);
    if (buffer == NULL) {
        return;
    }
    const TRACE_GUID_INFO *info = (const TRACE_GUID_INFO *)(void *)buffer;
    const char *at = buffer + sizeof *info;
    for (ULONG number = 0; number < info->InstanceCount; number++) {
        const TRACE_PROVIDER_INSTANCE_INFO *instance = (const TRACE_PROVIDER_INSTANCE_INFO *)(const void *)at;
        const TRACE_ENABLE_INFO *enable = (const TRACE_ENABLE_INFO *)(const void *)(at + sizeof *instance);
        printf("    process %u", (unsigned)instance->Pid);
        for (ULONG session = 0; session < instance->EnableCount; session++) {
            printf(", session %u: level %u keywords 0x%llx", enable[session].LoggerId, enable[session].Level,
                   (unsigned long long)enable[session].MatchAnyKeyword);
        }
        printf("\n");
        at += instance->NextOffset;
    }
    free(buffer);
}

static int list_providers(void) {
    ULONG size;
    GUID *providers = (GUID *)enumerate(TraceGuidQueryList, NULL, 0, &size);
    if (providers == NULL) {
        return 1;
    }
    for (ULONG at = 0; at < size / sizeof(GUID); at++) {
        print_guid(&providers[at]);
        printf("\n");
        show_provider(&providers[at]);
    }
    free(providers);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 1) {
        return list_sessions();
    }
    return strcmp(arguments[1], "-providers") == 0 ? list_providers() : show_session(arguments[1]);
}
