/* Event metadata as a constant. Part of TraceLoggingProvider.h.
 *
 *   u16 size │ tags │ name, NUL │ field… │  field: name, NUL │ in │ out? │ tags? │ count? │ schema?
 *
 * Each argument of a write is a tuple that begins with its kind:
 *
 *   (_tlgFIELD,  name, tags, in, out, count, how to pass the data, …)    metadata and data
 *   (_tlgCUSTOM, name, tags, protocol, (schema), its size, how, …)       the same, with a schema
 *   (_tlgDATA,   how, …)                                                 data only
 *   (_tlgATTR,   level, keyword, opcode, channel, tags, id, version)     attributes of the event:
 *                                                                        text that continues
 *                                                                        an expression
 *
 * A macro expands each tuple once for each result: members of a structure, their values, the number
 * of data blocks, the blocks, the attributes.
 *
 * At most eight bytes, apart from a schema, follow a field's name. Their number depends on the
 * constants of the field. In C they are one bit-field of that width in a packed structure, which is
 * a plain initialized constant. In C++ a function makes an array of bytes at compile time instead,
 * because a local class cannot use "this", packs and structured bindings.
 */
#ifndef TRACEWEIR_TLG_METADATA_H
#define TRACEWEIR_TLG_METADATA_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "tlg_each.h"

/* Types of fields for the packed macros, with the flags for the number of values. */
enum _tlgIn {
    TlgInNULL = 0,
    TlgInUNICODESTRING = 1,
    TlgInANSISTRING = 2,
    TlgInINT8 = 3,
    TlgInUINT8 = 4,
    TlgInINT16 = 5,
    TlgInUINT16 = 6,
    TlgInINT32 = 7,
    TlgInUINT32 = 8,
    TlgInINT64 = 9,
    TlgInUINT64 = 10,
    TlgInFLOAT = 11,
    TlgInDOUBLE = 12,
    TlgInBOOL32 = 13,
    TlgInBINARY = 14,
    TlgInGUID = 15,
    TlgInFILETIME = 17,
    TlgInSYSTEMTIME = 18,
    TlgInSID = 19,
    TlgInHEXINT32 = 20,
    TlgInHEXINT64 = 21,
    TlgInCOUNTEDSTRING = 22,
    TlgInCOUNTEDANSISTRING = 23,
    _TlgInSTRUCT = 24,
    TlgInCOUNTEDBINARY = 25,
    TlgInINTPTR = sizeof(void *) == 8 ? TlgInINT64 : TlgInINT32,
    TlgInUINTPTR = sizeof(void *) == 8 ? TlgInUINT64 : TlgInUINT32,
    TlgInHEXINTPTR = sizeof(void *) == 8 ? TlgInHEXINT64 : TlgInHEXINT32,
    TlgInLONG = sizeof(long) == 8 ? TlgInINT64 : TlgInINT32,
    TlgInULONG = sizeof(long) == 8 ? TlgInUINT64 : TlgInUINT32,
    TlgInHEXLONG = sizeof(long) == 8 ? TlgInHEXINT64 : TlgInHEXINT32,
    TlgInCcount = 0x20,
    TlgInVcount = 0x40,
    TlgInCustom = 0x60,
    TlgInChain = 0x80
};

/* The presentation of a field. */
enum _tlgOut {
    TlgOutNULL = 0,
    TlgOutNOPRINT = 1,
    TlgOutSTRING = 2,
    TlgOutBOOLEAN = 3,
    TlgOutHEX = 4,
    TlgOutPID = 5,
    TlgOutTID = 6,
    TlgOutPORT = 7,
    TlgOutIPV4 = 8,
    TlgOutIPV6 = 9,
    TlgOutSOCKETADDRESS = 10,
    TlgOutXML = 11,
    TlgOutJSON = 12,
    TlgOutWIN32ERROR = 13,
    TlgOutNTSTATUS = 14,
    TlgOutHRESULT = 15,
    TlgOutFILETIME = 16,
    TlgOutSIGNED = 17,
    TlgOutUNSIGNED = 18,
    TlgOutDATETIME_CULTURE_INSENSITIVE = 33,
    TlgOutUTF8 = 35,
    TlgOutPKCS7_WITH_TYPE_INFO = 36,
    TlgOutCODE_POINTER = 37,
    TlgOutDATETIME_UTC = 38
};

/* 28 bits of tags take 1, 2 or 4 bytes of 7 bits, the high ones first, in the shortest form that
 * keeps all set bits. */
#define _TLG_TAG_SIZE(t) (((t) & 0x1FFFFF) == 0 ? 1 : ((t) & 0x3FFF) == 0 ? 2 : 4)
#define _TLG_TAG_PART(t, shift) (((unsigned long long)(t) >> (shift)) & 0x7F)
#define _TLG_TAG_BYTES(t)                                                                                \
    (_TLG_TAG_PART(t, 21) | (_TLG_TAG_SIZE(t) > 1 ? 0x80 | _TLG_TAG_PART(t, 14) << 8 : 0) |              \
     (_TLG_TAG_SIZE(t) > 2 ? 0x8000 | (0x80 | _TLG_TAG_PART(t, 7)) << 16 | _TLG_TAG_PART(t, 0) << 24 : 0))

/* The bytes that follow the name of a field: their number, and their values. */
#define _TLG_HAS_TAG(t) (((t) & 0xFFFFFFF) != 0)
#define _TLG_HAS_OUT(out, t) ((out) != 0 || _TLG_HAS_TAG(t))
#define _TLG_HAS_COUNT(in) (((in) & 0x60) == 0x20)
#define _TLG_COUNT_AT(out, t) (1 + (_TLG_HAS_OUT(out, t) ? 1 : 0) + (_TLG_HAS_TAG(t) ? _TLG_TAG_SIZE(t) : 0))
#define _TLG_TYPE_SIZE(in, out, t) (_TLG_COUNT_AT(out, t) + (_TLG_HAS_COUNT(in) ? 2 : 0))
#define _TLG_TYPE_BYTES(in, out, t, count)                                                       \
    (((unsigned long long)(in) & 0xFF) | (_TLG_HAS_OUT(out, t) ? 0x80 | (unsigned long long)(out) << 8 : 0) | \
     (_TLG_HAS_TAG(t) ? 0x8000 | _TLG_TAG_BYTES(t) << 16 : 0) |                                  \
     (_TLG_HAS_COUNT(in) ? (unsigned long long)(count) << (8 * _TLG_COUNT_AT(out, t)) : 0))

/* Checks packed metadata, which have a mark on the type: no pointer, no structure, no flag except
 * that of variable arrays, no array of binary or null. A structure of the packed macros has no
 * mark. */
#define _TLG_IN_PACKED 0x100
#define _TLG_IN_ALLOWED(in)                                                                                  \
    (((in) & _TLG_IN_PACKED) == 0 ||                                                                         \
     (((in) & ~(_TLG_IN_PACKED | TlgInVcount | 0x1F)) == 0 && ((in) & 0x1F) != 16 && ((in) & 0x1F) != _TlgInSTRUCT && \
      ((in) & 0x1F) <= TlgInCOUNTEDBINARY && ((in) & 0x5F) != (TlgInBINARY | TlgInVcount) && ((in) & 0x5F) != TlgInVcount))

/* For each argument: passes the tuple to the macro of the pass and its kind. */
#define _TLG_PASS(pass, i, arg) _TLG_PASS_(pass, i, _TLG_UNPACK arg)
#define _TLG_PASS_(...) _TLG_PASS__(__VA_ARGS__)
#define _TLG_PASS__(pass, i, kind, ...) _TLG_CAT(pass, kind)(i, __VA_ARGS__)

/* The numbers of each argument, as constants. Values out of range are refused here, by shifts that
 * work for numbers of every type and sign. */
#define _TLG_NUMBERS(i, arg) _TLG_PASS(_TLG_NUMBERS, i, arg)
#define _TLG_NUMBERS_tlgFIELD(i, name, tags, in, out, count, ...)                                 \
    _TLG_STATIC_ASSERT(_TLG_IS_NAME(name), "the name of a field has no NUL inside");              \
    _TLG_STATIC_ASSERT(((in) & 0x1F) != _TlgInSTRUCT || ((out) >= 1 && (out) <= 127), "a structure has 1 to 127 members"); \
    _TLG_STATIC_ASSERT((out) >= 0 && (out) <= 127, "an out type is at most 127");                 \
    _TLG_STATIC_ASSERT(_TLG_IN_ALLOWED(in), "this type is not valid for packed metadata");        \
    _TLG_STATIC_ASSERT((count) >= 0 && (count) <= 0xFFFF, "an array has at most 65535 values");   \
    _TLG_STATIC_ASSERT((tags) >> 28 == 0, "tags have 28 bits");                                   \
    _TLG_NUMBER(_Tlg_in##i, in);                                                                  \
    _TLG_NUMBER(_Tlg_out##i, out);                                                                \
    _TLG_NUMBER(_Tlg_count##i, count);                                                            \
    _TLG_NUMBER(_Tlg_tags##i, tags);
#define _TLG_NUMBERS_tlgCUSTOM(i, name, tags, protocol, schema, size, ...)                        \
    _TLG_STATIC_ASSERT(_TLG_IS_NAME(name), "the name of a field has no NUL inside");              \
    _TLG_STATIC_ASSERT((protocol) >= 5 && (protocol) <= 31, "protocols are 5 to 31; those below are reserved"); \
    _TLG_STATIC_ASSERT((tags) >> 28 == 0, "tags have 28 bits");                                   \
    _TLG_STATIC_ASSERT(_TLG_SCHEMA_SIZE(_TLG_UNPACK schema) == (size), "the schema does not have the given size"); \
    _TLG_NUMBER(_Tlg_in##i, (protocol) | 0x60);                                                   \
    _TLG_NUMBER(_Tlg_out##i, 0);                                                                  \
    _TLG_SCHEMA(i, _TLG_UNPACK schema)                                                            \
    _TLG_NUMBER(_Tlg_size##i, size);                                                              \
    _TLG_NUMBER(_Tlg_tags##i, tags);
#define _TLG_NUMBERS_tlgDATA(...)
#define _TLG_NUMBERS_tlgATTR(i, level, keyword, opcode, channel, tags, id, version)               \
    _TLG_STATIC_ASSERT((0 level) >> 8 == 0, "a level is at most 255");                            \
    _TLG_STATIC_ASSERT((0 opcode) >> 8 == 0, "an opcode is at most 255");                         \
    _TLG_STATIC_ASSERT((0 channel) >> 8 == 0, "a channel is at most 255");                        \
    _TLG_STATIC_ASSERT((0 tags) >> 28 == 0, "tags have 28 bits");                                 \
    _TLG_STATIC_ASSERT((0 id) >> 16 == 0, "an id is at most 65535");                              \
    _TLG_STATIC_ASSERT((0 version) >> 8 == 0, "a version is at most 255");

#ifdef __cplusplus

/* The number of bytes of each argument. */
#define _TLG_SIZE(i, arg) _TLG_PASS(_TLG_SIZE, i, arg)
#define _TLG_SIZE_tlgFIELD(i, name, ...) +sizeof(name) + _TLG_TYPE_SIZE(_Tlg_in##i, _Tlg_out##i, _Tlg_tags##i)
#define _TLG_SIZE_tlgCUSTOM(i, name, ...) _TLG_SIZE_tlgFIELD(i, name, ) + 2 + _Tlg_size##i
#define _TLG_SIZE_tlgDATA(...)
#define _TLG_SIZE_tlgATTR(...)

/* The pieces of metadata: text and its size, or a number and its size. */
#define _TLG_PIECES(i, arg) _TLG_PASS(_TLG_PIECES, i, arg)
#define _TLG_PIECES_tlgFIELD(i, name, ...)                                                      \
    , {name, sizeof(name), 0}, {nullptr, _TLG_TYPE_SIZE(_Tlg_in##i, _Tlg_out##i, _Tlg_tags##i),  \
                                _TLG_TYPE_BYTES(_Tlg_in##i, _Tlg_out##i, _Tlg_tags##i, _Tlg_count##i)}
#define _TLG_PIECES_tlgCUSTOM(i, name, tags, protocol, schema, ...)                             \
    , {name, sizeof(name), 0}, {nullptr, _TLG_TYPE_SIZE(_Tlg_in##i, 0, _Tlg_tags##i),            \
                                _TLG_TYPE_BYTES(_Tlg_in##i, 0, _Tlg_tags##i, 0)},               \
        {nullptr, 2, _Tlg_size##i}, {_Tlg_schema##i.bytes, sizeof(_Tlg_schema##i), 0}
#define _TLG_PIECES_tlgDATA(...)
#define _TLG_PIECES_tlgATTR(...)

/* Checks that each structure has its members. */
#define _TLG_MEMBERS(i, arg) _TLG_PASS(_TLG_MEMBERS, i, arg)
#define _TLG_MEMBERS_tlgFIELD(i, ...) , (_Tlg_in##i & 0x1F) == _TlgInSTRUCT ? _Tlg_out##i : 0u
#define _TLG_MEMBERS_tlgCUSTOM(...) , 0u
#define _TLG_MEMBERS_tlgDATA(...)
#define _TLG_MEMBERS_tlgATTR(...)

#define _TLG_METADATA(prefix, event, ...)                                                                       \
    _TLG_STATIC_ASSERT(::traceweir::tlg::complete({0u _TLG_EACH(_TLG_MEMBERS, __VA_ARGS__)}),                   \
                       "a structure is followed by fewer fields than it has members");                          \
    static constexpr auto prefix##_metadata _TLG_BLOB =                                                         \
        ::traceweir::tlg::blob<2 + _TLG_TAG_SIZE(prefix##_tags) + sizeof(event) _TLG_EACH(_TLG_SIZE, __VA_ARGS__)>( \
            {{nullptr, _TLG_TAG_SIZE(prefix##_tags), _TLG_TAG_BYTES(prefix##_tags)},                            \
             {event, sizeof(event), 0} _TLG_EACH(_TLG_PIECES, __VA_ARGS__)});

#else

/* Checks that each structure has its members. Each field counts as a number: 1 - n for a structure
 * of n members, 1 for any other field. Members are missing if the sum from a structure to the last
 * field is 0 or less. C cannot sum up constants, but it sums up the sizes of the members of a type:
 * here the member for a field has 0x8000 bytes more than the field's number, and the sum is found
 * modulo 0x8000. */
#define _TLG_SHAPE(i, arg) _TLG_PASS(_TLG_SHAPE, i, arg)
#define _TLG_SHAPE_tlgFIELD(i, ...) char _f##i[0x8001u - ((_Tlg_in##i & 0x1F) == _TlgInSTRUCT ? _Tlg_out##i : 0u)];
#define _TLG_SHAPE_tlgCUSTOM(i, ...) char _f##i[0x8001];
#define _TLG_SHAPE_tlgDATA(...)
#define _TLG_SHAPE_tlgATTR(...)
#define _TLG_COMPLETE(i, arg) _TLG_PASS(_TLG_COMPLETE, i, arg)
#define _TLG_COMPLETE_tlgFIELD(i, ...)                                                                             \
    _TLG_STATIC_ASSERT((sizeof(struct _Tlg_shape) - __builtin_offsetof(struct _Tlg_shape, _f##i) + 0x4000) % 0x8000 > 0x4000,      \
                       "a structure is followed by fewer fields than it has members");
#define _TLG_COMPLETE_tlgCUSTOM(...)
#define _TLG_COMPLETE_tlgDATA(...)
#define _TLG_COMPLETE_tlgATTR(...)

/* The members of the structure. */
#define _TLG_MEMBER(i, arg) _TLG_PASS(_TLG_MEMBER, i, arg)
#define _TLG_MEMBER_tlgFIELD(i, name, ...)                                                        \
    char _n##i[sizeof(name)];                                                                     \
    __extension__ unsigned long long _t##i : 8 * _TLG_TYPE_SIZE(_Tlg_in##i, _Tlg_out##i, _Tlg_tags##i);
#define _TLG_MEMBER_tlgCUSTOM(i, name, ...)                                                       \
    _TLG_MEMBER_tlgFIELD(i, name, )                                                               \
    UINT16 _z##i;                                                                                 \
    UINT8 _s##i[_Tlg_size##i];
#define _TLG_MEMBER_tlgDATA(...)
#define _TLG_MEMBER_tlgATTR(...)

/* The values of the members. */
#define _TLG_INIT(i, arg) _TLG_PASS(_TLG_INIT, i, arg)
#define _TLG_INIT_tlgFIELD(i, name, ...) \
    , name, _TLG_TYPE_BYTES(_Tlg_in##i, _Tlg_out##i, _Tlg_tags##i, _Tlg_count##i)
#define _TLG_INIT_tlgCUSTOM(i, name, tags, protocol, schema, ...) \
    , name, _TLG_TYPE_BYTES(_Tlg_in##i, 0, _Tlg_tags##i, 0), _Tlg_size##i, {_TLG_UNPACK schema}
#define _TLG_INIT_tlgDATA(...)
#define _TLG_INIT_tlgATTR(...)

#define _TLG_METADATA(prefix, event, ...)                                                                       \
    struct prefix##_shape {                                                                                     \
        char first;                                                                                              \
        _TLG_EACH(_TLG_SHAPE, __VA_ARGS__)                                                                      \
    };                                                                                                          \
    _TLG_EACH(_TLG_COMPLETE, __VA_ARGS__)                                                                       \
    static const struct {                                                                                       \
        UINT16 size;                                                                                            \
        __extension__ unsigned long long tags : 8 * _TLG_TAG_SIZE(prefix##_tags);                               \
        char name[sizeof(event)];                                                                               \
        _TLG_EACH(_TLG_MEMBER, __VA_ARGS__)                                                                     \
    } _TLG_PACKED prefix##_metadata _TLG_BLOB = {                                                               \
        sizeof(prefix##_metadata), _TLG_TAG_BYTES(prefix##_tags), event _TLG_EACH(_TLG_INIT, __VA_ARGS__)};

#endif

/* The number of data blocks. */
#define _TLG_BLOCKS(i, arg) _TLG_PASS(_TLG_BLOCKS, i, arg)
#define _TLG_BLOCKS_tlgFIELD(i, name, tags, in, out, count, data, ...) +_TLG_CAT(_TLG_BLOCKS, data)
#define _TLG_BLOCKS_tlgCUSTOM(i, name, tags, protocol, schema, size, data, ...) +_TLG_CAT(_TLG_BLOCKS, data)
#define _TLG_BLOCKS_tlgDATA(i, data, ...) +_TLG_CAT(_TLG_BLOCKS, data)
#define _TLG_BLOCKS_tlgATTR(...)
#define _TLG_BLOCKS_tlgNONE 0
#define _TLG_BLOCKS_tlgVAL 1
#define _TLG_BLOCKS_tlgADDRESS 1
#define _TLG_BLOCKS_tlgCODE 1
#define _TLG_BLOCKS_tlgCHAR16 1
#define _TLG_BLOCKS_tlgARRAY 2
#define _TLG_BLOCKS_tlgFIXED 1
#define _TLG_BLOCKS_tlgSTR8 1
#define _TLG_BLOCKS_tlgSTR16 1
#define _TLG_BLOCKS_tlgCOUNTED8 2
#define _TLG_BLOCKS_tlgCOUNTED16 2
#define _TLG_BLOCKS_tlgBYTES 2
#define _TLG_BLOCKS_tlgBUFFER 2
#define _TLG_BLOCKS_tlgIPV6 2
#define _TLG_BLOCKS_tlgSID 1
#define _TLG_BLOCKS_tlgRAW 1
#define _TLG_BLOCKS_tlgTYPED 1
#define _TLG_BLOCKS_tlgVALUE 1

/* The blocks: tlg_write_c.h and tlg_write_cpp.h have a macro for each way to pass data. */
#define _TLG_FILL(i, arg) _TLG_PASS(_TLG_FILL, i, arg)
#define _TLG_FILL_tlgFIELD(i, name, tags, in, out, count, data, ...) _TLG_CAT(_TLG_FILL, data)(i, __VA_ARGS__)
#define _TLG_FILL_tlgCUSTOM(i, name, tags, protocol, schema, size, data, ...) _TLG_CAT(_TLG_FILL, data)(i, __VA_ARGS__)
#define _TLG_FILL_tlgDATA(i, data, ...) _TLG_CAT(_TLG_FILL, data)(i, __VA_ARGS__)
#define _TLG_FILL_tlgATTR(...)

/* Attributes: a default "5" continues as "5*0+(n)", so that the last attribute applies; keywords
 * and tags are OR-ed. */
#define TraceLoggingLevel(level) (_tlgATTR, *0 + (level), , , , , , )
#define TraceLoggingKeyword(keyword) (_tlgATTR, , | (keyword), , , , , )
#define TraceLoggingOpcode(opcode) (_tlgATTR, , , *0 + (opcode), , , , )
#define TraceLoggingChannel(channel) (_tlgATTR, , , , *0 + (channel), , , )
#define TraceLoggingEventTag(tags) (_tlgATTR, , , , , | (tags), , )
#define TraceLoggingIdVersion(id, version) (_tlgATTR, , , , , , *0 + (id), *0 + (version))
/* Only for readers of the source; they are not recorded. */
#define TraceLoggingDescription(description) (_tlgATTR, , , , , , , )
#define TraceLoggingCustomAttribute(key, value) (_tlgATTR, , , , , , , )

#define _TLG_LEVEL(i, arg) _TLG_PASS(_TLG_LEVEL, i, arg)
#define _TLG_LEVEL_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) level
#define _TLG_LEVEL_tlgFIELD(...)
#define _TLG_LEVEL_tlgCUSTOM(...)
#define _TLG_LEVEL_tlgDATA(...)
#define _TLG_KEYWORD(i, arg) _TLG_PASS(_TLG_KEYWORD, i, arg)
#define _TLG_KEYWORD_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) keyword
#define _TLG_KEYWORD_tlgFIELD(...)
#define _TLG_KEYWORD_tlgCUSTOM(...)
#define _TLG_KEYWORD_tlgDATA(...)
#define _TLG_OPCODE(i, arg) _TLG_PASS(_TLG_OPCODE, i, arg)
#define _TLG_OPCODE_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) opcode
#define _TLG_OPCODE_tlgFIELD(...)
#define _TLG_OPCODE_tlgCUSTOM(...)
#define _TLG_OPCODE_tlgDATA(...)
#define _TLG_CHANNEL(i, arg) _TLG_PASS(_TLG_CHANNEL, i, arg)
#define _TLG_CHANNEL_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) channel
#define _TLG_CHANNEL_tlgFIELD(...)
#define _TLG_CHANNEL_tlgCUSTOM(...)
#define _TLG_CHANNEL_tlgDATA(...)
#define _TLG_TAGS(i, arg) _TLG_PASS(_TLG_TAGS, i, arg)
#define _TLG_TAGS_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) tags
#define _TLG_TAGS_tlgFIELD(...)
#define _TLG_TAGS_tlgCUSTOM(...)
#define _TLG_TAGS_tlgDATA(...)
#define _TLG_ID(i, arg) _TLG_PASS(_TLG_ID, i, arg)
#define _TLG_ID_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) id
#define _TLG_ID_tlgFIELD(...)
#define _TLG_ID_tlgCUSTOM(...)
#define _TLG_ID_tlgDATA(...)
#define _TLG_VERSION(i, arg) _TLG_PASS(_TLG_VERSION, i, arg)
#define _TLG_VERSION_tlgATTR(i, level, keyword, opcode, channel, tags, id, version) version
#define _TLG_VERSION_tlgFIELD(...)
#define _TLG_VERSION_tlgCUSTOM(...)
#define _TLG_VERSION_tlgDATA(...)

/* Defines the two constants of an event, its metadata and its descriptor, named after "prefix". The
 * first item of the list is skipped. */
#define _TLG_CONSTANTS(prefix, event, level, keyword, opcode, ...)                                              \
    _TLG_STATIC_ASSERT(_TLG_IS_NAME(event), "the name of an event has no NUL inside");                          \
    _TLG_CONSTANTS_NAMED(prefix, event, level, keyword, opcode, __VA_ARGS__)

/* Like _TLG_CONSTANTS, for a name that is known to be valid. */
#define _TLG_CONSTANTS_NAMED(prefix, event, level, keyword, opcode, ...)                      \
    _TLG_NUMBER(prefix##_tags, 0 _TLG_EACH(_TLG_TAGS, __VA_ARGS__));                                            \
    _TLG_EACH(_TLG_NUMBERS, __VA_ARGS__)                                                                        \
    _TLG_METADATA(prefix, event, __VA_ARGS__)                                                                   \
    _TLG_STATIC_ASSERT(sizeof(prefix##_metadata) <= 0x7FFF, "names and types of an event take at most 32767 bytes"); \
    _TLG_CONST_DATA EVENT_DESCRIPTOR prefix##_descriptor __attribute__((unused)) = {                            \
        (USHORT)(0 _TLG_EACH(_TLG_ID, __VA_ARGS__)),                                                            \
        (UCHAR)(0 _TLG_EACH(_TLG_VERSION, __VA_ARGS__)),                                                        \
        (UCHAR)(11 _TLG_EACH(_TLG_CHANNEL, __VA_ARGS__)),                                                       \
        (UCHAR)(level _TLG_EACH(_TLG_LEVEL, __VA_ARGS__)),                                                      \
        (UCHAR)(opcode _TLG_EACH(_TLG_OPCODE, __VA_ARGS__)),                                                    \
        0,                                                                                                      \
        (ULONGLONG)(keyword _TLG_EACH(_TLG_KEYWORD, __VA_ARGS__))}

#endif /* TRACEWEIR_TLG_METADATA_H */
