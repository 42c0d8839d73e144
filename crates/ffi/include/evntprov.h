/* Providers: register, check whether a session listens, write events.
 *
 *   REGHANDLE reg = 0;
 *   EventRegister(&MyProvider, NULL, NULL, &reg);
 *   if (EventEnabled(reg, &MyEvent)) {
 *       EVENT_DATA_DESCRIPTOR data[2];
 *       EventDataDescCreate(&data[0], &number, sizeof number);
 *       EventDataDescCreate(&data[1], text, (ULONG)(strlen(text) + 1));
 *       EventWrite(reg, &MyEvent, 2, data);
 *   }
 *   EventUnregister(reg);
 *
 * EventEnabled and EventProviderEnabled return a BOOLEAN. The other functions return a Win32 status
 * (winerror.h), 0 for success; writing an event that no session records succeeds, too. Signal
 * handlers may call all functions except EventRegister, EventUnregister and EventSetInformation.
 * Written from the published documentation of evntprov.h.
 */
#ifndef _EVNTPROV_
#define _EVNTPROV_

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "traceweir/windows_types.h"

#ifndef EVNTAPI
#define EVNTAPI
#endif

/* Limits and codes. */
#define EVENT_MIN_LEVEL 0x00
#define EVENT_MAX_LEVEL 0xFF

#define EVENT_ACTIVITY_CTRL_GET_ID 1
#define EVENT_ACTIVITY_CTRL_SET_ID 2
#define EVENT_ACTIVITY_CTRL_CREATE_ID 3
#define EVENT_ACTIVITY_CTRL_GET_SET_ID 4
#define EVENT_ACTIVITY_CTRL_CREATE_SET_ID 5

#define EVENT_WRITE_FLAG_NO_FAULTING 0x00000001
#define EVENT_WRITE_FLAG_INPRIVATE 0x00000002

#define MAX_EVENT_DATA_DESCRIPTORS 128
#define MAX_EVENT_FILTER_DATA_SIZE 1024
#define MAX_EVENT_FILTER_PAYLOAD_SIZE 4096
#define MAX_EVENT_FILTER_EVENT_NAME_SIZE 4096
#define MAX_EVENT_FILTERS_COUNT 13
#define MAX_EVENT_FILTER_PID_COUNT 8
#define MAX_EVENT_FILTER_EVENT_ID_COUNT 64

#define EVENT_FILTER_TYPE_NONE 0x00000000u
#define EVENT_FILTER_TYPE_SCHEMATIZED 0x80000000u
#define EVENT_FILTER_TYPE_SYSTEM_FLAGS 0x80000001u
#define EVENT_FILTER_TYPE_TRACEHANDLE 0x80000002u
#define EVENT_FILTER_TYPE_PID 0x80000004u
#define EVENT_FILTER_TYPE_EXECUTABLE_NAME 0x80000008u
#define EVENT_FILTER_TYPE_PACKAGE_ID 0x80000010u
#define EVENT_FILTER_TYPE_PACKAGE_APP_ID 0x80000020u
#define EVENT_FILTER_TYPE_PAYLOAD 0x80000100u
#define EVENT_FILTER_TYPE_EVENT_ID 0x80000200u
#define EVENT_FILTER_TYPE_EVENT_NAME 0x80000400u
#define EVENT_FILTER_TYPE_STACKWALK 0x80001000u
#define EVENT_FILTER_TYPE_STACKWALK_NAME 0x80002000u
#define EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW 0x80004000u
#define EVENT_FILTER_TYPE_CONTAINER 0x80008000u

/* Types of the blocks of an event, for a provider that opted in (EventSetInformation). For other
 * providers all blocks are payload. */
#define EVENT_DATA_DESCRIPTOR_TYPE_NONE 0
#define EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA 1
#define EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA 2
#define EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE 3

/* The codes that an enable callback receives (IsEnabled). */
#define EVENT_CONTROL_CODE_DISABLE_PROVIDER 0
#define EVENT_CONTROL_CODE_ENABLE_PROVIDER 1
#define EVENT_CONTROL_CODE_CAPTURE_STATE 2

typedef ULONGLONG REGHANDLE, *PREGHANDLE;

/* One block of an event's data; EventDataDescCreate fills it. */
typedef struct _EVENT_DATA_DESCRIPTOR {
    ULONGLONG Ptr;
    ULONG Size;
    __extension__ union {
        ULONG Reserved;
        __extension__ struct {
            UCHAR Type;
            UCHAR Reserved1;
            USHORT Reserved2;
        };
    };
} EVENT_DATA_DESCRIPTOR, *PEVENT_DATA_DESCRIPTOR;

/* Describes an event, apart from its data. */
typedef struct _EVENT_DESCRIPTOR {
    USHORT Id;
    UCHAR Version;
    UCHAR Channel;
    UCHAR Level;
    UCHAR Opcode;
    USHORT Task;
    ULONGLONG Keyword;
} EVENT_DESCRIPTOR, *PEVENT_DESCRIPTOR;
typedef const EVENT_DESCRIPTOR *PCEVENT_DESCRIPTOR;

typedef struct _EVENT_FILTER_DESCRIPTOR {
    ULONGLONG Ptr;
    ULONG Size;
    ULONG Type;
} EVENT_FILTER_DESCRIPTOR, *PEVENT_FILTER_DESCRIPTOR;

/* The head of each filter that a provider defines; NextOffset leads to the filter of the next
 * session. */
typedef struct _EVENT_FILTER_HEADER {
    USHORT Id;
    UCHAR Version;
    UCHAR Reserved[5];
    ULONGLONG InstanceId;
    ULONG Size;
    ULONG NextOffset;
} EVENT_FILTER_HEADER, *PEVENT_FILTER_HEADER;

typedef struct _EVENT_FILTER_EVENT_ID {
    BOOLEAN FilterIn;
    UCHAR Reserved;
    USHORT Count;
    USHORT Events[ANYSIZE_ARRAY];
} EVENT_FILTER_EVENT_ID, *PEVENT_FILTER_EVENT_ID;

typedef struct _EVENT_FILTER_EVENT_NAME {
    ULONGLONG MatchAnyKeyword;
    ULONGLONG MatchAllKeyword;
    UCHAR Level;
    BOOLEAN FilterIn;
    USHORT NameCount;
    UCHAR Names[ANYSIZE_ARRAY];
} EVENT_FILTER_EVENT_NAME, *PEVENT_FILTER_EVENT_NAME;

typedef struct _EVENT_FILTER_LEVEL_KW {
    ULONGLONG MatchAnyKeyword;
    ULONGLONG MatchAllKeyword;
    UCHAR Level;
    BOOLEAN FilterIn;
} EVENT_FILTER_LEVEL_KW, *PEVENT_FILTER_LEVEL_KW;

typedef enum _EVENT_INFO_CLASS {
    EventProviderBinaryTrackInfo = 0,
    EventProviderSetReserved1 = 1,
    EventProviderSetTraits = 2,
    EventProviderUseDescriptorType = 3,
    MaxEventInfo = 4
} EVENT_INFO_CLASS;

typedef enum _ETW_PROVIDER_TRAIT_TYPE {
    EtwProviderTraitTypeGroup = 1,
    EtwProviderTraitDecodeGuid = 2,
    EtwProviderTraitTypeMax = 3
} ETW_PROVIDER_TRAIT_TYPE;

/* Called when sessions enable, change or disable the provider, or request its state. It should
 * return quickly. */
typedef void(NTAPI *PENABLECALLBACK)(LPCGUID SourceId, ULONG IsEnabled, UCHAR Level, ULONGLONG MatchAnyKeyword,
                                     ULONGLONG MatchAllKeyword, PEVENT_FILTER_DESCRIPTOR FilterData, PVOID CallbackContext);

#ifdef __cplusplus
extern "C" {
#endif

ULONG EVNTAPI EventRegister(_In_ LPCGUID ProviderId, _In_opt_ PENABLECALLBACK EnableCallback,
                            _In_opt_ PVOID CallbackContext, _Out_ PREGHANDLE RegHandle);
ULONG EVNTAPI EventUnregister(_In_ REGHANDLE RegHandle);
ULONG EVNTAPI EventSetInformation(_In_ REGHANDLE RegHandle, _In_ EVENT_INFO_CLASS InformationClass,
                                  _In_reads_bytes_opt_(InformationLength) PVOID EventInformation,
                                  _In_ ULONG InformationLength);

BOOLEAN EVNTAPI EventEnabled(_In_ REGHANDLE RegHandle, _In_ PCEVENT_DESCRIPTOR EventDescriptor);
BOOLEAN EVNTAPI EventProviderEnabled(_In_ REGHANDLE RegHandle, _In_ UCHAR Level, _In_ ULONGLONG Keyword);

ULONG EVNTAPI EventWrite(_In_ REGHANDLE RegHandle, _In_ PCEVENT_DESCRIPTOR EventDescriptor, _In_ ULONG UserDataCount,
                         _In_reads_opt_(UserDataCount) PEVENT_DATA_DESCRIPTOR UserData);
ULONG EVNTAPI EventWriteTransfer(_In_ REGHANDLE RegHandle, _In_ PCEVENT_DESCRIPTOR EventDescriptor,
                                 _In_opt_ LPCGUID ActivityId, _In_opt_ LPCGUID RelatedActivityId, _In_ ULONG UserDataCount,
                                 _In_reads_opt_(UserDataCount) PEVENT_DATA_DESCRIPTOR UserData);
ULONG EVNTAPI EventWriteEx(_In_ REGHANDLE RegHandle, _In_ PCEVENT_DESCRIPTOR EventDescriptor, _In_ ULONG64 Filter,
                           _In_ ULONG Flags, _In_opt_ LPCGUID ActivityId, _In_opt_ LPCGUID RelatedActivityId,
                           _In_ ULONG UserDataCount, _In_reads_opt_(UserDataCount) PEVENT_DATA_DESCRIPTOR UserData);
ULONG EVNTAPI EventWriteString(_In_ REGHANDLE RegHandle, _In_ UCHAR Level, _In_ ULONGLONG Keyword, _In_ PCWSTR String);

ULONG EVNTAPI EventActivityIdControl(_In_ ULONG ControlCode, _Inout_ LPGUID ActivityId);

#ifdef __cplusplus
}
#endif

/* Functions for event descriptors. */
FORCEINLINE VOID EventDescZero(_Out_ PEVENT_DESCRIPTOR EventDescriptor) {
    EventDescriptor->Id = 0;
    EventDescriptor->Version = 0;
    EventDescriptor->Channel = 0;
    EventDescriptor->Level = 0;
    EventDescriptor->Opcode = 0;
    EventDescriptor->Task = 0;
    EventDescriptor->Keyword = 0;
}

FORCEINLINE VOID EventDescCreate(_Out_ PEVENT_DESCRIPTOR EventDescriptor, _In_ USHORT Id, _In_ UCHAR Version,
                                 _In_ UCHAR Channel, _In_ UCHAR Level, _In_ USHORT Task, _In_ UCHAR Opcode,
                                 _In_ ULONGLONG Keyword) {
    EventDescriptor->Id = Id;
    EventDescriptor->Version = Version;
    EventDescriptor->Channel = Channel;
    EventDescriptor->Level = Level;
    EventDescriptor->Opcode = Opcode;
    EventDescriptor->Task = Task;
    EventDescriptor->Keyword = Keyword;
}

FORCEINLINE USHORT EventDescGetId(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Id; }
FORCEINLINE UCHAR EventDescGetVersion(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Version; }
FORCEINLINE UCHAR EventDescGetChannel(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Channel; }
FORCEINLINE UCHAR EventDescGetLevel(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Level; }
FORCEINLINE UCHAR EventDescGetOpcode(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Opcode; }
FORCEINLINE USHORT EventDescGetTask(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Task; }
FORCEINLINE ULONGLONG EventDescGetKeyword(_In_ PCEVENT_DESCRIPTOR EventDescriptor) { return EventDescriptor->Keyword; }

FORCEINLINE PEVENT_DESCRIPTOR EventDescSetId(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ USHORT Id) {
    EventDescriptor->Id = Id;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetVersion(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ UCHAR Version) {
    EventDescriptor->Version = Version;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetChannel(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ UCHAR Channel) {
    EventDescriptor->Channel = Channel;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetLevel(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ UCHAR Level) {
    EventDescriptor->Level = Level;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetOpcode(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ UCHAR Opcode) {
    EventDescriptor->Opcode = Opcode;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetTask(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ USHORT Task) {
    EventDescriptor->Task = Task;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescSetKeyword(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ ULONGLONG Keyword) {
    EventDescriptor->Keyword = Keyword;
    return EventDescriptor;
}
FORCEINLINE PEVENT_DESCRIPTOR EventDescOrKeyword(_Inout_ PEVENT_DESCRIPTOR EventDescriptor, _In_ ULONGLONG Keyword) {
    EventDescriptor->Keyword |= Keyword;
    return EventDescriptor;
}

/* Functions for blocks of data and filters. */
FORCEINLINE VOID EventDataDescCreate(_Out_ PEVENT_DATA_DESCRIPTOR EventDataDescriptor,
                                     _In_reads_bytes_(DataSize) const VOID *DataPtr, _In_ ULONG DataSize) {
    EventDataDescriptor->Ptr = (ULONGLONG)(ULONG_PTR)DataPtr;
    EventDataDescriptor->Size = DataSize;
    EventDataDescriptor->Reserved = 0;
}

FORCEINLINE VOID EventFilterDescCreate(_Out_ PEVENT_FILTER_DESCRIPTOR FilterDescriptor,
                                       _In_reads_bytes_(DataSize) const VOID *DataPtr, _In_ ULONG DataSize,
                                       _In_ ULONG DataType) {
    FilterDescriptor->Ptr = (ULONGLONG)(ULONG_PTR)DataPtr;
    FilterDescriptor->Size = DataSize;
    FilterDescriptor->Type = DataType;
}

/* Finds a trait in provider traits (u16 size of all, name, NUL, then traits of u16 size, u8 type
 * and data). Returns its data and their size, or NULL and 0 if there is no such trait. Stops at a
 * trait that does not fit. */
FORCEINLINE VOID EtwGetTraitFromProviderTraits(_In_ PVOID ProviderTraits, _In_ UCHAR TraitType, _Out_ PVOID *Trait,
                                               _Out_ PUSHORT Size) {
    UCHAR *bytes = (UCHAR *)ProviderTraits;
    ULONG end = (ULONG)bytes[0] | ((ULONG)bytes[1] << 8);
    ULONG at = 2;
    *Trait = NULL;
    *Size = 0;
    while (at < end && bytes[at] != 0) {
        at++;
    }
    at++;
    while (at + 3 <= end) {
        ULONG size = (ULONG)bytes[at] | ((ULONG)bytes[at + 1] << 8);
        if (size < 3 || size > end - at) {
            return;
        }
        if (bytes[at + 2] == TraitType) {
            *Trait = bytes + at + 3;
            *Size = (USHORT)(size - 3);
            return;
        }
        at += size;
    }
}

#endif /* _EVNTPROV_ */
