/* The structure of a provider, and its registration. Part of TraceLoggingProvider.h.
 *
 *   handle ──> struct _tlgProvider_t ──> traits (read-only): u16 size │ name, NUL │ group?
 *              LevelPlus1  0: no session listens; 256: a session listens to all levels (level 0)
 *              KeywordAny, KeywordAll
 *              RegHandle   0: not registered
 *
 * The enable callback stores LevelPlus1, KeywordAny and KeywordAll, so that a write that no session
 * records costs one load and a branch. Other threads read these members without a lock: each is
 * atomic, and LevelPlus1 is stored last.
 */
#ifndef TRACEWEIR_TLG_PROVIDER_H
#define TRACEWEIR_TLG_PROVIDER_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <assert.h>
#include <dlfcn.h>
#include <string.h>

#include "../evntprov.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "metadata is little-endian: there is no form of these macros for big-endian machines"
#endif

/* In code for the kernel, statuses are NTSTATUS. */
#if defined(_KERNEL_MODE) || defined(_ETW_KM_)
#define _TLG_KERNEL_MODE 1
typedef NTSTATUS TLG_STATUS;
#else
#define _TLG_KERNEL_MODE 0
typedef HRESULT TLG_STATUS;
#endif

/* The functions that the macros call; a source may define its own before it includes the header. */
#ifndef TLG_EVENT_REGISTER
#define TLG_EVENT_REGISTER EventRegister
#endif
#ifndef TLG_EVENT_UNREGISTER
#define TLG_EVENT_UNREGISTER EventUnregister
#endif
#if defined(TLG_EVENT_WRITE_TRANSFER) || defined(TLG_EVENT_WRITE_EX)
/* These functions may be static. */
#define _TLG_SEND static inline __attribute__((always_inline, unused))
#else
#define _TLG_SEND _TLG_INLINE
#endif
/* Whether an event without activity ids may be written with TraceweirWriteDescribed: not if the
 * source defines its own function. */
#ifdef TLG_EVENT_WRITE_TRANSFER
#define _TLG_STRAIGHT 0
#else
#define _TLG_STRAIGHT 1
#define TLG_EVENT_WRITE_TRANSFER EventWriteTransfer
#endif
#ifndef TLG_EVENT_WRITE_EX
#define TLG_EVENT_WRITE_EX EventWriteEx
#endif

/* How EventSetInformation is called: 0 not at all, 1 directly, 2 after a lookup at run time. */
#ifndef TLG_HAVE_EVENT_SET_INFORMATION
#if defined(TLG_EVENT_SET_INFORMATION)
#define TLG_HAVE_EVENT_SET_INFORMATION 1
#elif _TLG_KERNEL_MODE && NTDDI_VERSION >= 0x0A000000
#define TLG_HAVE_EVENT_SET_INFORMATION 1
#elif !_TLG_KERNEL_MODE && WINVER >= 0x0602
#define TLG_HAVE_EVENT_SET_INFORMATION 1
#else
#define TLG_HAVE_EVENT_SET_INFORMATION 2
#endif
#endif
#ifndef TLG_EVENT_SET_INFORMATION
#define TLG_EVENT_SET_INFORMATION EventSetInformation
#endif

#ifdef __cplusplus
#define _TLG_CONST_DATA static constexpr
#define _TLG_NUMBER(name, value) constexpr unsigned name __attribute__((unused)) = static_cast<unsigned>(value)
#define _TLG_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define _TLG_CONST_DATA static const
#define _TLG_NUMBER(name, value) enum { name = (int)(value) }
#define _TLG_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
/* These functions are not static in C, because events may be in inline functions that are not
 * static, and such functions must not use static ones. No object file ever has a copy of them. */
#ifdef __cplusplus
#define _TLG_INLINE static inline __attribute__((always_inline, unused))
#else
#define _TLG_INLINE extern inline __attribute__((gnu_inline, always_inline, unused))
#endif
#define _TLG_COLD static __attribute__((cold, noinline, unused))
#define _TLG_PACKED __attribute__((packed))
/* Compilers may align large constants, but the blobs must follow each other without gaps. In C they
 * have a section of their own, for tools that read programs. In C++ the constants of templates and
 * inline functions are in groups of their own, which gcc cannot put into the same section as
 * others. */
#ifdef __cplusplus
#define _TLG_BLOB __attribute__((aligned(1), unused))
#else
#define _TLG_BLOB __attribute__((aligned(1), unused, section(".etw0")))
#endif
#define _TLG_IS_NAME(literal) (sizeof(literal) == __builtin_strlen(literal) + 1)

struct _tlgProvider_t {
    ULONG LevelPlus1;
    UINT16 TraitsSize;
    /* Whether the registration uses the types of blocks: it set EventProviderUseDescriptorType or
     * the traits. */
    UINT16 IsTyped;
    ULONGLONG KeywordAny;
    ULONGLONG KeywordAll;
    REGHANDLE RegHandle;
    const void *Traits;
    PENABLECALLBACK Callback;
    PVOID CallbackContext;
    GUID Id;
};

typedef const struct _tlgProvider_t *TraceLoggingHProvider;

/* A header in the section for tools. Tools find provider traits after each of these headers, and
 * metadata of events everywhere else. */
struct _tlgModule_t {
    char Signature[4];
    UINT16 Size;
    UINT8 Version;
    UINT8 Flags;
    UINT64 Magic;
};
#define _TLG_MODULE {{'E', 'T', 'W', '0'}, sizeof(struct _tlgModule_t), 0, sizeof(void *) == 8, 0xBB8A052B88040E86u}
#define _TLG_TRAITS_SIZE(storage) (sizeof(_tlgTraits_##storage) - sizeof(struct _tlgModule_t))

/* Declares a provider that another source file of this module defines. */
#define TRACELOGGING_DECLARE_PROVIDER(handle) \
    extern const TraceLoggingHProvider handle __attribute__((visibility("hidden")))

/* (handle, "Name", (11 numbers of its GUID), [option]): defines a provider, not yet registered. */
#define TRACELOGGING_DEFINE_PROVIDER(handle, name, ...)                        \
    TRACELOGGING_DEFINE_PROVIDER_STORAGE(_tlgStorage_##handle, name, __VA_ARGS__); \
    TRACELOGGING_DECLARE_PROVIDER(handle);                                     \
    const TraceLoggingHProvider handle = &_tlgStorage_##handle

/* Like TRACELOGGING_DEFINE_PROVIDER, but without a handle. The source defines the handle:
 * "const TraceLoggingHProvider h = &storage;". */
#define TRACELOGGING_DEFINE_PROVIDER_STORAGE(storage, name, ...) \
    _TLG_CAT(_TLG_PROVIDER_, _TLG_COUNT(__VA_ARGS__))(storage, name, __VA_ARGS__)

/* Option: the group that the provider belongs to. */
#define TraceLoggingOptionGroup(...) (_tlgOPTION_GROUP, __VA_ARGS__)

#define _TLG_GUID(a, b, c, d, e, f, g, h, i, j, k) {a, b, c, {d, e, f, g, h, i, j, k}}

#define _TLG_PROVIDER_1(storage, name, guid)                                                  \
    _TLG_STATIC_ASSERT(_TLG_IS_NAME(name), "the name of a provider has no NUL inside");       \
    static const struct {                                                                     \
        struct _tlgModule_t module;                                                           \
        UINT16 size;                                                                          \
        char text[sizeof(name)];                                                              \
    } _TLG_PACKED _tlgTraits_##storage _TLG_BLOB = {_TLG_MODULE, _TLG_TRAITS_SIZE(storage), name}; \
    _TLG_STORAGE(storage, guid)

#define _TLG_PROVIDER_2(storage, name, guid, option) _TLG_PROVIDER_2_(storage, name, guid, _TLG_UNPACK option)
#define _TLG_PROVIDER_2_(...) _TLG_PROVIDER_2__(__VA_ARGS__)
#define _TLG_PROVIDER_2__(storage, name, guid, kind, ...) _TLG_CAT(_TLG_PROVIDER, kind)(storage, name, guid, __VA_ARGS__)

#define _TLG_PROVIDER_3(storage, name, guid, first, second) \
    _TLG_STATIC_ASSERT(0, "a provider has one option at most: the group that it belongs to")

#define _TLG_PROVIDER_tlgOPTION_GROUP(storage, name, guid, ...)                               \
    _TLG_STATIC_ASSERT(_TLG_IS_NAME(name), "the name of a provider has no NUL inside");       \
    static const struct {                                                                     \
        struct _tlgModule_t module;                                                           \
        UINT16 size;                                                                          \
        char text[sizeof(name)];                                                              \
        UINT16 group_size;                                                                    \
        UINT8 group_type;                                                                     \
        GUID group;                                                                           \
    } _TLG_PACKED _tlgTraits_##storage _TLG_BLOB = {                                       \
        _TLG_MODULE, _TLG_TRAITS_SIZE(storage), name, 3 + sizeof(GUID), EtwProviderTraitTypeGroup, _TLG_GUID(__VA_ARGS__)}; \
    _TLG_STORAGE(storage, guid)

#define _TLG_STORAGE(storage, guid)                                                                  \
    _TLG_STATIC_ASSERT(sizeof(_tlgTraits_##storage) < 0xFFFF, "the name of the provider is too long"); \
    static struct _tlgProvider_t storage __attribute__((unused)) = {                                 \
        0, _TLG_TRAITS_SIZE(storage), 0, 0, 0, 0, (const char *)&_tlgTraits_##storage + sizeof(struct _tlgModule_t), NULL, NULL, _TLG_GUID guid}

/* Converts a Win32 status to the type that the functions of this header return. */
static inline __attribute__((unused)) TLG_STATUS _Tlg_status(ULONG code) {
#if _TLG_KERNEL_MODE
    switch (code) {
    case ERROR_SUCCESS:
        return STATUS_SUCCESS;
    case ERROR_INVALID_PARAMETER:
        return STATUS_INVALID_PARAMETER;
    case ERROR_INVALID_HANDLE:
        return STATUS_INVALID_HANDLE;
    case ERROR_NOT_SUPPORTED:
        return STATUS_NOT_SUPPORTED;
    case ERROR_ACCESS_DENIED:
        return STATUS_ACCESS_DENIED;
    case ERROR_NOT_ENOUGH_MEMORY:
        return STATUS_NO_MEMORY;
    case ERROR_NO_SYSTEM_RESOURCES:
        return STATUS_INSUFFICIENT_RESOURCES;
    default:
        /* The documented form of NTSTATUS for a Win32 code that has no name of its own. */
        return (NTSTATUS)(0xC0070000u | (code & 0xFFFFu));
    }
#else
    return HRESULT_FROM_WIN32(code);
#endif
}

#if TLG_HAVE_EVENT_SET_INFORMATION == 2
/* dlsym does not find a function of a static library; this weak reference does. */
static ULONG EVNTAPI _Tlg_linked_set_information(REGHANDLE, EVENT_INFO_CLASS, PVOID, ULONG)
    __attribute__((weakref("EventSetInformation"), unused));
#endif

/* Sets an option of a registered provider: a thin wrapper of EventSetInformation. */
static inline __attribute__((unused)) TLG_STATUS TraceLoggingSetInformation(TraceLoggingHProvider provider, EVENT_INFO_CLASS kind,
                                                                            PVOID data, ULONG size) {
#if TLG_HAVE_EVENT_SET_INFORMATION == 0
    (void)provider;
    (void)kind;
    (void)data;
    (void)size;
#if _TLG_KERNEL_MODE
    return STATUS_ENTRYPOINT_NOT_FOUND;
#else
    return HRESULT_FROM_WIN32(ERROR_NOT_SUPPORTED);
#endif
#elif TLG_HAVE_EVENT_SET_INFORMATION == 2
    ULONG(EVNTAPI * function)(REGHANDLE, EVENT_INFO_CLASS, PVOID, ULONG) = NULL;
    /* NULL is RTLD_DEFAULT. ISO C has no conversion from data pointers to function pointers; POSIX
     * guarantees that the bits are the same. */
    void *symbol = dlsym(NULL, "EventSetInformation");
    memcpy(&function, &symbol, sizeof function);
    function = function ? function : _Tlg_linked_set_information;
    return _Tlg_status(function ? function(provider->RegHandle, kind, data, size) : (ULONG)ERROR_NOT_SUPPORTED);
#else
    return _Tlg_status(TLG_EVENT_SET_INFORMATION(provider->RegHandle, kind, data, size));
#endif
}

/* Stores the values that writes check, then calls the provider's own callback. */
_TLG_COLD VOID NTAPI _Tlg_enabled_changed(LPCGUID source, ULONG enabled, UCHAR level, ULONGLONG any, ULONGLONG all,
                                          PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    struct _tlgProvider_t *provider = (struct _tlgProvider_t *)context;
    if (!__atomic_exchange_n(&provider->IsTyped, 1, __ATOMIC_RELAXED)) {
        /* During registration: the callback, and any thread that it lets write, may write before
         * the traits are set. */
        UINT8 yes = 1;
        (void)TraceLoggingSetInformation(provider, EventProviderUseDescriptorType, &yes, sizeof yes);
    }
    if (enabled == EVENT_CONTROL_CODE_DISABLE_PROVIDER) {
        __atomic_store_n(&provider->LevelPlus1, 0, __ATOMIC_RELAXED);
    } else if (enabled == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        /* A mask of 0 stands for every keyword. */
        __atomic_store_n(&provider->KeywordAny, any ? any : ~(ULONGLONG)0, __ATOMIC_RELAXED);
        __atomic_store_n(&provider->KeywordAll, all, __ATOMIC_RELAXED);
        __atomic_store_n(&provider->LevelPlus1, level ? (ULONG)level + 1 : 256, __ATOMIC_RELEASE);
    }
    if (provider->Callback) {
        provider->Callback(source, enabled, level, any, all, filter, provider->CallbackContext);
    }
}

/* Registers, with a callback that is called after the macros have stored the change. */
_TLG_COLD TLG_STATUS TraceLoggingRegisterEx(TraceLoggingHProvider handle, PENABLECALLBACK callback, PVOID context) {
    struct _tlgProvider_t *provider = (struct _tlgProvider_t *)handle;
    ULONG status;
    assert(provider->RegHandle == 0 && "the provider is registered already");
    provider->Callback = callback;
    provider->CallbackContext = context;
    provider->IsTyped = 0;
    status = TLG_EVENT_REGISTER(&provider->Id, _Tlg_enabled_changed, provider, &provider->RegHandle);
    if (status == ERROR_SUCCESS) {
        /* A runtime that cannot take traits still takes events: they carry the traits too. */
        (void)TraceLoggingSetInformation(handle, EventProviderSetTraits, (PVOID)(ULONG_PTR)provider->Traits,
                                         provider->TraitsSize);
        __atomic_store_n(&provider->IsTyped, 1, __ATOMIC_RELAXED);
    }
    return _Tlg_status(status);
}

static inline __attribute__((unused)) TLG_STATUS TraceLoggingRegister(TraceLoggingHProvider handle) {
    return TraceLoggingRegisterEx(handle, NULL, NULL);
}

/* Unregisters a provider; does nothing if it is not registered. It may be registered again. */
_TLG_COLD VOID TraceLoggingUnregister(TraceLoggingHProvider handle) {
    struct _tlgProvider_t *provider = (struct _tlgProvider_t *)handle;
    REGHANDLE registration = provider->RegHandle;
    if (registration == 0) {
        return;
    }
    provider->RegHandle = 0;
    (void)TLG_EVENT_UNREGISTER(registration);
    __atomic_store_n(&provider->LevelPlus1, 0, __ATOMIC_RELAXED);
    provider->Callback = NULL;
    provider->CallbackContext = NULL;
}

/* Returns whether any session listens to events of this level and these keywords. 0 stands for any
 * level, or for any keyword. */
_TLG_INLINE BOOLEAN TraceLoggingProviderEnabled(TraceLoggingHProvider provider, UCHAR level, ULONGLONG keyword) {
    if (__builtin_expect(level >= __atomic_load_n(&provider->LevelPlus1, __ATOMIC_RELAXED), 1)) {
        return FALSE;
    }
    if (keyword == 0) {
        return TRUE;
    }
    ULONGLONG all = __atomic_load_n(&provider->KeywordAll, __ATOMIC_RELAXED);
    return (keyword & __atomic_load_n(&provider->KeywordAny, __ATOMIC_RELAXED)) != 0 && (keyword & all) == all;
}

_TLG_INLINE GUID TraceLoggingProviderId(TraceLoggingHProvider provider) { return provider->Id; }

#endif /* TRACEWEIR_TLG_PROVIDER_H */
