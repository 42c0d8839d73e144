/* The wide-character functions of the C library over units of 16 bits. */
#include "wide.h"

#include <stdlib.h>
#include <string.h>
#include <wctype.h>

size_t wcslen(const wchar_t *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

size_t wcsnlen(const wchar_t *text, size_t most) {
    size_t length = 0;
    while (length < most && text[length])
        length++;
    return length;
}

wchar_t *wmemcpy(wchar_t *to, const wchar_t *from, size_t count) {
    return memcpy(to, from, count * sizeof(wchar_t));
}

wchar_t *wmempcpy(wchar_t *to, const wchar_t *from, size_t count) {
    return wmemcpy(to, from, count) + count;
}

wchar_t *wmemmove(wchar_t *to, const wchar_t *from, size_t count) {
    return memmove(to, from, count * sizeof(wchar_t));
}

wchar_t *wmemset(wchar_t *to, wchar_t unit, size_t count) {
    for (size_t at = 0; at < count; at++)
        to[at] = unit;
    return to;
}

int wmemcmp(const wchar_t *a, const wchar_t *b, size_t count) {
    for (size_t at = 0; at < count; at++)
        if (a[at] != b[at])
            return a[at] < b[at] ? -1 : 1;
    return 0;
}

wchar_t *wmemchr(const wchar_t *text, wchar_t unit, size_t count) {
    for (size_t at = 0; at < count; at++)
        if (text[at] == unit)
            return (wchar_t *)(uintptr_t)(text + at);
    return NULL;
}

wchar_t *wcpcpy(wchar_t *to, const wchar_t *from) {
    size_t length = wcslen(from);
    wmemcpy(to, from, length + 1);
    return to + length;
}

wchar_t *wcscpy(wchar_t *to, const wchar_t *from) {
    return wmemcpy(to, from, wcslen(from) + 1);
}

wchar_t *wcpncpy(wchar_t *to, const wchar_t *from, size_t count) {
    size_t length = wcsnlen(from, count);
    wmemcpy(to, from, length);
    wmemset(to + length, L'\0', count - length);
    return to + length;
}

wchar_t *wcsncpy(wchar_t *to, const wchar_t *from, size_t count) {
    wcpncpy(to, from, count);
    return to;
}

wchar_t *wcscat(wchar_t *to, const wchar_t *from) {
    wcscpy(to + wcslen(to), from);
    return to;
}

wchar_t *wcsncat(wchar_t *to, const wchar_t *from, size_t count) {
    size_t start = wcslen(to), length = wcsnlen(from, count);
    wmemcpy(to + start, from, length);
    to[start + length] = L'\0';
    return to;
}

wchar_t *wcsdup(const wchar_t *text) {
    size_t size = (wcslen(text) + 1) * sizeof(wchar_t);
    wchar_t *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

wchar_t *_wcsdup(const wchar_t *text) {
    return text ? wcsdup(text) : NULL;
}

int wcsncmp(const wchar_t *a, const wchar_t *b, size_t count) {
    for (size_t at = 0; at < count; at++) {
        if (a[at] != b[at])
            return a[at] < b[at] ? -1 : 1;
        if (!a[at])
            break;
    }
    return 0;
}

int wcscmp(const wchar_t *a, const wchar_t *b) {
    return wcsncmp(a, b, SIZE_MAX);
}

int wcscoll(const wchar_t *a, const wchar_t *b) {
    return wcscmp(a, b);
}

int wcsncasecmp(const wchar_t *a, const wchar_t *b, size_t count) {
    for (size_t at = 0; at < count; at++) {
        wint_t left = towlower(a[at]), right = towlower(b[at]);
        if (left != right)
            return left < right ? -1 : 1;
        if (!left)
            break;
    }
    return 0;
}

int wcscasecmp(const wchar_t *a, const wchar_t *b) {
    return wcsncasecmp(a, b, SIZE_MAX);
}

int _wcsicmp(const wchar_t *a, const wchar_t *b) {
    return wcscasecmp(a, b);
}

int _wcsnicmp(const wchar_t *a, const wchar_t *b, size_t count) {
    return wcsncasecmp(a, b, count);
}

wchar_t *wcschrnul(const wchar_t *text, wchar_t unit) {
    while (*text && *text != unit)
        text++;
    return (wchar_t *)(uintptr_t)text;
}

wchar_t *wcschr(const wchar_t *text, wchar_t unit) {
    wchar_t *found = wcschrnul(text, unit);
    return *found == unit ? found : NULL;
}

wchar_t *wcsrchr(const wchar_t *text, wchar_t unit) {
    for (size_t at = wcslen(text) + 1; at > 0; at--)
        if (text[at - 1] == unit)
            return (wchar_t *)(uintptr_t)(text + at - 1);
    return NULL;
}

size_t wcscspn(const wchar_t *text, const wchar_t *stops) {
    size_t length = 0;
    while (text[length] && !wcschr(stops, text[length]))
        length++;
    return length;
}

size_t wcsspn(const wchar_t *text, const wchar_t *units) {
    size_t length = 0;
    while (text[length] && wcschr(units, text[length]))
        length++;
    return length;
}

wchar_t *wcspbrk(const wchar_t *text, const wchar_t *stops) {
    text += wcscspn(text, stops);
    return *text ? (wchar_t *)(uintptr_t)text : NULL;
}

wchar_t *wcsstr(const wchar_t *text, const wchar_t *part) {
    for (size_t length = wcslen(part);; text++) {
        if (wcsncmp(text, part, length) == 0)
            return (wchar_t *)(uintptr_t)text;
        if (!*text)
            return NULL;
    }
}

wchar_t *wcstok(wchar_t *text, const wchar_t *stops, wchar_t **next) {
    wchar_t *start = text ? text : *next;
    if (!start)
        return NULL;
    start += wcsspn(start, stops);
    if (!*start) {
        *next = NULL;
        return NULL;
    }
    wchar_t *end = start + wcscspn(start, stops);
    *next = *end ? end + 1 : NULL;
    *end = L'\0';
    return start;
}

wchar_t *wcstok_s(wchar_t *text, const wchar_t *stops, wchar_t **next) {
    return wcstok(text, stops, next);
}

wchar_t *_wcslwr(wchar_t *text) {
    for (wchar_t *at = text; *at; at++)
        *at = (wchar_t)towlower(*at);
    return text;
}

wchar_t *_wcsupr(wchar_t *text) {
    for (wchar_t *at = text; *at; at++)
        *at = (wchar_t)towupper(*at);
    return text;
}

wchar_t *_wcsrev(wchar_t *text) {
    for (size_t low = 0, high = wcslen(text); low + 1 < high; low++) {
        wchar_t unit = text[--high];
        text[high] = text[low];
        text[low] = unit;
    }
    return text;
}
