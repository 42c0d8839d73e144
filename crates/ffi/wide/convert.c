/* Conversions between UTF-8 and UTF-16, and the multibyte functions of the C library that use them.
 *
 * Malformed text does not stop a conversion: each byte or unit that belongs to no code point
 * becomes U+FFFD. Only mbrtowc and mbtowc report it as an error.
 */
#include "wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The count _TRUNCATE, and the status of a text that was cut. */
#define TRUNCATE ((size_t)-1)
#define STRUNCATE 80

static uint32_t next_of_utf16(const wchar_t *units, size_t length, size_t *at) {
    uint32_t unit = units[(*at)++];
    if (unit < 0xD800 || unit > 0xDFFF)
        return unit;
    if (unit < 0xDC00 && *at < length && units[*at] >= 0xDC00 && units[*at] <= 0xDFFF)
        return 0x10000 + ((unit - 0xD800) << 10) + (units[(*at)++] - 0xDC00u);
    return REPLACEMENT_CHARACTER;
}

static uint32_t next_of_utf8(const unsigned char *bytes, size_t length, size_t *at) {
    /* The lowest code point of each size: a lower one is malformed. */
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = bytes[(*at)++];
    size_t size = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xF0 && first < 0xF5 ? 4 : 0;
    if (size == 1)
        return first;
    if (size == 0 || length - *at < size - 1)
        return REPLACEMENT_CHARACTER;
    uint32_t code_point = first & (0x7Fu >> size);
    for (size_t more = 0; more < size - 1; more++) {
        if ((bytes[*at + more] & 0xC0) != 0x80)
            return REPLACEMENT_CHARACTER;
        code_point = code_point << 6 | (bytes[*at + more] & 0x3Fu);
    }
    if (code_point < least[size] || code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF))
        return REPLACEMENT_CHARACTER;
    *at += size - 1;
    return code_point;
}

uint32_t traceweir_wide_next(const struct text *text, size_t *at) {
    return text->is_wide ? next_of_utf16(text->units, text->length, at) : next_of_utf8(text->units, text->length, at);
}

size_t traceweir_wide_to_utf8(uint32_t code_point, char *bytes) {
    if (code_point < 0x80) {
        bytes[0] = (char)code_point;
        return 1;
    }
    size_t size = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t at = size - 1; at > 0; at--, code_point >>= 6)
        bytes[at] = (char)(0x80 | (code_point & 0x3F));
    bytes[0] = (char)((0xF00u >> size & 0xFF) | code_point);
    return size;
}

size_t traceweir_wide_to_utf16(uint32_t code_point, wchar_t *units) {
    if (code_point < 0x10000) {
        units[0] = (wchar_t)code_point;
        return 1;
    }
    units[0] = (wchar_t)(0xD800 + ((code_point - 0x10000) >> 10));
    units[1] = (wchar_t)(0xDC00 + (code_point & 0x3FF));
    return 2;
}

char *traceweir_wide_narrow(const wchar_t *wide) {
    struct text text = {1, wide, wcslen(wide)};
    char *bytes = text.length < SIZE_MAX / 3 ? malloc(text.length * 3 + 1) : NULL;
    size_t size = 0;
    for (size_t at = 0; bytes && at < text.length;)
        size += traceweir_wide_to_utf8(traceweir_wide_next(&text, &at), bytes + size);
    if (bytes)
        bytes[size] = '\0';
    return bytes;
}

wchar_t *traceweir_wide_widen(const char *narrow) {
    struct text text = {0, narrow, strlen(narrow)};
    wchar_t *units = text.length < SIZE_MAX / 2 ? malloc((text.length + 1) * sizeof(wchar_t)) : NULL;
    size_t length = 0;
    for (size_t at = 0; units && at < text.length;)
        length += traceweir_wide_to_utf16(traceweir_wide_next(&text, &at), units + length);
    if (units)
        units[length] = L'\0';
    return units;
}

/* Converts a text and its terminator into at most "room" units of the other width. Returns the
 * number of units without the terminator. Without a buffer ("to" is NULL) it only counts. *rest
 * becomes NULL if everything had room, else the address of the first character without room. */
static size_t convert(struct text text, void *to, size_t room, const void **rest) {
    size_t at = 0, length = 0;
    *rest = NULL;
    while (at < text.length) {
        size_t start = at;
        uint32_t code_point = traceweir_wide_next(&text, &at);
        wchar_t units[2];
        char bytes[4];
        size_t size = text.is_wide ? traceweir_wide_to_utf8(code_point, bytes) : traceweir_wide_to_utf16(code_point, units);
        if (to && room - length < size) {
            *rest = text.is_wide ? (const void *)((const wchar_t *)text.units + start) : (const char *)text.units + start;
            return length;
        }
        if (to && text.is_wide)
            memcpy((char *)to + length, bytes, size);
        else if (to)
            memcpy((wchar_t *)to + length, units, size * sizeof(wchar_t));
        length += size;
    }
    if (to && length < room) {
        if (text.is_wide)
            ((char *)to)[length] = '\0';
        else
            ((wchar_t *)to)[length] = L'\0';
    } else if (to) {
        *rest = text.is_wide ? (const void *)((const wchar_t *)text.units + at) : (const char *)text.units + at;
    }
    return length;
}

size_t mbstowcs(wchar_t *to, const char *from, size_t room) {
    const void *rest;
    return convert((struct text){0, from, strlen(from)}, to, room, &rest);
}

size_t wcstombs(char *to, const wchar_t *from, size_t room) {
    const void *rest;
    return convert((struct text){1, from, wcslen(from)}, to, room, &rest);
}

/* Converts at most "count" units of text into a buffer of "size" units, and writes a terminator.
 * Stores the number of units with the terminator. Text that does not fit is an error, and then the
 * buffer is empty; with the count TRUNCATE, the text is cut instead. */
static int convert_bounded(struct text text, void *to, size_t size, size_t count, size_t *converted) {
    const void *rest;
    size_t ignored;
    converted = converted ? converted : &ignored;
    *converted = 0;
    if (!to != (size == 0))
        return EINVAL;
    if (!to) {
        *converted = text.units ? convert(text, NULL, 0, &rest) + 1 : 0;
        return text.units ? 0 : EINVAL;
    }
    size_t room = count < size ? count : size - 1;
    size_t length = text.units ? convert(text, to, room, &rest) : 0;
    int is_cut = text.units && rest && (text.is_wide ? *(const wchar_t *)rest != 0 : *(const char *)rest != 0);
    int status = !text.units ? EINVAL : !is_cut || count < size ? 0 : count == TRUNCATE ? STRUNCATE : ERANGE;
    if (status == ERANGE)
        length = 0;
    if (text.is_wide)
        ((char *)to)[length] = '\0';
    else
        ((wchar_t *)to)[length] = L'\0';
    *converted = status == 0 || status == STRUNCATE ? length + 1 : 0;
    return status;
}

int mbstowcs_s(size_t *converted, wchar_t *to, size_t size, const char *from, size_t count) {
    return convert_bounded((struct text){0, from, from ? strlen(from) : 0}, to, size, count, converted);
}

int wcstombs_s(size_t *converted, char *to, size_t size, const wchar_t *from, size_t count) {
    return convert_bounded((struct text){1, from, from ? wcslen(from) : 0}, to, size, count, converted);
}

size_t mbsnrtowcs(wchar_t *to, const char **from, size_t size, size_t room, mbstate_t *state) {
    const void *rest;
    size_t length = convert((struct text){0, *from, strnlen(*from, size)}, to, room, &rest);
    (void)state;
    if (to)
        *from = rest;
    return length;
}

size_t mbsrtowcs(wchar_t *to, const char **from, size_t room, mbstate_t *state) {
    return mbsnrtowcs(to, from, PTRDIFF_MAX, room, state);
}

size_t wcsnrtombs(char *to, const wchar_t **from, size_t size, size_t room, mbstate_t *state) {
    const void *rest;
    size_t length = convert((struct text){1, *from, wcsnlen(*from, size)}, to, room, &rest);
    (void)state;
    if (to)
        *from = rest;
    return length;
}

size_t wcsrtombs(char *to, const wchar_t **from, size_t room, mbstate_t *state) {
    return wcsnrtombs(to, from, PTRDIFF_MAX, room, state);
}

/* One character has to fit one unit: those above U+FFFF become U+FFFD. */
size_t mbrtowc(wchar_t *to, const char *from, size_t size, mbstate_t *state) {
    (void)state;
    if (!from)
        return 0;
    if (size == 0)
        return (size_t)-2;
    struct text text = {0, from, size};
    size_t at = 0;
    uint32_t code_point = traceweir_wide_next(&text, &at);
    /* Malformed. A U+FFFD in the text itself has three bytes. */
    if (code_point == REPLACEMENT_CHARACTER && at == 1) {
        errno = EILSEQ;
        return (size_t)-1;
    }
    if (to)
        *to = (wchar_t)(code_point < 0x10000 ? code_point : REPLACEMENT_CHARACTER);
    return code_point == 0 ? 0 : at;
}

/* MB_CUR_MAX calls this function. The functions below write UTF-8 in every locale, also in "C",
 * where the function of the C library returns 1. */
size_t __ctype_get_mb_cur_max(void) {
    return 4;
}

size_t wcrtomb(char *to, wchar_t unit, mbstate_t *state) {
    (void)state;
    if (!to)
        return 1;
    return traceweir_wide_to_utf8(unit >= 0xD800 && unit <= 0xDFFF ? REPLACEMENT_CHARACTER : unit, to);
}

int mbtowc(wchar_t *to, const char *from, size_t size) {
    size_t taken = mbrtowc(to, from, size, NULL);
    return taken >= (size_t)-2 ? -1 : (int)taken;
}

int wctomb(char *to, wchar_t unit) {
    return to ? (int)wcrtomb(to, unit, NULL) : 0;
}
