/* A live printer: enables a provider in a session of its own and prints every event with its fields, as TDH decodes them.
 *
 *   cc examples/c/printer.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o printer
 *   ./printer Live '{3d1c9f52-6c1e-4a3b-9a52-0a8f0b1d7c11}' [COUNT]       until COUNT events have come, or the session is stopped: weir stop Live
 */
#include "wide.h"

#include <evntrace.h>
#include <evntcons.h>
#include <tdh.h>

typedef struct Properties {
    EVENT_TRACE_PROPERTIES trace;
    WCHAR session[256];
} Properties;

/* The event that is being printed. */
typedef struct Event {
    EVENT_RECORD *record;
    TRACE_EVENT_INFO *info;
    /* The data that is not printed yet, and its size in bytes. */
    BYTE *data;
    ULONG data_left;
    /* The values of integer fields by index: other fields refer to them as counts or lengths. */
    USHORT *integers;
} Event;

/* The session, and the number of events that are still to be printed. */
typedef struct Printer {
    TRACEHANDLE session;
    unsigned long events_left;
} Printer;

static const WCHAR *text_at(const void *from, ULONG offset) { return (const WCHAR *)(const void *)((const BYTE *)from + offset); }

static USHORT pointer_size(const EVENT_RECORD *record) {
    return (record->EventHeader.Flags & EVENT_HEADER_FLAG_32_BIT_HEADER) != 0 ? 4 : 8;
}

/* Returns the map that names a field's values, or NULL; the caller frees it. */
static EVENT_MAP_INFO *find_map(Event *event, const EVENT_PROPERTY_INFO *field) {
    WCHAR *name = (WCHAR *)(void *)((BYTE *)event->info + field->nonStructType.MapNameOffset);
    EVENT_MAP_INFO *map = NULL;
    ULONG size = 0;
    if (field->nonStructType.MapNameOffset == 0 ||
        TdhGetEventMapInformation(event->record, name, NULL, &size) != ERROR_INSUFFICIENT_BUFFER) {
        return NULL;
    }
    map = (EVENT_MAP_INFO *)malloc(size);
    if (map != NULL && TdhGetEventMapInformation(event->record, name, map, &size) != ERROR_SUCCESS) {
        free(map);
        map = NULL;
    }
    return map;
}

/* Prints one value and moves past it; FALSE if the data does not match its description. */
static BOOL print_value(Event *event, const EVENT_PROPERTY_INFO *field, EVENT_MAP_INFO *map, USHORT length) {
    WCHAR buffer[256];
    WCHAR *text = buffer;
    ULONG size = sizeof buffer;
    USHORT used = 0;
    USHORT in = field->nonStructType.InType, out = field->nonStructType.OutType;
    USHORT available = (USHORT)(event->data_left > 0xFFFF ? 0xFFFF : event->data_left);
    ULONG status;
    for (;;) {
        status = TdhFormatProperty(event->info, map, pointer_size(event->record), in, out, length, available, event->data, &size, text, &used);
        if (status == ERROR_INSUFFICIENT_BUFFER && text == buffer) {
            text = (WCHAR *)malloc(size);
        } else if (status == ERROR_EVT_INVALID_EVENT_DATA && map != NULL) {
            map = NULL; /* A value that the map does not name is printed as a number. */
        } else {
            break;
        }
        if (text == NULL) {
            return FALSE;
        }
    }
    if (status == ERROR_SUCCESS) {
        print_wide(text);
        event->data += used;
        event->data_left -= used;
    } else {
        printf("(status %u)", (unsigned)status);
    }
    if (text != buffer) {
        free(text);
    }
    return status == ERROR_SUCCESS;
}

/* Stores the low 16 bits of an integer field, which may be the count or length of a later field. */
static void store_integer(Event *event, ULONG index) {
    USHORT in = event->info->EventPropertyInfoArray[index].nonStructType.InType;
    if (in >= TDH_INTYPE_INT8 && in <= TDH_INTYPE_UINT64 && event->data_left > 0) {
        event->integers[index] = event->data[0];
        if (in >= TDH_INTYPE_INT16 && event->data_left > 1) {
            event->integers[index] = (USHORT)(event->integers[index] | event->data[1] << 8);
        }
    }
}

static BOOL print_fields(Event *event, ULONG first, ULONG end);

static BOOL print_field(Event *event, ULONG index) {
    const EVENT_PROPERTY_INFO *field = &event->info->EventPropertyInfoArray[index];
    ULONG flags = (ULONG)field->Flags;
    USHORT count = (flags & PropertyParamCount) != 0 ? event->integers[field->countPropertyIndex] : field->count;
    USHORT length = (flags & PropertyParamLength) != 0 ? event->integers[field->lengthPropertyIndex] : field->length;
    BOOL is_array = (flags & PropertyParamCount) != 0 || count > 1;
    BOOL fits = TRUE;
    EVENT_MAP_INFO *map = (flags & PropertyStruct) != 0 ? NULL : find_map(event, field);
    printf(" ");
    print_wide(text_at(event->info, field->NameOffset));
    printf(is_array ? "=[" : "=");
    for (USHORT at = 0; at < count && fits; at++) {
        printf(at > 0 ? ", " : "");
        if ((flags & PropertyStruct) != 0) {
            ULONG first = field->structType.StructStartIndex;
            printf("{");
            fits = print_fields(event, first, first + field->structType.NumOfStructMembers);
            printf(" }");
        } else {
            store_integer(event, index);
            fits = print_value(event, field, map, length);
        }
    }
    printf(is_array ? "]" : "");
    free(map);
    return fits;
}

static BOOL print_fields(Event *event, ULONG first, ULONG end) {
    BOOL fits = TRUE;
    for (ULONG index = first; index < end && fits; index++) {
        fits = print_field(event, index);
    }
    return fits;
}

/* Returns the description of an event's fields, or NULL; the caller frees it. */
static TRACE_EVENT_INFO *describe(EVENT_RECORD *record) {
    ULONG size = 0;
    TRACE_EVENT_INFO *info = NULL;
    ULONG status = TdhGetEventInformation(record, 0, NULL, NULL, &size);
    if (status == ERROR_INSUFFICIENT_BUFFER && (info = (TRACE_EVENT_INFO *)malloc(size)) != NULL) {
        status = TdhGetEventInformation(record, 0, NULL, info, &size);
    }
    if (status != ERROR_SUCCESS) {
        free(info);
        return NULL;
    }
    return info;
}

static void print_event(EVENT_RECORD *record) {
    Event event = {record, describe(record), (BYTE *)record->UserData, record->UserDataLength, NULL};
    if (event.info == NULL) {
        print_guid(&record->EventHeader.ProviderId);
        printf(" id %u: %u bytes that nothing describes\n", record->EventHeader.EventDescriptor.Id, record->UserDataLength);
        return;
    }
    ULONG provider = event.info->ProviderNameOffset, task = event.info->TaskNameOffset;
    ULONG name = event.info->EventNameOffset != 0 ? event.info->EventNameOffset : task;
    if (provider != 0) {
        print_wide(text_at(event.info, provider));
    } else {
        print_guid(&record->EventHeader.ProviderId);
    }
    printf(" ");
    if (name != 0) {
        print_wide(text_at(event.info, name));
    } else {
        printf("id %u", record->EventHeader.EventDescriptor.Id);
    }
    printf(" pid %u:", (unsigned)record->EventHeader.ProcessId);
    event.integers = (USHORT *)calloc(event.info->PropertyCount + 1, sizeof(USHORT));
    if (event.integers != NULL) {
        print_fields(&event, 0, event.info->TopLevelPropertyCount);
    }
    printf("\n");
    free(event.integers);
    free(event.info);
}

static ULONG stop(TRACEHANDLE session, const WCHAR *name) {
    static Properties properties;
    memset(&properties, 0, sizeof properties);
    properties.trace.Wnode.BufferSize = sizeof properties;
    properties.trace.LoggerNameOffset = offsetof(Properties, session);
    return ControlTraceW(session, name, &properties.trace, EVENT_TRACE_CONTROL_STOP);
}

static void WINAPI on_event(PEVENT_RECORD record) {
    static const GUID event_trace_class = {0x68fdd900, 0x4a3e, 0x11d1, {0x84, 0xf4, 0x00, 0x00, 0xf8, 0x04, 0x64, 0xe3}};
    Printer *printer = (Printer *)record->UserContext;
    /* Skips the session's events about itself, and events after the last one to be printed. */
    if (memcmp(&record->EventHeader.ProviderId, &event_trace_class, sizeof event_trace_class) == 0 || printer->events_left == 0) {
        return;
    }
    print_event(record);
    fflush(stdout);
    if (--printer->events_left == 0) {
        stop(printer->session, NULL);
    }
}

/* Starts the session. Stops a session with this name first, if an earlier run left one. */
static ULONG start(TRACEHANDLE *session, const WCHAR *name) {
    static Properties properties;
    ULONG status = ERROR_ALREADY_EXISTS;
    for (int attempt = 0; attempt < 2 && status == ERROR_ALREADY_EXISTS; attempt++) {
        if (attempt > 0) {
            stop(0, name);
        }
        memset(&properties, 0, sizeof properties);
        properties.trace.Wnode.BufferSize = sizeof properties;
        properties.trace.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        properties.trace.Wnode.ClientContext = 1; /* The clock: QueryPerformanceCounter. */
        properties.trace.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
        properties.trace.FlushTimer = 1;
        properties.trace.LoggerNameOffset = offsetof(Properties, session);
        status = StartTraceW(session, name, &properties.trace);
    }
    return status;
}

int main(int count, char **arguments) {
    static WCHAR name[256];
    Printer printer = {0, ~0ul}; /* Without COUNT, the number of events is not limited. */
    EVENT_TRACE_LOGFILEW live;
    TRACEHANDLE trace;
    GUID provider;
    ULONG status;
    if (count < 3 || count > 4 || !parse_guid(arguments[2], &provider)) {
        fprintf(stderr, "printer NAME {PROVIDER} [COUNT]\n");
        return 2;
    }
    if (count == 4) {
        printer.events_left = strtoul(arguments[3], NULL, 10);
    }
    widen(arguments[1], name, sizeof name / sizeof name[0]);
    status = start(&printer.session, name);
    if (status != ERROR_SUCCESS) {
        return failed("the session cannot be started", status);
    }
    memset(&live, 0, sizeof live);
    live.LoggerName = name;
    live.ProcessTraceMode = PROCESS_TRACE_MODE_REAL_TIME | PROCESS_TRACE_MODE_EVENT_RECORD;
    live.EventRecordCallback = on_event;
    live.Context = &printer;
    trace = OpenTraceW(&live);
    if (trace == INVALID_PROCESSTRACE_HANDLE) {
        status = GetLastError();
        stop(printer.session, NULL);
        return failed("the session cannot be consumed", status);
    }
    status = EnableTraceEx2(printer.session, &provider, EVENT_CONTROL_CODE_ENABLE_PROVIDER, TRACE_LEVEL_VERBOSE, 0, 0, 5000, NULL);
    if (status == ERROR_SUCCESS) {
        printf("listening\n");
        fflush(stdout);
        status = ProcessTrace(&trace, 1, NULL, NULL);
    }
    CloseTrace(trace);
    stop(printer.session, NULL); /* Fails if the session was already stopped; the error is ignored. */
    return status == ERROR_SUCCESS ? 0 : failed("reading", status);
}
