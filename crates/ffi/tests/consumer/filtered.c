/* A session that records only events that pass payload filters:
 *   filtered MANIFEST SESSION FILTER      FILTER: hot (50 to 70 degrees), soup (a dish with soup),
 *                                         both (hot and soup) or either (hot or soup)
 * Prints "ready", then the id and degrees of each event; ends when the session is stopped.
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

static PVOID create_filter(const WCHAR *field, USHORT comparison, const WCHAR *value) {
    EVENT_DESCRIPTOR boiled = {1, 0, 0, 4, 0, 0, 0};
    PAYLOAD_FILTER_PREDICATE predicate;
    PVOID filter = NULL;
    memset(&predicate, 0, sizeof predicate);
    predicate.FieldName = (LPWSTR)(uintptr_t)field;
    predicate.CompareOp = comparison;
    predicate.Value = (LPWSTR)(uintptr_t)value;
    EXPECT(ERROR_SUCCESS, TdhCreatePayloadFilter(&kitchen, &boiled, FALSE, 1, &predicate, &filter));
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
    BOOLEAN is_required[2] = {FALSE, FALSE};
    ULONG filter_count = 1;
    WCHAR manifest[512] = {0};
    TRACEHANDLE handle = 0;
    PROCESSTRACE_HANDLE trace;
    if (count < 4) {
        return 2;
    }
    for (size_t at = 0; at < strlen(arguments[1]) && at < 511; at++) {
        manifest[at] = (WCHAR)arguments[1][at];
    }
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(manifest));
    if (strcmp(arguments[3], "soup") == 0) {
        filters[0] = create_filter(u"dish", PAYLOADFIELD_CONTAINS, u"soup");
    } else {
        filters[0] = create_filter(u"degrees", PAYLOADFIELD_BETWEEN, u"50,70");
    }
    if (strcmp(arguments[3], "both") == 0 || strcmp(arguments[3], "either") == 0) {
        is_required[0] = is_required[1] = strcmp(arguments[3], "both") == 0;
        filters[1] = create_filter(u"dish", PAYLOADFIELD_CONTAINS, u"soup");
        filter_count = 2;
    }
    memset(&descriptor, 0, sizeof descriptor);
    EXPECT(ERROR_SUCCESS, TdhAggregatePayloadFilters(filter_count, filters, is_required, &descriptor));
    EXPECT(EVENT_FILTER_TYPE_PAYLOAD, descriptor.Type);
    for (ULONG at = 0; at < filter_count; at++) {
        EXPECT(ERROR_SUCCESS, TdhDeletePayloadFilter(&filters[at]));
    }
    session.properties.Wnode.BufferSize = sizeof session;
    session.properties.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    session.properties.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    session.properties.LoggerNameOffset = (ULONG)((char *)session.name - (char *)&session);
    EXPECT(ERROR_SUCCESS, StartTraceA(&handle, arguments[2], &session.properties));
    memset(&parameters, 0, sizeof parameters);
    parameters.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    parameters.EnableFilterDesc = &descriptor;
    parameters.FilterDescCount = 1;
    EXPECT(ERROR_SUCCESS, EnableTraceEx2(handle, &kitchen, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 0, &parameters));
    EXPECT(ERROR_SUCCESS, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    EXPECT(0, descriptor.Ptr);
    log.LoggerName = arguments[2];
    log.ProcessTraceMode = PROCESS_TRACE_MODE_REAL_TIME | PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_event;
    trace = OpenTraceA(&log);
    EXPECT(1, trace != INVALID_PROCESSTRACE_HANDLE);
    printf("ready\n");
    fflush(stdout);
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
    return 0;
}
