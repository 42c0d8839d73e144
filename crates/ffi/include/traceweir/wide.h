/* Windows' C library where it differs from Linux's, for programs that are compiled with
 * -fshort-wchar and linked with libtraceweir-wide. The compiler includes this file before all
 * others (pkg-config --cflags traceweir-wide, weir cc --wide), so sources stay as they are:
 *
 *   - Wide functions of wchar.h take a wchar_t of 16 bits. This needs no declaration here: the
 *     linker finds them in the library.
 *   - Formats have Windows' size letters: %I64u, %lu for 32 bits, %S, %hs, %ws, %wZ; %s is wide in
 *     wprintf. This applies to narrow printf and scanf as well.
 *   - The functions that only Windows has: wcscpy_s, _wcsicmp, swprintf_s, _wfopen …
 *   - A program may have wmain instead of main.
 *
 * Text in streams, file names and narrow strings is UTF-8.
 */
#ifndef TRACEWEIR_WIDE_H
#define TRACEWEIR_WIDE_H

#if __SIZEOF_WCHAR_T__ != 2
#error "compile with -fshort-wchar: traceweir/wide.h is for a wchar_t of 16 bits"
#endif

#pragma GCC system_header

/* The checked and inline variants of the C library call functions for its own formats and its own
 * wchar_t. */
#undef _FORTIFY_SOURCE
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>
#ifdef __cplusplus
#include <cstdio> /* Included later, it would remove the macros for scanf. */
#endif

/* The C library's size letter for 64 bits is "l". */
#undef PRId64
#define PRId64 "lld"
#undef PRIi64
#define PRIi64 "lli"
#undef PRIo64
#define PRIo64 "llo"
#undef PRIu64
#define PRIu64 "llu"
#undef PRIx64
#define PRIx64 "llx"
#undef PRIX64
#define PRIX64 "llX"
#undef PRIdLEAST64
#define PRIdLEAST64 "lld"
#undef PRIiLEAST64
#define PRIiLEAST64 "lli"
#undef PRIoLEAST64
#define PRIoLEAST64 "llo"
#undef PRIuLEAST64
#define PRIuLEAST64 "llu"
#undef PRIxLEAST64
#define PRIxLEAST64 "llx"
#undef PRIXLEAST64
#define PRIXLEAST64 "llX"
#undef PRIdFAST16
#define PRIdFAST16 "lld"
#undef PRIiFAST16
#define PRIiFAST16 "lli"
#undef PRIoFAST16
#define PRIoFAST16 "llo"
#undef PRIuFAST16
#define PRIuFAST16 "llu"
#undef PRIxFAST16
#define PRIxFAST16 "llx"
#undef PRIXFAST16
#define PRIXFAST16 "llX"
#undef PRIdFAST32
#define PRIdFAST32 "lld"
#undef PRIiFAST32
#define PRIiFAST32 "lli"
#undef PRIoFAST32
#define PRIoFAST32 "llo"
#undef PRIuFAST32
#define PRIuFAST32 "llu"
#undef PRIxFAST32
#define PRIxFAST32 "llx"
#undef PRIXFAST32
#define PRIXFAST32 "llX"
#undef PRIdFAST64
#define PRIdFAST64 "lld"
#undef PRIiFAST64
#define PRIiFAST64 "lli"
#undef PRIoFAST64
#define PRIoFAST64 "llo"
#undef PRIuFAST64
#define PRIuFAST64 "llu"
#undef PRIxFAST64
#define PRIxFAST64 "llx"
#undef PRIXFAST64
#define PRIXFAST64 "llX"
#undef PRIdMAX
#define PRIdMAX "lld"
#undef PRIiMAX
#define PRIiMAX "lli"
#undef PRIoMAX
#define PRIoMAX "llo"
#undef PRIuMAX
#define PRIuMAX "llu"
#undef PRIxMAX
#define PRIxMAX "llx"
#undef PRIXMAX
#define PRIXMAX "llX"
#undef PRIdPTR
#define PRIdPTR "Id"
#undef PRIiPTR
#define PRIiPTR "Ii"
#undef PRIoPTR
#define PRIoPTR "Io"
#undef PRIuPTR
#define PRIuPTR "Iu"
#undef PRIxPTR
#define PRIxPTR "Ix"
#undef PRIXPTR
#define PRIXPTR "IX"
#undef SCNd64
#define SCNd64 "lld"
#undef SCNi64
#define SCNi64 "lli"
#undef SCNo64
#define SCNo64 "llo"
#undef SCNu64
#define SCNu64 "llu"
#undef SCNx64
#define SCNx64 "llx"
#undef SCNdLEAST64
#define SCNdLEAST64 "lld"
#undef SCNiLEAST64
#define SCNiLEAST64 "lli"
#undef SCNoLEAST64
#define SCNoLEAST64 "llo"
#undef SCNuLEAST64
#define SCNuLEAST64 "llu"
#undef SCNxLEAST64
#define SCNxLEAST64 "llx"
#undef SCNdFAST16
#define SCNdFAST16 "lld"
#undef SCNiFAST16
#define SCNiFAST16 "lli"
#undef SCNoFAST16
#define SCNoFAST16 "llo"
#undef SCNuFAST16
#define SCNuFAST16 "llu"
#undef SCNxFAST16
#define SCNxFAST16 "llx"
#undef SCNdFAST32
#define SCNdFAST32 "lld"
#undef SCNiFAST32
#define SCNiFAST32 "lli"
#undef SCNoFAST32
#define SCNoFAST32 "llo"
#undef SCNuFAST32
#define SCNuFAST32 "llu"
#undef SCNxFAST32
#define SCNxFAST32 "llx"
#undef SCNdFAST64
#define SCNdFAST64 "lld"
#undef SCNiFAST64
#define SCNiFAST64 "lli"
#undef SCNoFAST64
#define SCNoFAST64 "llo"
#undef SCNuFAST64
#define SCNuFAST64 "llu"
#undef SCNxFAST64
#define SCNxFAST64 "llx"
#undef SCNdMAX
#define SCNdMAX "lld"
#undef SCNiMAX
#define SCNiMAX "lli"
#undef SCNoMAX
#define SCNoMAX "llo"
#undef SCNuMAX
#define SCNuMAX "llu"
#undef SCNxMAX
#define SCNxMAX "llx"
#undef SCNdPTR
#define SCNdPTR "Id"
#undef SCNiPTR
#define SCNiPTR "Ii"
#undef SCNoPTR
#define SCNoPTR "Io"
#undef SCNuPTR
#define SCNuPTR "Iu"
#undef SCNxPTR
#define SCNxPTR "Ix"

#ifndef _ERRNO_T_DEFINED
#define _ERRNO_T_DEFINED
typedef int errno_t;
#endif
#define _TRUNCATE ((size_t)-1)
#define STRUNCATE 80
#ifndef _countof
#define _countof(array) (sizeof(array) / sizeof((array)[0]))
#endif

#ifdef __cplusplus
#define TRACEWEIR_NOTHROW noexcept
extern "C" {
#else
#define TRACEWEIR_NOTHROW
#endif

/* Narrow formatted output. */
int printf(const char *format, ...) __asm__("traceweir_wide_printf");
int fprintf(FILE *stream, const char *format, ...) __asm__("traceweir_wide_fprintf");
int sprintf(char *buffer, const char *format, ...) TRACEWEIR_NOTHROW __asm__("traceweir_wide_sprintf");
int snprintf(char *buffer, size_t count, const char *format, ...) TRACEWEIR_NOTHROW __asm__("traceweir_wide_snprintf");
int vprintf(const char *format, va_list arguments) __asm__("traceweir_wide_vprintf");
int vfprintf(FILE *stream, const char *format, va_list arguments) __asm__("traceweir_wide_vfprintf");
int vsprintf(char *buffer, const char *format, va_list arguments) TRACEWEIR_NOTHROW __asm__("traceweir_wide_vsprintf");
int vsnprintf(char *buffer, size_t count, const char *format, va_list arguments) TRACEWEIR_NOTHROW
    __asm__("traceweir_wide_vsnprintf");
int printf_s(const char *format, ...);
int fprintf_s(FILE *stream, const char *format, ...);
int sprintf_s(char *buffer, size_t size, const char *format, ...);
int vsprintf_s(char *buffer, size_t size, const char *format, va_list arguments);
int _snprintf(char *buffer, size_t count, const char *format, ...);
int _vsnprintf(char *buffer, size_t count, const char *format, va_list arguments);
int _snprintf_s(char *buffer, size_t size, size_t count, const char *format, ...);
int _vsnprintf_s(char *buffer, size_t size, size_t count, const char *format, va_list arguments);
int _scprintf(const char *format, ...);
int _vscprintf(const char *format, va_list arguments);

/* Wide formatted output. */
int wprintf_s(const wchar_t *format, ...);
int fwprintf_s(FILE *stream, const wchar_t *format, ...);
int swprintf_s(wchar_t *buffer, size_t size, const wchar_t *format, ...);
int vswprintf_s(wchar_t *buffer, size_t size, const wchar_t *format, va_list arguments);
int _snwprintf(wchar_t *buffer, size_t count, const wchar_t *format, ...);
int _vsnwprintf(wchar_t *buffer, size_t count, const wchar_t *format, va_list arguments);
int _snwprintf_s(wchar_t *buffer, size_t size, size_t count, const wchar_t *format, ...);
int _vsnwprintf_s(wchar_t *buffer, size_t size, size_t count, const wchar_t *format, va_list arguments);
int _scwprintf(const wchar_t *format, ...);
int _vscwprintf(const wchar_t *format, va_list arguments);
int wsprintfA(char *buffer, const char *format, ...);
int wsprintfW(wchar_t *buffer, const wchar_t *format, ...);
int wvsprintfA(char *buffer, const char *format, va_list arguments);
int wvsprintfW(wchar_t *buffer, const wchar_t *format, va_list arguments);
#ifdef UNICODE
#define wsprintf wsprintfW
#define wvsprintf wvsprintfW
#else
#define wsprintf wsprintfA
#define wvsprintf wvsprintfA
#endif

/* Text. Functions with "_s" return an errno: ERANGE when the text does not fit, and then the buffer
 * is empty; with the count _TRUNCATE they cut it and return STRUNCATE. */
errno_t wcscpy_s(wchar_t *to, size_t size, const wchar_t *from);
errno_t wcsncpy_s(wchar_t *to, size_t size, const wchar_t *from, size_t count);
errno_t wcscat_s(wchar_t *to, size_t size, const wchar_t *from);
errno_t wcsncat_s(wchar_t *to, size_t size, const wchar_t *from, size_t count);
size_t wcsnlen_s(const wchar_t *text, size_t size);
wchar_t *wcstok_s(wchar_t *text, const wchar_t *stops, wchar_t **context);
errno_t wmemcpy_s(wchar_t *to, size_t size, const wchar_t *from, size_t count);
int _wcsicmp(const wchar_t *a, const wchar_t *b);
int _wcsnicmp(const wchar_t *a, const wchar_t *b, size_t count);
wchar_t *_wcsdup(const wchar_t *text);
wchar_t *_wcslwr(wchar_t *text);
wchar_t *_wcsupr(wchar_t *text);
wchar_t *_wcsrev(wchar_t *text);
errno_t strcpy_s(char *to, size_t size, const char *from);
errno_t strncpy_s(char *to, size_t size, const char *from, size_t count);
errno_t strcat_s(char *to, size_t size, const char *from);
errno_t strncat_s(char *to, size_t size, const char *from, size_t count);
size_t strnlen_s(const char *text, size_t size);
char *strtok_s(char *text, const char *stops, char **context);
errno_t memcpy_s(void *to, size_t size, const void *from, size_t count);
errno_t memmove_s(void *to, size_t size, const void *from, size_t count);
int _stricmp(const char *a, const char *b);
int _strnicmp(const char *a, const char *b, size_t count);
char *_strdup(const char *text);

/* Conversions between narrow and wide text. *converted becomes the number of units written or, if
 * "to" is NULL, needed, with the NUL. */
errno_t mbstowcs_s(size_t *converted, wchar_t *to, size_t size, const char *from, size_t count);
errno_t wcstombs_s(size_t *converted, char *to, size_t size, const wchar_t *from, size_t count);

/* Numbers. */
int _wtoi(const wchar_t *text);
int _wtol(const wchar_t *text);
long long _wtoi64(const wchar_t *text);
double _wtof(const wchar_t *text);
long long _wcstoi64(const wchar_t *text, wchar_t **end, int base);
unsigned long long _wcstoui64(const wchar_t *text, wchar_t **end, int base);
wchar_t *_itow(int value, wchar_t *text, int base);
wchar_t *_ltow(int value, wchar_t *text, int base);
wchar_t *_ultow(unsigned value, wchar_t *text, int base);
wchar_t *_i64tow(long long value, wchar_t *text, int base);
wchar_t *_ui64tow(unsigned long long value, wchar_t *text, int base);
errno_t _itow_s(int value, wchar_t *text, size_t size, int base);
errno_t _ultow_s(unsigned value, wchar_t *text, size_t size, int base);
errno_t _i64tow_s(long long value, wchar_t *text, size_t size, int base);
errno_t _ui64tow_s(unsigned long long value, wchar_t *text, size_t size, int base);
#ifndef _strtoi64
#define _strtoi64 strtoll
#define _strtoui64 strtoull
#define _atoi64 atoll
#endif

#include "intrinsics.h"

/* Formatted input. After each argument for %s, %c and %[, the size of its buffer is passed. */
int swscanf_s(const wchar_t *text, const wchar_t *format, ...);
int vswscanf_s(const wchar_t *text, const wchar_t *format, va_list arguments);
int scanf_s(const char *format, ...);
int fscanf_s(FILE *stream, const char *format, ...);
int sscanf_s(const char *text, const char *format, ...);
int vscanf_s(const char *format, va_list arguments);
int vfscanf_s(FILE *stream, const char *format, va_list arguments);
int vsscanf_s(const char *text, const char *format, va_list arguments);

/* Narrow formatted input. These are macros because stdio.h gives these functions other symbols
 * already, and a function can have only one. */
int traceweir_wide_scanf(const char *format, ...);
int traceweir_wide_fscanf(FILE *stream, const char *format, ...);
int traceweir_wide_sscanf(const char *text, const char *format, ...);
int traceweir_wide_vscanf(const char *format, va_list arguments);
int traceweir_wide_vfscanf(FILE *stream, const char *format, va_list arguments);
int traceweir_wide_vsscanf(const char *text, const char *format, va_list arguments);
#undef scanf
#define scanf traceweir_wide_scanf
#undef fscanf
#define fscanf traceweir_wide_fscanf
#undef sscanf
#define sscanf traceweir_wide_sscanf
#undef vscanf
#define vscanf traceweir_wide_vscanf
#undef vfscanf
#define vfscanf traceweir_wide_vfscanf
#undef vsscanf
#define vsscanf traceweir_wide_vsscanf

/* Streams and files. */
int _putws(const wchar_t *text);
FILE *_wfopen(const wchar_t *path, const wchar_t *mode);
errno_t _wfopen_s(FILE **stream, const wchar_t *path, const wchar_t *mode);
errno_t fopen_s(FILE **stream, const char *path, const char *mode);
int _wremove(const wchar_t *path);
char *_fullpath(char *full, const char *path, size_t size);
wchar_t *_wfullpath(wchar_t *full, const wchar_t *path, size_t size);

#ifdef __cplusplus
}

namespace std {
using ::traceweir_wide_fscanf;
using ::traceweir_wide_scanf;
using ::traceweir_wide_sscanf;
using ::traceweir_wide_vfscanf;
using ::traceweir_wide_vscanf;
using ::traceweir_wide_vsscanf;
}

/* In C++, functions with "_s" know the size of an array. */
extern "C++" {
int swprintf(wchar_t *buffer, const wchar_t *format, ...) __asm__("traceweir_wide_swprintf");
template <size_t Size>
inline errno_t wcscpy_s(wchar_t (&to)[Size], const wchar_t *from) {
    return wcscpy_s(to, Size, from);
}
template <size_t Size>
inline errno_t wcsncpy_s(wchar_t (&to)[Size], const wchar_t *from, size_t count) {
    return wcsncpy_s(to, Size, from, count);
}
template <size_t Size>
inline errno_t wcscat_s(wchar_t (&to)[Size], const wchar_t *from) {
    return wcscat_s(to, Size, from);
}
template <size_t Size>
inline errno_t wcsncat_s(wchar_t (&to)[Size], const wchar_t *from, size_t count) {
    return wcsncat_s(to, Size, from, count);
}
template <size_t Size>
inline errno_t strcpy_s(char (&to)[Size], const char *from) {
    return strcpy_s(to, Size, from);
}
template <size_t Size>
inline errno_t strncpy_s(char (&to)[Size], const char *from, size_t count) {
    return strncpy_s(to, Size, from, count);
}
template <size_t Size>
inline errno_t strcat_s(char (&to)[Size], const char *from) {
    return strcat_s(to, Size, from);
}
template <size_t Size>
inline int vswprintf_s(wchar_t (&to)[Size], const wchar_t *format, va_list arguments) {
    return vswprintf_s(to, Size, format, arguments);
}
template <size_t Size, typename... Arguments>
inline int swprintf_s(wchar_t (&to)[Size], const wchar_t *format, Arguments... arguments) {
    return swprintf_s(static_cast<wchar_t *>(to), Size, format, arguments...);
}
template <size_t Size, typename... Arguments>
inline int _snwprintf_s(wchar_t (&to)[Size], size_t count, const wchar_t *format, Arguments... arguments) {
    return _snwprintf_s(static_cast<wchar_t *>(to), Size, count, format, arguments...);
}
template <size_t Size, typename... Arguments>
inline int sprintf_s(char (&to)[Size], const char *format, Arguments... arguments) {
    return sprintf_s(static_cast<char *>(to), Size, format, arguments...);
}
template <size_t Size, typename... Arguments>
inline int _snprintf_s(char (&to)[Size], size_t count, const char *format, Arguments... arguments) {
    return _snprintf_s(static_cast<char *>(to), Size, count, format, arguments...);
}
}
#endif

/* With TRACEWEIR_SAL1, sal.h defines __in and __out, with which sources annotate parameters. The
 * headers of C++ have these names, too. So they are included here, before sal.h; if a source
 * includes one of them later, that has no effect. */
#if defined(__cplusplus) && defined(TRACEWEIR_SAL1)
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <queue>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>
#endif

#endif /* TRACEWEIR_WIDE_H */
