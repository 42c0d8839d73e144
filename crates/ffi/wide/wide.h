/* What the sources of libtraceweir-wide share.
 *
 * The library is compiled with -fshort-wchar, so wchar_t is WCHAR here. Narrow text is UTF-8.
 * Functions have the names of the C library and are hidden (build.sh): they serve the program or
 * shared object that they are linked into, and no other code of the process.
 */
#ifndef TRACEWEIR_WIDE_SOURCES_H
#define TRACEWEIR_WIDE_SOURCES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

_Static_assert(sizeof(wchar_t) == 2, "compile with -fshort-wchar");

/* Text of one width: UTF-8 or UTF-16. */
struct text {
    int is_wide;
    const void *units;
    size_t length;
};

/* What replaces malformed text. */
#define REPLACEMENT_CHARACTER 0xFFFDu

/* Returns the code point that begins at *at, and moves *at to the next one. */
uint32_t traceweir_wide_next(const struct text *text, size_t *at);
/* Writes a code point as UTF-8 and returns the number of bytes: at most 4. */
size_t traceweir_wide_to_utf8(uint32_t code_point, char *bytes);
/* Writes a code point as UTF-16 and returns the number of units: at most 2. */
size_t traceweir_wide_to_utf16(uint32_t code_point, wchar_t *units);
/* Returns wide text as UTF-8 in memory for free(), or NULL if there is no memory. */
char *traceweir_wide_narrow(const wchar_t *text);
/* Returns UTF-8 as wide text in memory for free(), or NULL if there is no memory. */
wchar_t *traceweir_wide_widen(const char *text);

/* The destination of formatted text: a buffer of "capacity" units, or a stream ("file"). "length"
 * counts all units, whether they fit or not. "chunk" has bytes that are not written to the stream
 * yet, and "high_surrogate" the first half of a pair whose second half has not come yet, or 0. */
struct output {
    int is_wide;
    void *buffer;
    size_t capacity;
    size_t length;
    FILE *file;
    int has_failed;
    uint32_t high_surrogate;
    size_t chunk_length;
    char chunk[512];
};

/* Formats as Windows' C library does. The format has the width of the output. Returns the number of
 * units, or -1. */
int traceweir_wide_format(struct output *output, const void *format, va_list arguments);
/* Writes one unit of text. */
void traceweir_wide_put(struct output *output, uint32_t unit);
/* Writes the bytes of the chunk to the stream. */
void traceweir_wide_flush(struct output *output);

#endif
