/* A table of calls of tdh.h and their results: wrong arguments, manifests, lists and filters.
 *
 *   tdh_rows MANIFEST NO_MANIFEST      NO_MANIFEST: a file that is not a manifest
 */
#include <tdh.h>

#include <string.h>

#include "check.h"

static const GUID EXAMPLE = {0x6f0a4d5e, 0x3c41, 0x4a53, {0x9c, 0x0b, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a}};
static const GUID UNKNOWN = {0x11111111, 0x2222, 0x3333, {1, 2, 3, 4, 5, 6, 7, 8}};

static BYTE buffer[1 << 16];
static ULONG size;

static ULONG reset_buffer_size(void) {
    size = sizeof buffer;
    return size;
}

static int equals_text(const WCHAR *left, const WCHAR *right) {
    while (*left && *left == *right) {
        left++, right++;
    }
    return *left == *right;
}

static void widen(WCHAR *to, const char *from) {
    while ((*to++ = (WCHAR)(unsigned char)*from++) != 0) {
    }
}

static void check_events(void) {
    EVENT_RECORD event;
    BYTE payload[] = {7, 0, 0, 0};
    memset(&event, 0, sizeof event);
    event.EventHeader.ProviderId = UNKNOWN;
    event.EventHeader.EventDescriptor.Id = 9;
    TDH_CONTEXT twice[2] = {{8, TDH_CONTEXT_POINTERSIZE, 4}, {8, TDH_CONTEXT_POINTERSIZE, 4}};
    TDH_CONTEXT odd_size = {7, TDH_CONTEXT_POINTERSIZE, 4}, unknown_type = {0, TDH_CONTEXT_MAXIMUM, 0};
    PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)u"x", 0xFFFFFFFFu, 0}, nameless = {0, 0, 0};
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    reset_buffer_size();
    EXPECT(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 0, NULL, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(NULL, 0, NULL, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, NULL, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, NULL, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 2, twice, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, &odd_size, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 1, &unknown_type, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0xFFFFFFFFu, twice, info, &size));
    EXPECT(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 1, twice, info, &size));
    /* A length with a NULL address. */
    event.UserDataLength = 4;
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, &size));
    event.UserData = payload;
    event.ExtendedDataCount = 1;
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventInformation(&event, 0, NULL, info, &size));
    event.ExtendedDataCount = 0;
    EXPECT(ERROR_NOT_FOUND, TdhGetPropertySize(&event, 0, NULL, 1, &step, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, &step, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 0, &step, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, NULL, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 1, &nameless, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetPropertySize(&event, 0, NULL, 100, &step, &size));
    EXPECT(ERROR_NOT_FOUND, TdhGetProperty(&event, 0, NULL, 1, &step, sizeof buffer, buffer));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetProperty(&event, 0, NULL, 1, &step, sizeof buffer, NULL));
    WCHAR map[] = u"State";
    reset_buffer_size();
    EXPECT(ERROR_NOT_FOUND, TdhGetEventMapInformation(&event, map, (PEVENT_MAP_INFO)buffer, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventMapInformation(&event, NULL, (PEVENT_MAP_INFO)buffer, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetEventMapInformation(NULL, map, (PEVENT_MAP_INFO)buffer, &size));
    event.EventHeader.Flags = EVENT_HEADER_FLAG_TRACE_MESSAGE;
    EXPECT(ERROR_NOT_FOUND, TdhGetEventInformation(&event, 0, NULL, info, &size));
    EXPECT(ERROR_NOT_FOUND, TdhGetEventMapInformation(&event, map, (PEVENT_MAP_INFO)buffer, &size));
}

/* Returns the status of formatting a value, or 0xFFFFFFFF if the text is wrong. */
static ULONG format_value(USHORT in, USHORT out, USHORT length, const void *data, USHORT bytes, const WCHAR *text) {
    static TRACE_EVENT_INFO info;
    static WCHAR shown[256];
    USHORT used = 0;
    size = sizeof shown;
    ULONG status = TdhFormatProperty(&info, NULL, 8, in, out, length, bytes, (PBYTE)(ULONG_PTR)data, &size, shown, &used);
    return status == ERROR_SUCCESS && !equals_text(shown, text) ? 0xFFFFFFFFu : status;
}

static void check_values(void) {
    const BYTE bytes[16] = {0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    const BYTE port[2] = {0x1F, 0x90}, v4[4] = {192, 0, 2, 7}, sid[12] = {1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0};
    const BYTE guid[16] = {0x5e, 0x4d, 0x0a, 0x6f, 0x41, 0x3c, 0x53, 0x4a, 0x9c, 0x0b, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a};
    const float half = 0.5f;
    TRACE_EVENT_INFO info;
    WCHAR shown[8];
    USHORT used;
    memset(&info, 0, sizeof info);
    EXPECT(0, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 16, u"42"));
    EXPECT(0, format_value(TDH_INTYPE_HEXINT64, TDH_OUTTYPE_NULL, 0, bytes, 16, u"0x2A"));
    EXPECT(0, format_value(TDH_INTYPE_POINTER, TDH_OUTTYPE_NULL, 0, bytes, 16, u"0x2A"));
    EXPECT(0, format_value(TDH_INTYPE_BOOLEAN, TDH_OUTTYPE_NULL, 0, bytes, 16, u"true"));
    EXPECT(0, format_value(TDH_INTYPE_UINT8, TDH_OUTTYPE_STRING, 0, bytes, 1, u"*"));
    EXPECT(0, format_value(TDH_INTYPE_UINT16, TDH_OUTTYPE_PORT, 0, port, 2, u"8080"));
    EXPECT(0, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_IPV4, 0, v4, 4, u"192.0.2.7"));
    EXPECT(0, format_value(TDH_INTYPE_BINARY, TDH_OUTTYPE_IPV6, 16, bytes, 16, u"2a00::100:0:0:0"));
    EXPECT(0, format_value(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 3, bytes, 16, u"0x2A0000"));
    EXPECT(0, format_value(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 0, bytes, 16, u""));
    EXPECT(0, format_value(TDH_INTYPE_SID, TDH_OUTTYPE_NULL, 0, sid, 12, u"S-1-5-18"));
    EXPECT(0, format_value(TDH_INTYPE_GUID, TDH_OUTTYPE_NULL, 0, guid, 16, u"{6F0A4D5E-3C41-4A53-9C0B-1F2E3D4C5B6A}"));
    EXPECT(0, format_value(TDH_INTYPE_FLOAT, TDH_OUTTYPE_NULL, 0, &half, 4, u"0.5"));
    EXPECT(0, format_value(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 0, u"hi", 6, u"hi"));
    EXPECT(0, format_value(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 1, u"hi", 4, u"h"));
    EXPECT(0, format_value(TDH_INTYPE_ANSISTRING, TDH_OUTTYPE_NULL, 0, "no end", 6, u"no end"));
    EXPECT(0, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_WIN32ERROR, 0, bytes, 4, u"42"));
    EXPECT(ERROR_EVT_INVALID_EVENT_DATA, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 3, u""));
    EXPECT(ERROR_EVT_INVALID_EVENT_DATA, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    EXPECT(ERROR_SUCCESS, format_value(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    EXPECT(ERROR_SUCCESS, format_value(TDH_INTYPE_ANSISTRING, TDH_OUTTYPE_NULL, 0, bytes, 0, u""));
    EXPECT(ERROR_EVT_INVALID_EVENT_DATA, format_value(TDH_INTYPE_UNICODESTRING, TDH_OUTTYPE_NULL, 9, bytes, 16, u""));
    EXPECT(ERROR_EVT_INVALID_EVENT_DATA, format_value(TDH_INTYPE_BINARY, TDH_OUTTYPE_NULL, 17, bytes, 16, u""));
    EXPECT(ERROR_INVALID_PARAMETER, format_value(TDH_INTYPE_UINT32, TDH_OUTTYPE_NULL, 0, NULL, 4, u""));
    size = sizeof shown;
    PBYTE data = (PBYTE)(ULONG_PTR)bytes;
    EXPECT(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 5, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, &used));
    EXPECT(ERROR_INVALID_PARAMETER, TdhFormatProperty(NULL, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, &used));
    EXPECT(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, NULL, shown, &used));
    EXPECT(ERROR_INVALID_PARAMETER, TdhFormatProperty(&info, NULL, 8, TDH_INTYPE_UINT32, 0, 0, 4, data, &size, shown, NULL));
}

static void check_providers(const char *manifest_path, const char *no_manifest_path) {
    WCHAR manifest[300], no_manifest[300], too_long[300], missing[] = u"/nowhere/at/all.man";
    LPGUID example = (LPGUID)(ULONG_PTR)&EXAMPLE, unknown = (LPGUID)(ULONG_PTR)&UNKNOWN;
    PROVIDER_ENUMERATION_INFO *list = (PROVIDER_ENUMERATION_INFO *)buffer;
    PROVIDER_FIELD_INFOARRAY *fields = (PROVIDER_FIELD_INFOARRAY *)buffer;
    PROVIDER_EVENT_INFO *event_list = (PROVIDER_EVENT_INFO *)buffer;
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    widen(manifest, manifest_path);
    widen(no_manifest, no_manifest_path);
    for (int i = 0; i < 299; i++) {
        too_long[i] = 'x';
    }
    too_long[299] = 0;
    EXPECT(ERROR_FILE_NOT_FOUND, TdhLoadManifest(missing));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhUnloadManifest(missing));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhLoadManifestFromBinary(missing));
    EXPECT(ERROR_RESOURCE_NOT_FOUND, TdhLoadManifestFromBinary(no_manifest));
    EXPECT(ERROR_XML_PARSE_ERROR, TdhLoadManifest(no_manifest));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifest(NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifest(too_long));
    EXPECT(ERROR_INVALID_PARAMETER, TdhUnloadManifest(NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifestFromMemory(NULL, 1));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifestFromMemory("x", 0));
    EXPECT(ERROR_XML_PARSE_ERROR, TdhLoadManifestFromMemory("<", 1));
    EXPECT(ERROR_NOT_FOUND, TdhUnloadManifestFromMemory("<", 1));
    EXPECT(ERROR_NOT_FOUND, TdhUnloadManifest(manifest));
    reset_buffer_size();
    EXPECT(ERROR_NOT_FOUND, TdhEnumerateProviderFieldInformation(example, EventLevelInformation, fields, &size));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhEnumerateManifestProviderEvents(example, event_list, &size));
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviders(list, &size));
    /* The kernel and the well-known providers. */
    ULONG built_in = list->NumberOfProviders;
    EXPECT(1, built_in > 1);
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(manifest));
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(manifest));

    size = 0;
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProviders(NULL, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProviders(NULL, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProviders(NULL, &size));
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviders(list, &size));
    /* The manifest has two providers. */
    EXPECT(built_in + 2, list->NumberOfProviders);
    int example_count = 0;
    for (ULONG i = 0; i < list->NumberOfProviders; i++) {
        PTRACE_PROVIDER_INFO provider = &list->TraceProviderInfoArray[i];
        example_count += IsEqualGUID(&provider->ProviderGuid, &EXAMPLE) && provider->SchemaSource == 0 &&
                 equals_text(PEI_PROVIDER_NAME(list, provider), u"Traceweir-Example-Everything");
    }
    EXPECT(1, example_count);
    EXPECT(ERROR_SUCCESS, TdhEnumerateProvidersForDecodingSource(DecodingSourceWbem, list, sizeof buffer, &size));
    EXPECT(1, list->NumberOfProviders);
    EXPECT(ERROR_SUCCESS, TdhEnumerateProvidersForDecodingSource(DecodingSourceTlg, list, sizeof buffer, &size));
    EXPECT(0, list->NumberOfProviders);
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProvidersForDecodingSource(DecodingSourceXMLFile, NULL, 0, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProvidersForDecodingSource(DecodingSourceMax, list, sizeof buffer, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProvidersForDecodingSource(DecodingSourceWbem, list, sizeof buffer, NULL));

    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviderFieldInformation(example, EventKeywordInformation, fields, &size));
    EXPECT(2, fields->NumberOfElements);
    EXPECT(1, equals_text(PFI_FIELD_NAME(fields, &fields->FieldInfoArray[0]), u"Network"));
    EXPECT(1, equals_text(PFI_FIELD_MESSAGE(fields, &fields->FieldInfoArray[0]), u"Network & more"));
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 0xFF08, EventKeywordInformation, fields, &size));
    EXPECT(1, fields->NumberOfElements);
    EXPECT(8, fields->FieldInfoArray[0].Value);
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 16, EventLevelInformation, fields, &size));
    EXPECT(ERROR_NOT_FOUND, TdhQueryProviderFieldInformation(example, 99, EventLevelInformation, fields, &size));
    EXPECT(ERROR_NOT_FOUND, TdhQueryProviderFieldInformation(unknown, 16, EventLevelInformation, fields, &size));
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhQueryProviderFieldInformation(example, 30 << 16 | 10, EventOpcodeInformation, fields, &size));
    reset_buffer_size();
    EXPECT(ERROR_NOT_SUPPORTED, TdhEnumerateProviderFieldInformation(example, EventInformationMax, fields, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProviderFieldInformation(NULL, EventLevelInformation, fields, &size));
    ULONG count = 9;
    PPROVIDER_FILTER_INFO filters[64];
    size = sizeof filters;
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviderFilters(example, 0, NULL, &count, filters, &size));
    EXPECT(1, count);
    EXPECT(1, filters[0]->Id);
    size = sizeof filters;
    EXPECT(ERROR_FILE_NOT_FOUND, TdhEnumerateProviderFilters(unknown, 0, NULL, &count, filters, &size));
    EXPECT(0, count);
    EXPECT(ERROR_INVALID_PARAMETER, TdhEnumerateProviderFilters(NULL, 0, NULL, &count, filters, &size));

    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(example, event_list, &size));
    EXPECT(5, event_list->NumberOfEvents);
    EXPECT(8 + 5 * 16, size);
    EVENT_DESCRIPTOR first = event_list->EventDescriptorsArray[0], unknown_event = first;
    EXPECT(1, first.Id);
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhGetManifestEventInformation(example, &first, info, &size));
    EXPECT(0, memcmp(&info->EventDescriptor, &first, sizeof first));
    EXPECT(1, equals_text(TEI_LEVEL_NAME(info), u"Error"));
    unknown_event.Id = 4711;
    EXPECT(ERROR_NOT_FOUND, TdhGetManifestEventInformation(example, &unknown_event, info, &size));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhGetManifestEventInformation(unknown, &first, info, &size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetManifestEventInformation(example, NULL, info, &size));
}

static void check_filters(void) {
    EVENT_DESCRIPTOR event = {0, 0, 0, 0, 0, 0, 0};
    PROVIDER_EVENT_INFO *event_list = (PROVIDER_EVENT_INFO *)buffer;
    LPGUID example = (LPGUID)(ULONG_PTR)&EXAMPLE;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(example, event_list, &size));
    event = event_list->EventDescriptorsArray[2];
    EXPECT(3, event.Id);
    WCHAR state[] = u"state", seven[] = u"7", range[] = u"1,7", word[] = u"nine", nobody[] = u"nobody";
    PAYLOAD_FILTER_PREDICATE equals = {state, PAYLOADFIELD_EQ, seven}, between = {state, PAYLOADFIELD_BETWEEN, range};
    PAYLOAD_FILTER_PREDICATE not_a_number = {state, PAYLOADFIELD_EQ, word}, unknown = {nobody, PAYLOADFIELD_EQ, seven};
    PAYLOAD_FILTER_PREDICATE contains = {state, PAYLOADFIELD_CONTAINS, seven}, nameless = {NULL, PAYLOADFIELD_EQ, seven};
    PVOID filters[2] = {NULL, NULL}, refused = NULL, invented = (PVOID)(ULONG_PTR)0xABCDEF0;
    EXPECT(ERROR_SUCCESS, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &equals, &filters[0]));
    EXPECT(ERROR_SUCCESS, TdhCreatePayloadFilter(&EXAMPLE, &event, TRUE, 1, &between, &filters[1]));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &not_a_number, &refused));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &unknown, &refused));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &contains, &refused));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &nameless, &refused));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 0, &equals, &refused));
    /* A filter has at most eight predicates. */
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 9, &equals, &refused));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCreatePayloadFilter(&EXAMPLE, &event, FALSE, 1, &equals, NULL));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhCreatePayloadFilter(&UNKNOWN, &event, FALSE, 1, &equals, &refused));
    EVENT_FILTER_DESCRIPTOR descriptor;
    BOOLEAN flags[2] = {TRUE, FALSE};
    memset(&descriptor, 0, sizeof descriptor);
    EXPECT(ERROR_INVALID_PARAMETER, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    EXPECT(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(0, filters, flags, &descriptor));
    EXPECT(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(2, filters, flags, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhAggregatePayloadFilters(1, &invented, NULL, &descriptor));
    EXPECT(ERROR_SUCCESS, TdhAggregatePayloadFilters(2, filters, flags, &descriptor));
    EXPECT(EVENT_FILTER_TYPE_PAYLOAD, descriptor.Type);
    EXPECT(1, descriptor.Size > 8 && descriptor.Size <= MAX_EVENT_FILTER_PAYLOAD_SIZE);
    EXPECT(0, memcmp((void *)(ULONG_PTR)descriptor.Ptr, "EPF1", 4));
    EVENT_FILTER_DESCRIPTOR copy = descriptor;
    EXPECT(ERROR_SUCCESS, TdhCleanupPayloadEventFilterDescriptor(&descriptor));
    EXPECT(0, descriptor.Ptr);
    EXPECT(ERROR_INVALID_PARAMETER, TdhCleanupPayloadEventFilterDescriptor(&copy));
    PVOID stale = filters[0];
    EXPECT(ERROR_SUCCESS, TdhDeletePayloadFilter(&filters[0]));
    EXPECT(0, (ULONG_PTR)filters[0]);
    EXPECT(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(&filters[0]));
    EXPECT(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(&stale));
    EXPECT(ERROR_INVALID_PARAMETER, TdhDeletePayloadFilter(NULL));
    EXPECT(ERROR_SUCCESS, TdhDeletePayloadFilter(&filters[1]));
}

static void check_handles(void) {
    TDH_HANDLE handle = NULL, invented = (TDH_HANDLE)(ULONG_PTR)0x1234560;
    WCHAR missing[] = u"/nowhere/x.tmf", folder[] = u"/nowhere", stored_path[32];
    TDH_CONTEXT gmt = {1, TDH_CONTEXT_WPP_GMT, 1}, pointer = {4, TDH_CONTEXT_POINTERSIZE, 4}, odd_size = {3, TDH_CONTEXT_POINTERSIZE, 4};
    TDH_CONTEXT tmf = {(ULONGLONG)(ULONG_PTR)missing, TDH_CONTEXT_WPP_TMFFILE, 0}, unknown_type = {0, TDH_CONTEXT_MAXIMUM, 0};
    TDH_CONTEXT path = {(ULONGLONG)(ULONG_PTR)folder, TDH_CONTEXT_WPP_TMFSEARCHPATH, 0}, path_query = {0, TDH_CONTEXT_WPP_TMFSEARCHPATH, 0};
    EVENT_RECORD event;
    memset(&event, 0, sizeof event);
    event.EventHeader.Flags = EVENT_HEADER_FLAG_TRACE_MESSAGE;
    reset_buffer_size();
    EXPECT(ERROR_INVALID_PARAMETER, TdhOpenDecodingHandle(NULL));
    EXPECT(ERROR_SUCCESS, TdhOpenDecodingHandle(&handle));
    EXPECT(ERROR_INVALID_HANDLE, TdhSetDecodingParameter(invented, &gmt));
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(NULL, &gmt));
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &odd_size));
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &unknown_type));
    EXPECT(ERROR_FILE_NOT_FOUND, TdhSetDecodingParameter(handle, &tmf));
    EXPECT(ERROR_NOT_FOUND, TdhGetDecodingParameter(handle, &tmf));
    EXPECT(ERROR_NOT_FOUND, TdhGetDecodingParameter(handle, &gmt));
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &gmt));
    gmt.ParameterValue = 0;
    EXPECT(ERROR_SUCCESS, TdhGetDecodingParameter(handle, &gmt));
    EXPECT(1, gmt.ParameterValue);
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &pointer));
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &path));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhGetDecodingParameter(handle, &path_query));
    EXPECT(18, path_query.ParameterSize);
    path_query.ParameterValue = (ULONGLONG)(ULONG_PTR)stored_path;
    EXPECT(ERROR_SUCCESS, TdhGetDecodingParameter(handle, &path_query));
    EXPECT(1, equals_text(stored_path, folder));
    /* A list of folders may be longer than the path of a manifest; invalid text names no folder. */
    WCHAR folders[1200], lone_surrogate[] = {u'/', 0xD800, 0};
    for (unsigned i = 0; i < 1199; i++) {
        folders[i] = folder[i % 9] == 0 ? u';' : folder[i % 9];
    }
    folders[1199] = 0;
    path.ParameterValue = (ULONGLONG)(ULONG_PTR)folders;
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &path));
    path.ParameterValue = (ULONGLONG)(ULONG_PTR)lone_surrogate;
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &path));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifest(lone_surrogate));
    EXPECT(ERROR_INVALID_PARAMETER, TdhLoadManifest(folders));
    EXPECT(ERROR_NOT_FOUND, TdhGetWppMessage(handle, &event, &size, buffer));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetWppMessage(handle, NULL, &size, buffer));
    EXPECT(ERROR_INVALID_PARAMETER, TdhGetWppProperty(handle, &event, NULL, &size, buffer));
    EXPECT(ERROR_INVALID_HANDLE, TdhGetWppMessage(invented, &event, &size, buffer));
    event.EventHeader.Flags = 0;
    EXPECT(ERROR_NOT_FOUND, TdhGetWppMessage(handle, &event, &size, buffer));
    EXPECT(ERROR_SUCCESS, TdhCloseDecodingHandle(handle));
    EXPECT(ERROR_INVALID_HANDLE, TdhCloseDecodingHandle(handle));
    EXPECT(ERROR_INVALID_PARAMETER, TdhCloseDecodingHandle(NULL));
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    check_events();
    check_values();
    check_handles();
    check_providers(argv[1], argv[2]);
    check_filters();
    return report_rows();
}
