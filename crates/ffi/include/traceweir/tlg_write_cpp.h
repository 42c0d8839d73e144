/* Passing the data of an event in C++. Part of TraceLoggingProvider.h.
 *
 *   write(how, provider, descriptor, metadata, size, val<INT32>(a), str8(b), counted8(c, n), …)
 *
 * Each field is an argument of one call, so that temporaries (the string whose c_str() is written)
 * live until the event is written. The type of an argument gives the number of its blocks at
 * compile time; at run time the argument stores them into an array on the stack.
 */
#ifndef TRACEWEIR_TLG_WRITE_CPP_H
#define TRACEWEIR_TLG_WRITE_CPP_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#if __cplusplus < 201703L
#error "TraceLoggingProvider.h needs C++17"
#endif

#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "tlg_send.h"

namespace traceweir::tlg {

#define _TLG_CPP_INLINE inline __attribute__((always_inline))

using Block = EVENT_DATA_DESCRIPTOR;

template <class T>
inline constexpr bool is_wide = std::is_same_v<std::remove_cv_t<T>, wchar_t> && sizeof(wchar_t) != 2;

#define _TLG_WIDE_TEXT "wchar_t has 4 bytes here and WCHAR is a char16_t: write u\"text\" for L\"text\", or compile with -fshort-wchar"

/* A value of a fixed size. */
template <class T>
struct Value {
    static constexpr unsigned blocks = 1;
    T value;
    _TLG_CPP_INLINE Block *put(Block *at) const { return _Tlg_put(at, &value, sizeof(value)); }
};

/* Memory of the caller. */
struct Memory {
    static constexpr unsigned blocks = 1;
    const void *data;
    ULONG size;
    _TLG_CPP_INLINE Block *put(Block *at) const { return _Tlg_put(at, data, size); }
};

/* Memory of the caller after a count of elements or bytes. */
struct Counted {
    static constexpr unsigned blocks = 2;
    UINT16 count;
    Memory memory;
    _TLG_CPP_INLINE Block *put(Block *at) const { return memory.put(_Tlg_put(at, &count, sizeof(count))); }
};

/* A block whose descriptor has a type. */
struct Typed {
    static constexpr unsigned blocks = 1;
    Memory memory;
    UCHAR type;
    _TLG_CPP_INLINE Block *put(Block *at) const {
        Block *const next = memory.put(at);
        at->Reserved = type;
        return next;
    }
};

/* Metadata without data. */
struct None {
    static constexpr unsigned blocks = 0;
    _TLG_CPP_INLINE Block *put(Block *at) const { return at; }
};

template <class T>
_TLG_CPP_INLINE Value<T> val(T value) {
    return {value};
}

template <class T>
_TLG_CPP_INLINE Value<UINT_PTR> code(T value) {
    if constexpr (std::is_null_pointer_v<T>) {
        return {0};
    } else if constexpr (std::is_pointer_v<T>) {
        return {reinterpret_cast<UINT_PTR>(value)};
    } else {
        return {static_cast<UINT_PTR>(value)};
    }
}

template <class T>
_TLG_CPP_INLINE Value<WCHAR> char16(T value) {
    static_assert(!is_wide<T>, _TLG_WIDE_TEXT);
    return {static_cast<WCHAR>(value)};
}

template <class T, class Element>
_TLG_CPP_INLINE Counted array(const Element *pointer, SIZE_T count) {
    static_assert(sizeof(Element) == sizeof(T), "the array has elements of another size");
    return {static_cast<UINT16>(count), {pointer, _Tlg_bytes(count, sizeof(T))}};
}

template <class T, SIZE_T count, class Element>
_TLG_CPP_INLINE Memory fixed(const Element *pointer) {
    static_assert(sizeof(Element) == sizeof(T), "the array has elements of another size");
    return {pointer, static_cast<ULONG>(sizeof(T) * count)};
}

_TLG_CPP_INLINE Memory str8(const char *text) {
    Block block;
    _Tlg_put_string(&block, text);
    return {text ? text : "", block.Size};
}

_TLG_CPP_INLINE Memory str16(std::nullptr_t) { return {TRACEWEIR_WIDE_TEXT(""), sizeof(WCHAR)}; }

template <class Unit>
_TLG_CPP_INLINE Memory str16(const Unit *text) {
    static_assert(!is_wide<Unit>, _TLG_WIDE_TEXT);
    static_assert(is_wide<Unit> || sizeof(Unit) == sizeof(WCHAR), "this is not a string of WCHAR");
    Block block;
    _Tlg_put_string16(&block, reinterpret_cast<const WCHAR *>(text));
    return text ? Memory{text, block.Size} : str16(nullptr);
}

_TLG_CPP_INLINE Counted bytes(const void *pointer, SIZE_T size) {
    return {static_cast<UINT16>(size), {pointer, _Tlg_bytes(size, 1)}};
}

_TLG_CPP_INLINE Counted counted8(const char *pointer, SIZE_T count) { return bytes(pointer, count); }

_TLG_CPP_INLINE Counted counted16(std::nullptr_t, SIZE_T) { return bytes(nullptr, 0); }

template <class Unit>
_TLG_CPP_INLINE Counted counted16(const Unit *pointer, SIZE_T count) {
    static_assert(!is_wide<Unit>, _TLG_WIDE_TEXT);
    static_assert(is_wide<Unit> || sizeof(Unit) == sizeof(WCHAR), "this is not a string of WCHAR");
    return {static_cast<UINT16>(count * sizeof(WCHAR)), {pointer, _Tlg_bytes(count, sizeof(WCHAR))}};
}

template <class T>
_TLG_CPP_INLINE Counted buffer(const T *pointer) {
    return bytes(pointer->Buffer, static_cast<SIZE_T>(pointer->Length));
}

_TLG_CPP_INLINE Memory sid(const void *pointer) { return {pointer, _Tlg_sid_size(pointer)}; }

_TLG_CPP_INLINE Memory raw(const void *pointer, SIZE_T size) { return {pointer, _Tlg_bytes(size, 1)}; }

/* The in type and out type of a field of TraceLoggingValue. */
template <int in_type, int out_type = TlgOutNULL>
struct Field {
    static constexpr int in = in_type;
    static constexpr int out = out_type;
};

template <class T>
struct ValueField {
    static constexpr bool wide = is_wide<std::remove_pointer_t<T>>;
    static_assert(!wide, _TLG_WIDE_TEXT);
    static_assert(wide, "TraceLoggingValue has no field for this type; use the macro of the field you want");
    static constexpr int in = 0;
    static constexpr int out = 0;
};
template <> struct ValueField<bool> : Field<TlgInUINT8, TlgOutBOOLEAN> {};
template <> struct ValueField<char> : Field<TlgInUINT8, TlgOutSTRING> {};
template <> struct ValueField<char16_t> : Field<TlgInUINT16, TlgOutSTRING> {};
template <> struct ValueField<signed char> : Field<TlgInINT8> {};
template <> struct ValueField<unsigned char> : Field<TlgInUINT8> {};
template <> struct ValueField<short> : Field<TlgInINT16> {};
template <> struct ValueField<unsigned short> : Field<TlgInUINT16> {};
template <> struct ValueField<int> : Field<TlgInINT32> {};
template <> struct ValueField<unsigned> : Field<TlgInUINT32> {};
template <> struct ValueField<long> : Field<TlgInLONG> {};
template <> struct ValueField<unsigned long> : Field<TlgInULONG> {};
template <> struct ValueField<long long> : Field<TlgInINT64> {};
template <> struct ValueField<unsigned long long> : Field<TlgInUINT64> {};
template <> struct ValueField<float> : Field<TlgInFLOAT> {};
template <> struct ValueField<double> : Field<TlgInDOUBLE> {};
template <> struct ValueField<GUID> : Field<TlgInGUID> {};
template <> struct ValueField<FILETIME> : Field<TlgInFILETIME> {};
template <> struct ValueField<SYSTEMTIME> : Field<TlgInSYSTEMTIME> {};
template <> struct ValueField<SID *> : Field<TlgInSID> {};
template <> struct ValueField<void *> : Field<TlgInHEXINTPTR> {};
template <> struct ValueField<char *> : Field<TlgInANSISTRING> {};
template <> struct ValueField<char16_t *> : Field<TlgInUNICODESTRING> {};
#if __SIZEOF_WCHAR_T__ == 2
template <> struct ValueField<wchar_t> : Field<TlgInUINT16, TlgOutSTRING> {};
template <> struct ValueField<wchar_t *> : Field<TlgInUNICODESTRING> {};
#endif
template <class T> struct ValueField<const T *> : ValueField<T *> {};

/* By value: a constant member of a class may have no address. */
template <class T>
_TLG_CPP_INLINE auto value(T v) {
    constexpr int in = ValueField<T>::in;
    if constexpr (in == TlgInSID) {
        return sid(v);
    } else if constexpr (in == TlgInANSISTRING) {
        return str8(v);
    } else if constexpr (in == TlgInUNICODESTRING) {
        return str16(v);
    } else {
        return Value<T>{v};
    }
}

/* A part of metadata: text, or the low bytes of a number. */
struct Piece {
    const char *text;
    SIZE_T size;
    unsigned long long number;
    /* With sanitizers, g++ does not treat the comparison of an address with null as a constant. */
    bool is_text;
    constexpr Piece(const char *piece, SIZE_T length, unsigned long long) : text(piece), size(length), number(0), is_text(true) {}
    constexpr Piece(std::nullptr_t, SIZE_T length, unsigned long long value) : text(""), size(length), number(value), is_text(false) {}
};

template <SIZE_T size>
struct Blob {
    char bytes[size];
};

/* Builds metadata: its size, then the pieces. */
template <SIZE_T size>
constexpr Blob<size> blob(std::initializer_list<Piece> pieces) {
    Blob<size> result{};
    result.bytes[0] = static_cast<char>(size & 0xFF);
    result.bytes[1] = static_cast<char>(size >> 8 & 0xFF);
    SIZE_T at = 2;
    for (const Piece &piece : pieces) {
        for (SIZE_T i = 0; i < piece.size; i++) {
            result.bytes[at++] = piece.is_text ? piece.text[i] : static_cast<char>(piece.number >> (8 * i) & 0xFF);
        }
    }
    return result;
}

/* Returns whether each structure is followed by its members. "fields" has the number of members of
 * each field; it is 0 if the field is not a structure. */
constexpr bool complete(std::initializer_list<unsigned> fields) {
    unsigned missing = 0;
    for (unsigned members : fields) {
        missing = (missing ? missing - 1 : 0) + members;
    }
    return missing == 0;
}

/* The bytes of a schema. */
template <class... Bytes>
constexpr Blob<sizeof...(Bytes)> schema(Bytes... bytes) {
    return {{static_cast<char>(bytes)...}};
}

/* The last arguments of EventWriteTransfer and of EventWriteEx. */
struct Transfer {
    LPCGUID activity;
    LPCGUID related;
    _TLG_CPP_INLINE void send(TraceLoggingHProvider provider, const EVENT_DESCRIPTOR &event, const void *metadata,
                              ULONG size, Block *data, ULONG count) const {
        ::_Tlg_transfer(provider, &event, metadata, size, data, count, activity, related);
    }
};

struct WriteEx {
    ULONG64 filter;
    ULONG flags;
    LPCGUID activity;
    LPCGUID related;
    _TLG_CPP_INLINE void send(TraceLoggingHProvider provider, const EVENT_DESCRIPTOR &event, const void *metadata,
                              ULONG size, Block *data, ULONG count) const {
        ::_Tlg_write_ex(provider, &event, metadata, size, data, count, filter, flags, activity, related);
    }
};

_TLG_CPP_INLINE Transfer _Tlg_transfer(LPCGUID activity, LPCGUID related) { return {activity, related}; }
_TLG_CPP_INLINE WriteEx _Tlg_write_ex(ULONG64 filter, ULONG flags, LPCGUID activity, LPCGUID related) {
    return {filter, flags, activity, related};
}

template <class How, class... Fields>
_TLG_CPP_INLINE void write(const How &how, TraceLoggingHProvider provider, const EVENT_DESCRIPTOR &event,
                           const void *metadata, ULONG size, const Fields &...fields) {
    constexpr unsigned count = (2 + ... + Fields::blocks);
    static_assert(count <= MAX_EVENT_DATA_DESCRIPTORS, "an event has at most 128 blocks of data, two of them for metadata");
    Block data[count];
    Block *at = data + 2;
    ((at = fields.put(at)), ...);
    static_cast<void>(at);
    how.send(provider, event, metadata, size, data, count);
}

} // namespace traceweir::tlg

#define _TLG_SCHEMA(i, ...) static constexpr auto _Tlg_schema##i = ::traceweir::tlg::schema(__VA_ARGS__);
#define _TLG_SCHEMA_SIZE(...) sizeof(::traceweir::tlg::schema(__VA_ARGS__))

#define _TLG_FILL_tlgNONE(i, unused)
#define _TLG_FILL_tlgVAL(i, type, v) , ::traceweir::tlg::val<type>(v)
#define _TLG_FILL_tlgADDRESS(i, type, v) , ::traceweir::tlg::val<const volatile void *>(v)
#define _TLG_FILL_tlgCODE(i, type, v) , ::traceweir::tlg::code(v)
#define _TLG_FILL_tlgCHAR16(i, type, v) , ::traceweir::tlg::char16(v)
#define _TLG_FILL_tlgARRAY(i, type, p, n) , ::traceweir::tlg::array<type>(p, static_cast<SIZE_T>(n))
#define _TLG_FILL_tlgFIXED(i, type, p, n) , ::traceweir::tlg::fixed<type, (n)>(p)
#define _TLG_FILL_tlgSTR8(i, type, v) , ::traceweir::tlg::str8(v)
#define _TLG_FILL_tlgSTR16(i, type, v) , ::traceweir::tlg::str16(v)
#define _TLG_FILL_tlgCOUNTED8(i, type, p, n) , ::traceweir::tlg::counted8(p, static_cast<SIZE_T>(n))
#define _TLG_FILL_tlgCOUNTED16(i, type, p, n) , ::traceweir::tlg::counted16(p, static_cast<SIZE_T>(n))
#define _TLG_FILL_tlgBYTES(i, type, p, n) , ::traceweir::tlg::bytes(p, static_cast<SIZE_T>(n))
#define _TLG_FILL_tlgIPV6(i, type, p) , ::traceweir::tlg::bytes(p, 16)
#define _TLG_FILL_tlgBUFFER(i, type, ...) , ::traceweir::tlg::buffer(_TLG_FIRST(__VA_ARGS__))
#define _TLG_FILL_tlgSID(i, type, p) , ::traceweir::tlg::sid(p)
#define _TLG_FILL_tlgRAW(i, p, n) , ::traceweir::tlg::raw(p, static_cast<SIZE_T>(n))
#define _TLG_FILL_tlgTYPED(i, p, n, type) \
    , ::traceweir::tlg::Typed { ::traceweir::tlg::raw(p, static_cast<SIZE_T>(n)), static_cast<UCHAR>(type) }
#define _TLG_FILL_tlgVALUE(i, v) , ::traceweir::tlg::value<std::decay_t<decltype(v)>>(v)
#define _TLG_VALUE_IN(v) ::traceweir::tlg::ValueField<std::decay_t<decltype(v)>>::in
#define _TLG_VALUE_OUT(v) ::traceweir::tlg::ValueField<std::decay_t<decltype(v)>>::out

/* Writes an event, if a session listens. "how_to_send" names the function of tlg_send.h, and "how"
 * has its last arguments in parentheses. */
#define _TLG_EVENT(provider, event, level, keyword, opcode, how_to_send, how, ...)                               \
    do {                                                                                                        \
        _TLG_CONSTANTS(_Tlg, event, level, keyword, opcode, __VA_ARGS__);                                       \
        const TraceLoggingHProvider _Tlg_provider = (provider);                                                 \
        if (__builtin_expect(TraceLoggingProviderEnabled(_Tlg_provider, _Tlg_descriptor.Level, _Tlg_descriptor.Keyword), 0)) { \
            ::traceweir::tlg::write(::traceweir::tlg::how_to_send how, _Tlg_provider, _Tlg_descriptor, &_Tlg_metadata, \
                                    sizeof(_Tlg_metadata) _TLG_EACH(_TLG_FILL, __VA_ARGS__));                   \
        }                                                                                                       \
    } while (0)

#endif /* TRACEWEIR_TLG_WRITE_CPP_H */
