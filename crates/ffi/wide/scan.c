/* The scanf family with Windows' size letters: see format.c for their meaning.
 *
 *   text, wide or narrow ─┐
 *                         ├─▶ peek, advance ─▶ scan_field ─▶ the caller's variables
 *   stream, narrow ───────┘
 *
 * Format and input have the same width. %s, %c and %[ store text of that width, %S and %C text of
 * the other, and the sizes h, l and w choose narrow or wide. Functions with "_s" take the size of
 * the buffer after each of these arguments, in units of its width.
 *
 * Of a stream only one unit can be put back, so no conversion looks further ahead. A number that
 * ends too early, such as "0x" or "1e+", is therefore a mismatch, in texts too, as on Windows.
 *
 * Narrow functions have names of their own, traceweir_wide_sscanf and so on: only sources that
 * include traceweir/wide.h call them. Other code in the program keeps the C library's.
 */
#include "wide.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

enum size { SIZE_INT, SIZE_CHAR, SIZE_SHORT, SIZE_LONG, SIZE_64, SIZE_LONG_DOUBLE };

#define END_OF_INPUT UINT32_MAX

struct scan {
    int is_wide;
    const void *units; /* NULL for a stream. */
    FILE *file;
    size_t at;
    int has_sizes;
    int has_ended;
    int stored;
    va_list arguments;
};

struct field {
    int is_skipped;
    size_t width;
    enum size size;
    int is_text_wide;
};

struct format {
    int is_wide;
    const void *units;
    size_t at;
};

/* Units that are read but not stored yet, in the width of the input. */
struct buffer {
    int is_wide;
    void *units;
    size_t length, room;
    wchar_t small[128];
};

static uint32_t unit_at(int is_wide, const void *units, size_t at) {
    return is_wide ? ((const wchar_t *)units)[at] : ((const unsigned char *)units)[at];
}

static uint32_t peek_format(const struct format *format) {
    return unit_at(format->is_wide, format->units, format->at);
}

static int is_space(int is_wide, uint32_t unit) {
    if (unit == END_OF_INPUT)
        return 0;
    return unit == ' ' || (unit >= '\t' && unit <= '\r') || (is_wide && iswspace(unit));
}

/* Returns the next unit without reading it. */
static uint32_t peek(struct scan *scan) {
    uint32_t unit;
    if (scan->units) {
        unit = unit_at(scan->is_wide, scan->units, scan->at);
        unit = unit ? unit : END_OF_INPUT;
    } else {
        int byte = getc_unlocked(scan->file);
        unit = byte == EOF ? END_OF_INPUT : (uint32_t)ungetc(byte, scan->file);
    }
    return unit;
}

/* Reads the unit that peek returned. */
static void advance(struct scan *scan) {
    if (!scan->units)
        (void)getc_unlocked(scan->file);
    scan->at++;
}

static void skip_spaces(struct scan *scan) {
    while (is_space(scan->is_wide, peek(scan)))
        advance(scan);
}

/* Reads the next unit if it is one of two letters, and if the field has room for it. */
static int skip_either(struct scan *scan, size_t *room, char first, char second) {
    if (*room == 0)
        return 0;
    uint32_t unit = peek(scan);
    if (unit != (unsigned char)first && unit != (unsigned char)second)
        return 0;
    advance(scan);
    --*room;
    return 1;
}

/* Starts a conversion: returns 0 at the end of the input. */
static int begin_item(struct scan *scan) {
    scan->has_ended = peek(scan) == END_OF_INPUT;
    return !scan->has_ended;
}

static int skip_word(struct format *format, const char *word) {
    size_t at = 0;
    for (; word[at]; at++)
        if (unit_at(format->is_wide, format->units, format->at + at) != (unsigned char)word[at])
            return 0;
    format->at += at;
    return 1;
}

static struct field read_field(struct format *format) {
    struct field field = {.is_skipped = skip_word(format, "*"), .is_text_wide = format->is_wide};
    for (; peek_format(format) >= '0' && peek_format(format) <= '9'; format->at++)
        field.width = field.width > 100000000 ? field.width : field.width * 10 + (peek_format(format) - '0');
    if (skip_word(format, "hh"))
        field.size = SIZE_CHAR;
    else if (skip_word(format, "h"))
        field.size = SIZE_SHORT;
    else if (skip_word(format, "ll") || skip_word(format, "I64") || skip_word(format, "j") || skip_word(format, "z") || skip_word(format, "t"))
        field.size = SIZE_64;
    else if (skip_word(format, "I32"))
        field.size = SIZE_INT;
    else if (skip_word(format, "l") || skip_word(format, "w"))
        field.size = SIZE_LONG;
    else if (skip_word(format, "L"))
        field.size = SIZE_LONG_DOUBLE;
    else if (skip_word(format, "I"))
        field.size = SIZE_64;
    uint32_t letter = peek_format(format);
    if (letter == 'S' || letter == 'C')
        field.is_text_wide = !field.is_text_wide;
    if (field.size == SIZE_SHORT || field.size == SIZE_LONG)
        field.is_text_wide = field.size == SIZE_LONG;
    return field;
}

/* Returns the place of the "]" that ends the set of %[…], or 0. As the first unit, "]" belongs to
 * the set. */
static size_t find_end_of_set(const struct format *format) {
    size_t at = format->at;
    if (unit_at(format->is_wide, format->units, at) == '^')
        at++;
    if (!unit_at(format->is_wide, format->units, at))
        return 0;
    for (at++;; at++) {
        uint32_t unit = unit_at(format->is_wide, format->units, at);
        if (!unit || unit == ']')
            return unit ? at : 0;
    }
}

static int is_in_set(const struct format *format, size_t end, uint32_t unit) {
    size_t at = format->at;
    int is_negated = unit_at(format->is_wide, format->units, at) == '^', is_found = 0;
    for (at += (size_t)is_negated; at < end; at++) {
        uint32_t first = unit_at(format->is_wide, format->units, at);
        if (at + 2 < end && unit_at(format->is_wide, format->units, at + 1) == '-') {
            is_found |= unit >= first && unit <= unit_at(format->is_wide, format->units, at + 2);
            at += 2;
        } else {
            is_found |= unit == first;
        }
    }
    return is_found != is_negated;
}

static void store_integer(struct scan *scan, enum size size, uint64_t number) {
    void *to = va_arg(scan->arguments, void *);
    if (size == SIZE_64)
        *(uint64_t *)to = number;
    else if (size == SIZE_SHORT)
        *(uint16_t *)to = (uint16_t)number;
    else if (size == SIZE_CHAR)
        *(uint8_t *)to = (uint8_t)number;
    else
        *(uint32_t *)to = (uint32_t)number;
}

static unsigned digit_of(uint32_t unit) {
    if (unit >= '0' && unit <= '9')
        return unit - '0';
    if ((unit | 0x20) >= 'a' && (unit | 0x20) <= 'f' && unit < 0x80)
        return (unit | 0x20) - 'a' + 10;
    return 16;
}

/* Numbers that need more than 64 bits become the largest or smallest number. */
static int scan_integer(struct scan *scan, const struct field *field, uint32_t letter) {
    size_t room = field->width ? field->width : SIZE_MAX, digits = 0;
    int is_signed = letter == 'd' || letter == 'i', is_too_large = 0;
    unsigned base = letter == 'd' || letter == 'u' ? 10 : letter == 'o' ? 8 : letter == 'i' ? 0 : 16;
    uint64_t number = 0;
    skip_spaces(scan);
    if (!begin_item(scan))
        return 0;
    int is_negative = peek(scan) == '-';
    skip_either(scan, &room, '-', '+');
    if ((base == 0 || base == 16) && skip_either(scan, &room, '0', '0')) {
        if (skip_either(scan, &room, 'x', 'X')) {
            base = 16;
        } else {
            digits = 1;
            base = base == 0 ? 8 : base;
        }
    }
    base = base == 0 ? 10 : base;
    for (; room > 0; room--, digits++) {
        unsigned digit = digit_of(peek(scan));
        if (digit >= base)
            break;
        is_too_large |= number > (UINT64_MAX - digit) / base;
        number = number * base + digit;
        advance(scan);
    }
    if (digits == 0)
        return 0;
    if (is_signed && (is_too_large || number > (uint64_t)INT64_MAX + (uint64_t)is_negative))
        number = (uint64_t)INT64_MAX + (uint64_t)is_negative;
    else if (is_too_large)
        number = UINT64_MAX, is_negative = 0;
    if (!field->is_skipped) {
        store_integer(scan, letter == 'p' ? SIZE_64 : field->size, is_negative ? 0 - number : number);
        scan->stored++;
    }
    return 1;
}

static void begin_buffer(struct buffer *buffer, int is_wide) {
    buffer->is_wide = is_wide;
    buffer->units = buffer->small;
    buffer->length = 0;
    buffer->room = is_wide ? sizeof buffer->small / sizeof(wchar_t) : sizeof buffer->small;
}

static void end_buffer(struct buffer *buffer) {
    if (buffer->units != buffer->small)
        free(buffer->units);
}

/* Returns 0 if there is no memory. */
static int add_unit(struct buffer *buffer, uint32_t unit) {
    size_t size = buffer->is_wide ? sizeof(wchar_t) : 1;
    if (buffer->length == buffer->room) {
        void *larger = malloc(2 * buffer->room * size);
        if (!larger)
            return 0;
        memcpy(larger, buffer->units, buffer->length * size);
        end_buffer(buffer);
        buffer->units = larger;
        buffer->room *= 2;
    }
    if (buffer->is_wide)
        ((wchar_t *)buffer->units)[buffer->length++] = (wchar_t)unit;
    else
        ((char *)buffer->units)[buffer->length++] = (char)unit;
    return 1;
}

/* Returns whether a unit continues the text of a floating-point number: its digits, point, exponent
 * and signs, or a word such as "inf". strtold then decides whether the whole is a number. */
static int is_part_of_float(const char *text, size_t length, uint32_t unit, char point) {
    size_t start = length > 0 && (text[0] == '-' || text[0] == '+');
    int is_hex = length >= start + 2 && (text[start + 1] | 0x20) == 'x';
    char last = length > 0 ? (char)(text[length - 1] | 0x20) : '\0', exponent = is_hex ? 'p' : 'e';
    if (unit >= 0x80)
        return 0;
    if (unit == '-' || unit == '+')
        return length == 0 || (length > start + 1 && last == exponent);
    if (length > start && (text[start] | 0x20) >= 'a' && text[start] >= 'A') {
        const char *word = (text[start] | 0x20) == 'i' ? "infinity" : "nan";
        return length - start < strlen(word) && (char)(unit | 0x20) == word[length - start];
    }
    if (length == start && ((unit | 0x20) == 'i' || (unit | 0x20) == 'n'))
        return 1;
    int has_exponent = 0, has_point = 0;
    for (size_t at = start; at < length; at++) {
        has_exponent |= (text[at] | 0x20) == exponent;
        has_point |= text[at] == point;
    }
    if (unit == (unsigned char)point)
        return !has_point && !has_exponent;
    if ((unit | 0x20) == 'x')
        return length == start + 1 && text[start] == '0';
    if (is_hex && !has_exponent && digit_of(unit) < 16)
        return 1;
    if ((char)(unit | 0x20) == exponent)
        return !has_exponent && length > start;
    return unit >= '0' && unit <= '9';
}

static int scan_float(struct scan *scan, const struct field *field) {
    size_t most = field->width ? field->width : SIZE_MAX;
    char point = *localeconv()->decimal_point, *end;
    struct buffer buffer;
    int is_number = 1;
    skip_spaces(scan);
    if (!begin_item(scan))
        return 0;
    begin_buffer(&buffer, 0);
    while (is_number && buffer.length < most) {
        uint32_t unit = peek(scan);
        if (unit == END_OF_INPUT || !is_part_of_float(buffer.units, buffer.length, unit, point))
            break;
        is_number = add_unit(&buffer, unit);
        advance(scan);
    }
    is_number = is_number && add_unit(&buffer, '\0');
    if (is_number) {
        const char *text = buffer.units;
        /* Each type has its own function: a number that is rounded twice may differ. */
        long double largest = field->size == SIZE_LONG_DOUBLE ? strtold(text, &end) : 0;
        double large = field->size == SIZE_LONG || field->size == SIZE_64 ? strtod(text, &end) : 0;
        float small = field->size != SIZE_LONG_DOUBLE && field->size != SIZE_LONG && field->size != SIZE_64 ? strtof(text, &end) : 0;
        is_number = end != text && !*end;
        if (is_number && !field->is_skipped) {
            void *to = va_arg(scan->arguments, void *);
            if (field->size == SIZE_LONG_DOUBLE)
                *(long double *)to = largest;
            else if (field->size == SIZE_LONG || field->size == SIZE_64)
                *(double *)to = large;
            else
                *(float *)to = small;
            scan->stored++;
        }
    }
    end_buffer(&buffer);
    return is_number;
}

static void put_nul(int is_wide, void *to, size_t at) {
    if (is_wide)
        ((wchar_t *)to)[at] = L'\0';
    else
        ((char *)to)[at] = '\0';
}

/* Stores text, with a NUL unless it is that of %c. If it does not fit, empties the buffer. */
static int store_text(struct scan *scan, const struct field *field, const struct buffer *buffer, int has_nul) {
    void *to = va_arg(scan->arguments, void *);
    size_t room = scan->has_sizes ? va_arg(scan->arguments, unsigned) : SIZE_MAX;
    size_t used = 0;
    struct text text = {buffer->is_wide, buffer->units, buffer->length};
    for (size_t at = 0; at < text.length;) {
        char bytes[4];
        wchar_t units[2];
        size_t size = 1;
        if (text.is_wide == field->is_text_wide) {
            uint32_t unit = unit_at(text.is_wide, text.units, at++);
            units[0] = (wchar_t)unit;
            bytes[0] = (char)unit;
        } else {
            uint32_t code_point = traceweir_wide_next(&text, &at);
            size = field->is_text_wide ? traceweir_wide_to_utf16(code_point, units) : traceweir_wide_to_utf8(code_point, bytes);
        }
        if (room - used < size + (size_t)has_nul) {
            if (room > 0)
                put_nul(field->is_text_wide, to, 0);
            return 0;
        }
        if (field->is_text_wide)
            memcpy((wchar_t *)to + used, units, size * sizeof(wchar_t));
        else
            memcpy((char *)to + used, bytes, size);
        used += size;
    }
    if (has_nul)
        put_nul(field->is_text_wide, to, used);
    scan->stored++;
    return 1;
}

/* Returns the number of bytes that follow the first byte of a UTF-8 character. */
static size_t following_bytes(uint32_t first) {
    return first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
}

/* Reads the text of %c, %s or %[, whose set ends at "set_end". The width counts units, but
 * characters if narrow input becomes wide text: those are not split. */
static int scan_text_field(struct scan *scan, const struct format *format, const struct field *field, uint32_t letter, size_t set_end) {
    int is_character = letter == 'c' || letter == 'C', is_stored = 1;
    size_t most = field->width ? field->width : is_character ? 1 : SIZE_MAX, count = 0, following = 0;
    struct buffer buffer;
    if (!begin_item(scan))
        return 0;
    begin_buffer(&buffer, scan->is_wide);
    while (count < most || following > 0) {
        uint32_t unit = peek(scan);
        if (unit == END_OF_INPUT || (letter == '[' && !is_in_set(format, set_end, unit)) ||
            ((letter == 's' || letter == 'S') && is_space(scan->is_wide, unit)))
            break;
        if (following > 0 && (unit & 0xC0) == 0x80) {
            following--;
        } else if (count == most) {
            break;
        } else {
            count++;
            following = !scan->is_wide && field->is_text_wide ? following_bytes(unit) : 0;
        }
        if (!field->is_skipped && !add_unit(&buffer, unit)) {
            is_stored = 0;
            break;
        }
        advance(scan);
    }
    is_stored = is_stored && count > 0 && (!is_character || count == most);
    if (is_stored && !field->is_skipped)
        is_stored = store_text(scan, field, &buffer, !is_character);
    end_buffer(&buffer);
    return is_stored;
}

static int scan_field(struct scan *scan, struct format *format) {
    struct field field = read_field(format);
    uint32_t letter = peek_format(format);
    size_t end = 0;
    if (!letter)
        return 0;
    format->at++;
    switch (letter) {
    case 'd': case 'i': case 'u': case 'x': case 'X': case 'o': case 'p':
        return scan_integer(scan, &field, letter);
    case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': case 'a': case 'A':
        return scan_float(scan, &field);
    case 's': case 'S':
        skip_spaces(scan);
        return scan_text_field(scan, format, &field, letter, 0);
    case 'c': case 'C':
        return scan_text_field(scan, format, &field, letter, 0);
    case '[':
        end = find_end_of_set(format);
        if (!end || !scan_text_field(scan, format, &field, letter, end))
            return 0;
        format->at = end + 1;
        return 1;
    case 'n':
        if (!field.is_skipped)
            store_integer(scan, field.size, scan->at);
        return 1;
    case '%':
        skip_spaces(scan);
        if (!begin_item(scan) || peek(scan) != '%')
            return 0;
        advance(scan);
        return 1;
    default:
        return 0;
    }
}

static int scan_input(struct scan *scan, const void *units, va_list arguments) {
    struct format format = {scan->is_wide, units, 0};
    int is_fitting = 1;
    va_copy(scan->arguments, arguments);
    if (scan->file)
        flockfile(scan->file);
    while (is_fitting && peek_format(&format)) {
        uint32_t unit = peek_format(&format);
        format.at++;
        if (is_space(scan->is_wide, unit)) {
            skip_spaces(scan);
        } else if (unit == '%') {
            is_fitting = scan_field(scan, &format);
        } else {
            is_fitting = begin_item(scan) && peek(scan) == unit;
            if (is_fitting)
                advance(scan);
        }
    }
    if (scan->file)
        funlockfile(scan->file);
    va_end(scan->arguments);
    return !is_fitting && scan->stored == 0 && scan->has_ended ? EOF : scan->stored;
}

static int scan_wide(const wchar_t *text, const wchar_t *format, int has_sizes, va_list arguments) {
    struct scan scan = {.is_wide = 1, .units = text, .has_sizes = has_sizes};
    return scan_input(&scan, format, arguments);
}

static int scan_narrow(const char *text, const char *format, int has_sizes, va_list arguments) {
    struct scan scan = {.units = text, .has_sizes = has_sizes};
    return scan_input(&scan, format, arguments);
}

static int scan_stream(FILE *file, const char *format, int has_sizes, va_list arguments) {
    struct scan scan = {.file = file, .has_sizes = has_sizes};
    return scan_input(&scan, format, arguments);
}

#define PASS_ON(call)                \
    va_list arguments;               \
    va_start(arguments, format);     \
    int stored = call;               \
    va_end(arguments);               \
    return stored

/* Wide. Each function of the C library has several names: newer headers use the others. */
#define DEFINE_SCAN(name, prefix)                                                            \
    int name(const wchar_t *, const wchar_t *, ...) __asm__(prefix "swscanf");               \
    int v##name(const wchar_t *, const wchar_t *, va_list) __asm__(prefix "vswscanf");       \
    int v##name(const wchar_t *text, const wchar_t *format, va_list arguments) {             \
        return scan_wide(text, format, 0, arguments);                                        \
    }                                                                                        \
    int name(const wchar_t *text, const wchar_t *format, ...) {                              \
        PASS_ON(scan_wide(text, format, 0, arguments));                                      \
    }
DEFINE_SCAN(scan_plain, "")
DEFINE_SCAN(scan_c99, "__isoc99_")
DEFINE_SCAN(scan_c23, "__isoc23_")

int vswscanf_s(const wchar_t *text, const wchar_t *format, va_list arguments) { return scan_wide(text, format, 1, arguments); }
int swscanf_s(const wchar_t *text, const wchar_t *format, ...) { PASS_ON(vswscanf_s(text, format, arguments)); }

/* Narrow. */
int traceweir_wide_vsscanf(const char *text, const char *format, va_list arguments) { return scan_narrow(text, format, 0, arguments); }
int traceweir_wide_vfscanf(FILE *file, const char *format, va_list arguments) { return scan_stream(file, format, 0, arguments); }
int traceweir_wide_vscanf(const char *format, va_list arguments) { return scan_stream(stdin, format, 0, arguments); }
int traceweir_wide_sscanf(const char *text, const char *format, ...) { PASS_ON(scan_narrow(text, format, 0, arguments)); }
int traceweir_wide_fscanf(FILE *file, const char *format, ...) { PASS_ON(scan_stream(file, format, 0, arguments)); }
int traceweir_wide_scanf(const char *format, ...) { PASS_ON(scan_stream(stdin, format, 0, arguments)); }
int vsscanf_s(const char *text, const char *format, va_list arguments) { return scan_narrow(text, format, 1, arguments); }
int vfscanf_s(FILE *file, const char *format, va_list arguments) { return scan_stream(file, format, 1, arguments); }
int vscanf_s(const char *format, va_list arguments) { return scan_stream(stdin, format, 1, arguments); }
int sscanf_s(const char *text, const char *format, ...) { PASS_ON(vsscanf_s(text, format, arguments)); }
int fscanf_s(FILE *file, const char *format, ...) { PASS_ON(vfscanf_s(file, format, arguments)); }
int scanf_s(const char *format, ...) { PASS_ON(vscanf_s(format, arguments)); }
