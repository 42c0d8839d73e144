/* A classic provider with a session: events in one block and by fields, instances, messages. The
 * test that runs this checks the records. */
#include <evntrace.h>
#include <string.h>

#include "check.h"

static const GUID Control = {0xC0FFEE03, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID Class = {0xC1A55, 0, 0, {0}};
static const GUID Message = {0x3E55, 0, 0, {0}};
static volatile TRACELOGGER_HANDLE logger;
static ULONG answer = ERROR_SUCCESS;

static ULONG WMIAPI control(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    IS(WMI_ENABLE_EVENTS, code);
    IS((ULONG_PTR)&answer, (ULONG_PTR)context);
    IS(sizeof(WNODE_HEADER), *size);
    logger = GetTraceLoggerHandle(buffer);
    IS(0, memcmp(&((PWNODE_HEADER)buffer)->Guid, &Control, sizeof Control));
    return answer;
}

typedef struct {
    EVENT_TRACE_HEADER Header;
    union {
        UCHAR Data[320];
        MOF_FIELD Field[17];
    } u;
} EVENT;

static EVENT event(ULONG flags, USHORT size) {
    EVENT made;
    memset(&made, 0, sizeof made);
    made.Header.Size = (USHORT)(sizeof made.Header + size);
    made.Header.Class.Type = EVENT_TRACE_TYPE_START;
    made.Header.Class.Level = TRACE_LEVEL_WARNING;
    made.Header.Class.Version = 2;
    made.Header.Guid = Class;
    made.Header.Flags = flags;
    return made;
}

static void events(void) {
    EVENT e = event(WNODE_FLAG_TRACED_GUID, 4);
    memcpy(e.u.Data, "data", 4);
    IS(ERROR_SUCCESS, TraceEvent(logger, &e.Header));

    e = event(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_USE_GUID_PTR | WNODE_FLAG_USE_MOF_PTR, 2 * sizeof(MOF_FIELD));
    memset(&e.Header.Guid, 0xFF, sizeof e.Header.Guid);
    e.Header.GuidPtr = (ULONG_PTR)&Class;
    DEFINE_TRACE_MOF_FIELD(&e.u.Field[0], "one", 3, 0);
    e.u.Field[1].DataPtr = (ULONG_PTR) "two!";
    e.u.Field[1].Length = 4;
    IS(ERROR_SUCCESS, TraceEvent(logger, &e.Header));
    e.u.Field[1].DataPtr = 0;
    IS(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    e.Header.GuidPtr = 0;
    IS(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    e = event(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_USE_MOF_PTR, 17 * sizeof(MOF_FIELD));
    IS(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));

    e = event(0, 0);
    IS(ERROR_INVALID_FLAG_NUMBER, TraceEvent(logger, &e.Header));
    e = event(WNODE_FLAG_TRACED_GUID, 0);
    e.Header.Size = sizeof e.Header - 1;
    IS(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    IS(ERROR_INVALID_PARAMETER, TraceEvent(logger, NULL));
}

static void instances(HANDLE kind) {
    struct {
        EVENT_INSTANCE_HEADER Header;
        UCHAR Data[4];
    } e;
    EVENT_INSTANCE_INFO one, parent;
    memset(&e, 0, sizeof e);
    e.Header.Size = sizeof e.Header + 4;
    e.Header.Flags = WNODE_FLAG_TRACED_GUID;
    e.Header.Class.Type = EVENT_TRACE_TYPE_END;
    memcpy(e.Data, "inst", 4);
    IS(ERROR_SUCCESS, CreateTraceInstanceId(kind, &parent));
    IS(ERROR_SUCCESS, CreateTraceInstanceId(kind, &one));
    IS(ERROR_SUCCESS, TraceEventInstance(logger, &e.Header, &one, &parent));
    IS(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, &e.Header, NULL, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, NULL, &one, NULL));
    one.RegHandle = NULL;
    IS(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, &e.Header, &one, NULL));
    e.Header.Flags = 0;
    IS(ERROR_INVALID_FLAGS, TraceEventInstance(logger, &e.Header, &parent, NULL));
}

static ULONG by_list(ULONG flags, ...) {
    va_list list;
    va_start(list, flags);
    ULONG status = TraceMessageVa(logger, flags, &Message, 8, list);
    va_end(list);
    return status;
}

static void messages(void) {
    static const ULONG component = 0xC0;
    static UCHAR large[65536];
    IS(ERROR_SUCCESS, TraceMessage(logger, TRACE_MESSAGE_GUID | TRACE_MESSAGE_SYSTEMINFO, &Message, 7, "abc", (SIZE_T)3, "de",
                                   (SIZE_T)2, NULL, (SIZE_T)0));
    IS(ERROR_SUCCESS, by_list(TRACE_MESSAGE_GUID, "list", (SIZE_T)4, NULL));
    IS(ERROR_SUCCESS, TraceMessage(logger, TRACE_MESSAGE_COMPONENTID, (LPCGUID)&component, 9, NULL));
    IS(ERROR_SUCCESS, TraceMessage(logger, 0, NULL, 10, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_GUID | TRACE_MESSAGE_COMPONENTID, &Message, 1, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_GUID, NULL, 1, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_COMPONENTID, NULL, 1, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceMessage(logger, 0x4000, &Message, 1, NULL));
    IS(ERROR_MORE_DATA, TraceMessage(logger, TRACE_MESSAGE_GUID, &Message, 1, large, sizeof large, NULL));
    IS(ERROR_INVALID_PARAMETER, TraceweirTraceMessage(logger, 0, NULL, 1, NULL, 1));
}

int main(void) {
    TRACEGUID_HANDLE first, reg;
    TRACE_GUID_REGISTRATION classes[1] = {{&Class, NULL}};
    IS(ERROR_SUCCESS, RegisterTraceGuidsW(control, &answer, &Control, 0, NULL, NULL, NULL, &first));
    WAIT_UNTIL(logger != 0);
    /* The registration returns the status of the callback, and remains valid. */
    answer = 1234;
    ULONG status = 0;
    for (int tries = 0; tries < 20 && status == 0; tries++) {
        /* On a slow machine the callback may run too late for the registration to return its
         * status. */
        status = RegisterTraceGuidsW(control, &answer, &Control, 1, classes, NULL, NULL, &reg);
        IS(ERROR_SUCCESS, UnregisterTraceGuids(reg));
    }
    IS(1234, status);
    IS(ERROR_INVALID_HANDLE, TraceMessage(logger, 0, NULL, 10, NULL));
    answer = ERROR_SUCCESS;
    logger = 0;
    IS(ERROR_SUCCESS, RegisterTraceGuids(control, &answer, &Control, 1, classes, NULL, NULL, &reg));
    WAIT_UNTIL(logger != 0);
    SetLastError(0);
    IS(4, GetTraceEnableLevel(logger));
    IS(0x30, GetTraceEnableFlags(logger));
    IS(0, GetLastError());
    events();
    instances(classes[0].RegHandle);
    messages();
    IS(ERROR_SUCCESS, UnregisterTraceGuids(reg));
    IS(ERROR_SUCCESS, UnregisterTraceGuids(first));
    return finish();
}
