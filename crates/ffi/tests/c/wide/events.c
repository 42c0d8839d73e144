/* Writes events with wide text, or reads a file of them: in C and C++, with L"" as on Windows. */
#include <windows.h>
#include <evntcons.h>
#include <evntrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <strsafe.h>
#include <tdh.h>
#include <TraceLoggingProvider.h>

TRACELOGGING_DEFINE_PROVIDER(provider, "Wide.Provider", (0xC0FFEE20, 0x1111, 0x2222, 1, 2, 3, 4, 5, 6, 7, 8));

static int write_events(const wchar_t *word) {
    WCHAR text[32];
    REGHANDLE handle;
    static const GUID id = {0xC0FFEE20, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
    if (FAILED(TraceLoggingRegister(provider)))
        return 1;
    TraceLoggingWrite(provider, "Sized", TraceLoggingWideString(word, "name"), TraceLoggingUInt32(42, "count"));
    TraceLoggingUnregister(provider);
    if (StringCchPrintfW(text, ARRAYSIZE(text), L"%s: %hs", word, "gr\xC3\xB6\xC3\x9F" "e") != S_OK)
        return 2;
    if (EventRegister(&id, NULL, NULL, &handle) != ERROR_SUCCESS || EventWriteString(handle, 4, 0, text) != ERROR_SUCCESS)
        return 3;
    return (int)EventUnregister(handle);
}

static void print_fields(PEVENT_RECORD event, PTRACE_EVENT_INFO info) {
    wprintf(L"%s", (const wchar_t *)((const BYTE *)info + info->TaskNameOffset));
    for (ULONG number = 0; number < info->TopLevelPropertyCount; number++) {
        WCHAR value[128];
        BYTE data[128];
        PROPERTY_DATA_DESCRIPTOR place;
        const EVENT_PROPERTY_INFO *field = &info->EventPropertyInfoArray[number];
        const wchar_t *name = (const wchar_t *)((const BYTE *)info + field->NameOffset);
        ULONG size = sizeof value;
        USHORT used;
        ULONG length = 0;
        place.PropertyName = (ULONGLONG)(ULONG_PTR)name;
        place.ArrayIndex = 0xFFFFFFFF;
        place.Reserved = 0;
        if (TdhGetPropertySize(event, 0, NULL, 1, &place, &length) != ERROR_SUCCESS || length > sizeof data ||
            TdhGetProperty(event, 0, NULL, 1, &place, sizeof data, data) != ERROR_SUCCESS ||
            TdhFormatProperty(info, NULL, 8, field->nonStructType.InType, field->nonStructType.OutType, field->length, (USHORT)length, data,
                              &size, value, &used) != ERROR_SUCCESS)
            exit(4);
        wprintf(L" %s=%s", name, value);
    }
    wprintf(L"\n");
}

static void WINAPI print_event(PEVENT_RECORD event) {
    static BYTE buffer[4096];
    ULONG size = sizeof buffer;
    if (event->EventHeader.ProviderId.Data1 != 0xC0FFEE20)
        return;
    if (event->EventHeader.Flags & EVENT_HEADER_FLAG_STRING_ONLY)
        wprintf(L"%ls\n", (const wchar_t *)event->UserData);
    else if (TdhGetEventInformation(event, 0, NULL, (PTRACE_EVENT_INFO)buffer, &size) == ERROR_SUCCESS)
        print_fields(event, (PTRACE_EVENT_INFO)buffer);
    else
        exit(5);
}

static int read_events(wchar_t *path) {
    EVENT_TRACE_LOGFILEW file;
    ZeroMemory(&file, sizeof file);
    file.LogFileName = path;
    file.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    file.EventRecordCallback = print_event;
    TRACEHANDLE handle = OpenTraceW(&file);
    if (handle == INVALID_PROCESSTRACE_HANDLE)
        return 6;
    int status = (int)ProcessTrace(&handle, 1, NULL, NULL);
    CloseTrace(handle);
    return status;
}

int wmain(int count, wchar_t **arguments) {
    if (count == 3 && _wcsicmp(arguments[1], L"WRITE") == 0)
        return write_events(arguments[2]);
    return count == 3 && wcscmp(arguments[1], L"read") == 0 ? read_events(arguments[2]) : 7;
}
