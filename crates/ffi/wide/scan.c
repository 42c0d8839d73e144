/* swscanf and swscanf_s with Windows' size letters: see format.c for their meaning.
 *
 * %s, %c and %[ store wide text, with the size h narrow text. In swscanf_s the size of the buffer
 * follows each of them, in units of its width.
 */
#include "wide.h"

#include <stdlib.h>
#include <string.h>
#include <wctype.h>

long long _wcstoi64(const wchar_t *text, wchar_t **end, int base);
unsigned long long _wcstoui64(const wchar_t *text, wchar_t **end, int base);
int swscanf_s(const wchar_t *text, const wchar_t *format, ...);

enum size { SIZE_INT, SIZE_CHAR, SIZE_SHORT, SIZE_64 };

struct scan {
    const wchar_t *text;
    const wchar_t *start;
    int has_sizes;
    int stored;
    va_list arguments;
};

struct field {
    int is_skipped;
    size_t width;
    enum size size;
    int is_narrow;
};

static int skip_word(const wchar_t **format, const wchar_t *word) {
    size_t length = wcslen(word);
    if (wcsncmp(*format, word, length) != 0)
        return 0;
    *format += length;
    return 1;
}

static struct field read_field(const wchar_t **format) {
    struct field field = {.is_skipped = skip_word(format, L"*")};
    for (; iswdigit(**format); ++*format)
        field.width = field.width > 100000000 ? field.width : field.width * 10 + (size_t)(**format - L'0');
    if (skip_word(format, L"hh"))
        field.size = SIZE_CHAR;
    else if (skip_word(format, L"h"))
        field.size = SIZE_SHORT, field.is_narrow = 1;
    else if (skip_word(format, L"ll") || skip_word(format, L"I64") || skip_word(format, L"j") || skip_word(format, L"z") || skip_word(format, L"t"))
        field.size = SIZE_64;
    else if (skip_word(format, L"I32") || skip_word(format, L"l") || skip_word(format, L"w") || skip_word(format, L"L"))
        field.size = SIZE_INT;
    else if (skip_word(format, L"I"))
        field.size = SIZE_64;
    return field;
}

/* Returns the "]" that ends the set of %[…], or NULL. As the first character, "]" belongs to the
 * set. */
static const wchar_t *end_of_set(const wchar_t *set) {
    if (*set == L'^')
        set++;
    return *set ? wcschr(set + 1, L']') : NULL;
}

static int is_in_set(const wchar_t *set, const wchar_t *end, wchar_t unit) {
    int is_negated = *set == L'^', is_found = 0;
    for (set += is_negated; set < end; set++) {
        if (set + 2 < end && set[1] == L'-') {
            is_found |= unit >= set[0] && unit <= set[2];
            set += 2;
        } else {
            is_found |= unit == *set;
        }
    }
    return is_found != is_negated;
}

static int store_number(struct scan *scan, const struct field *field, wchar_t letter) {
    wchar_t digits[72];
    size_t most = field->width && field->width < 71 ? field->width : 71;
    int base = letter == L'd' || letter == L'u' ? 10 : letter == L'o' ? 8 : letter == L'i' ? 0 : 16;
    wchar_t *end;
    while (iswspace(*scan->text))
        scan->text++;
    wcsncpy(digits, scan->text, most);
    digits[most] = L'\0';
    uint64_t number = letter == L'd' || letter == L'i' ? (uint64_t)_wcstoi64(digits, &end, base) : _wcstoui64(digits, &end, base);
    if (end == digits)
        return 0;
    scan->text += end - digits;
    if (field->is_skipped)
        return 1;
    void *to = va_arg(scan->arguments, void *);
    if (field->size == SIZE_64 || letter == L'p')
        *(uint64_t *)to = number;
    else if (field->size == SIZE_SHORT)
        *(uint16_t *)to = (uint16_t)number;
    else if (field->size == SIZE_CHAR)
        *(uint8_t *)to = (uint8_t)number;
    else
        *(uint32_t *)to = (uint32_t)number;
    scan->stored++;
    return 1;
}

static int store_float(struct scan *scan, const struct field *field, int is_double) {
    wchar_t *end;
    double number = wcstod(scan->text, &end);
    if (end == scan->text)
        return 0;
    scan->text = end;
    if (field->is_skipped)
        return 1;
    if (is_double)
        *va_arg(scan->arguments, double *) = number;
    else
        *va_arg(scan->arguments, float *) = (float)number;
    scan->stored++;
    return 1;
}

/* Stores the next "length" units, with a NUL unless they are characters of %c. */
static int store_text(struct scan *scan, const struct field *field, size_t length, int has_nul) {
    const wchar_t *from = scan->text;
    scan->text += length;
    if (field->is_skipped)
        return 1;
    void *to = va_arg(scan->arguments, void *);
    size_t room = scan->has_sizes ? va_arg(scan->arguments, unsigned) : SIZE_MAX;
    size_t used = 0;
    struct text text = {1, from, length};
    for (size_t at = 0; at < length;) {
        char bytes[4];
        size_t size = field->is_narrow ? traceweir_wide_to_utf8(traceweir_wide_next(&text, &at), bytes) : 1;
        if (room - used < size + (size_t)has_nul) {
            if (room > 0 && field->is_narrow)
                *(char *)to = '\0';
            else if (room > 0)
                *(wchar_t *)to = L'\0';
            scan->text = from;
            return 0;
        }
        if (field->is_narrow)
            memcpy((char *)to + used, bytes, size);
        else
            ((wchar_t *)to)[used] = from[at++];
        used += size;
    }
    if (has_nul && field->is_narrow)
        ((char *)to)[used] = '\0';
    else if (has_nul)
        ((wchar_t *)to)[used] = L'\0';
    scan->stored++;
    return 1;
}

static int scan_field(struct scan *scan, const wchar_t **format) {
    struct field field = read_field(format);
    wchar_t letter = *(*format)++;
    size_t most = field.width ? field.width : SIZE_MAX, length = 0;
    const wchar_t *set = *format, *end;
    switch (letter) {
    case L'd': case L'i': case L'u': case L'x': case L'X': case L'o': case L'p':
        return store_number(scan, &field, letter);
    case L'f': case L'e': case L'g': case L'E': case L'G': case L'a':
        return store_float(scan, &field, (*format)[-2] == L'l' || (*format)[-2] == L'L');
    case L'c':
        most = field.width ? field.width : 1;
        length = wcsnlen(scan->text, most);
        return length == most && store_text(scan, &field, length, 0);
    case L'S':
        field.is_narrow = !field.is_narrow;
        /* fallthrough */
    case L's':
        while (iswspace(*scan->text))
            scan->text++;
        while (length < most && scan->text[length] && !iswspace(scan->text[length]))
            length++;
        return length > 0 && store_text(scan, &field, length, 1);
    case L'[':
        end = end_of_set(set);
        if (!end)
            return 0;
        *format = end + 1;
        while (length < most && scan->text[length] && is_in_set(set, end, scan->text[length]))
            length++;
        return length > 0 && store_text(scan, &field, length, 1);
    case L'n':
        if (!field.is_skipped)
            *va_arg(scan->arguments, int *) = (int)(scan->text - scan->start);
        return 1;
    case L'%':
        while (iswspace(*scan->text))
            scan->text++;
        return skip_word(&scan->text, L"%");
    default:
        return 0;
    }
}

static int scan_text(const wchar_t *text, const wchar_t *format, int has_sizes, va_list arguments) {
    struct scan scan = {.text = text, .start = text, .has_sizes = has_sizes};
    int is_fitting = 1;
    va_copy(scan.arguments, arguments);
    while (*format && is_fitting) {
        if (iswspace(*format)) {
            while (iswspace(*scan.text))
                scan.text++;
            format++;
        } else if (*format == L'%') {
            format++;
            is_fitting = *format && scan_field(&scan, &format);
        } else {
            is_fitting = *scan.text == *format++;
            scan.text += is_fitting;
        }
    }
    va_end(scan.arguments);
    return !is_fitting && scan.stored == 0 && !*scan.text ? EOF : scan.stored;
}

/* Each function of the C library has several names: newer headers use the others. */
#define DEFINE_SCAN(name, symbol)                                                  \
    int name(const wchar_t *, const wchar_t *, ...) __asm__(symbol);               \
    int v##name(const wchar_t *, const wchar_t *, va_list) __asm__("v" symbol);    \
    DEFINE_SCAN_BODIES(name)
#define DEFINE_NEW_SCAN(name, prefix)                                                        \
    int name(const wchar_t *, const wchar_t *, ...) __asm__(prefix "swscanf");               \
    int v##name(const wchar_t *, const wchar_t *, va_list) __asm__(prefix "vswscanf");       \
    DEFINE_SCAN_BODIES(name)
#define DEFINE_SCAN_BODIES(name)                                                   \
    int v##name(const wchar_t *text, const wchar_t *format, va_list arguments) {   \
        return scan_text(text, format, 0, arguments);                              \
    }                                                                              \
    int name(const wchar_t *text, const wchar_t *format, ...) {                    \
        va_list arguments;                                                         \
        va_start(arguments, format);                                               \
        int stored = scan_text(text, format, 0, arguments);                        \
        va_end(arguments);                                                         \
        return stored;                                                             \
    }
DEFINE_SCAN(scan_plain, "swscanf")
DEFINE_NEW_SCAN(scan_c99, "__isoc99_")
DEFINE_NEW_SCAN(scan_c23, "__isoc23_")

int swscanf_s(const wchar_t *text, const wchar_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int stored = scan_text(text, format, 1, arguments);
    va_end(arguments);
    return stored;
}
