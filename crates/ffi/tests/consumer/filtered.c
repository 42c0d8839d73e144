/* A session whose provider writes only what passes payload filters:
 *   filtered MANIFEST SESSION FILTER      FILTER: hot | soup | both | either
 * prints "ready", then a line for each event; ends when the session is stopped.
 */
#include <evntcons.h>
#include <string.h>
#include <tdh.h>

#include "../c/check.h"

static const GUID kitchen = {0x2b4f0c6a, 0x91d3, 0x4c57, {0x8a, 0x0e, 0x6d, 0x5b, 0x3f, 0x1e, 0x7c, 0x42}};

static void WINAPI on_event(PEVENT_RECORD event) {
    if (event->EventHeader.ProviderId.Data1 == kitchen.Data1) {
        unsigned degrees = 0;
        if (event->UserDataLength >= 4) {
            memcpy(&degrees, event->UserData, 4);
        }
        printf("%u %u\n", event->EventHeader.EventDescriptor.Id, degrees);
        fflush(stdout);
    }
}

static PVOID filter_on(const WCHAR *field, USHORT operator_, const WCHAR *value) {
    EVENT_DESCRIPTOR boiled = {1, 0, 0, 4, 0, 0, 0};
    PAYLOAD_FILTER_PREDICATE predicate;
    PVOID filter = NULL;
    memset(&predicate, 0, sizeof predicate);
    predicate.FieldName = (LPWSTR)(uintptr_t)field;
    predicate.CompareOp = operator_;
    predicate.Value = (LPWSTR)(uintptr_t)value;
    IS(ERROR_SUCCESS, TdhCreatePayloadFilter(&kitchen, &boiled, FALSE, 1, &predicate, &filter));
    return filter;
}

int main(int count, char **arguments) {
    static struct {
        EVENT_TRACE_PROPERTIES properties;
        char name[64];
    } session;
    EVENT_TRACE_LOGFILEA log = {0};
    EVENT_FILTER_DESCRIPTOR descriptor;
    ENABLE_TRACE_PARAMETERS parameters;
    PVOID filters[2];
    BOOLEAN all[2] = {FALSE, FALSE};
    ULONG used = 1;
    WCHAR manifest[512] = {0};
    TRACEHANDLE handle = 0;
    PROCESSTRACE_HANDLE trace;
    if (count < 4) {
        return 2;
    }
    for (size_t at = 0; at < strlen(arguments[1]) && at < 511; at++) {
        manifest[at] = (WCHAR)arguments[1][at];
    }
    IS(ERROR_SUCCESS, TdhLoadManifest(manifest));
    if (strcmp(arguments[3], "soup") == 0) {
        filters[0] = filter_on(u"dish", PAYLOADFIELD_CONTAINS, u"soup");
    } else {
        filters[0] = filter_on(u"degrees", PAYLOADFIELD_BETWEEN, u"50,70");
    }
    if (strcmp(arguments[3], "both") == 0 || strcmp(arguments[3], "either") == 0) {
        all[0] = all[1] = strcmp(arguments[3], "both") == 0;
        filters[1] = filter_on(u"dish", PAYLOADFIELD_CONTAINS, u"soup");
        used = 2;
    }
    memset(&descriptor, 0, sizeof descriptor);
    IS(ERROR_SUCCESS, TdhAggregatePayloadFilters(used, filters, all, &descriptor));
    IS(EVENT_FILTER_TYPE_PAYLOAD, descriptor.Type);
    for (ULONG at = 0; at < used; at++) {
        IS(ERROR_SUCCESS, TdhDeletePayloadFilter(&filters[at]));
    }
    session.properties.Wnode.BufferSize = sizeof session;
    session.properties.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    session.properties.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    session.properties.LoggerNameOffset = (ULONG)((char *)session.name - (char *)&session);
    IS(ERROR_SUCCESS, StartTraceA(&handle, arguments[2], &session.properties));
    memset(&parameters, 0, sizeof parameters);
    parameters.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    parameters.EnableFilterDesc = &descriptor;
    parameters.FilterDescCount = 1;
    IS(ERROR_SUCCESS, EnableTraceEx2(handle, &kitchen, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 0, &parameters));
    IS(ERROR_SUCCESS, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    IS(0, descriptor.Ptr);
    log.LoggerName = arguments[2];
    log.ProcessTraceMode = PROCESS_TRACE_MODE_REAL_TIME | PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_event;
    trace = OpenTraceA(&log);
    IS(1, trace != INVALID_PROCESSTRACE_HANDLE);
    printf("ready\n");
    fflush(stdout);
    IS(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    IS(ERROR_SUCCESS, CloseTrace(trace));
    return 0;
}
