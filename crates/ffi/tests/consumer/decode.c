/* Prints the events of a trace as tdh.h decodes them; no manifest is loaded.
 *   decode file NAME     the events of a file
 *   decode live NAME     prints "ready", then the events of a session until the session stops
 * The last line has the status of a query about a kept event after ProcessTrace ("later"), and
 * after CloseTrace ("closed").
 */
#include <evntcons.h>
#include <string.h>
#include <tdh.h>

#include "../c/check.h"

#define EVENT_TRACE_CLASS 0x68FDD900

static EVENT_RECORD kept_event;
static BYTE kept_data[256];

static void print_text(const WCHAR *text) {
    for (; *text != 0; text++) {
        putchar(*text < 0x80 ? (int)*text : '?');
    }
}

static void print_fields(const EVENT_RECORD *event, TRACE_EVENT_INFO *info) {
    BYTE *data = (BYTE *)event->UserData;
    ULONG remaining_bytes = event->UserDataLength;
    for (ULONG index = 0; index < info->TopLevelPropertyCount; index++) {
        const EVENT_PROPERTY_INFO *field = &info->EventPropertyInfoArray[index];
        static BYTE map_buffer[4096];
        EVENT_MAP_INFO *map = NULL;
        static WCHAR text[1024];
        ULONG size = sizeof text, map_size = sizeof map_buffer;
        USHORT used = 0;
        if (field->nonStructType.MapNameOffset != 0) {
            WCHAR *name = (WCHAR *)(void *)((BYTE *)info + field->nonStructType.MapNameOffset);
            map = (EVENT_MAP_INFO *)(void *)map_buffer;
            EXPECT(ERROR_SUCCESS, TdhGetEventMapInformation((EVENT_RECORD *)(uintptr_t)event, name, map, &map_size));
        }
        USHORT in = field->nonStructType.InType, out = field->nonStructType.OutType;
        ULONG status = TdhFormatProperty(info, map, 8, in, out, field->length, (USHORT)remaining_bytes, data, &size, text, &used);
        if (status == ERROR_EVT_INVALID_EVENT_DATA && map != NULL) {
            /* The value has no name. */
            size = sizeof text;
            status = TdhFormatProperty(info, NULL, 8, in, out, field->length, (USHORT)remaining_bytes, data, &size, text, &used);
        }
        EXPECT(ERROR_SUCCESS, status);
        data += used;
        remaining_bytes -= used;
        printf(" ");
        print_text((const WCHAR *)(const void *)((const BYTE *)info + field->NameOffset));
        printf("=");
        print_text(text);
    }
    printf(" left %u\n", remaining_bytes);
}

static void WINAPI on_event(PEVENT_RECORD event) {
    static BYTE buffer[65536];
    TRACE_EVENT_INFO *info = (TRACE_EVENT_INFO *)(void *)buffer;
    ULONG size = sizeof buffer, status;
    if (event->EventHeader.ProviderId.Data1 == EVENT_TRACE_CLASS) {
        return;
    }
    status = TdhGetEventInformation(event, 0, NULL, info, &size);
    printf("%08x %u status %u", event->EventHeader.ProviderId.Data1, event->EventHeader.EventDescriptor.Id, status);
    if (status == ERROR_SUCCESS) {
        if (info->ProviderNameOffset != 0) {
            printf(" ");
            print_text((const WCHAR *)(const void *)((const BYTE *)info + info->ProviderNameOffset));
        }
        print_fields(event, info);
    } else {
        printf("\n");
    }
    if (event->UserDataLength <= sizeof kept_data && event->ExtendedDataCount == 0) {
        kept_event = *event;
        memcpy(kept_data, event->UserData, event->UserDataLength);
        kept_event.UserData = kept_data;
    }
    fflush(stdout);
}

/* Queries the schema of the kept event, outside of any callback. */
static ULONG query_outside_callback(void) {
    static BYTE buffer[65536];
    ULONG size = sizeof buffer;
    return TdhGetEventInformation(&kept_event, 0, NULL, (TRACE_EVENT_INFO *)(void *)buffer, &size);
}

int main(int count, char **arguments) {
    EVENT_TRACE_LOGFILEA log = {0};
    PROCESSTRACE_HANDLE trace;
    ULONG open_status;
    if (count < 3) {
        return 2;
    }
    log.EventRecordCallback = on_event;
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    if (strcmp(arguments[1], "live") == 0) {
        log.LoggerName = arguments[2];
        log.ProcessTraceMode |= PROCESS_TRACE_MODE_REAL_TIME;
    } else {
        log.LogFileName = arguments[2];
    }
    trace = OpenTraceA(&log);
    EXPECT(1, trace != INVALID_PROCESSTRACE_HANDLE);
    printf("ready\n");
    fflush(stdout);
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    open_status = query_outside_callback();
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
    printf("later %u, closed %u\n", open_status, query_outside_callback());
    return 0;
}
