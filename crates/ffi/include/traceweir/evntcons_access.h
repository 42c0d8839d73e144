/* Access rights to a session, a provider or a group, and the properties of an enable. Part of
 * evntcons.h. */
#ifndef TRACEWEIR_EVNTCONS_ACCESS_H
#define TRACEWEIR_EVNTCONS_ACCESS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows_types.h"

#ifndef EVNTAPI
#define EVNTAPI
#endif

/* EnableProperty of EnableTraceEx2: what is added to each event, and which events are left out. */
#define EVENT_ENABLE_PROPERTY_SID 0x00000001
#define EVENT_ENABLE_PROPERTY_TS_ID 0x00000002
#define EVENT_ENABLE_PROPERTY_STACK_TRACE 0x00000004
#define EVENT_ENABLE_PROPERTY_PSM_KEY 0x00000008
#define EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 0x00000010
#define EVENT_ENABLE_PROPERTY_PROVIDER_GROUP 0x00000020
#define EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0 0x00000040
#define EVENT_ENABLE_PROPERTY_PROCESS_START_KEY 0x00000080
#define EVENT_ENABLE_PROPERTY_EVENT_KEY 0x00000100
#define EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE 0x00000200
#define EVENT_ENABLE_PROPERTY_ENABLE_SILOS 0x00000400
#define EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING 0x00000800

/* Access rights. */
#define WMIGUID_QUERY 0x0001
#define WMIGUID_SET 0x0002
#define WMIGUID_NOTIFICATION 0x0004
#define WMIGUID_READ_DESCRIPTION 0x0008
#define WMIGUID_EXECUTE 0x0010
#define TRACELOG_CREATE_REALTIME 0x0020
#define TRACELOG_CREATE_ONDISK 0x0040
#define TRACELOG_GUID_ENABLE 0x0080
#define TRACELOG_ACCESS_KERNEL_LOGGER 0x0100
#define TRACELOG_CREATE_INPROC 0x0200
#define TRACELOG_LOG_EVENT 0x0200
#define TRACELOG_ACCESS_REALTIME 0x0400
#define TRACELOG_REGISTER_GUIDS 0x0800
#define TRACELOG_JOIN_GROUP 0x1000
#define WMIGUID_ALL_ACCESS 0x00121FFF

typedef PVOID PSECURITY_DESCRIPTOR;

typedef enum {
    EventSecuritySetDACL = 0,
    EventSecuritySetSACL = 1,
    EventSecurityAddDACL = 2,
    EventSecurityAddSACL = 3,
    EventSecurityMax = 4
} EVENTSECURITYOPERATION;

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces an access list with one entry (EventSecuritySet...), or adds the entry to the list
 * (EventSecurityAdd...). Users are S-1-22-1-UID, groups S-1-22-2-GID, everyone S-1-1-0, root
 * S-1-5-18. */
ULONG EVNTAPI EventAccessControl(_In_ LPGUID Guid, _In_ ULONG Operation, _In_ PSID Sid, _In_ ULONG Rights, _In_ BOOLEAN AllowOrDeny);
/* Returns the effective access list as a self-relative descriptor. If the buffer is too small,
 * returns ERROR_MORE_DATA and the size. */
ULONG EVNTAPI EventAccessQuery(_In_ LPGUID Guid, _Out_writes_bytes_opt_(*BufferSize) PSECURITY_DESCRIPTOR Buffer,
                               _Inout_ PULONG BufferSize);
ULONG EVNTAPI EventAccessRemove(_In_ LPGUID Guid);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_EVNTCONS_ACCESS_H */
