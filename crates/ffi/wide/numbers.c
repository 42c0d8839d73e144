/* Conversions between wide text and numbers.
 *
 * Numbers are ASCII: the start of a text that can belong to a number is copied as narrow text,
 * which the functions for narrow text read.
 */
#include "wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

/* Skips spaces, stores their number, and copies the ASCII characters after them up to a space.
 * Returns memory for free(), or "small" if it has room. */
static char *narrow_front(const wchar_t *text, char *small, size_t room, size_t *spaces) {
    size_t length = 0;
    *spaces = 0;
    while (iswspace(text[*spaces]))
        ++*spaces;
    text += *spaces;
    while (text[length] > ' ' && text[length] < 0x7F)
        length++;
    char *front = length < room ? small : malloc(length + 1);
    if (!front) {
        length = room - 1;
        front = small;
    }
    for (size_t at = 0; at < length; at++)
        front[at] = (char)text[at];
    front[length] = '\0';
    return front;
}

static void set_end(const wchar_t *text, wchar_t **end, size_t spaces, size_t used) {
    if (end)
        *end = (wchar_t *)(uintptr_t)(text + (used ? spaces + used : 0));
}

#define READ_NUMBER(type, call)                        \
    char small[128];                                   \
    size_t spaces;                                     \
    char *front = narrow_front(text, small, sizeof small, &spaces), *stop = front; \
    type number = call;                                \
    set_end(text, end, spaces, (size_t)(stop - front)); \
    if (front != small)                                \
        free(front);                                   \
    return number

static long long read_wcstoll(const wchar_t *text, wchar_t **end, int base) {
    READ_NUMBER(long long, strtoll(front, &stop, base));
}

static unsigned long long read_wcstoull(const wchar_t *text, wchar_t **end, int base) {
    READ_NUMBER(unsigned long long, strtoull(front, &stop, base));
}

double wcstod(const wchar_t *text, wchar_t **end) {
    READ_NUMBER(double, strtod(front, &stop));
}

float wcstof(const wchar_t *text, wchar_t **end) {
    READ_NUMBER(float, strtof(front, &stop));
}

long double wcstold(const wchar_t *text, wchar_t **end) {
    READ_NUMBER(long double, strtold(front, &stop));
}

/* Windows' long has 32 bits: larger numbers are out of range. */
static long read_wcstol(const wchar_t *text, wchar_t **end, int base) {
    long long number = read_wcstoll(text, end, base);
    if (number >= INT32_MIN && number <= INT32_MAX)
        return (long)number;
    errno = ERANGE;
    return number < 0 ? INT32_MIN : INT32_MAX;
}

static unsigned long read_wcstoul(const wchar_t *text, wchar_t **end, int base) {
    int error = errno;
    errno = 0;
    unsigned long long number = read_wcstoull(text, end, base);
    const wchar_t *sign = text;
    while (iswspace(*sign))
        sign++;
    /* With a minus sign, the absolute value must be in range. */
    unsigned long long size = *sign == L'-' ? 0 - number : number;
    if (errno == ERANGE || size > UINT32_MAX) {
        errno = ERANGE;
        return UINT32_MAX;
    }
    errno = error;
    return (uint32_t)number;
}

/* Each function has two names: newer headers of the C library use the second. */
#define DEFINE_READER(type, name, symbol, number)                                            \
    type name##_##number(const wchar_t *, wchar_t **, int) __asm__(symbol);                  \
    type name##_##number(const wchar_t *text, wchar_t **end, int base) {                     \
        return read_##name(text, end, base);                                                 \
    }
DEFINE_READER(long, wcstol, "wcstol", 1)
DEFINE_READER(long, wcstol, "__isoc23_wcstol", 2)
DEFINE_READER(unsigned long, wcstoul, "wcstoul", 1)
DEFINE_READER(unsigned long, wcstoul, "__isoc23_wcstoul", 2)
DEFINE_READER(long long, wcstoll, "wcstoll", 1)
DEFINE_READER(long long, wcstoll, "__isoc23_wcstoll", 2)
DEFINE_READER(unsigned long long, wcstoull, "wcstoull", 1)
DEFINE_READER(unsigned long long, wcstoull, "__isoc23_wcstoull", 2)

long long _wcstoi64(const wchar_t *text, wchar_t **end, int base) {
    return read_wcstoll(text, end, base);
}

unsigned long long _wcstoui64(const wchar_t *text, wchar_t **end, int base) {
    return read_wcstoull(text, end, base);
}

int _wtoi(const wchar_t *text) {
    return text ? (int)read_wcstol(text, NULL, 10) : 0;
}

int _wtol(const wchar_t *text) {
    return _wtoi(text);
}

long long _wtoi64(const wchar_t *text) {
    return text ? read_wcstoll(text, NULL, 10) : 0;
}

double _wtof(const wchar_t *text) {
    return text ? wcstod(text, NULL) : 0;
}

/* Writes a number and returns the units without the NUL: at most 65. */
static size_t write_number(uint64_t number, int is_negative, unsigned base, wchar_t *text) {
    wchar_t digits[66];
    size_t count = 0, length = 0;
    do {
        digits[count++] = (wchar_t)L"0123456789abcdefghijklmnopqrstuvwxyz"[number % base];
        number /= base;
    } while (number);
    if (is_negative)
        text[length++] = L'-';
    while (count)
        text[length++] = digits[--count];
    text[length] = L'\0';
    return length;
}

/* Writes "number" if it is negative and the base is 10. Otherwise writes "others": the same bits
 * without a sign. */
static wchar_t *write_signed(int64_t number, uint64_t others, wchar_t *text, int base) {
    if (base < 2 || base > 36) {
        text[0] = L'\0';
        errno = EINVAL;
    } else if (base == 10 && number < 0) {
        write_number(0 - (uint64_t)number, 1, 10, text);
    } else {
        write_number(others, 0, (unsigned)base, text);
    }
    return text;
}

wchar_t *_itow(int number, wchar_t *text, int base) {
    return write_signed(number, (unsigned)number, text, base);
}

wchar_t *_ltow(int number, wchar_t *text, int base) {
    return _itow(number, text, base);
}

wchar_t *_i64tow(long long number, wchar_t *text, int base) {
    return write_signed(number, (uint64_t)number, text, base);
}

wchar_t *_ui64tow(unsigned long long number, wchar_t *text, int base) {
    return write_signed(0, number, text, base);
}

wchar_t *_ultow(unsigned number, wchar_t *text, int base) {
    return write_signed(0, number, text, base);
}

static int write_bounded(int64_t number, uint64_t others, wchar_t *text, size_t room, int base) {
    wchar_t written[67];
    if (!text || room == 0 || base < 2 || base > 36)
        return EINVAL;
    size_t length = wcslen(write_signed(number, others, written, base));
    text[0] = L'\0';
    if (length >= room)
        return ERANGE;
    wmemcpy(text, written, length + 1);
    return 0;
}

int _itow_s(int number, wchar_t *text, size_t room, int base) {
    return write_bounded(number, (unsigned)number, text, room, base);
}

int _ultow_s(unsigned number, wchar_t *text, size_t room, int base) {
    return write_bounded(0, number, text, room, base);
}

int _i64tow_s(long long number, wchar_t *text, size_t room, int base) {
    return write_bounded(number, (uint64_t)number, text, room, base);
}

int _ui64tow_s(unsigned long long number, wchar_t *text, size_t room, int base) {
    return write_bounded(0, number, text, room, base);
}
