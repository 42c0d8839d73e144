/* The status of every function while no session listens: handles, parameters, information classes,
 * activity ids, traits. */
#include <evntprov.h>
#include <evntrace.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE00, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR Event = {1, 0, 0, 4, 0, 0, 1};
static const REGHANDLE Unknown = 0x7777777700000009;

static void check_registration(void) {
    REGHANDLE first = 1, second = 2;
    EXPECT(ERROR_INVALID_PARAMETER, EventRegister(NULL, NULL, NULL, &first));
    EXPECT(0, first);
    EXPECT(ERROR_INVALID_PARAMETER, EventRegister(&Provider, NULL, NULL, NULL));
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &first));
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &second));
    EXPECT(1, first != 0 && second != 0 && first != second);
    EXPECT(ERROR_SUCCESS, EventUnregister(first));
    EXPECT(ERROR_INVALID_HANDLE, EventUnregister(first));
    EXPECT(ERROR_SUCCESS, EventUnregister(second));
    EXPECT(ERROR_INVALID_HANDLE, EventUnregister(0));
    EXPECT(ERROR_INVALID_HANDLE, EventUnregister(Unknown));
    EXPECT(ERROR_INVALID_HANDLE, EventWrite(first, &Event, 0, NULL));
    EXPECT(FALSE, EventEnabled(first, &Event));
}

/* A process has at most 1024 registrations. */
static void check_registration_limit(void) {
    static REGHANDLE many[1025];
    unsigned count = 0;
    while (count < 1024) {
        if (EventRegister(&Provider, NULL, NULL, &many[count]) != ERROR_SUCCESS) {
            break;
        }
        count++;
    }
    EXPECT(1024, count);
    many[1024] = 5;
    EXPECT(ERROR_NO_SYSTEM_RESOURCES, EventRegister(&Provider, NULL, NULL, &many[1024]));
    EXPECT(0, many[1024]);
    while (count > 0) {
        count--;
        if (EventUnregister(many[count]) != ERROR_SUCCESS) {
            exit(1);
        }
    }
}

static void check_writes(void) {
    static const REGHANDLE invalid[] = {0, 0x7777777700000009, ~0ull};
    REGHANDLE reg;
    EVENT_DATA_DESCRIPTOR data;
    EventDataDescCreate(&data, "x", 1);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(ERROR_INVALID_HANDLE, EventWrite(invalid[i], &Event, 0, NULL));
        EXPECT(ERROR_INVALID_HANDLE, EventWriteTransfer(invalid[i], &Event, NULL, NULL, 1, &data));
        EXPECT(ERROR_INVALID_HANDLE, EventWriteEx(invalid[i], &Event, 0, 0, NULL, NULL, 1, &data));
        EXPECT(ERROR_INVALID_HANDLE, EventWriteString(invalid[i], 4, 0, u"text"));
        EXPECT(ERROR_INVALID_HANDLE, EventWriteString(invalid[i], 4, 0, NULL));
        EXPECT(ERROR_INVALID_HANDLE, EventWrite(invalid[i], NULL, 0, NULL));
        EXPECT(FALSE, EventEnabled(invalid[i], &Event));
        EXPECT(FALSE, EventProviderEnabled(invalid[i], 0, 0));
    }
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    /* No session listens: success, whatever the other parameters are. */
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &Event, 1, &data));
    EXPECT(ERROR_SUCCESS, EventWrite(reg, NULL, 0, NULL));
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &Event, 1, NULL));
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &Event, 0xFFFFFFFF, &data));
    EXPECT(ERROR_SUCCESS, EventWriteEx(reg, &Event, 0, 0xFFFFFFFF, NULL, NULL, 1, &data));
    EXPECT(ERROR_SUCCESS, EventWriteString(reg, 4, 0, u"text"));
    EXPECT(ERROR_SUCCESS, EventWriteString(reg, 4, 0, NULL));
    EXPECT(FALSE, EventEnabled(reg, &Event));
    EXPECT(FALSE, EventEnabled(reg, NULL));
    EXPECT(FALSE, EventProviderEnabled(reg, 0, 0));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
}

static void check_activities(void) {
    static const GUID zero = {0, 0, 0, {0}};
    static const GUID constant = {1, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}};
    GUID id, first, second;
    memset(&id, 1, sizeof id);
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_ID, &id));
    EXPECT(0, memcmp(&id, &zero, sizeof id));
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_ID, &first));
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_ID, &second));
    EXPECT(1, memcmp(&first, &second, sizeof id) != 0 && memcmp(&first, &zero, sizeof id) != 0);
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_SET_ID, &first));
    id = second;
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_SET_ID, &id));
    EXPECT(0, memcmp(&id, &first, sizeof id));
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_SET_ID, &id));
    EXPECT(0, memcmp(&id, &second, sizeof id));
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_ID, &id));
    EXPECT(1, memcmp(&id, &second, sizeof id) != 0 && memcmp(&id, &zero, sizeof id) != 0);
    /* An id that is only read may be in read-only memory. */
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_SET_ID, (LPGUID)(ULONG_PTR)&constant));
    EXPECT(ERROR_SUCCESS, EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_ID, &id));
    EXPECT(0, memcmp(&id, &constant, sizeof id));
    EXPECT(ERROR_INVALID_PARAMETER, EventActivityIdControl(0, &id));
    EXPECT(ERROR_INVALID_PARAMETER, EventActivityIdControl(6, &id));
    EXPECT(ERROR_INVALID_PARAMETER, EventActivityIdControl(EVENT_ACTIVITY_CTRL_GET_ID, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EventActivityIdControl(EVENT_ACTIVITY_CTRL_SET_ID, NULL));
}

#define SET(reg, info_class, info, length) EventSetInformation(reg, (EVENT_INFO_CLASS)(info_class), info, length)

#define GUID_BYTES "0123456789abcdef"
#define TRAITS(bytes) set_traits(bytes, sizeof(bytes) - 1)

/* Registers a provider, and returns the status of setting its traits. */
static ULONG set_traits(const char *bytes, ULONG length) {
    REGHANDLE reg;
    ULONG status;
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    status = SET(reg, EventProviderSetTraits, (PVOID)(ULONG_PTR)bytes, length);
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return status;
}

/* Traits consist of their size, the name of the provider, and single traits. Each of these has its
 * size in two bytes (header included), its type and its data. */
static void check_traits(void) {
    static char large[0x10000];
    /* The size must be that of the whole block, with at least a NUL for the name. */
    EXPECT(ERROR_SUCCESS, TRAITS("\x03\0\0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x03"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x02\0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\0\0\0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x02\0\0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x04\0\0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x03\0P"));
    /* A trait has at least its header, and lies within the traits. */
    EXPECT(ERROR_SUCCESS, TRAITS("\x07\0P\0" "\x03\0\x7f"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x07\0P\0" "\x02\0\x7f"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x07\0P\0" "\0\0\x7f"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x07\0P\0" "\x04\0\x7f"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x05\0P\0" "\x03"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x06\0P\0" "\x03\0"));
    /* Types 1 (group) and 2 (decode GUID) have a GUID; there is at most one group. */
    EXPECT(ERROR_SUCCESS, TRAITS("\x17\0P\0" "\x13\0\x01" GUID_BYTES));
    EXPECT(ERROR_SUCCESS, TRAITS("\x17\0P\0" "\x13\0\x02" GUID_BYTES));
    EXPECT(ERROR_SUCCESS, TRAITS("\x2a\0P\0" "\x13\0\x02" GUID_BYTES "\x13\0\x01" GUID_BYTES));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x16\0P\0" "\x12\0\x01" "0123456789abcde"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x18\0P\0" "\x14\0\x01" GUID_BYTES "0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x16\0P\0" "\x12\0\x02" "0123456789abcde"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x18\0P\0" "\x14\0\x02" GUID_BYTES "0"));
    EXPECT(ERROR_INVALID_PARAMETER, TRAITS("\x2a\0P\0" "\x13\0\x01" GUID_BYTES "\x13\0\x01" GUID_BYTES));
    /* Types 3 to 127 are reserved, and 128 to 255 are the provider's own. Their content is not
     * checked. */
    EXPECT(ERROR_SUCCESS, TRAITS("\x0e\0P\0" "\x03\0\x03" "\x03\0\x80" "\x04\0\xff!"));
    /* Up to the largest possible size. */
    memset(large, 'P', sizeof large);
    large[0] = large[1] = (char)0xFF;
    large[0xFFFE] = 0;
    EXPECT(ERROR_SUCCESS, set_traits(large, 0xFFFF));
    EXPECT(ERROR_INVALID_PARAMETER, set_traits(large, 0x10000));
}

static void check_information(void) {
    /* Size, "P", a reserved trait, a trait of the provider's own, a group. */
    static UCHAR traits[] = "\x1F\0P\0" "\x04\0\x05r" "\x04\0\x80p" "\x13\0\x01" "0123456789abcdef";
    UCHAR broken[sizeof traits];
    BOOLEAN yes = TRUE, no = FALSE;
    ULONG wide = TRUE;
    REGHANDLE reg, unregistered;
    const ULONG length = 31;
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &unregistered));
    EXPECT(ERROR_SUCCESS, EventUnregister(unregistered));
    /* The class is checked first, then the handle, the pointer, the length. */
    EXPECT(ERROR_NOT_SUPPORTED, SET(0, MaxEventInfo, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, SET(reg, MaxEventInfo, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, SET(reg, 5, &yes, 1));
    EXPECT(ERROR_NOT_SUPPORTED, SET(reg, -1, NULL, 1));
    EXPECT(ERROR_NOT_SUPPORTED, SET(reg, 0x7FFFFFFF, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, SET(Unknown, 5, NULL, 1));
    EXPECT(ERROR_NOT_SUPPORTED, SET(reg, EventProviderSetReserved1, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, SET(0, EventProviderSetReserved1, NULL, 4));
    for (int info_class = 0; info_class < 4; info_class++) {
        if (info_class != EventProviderSetReserved1) {
            EXPECT(ERROR_INVALID_PARAMETER, SET(0, info_class, &yes, 1));
            EXPECT(ERROR_INVALID_PARAMETER, SET(unregistered, info_class, &yes, 1));
            EXPECT(ERROR_INVALID_PARAMETER, SET(Unknown, info_class, &yes, 1));
            EXPECT(ERROR_INVALID_PARAMETER, SET(reg, info_class, NULL, 1));
        }
    }
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderBinaryTrackInfo, NULL, 0));
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderBinaryTrackInfo, &yes, 1));
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderBinaryTrackInfo, traits, length));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderUseDescriptorType, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderUseDescriptorType, &yes, 0));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderUseDescriptorType, &wide, 2));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderUseDescriptorType, &wide, 4));
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderUseDescriptorType, &yes, 1));
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderUseDescriptorType, &no, 1));
    /* Traits: invalid ones change nothing, valid ones can be set once. */
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, traits, 0));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, traits, 2));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, traits, length - 1));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, traits, length + 1));
    memcpy(broken, traits, sizeof traits);
    broken[4] = 2; /* a trait shorter than its header */
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, broken, length));
    broken[4] = 4;
    broken[12] = 0x14; /* past the end */
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, broken, length));
    broken[12] = 0x13;
    broken[6] = EtwProviderTraitTypeGroup; /* a group that is not a GUID */
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, broken, length));
    memset(broken + 2, 'x', sizeof broken - 2); /* a name without a terminator */
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, broken, length));
    EXPECT(ERROR_SUCCESS, SET(reg, EventProviderSetTraits, traits, length));
    EXPECT(ERROR_INVALID_PARAMETER, SET(reg, EventProviderSetTraits, traits, length));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    check_traits();

    /* Tests of EtwGetTraitFromProviderTraits. */
    PVOID trait;
    USHORT size;
    EtwGetTraitFromProviderTraits(traits, EtwProviderTraitTypeGroup, &trait, &size);
    EXPECT(16, size);
    EXPECT(0, memcmp(trait, "0123456789abcdef", 16));
    EtwGetTraitFromProviderTraits(traits, 0x80, &trait, &size);
    EXPECT(1, size == 1 && *(UCHAR *)trait == 'p');
    EtwGetTraitFromProviderTraits(traits, EtwProviderTraitDecodeGuid, &trait, &size);
    EXPECT(1, size == 0 && trait == NULL);
    EtwGetTraitFromProviderTraits(broken, EtwProviderTraitTypeGroup, &trait, &size);
    EXPECT(1, size == 0 && trait == NULL);
    memcpy(broken, traits, sizeof traits);
    /* A search stops at a trait that is shorter than its header; earlier traits are found. */
    broken[8] = 2;
    EtwGetTraitFromProviderTraits(broken, EtwProviderTraitTypeGroup, &trait, &size);
    EXPECT(1, size == 0 && trait == NULL);
    EtwGetTraitFromProviderTraits(broken, 5, &trait, &size);
    EXPECT(1, size == 1 && *(UCHAR *)trait == 'r');
}

static void check_descriptors(void) {
    EVENT_DESCRIPTOR event;
    EVENT_DATA_DESCRIPTOR data;
    EVENT_FILTER_DESCRIPTOR filter;
    memset(&event, 0xFF, sizeof event);
    EventDescZero(&event);
    EXPECT(0, EventDescGetKeyword(&event) | EventDescGetId(&event) | EventDescGetTask(&event));
    EventDescCreate(&event, 1, 2, 3, 4, 5, 6, 7);
    EXPECT(1, EventDescGetId(&event));
    EXPECT(2, EventDescGetVersion(&event));
    EXPECT(3, EventDescGetChannel(&event));
    EXPECT(4, EventDescGetLevel(&event));
    EXPECT(5, EventDescGetTask(&event));
    EXPECT(6, EventDescGetOpcode(&event));
    EXPECT(7, EventDescGetKeyword(&event));
    EventDescSetId(EventDescSetVersion(EventDescSetChannel(EventDescSetLevel(&event, 14), 13), 12), 11);
    EventDescSetTask(EventDescSetOpcode(EventDescSetKeyword(&event, 16), 15), 17);
    EventDescOrKeyword(&event, 1);
    EXPECT(1, event.Id == 11 && event.Version == 12 && event.Channel == 13 && event.Level == 14);
    EXPECT(1, event.Opcode == 15 && event.Keyword == 17 && event.Task == 17);
    memset(&data, 0xFF, sizeof data);
    EventDataDescCreate(&data, &event, sizeof event);
    EXPECT(1, data.Ptr == (ULONG_PTR)&event && data.Size == 16 && data.Reserved == 0 && data.Type == 0);
    EventFilterDescCreate(&filter, &event, 16, EVENT_FILTER_TYPE_SCHEMATIZED);
    EXPECT(1, filter.Ptr == (ULONG_PTR)&event && filter.Size == 16 && filter.Type == 0x80000000u);
}

static ULONG WMIAPI control(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    (void)code, (void)context, (void)size, (void)buffer;
    return ERROR_SUCCESS;
}

static void check_classic_providers(void) {
    static const TRACELOGGER_HANDLE invalid[] = {0, 0x7777777700000009, ~0ull};
    TRACEGUID_HANDLE reg = 9;
    TRACE_GUID_REGISTRATION classes[2] = {{&Provider, NULL}, {&Provider, NULL}};
    TRACE_GUID_REGISTRATION null_class = {NULL, NULL};
    EVENT_INSTANCE_INFO first, second;
    EXPECT(ERROR_INVALID_PARAMETER, RegisterTraceGuidsW(NULL, NULL, &Provider, 0, NULL, NULL, NULL, &reg));
    EXPECT(0, reg);
    EXPECT(ERROR_INVALID_PARAMETER, RegisterTraceGuidsW(control, NULL, NULL, 0, NULL, NULL, NULL, &reg));
    EXPECT(ERROR_INVALID_PARAMETER, RegisterTraceGuidsW(control, NULL, &Provider, 0, NULL, NULL, NULL, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, RegisterTraceGuidsW(control, NULL, &Provider, 1, &null_class, NULL, NULL, &reg));
    EXPECT(ERROR_INVALID_PARAMETER, RegisterTraceGuidsW(control, NULL, &Provider, ~0u, classes, NULL, NULL, &reg));
    EXPECT(ERROR_SUCCESS, RegisterTraceGuidsA(control, NULL, &Provider, 2, classes, "image", "resource", &reg));
    EXPECT(1, reg != 0 && classes[0].RegHandle != NULL && classes[0].RegHandle != classes[1].RegHandle);
    EXPECT(ERROR_INVALID_PARAMETER, CreateTraceInstanceId(NULL, &first));
    EXPECT(ERROR_INVALID_PARAMETER, CreateTraceInstanceId(classes[0].RegHandle, NULL));
    EXPECT(ERROR_SUCCESS, CreateTraceInstanceId(classes[0].RegHandle, &first));
    EXPECT(ERROR_SUCCESS, CreateTraceInstanceId(classes[1].RegHandle, &second));
    EXPECT(1, first.RegHandle == classes[0].RegHandle && first.InstanceId == 1 && second.InstanceId == 2);
    EXPECT(ERROR_INVALID_HANDLE, EventWrite(reg, &Event, 0, NULL));
    EXPECT(ERROR_INVALID_HANDLE, EventUnregister(reg));
    EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(reg));
    EXPECT(ERROR_INVALID_PARAMETER, UnregisterTraceGuids(reg));
    EXPECT(ERROR_INVALID_PARAMETER, UnregisterTraceGuids(0));
    EXPECT(ERROR_INVALID_PARAMETER, CreateTraceInstanceId(classes[0].RegHandle, &first));

    EVENT_TRACE_HEADER header;
    EVENT_INSTANCE_HEADER instance;
    memset(&header, 0, sizeof header);
    memset(&instance, 0, sizeof instance);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(ERROR_INVALID_HANDLE, TraceEvent(invalid[i], &header));
        EXPECT(ERROR_INVALID_HANDLE, TraceEvent(invalid[i], NULL));
        EXPECT(ERROR_INVALID_HANDLE, TraceEventInstance(invalid[i], &instance, &first, NULL));
        EXPECT(ERROR_INVALID_HANDLE, TraceEventInstance(invalid[i], NULL, NULL, NULL));
        EXPECT(ERROR_INVALID_HANDLE, TraceMessage(invalid[i], TRACE_MESSAGE_GUID, &Provider, 1, "x", (SIZE_T)1, NULL, (SIZE_T)0));
        EXPECT(ERROR_INVALID_HANDLE, TraceMessage(invalid[i], TRACE_MESSAGE_GUID, NULL, 1, NULL));
        SetLastError(0);
        EXPECT(0, GetTraceEnableLevel(invalid[i]));
        EXPECT(ERROR_INVALID_HANDLE, GetLastError());
        SetLastError(0);
        EXPECT(0, GetTraceEnableFlags(invalid[i]));
        EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    }

    WNODE_HEADER node;
    memset(&node, 0, sizeof node);
    EXPECT(~0ull, GetTraceLoggerHandle(NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT((ULONG_PTR)INVALID_HANDLE_VALUE, GetTraceLoggerHandle(&node));
    EXPECT(ERROR_BAD_LENGTH, GetLastError());
    node.BufferSize = sizeof node;
    EXPECT(~0ull, GetTraceLoggerHandle(&node));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    node.Flags = WNODE_FLAG_TRACED_GUID;
    node.HistoricalContext = 77;
    EXPECT(77, GetTraceLoggerHandle(&node));
}

static DWORD format_list(CHAR *to, DWORD size, const CHAR *text, ...) {
    va_list list;
    va_start(list, text);
    DWORD length = FormatMessageA(FORMAT_MESSAGE_FROM_STRING, text, 0, 0, to, size, &list);
    va_end(list);
    return length;
}

static void check_inserts(void) {
    CHAR narrow[64];
    WCHAR *wide = NULL;
    const WCHAR *items[] = {u"Sample String.", u"7"};
    const DWORD flags = FORMAT_MESSAGE_FROM_STRING | FORMAT_MESSAGE_ARGUMENT_ARRAY | FORMAT_MESSAGE_ALLOCATE_BUFFER;
    EXPECT(25, FormatMessageW(flags, u"%2: <%1>%n100%%%0 end", 0, 0, (LPWSTR)&wide, 0, (va_list *)(void *)items));
    EXPECT(1, wide != NULL && memcmp(wide, u"7: <Sample String.>\r\n100%", 25 * sizeof(WCHAR)) == 0);
    EXPECT(0, (ULONG_PTR)LocalFree(wide));
    /* More arguments than registers hold. */
    EXPECT(19, format_list(narrow, 64, "%8!s! %1!d! %7!04x! %2 %6!c!", -5, "two", 3, 4, 5, 'x', 0xAB, "eight"));
    EXPECT(0, strcmp(narrow, "eight -5 00ab two x"));
    EXPECT(0, FormatMessageA(FORMAT_MESSAGE_FROM_STRING, "%1", 0, 0, narrow, 64, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(2, FormatMessageA(FORMAT_MESSAGE_FROM_STRING | FORMAT_MESSAGE_IGNORE_INSERTS, "%1", 0, 0, narrow, 64, NULL));
}

static void check_status_texts(void) {
    CHAR narrow[64];
    WCHAR wide[64];
    LPSTR allocated = NULL;
    LPWSTR allocated_wide = NULL;
    const DWORD flags = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS;
    EXPECT(20, FormatMessageA(flags, NULL, ERROR_ACCESS_DENIED, 0, narrow, 64, NULL));
    EXPECT(0, strcmp(narrow, "permission refused\r\n"));
    EXPECT(20, FormatMessageW(flags, NULL, (DWORD)HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED), 0, wide, 21, NULL));
    EXPECT(0, memcmp(wide, u"permission refused\r\n", sizeof u"permission refused\r\n"));
    EXPECT(20, FormatMessageA(flags, NULL, (DWORD)STATUS_ACCESS_DENIED, 0, narrow, 64, NULL));
    EXPECT(0, FormatMessageA(flags, NULL, 0xDEAD, 0, narrow, 64, NULL));
    EXPECT(ERROR_MR_MID_NOT_FOUND, GetLastError());
    EXPECT(0, FormatMessageA(flags, NULL, ERROR_ACCESS_DENIED, 0, narrow, 20, NULL));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, GetLastError());
    EXPECT(0, FormatMessageA(flags, NULL, ERROR_ACCESS_DENIED, 0, NULL, 64, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(0, FormatMessageA(FORMAT_MESSAGE_FROM_HMODULE, NULL, 0, 0, narrow, 64, NULL));
    EXPECT(ERROR_NOT_SUPPORTED, GetLastError());
    check_inserts();
    EXPECT(20, FormatMessageA(flags | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_ACCESS_DENIED, 0, (LPSTR)&allocated, 0, NULL));
    EXPECT(0, strcmp(allocated, "permission refused\r\n"));
    EXPECT(0, (ULONG_PTR)LocalFree(allocated));
    EXPECT(20, FormatMessageW(flags | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_ACCESS_DENIED, 0, (LPWSTR)&allocated_wide, 99, NULL));
    EXPECT(1, allocated_wide[17] == u'd' && allocated_wide[19] == u'\n' && allocated_wide[20] == 0);
    allocated_wide[98] = 1;
    EXPECT(0, (ULONG_PTR)LocalFree(allocated_wide));
    EXPECT(0, (ULONG_PTR)LocalFree(NULL));
    EXPECT(0, FormatMessageA(0, NULL, ERROR_ACCESS_DENIED, 0, narrow, 64, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(0, FormatMessageA(flags | FORMAT_MESSAGE_FROM_STRING, "text", 0, 0, narrow, 64, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(20, FormatMessageA(flags | FORMAT_MESSAGE_FROM_HMODULE, NULL, ERROR_ACCESS_DENIED, 0x0409, narrow, 64, NULL));
    EXPECT(20, FormatMessageA(flags, NULL, ERROR_ACCESS_DENIED, MAKELANGID(LANG_NEUTRAL, SUBLANG_DEFAULT), narrow, 64, NULL));
    EXPECT(0x0409, MAKELANGID(LANG_ENGLISH, SUBLANG_DEFAULT));
    allocated = narrow;
    EXPECT(0, FormatMessageA(flags | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_ACCESS_DENIED, 0x0407, (LPSTR)&allocated, 0, NULL));
    EXPECT(ERROR_RESOURCE_LANG_NOT_FOUND, GetLastError());
    EXPECT(1, allocated == narrow);
    EXPECT(19, FormatMessageA(flags | FORMAT_MESSAGE_MAX_WIDTH_MASK, NULL, ERROR_ACCESS_DENIED, 0, narrow, 64, NULL));
    EXPECT(0, strcmp(narrow, "permission refused "));
    EXPECT(20, FormatMessageA(flags | 12, NULL, ERROR_ACCESS_DENIED, 0, narrow, 64, NULL));
    EXPECT(0, strcmp(narrow, "permission\r\nrefused "));
    SetLastError(4201);
    EXPECT(4201, GetLastError());
}

int main(void) {
    check_status_texts();
    check_registration();
    check_writes();
    check_activities();
    check_information();
    check_descriptors();
    check_classic_providers();
    check_registration_limit();
    return report_rows();
}
