/* Blocks of data, and the call that writes them; for C and C++. Part of TraceLoggingProvider.h. */
#ifndef TRACEWEIR_TLG_SEND_H
#define TRACEWEIR_TLG_SEND_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "tlg_provider.h"

/* Returns the size of "count" elements of "size" bytes. A size that 16 bits cannot express becomes
 * 0x10000, so that the event is too large and is refused, not truncated. */
_TLG_INLINE ULONG _Tlg_bytes(SIZE_T count, ULONG size) {
    return count > 0xFFFF / size ? 0x10000u : (ULONG)count * size;
}

/* Stores one block, and returns the address of the next. */
_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put(EVENT_DATA_DESCRIPTOR *at, const void *data, ULONG size) {
    at->Ptr = (ULONGLONG)(ULONG_PTR)data;
    at->Size = size;
    at->Reserved = EVENT_DATA_DESCRIPTOR_TYPE_NONE;
    return at + 1;
}

_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put_string(EVENT_DATA_DESCRIPTOR *at, const char *text) {
    text = text ? text : "";
    return _Tlg_put(at, text, _Tlg_bytes(strlen(text) + 1, 1));
}

_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put_string16(EVENT_DATA_DESCRIPTOR *at, const WCHAR *text) {
    SIZE_T units = 0;
    text = text ? text : TRACEWEIR_WIDE_TEXT("");
    while (text[units] != 0) {
        units++;
    }
    return _Tlg_put(at, text, _Tlg_bytes(units + 1, sizeof(WCHAR)));
}

_TLG_INLINE ULONG _Tlg_sid_size(const void *sid) { return 8u + 4u * ((const UINT8 *)sid)[1]; }

/* These three functions get the address of a variable that holds the pointer to the data, and
 * ignore the size. Their parameters are those of _Tlg_put, so that _Generic can select one of
 * them. */
_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put_string_at(EVENT_DATA_DESCRIPTOR *at, const void *text, ULONG size) {
    (void)size;
    return _Tlg_put_string(at, *(const char *const *)text);
}

_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put_string16_at(EVENT_DATA_DESCRIPTOR *at, const void *text, ULONG size) {
    (void)size;
    return _Tlg_put_string16(at, *(const WCHAR *const *)text);
}

_TLG_INLINE EVENT_DATA_DESCRIPTOR *_Tlg_put_sid_at(EVENT_DATA_DESCRIPTOR *at, const void *sid, ULONG size) {
    (void)size;
    return _Tlg_put(at, *(const SID *const *)sid, _Tlg_sid_size(*(const SID *const *)sid));
}

#ifdef __cplusplus
extern "C" {
#endif
/* Writes an event without activity ids. "data" lacks the first two blocks, for traits and metadata.
 * Returns 0 if the event must be written through the published function. */
ULONG EVNTAPI TraceweirWriteDescribed(REGHANDLE registration, PCEVENT_DESCRIPTOR event, const void *metadata, ULONG size,
                                      ULONG count, const EVENT_DATA_DESCRIPTOR *data);
#ifdef __cplusplus
}
#endif

/* Stores the first two blocks of every event: provider traits and event metadata. */
_TLG_INLINE void _Tlg_put_metadata(TraceLoggingHProvider provider, const void *metadata, ULONG size,
                                   EVENT_DATA_DESCRIPTOR *data) {
    data[0].Ptr = (ULONGLONG)(ULONG_PTR)provider->Traits;
    data[0].Size = provider->TraitsSize;
    data[0].Reserved = EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA;
    data[1].Ptr = (ULONGLONG)(ULONG_PTR)metadata;
    data[1].Size = size;
    data[1].Reserved = EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA;
}

_TLG_SEND void _Tlg_transfer(TraceLoggingHProvider provider, const EVENT_DESCRIPTOR *event, const void *metadata,
                               ULONG size, EVENT_DATA_DESCRIPTOR *data, ULONG count, LPCGUID activity, LPCGUID related) {
    if (_TLG_STRAIGHT && !activity && !related &&
        __builtin_expect(TraceweirWriteDescribed(provider->RegHandle, event, metadata, size, count - 2, data + 2) != 0, 1)) {
        return;
    }
    _Tlg_put_metadata(provider, metadata, size, data);
    (void)TLG_EVENT_WRITE_TRANSFER(provider->RegHandle, event, activity, related, count, data);
}

_TLG_SEND void _Tlg_write_ex(TraceLoggingHProvider provider, const EVENT_DESCRIPTOR *event, const void *metadata,
                               ULONG size, EVENT_DATA_DESCRIPTOR *data, ULONG count, ULONG64 filter, ULONG flags,
                               LPCGUID activity, LPCGUID related) {
    _Tlg_put_metadata(provider, metadata, size, data);
    (void)TLG_EVENT_WRITE_EX(provider->RegHandle, event, filter, flags, activity, related, count, data);
}

#endif /* TRACEWEIR_TLG_SEND_H */
