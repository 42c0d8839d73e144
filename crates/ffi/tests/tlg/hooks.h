/* Replaces the runtime: stores the arguments that the macros pass, so that tests can check them.
 * Include this header first. */
#ifndef TLG_TEST_HOOKS_H
#define TLG_TEST_HOOKS_H

#include <evntprov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOOK_HANDLE 0x77u
#define HOOK_MAY_BE_UNUSED __attribute__((unused))

/* How often each function was called, the arguments of its last call, and the status that it
 * returns. */
static struct {
    ULONG registers, unregisters, writes, writes_ex, sets;
    ULONG register_status, set_status;
    BOOLEAN enabled_at_register;
    UCHAR level;
    ULONGLONG any, all;
    REGHANDLE handle;
    GUID id;
    PENABLECALLBACK callback;
    PVOID context;
    EVENT_INFO_CLASS set_class;
    const void *set_data;
    ULONG set_size;
    EVENT_DESCRIPTOR event;
    ULONG64 filter;
    ULONG flags;
    BOOLEAN has_activity, has_related;
    GUID activity, related;
    ULONG blocks;
    UCHAR types[MAX_EVENT_DATA_DESCRIPTORS];
    UINT8 traits[512], metadata[0x8000], payload[0x20000];
    ULONG traits_size, metadata_size, payload_size;
} hook;

static inline HOOK_MAY_BE_UNUSED void hook_enable(ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all) {
    hook.callback(&hook.id, code, level, any, all, NULL, hook.context);
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_register(LPCGUID id, PENABLECALLBACK callback, PVOID context, PREGHANDLE handle) {
    hook.registers++;
    hook.id = *id;
    hook.callback = callback;
    hook.context = context;
    if (hook.register_status != 0) {
        return hook.register_status;
    }
    *handle = HOOK_HANDLE;
    if (hook.enabled_at_register) {
        hook_enable(EVENT_CONTROL_CODE_ENABLE_PROVIDER, hook.level, hook.any, hook.all);
    }
    return 0;
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_unregister(REGHANDLE handle) {
    hook.unregisters++;
    hook.handle = handle;
    return 0;
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_set_information(REGHANDLE handle, EVENT_INFO_CLASS kind, PVOID data, ULONG size) {
    hook.sets++;
    hook.handle = handle;
    hook.set_class = kind;
    hook.set_data = data;
    hook.set_size = size;
    return hook.set_status;
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_append(UINT8 *to, ULONG at, ULONG capacity, const EVENT_DATA_DESCRIPTOR *data) {
    if (data->Size > capacity - at) {
        abort();
    }
    if (data->Size != 0) {
        memcpy(to + at, (const void *)(ULONG_PTR)data->Ptr, data->Size);
    }
    return at + data->Size;
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_write_transfer(REGHANDLE handle, PCEVENT_DESCRIPTOR event, LPCGUID activity, LPCGUID related,
                                                  ULONG count, PEVENT_DATA_DESCRIPTOR data) {
    hook.writes++;
    hook.handle = handle;
    hook.event = *event;
    hook.has_activity = activity != NULL;
    hook.has_related = related != NULL;
    memset(&hook.activity, 0, sizeof(GUID));
    memset(&hook.related, 0, sizeof(GUID));
    if (activity) {
        hook.activity = *activity;
    }
    if (related) {
        hook.related = *related;
    }
    hook.blocks = count;
    hook.traits_size = hook.metadata_size = hook.payload_size = 0;
    for (ULONG i = 0; i < count; i++) {
        hook.types[i] = data[i].Type;
        if (data[i].Reserved1 != 0 || data[i].Reserved2 != 0) {
            abort();
        }
        switch (data[i].Type) {
        case EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA:
            hook.traits_size = hook_append(hook.traits, hook.traits_size, sizeof hook.traits, &data[i]);
            break;
        case EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA:
            hook.metadata_size = hook_append(hook.metadata, hook.metadata_size, sizeof hook.metadata, &data[i]);
            break;
        default:
            hook.payload_size = hook_append(hook.payload, hook.payload_size, sizeof hook.payload, &data[i]);
        }
    }
    return 0;
}

static inline HOOK_MAY_BE_UNUSED ULONG hook_write_ex(REGHANDLE handle, PCEVENT_DESCRIPTOR event, ULONG64 filter, ULONG flags,
                                            LPCGUID activity, LPCGUID related, ULONG count, PEVENT_DATA_DESCRIPTOR data) {
    hook.writes_ex++;
    hook.filter = filter;
    hook.flags = flags;
    return hook_write_transfer(handle, event, activity, related, count, data);
}

static inline HOOK_MAY_BE_UNUSED void hook_print_bytes(const void *bytes, ULONG size) {
    putchar(' ');
    for (ULONG i = 0; i < size; i++) {
        printf("%02x", ((const UINT8 *)bytes)[i]);
    }
    if (size == 0) {
        putchar('-');
    }
}

/* Prints one line: descriptor, traits, metadata, payload, types of the blocks. */
static inline HOOK_MAY_BE_UNUSED void hook_print(void) {
    printf("event");
    hook_print_bytes(&hook.event, sizeof hook.event);
    hook_print_bytes(hook.traits, hook.traits_size);
    hook_print_bytes(hook.metadata, hook.metadata_size);
    hook_print_bytes(hook.payload, hook.payload_size);
    hook_print_bytes(hook.types, hook.blocks);
    putchar('\n');
}

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

#define TLG_EVENT_REGISTER hook_register
#define TLG_EVENT_UNREGISTER hook_unregister
#define TLG_EVENT_WRITE_TRANSFER hook_write_transfer
#define TLG_EVENT_WRITE_EX hook_write_ex
#ifndef HOOK_NO_SET_INFORMATION
#define TLG_EVENT_SET_INFORMATION hook_set_information
#endif

#endif
