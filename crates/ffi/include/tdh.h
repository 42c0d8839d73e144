/* Decoding of events: schemas, properties and their text, maps, providers, manifests, payload
 * filters.
 *
 *   ULONG size = 0;
 *   ULONG status = TdhGetEventInformation(event, 0, NULL, NULL, &size);
 *   if (status == ERROR_INSUFFICIENT_BUFFER) {
 *       TRACE_EVENT_INFO *info = malloc(size);
 *       status = TdhGetEventInformation(event, 0, NULL, info, &size);
 *       ... info->EventPropertyInfoArray[0 .. info->TopLevelPropertyCount],
 *           TdhGetProperty, TdhFormatProperty
 *   }
 *
 * Functions return a Win32 status. If a buffer is too small, they return ERROR_INSUFFICIENT_BUFFER
 * and store the required size. An offset in a structure counts from the start of the structure; 0
 * means "none". Texts are UTF-16 with a NUL.
 *
 * Events that describe themselves need nothing else. Other events need a manifest: loaded
 * (TdhLoadManifest...), or installed in /etc/traceweir/manifests or /usr/share/traceweir/manifests,
 * or in folders that TRACEWEIR_MANIFESTS names, separated by colons. Written from the published
 * documentation of tdh.h.
 */
#ifndef _TDH_H_
#define _TDH_H_

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "evntcons.h"

typedef ULONG TDHSTATUS;
#define TDHAPI TDHSTATUS WINAPI
typedef HANDLE TDH_HANDLE, *PTDH_HANDLE;

/* InType: the encoding of a value in the payload. */
typedef enum _TDH_IN_TYPE {
    TDH_INTYPE_NULL = 0,
    TDH_INTYPE_UNICODESTRING = 1,
    TDH_INTYPE_ANSISTRING = 2,
    TDH_INTYPE_INT8 = 3,
    TDH_INTYPE_UINT8 = 4,
    TDH_INTYPE_INT16 = 5,
    TDH_INTYPE_UINT16 = 6,
    TDH_INTYPE_INT32 = 7,
    TDH_INTYPE_UINT32 = 8,
    TDH_INTYPE_INT64 = 9,
    TDH_INTYPE_UINT64 = 10,
    TDH_INTYPE_FLOAT = 11,
    TDH_INTYPE_DOUBLE = 12,
    TDH_INTYPE_BOOLEAN = 13,
    TDH_INTYPE_BINARY = 14,
    TDH_INTYPE_GUID = 15,
    TDH_INTYPE_POINTER = 16,
    TDH_INTYPE_FILETIME = 17,
    TDH_INTYPE_SYSTEMTIME = 18,
    TDH_INTYPE_SID = 19,
    TDH_INTYPE_HEXINT32 = 20,
    TDH_INTYPE_HEXINT64 = 21,
    TDH_INTYPE_MANIFEST_COUNTEDSTRING = 22,
    TDH_INTYPE_MANIFEST_COUNTEDANSISTRING = 23,
    TDH_INTYPE_RESERVED24 = 24,
    TDH_INTYPE_MANIFEST_COUNTEDBINARY = 25,
    TDH_INTYPE_COUNTEDSTRING = 300,
    TDH_INTYPE_COUNTEDANSISTRING = 301,
    TDH_INTYPE_REVERSEDCOUNTEDSTRING = 302,
    TDH_INTYPE_REVERSEDCOUNTEDANSISTRING = 303,
    TDH_INTYPE_NONNULLTERMINATEDSTRING = 304,
    TDH_INTYPE_NONNULLTERMINATEDANSISTRING = 305,
    TDH_INTYPE_UNICODECHAR = 306,
    TDH_INTYPE_ANSICHAR = 307,
    TDH_INTYPE_SIZET = 308,
    TDH_INTYPE_HEXDUMP = 309,
    TDH_INTYPE_WBEMSID = 310
} TDH_IN_TYPE;

/* OutType: the format in which a value is shown. */
typedef enum _TDH_OUT_TYPE {
    TDH_OUTTYPE_NULL = 0,
    TDH_OUTTYPE_STRING = 1,
    TDH_OUTTYPE_DATETIME = 2,
    TDH_OUTTYPE_BYTE = 3,
    TDH_OUTTYPE_UNSIGNEDBYTE = 4,
    TDH_OUTTYPE_SHORT = 5,
    TDH_OUTTYPE_UNSIGNEDSHORT = 6,
    TDH_OUTTYPE_INT = 7,
    TDH_OUTTYPE_UNSIGNEDINT = 8,
    TDH_OUTTYPE_LONG = 9,
    TDH_OUTTYPE_UNSIGNEDLONG = 10,
    TDH_OUTTYPE_FLOAT = 11,
    TDH_OUTTYPE_DOUBLE = 12,
    TDH_OUTTYPE_BOOLEAN = 13,
    TDH_OUTTYPE_GUID = 14,
    TDH_OUTTYPE_HEXBINARY = 15,
    TDH_OUTTYPE_HEXINT8 = 16,
    TDH_OUTTYPE_HEXINT16 = 17,
    TDH_OUTTYPE_HEXINT32 = 18,
    TDH_OUTTYPE_HEXINT64 = 19,
    TDH_OUTTYPE_PID = 20,
    TDH_OUTTYPE_TID = 21,
    TDH_OUTTYPE_PORT = 22,
    TDH_OUTTYPE_IPV4 = 23,
    TDH_OUTTYPE_IPV6 = 24,
    TDH_OUTTYPE_SOCKETADDRESS = 25,
    TDH_OUTTYPE_CIMDATETIME = 26,
    TDH_OUTTYPE_ETWTIME = 27,
    TDH_OUTTYPE_XML = 28,
    TDH_OUTTYPE_ERRORCODE = 29,
    TDH_OUTTYPE_WIN32ERROR = 30,
    TDH_OUTTYPE_NTSTATUS = 31,
    TDH_OUTTYPE_HRESULT = 32,
    TDH_OUTTYPE_CULTURE_INSENSITIVE_DATETIME = 33,
    TDH_OUTTYPE_JSON = 34,
    TDH_OUTTYPE_UTF8 = 35,
    TDH_OUTTYPE_PKCS7_WITH_TYPE_INFO = 36,
    TDH_OUTTYPE_CODE_POINTER = 37,
    TDH_OUTTYPE_DATETIME_UTC = 38,
    TDH_OUTTYPE_REDUCEDSTRING = 300,
    TDH_OUTTYPE_NOPRINT = 301
} TDH_OUT_TYPE;

typedef enum _PROPERTY_FLAGS {
    PropertyStruct = 0x1,
    PropertyParamLength = 0x2,
    PropertyParamCount = 0x4,
    PropertyWBEMXmlFragment = 0x8,
    PropertyParamFixedLength = 0x10,
    PropertyParamFixedCount = 0x20,
    PropertyHasTags = 0x40,
    PropertyHasCustomSchema = 0x80
} PROPERTY_FLAGS;

typedef enum _MAP_FLAGS {
    EVENTMAP_INFO_FLAG_MANIFEST_VALUEMAP = 0x1,
    EVENTMAP_INFO_FLAG_MANIFEST_BITMAP = 0x2,
    EVENTMAP_INFO_FLAG_MANIFEST_PATTERNMAP = 0x4,
    EVENTMAP_INFO_FLAG_WBEM_VALUEMAP = 0x8,
    EVENTMAP_INFO_FLAG_WBEM_BITMAP = 0x10,
    EVENTMAP_INFO_FLAG_WBEM_FLAG = 0x20,
    EVENTMAP_INFO_FLAG_WBEM_NO_MAP = 0x40
} MAP_FLAGS;

typedef enum _MAP_VALUETYPE {
    EVENTMAP_ENTRY_VALUETYPE_ULONG = 0,
    EVENTMAP_ENTRY_VALUETYPE_STRING = 1
} MAP_VALUETYPE;

typedef enum _DECODING_SOURCE {
    DecodingSourceXMLFile = 0,
    DecodingSourceWbem = 1,
    DecodingSourceWPP = 2,
    DecodingSourceTlg = 3,
    DecodingSourceMax = 4
} DECODING_SOURCE;

typedef enum _TEMPLATE_FLAGS {
    TEMPLATE_EVENT_DATA = 1,
    TEMPLATE_USER_DATA = 2,
    TEMPLATE_CONTROL_GUID = 4
} TEMPLATE_FLAGS;

typedef enum _EVENT_FIELD_TYPE {
    EventKeywordInformation = 0,
    EventLevelInformation = 1,
    EventChannelInformation = 2,
    EventTaskInformation = 3,
    EventOpcodeInformation = 4,
    EventInformationMax = 5
} EVENT_FIELD_TYPE;

typedef enum _TDH_CONTEXT_TYPE {
    TDH_CONTEXT_WPP_TMFFILE = 0,
    TDH_CONTEXT_WPP_TMFSEARCHPATH = 1,
    TDH_CONTEXT_WPP_GMT = 2,
    TDH_CONTEXT_POINTERSIZE = 3,
    TDH_CONTEXT_PDB_PATH = 4,
    TDH_CONTEXT_MAXIMUM = 5
} TDH_CONTEXT_TYPE;

typedef enum _PAYLOAD_OPERATOR {
    PAYLOADFIELD_EQ = 0,
    PAYLOADFIELD_NE = 1,
    PAYLOADFIELD_LE = 2,
    PAYLOADFIELD_GT = 3,
    PAYLOADFIELD_LT = 4,
    PAYLOADFIELD_GE = 5,
    PAYLOADFIELD_BETWEEN = 6,
    PAYLOADFIELD_NOTBETWEEN = 7,
    PAYLOADFIELD_MODULO = 8,
    PAYLOADFIELD_CONTAINS = 20,
    PAYLOADFIELD_DOESNTCONTAIN = 21,
    PAYLOADFIELD_IS = 30,
    PAYLOADFIELD_ISNOT = 31,
    PAYLOADFIELD_INVALID = 32
} PAYLOAD_OPERATOR;

#define MAX_PAYLOAD_PREDICATES 8

/* One property: a value, a structure of properties, or a value with a schema of its own. */
typedef struct _EVENT_PROPERTY_INFO {
    PROPERTY_FLAGS Flags;
    ULONG NameOffset;
    __extension__ union {
        struct {
            USHORT InType;
            USHORT OutType;
            ULONG MapNameOffset;
        } nonStructType;
        struct {
            USHORT StructStartIndex;
            USHORT NumOfStructMembers;
            ULONG padding;
        } structType;
        struct {
            USHORT InType;
            USHORT OutType;
            ULONG CustomSchemaOffset;
        } customSchemaType;
    };
    __extension__ union {
        USHORT count;
        USHORT countPropertyIndex;
    };
    __extension__ union {
        USHORT length;
        USHORT lengthPropertyIndex;
    };
    __extension__ union {
        ULONG Reserved;
        __extension__ struct {
            ULONG Tags : 28;
        };
    };
} EVENT_PROPERTY_INFO, *PEVENT_PROPERTY_INFO;

/* The schema of an event. The properties of the top level come first, then the members of
 * structures. */
typedef struct _TRACE_EVENT_INFO {
    GUID ProviderGuid;
    GUID EventGuid;
    EVENT_DESCRIPTOR EventDescriptor;
    DECODING_SOURCE DecodingSource;
    ULONG ProviderNameOffset;
    ULONG LevelNameOffset;
    ULONG ChannelNameOffset;
    ULONG KeywordsNameOffset;
    ULONG TaskNameOffset;
    ULONG OpcodeNameOffset;
    ULONG EventMessageOffset;
    ULONG ProviderMessageOffset;
    ULONG BinaryXMLOffset;
    ULONG BinaryXMLSize;
    __extension__ union {
        ULONG EventNameOffset;
        ULONG ActivityIDNameOffset;
    };
    __extension__ union {
        ULONG EventAttributesOffset;
        ULONG RelatedActivityIDNameOffset;
    };
    ULONG PropertyCount;
    ULONG TopLevelPropertyCount;
    __extension__ union {
        TEMPLATE_FLAGS Flags;
        __extension__ struct {
            ULONG Reserved : 4;
            ULONG Tags : 28;
        };
    };
    EVENT_PROPERTY_INFO EventPropertyInfoArray[ANYSIZE_ARRAY];
} TRACE_EVENT_INFO, *PTRACE_EVENT_INFO;

typedef struct _EVENT_MAP_ENTRY {
    ULONG OutputOffset;
    __extension__ union {
        ULONG Value;
        ULONG InputOffset;
    };
} EVENT_MAP_ENTRY, *PEVENT_MAP_ENTRY;

/* Names of values or bits. Names from manifests end with a space. */
typedef struct _EVENT_MAP_INFO {
    ULONG NameOffset;
    MAP_FLAGS Flag;
    ULONG EntryCount;
    __extension__ union {
        MAP_VALUETYPE MapEntryValueType;
        ULONG FormatStringOffset;
    };
    EVENT_MAP_ENTRY MapEntryArray[ANYSIZE_ARRAY];
} EVENT_MAP_INFO, *PEVENT_MAP_INFO;

/* A step to a property: the address of its name as a number, and the index of the element;
 * ULONG_MAX stands for all elements. */
typedef struct _PROPERTY_DATA_DESCRIPTOR {
    ULONGLONG PropertyName;
    ULONG ArrayIndex;
    ULONG Reserved;
} PROPERTY_DATA_DESCRIPTOR, *PPROPERTY_DATA_DESCRIPTOR;

typedef struct _TRACE_PROVIDER_INFO {
    GUID ProviderGuid;
    ULONG SchemaSource;
    ULONG ProviderNameOffset;
} TRACE_PROVIDER_INFO, *PTRACE_PROVIDER_INFO;

typedef struct _PROVIDER_ENUMERATION_INFO {
    ULONG NumberOfProviders;
    ULONG Reserved;
    TRACE_PROVIDER_INFO TraceProviderInfoArray[ANYSIZE_ARRAY];
} PROVIDER_ENUMERATION_INFO, *PPROVIDER_ENUMERATION_INFO;

/* The value of an opcode has the opcode in its high 16 bits, and in its low 16 bits the task that
 * it belongs to, or 0. */
typedef struct _PROVIDER_FIELD_INFO {
    ULONG NameOffset;
    ULONG DescriptionOffset;
    ULONGLONG Value;
} PROVIDER_FIELD_INFO, *PPROVIDER_FIELD_INFO;

typedef struct _PROVIDER_FIELD_INFOARRAY {
    ULONG NumberOfElements;
    EVENT_FIELD_TYPE FieldType;
    PROVIDER_FIELD_INFO FieldInfoArray[ANYSIZE_ARRAY];
} PROVIDER_FIELD_INFOARRAY, *PPROVIDER_FIELD_INFOARRAY;

typedef struct _PROVIDER_EVENT_INFO {
    ULONG NumberOfEvents;
    ULONG Reserved;
    EVENT_DESCRIPTOR EventDescriptorsArray[ANYSIZE_ARRAY];
} PROVIDER_EVENT_INFO, *PPROVIDER_EVENT_INFO;

typedef struct _PROVIDER_FILTER_INFO {
    UCHAR Id;
    UCHAR Version;
    ULONG MessageOffset;
    ULONG Reserved;
    ULONG PropertyCount;
    EVENT_PROPERTY_INFO EventPropertyInfoArray[ANYSIZE_ARRAY];
} PROVIDER_FILTER_INFO, *PPROVIDER_FILTER_INFO;

/* A number, or the address of a text. */
typedef struct _TDH_CONTEXT {
    ULONGLONG ParameterValue;
    TDH_CONTEXT_TYPE ParameterType;
    ULONG ParameterSize;
} TDH_CONTEXT, *PTDH_CONTEXT;

typedef struct _PAYLOAD_FILTER_PREDICATE {
    LPWSTR FieldName;
    USHORT CompareOp;
    LPWSTR Value;
} PAYLOAD_FILTER_PREDICATE, *PPAYLOAD_FILTER_PREDICATE;

/* Functions that return the texts of a schema. */
#define TDH_TEXT_AT(base, offset) ((offset) != 0 ? (PWSTR)((PBYTE)(base) + (offset)) : (PWSTR)NULL)
FORCEINLINE PWSTR TEI_PROVIDER_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->ProviderNameOffset); }
FORCEINLINE PWSTR TEI_LEVEL_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->LevelNameOffset); }
FORCEINLINE PWSTR TEI_CHANNEL_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->ChannelNameOffset); }
FORCEINLINE PWSTR TEI_KEYWORDS_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->KeywordsNameOffset); }
FORCEINLINE PWSTR TEI_TASK_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->TaskNameOffset); }
FORCEINLINE PWSTR TEI_OPCODE_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->OpcodeNameOffset); }
FORCEINLINE PWSTR TEI_EVENT_MESSAGE(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->EventMessageOffset); }
FORCEINLINE PWSTR TEI_PROVIDER_MESSAGE(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->ProviderMessageOffset); }
FORCEINLINE PWSTR TEI_ACTIVITYID_NAME(_In_ PTRACE_EVENT_INFO EventInfo) { return TDH_TEXT_AT(EventInfo, EventInfo->ActivityIDNameOffset); }
FORCEINLINE PWSTR TEI_RELATEDACTIVITYID_NAME(_In_ PTRACE_EVENT_INFO EventInfo) {
    return TDH_TEXT_AT(EventInfo, EventInfo->RelatedActivityIDNameOffset);
}
FORCEINLINE PWSTR TEI_PROPERTY_NAME(_In_ PTRACE_EVENT_INFO EventInfo, _In_ PEVENT_PROPERTY_INFO Property) {
    return TDH_TEXT_AT(EventInfo, Property->NameOffset);
}
FORCEINLINE PWSTR TEI_MAP_NAME(_In_ PTRACE_EVENT_INFO EventInfo, _In_ PEVENT_PROPERTY_INFO Property) {
    return TDH_TEXT_AT(EventInfo, Property->nonStructType.MapNameOffset);
}
FORCEINLINE PWSTR EMI_MAP_NAME(_In_ PEVENT_MAP_INFO MapInfo) { return TDH_TEXT_AT(MapInfo, MapInfo->NameOffset); }
FORCEINLINE PWSTR EMI_MAP_FORMAT(_In_ PEVENT_MAP_INFO MapInfo) {
    return (MapInfo->Flag & EVENTMAP_INFO_FLAG_MANIFEST_PATTERNMAP) ? TDH_TEXT_AT(MapInfo, MapInfo->FormatStringOffset) : NULL;
}
FORCEINLINE PWSTR EMI_MAP_OUTPUT(_In_ PEVENT_MAP_INFO MapInfo, _In_ PEVENT_MAP_ENTRY Map) {
    return TDH_TEXT_AT(MapInfo, Map->OutputOffset);
}
FORCEINLINE PWSTR EMI_MAP_INPUT(_In_ PEVENT_MAP_INFO MapInfo, _In_ PEVENT_MAP_ENTRY Map) {
    return TDH_TEXT_AT(MapInfo, Map->InputOffset);
}
FORCEINLINE PWSTR PEI_PROVIDER_NAME(_In_ PPROVIDER_ENUMERATION_INFO ProviderEnum, _In_ PTRACE_PROVIDER_INFO ProviderInfo) {
    return TDH_TEXT_AT(ProviderEnum, ProviderInfo->ProviderNameOffset);
}
FORCEINLINE PWSTR PFI_FIELD_NAME(_In_ PPROVIDER_FIELD_INFOARRAY FieldInfoArray, _In_ PPROVIDER_FIELD_INFO FieldInfo) {
    return TDH_TEXT_AT(FieldInfoArray, FieldInfo->NameOffset);
}
FORCEINLINE PWSTR PFI_FIELD_MESSAGE(_In_ PPROVIDER_FIELD_INFOARRAY FieldInfoArray, _In_ PPROVIDER_FIELD_INFO FieldInfo) {
    return TDH_TEXT_AT(FieldInfoArray, FieldInfo->DescriptionOffset);
}
FORCEINLINE PWSTR PFI_FILTER_MESSAGE(_In_ PPROVIDER_FILTER_INFO FilterInfo) { return TDH_TEXT_AT(FilterInfo, FilterInfo->MessageOffset); }
FORCEINLINE PWSTR PFI_PROPERTY_NAME(_In_ PPROVIDER_FILTER_INFO FilterInfo, _In_ PEVENT_PROPERTY_INFO Property) {
    return TDH_TEXT_AT(FilterInfo, Property->NameOffset);
}

#ifdef __cplusplus
extern "C" {
#endif

/* Functions for events. */
TDHSTATUS WINAPI TdhGetEventInformation(_In_ PEVENT_RECORD Event, ULONG TdhContextCount, _In_reads_opt_(TdhContextCount) PTDH_CONTEXT TdhContext,
                                        PTRACE_EVENT_INFO Buffer, _Inout_ PULONG BufferSize);
TDHSTATUS WINAPI TdhGetPropertySize(_In_ PEVENT_RECORD pEvent, ULONG TdhContextCount, _In_reads_opt_(TdhContextCount) PTDH_CONTEXT pTdhContext,
                                    ULONG PropertyDataCount, _In_reads_(PropertyDataCount) PPROPERTY_DATA_DESCRIPTOR pPropertyData,
                                    _Out_ PULONG pPropertySize);
TDHSTATUS WINAPI TdhGetProperty(_In_ PEVENT_RECORD pEvent, ULONG TdhContextCount, _In_reads_opt_(TdhContextCount) PTDH_CONTEXT pTdhContext,
                                ULONG PropertyDataCount, _In_reads_(PropertyDataCount) PPROPERTY_DATA_DESCRIPTOR pPropertyData, ULONG BufferSize,
                                PBYTE pBuffer);
TDHSTATUS WINAPI TdhGetEventMapInformation(_In_ PEVENT_RECORD pEvent, _In_ PWSTR pMapName, PEVENT_MAP_INFO pBuffer, _Inout_ PULONG pBufferSize);
TDHSTATUS WINAPI TdhFormatProperty(_In_ PTRACE_EVENT_INFO EventInfo, _In_opt_ PEVENT_MAP_INFO MapInfo, ULONG PointerSize, USHORT PropertyInType,
                                   USHORT PropertyOutType, USHORT PropertyLength, USHORT UserDataLength, PBYTE UserData,
                                   _Inout_ PULONG BufferSize, PWCHAR Buffer, _Out_ PUSHORT UserDataConsumed);

/* Functions for providers. */
TDHSTATUS WINAPI TdhEnumerateProviders(PPROVIDER_ENUMERATION_INFO pBuffer, _Inout_ PULONG pBufferSize);
TDHSTATUS WINAPI TdhEnumerateProvidersForDecodingSource(DECODING_SOURCE filter, PROVIDER_ENUMERATION_INFO *buffer, ULONG bufferSize,
                                                        _Out_ PULONG bufferRequired);
TDHSTATUS WINAPI TdhEnumerateProviderFieldInformation(_In_ LPGUID pGuid, EVENT_FIELD_TYPE EventFieldType, PPROVIDER_FIELD_INFOARRAY pBuffer,
                                                      _Inout_ PULONG pBufferSize);
TDHSTATUS WINAPI TdhQueryProviderFieldInformation(_In_ LPGUID pGuid, ULONGLONG EventFieldValue, EVENT_FIELD_TYPE EventFieldType,
                                                  PPROVIDER_FIELD_INFOARRAY pBuffer, _Inout_ PULONG pBufferSize);
TDHSTATUS WINAPI TdhEnumerateProviderFilters(_In_ LPGUID Guid, ULONG TdhContextCount, _In_reads_opt_(TdhContextCount) PTDH_CONTEXT TdhContext,
                                             _Out_ PULONG FilterCount, PPROVIDER_FILTER_INFO *Buffer, _Inout_ PULONG BufferSize);
TDHSTATUS WINAPI TdhEnumerateManifestProviderEvents(_In_ LPGUID ProviderGuid, PPROVIDER_EVENT_INFO Buffer, _Inout_ PULONG BufferSize);
TDHSTATUS WINAPI TdhGetManifestEventInformation(_In_ LPGUID ProviderGuid, _In_ PEVENT_DESCRIPTOR EventDescriptor, PTRACE_EVENT_INFO Buffer,
                                                _Inout_ PULONG BufferSize);

/* Functions for the manifests of this process. */
TDHSTATUS WINAPI TdhLoadManifest(_In_ PWSTR Manifest);
TDHSTATUS WINAPI TdhLoadManifestFromMemory(_In_reads_bytes_(cbData) LPCVOID pData, ULONG cbData);
TDHSTATUS WINAPI TdhLoadManifestFromBinary(_In_ PWSTR BinaryPath);
TDHSTATUS WINAPI TdhUnloadManifest(_In_ PWSTR Manifest);
TDHSTATUS WINAPI TdhUnloadManifestFromMemory(_In_reads_bytes_(cbData) LPCVOID pData, ULONG cbData);

/* Functions for WPP messages. */
TDHSTATUS WINAPI TdhOpenDecodingHandle(_Out_ PTDH_HANDLE Handle);
TDHSTATUS WINAPI TdhSetDecodingParameter(_In_ TDH_HANDLE Handle, _In_ PTDH_CONTEXT TdhContext);
TDHSTATUS WINAPI TdhGetDecodingParameter(_In_ TDH_HANDLE Handle, _Inout_ PTDH_CONTEXT TdhContext);
TDHSTATUS WINAPI TdhGetWppProperty(_In_ TDH_HANDLE Handle, _In_ PEVENT_RECORD EventRecord, _In_ PWSTR PropertyName, _Inout_ PULONG BufferSize,
                                   PBYTE Buffer);
TDHSTATUS WINAPI TdhGetWppMessage(_In_ TDH_HANDLE Handle, _In_ PEVENT_RECORD EventRecord, _Inout_ PULONG BufferSize, PBYTE Buffer);
TDHSTATUS WINAPI TdhCloseDecodingHandle(_In_ TDH_HANDLE Handle);

/* Payload filters: create one for each event, aggregate them, enable with the descriptor, clean
 * up. */
TDHSTATUS WINAPI TdhCreatePayloadFilter(_In_ LPCGUID ProviderGuid, _In_ PCEVENT_DESCRIPTOR EventDescriptor, BOOLEAN EventMatchANY,
                                        ULONG PayloadPredicateCount, _In_reads_(PayloadPredicateCount) PPAYLOAD_FILTER_PREDICATE PayloadPredicates,
                                        _Outptr_ PVOID *PayloadFilter);
TDHSTATUS WINAPI TdhDeletePayloadFilter(_Inout_ PVOID *PayloadFilter);
TDHSTATUS WINAPI TdhAggregatePayloadFilters(ULONG PayloadFilterCount, _In_reads_(PayloadFilterCount) PVOID *PayloadFilterPtrs,
                                            _In_reads_opt_(PayloadFilterCount) PBOOLEAN EventMatchALLFlags,
                                            _Out_ PEVENT_FILTER_DESCRIPTOR EventFilterDescriptor);
TDHSTATUS WINAPI TdhCleanupPayloadEventFilterDescriptor(_Inout_ PEVENT_FILTER_DESCRIPTOR EventFilterDescriptor);

#ifdef __cplusplus
}
#endif

#endif /* _TDH_H_ */
