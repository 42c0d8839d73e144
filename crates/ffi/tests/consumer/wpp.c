/* Prints the properties of WPP messages, and checks that all functions agree about them.
 *   wpp FILE TMF LOCAL     LOCAL is 1 for local time, 0 for UTC
 */
#include <evntcons.h>
#include <string.h>
#include <tdh.h>

#include "../c/check.h"

#define PROPERTIES 20

static TDH_HANDLE decoder;
static TDH_CONTEXT contexts[2];

static void widen(WCHAR *to, size_t room, const char *from) {
    size_t at = 0;
    for (; from[at] && at + 1 < room; at++) {
        to[at] = (WCHAR)(unsigned char)from[at];
    }
    to[at] = 0;
}

static void print_text(const WCHAR *text) {
    for (; *text != 0; text++) {
        putchar(*text >= ' ' && *text < 0x7F ? (int)*text : '?');
    }
}

static void print_guid(const GUID *guid) {
    printf("%08x-%04x", guid->Data1, guid->Data2);
}

/* Prints the value of a property according to its type. */
static void print_value(USHORT type, const BYTE *bytes, ULONG size) {
    ULONG number;
    FILETIME time;
    SYSTEMTIME date;
    GUID guid;
    switch (type) {
    case TDH_INTYPE_UINT32:
        EXPECT(sizeof number, size);
        memcpy(&number, bytes, size);
        printf("%u", number);
        break;
    case TDH_INTYPE_GUID:
        EXPECT(sizeof guid, size);
        memcpy(&guid, bytes, size);
        print_guid(&guid);
        break;
    case TDH_INTYPE_FILETIME:
        EXPECT(sizeof time, size);
        memcpy(&time, bytes, size);
        printf("%llu", (unsigned long long)time.dwHighDateTime << 32 | time.dwLowDateTime);
        break;
    case TDH_INTYPE_SYSTEMTIME:
        EXPECT(sizeof date, size);
        memcpy(&date, bytes, size);
        printf("%u-%u-%u (%u) %u:%u:%u.%03u", date.wYear, date.wMonth, date.wDay, date.wDayOfWeek, date.wHour, date.wMinute,
               date.wSecond, date.wMilliseconds);
        break;
    default:
        EXPECT(TDH_INTYPE_UNICODESTRING, type);
        EXPECT(0, bytes[size - 2] | bytes[size - 1]);
        print_text((const WCHAR *)(const void *)bytes);
    }
}

/* Queries the size and then the bytes of a property, with the functions that take a handle and with
 * those that take contexts. */
static ULONG query_property(PEVENT_RECORD event, WCHAR *name, BYTE *bytes) {
    static BYTE same[1 << 16];
    ULONG size = 0, other_size = 0;
    PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)name, 0xFFFFFFFFu, 0};
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhGetWppProperty(decoder, event, name, &size, NULL));
    EXPECT(ERROR_SUCCESS, TdhGetWppProperty(decoder, event, name, &size, bytes));
    EXPECT(ERROR_SUCCESS, TdhGetPropertySize(event, 2, contexts, 1, &step, &other_size));
    EXPECT(size, other_size);
    EXPECT(ERROR_SUCCESS, TdhGetProperty(event, 2, contexts, 1, &step, size, same));
    EXPECT(0, memcmp(bytes, same, size));
    return size;
}

static void WINAPI on_event(PEVENT_RECORD event) {
    static BYTE info_buffer[1 << 16], bytes[1 << 16], message[1 << 16];
    TRACE_EVENT_INFO *info = (TRACE_EVENT_INFO *)(void *)info_buffer;
    ULONG size = sizeof info_buffer;
    WCHAR unknown[] = {'v', 'e', 'r', 's', 'i', 'o', 'n', 0};
    if (!(event->EventHeader.Flags & EVENT_HEADER_FLAG_TRACE_MESSAGE)) {
        return;
    }
    ULONG status = TdhGetEventInformation(event, 2, contexts, info, &size);
    printf("message %u status %u\n", event->EventHeader.EventDescriptor.Id, status);
    if (status != ERROR_SUCCESS) {
        return;
    }
    EXPECT(DecodingSourceWPP, info->DecodingSource);
    EXPECT(PROPERTIES, info->TopLevelPropertyCount);
    for (ULONG index = 0; index < info->TopLevelPropertyCount; index++) {
        const EVENT_PROPERTY_INFO *property = &info->EventPropertyInfoArray[index];
        WCHAR *name = (WCHAR *)(void *)(info_buffer + property->NameOffset);
        ULONG used = query_property(event, name, bytes);
        print_text(name);
        printf("=");
        print_value(property->nonStructType.InType, bytes, used);
        printf("\n");
    }
    size = sizeof message;
    EXPECT(ERROR_SUCCESS, TdhGetWppMessage(decoder, event, &size, message));
    printf("text ");
    print_text((const WCHAR *)(const void *)message);
    printf("\n");
    /* Names are case-sensitive. */
    size = sizeof message;
    EXPECT(ERROR_NOT_FOUND, TdhGetWppProperty(decoder, event, unknown, &size, message));
}

int main(int argc, char **argv) {
    static WCHAR tmf[300];
    EVENT_TRACE_LOGFILEA log;
    if (argc != 4) {
        return 2;
    }
    widen(tmf, 300, argv[2]);
    contexts[0].ParameterValue = (ULONGLONG)(ULONG_PTR)tmf;
    contexts[0].ParameterType = TDH_CONTEXT_WPP_TMFFILE;
    contexts[1].ParameterValue = argv[3][0] == '0';
    contexts[1].ParameterType = TDH_CONTEXT_WPP_GMT;
    contexts[1].ParameterSize = 1;
    EXPECT(ERROR_SUCCESS, TdhOpenDecodingHandle(&decoder));
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(decoder, &contexts[0]));
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(decoder, &contexts[1]));
    memset(&log, 0, sizeof log);
    log.LogFileName = argv[1];
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = on_event;
    TRACEHANDLE trace = OpenTraceA(&log);
    EXPECT(1, trace != INVALID_PROCESSTRACE_HANDLE);
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, CloseTrace(trace));
    EXPECT(ERROR_SUCCESS, TdhCloseDecodingHandle(decoder));
    return report_rows();
}
