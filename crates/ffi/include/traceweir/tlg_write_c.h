/* Passing the data of an event in C. Part of TraceLoggingProvider.h.
 *
 *   blocks on the stack:  [0] provider traits │ [1] event metadata │ [2…] data
 *
 * Each data block points to a variable of the write. Each field declares what it needs (a copy of
 * its value, a pointer, a length) in the scope of the write, and stores one or two blocks. Values
 * are evaluated once, in order.
 */
#ifndef TRACEWEIR_TLG_WRITE_C_H
#define TRACEWEIR_TLG_WRITE_C_H

#include "tlg_send.h"

#define _TLG_WIDE_TEXT "wchar_t has 4 bytes here and WCHAR is a char16_t: write u\"text\" for L\"text\", or compile with -fshort-wchar"
#define _TLG_NOT_WIDE(value)                                                                                          \
    _TLG_STATIC_ASSERT(sizeof(wchar_t) == 2 || _Generic((value), wchar_t *: 0, const wchar_t *: 0, wchar_t: 0, default: 1), \
                       _TLG_WIDE_TEXT)

#define _TLG_SCHEMA(i, ...)
#define _TLG_SCHEMA_SIZE(...) sizeof((const UINT8[]){__VA_ARGS__})

#define _TLG_FILL_tlgNONE(i, unused)
#define _TLG_FILL_tlgVAL(i, type, value) \
    type const _Tlg_v##i = (value);      \
    _Tlg_at = _Tlg_put(_Tlg_at, &_Tlg_v##i, sizeof(_Tlg_v##i));
#define _TLG_FILL_tlgADDRESS(i, type, value)       \
    const volatile void *const _Tlg_v##i = (value); \
    _Tlg_at = _Tlg_put(_Tlg_at, &_Tlg_v##i, sizeof(_Tlg_v##i));
#define _TLG_FILL_tlgCODE(i, type, value)           \
    UINT_PTR const _Tlg_v##i = (UINT_PTR)(value); \
    _Tlg_at = _Tlg_put(_Tlg_at, &_Tlg_v##i, sizeof(_Tlg_v##i));
#define _TLG_FILL_tlgCHAR16(i, type, value) \
    _TLG_NOT_WIDE(value);                   \
    _TLG_FILL_tlgVAL(i, type, value)
#define _TLG_FILL_tlgARRAY(i, type, pointer, count)                                                   \
    _TLG_STATIC_ASSERT(sizeof(*(pointer)) == sizeof(type), "the array has elements of another size"); \
    const void *const _Tlg_p##i = (pointer);                                                          \
    SIZE_T const _Tlg_c##i = (SIZE_T)(count);                                                         \
    UINT16 const _Tlg_v##i = (UINT16)_Tlg_c##i;                                                       \
    _Tlg_at = _Tlg_put(_Tlg_at, &_Tlg_v##i, sizeof(UINT16));                                          \
    _Tlg_at = _Tlg_put(_Tlg_at, _Tlg_p##i, _Tlg_bytes(_Tlg_c##i, sizeof(type)));
#define _TLG_FILL_tlgFIXED(i, type, pointer, count)                                                   \
    _TLG_STATIC_ASSERT(sizeof(*(pointer)) == sizeof(type), "the array has elements of another size"); \
    const void *const _Tlg_p##i = (pointer);                                                          \
    _Tlg_at = _Tlg_put(_Tlg_at, _Tlg_p##i, (ULONG)(sizeof(type) * (count)));
#define _TLG_FILL_tlgSTR8(i, type, value) _Tlg_at = _Tlg_put_string(_Tlg_at, (value));
#define _TLG_FILL_tlgSTR16(i, type, value) \
    _TLG_NOT_WIDE(value);                  \
    _Tlg_at = _Tlg_put_string16(_Tlg_at, (value));
#define _TLG_FILL_SIZED(i, pointer, count, unit)            \
    SIZE_T const _Tlg_c##i = (SIZE_T)(count);               \
    UINT16 const _Tlg_v##i = (UINT16)(_Tlg_c##i * (unit)); \
    _Tlg_at = _Tlg_put(_Tlg_at, &_Tlg_v##i, sizeof(UINT16)); \
    _Tlg_at = _Tlg_put(_Tlg_at, pointer, _Tlg_bytes(_Tlg_c##i, unit));
#define _TLG_FILL_tlgCOUNTED8(i, type, pointer, count) \
    const char *const _Tlg_p##i = (pointer);           \
    _TLG_FILL_SIZED(i, _Tlg_p##i, count, 1)
#define _TLG_FILL_tlgCOUNTED16(i, type, pointer, count) \
    _TLG_NOT_WIDE(pointer);                             \
    const WCHAR *const _Tlg_p##i = (pointer);           \
    _TLG_FILL_SIZED(i, _Tlg_p##i, count, 2)
#define _TLG_FILL_tlgBYTES(i, type, pointer, count) \
    const void *const _Tlg_p##i = (pointer);        \
    _TLG_FILL_SIZED(i, _Tlg_p##i, count, 1)
#define _TLG_FILL_tlgIPV6(i, type, pointer) _TLG_FILL_tlgBYTES(i, type, pointer, 16)
/* (type or 0, pointer, [type of the buffer]) */
#define _TLG_FILL_tlgBUFFER(i, type, ...)                                \
    const __typeof__(*(_TLG_FIRST(__VA_ARGS__))) *const _Tlg_b##i = _TLG_FIRST(__VA_ARGS__); \
    _TLG_FILL_SIZED(i, _Tlg_b##i->Buffer, _Tlg_b##i->Length, 1)
#define _TLG_FILL_tlgSID(i, type, pointer) \
    const void *const _Tlg_p##i = (pointer); \
    _Tlg_at = _Tlg_put(_Tlg_at, _Tlg_p##i, _Tlg_sid_size(_Tlg_p##i));
#define _TLG_FILL_tlgRAW(i, pointer, size) _Tlg_at = _Tlg_put(_Tlg_at, (pointer), _Tlg_bytes((SIZE_T)(size), 1));
#define _TLG_FILL_tlgTYPED(i, pointer, size, type) _TLG_FILL_tlgRAW(i, pointer, size) _Tlg_at[-1].Reserved = (UCHAR)(type);

/* The published TraceLoggingValue is for C++ only; with _Generic it works in C11, too. */
#define _TLG_VALUE_IN(v)                                                                                           \
    _Generic((v), _Bool: TlgInUINT8, char: TlgInUINT8, signed char: TlgInINT8, unsigned char: TlgInUINT8,          \
             short: TlgInINT16, unsigned short: TlgInUINT16, int: TlgInINT32, unsigned: TlgInUINT32, long: TlgInLONG, \
             unsigned long: TlgInULONG, long long: TlgInINT64, unsigned long long: TlgInUINT64, float: TlgInFLOAT,   \
             double: TlgInDOUBLE, GUID: TlgInGUID, FILETIME: TlgInFILETIME, SYSTEMTIME: TlgInSYSTEMTIME,             \
             SID *: TlgInSID, const SID *: TlgInSID, void *: TlgInHEXINTPTR, const void *: TlgInHEXINTPTR,           \
             char *: TlgInANSISTRING, const char *: TlgInANSISTRING, WCHAR *: TlgInUNICODESTRING,                    \
             const WCHAR *: TlgInUNICODESTRING)
#define _TLG_VALUE_OUT(v) _Generic((v), _Bool: TlgOutBOOLEAN, char: TlgOutSTRING, default: TlgOutNULL)
#define _TLG_FILL_tlgVALUE(i, value)              \
    __extension__ const __auto_type _Tlg_v##i = (value); \
    _Tlg_at = _Generic(_Tlg_v##i, SID *: _Tlg_put_sid_at, const SID *: _Tlg_put_sid_at, char *: _Tlg_put_string_at, \
                       const char *: _Tlg_put_string_at, WCHAR *: _Tlg_put_string16_at,                             \
                       const WCHAR *: _Tlg_put_string16_at, default: _Tlg_put)(_Tlg_at, &_Tlg_v##i, sizeof(_Tlg_v##i));

/* Writes an event, if a session listens. "send" is a function of tlg_send.h, and "how" its last
 * arguments. */
#define _TLG_EVENT(provider, event, level, keyword, opcode, send, how, ...)                                     \
    do {                                                                                                        \
        _TLG_CONSTANTS(_Tlg, event, level, keyword, opcode, __VA_ARGS__);                                       \
        const TraceLoggingHProvider _Tlg_provider = (provider);                                                 \
        if (__builtin_expect(TraceLoggingProviderEnabled(_Tlg_provider, _Tlg_descriptor.Level, _Tlg_descriptor.Keyword), 0)) { \
            EVENT_DATA_DESCRIPTOR _Tlg_data[2 _TLG_EACH(_TLG_BLOCKS, __VA_ARGS__)];                             \
            EVENT_DATA_DESCRIPTOR *_Tlg_at = _Tlg_data + 2;                                                     \
            _TLG_STATIC_ASSERT(sizeof(_Tlg_data) <= MAX_EVENT_DATA_DESCRIPTORS * sizeof(_Tlg_data[0]),          \
                               "an event has at most 128 blocks of data, two of them for metadata");            \
            _TLG_EACH(_TLG_FILL, __VA_ARGS__)                                                                   \
            (void)_Tlg_at;                                                                                      \
            send(_Tlg_provider, &_Tlg_descriptor, &_Tlg_metadata, sizeof(_Tlg_metadata), _Tlg_data,             \
                 2 _TLG_EACH(_TLG_BLOCKS, __VA_ARGS__), _TLG_UNPACK how);                                       \
        }                                                                                                       \
    } while (0)

#endif /* TRACEWEIR_TLG_WRITE_C_H */
