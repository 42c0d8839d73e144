/* The printf family: the wide functions, Windows' additions to it, and Windows' narrow printf.
 *
 * Narrow functions have names of their own, traceweir_wide_printf and so on: only sources that
 * include traceweir/wide.h call them. Other code in the program keeps the C library's.
 */
#include "wide.h"

#include <errno.h>
#include <stdlib.h>

/* Formats into a buffer of "room" units. Returns the length that the text has without a limit. */
static int format_text(int is_wide, void *to, size_t room, const void *format, va_list arguments) {
    struct output output = {.is_wide = is_wide, .buffer = to, .capacity = room};
    return traceweir_wide_format(&output, format, arguments);
}

static int format_stream(int is_wide, FILE *file, const void *format, va_list arguments) {
    struct output output = {.is_wide = is_wide, .file = file};
    return traceweir_wide_format(&output, format, arguments);
}

static void put_nul(int is_wide, void *to, size_t at) {
    if (is_wide)
        ((wchar_t *)to)[at] = L'\0';
    else
        ((char *)to)[at] = '\0';
}

/* As snprintf of the C standard: cuts the text to leave room for a NUL, and returns the length that
 * it has without a limit. */
static int format_cut(int is_wide, void *to, size_t room, const void *format, va_list arguments) {
    int length = format_text(is_wide, to, room, format, arguments);
    if (room > 0)
        put_nul(is_wide, to, length >= 0 && (size_t)length < room ? (size_t)length : room - 1);
    return length;
}

/* As _snprintf of Windows: cuts the text, writes a NUL only if there is room left, and returns -1
 * if the text was cut. */
static int format_open(int is_wide, void *to, size_t room, const void *format, va_list arguments) {
    int length = format_text(is_wide, to, room, format, arguments);
    if (length >= 0 && (size_t)length < room)
        put_nul(is_wide, to, (size_t)length);
    return length >= 0 && (size_t)length <= room ? length : -1;
}

/* As _snprintf_s of Windows. Returns -1 if the text has more than "count" units, of which it then
 * writes "count", or does not fit: then it empties the buffer, or with the count _TRUNCATE (-1)
 * cuts the text. */
static int format_safe(int is_wide, void *to, size_t room, size_t count, const void *format, va_list arguments) {
    if (!format || (!to && room > 0) || (to && room == 0)) {
        errno = EINVAL;
        return -1;
    }
    if (!to)
        return count == 0 ? 0 : -1;
    int length = format_text(is_wide, to, room, format, arguments);
    if (length >= 0 && (size_t)length < room && (size_t)length <= count) {
        put_nul(is_wide, to, (size_t)length);
        return length;
    }
    if (length >= 0 && count < room) {
        put_nul(is_wide, to, count);
        return -1;
    }
    put_nul(is_wide, to, length >= 0 && count == (size_t)-1 ? room - 1 : 0);
    errno = ERANGE;
    return -1;
}

#define PASS_ON(call)                \
    va_list arguments;               \
    va_start(arguments, format);     \
    int length = call;               \
    va_end(arguments);               \
    return length

/* Wide. */
int vfwprintf(FILE *file, const wchar_t *format, va_list arguments) { return format_stream(1, file, format, arguments); }
int vwprintf(const wchar_t *format, va_list arguments) { return format_stream(1, stdout, format, arguments); }
int fwprintf(FILE *file, const wchar_t *format, ...) { PASS_ON(vfwprintf(file, format, arguments)); }
int wprintf(const wchar_t *format, ...) { PASS_ON(vwprintf(format, arguments)); }
int fwprintf_s(FILE *file, const wchar_t *format, ...) { PASS_ON(vfwprintf(file, format, arguments)); }
int wprintf_s(const wchar_t *format, ...) { PASS_ON(vwprintf(format, arguments)); }

int vswprintf(wchar_t *to, size_t room, const wchar_t *format, va_list arguments) {
    int length = format_cut(1, to, room, format, arguments);
    return length >= 0 && (size_t)length < room ? length : -1;
}
int swprintf(wchar_t *to, size_t room, const wchar_t *format, ...) { PASS_ON(vswprintf(to, room, format, arguments)); }
int traceweir_wide_swprintf(wchar_t *to, const wchar_t *format, ...) { PASS_ON(vswprintf(to, PTRDIFF_MAX / 4, format, arguments)); }
int vswprintf_s(wchar_t *to, size_t room, const wchar_t *format, va_list arguments) {
    return format_safe(1, to, room, PTRDIFF_MAX, format, arguments);
}
int swprintf_s(wchar_t *to, size_t room, const wchar_t *format, ...) { PASS_ON(vswprintf_s(to, room, format, arguments)); }
int _vsnwprintf(wchar_t *to, size_t room, const wchar_t *format, va_list arguments) { return format_open(1, to, room, format, arguments); }
int _snwprintf(wchar_t *to, size_t room, const wchar_t *format, ...) { PASS_ON(_vsnwprintf(to, room, format, arguments)); }
int _vsnwprintf_s(wchar_t *to, size_t room, size_t count, const wchar_t *format, va_list arguments) {
    return format_safe(1, to, room, count, format, arguments);
}
int _snwprintf_s(wchar_t *to, size_t room, size_t count, const wchar_t *format, ...) {
    PASS_ON(_vsnwprintf_s(to, room, count, format, arguments));
}
int _vscwprintf(const wchar_t *format, va_list arguments) { return format_text(1, NULL, 0, format, arguments); }
int _scwprintf(const wchar_t *format, ...) { PASS_ON(_vscwprintf(format, arguments)); }

/* Narrow. */
int traceweir_wide_vfprintf(FILE *file, const char *format, va_list arguments) { return format_stream(0, file, format, arguments); }
int traceweir_wide_vprintf(const char *format, va_list arguments) { return format_stream(0, stdout, format, arguments); }
int traceweir_wide_fprintf(FILE *file, const char *format, ...) { PASS_ON(format_stream(0, file, format, arguments)); }
int traceweir_wide_printf(const char *format, ...) { PASS_ON(format_stream(0, stdout, format, arguments)); }
int traceweir_wide_vsnprintf(char *to, size_t room, const char *format, va_list arguments) {
    return format_cut(0, to, room, format, arguments);
}
int traceweir_wide_snprintf(char *to, size_t room, const char *format, ...) { PASS_ON(format_cut(0, to, room, format, arguments)); }
int traceweir_wide_vsprintf(char *to, const char *format, va_list arguments) {
    return format_cut(0, to, PTRDIFF_MAX, format, arguments);
}
int traceweir_wide_sprintf(char *to, const char *format, ...) { PASS_ON(format_cut(0, to, PTRDIFF_MAX, format, arguments)); }
int printf_s(const char *format, ...) { PASS_ON(format_stream(0, stdout, format, arguments)); }
int fprintf_s(FILE *file, const char *format, ...) { PASS_ON(format_stream(0, file, format, arguments)); }
int vsprintf_s(char *to, size_t room, const char *format, va_list arguments) {
    return format_safe(0, to, room, PTRDIFF_MAX, format, arguments);
}
int sprintf_s(char *to, size_t room, const char *format, ...) { PASS_ON(vsprintf_s(to, room, format, arguments)); }
int _vsnprintf(char *to, size_t room, const char *format, va_list arguments) { return format_open(0, to, room, format, arguments); }
int _snprintf(char *to, size_t room, const char *format, ...) { PASS_ON(_vsnprintf(to, room, format, arguments)); }
int _vsnprintf_s(char *to, size_t room, size_t count, const char *format, va_list arguments) {
    return format_safe(0, to, room, count, format, arguments);
}
int _snprintf_s(char *to, size_t room, size_t count, const char *format, ...) {
    PASS_ON(_vsnprintf_s(to, room, count, format, arguments));
}
int _vscprintf(const char *format, va_list arguments) { return format_text(0, NULL, 0, format, arguments); }
int _scprintf(const char *format, ...) { PASS_ON(_vscprintf(format, arguments)); }

/* wsprintf writes at most 1024 units, with the NUL. */
int wvsprintfW(wchar_t *to, const wchar_t *format, va_list arguments) {
    int length = format_cut(1, to, 1024, format, arguments);
    return length > 1023 ? 1023 : length;
}
int wvsprintfA(char *to, const char *format, va_list arguments) {
    int length = format_cut(0, to, 1024, format, arguments);
    return length > 1023 ? 1023 : length;
}
int wsprintfW(wchar_t *to, const wchar_t *format, ...) { PASS_ON(wvsprintfW(to, format, arguments)); }
int wsprintfA(char *to, const char *format, ...) { PASS_ON(wvsprintfA(to, format, arguments)); }
