/* Calls of tdh.h and what they must return: a table for wrong arguments, manifests, lists and
 * filters.
 *
 *   tdh_rows MANIFEST NO_MANIFEST
 */
#include <tdh.h>

#include <string.h>

#include "check.h"

static const GUID EXAMPLE = {0x6f0a4d5e, 0x3c41, 0x4a53, {0x9c, 0x0b, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a}};
static const GUID UNKNOWN = {0x11111111, 0x2222, 0x3333, {1, 2, 3, 4, 5, 6, 7, 8}};

static BYTE buffer[1 << 16];
static ULONG size;

static ULONG full(void) {
    size = sizeof buffer;
    return size;
}

static int same(const WCHAR *one, const WCHAR *other) {
    while (*one && *one == *other) {
        one++, other++;
    }
    return *one == *other;
}

static void widen(WCHAR *to, const char *from) {
    while ((*to++ = (WCHAR)(unsigned char)*from++) != 0) {
    }
}

static void events(void) {
    EVENT_RECORD event;
    BYTE payload[] = {7, 0, 0, 0};
    memset(&event, 0, sizeof event);
    event.EventHeader.ProviderId = UNKNOWN;
    event.EventHeader.EventDescriptor.Id = 9;
    TDH_CONTEXT twice[2] = {{8, TDH_CONTEXT_POINTERSIZE, 4}, {8, TDH_CONTEXT_POINTERSIZE, 4}};
    TDH_CONTEXT odd = {7, TDH_CONTEXT_POINTERSIZE, 4}, beyond = {0, TDH_CONTEXT_MAXIMUM, 0};
    PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)u"x", 0xFFFFFFFFu, 0}, nameless = {0, 0, 0};
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    full();
    IS(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 0, NULL, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(NULL, 0, NULL, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, NULL));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, NULL, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, NULL, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 2, twice, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, &odd, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, &beyond, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0xFFFFFFFFu, twice, info, &size));
    IS(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 1, twice, info, &size));
    /* A length with a NULL address. */
    event.UserDataLength = 4;
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, &size));
    event.UserData = payload;
    event.ExtendedDataCount = 1;
    IS(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, &size));
    event.ExtendedDataCount = 0;
    IS(ERROR_NOT_FOUND, TdhGetPropertySize(&event, 0, NULL, 1, &step, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, &step, NULL));
    IS(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 0, &step, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, NULL, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, &nameless, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 100, &step, &size));
    IS(ERROR_NOT_FOUND, TdhGetProperty(&event, 0, NULL, 1, &step, sizeof buffer, buffer));
    IS(ERROR_INVALID_PARAMETER, TdhGetProperty(&event, 0, NULL, 1, &step, sizeof buffer, NULL));
    WCHAR map[] = u"State";
    full();
    IS(ERROR_NOT_FOUND, TdhGetEventMapInformation(&event, map, (PEVENT_MAP_INFO)buffer, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventMapInformation(&event, NULL, (PEVENT_MAP_INFO)buffer, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetEventMapInformation(NULL, map, (PEVENT_MAP_INFO)buffer, &size));
    event.EventHeader.Flags = EVENT_HEADER_FLAG_TRACE_MESSAGE;
    IS(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 0, NULL, info, &size));
    IS(ERROR_NOT_FOUND, TdhGetEventMapInformation(&event, map, (PEVENT_MAP_INFO)buffer, &size));
}

static ULONG formatted(USHORT in, USHORT out, USHORT length, const void *data, USHORT bytes, const WCHAR *text) {
    static TRACE_EVENT_INFO info;
    static WCHAR shown[256];
    USHORT used = 0;
    size = sizeof shown;
    ULONG status = TdhFormatProperty(&info, NULL, 8, in, out, length, bytes, (PBYTE)(ULONG_PTR)data, &size, shown, &used);
    return status == ERROR_SUCCESS && !same(shown, text) ? 0xFFFFFFFFu : status;
}

static void values(void) {
    const BYTE bytes[16] = {0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    const BYTE port[2] = {0x1F, 0x90}, v4[4] = {192, 0, 2, 7}, sid[12] = {1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0};
    const BYTE guid[16] = {0x5e, 0x4d, 0x0a, 0x6f, 0x41, 0x3c, 0x53, 0x4a, 0x9c, 0x0b, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a};
    const float half = 0.5f;
    TRACE_EVENT_INFO info;
    WCHAR shown[8];
    USHORT used;
    memset(&info, 0, sizeof info);
    IS(0, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 16, u"42"));
    IS(0, formatted(TDH_INTYPE_HEXINT64, TDH_OUTTYPE_NULL, 0, bytes, 16, u"0x2A"));
    IS(0, formatted(TDH_INTYPE_POINTER, TDH_OUTTYPE_NULL, 0, bytes, 16, u"0x2A"));
    IS(0, formatted(TDH_INTYPE_BOOLEAN, TDH_OUTTYPE_NULL, 0, bytes, 16, u"true"));
    IS(0, formatted(TDH_INTYPE_UINT8, TDH_OUTTYPE_STRING, 0, bytes, 1, u"*"));
    IS(0, formatted(TDH_INTYPE_UINT16, TDH_OUTTYPE_PORT, 0, port, 2, u"8080"));
    IS(0, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_IPV4, 0, v4, 4, u"192.0.2.7"));
    IS(0, formatted(TDH_INTYPE_BINARY, TDH_OUTTYPE_IPV6, 16, bytes, 16, u"2a00::100:0:0:0"));
    IS(0, formatted(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 3, bytes, 16, u"0x2A0000"));
    IS(0, formatted(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 0, bytes, 16, u""));
    IS(0, formatted(TDH_INTYPE_SID, TDH_OUTTYPE_NULL, 0, sid, 12, u"S-1-5-18"));
    IS(0, formatted(TDH_INTYPE_GUID, TDH_OUTTYPE_NULL, 0, guid, 16, u"{6F0A4D5E-3C41-4A53-9C0B-1F2E3D4C5B6A}"));
    IS(0, formatted(TDH_INTYPE_FLOAT, TDH_OUTTYPE_NULL, 0, &half, 4, u"0.5"));
    IS(0, formatted(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 0, u"hi", 6, u"hi"));
    IS(0, formatted(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 1, u"hi", 4, u"h"));
    IS(0, formatted(TDH_INTYPE_ANSISTRING, TDH_OUTTYPE_NULL, 0, "no end", 6, u"no end"));
    IS(0, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_WIN32ERROR, 0, bytes, 4, u"42"));
    IS(ERROR_EVT_INVALID_EVENT_DATA, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 3, u""));
    IS(ERROR_EVT_INVALID_EVENT_DATA, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    IS(ERROR_SUCCESS, formatted(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    IS(ERROR_SUCCESS, formatted(TDH_INTYPE_ANSISTRING, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    IS(ERROR_EVT_INVALID_EVENT_DATA, formatted(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 9, bytes, 16, u""));
    IS(ERROR_EVT_INVALID_EVENT_DATA, formatted(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 17, bytes, 16, u""));
    IS(ERROR_INVALID_PARAMETER, formatted(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, NULL, 4, u""));
    size = sizeof shown;
    PBYTE data = (PBYTE)(ULONG_PTR)bytes;
    IS(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 5, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, &used));
    IS(ERROR_INVALID_PARAMETER, TdhFormatProperty(NULL, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, &used));
    IS(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, NULL, shown, &used));
    IS(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, NULL));
}

static void providers(const char *path, const char *other) {
    WCHAR manifest[300], no_manifest[300], longest[300], missing[] = u"/nowhere/at/all.man";
    LPGUID example = (LPGUID)(ULONG_PTR)&EXAMPLE, unknown = (LPGUID)(ULONG_PTR)&UNKNOWN;
    PROVIDER_ENUMERATION_INFO *list = (PROVIDER_ENUMERATION_INFO *)buffer;
    PROVIDER_FIELD_INFOARRAY *fields = (PROVIDER_FIELD_INFOARRAY *)buffer;
    PROVIDER_EVENT_INFO *all = (PROVIDER_EVENT_INFO *)buffer;
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    widen(manifest, path);
    widen(no_manifest, other);
    for (int i = 0; i < 299; i++) {
        longest[i] = 'x';
    }
    longest[299] = 0;
    IS(ERROR_FILE_NOT_FOUND, TdhLoadManifest(missing));
    IS(ERROR_FILE_NOT_FOUND, TdhUnloadManifest(missing));
    IS(ERROR_FILE_NOT_FOUND, TdhLoadManifestFromBinary(missing));
    IS(ERROR_RESOURCE_NOT_FOUND, TdhLoadManifestFromBinary(no_manifest));
    IS(ERROR_XML_PARSE_ERROR, TdhLoadManifest(no_manifest));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifest(NULL));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifest(longest));
    IS(ERROR_INVALID_PARAMETER, TdhUnloadManifest(NULL));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifestFromMemory(NULL, 1));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifestFromMemory("x", 0));
    IS(ERROR_XML_PARSE_ERROR, TdhLoadManifestFromMemory("<", 1));
    IS(ERROR_NOT_FOUND, TdhUnloadManifestFromMemory("<", 1));
    IS(ERROR_NOT_FOUND, TdhUnloadManifest(manifest));
    full();
    IS(ERROR_NOT_FOUND, TdhEnumerateProviderFieldInformation(example, EventLevelInformation, fields, &size));
    IS(ERROR_FILE_NOT_FOUND, TdhEnumerateManifestProviderEvents(example, all, &size));
    IS(ERROR_SUCCESS, TdhEnumerateProviders(list, &size));
    IS(1, list->NumberOfProviders);
    IS(ERROR_SUCCESS, TdhLoadManifest(manifest));
    IS(ERROR_SUCCESS, TdhLoadManifest(manifest));

    size = 0;
    IS(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProviders(NULL, &size));
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProviders(NULL, NULL));
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProviders(NULL, &size));
    IS(ERROR_SUCCESS, TdhEnumerateProviders(list, &size));
    IS(3, list->NumberOfProviders);
    int found = 0;
    for (ULONG i = 0; i < list->NumberOfProviders; i++) {
        PTRACE_PROVIDER_INFO one = &list->TraceProviderInfoArray[i];
        found += IsEqualGUID(&one->ProviderGuid, &EXAMPLE) && one->SchemaSource == 0 &&
                 same(PEI_PROVIDER_NAME(list, one), u"Traceweir-Example-Everything");
    }
    IS(1, found);
    IS(ERROR_SUCCESS, TdhEnumerateProvidersForDecodingSource(DecodingSourceWbem, list, sizeof buffer, &size));
    IS(1, list->NumberOfProviders);
    IS(ERROR_SUCCESS, TdhEnumerateProvidersForDecodingSource(DecodingSourceTlg, list, sizeof buffer, &size));
    IS(0, list->NumberOfProviders);
    IS(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProvidersForDecodingSource(DecodingSourceXMLFile, NULL, 0, &size));
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProvidersForDecodingSource(DecodingSourceMax, list, sizeof buffer, &size));
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProvidersForDecodingSource(DecodingSourceWbem, list, sizeof buffer, NULL));

    full();
    IS(ERROR_SUCCESS, TdhEnumerateProviderFieldInformation(example, EventKeywordInformation, fields, &size));
    IS(2, fields->NumberOfElements);
    IS(1, same(PFI_FIELD_NAME(fields, &fields->FieldInfoArray[0]), u"Network"));
    IS(1, same(PFI_FIELD_MESSAGE(fields, &fields->FieldInfoArray[0]), u"Network & more"));
    full();
    IS(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 0xFF08, EventKeywordInformation, fields, &size));
    IS(1, fields->NumberOfElements);
    IS(8, fields->FieldInfoArray[0].Value);
    full();
    IS(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 16, EventLevelInformation, fields, &size));
    IS(ERROR_NOT_FOUND, TdhQueryProviderFieldInformation(example, 99, EventLevelInformation, fields, &size));
    IS(ERROR_NOT_FOUND, TdhQueryProviderFieldInformation(unknown, 16, EventLevelInformation, fields, &size));
    full();
    IS(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 30 << 16 | 10, EventOpcodeInformation, fields, &size));
    full();
    IS(ERROR_NOT_SUPPORTED, TdhEnumerateProviderFieldInformation(example, EventInformationMax, fields, &size));
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProviderFieldInformation(NULL, EventLevelInformation, fields, &size));
    ULONG count = 9;
    PPROVIDER_FILTER_INFO filters[64];
    size = sizeof filters;
    IS(ERROR_SUCCESS, TdhEnumerateProviderFilters(example, 0, NULL, &count, filters, &size));
    IS(1, count);
    IS(1, filters[0]->Id);
    size = sizeof filters;
    IS(ERROR_FILE_NOT_FOUND, TdhEnumerateProviderFilters(unknown, 0, NULL, &count, filters, &size));
    IS(0, count);
    IS(ERROR_INVALID_PARAMETER, TdhEnumerateProviderFilters(NULL, 0, NULL, &count, filters, &size));

    full();
    IS(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(example, all, &size));
    IS(5, all->NumberOfEvents);
    IS(8 + 5 * 16, size);
    EVENT_DESCRIPTOR first = all->EventDescriptorsArray[0], nothing = first;
    IS(1, first.Id);
    full();
    IS(ERROR_SUCCESS, TdhGetManifestEventInformation(example, &first, info, &size));
    IS(0, memcmp(&info->EventDescriptor, &first, sizeof first));
    IS(1, same(TEI_LEVEL_NAME(info), u"Error"));
    nothing.Id = 4711;
    IS(ERROR_NOT_FOUND, TdhGetManifestEventInformation(example, &nothing, info, &size));
    IS(ERROR_FILE_NOT_FOUND, TdhGetManifestEventInformation(unknown, &first, info, &size));
    IS(ERROR_INVALID_PARAMETER, TdhGetManifestEventInformation(example, NULL, info, &size));
}

static void filters(void) {
    EVENT_DESCRIPTOR event = {0, 0, 0, 0, 0, 0, 0};
    PROVIDER_EVENT_INFO *all = (PROVIDER_EVENT_INFO *)buffer;
    LPGUID example = (LPGUID)(ULONG_PTR)&EXAMPLE;
    full();
    IS(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(example, all, &size));
    event = all->EventDescriptorsArray[2];
    IS(3, event.Id);
    WCHAR state[] = u"state", seven[] = u"7", range[] = u"1,7", word[] = u"nine", nobody[] = u"nobody";
    PAYLOAD_FILTER_PREDICATE is = {state, PAYLOADFIELD_EQ, seven}, between = {state, PAYLOADFIELD_BETWEEN, range};
    PAYLOAD_FILTER_PREDICATE odd = {state, PAYLOADFIELD_EQ, word}, unknown = {nobody, PAYLOADFIELD_EQ, seven};
    PAYLOAD_FILTER_PREDICATE contains = {state, PAYLOADFIELD_CONTAINS, seven}, nameless = {NULL, PAYLOADFIELD_EQ, seven};
    PVOID made[2] = {NULL, NULL}, none = NULL, invented = (PVOID)(ULONG_PTR)0xABCDEF0;
    IS(ERROR_SUCCESS, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &is, &made[0]));
    IS(ERROR_SUCCESS, TdhCreatePayloadFilter(&EXAMPLE, &event, TRUE, 1, &between, &made[1]));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &odd, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &unknown, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &contains, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &nameless, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 0, &is, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 9, &is, &none));
    IS(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &is, NULL));
    IS(ERROR_FILE_NOT_FOUND, TdhCreatePayloadFilter(&UNKNOWN, &event, FALSE, 1, &is, &none));
    EVENT_FILTER_DESCRIPTOR descriptor;
    BOOLEAN flags[2] = {TRUE, FALSE};
    memset(&descriptor, 0, sizeof descriptor);
    IS(ERROR_INVALID_PARAMETER, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    IS(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(0, made, flags, &descriptor));
    IS(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(2, made, flags, NULL));
    IS(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(1, &invented, NULL, &descriptor));
    IS(ERROR_SUCCESS, TdhAggregatePayloadFilters(2, made, flags, &descriptor));
    IS(EVENT_FILTER_TYPE_PAYLOAD, descriptor.Type);
    IS(1, descriptor.Size > 8 && descriptor.Size <= MAX_EVENT_FILTER_PAYLOAD_SIZE);
    IS(0, memcmp((void *)(ULONG_PTR)descriptor.Ptr, "EPF1", 4));
    EVENT_FILTER_DESCRIPTOR copy = descriptor;
    IS(ERROR_SUCCESS, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    IS(0, descriptor.Ptr);
    IS(ERROR_INVALID_PARAMETER, TdhCleanupPayloadEventFilterDescriptor(&copy));
    PVOID stale = made[0];
    IS(ERROR_SUCCESS, TdhDeletePayloadFilter(&made[0]));
    IS(0, (ULONG_PTR)made[0]);
    IS(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(&made[0]));
    IS(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(&stale));
    IS(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(NULL));
    IS(ERROR_SUCCESS, TdhDeletePayloadFilter(&made[1]));
}

static void handles(void) {
    TDH_HANDLE handle = NULL, invented = (TDH_HANDLE)(ULONG_PTR)0x1234560;
    WCHAR missing[] = u"/nowhere/x.tmf", folder[] = u"/nowhere", got[32];
    TDH_CONTEXT gmt = {1, TDH_CONTEXT_WPP_GMT, 1}, pointer = {4, TDH_CONTEXT_POINTERSIZE, 4}, odd = {3, TDH_CONTEXT_POINTERSIZE, 4};
    TDH_CONTEXT tmf = {(ULONGLONG)(ULONG_PTR)missing, TDH_CONTEXT_WPP_TMFFILE, 0}, beyond = {0, TDH_CONTEXT_MAXIMUM, 0};
    TDH_CONTEXT path = {(ULONGLONG)(ULONG_PTR)folder, TDH_CONTEXT_WPP_TMFSEARCHPATH, 0}, ask = {0, TDH_CONTEXT_WPP_TMFSEARCHPATH, 0};
    EVENT_RECORD event;
    memset(&event, 0, sizeof event);
    event.EventHeader.Flags = EVENT_HEADER_FLAG_TRACE_MESSAGE;
    full();
    IS(ERROR_INVALID_PARAMETER, TdhOpenDecodingHandle(NULL));
    IS(ERROR_SUCCESS, TdhOpenDecodingHandle(&handle));
    IS(ERROR_INVALID_HANDLE, TdhSetDecodingParameter(invented, &gmt));
    IS(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(NULL, &gmt));
    IS(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, NULL));
    IS(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &odd));
    IS(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &beyond));
    IS(ERROR_FILE_NOT_FOUND, TdhSetDecodingParameter(handle, &tmf));
    IS(ERROR_NOT_FOUND, TdhGetDecodingParameter(handle, &tmf));
    IS(ERROR_NOT_FOUND, TdhGetDecodingParameter(handle, &gmt));
    IS(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &gmt));
    gmt.ParameterValue = 0;
    IS(ERROR_SUCCESS, TdhGetDecodingParameter(handle, &gmt));
    IS(1, gmt.ParameterValue);
    IS(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &pointer));
    IS(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &path));
    IS(ERROR_INSUFFICIENT_BUFFER, TdhGetDecodingParameter(handle, &ask));
    IS(18, ask.ParameterSize);
    ask.ParameterValue = (ULONGLONG)(ULONG_PTR)got;
    IS(ERROR_SUCCESS, TdhGetDecodingParameter(handle, &ask));
    IS(1, same(got, folder));
    /* A list of folders may be longer than the path of a manifest; invalid text names no folder. */
    WCHAR folders[1200], lone[] = {u'/', 0xD800, 0};
    for (unsigned i = 0; i < 1199; i++) {
        folders[i] = folder[i % 9] == 0 ? u';' : folder[i % 9];
    }
    folders[1199] = 0;
    path.ParameterValue = (ULONGLONG)(ULONG_PTR)folders;
    IS(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &path));
    path.ParameterValue = (ULONGLONG)(ULONG_PTR)lone;
    IS(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &path));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifest(lone));
    IS(ERROR_INVALID_PARAMETER, TdhLoadManifest(folders));
    IS(ERROR_NOT_FOUND, TdhGetWppMessage(handle, &event, &size, buffer));
    IS(ERROR_INVALID_PARAMETER, TdhGetWppMessage(handle, NULL, &size, buffer));
    IS(ERROR_INVALID_PARAMETER, TdhGetWppProperty(handle, &event, NULL, &size, buffer));
    IS(ERROR_INVALID_HANDLE, TdhGetWppMessage(invented, &event, &size, buffer));
    event.EventHeader.Flags = 0;
    IS(ERROR_NOT_FOUND, TdhGetWppMessage(handle, &event, &size, buffer));
    IS(ERROR_SUCCESS, TdhCloseDecodingHandle(handle));
    IS(ERROR_INVALID_HANDLE, TdhCloseDecodingHandle(handle));
    IS(ERROR_INVALID_PARAMETER, TdhCloseDecodingHandle(NULL));
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    events();
    values();
    handles();
    providers(argv[1], argv[2]);
    filters();
    return finish();
}
