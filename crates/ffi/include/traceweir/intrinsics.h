/* Functions and limits that the C library of Windows has, and that this compiler knows by other
 * names. */
#ifndef TRACEWEIR_INTRINSICS_H
#define TRACEWEIR_INTRINSICS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <limits.h>

/* Byte order. */
#ifndef _byteswap_ushort
#define _byteswap_ushort(value) __builtin_bswap16(value)
#define _byteswap_ulong(value) __builtin_bswap32(value)
#define _byteswap_uint64(value) __builtin_bswap64(value)
#endif

/* Rotations. The headers of the compiler may define these as macros. */
#ifndef _rotl
static __inline__ unsigned _rotl(unsigned value, int shift) {
    return value << (shift & 31) | value >> (-shift & 31);
}
#endif
#ifndef _rotr
static __inline__ unsigned _rotr(unsigned value, int shift) {
    return value >> (shift & 31) | value << (-shift & 31);
}
#endif
static __inline__ unsigned long long _rotl64(unsigned long long value, int shift) {
    return value << (shift & 63) | value >> (-shift & 63);
}
static __inline__ unsigned long long _rotr64(unsigned long long value, int shift) {
    return value >> (shift & 63) | value << (-shift & 63);
}

/* Limits of integers by their number of bits. */
#define _I8_MIN (-127 - 1)
#define _I8_MAX 127
#define _UI8_MAX 0xFFu
#define _I16_MIN (-32767 - 1)
#define _I16_MAX 32767
#define _UI16_MAX 0xFFFFu
#define _I32_MIN (-2147483647 - 1)
#define _I32_MAX 2147483647
#define _UI32_MAX 0xFFFFFFFFu
#define _I64_MIN (-9223372036854775807ll - 1)
#define _I64_MAX 9223372036854775807ll
#define _UI64_MAX 0xFFFFFFFFFFFFFFFFull

#endif /* TRACEWEIR_INTRINSICS_H */
