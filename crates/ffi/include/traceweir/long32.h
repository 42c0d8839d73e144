/* The macros for 64-bit constants, for sources in which "weir cc --32-bit-long" rewrites "long".
 * Here they append the suffix LL, which is not rewritten; those of the C library append L. */
#ifndef TRACEWEIR_LONG32_H
#define TRACEWEIR_LONG32_H

#pragma GCC system_header

#include <stdint.h>

#undef INT64_C
#undef UINT64_C
#undef INTMAX_C
#undef UINTMAX_C
#define INT64_C(number) number##LL
#define UINT64_C(number) number##ULL
#define INTMAX_C(number) number##LL
#define UINTMAX_C(number) number##ULL

#endif /* TRACEWEIR_LONG32_H */
