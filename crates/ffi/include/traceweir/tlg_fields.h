/* The macros for fields. Part of TraceLoggingProvider.h.
 *
 *   TraceLoggingInt32(value, ["name", ["description", [tags]]])   default name: source of value
 *   TraceLoggingInt32Array(pointer, count, …)                     the count is known at run time
 *   TraceLoggingInt32FixedArray(pointer, count, …)                the count is a constant
 *
 * Each macro makes a tuple for tlg_metadata.h: name, tags, type, presentation, count, and how to
 * pass the data. Descriptions are for readers of the source.
 */
#ifndef TRACEWEIR_TLG_FIELDS_H
#define TRACEWEIR_TLG_FIELDS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "tlg_metadata.h"

/* One value, then optional arguments. "text" is the source of all arguments; it is the field's name
 * only if the value is the only argument. */
#define _TLG_F1(text, in, out, how, type, ...) \
    _TLG_CAT(_TLG_F1_, _TLG_COUNT(__VA_ARGS__))(text, in, out, how, type, __VA_ARGS__)
#define _TLG_F1_1(text, in, out, how, type, v) (_tlgFIELD, text, 0, in, out, 0, how, type, v)
#define _TLG_F1_2(text, in, out, how, type, v, name) (_tlgFIELD, name, 0, in, out, 0, how, type, v)
#define _TLG_F1_3(text, in, out, how, type, v, name, description) (_tlgFIELD, name, 0, in, out, 0, how, type, v)
#define _TLG_F1_4(text, in, out, how, type, v, name, description, tags) (_tlgFIELD, name, tags, in, out, 0, how, type, v)

/* A pointer and a count. */
#define _TLG_F2(text, in, out, how, type, p, ...) \
    _TLG_CAT(_TLG_F2_, _TLG_COUNT(__VA_ARGS__))(text, in, out, how, type, p, __VA_ARGS__)
#define _TLG_F2_1(text, in, out, how, type, p, n) (_tlgFIELD, text, 0, in, out, 0, how, type, p, n)
#define _TLG_F2_2(text, in, out, how, type, p, n, name) (_tlgFIELD, name, 0, in, out, 0, how, type, p, n)
#define _TLG_F2_3(text, in, out, how, type, p, n, name, description) (_tlgFIELD, name, 0, in, out, 0, how, type, p, n)
#define _TLG_F2_4(text, in, out, how, type, p, n, name, description, tags) \
    (_tlgFIELD, name, tags, in, out, 0, how, type, p, n)

/* A pointer and a count that is part of the metadata. */
#define _TLG_FN(text, in, out, type, p, ...) _TLG_CAT(_TLG_FN_, _TLG_COUNT(__VA_ARGS__))(text, in, out, type, p, __VA_ARGS__)
#define _TLG_FN_1(text, in, out, type, p, n) (_tlgFIELD, text, 0, in, out, n, _tlgFIXED, type, p, n)
#define _TLG_FN_2(text, in, out, type, p, n, name) (_tlgFIELD, name, 0, in, out, n, _tlgFIXED, type, p, n)
#define _TLG_FN_3(text, in, out, type, p, n, name, description) (_tlgFIELD, name, 0, in, out, n, _tlgFIXED, type, p, n)
#define _TLG_FN_4(text, in, out, type, p, n, name, description, tags) (_tlgFIELD, name, tags, in, out, n, _tlgFIXED, type, p, n)

/* A pointer, a count, and: the presentation (F3), the type (P1), or the type and the presentation
 * (P2). */
#define _TLG_F3(text, how, p, ...) _TLG_CAT(_TLG_F3_, _TLG_COUNT(__VA_ARGS__))(text, how, p, __VA_ARGS__)
#define _TLG_F3_2(text, how, p, n, out) (_tlgFIELD, text, 0, TlgInBINARY, out, 0, how, 0, p, n)
#define _TLG_F3_3(text, how, p, n, out, name) (_tlgFIELD, name, 0, TlgInBINARY, out, 0, how, 0, p, n)
#define _TLG_F3_4(text, how, p, n, out, name, description) (_tlgFIELD, name, 0, TlgInBINARY, out, 0, how, 0, p, n)
#define _TLG_F3_5(text, how, p, n, out, name, description, tags) (_tlgFIELD, name, tags, TlgInBINARY, out, 0, how, 0, p, n)
#define _TLG_P1(text, p, ...) _TLG_CAT(_TLG_P1_, _TLG_COUNT(__VA_ARGS__))(text, p, __VA_ARGS__)
#define _TLG_P1_2(text, p, n, in) (_tlgFIELD, text, 0, _TLG_IN(in), 0, 0, _tlgRAW, p, n)
#define _TLG_P1_3(text, p, n, in, name) (_tlgFIELD, name, 0, _TLG_IN(in), 0, 0, _tlgRAW, p, n)
#define _TLG_P1_4(text, p, n, in, name, description) (_tlgFIELD, name, 0, _TLG_IN(in), 0, 0, _tlgRAW, p, n)
#define _TLG_P1_5(text, p, n, in, name, description, tags) (_tlgFIELD, name, tags, _TLG_IN(in), 0, 0, _tlgRAW, p, n)
#define _TLG_P2(text, p, ...) _TLG_CAT(_TLG_P2_, _TLG_COUNT(__VA_ARGS__))(text, p, __VA_ARGS__)
#define _TLG_P2_3(text, p, n, in, out) (_tlgFIELD, text, 0, _TLG_IN(in), out, 0, _tlgRAW, p, n)
#define _TLG_P2_4(text, p, n, in, out, name) (_tlgFIELD, name, 0, _TLG_IN(in), out, 0, _tlgRAW, p, n)
#define _TLG_P2_5(text, p, n, in, out, name, description) (_tlgFIELD, name, 0, _TLG_IN(in), out, 0, _tlgRAW, p, n)
#define _TLG_P2_6(text, p, n, in, out, name, description, tags) (_tlgFIELD, name, tags, _TLG_IN(in), out, 0, _tlgRAW, p, n)

/* Metadata without data. */
#define _TLG_M(in, out, ...) _TLG_CAT(_TLG_M_, _TLG_COUNT(__VA_ARGS__))(in, out, __VA_ARGS__)
#define _TLG_M_1(in, out, name) (_tlgFIELD, name, 0, in, out, 0, _tlgNONE, 0)
#define _TLG_M_2(in, out, name, description) (_tlgFIELD, name, 0, in, out, 0, _tlgNONE, 0)
#define _TLG_M_3(in, out, name, description, tags) (_tlgFIELD, name, tags, in, out, 0, _tlgNONE, 0)

/* The type of a packed field, marked so that it is checked. */
#define _TLG_IN(in) ((in) | _TLG_IN_PACKED)

/* Values of fixed size. */
#define TraceLoggingInt8(...) _TLG_F1(#__VA_ARGS__, TlgInINT8, TlgOutNULL, _tlgVAL, INT8, __VA_ARGS__)
#define TraceLoggingUInt8(...) _TLG_F1(#__VA_ARGS__, TlgInUINT8, TlgOutNULL, _tlgVAL, UINT8, __VA_ARGS__)
#define TraceLoggingInt16(...) _TLG_F1(#__VA_ARGS__, TlgInINT16, TlgOutNULL, _tlgVAL, INT16, __VA_ARGS__)
#define TraceLoggingUInt16(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutNULL, _tlgVAL, UINT16, __VA_ARGS__)
#define TraceLoggingInt32(...) _TLG_F1(#__VA_ARGS__, TlgInINT32, TlgOutNULL, _tlgVAL, INT32, __VA_ARGS__)
#define TraceLoggingUInt32(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutNULL, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingInt64(...) _TLG_F1(#__VA_ARGS__, TlgInINT64, TlgOutNULL, _tlgVAL, INT64, __VA_ARGS__)
#define TraceLoggingUInt64(...) _TLG_F1(#__VA_ARGS__, TlgInUINT64, TlgOutNULL, _tlgVAL, UINT64, __VA_ARGS__)
#define TraceLoggingIntPtr(...) _TLG_F1(#__VA_ARGS__, TlgInINTPTR, TlgOutNULL, _tlgVAL, INT_PTR, __VA_ARGS__)
#define TraceLoggingUIntPtr(...) _TLG_F1(#__VA_ARGS__, TlgInUINTPTR, TlgOutNULL, _tlgVAL, UINT_PTR, __VA_ARGS__)
#define TraceLoggingLong(...) _TLG_F1(#__VA_ARGS__, TlgInLONG, TlgOutNULL, _tlgVAL, long, __VA_ARGS__)
#define TraceLoggingULong(...) _TLG_F1(#__VA_ARGS__, TlgInULONG, TlgOutNULL, _tlgVAL, unsigned long, __VA_ARGS__)
#define TraceLoggingHexInt8(...) _TLG_F1(#__VA_ARGS__, TlgInUINT8, TlgOutHEX, _tlgVAL, INT8, __VA_ARGS__)
#define TraceLoggingHexUInt8(...) _TLG_F1(#__VA_ARGS__, TlgInUINT8, TlgOutHEX, _tlgVAL, UINT8, __VA_ARGS__)
#define TraceLoggingHexInt16(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutHEX, _tlgVAL, INT16, __VA_ARGS__)
#define TraceLoggingHexUInt16(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutHEX, _tlgVAL, UINT16, __VA_ARGS__)
#define TraceLoggingHexInt32(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINT32, TlgOutNULL, _tlgVAL, INT32, __VA_ARGS__)
#define TraceLoggingHexUInt32(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINT32, TlgOutNULL, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingHexInt64(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINT64, TlgOutNULL, _tlgVAL, INT64, __VA_ARGS__)
#define TraceLoggingHexUInt64(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINT64, TlgOutNULL, _tlgVAL, UINT64, __VA_ARGS__)
#define TraceLoggingHexIntPtr(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINTPTR, TlgOutNULL, _tlgVAL, INT_PTR, __VA_ARGS__)
#define TraceLoggingHexUIntPtr(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINTPTR, TlgOutNULL, _tlgVAL, UINT_PTR, __VA_ARGS__)
#define TraceLoggingHexLong(...) _TLG_F1(#__VA_ARGS__, TlgInHEXLONG, TlgOutNULL, _tlgVAL, long, __VA_ARGS__)
#define TraceLoggingHexULong(...) _TLG_F1(#__VA_ARGS__, TlgInHEXLONG, TlgOutNULL, _tlgVAL, unsigned long, __VA_ARGS__)
#define TraceLoggingPointer(...) _TLG_F1(#__VA_ARGS__, TlgInHEXINTPTR, TlgOutNULL, _tlgADDRESS, const void *, __VA_ARGS__)
#define TraceLoggingCodePointer(...) \
    _TLG_F1(#__VA_ARGS__, TlgInHEXINTPTR, TlgOutCODE_POINTER, _tlgCODE, const void *, __VA_ARGS__)
#define TraceLoggingFloat32(...) _TLG_F1(#__VA_ARGS__, TlgInFLOAT, TlgOutNULL, _tlgVAL, float, __VA_ARGS__)
#define TraceLoggingFloat64(...) _TLG_F1(#__VA_ARGS__, TlgInDOUBLE, TlgOutNULL, _tlgVAL, double, __VA_ARGS__)
#define TraceLoggingBoolean(...) _TLG_F1(#__VA_ARGS__, TlgInUINT8, TlgOutBOOLEAN, _tlgVAL, BOOLEAN, __VA_ARGS__)
#define TraceLoggingBool(...) _TLG_F1(#__VA_ARGS__, TlgInBOOL32, TlgOutNULL, _tlgVAL, BOOL, __VA_ARGS__)
#define TraceLoggingChar(...) _TLG_F1(#__VA_ARGS__, TlgInUINT8, TlgOutSTRING, _tlgVAL, char, __VA_ARGS__)
#define TraceLoggingChar16(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutSTRING, _tlgCHAR16, WCHAR, __VA_ARGS__)
#define TraceLoggingWChar(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutSTRING, _tlgCHAR16, WCHAR, __VA_ARGS__)
#define TraceLoggingPid(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutPID, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingTid(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutTID, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingPort(...) _TLG_F1(#__VA_ARGS__, TlgInUINT16, TlgOutPORT, _tlgVAL, UINT16, __VA_ARGS__)
#define TraceLoggingIPv4Address(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutIPV4, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingWinError(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutWIN32ERROR, _tlgVAL, UINT32, __VA_ARGS__)
#define TraceLoggingNTStatus(...) _TLG_F1(#__VA_ARGS__, TlgInUINT32, TlgOutNTSTATUS, _tlgVAL, INT32, __VA_ARGS__)
#define TraceLoggingHResult(...) _TLG_F1(#__VA_ARGS__, TlgInINT32, TlgOutHRESULT, _tlgVAL, INT32, __VA_ARGS__)
#define TraceLoggingFileTime(...) _TLG_F1(#__VA_ARGS__, TlgInFILETIME, TlgOutNULL, _tlgVAL, FILETIME, __VA_ARGS__)
#define TraceLoggingFileTimeUtc(...) \
    _TLG_F1(#__VA_ARGS__, TlgInFILETIME, TlgOutDATETIME_UTC, _tlgVAL, FILETIME, __VA_ARGS__)
#define TraceLoggingSystemTime(...) _TLG_F1(#__VA_ARGS__, TlgInSYSTEMTIME, TlgOutNULL, _tlgVAL, SYSTEMTIME, __VA_ARGS__)
#define TraceLoggingSystemTimeUtc(...) \
    _TLG_F1(#__VA_ARGS__, TlgInSYSTEMTIME, TlgOutDATETIME_UTC, _tlgVAL, SYSTEMTIME, __VA_ARGS__)
#define TraceLoggingGuid(...) _TLG_F1(#__VA_ARGS__, TlgInGUID, TlgOutNULL, _tlgVAL, GUID, __VA_ARGS__)

/* Arrays whose count is in the data. */
#define TraceLoggingInt8Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInINT8 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT8, pointer, __VA_ARGS__)
#define TraceLoggingUInt8Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT8 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT8, pointer, __VA_ARGS__)
#define TraceLoggingInt16Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInINT16 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT16, pointer, __VA_ARGS__)
#define TraceLoggingUInt16Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingInt32Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInINT32 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT32, pointer, __VA_ARGS__)
#define TraceLoggingUInt32Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingInt64Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInINT64 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT64, pointer, __VA_ARGS__)
#define TraceLoggingUInt64Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT64 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT64, pointer, __VA_ARGS__)
#define TraceLoggingIntPtrArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInINTPTR | TlgInVcount, TlgOutNULL, _tlgARRAY, INT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingUIntPtrArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINTPTR | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingLongArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInLONG | TlgInVcount, TlgOutNULL, _tlgARRAY, long, pointer, __VA_ARGS__)
#define TraceLoggingULongArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInULONG | TlgInVcount, TlgOutNULL, _tlgARRAY, unsigned long, pointer, __VA_ARGS__)
#define TraceLoggingHexInt8Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT8 | TlgInVcount, TlgOutHEX, _tlgARRAY, INT8, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt8Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT8 | TlgInVcount, TlgOutHEX, _tlgARRAY, UINT8, pointer, __VA_ARGS__)
#define TraceLoggingHexInt16Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutHEX, _tlgARRAY, INT16, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt16Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutHEX, _tlgARRAY, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingHexInt32Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINT32 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT32, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt32Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINT32 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingHexInt64Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINT64 | TlgInVcount, TlgOutNULL, _tlgARRAY, INT64, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt64Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINT64 | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT64, pointer, __VA_ARGS__)
#define TraceLoggingHexIntPtrArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINTPTR | TlgInVcount, TlgOutNULL, _tlgARRAY, INT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingHexUIntPtrArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINTPTR | TlgInVcount, TlgOutNULL, _tlgARRAY, UINT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingHexLongArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXLONG | TlgInVcount, TlgOutNULL, _tlgARRAY, long, pointer, __VA_ARGS__)
#define TraceLoggingHexULongArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXLONG | TlgInVcount, TlgOutNULL, _tlgARRAY, unsigned long, pointer, __VA_ARGS__)
#define TraceLoggingPointerArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINTPTR | TlgInVcount, TlgOutNULL, _tlgARRAY, const void *, pointer, __VA_ARGS__)
#define TraceLoggingCodePointerArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInHEXINTPTR | TlgInVcount, TlgOutCODE_POINTER, _tlgARRAY, const void *, pointer, __VA_ARGS__)
#define TraceLoggingFloat32Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInFLOAT | TlgInVcount, TlgOutNULL, _tlgARRAY, float, pointer, __VA_ARGS__)
#define TraceLoggingFloat64Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInDOUBLE | TlgInVcount, TlgOutNULL, _tlgARRAY, double, pointer, __VA_ARGS__)
#define TraceLoggingBooleanArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT8 | TlgInVcount, TlgOutBOOLEAN, _tlgARRAY, BOOLEAN, pointer, __VA_ARGS__)
#define TraceLoggingBoolArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInBOOL32 | TlgInVcount, TlgOutNULL, _tlgARRAY, BOOL, pointer, __VA_ARGS__)
#define TraceLoggingCharArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT8 | TlgInVcount, TlgOutSTRING, _tlgARRAY, char, pointer, __VA_ARGS__)
#define TraceLoggingChar16Array(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutSTRING, _tlgARRAY, WCHAR, pointer, __VA_ARGS__)
#define TraceLoggingWCharArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutSTRING, _tlgARRAY, WCHAR, pointer, __VA_ARGS__)
#define TraceLoggingPidArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutPID, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingTidArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutTID, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingPortArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT16 | TlgInVcount, TlgOutPORT, _tlgARRAY, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingIPv4AddressArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutIPV4, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingWinErrorArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutWIN32ERROR, _tlgARRAY, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingNTStatusArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInUINT32 | TlgInVcount, TlgOutNTSTATUS, _tlgARRAY, INT32, pointer, __VA_ARGS__)
#define TraceLoggingHResultArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInINT32 | TlgInVcount, TlgOutHRESULT, _tlgARRAY, INT32, pointer, __VA_ARGS__)
#define TraceLoggingFileTimeArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInFILETIME | TlgInVcount, TlgOutNULL, _tlgARRAY, FILETIME, pointer, __VA_ARGS__)
#define TraceLoggingFileTimeUtcArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInFILETIME | TlgInVcount, TlgOutDATETIME_UTC, _tlgARRAY, FILETIME, pointer, __VA_ARGS__)
#define TraceLoggingSystemTimeArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInSYSTEMTIME | TlgInVcount, TlgOutNULL, _tlgARRAY, SYSTEMTIME, pointer, __VA_ARGS__)
#define TraceLoggingSystemTimeUtcArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInSYSTEMTIME | TlgInVcount, TlgOutDATETIME_UTC, _tlgARRAY, SYSTEMTIME, pointer, __VA_ARGS__)
#define TraceLoggingGuidArray(pointer, ...) \
    _TLG_F2(#pointer, TlgInGUID | TlgInVcount, TlgOutNULL, _tlgARRAY, GUID, pointer, __VA_ARGS__)

/* Arrays whose count is in the metadata. */
#define TraceLoggingInt8FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINT8 | TlgInCcount, TlgOutNULL, INT8, pointer, __VA_ARGS__)
#define TraceLoggingUInt8FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT8 | TlgInCcount, TlgOutNULL, UINT8, pointer, __VA_ARGS__)
#define TraceLoggingInt16FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINT16 | TlgInCcount, TlgOutNULL, INT16, pointer, __VA_ARGS__)
#define TraceLoggingUInt16FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutNULL, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingInt32FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINT32 | TlgInCcount, TlgOutNULL, INT32, pointer, __VA_ARGS__)
#define TraceLoggingUInt32FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutNULL, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingInt64FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINT64 | TlgInCcount, TlgOutNULL, INT64, pointer, __VA_ARGS__)
#define TraceLoggingUInt64FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT64 | TlgInCcount, TlgOutNULL, UINT64, pointer, __VA_ARGS__)
#define TraceLoggingIntPtrFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINTPTR | TlgInCcount, TlgOutNULL, INT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingUIntPtrFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINTPTR | TlgInCcount, TlgOutNULL, UINT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingLongFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInLONG | TlgInCcount, TlgOutNULL, long, pointer, __VA_ARGS__)
#define TraceLoggingULongFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInULONG | TlgInCcount, TlgOutNULL, unsigned long, pointer, __VA_ARGS__)
#define TraceLoggingHexInt8FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT8 | TlgInCcount, TlgOutHEX, INT8, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt8FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT8 | TlgInCcount, TlgOutHEX, UINT8, pointer, __VA_ARGS__)
#define TraceLoggingHexInt16FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutHEX, INT16, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt16FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutHEX, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingHexInt32FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINT32 | TlgInCcount, TlgOutNULL, INT32, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt32FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINT32 | TlgInCcount, TlgOutNULL, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingHexInt64FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINT64 | TlgInCcount, TlgOutNULL, INT64, pointer, __VA_ARGS__)
#define TraceLoggingHexUInt64FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINT64 | TlgInCcount, TlgOutNULL, UINT64, pointer, __VA_ARGS__)
#define TraceLoggingHexIntPtrFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINTPTR | TlgInCcount, TlgOutNULL, INT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingHexUIntPtrFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINTPTR | TlgInCcount, TlgOutNULL, UINT_PTR, pointer, __VA_ARGS__)
#define TraceLoggingHexLongFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXLONG | TlgInCcount, TlgOutNULL, long, pointer, __VA_ARGS__)
#define TraceLoggingHexULongFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXLONG | TlgInCcount, TlgOutNULL, unsigned long, pointer, __VA_ARGS__)
#define TraceLoggingPointerFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINTPTR | TlgInCcount, TlgOutNULL, const void *, pointer, __VA_ARGS__)
#define TraceLoggingCodePointerFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInHEXINTPTR | TlgInCcount, TlgOutCODE_POINTER, const void *, pointer, __VA_ARGS__)
#define TraceLoggingFloat32FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInFLOAT | TlgInCcount, TlgOutNULL, float, pointer, __VA_ARGS__)
#define TraceLoggingFloat64FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInDOUBLE | TlgInCcount, TlgOutNULL, double, pointer, __VA_ARGS__)
#define TraceLoggingBooleanFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT8 | TlgInCcount, TlgOutBOOLEAN, BOOLEAN, pointer, __VA_ARGS__)
#define TraceLoggingBoolFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInBOOL32 | TlgInCcount, TlgOutNULL, BOOL, pointer, __VA_ARGS__)
#define TraceLoggingCharFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT8 | TlgInCcount, TlgOutSTRING, char, pointer, __VA_ARGS__)
#define TraceLoggingChar16FixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutSTRING, WCHAR, pointer, __VA_ARGS__)
#define TraceLoggingWCharFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutSTRING, WCHAR, pointer, __VA_ARGS__)
#define TraceLoggingPidFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutPID, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingTidFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutTID, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingPortFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT16 | TlgInCcount, TlgOutPORT, UINT16, pointer, __VA_ARGS__)
#define TraceLoggingIPv4AddressFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutIPV4, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingWinErrorFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutWIN32ERROR, UINT32, pointer, __VA_ARGS__)
#define TraceLoggingNTStatusFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInUINT32 | TlgInCcount, TlgOutNTSTATUS, INT32, pointer, __VA_ARGS__)
#define TraceLoggingHResultFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInINT32 | TlgInCcount, TlgOutHRESULT, INT32, pointer, __VA_ARGS__)
#define TraceLoggingFileTimeFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInFILETIME | TlgInCcount, TlgOutNULL, FILETIME, pointer, __VA_ARGS__)
#define TraceLoggingFileTimeUtcFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInFILETIME | TlgInCcount, TlgOutDATETIME_UTC, FILETIME, pointer, __VA_ARGS__)
#define TraceLoggingSystemTimeFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInSYSTEMTIME | TlgInCcount, TlgOutNULL, SYSTEMTIME, pointer, __VA_ARGS__)
#define TraceLoggingSystemTimeUtcFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInSYSTEMTIME | TlgInCcount, TlgOutDATETIME_UTC, SYSTEMTIME, pointer, __VA_ARGS__)
#define TraceLoggingGuidFixedArray(pointer, ...) \
    _TLG_FN(#pointer, TlgInGUID | TlgInCcount, TlgOutNULL, GUID, pointer, __VA_ARGS__)

/* Strings that end with a NUL; NULL is the empty string. */
#define TraceLoggingString(...) _TLG_F1(#__VA_ARGS__, TlgInANSISTRING, TlgOutNULL, _tlgSTR8, char, __VA_ARGS__)
#define TraceLoggingUtf8String(...) _TLG_F1(#__VA_ARGS__, TlgInANSISTRING, TlgOutUTF8, _tlgSTR8, char, __VA_ARGS__)
#define TraceLoggingString16(...) _TLG_F1(#__VA_ARGS__, TlgInUNICODESTRING, TlgOutNULL, _tlgSTR16, WCHAR, __VA_ARGS__)
#define TraceLoggingWideString(...) _TLG_F1(#__VA_ARGS__, TlgInUNICODESTRING, TlgOutNULL, _tlgSTR16, WCHAR, __VA_ARGS__)

/* Strings with a length, in characters. */
#define TraceLoggingCountedString(pointer, ...) \
    _TLG_F2(#pointer, TlgInCOUNTEDANSISTRING, TlgOutNULL, _tlgCOUNTED8, char, pointer, __VA_ARGS__)
#define TraceLoggingCountedUtf8String(pointer, ...) \
    _TLG_F2(#pointer, TlgInCOUNTEDANSISTRING, TlgOutUTF8, _tlgCOUNTED8, char, pointer, __VA_ARGS__)
#define TraceLoggingCountedString16(pointer, ...) \
    _TLG_F2(#pointer, TlgInCOUNTEDSTRING, TlgOutNULL, _tlgCOUNTED16, WCHAR, pointer, __VA_ARGS__)
#define TraceLoggingCountedWideString(pointer, ...) \
    _TLG_F2(#pointer, TlgInCOUNTEDSTRING, TlgOutNULL, _tlgCOUNTED16, WCHAR, pointer, __VA_ARGS__)

/* A pointer to a structure with Buffer and Length in bytes: ANSI_STRING, UNICODE_STRING. */
#define TraceLoggingAnsiString(...) \
    _TLG_F1(#__VA_ARGS__, TlgInCOUNTEDANSISTRING, TlgOutNULL, _tlgBUFFER, char, __VA_ARGS__)
#define TraceLoggingUnicodeString(...) \
    _TLG_F1(#__VA_ARGS__, TlgInCOUNTEDSTRING, TlgOutNULL, _tlgBUFFER, WCHAR, __VA_ARGS__)

/* Bytes with a length. */
#define TraceLoggingBinary(pointer, ...) _TLG_F2(#pointer, TlgInBINARY, TlgOutNULL, _tlgBYTES, 0, pointer, __VA_ARGS__)
#define TraceLoggingBinaryEx(pointer, ...) _TLG_F3(#pointer, _tlgBYTES, pointer, __VA_ARGS__)
#define TraceLoggingBinaryBuffer(pointer, ...) \
    _TLG_F2(#pointer, TlgInBINARY, TlgOutNULL, _tlgBUFFER, 0, pointer, __VA_ARGS__)
#define TraceLoggingBinaryBufferEx(pointer, ...) _TLG_F3(#pointer, _tlgBUFFER, pointer, __VA_ARGS__)
#define TraceLoggingSocketAddress(pointer, ...) \
    _TLG_F2(#pointer, TlgInBINARY, TlgOutSOCKETADDRESS, _tlgBYTES, 0, pointer, __VA_ARGS__)
#define TraceLoggingIPv6Address(...) _TLG_F1(#__VA_ARGS__, TlgInBINARY, TlgOutIPV6, _tlgIPV6, 0, __VA_ARGS__)
#define TraceLoggingSid(...) _TLG_F1(#__VA_ARGS__, TlgInSID, TlgOutNULL, _tlgSID, 0, __VA_ARGS__)

/* The protocols of packed custom data: 0 to 4 are reserved. */
#define TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED0 0
#define TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED1 1
#define TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED2 2
#define TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED3 3
#define TRACELOGGING_PROTOCOL_MICROSOFT_RESERVED4 4

/* (pointer, bytes, protocol, (bytes of the schema), their number, …): data in a custom encoding. */
#define TraceLoggingCustom(pointer, ...) \
    _TLG_CAT(_TLG_CUSTOM_, _TLG_COUNT(__VA_ARGS__))(#pointer, pointer, __VA_ARGS__)
#define _TLG_CUSTOM_4(text, p, n, protocol, schema, size) \
    (_tlgCUSTOM, text, 0, protocol, schema, size, _tlgBYTES, 0, p, n)
#define _TLG_CUSTOM_5(text, p, n, protocol, schema, size, name) \
    (_tlgCUSTOM, name, 0, protocol, schema, size, _tlgBYTES, 0, p, n)
#define _TLG_CUSTOM_6(text, p, n, protocol, schema, size, name, description) \
    (_tlgCUSTOM, name, 0, protocol, schema, size, _tlgBYTES, 0, p, n)
#define _TLG_CUSTOM_7(text, p, n, protocol, schema, size, name, description, tags) \
    (_tlgCUSTOM, name, tags, protocol, schema, size, _tlgBYTES, 0, p, n)

/* (n, "name", …): the next n fields are members of the structure; a nested structure counts as
 * one. */
#define TraceLoggingStruct(n, ...) _TLG_M(_TlgInSTRUCT, (n), __VA_ARGS__)

/* Separate macros for metadata and data, for sources that keep them consistent themselves. */
#define TraceLoggingPackedField(pointer, ...) _TLG_P1(#pointer, pointer, __VA_ARGS__)
#define TraceLoggingPackedFieldEx(pointer, ...) _TLG_P2(#pointer, pointer, __VA_ARGS__)
#define TraceLoggingPackedMetadata(in, ...) _TLG_M(_TLG_IN(in), TlgOutNULL, __VA_ARGS__)
#define TraceLoggingPackedMetadataEx(in, out, ...) _TLG_M(_TLG_IN(in), out, __VA_ARGS__)
#define TraceLoggingPackedStruct(n, ...) _TLG_M(_TlgInSTRUCT, (n), __VA_ARGS__)
#define TraceLoggingPackedStructArray(n, ...) _TLG_M(_TlgInSTRUCT | TlgInVcount, (n), __VA_ARGS__)
#define TraceLoggingPackedData(pointer, size) (_tlgDATA, _tlgRAW, pointer, size)
/* The last argument is the Type of the descriptor: EVENT_DATA_DESCRIPTOR_TYPE_…. */
#define TraceLoggingPackedDataEx(pointer, size, type) (_tlgDATA, _tlgTYPED, pointer, size, type)

/* The type of the field is that of the value. */
#define TraceLoggingValue(...) _TLG_VALUE(#__VA_ARGS__, __VA_ARGS__)
#define _TLG_VALUE(text, ...) _TLG_CAT(_TLG_VALUE_, _TLG_COUNT(__VA_ARGS__))(text, __VA_ARGS__)
#define _TLG_VALUE_1(text, v) (_tlgFIELD, text, 0, _TLG_VALUE_IN(v), _TLG_VALUE_OUT(v), 0, _tlgVALUE, v)
#define _TLG_VALUE_2(text, v, name) (_tlgFIELD, name, 0, _TLG_VALUE_IN(v), _TLG_VALUE_OUT(v), 0, _tlgVALUE, v)
#define _TLG_VALUE_3(text, v, name, description) _TLG_VALUE_2(text, v, name)
#define _TLG_VALUE_4(text, v, name, description, tags) \
    (_tlgFIELD, name, tags, _TLG_VALUE_IN(v), _TLG_VALUE_OUT(v), 0, _tlgVALUE, v)

#endif /* TRACEWEIR_TLG_FIELDS_H */
