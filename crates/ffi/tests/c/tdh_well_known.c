/* Queries about a well-known provider: its built-in schemas need no manifest, and a loaded manifest
 * replaces them.
 *
 *   tdh_well_known
 */
#include <tdh.h>

#include <string.h>

#include "check.h"

/* Microsoft-Windows-DotNETRuntime */
static const GUID RUNTIME = {0xe13c0d23, 0xccbc, 0x4e12, {0x93, 0x1b, 0xd9, 0xcc, 0x2e, 0xee, 0x27, 0xe4}};

static const char MANIFEST[] =
    "<instrumentationManifest xmlns='http://schemas.microsoft.com/win/2004/08/events'><instrumentation><events>"
    "<provider name='Own-Runtime' guid='{e13c0d23-ccbc-4e12-931b-d9cc2eee27e4}'><templates><template tid='T'>"
    "<data name='Own' inType='win:UInt32'/></template></templates><events>"
    "<event value='2' version='1' template='T'/></events></provider></events></instrumentation>"
    "</instrumentationManifest>";

static BYTE buffer[1 << 16];
static ULONG size;

static ULONG reset_buffer_size(void) {
    size = sizeof buffer;
    return size;
}

static int equals_text(ULONG offset, const WCHAR *other) {
    const WCHAR *one = (const WCHAR *)(const void *)(buffer + offset);
    /* Names of tasks, opcodes and keywords may end with a blank, as on Windows. */
    while (*one && *one == *other) {
        one++, other++;
    }
    return offset != 0 && *other == 0 && (*one == 0 || (*one == u' ' && one[1] == 0));
}

static void check_built_in(EVENT_RECORD *event) {
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhGetEventInformation(event, 0, NULL, info, &size));
    EXPECT(DecodingSourceXMLFile, info->DecodingSource);
    EXPECT(1, equals_text(info->ProviderNameOffset, u"Microsoft-Windows-DotNETRuntime"));
    EXPECT(1, equals_text(info->TaskNameOffset, u"GC"));
    EXPECT(1, equals_text(info->OpcodeNameOffset, u"Stop"));
    EXPECT(3, info->TopLevelPropertyCount);
    EXPECT(1, equals_text(info->EventPropertyInfoArray[0].NameOffset, u"Count"));
    EXPECT(1, equals_text(info->EventPropertyInfoArray[1].NameOffset, u"Depth"));
    EXPECT(1, equals_text(info->EventPropertyInfoArray[2].NameOffset, u"ClrInstanceID"));

    PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)u"Depth", 0xFFFFFFFFu, 0};
    ULONG depth = 0;
    EXPECT(ERROR_SUCCESS, TdhGetProperty(event, 0, NULL, 1, &step, sizeof depth, (PBYTE)&depth));
    EXPECT(2, depth);

    EVENT_DESCRIPTOR descriptor = {0};
    descriptor.Id = 2;
    descriptor.Version = 1;
    GUID provider = RUNTIME;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhGetManifestEventInformation(&provider, &descriptor, info, &size));
    EXPECT(1, equals_text(info->TaskNameOffset, u"GC"));
    EXPECT(1, info->EventDescriptor.Task);
    descriptor.Id = 60000;
    EXPECT(ERROR_NOT_FOUND, TdhGetManifestEventInformation(&provider, &descriptor, info, &size));
}

static void check_lists(void) {
    GUID provider = RUNTIME;
    PPROVIDER_ENUMERATION_INFO list = (PPROVIDER_ENUMERATION_INFO)buffer;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviders(list, &size));
    int found = 0;
    for (ULONG i = 0; i < list->NumberOfProviders; i++) {
        PTRACE_PROVIDER_INFO one = &list->TraceProviderInfoArray[i];
        found += IsEqualGUID(&one->ProviderGuid, &RUNTIME) && one->SchemaSource == 0 &&
                 equals_text(one->ProviderNameOffset, u"Microsoft-Windows-DotNETRuntime");
    }
    EXPECT(1, found);
    PPROVIDER_FIELD_INFOARRAY fields = (PPROVIDER_FIELD_INFOARRAY)buffer;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhQueryProviderFieldInformation(&provider, 1, EventKeywordInformation, fields, &size));
    EXPECT(1, fields->NumberOfElements);
    EXPECT(1, equals_text(fields->FieldInfoArray[0].NameOffset, u"GCKeyword"));
    PPROVIDER_EVENT_INFO events = (PPROVIDER_EVENT_INFO)buffer;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(&provider, events, &size));
    EXPECT(1, events->NumberOfEvents > 100);
}

static void check_loaded_manifest(EVENT_RECORD *event) {
    PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)buffer;
    EXPECT(ERROR_SUCCESS, TdhLoadManifestFromMemory((void *)(ULONG_PTR)MANIFEST, sizeof MANIFEST - 1));
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhGetEventInformation(event, 0, NULL, info, &size));
    EXPECT(1, equals_text(info->ProviderNameOffset, u"Own-Runtime"));
    EXPECT(1, equals_text(info->EventPropertyInfoArray[0].NameOffset, u"Own"));
    GUID provider = RUNTIME;
    PPROVIDER_EVENT_INFO events = (PPROVIDER_EVENT_INFO)buffer;
    reset_buffer_size();
    EXPECT(ERROR_SUCCESS, TdhEnumerateManifestProviderEvents(&provider, events, &size));
    EXPECT(1, events->NumberOfEvents);
    EXPECT(ERROR_SUCCESS, TdhUnloadManifestFromMemory((void *)(ULONG_PTR)MANIFEST, sizeof MANIFEST - 1));
}

int main(void) {
    /* GCEnd_V1: Count 7, Depth 2, ClrInstanceID 9. */
    BYTE payload[] = {7, 0, 0, 0, 2, 0, 0, 0, 9, 0};
    EVENT_RECORD event;
    memset(&event, 0, sizeof event);
    event.EventHeader.ProviderId = RUNTIME;
    event.EventHeader.EventDescriptor.Id = 2;
    event.EventHeader.EventDescriptor.Version = 1;
    event.EventHeader.EventDescriptor.Opcode = 2;
    event.EventHeader.EventDescriptor.Task = 1;
    event.UserData = payload;
    event.UserDataLength = sizeof payload;
    check_built_in(&event);
    check_lists();
    check_loaded_manifest(&event);
    check_built_in(&event);
    return report_rows();
}
