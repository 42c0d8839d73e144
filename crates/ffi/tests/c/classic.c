/* A classic provider with a session: events in one block and by fields, instances, messages. The
 * test that runs this program checks the records. */
#include <evntrace.h>
#include <string.h>

#include "check.h"

static const GUID Control = {0xC0FFEE03, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID Class = {0xC1A55, 0, 0, {0}};
static const GUID Message = {0x3E55, 0, 0, {0}};
static volatile TRACELOGGER_HANDLE logger;
static ULONG callback_status = ERROR_SUCCESS;

static ULONG WMIAPI control(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    EXPECT(WMI_ENABLE_EVENTS, code);
    EXPECT((ULONG_PTR)&callback_status, (ULONG_PTR)context);
    EXPECT(sizeof(WNODE_HEADER), *size);
    logger = GetTraceLoggerHandle(buffer);
    EXPECT(0, memcmp(&((PWNODE_HEADER)buffer)->Guid, &Control, sizeof Control));
    return callback_status;
}

typedef struct {
    EVENT_TRACE_HEADER Header;
    union {
        UCHAR Data[320];
        MOF_FIELD Field[17];
    } u;
} EVENT;

static EVENT make_event(ULONG flags, USHORT size) {
    EVENT event;
    memset(&event, 0, sizeof event);
    event.Header.Size = (USHORT)(sizeof event.Header + size);
    event.Header.Class.Type = EVENT_TRACE_TYPE_START;
    event.Header.Class.Level = TRACE_LEVEL_WARNING;
    event.Header.Class.Version = 2;
    event.Header.Guid = Class;
    event.Header.Flags = flags;
    return event;
}

static void check_events(void) {
    EVENT e = make_event(WNODE_FLAG_TRACED_GUID, 4);
    memcpy(e.u.Data, "data", 4);
    EXPECT(ERROR_SUCCESS, TraceEvent(logger, &e.Header));

    e = make_event(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_USE_GUID_PTR | WNODE_FLAG_USE_MOF_PTR, 2 * sizeof(MOF_FIELD));
    memset(&e.Header.Guid, 0xFF, sizeof e.Header.Guid);
    e.Header.GuidPtr = (ULONG_PTR)&Class;
    DEFINE_TRACE_MOF_FIELD(&e.u.Field[0], "one", 3, 0);
    e.u.Field[1].DataPtr = (ULONG_PTR) "two!";
    e.u.Field[1].Length = 4;
    EXPECT(ERROR_SUCCESS, TraceEvent(logger, &e.Header));
    e.u.Field[1].DataPtr = 0;
    EXPECT(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    e.Header.GuidPtr = 0;
    EXPECT(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    /* An event has at most 16 fields. */
    e = make_event(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_USE_MOF_PTR, 17 * sizeof(MOF_FIELD));
    EXPECT(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));

    e = make_event(0, 0);
    EXPECT(ERROR_INVALID_FLAG_NUMBER, TraceEvent(logger, &e.Header));
    e = make_event(WNODE_FLAG_TRACED_GUID, 0);
    e.Header.Size = sizeof e.Header - 1;
    EXPECT(ERROR_INVALID_PARAMETER, TraceEvent(logger, &e.Header));
    EXPECT(ERROR_INVALID_PARAMETER, TraceEvent(logger, NULL));
}

static void check_instances(HANDLE class_handle) {
    struct {
        EVENT_INSTANCE_HEADER Header;
        UCHAR Data[4];
    } e;
    EVENT_INSTANCE_INFO instance, parent;
    memset(&e, 0, sizeof e);
    e.Header.Size = sizeof e.Header + 4;
    e.Header.Flags = WNODE_FLAG_TRACED_GUID;
    e.Header.Class.Type = EVENT_TRACE_TYPE_END;
    memcpy(e.Data, "inst", 4);
    EXPECT(ERROR_SUCCESS, CreateTraceInstanceId(class_handle, &parent));
    EXPECT(ERROR_SUCCESS, CreateTraceInstanceId(class_handle, &instance));
    EXPECT(ERROR_SUCCESS, TraceEventInstance(logger, &e.Header, &instance, &parent));
    EXPECT(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, &e.Header, NULL, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, NULL, &instance, NULL));
    instance.RegHandle = NULL;
    EXPECT(ERROR_INVALID_PARAMETER, TraceEventInstance(logger, &e.Header, &instance, NULL));
    e.Header.Flags = 0;
    EXPECT(ERROR_INVALID_FLAGS, TraceEventInstance(logger, &e.Header, &parent, NULL));
}

static ULONG trace_message_by_list(ULONG flags, ...) {
    va_list list;
    va_start(list, flags);
    ULONG status = TraceMessageVa(logger, flags, &Message, 8, list);
    va_end(list);
    return status;
}

static void check_messages(void) {
    static const ULONG component = 0xC0;
    static UCHAR large[65536];
    EXPECT(ERROR_SUCCESS, TraceMessage(logger, TRACE_MESSAGE_GUID | TRACE_MESSAGE_SYSTEMINFO, &Message, 7, "abc", (SIZE_T)3, "de",
                                   (SIZE_T)2, NULL, (SIZE_T)0));
    EXPECT(ERROR_SUCCESS, trace_message_by_list(TRACE_MESSAGE_GUID, "list", (SIZE_T)4, NULL));
    EXPECT(ERROR_SUCCESS, TraceMessage(logger, TRACE_MESSAGE_COMPONENTID, (LPCGUID)&component, 9, NULL));
    EXPECT(ERROR_SUCCESS, TraceMessage(logger, 0, NULL, 10, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_GUID | TRACE_MESSAGE_COMPONENTID, &Message, 1, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_GUID, NULL, 1, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TraceMessage(logger, TRACE_MESSAGE_COMPONENTID, NULL, 1, NULL));
    /* An unknown flag. */
    EXPECT(ERROR_INVALID_PARAMETER, TraceMessage(logger, 0x4000, &Message, 1, NULL));
    EXPECT(ERROR_MORE_DATA, TraceMessage(logger, TRACE_MESSAGE_GUID, &Message, 1, large, sizeof large, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TraceweirTraceMessage(logger, 0, NULL, 1, NULL, 1));
}

int main(void) {
    TRACEGUID_HANDLE first, reg;
    TRACE_GUID_REGISTRATION classes[1] = {{&Class, NULL}};
    EXPECT(ERROR_SUCCESS, RegisterTraceGuidsW(control, &callback_status, &Control, 0, NULL, NULL, NULL, &first));
    WAIT_UNTIL(logger != 0);
    /* The registration returns the status of the callback, and remains valid. */
    callback_status = 1234;
    ULONG status = 0;
    for (int tries = 0; tries < 20 && status == 0; tries++) {
        /* On a slow machine the callback may run too late for the registration to return the
         * status of the callback. */
        status = RegisterTraceGuidsW(control, &callback_status, &Control, 1, classes, NULL, NULL, &reg);
        EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(reg));
    }
    EXPECT(1234, status);
    EXPECT(ERROR_INVALID_HANDLE, TraceMessage(logger, 0, NULL, 10, NULL));
    callback_status = ERROR_SUCCESS;
    logger = 0;
    EXPECT(ERROR_SUCCESS, RegisterTraceGuids(control, &callback_status, &Control, 1, classes, NULL, NULL, &reg));
    WAIT_UNTIL(logger != 0);
    SetLastError(0);
    EXPECT(4, GetTraceEnableLevel(logger));
    EXPECT(0x30, GetTraceEnableFlags(logger));
    EXPECT(0, GetLastError());
    check_events();
    check_instances(classes[0].RegHandle);
    check_messages();
    EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(reg));
    EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(first));
    return report_rows();
}
