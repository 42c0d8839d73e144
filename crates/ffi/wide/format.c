/* Formatted output as Windows' C library defines it.
 *
 *   %[flags][width][.precision][size]conversion
 *
 *   size        integers                        text
 *   hh, h       8, 16 bits                      h: char
 *   l           32 bits, as long on Windows     wchar_t
 *   ll I64 j    64 bits
 *   I32         32 bits
 *   I z t       64 bits, as pointers
 *   w                                           wchar_t
 *   (none)      32 bits                         %s %c: as the format; %S %C: the other width
 *
 * %Z prints an ANSI_STRING, or with the size w or l a UNICODE_STRING. A conversion that does not
 * exist prints its letter. %n stores nothing, as on Windows.
 */
#include "wide.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum size { SIZE_NONE, SIZE_CHAR, SIZE_SHORT, SIZE_LONG, SIZE_64, SIZE_32, SIZE_POINTER, SIZE_WIDE, SIZE_LONG_DOUBLE };

struct conversion {
    int is_left, has_plus, has_space, has_prefix, has_zeros;
    size_t width;
    int has_precision;
    size_t precision;
    enum size size;
    char letter;
};

void traceweir_wide_flush(struct output *output) {
    if (output->chunk_length && fwrite(output->chunk, 1, output->chunk_length, output->file) != output->chunk_length)
        output->has_failed = 1;
    output->chunk_length = 0;
}

static void put_code_point(struct output *output, uint32_t code_point) {
    if (output->chunk_length + 4 > sizeof output->chunk)
        traceweir_wide_flush(output);
    output->chunk_length += traceweir_wide_to_utf8(code_point, output->chunk + output->chunk_length);
}

/* Wide text for a stream: a pair of surrogates is one character, and a single one is malformed. */
static void put_unit_to_stream(struct output *output, uint32_t unit) {
    uint32_t high = output->high_surrogate;
    output->high_surrogate = 0;
    if (high && unit >= 0xDC00 && unit <= 0xDFFF) {
        put_code_point(output, 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00));
        return;
    }
    if (high)
        put_code_point(output, REPLACEMENT_CHARACTER);
    if (unit >= 0xD800 && unit < 0xDC00)
        output->high_surrogate = unit;
    else
        put_code_point(output, unit >= 0xDC00 && unit <= 0xDFFF ? REPLACEMENT_CHARACTER : unit);
}

void traceweir_wide_put(struct output *output, uint32_t unit) {
    if (output->file && output->is_wide) {
        put_unit_to_stream(output, unit & 0xFFFF);
    } else if (output->file) {
        if (output->chunk_length == sizeof output->chunk)
            traceweir_wide_flush(output);
        output->chunk[output->chunk_length++] = (char)unit;
    } else if (output->length < output->capacity && output->is_wide) {
        ((wchar_t *)output->buffer)[output->length] = (wchar_t)unit;
    } else if (output->length < output->capacity) {
        ((char *)output->buffer)[output->length] = (char)unit;
    }
    output->length++;
}

static void put_many(struct output *output, char unit, size_t count) {
    while (count-- > 0 && !output->has_failed)
        traceweir_wide_put(output, (unsigned char)unit);
}

static size_t put_converted(struct output *output, uint32_t code_point, int only_counts) {
    wchar_t units[2];
    char bytes[4];
    size_t size = output->is_wide ? traceweir_wide_to_utf16(code_point, units) : traceweir_wide_to_utf8(code_point, bytes);
    for (size_t at = 0; at < size && !only_counts; at++)
        traceweir_wide_put(output, output->is_wide ? units[at] : (unsigned char)bytes[at]);
    return size;
}

/* Writes text of either width, or only counts what it would write. */
static size_t put_text(struct output *output, const struct text *text, int only_counts) {
    if (text->is_wide == output->is_wide) {
        for (size_t at = 0; at < text->length && !only_counts; at++)
            traceweir_wide_put(output, text->is_wide ? ((const wchar_t *)text->units)[at] : ((const unsigned char *)text->units)[at]);
        return text->length;
    }
    size_t length = 0;
    for (size_t at = 0; at < text->length;)
        length += put_converted(output, traceweir_wide_next(text, &at), only_counts);
    return length;
}

static void put_padded_text(struct output *output, const struct conversion *spec, const struct text *text) {
    size_t length = put_text(output, text, 1);
    size_t padding = spec->width > length ? spec->width - length : 0;
    if (!spec->is_left)
        put_many(output, spec->has_zeros ? '0' : ' ', padding);
    put_text(output, text, 0);
    if (spec->is_left)
        put_many(output, ' ', padding);
}

/* Returns whether the argument of %c, %s, %C or %S is wide. */
static int is_wide_text(const struct output *output, const struct conversion *spec) {
    if (spec->size == SIZE_SHORT)
        return 0;
    if (spec->size == SIZE_LONG || spec->size == SIZE_WIDE)
        return 1;
    return (spec->letter == 'c' || spec->letter == 's') == output->is_wide;
}

static void put_string(struct output *output, const struct conversion *spec, const void *units) {
    struct text text = {is_wide_text(output, spec), units, 0};
    if (!units)
        text = (struct text){0, "(null)", 0};
    size_t most = spec->has_precision ? spec->precision : PTRDIFF_MAX;
    if (text.is_wide)
        text.length = wcsnlen(text.units, most);
    else
        text.length = strnlen(text.units, most);
    put_padded_text(output, spec, &text);
}

static void put_counted_string(struct output *output, const struct conversion *spec, const void *argument) {
    const struct {
        uint16_t length, capacity;
        const void *units;
    } *counted = argument;
    struct text text = {spec->size == SIZE_WIDE || spec->size == SIZE_LONG, NULL, 0};
    if (!counted || !counted->units)
        text = (struct text){0, "(null)", 6};
    else
        text = (struct text){text.is_wide, counted->units, text.is_wide ? counted->length / sizeof(wchar_t) : counted->length};
    if (spec->has_precision && spec->precision < text.length)
        text.length = spec->precision;
    put_padded_text(output, spec, &text);
}

static void put_character(struct output *output, const struct conversion *spec, int argument) {
    wchar_t unit = (wchar_t)argument;
    char byte = (char)argument;
    struct text text = {is_wide_text(output, spec), is_wide_text(output, spec) ? (void *)&unit : &byte, 1};
    put_padded_text(output, spec, &text);
}

static void put_integer(struct output *output, const struct conversion *spec, int is_negative, uint64_t value) {
    static const char small[] = "0123456789abcdef", large[] = "0123456789ABCDEF";
    unsigned base = spec->letter == 'o' ? 8 : strchr("xXp", spec->letter) ? 16 : 10;
    const char *digits = spec->letter == 'X' || spec->letter == 'p' ? large : small;
    char text[24];
    size_t length = 0;
    int is_zero = value == 0;
    for (; value > 0; value /= base)
        text[length++] = digits[value % base];
    size_t least = spec->has_precision ? spec->precision : 1;
    if (base == 8 && spec->has_prefix && least <= length)
        least = length + 1;
    size_t zeros = least > length ? least - length : 0;
    char prefix[3] = "";
    if (strchr("di", spec->letter))
        prefix[0] = is_negative ? '-' : spec->has_plus ? '+' : spec->has_space ? ' ' : '\0';
    else if (base == 16 && spec->has_prefix && !is_zero)
        memcpy(prefix, spec->letter == 'x' ? "0x" : "0X", sizeof prefix);
    size_t taken = strlen(prefix) + zeros + length;
    size_t padding = spec->width > taken ? spec->width - taken : 0;
    if (!spec->is_left && !spec->has_precision && spec->has_zeros) {
        zeros += padding;
        padding = 0;
    }
    if (!spec->is_left)
        put_many(output, ' ', padding);
    for (const char *at = prefix; *at; at++)
        traceweir_wide_put(output, (unsigned char)*at);
    put_many(output, '0', zeros);
    while (length > 0)
        traceweir_wide_put(output, (unsigned char)text[--length]);
    if (spec->is_left)
        put_many(output, ' ', padding);
}

static void put_float(struct output *output, const struct conversion *spec, long double value) {
    char format[16], small[512], *text = small;
    size_t at = 0;
    format[at++] = '%';
    for (const char *flags = "-+ #0"; *flags; flags++)
        if ((*flags == '-' && spec->is_left) || (*flags == '+' && spec->has_plus) || (*flags == ' ' && spec->has_space) ||
            (*flags == '#' && spec->has_prefix) || (*flags == '0' && spec->has_zeros))
            format[at++] = *flags;
    memcpy(format + at, "*.*L", 4);
    format[at + 4] = spec->letter;
    format[at + 5] = '\0';
    /* A double is not passed as a long double: %a would show another mantissa. */
    int is_double = spec->size != SIZE_LONG_DOUBLE;
    if (is_double) {
        format[at + 3] = spec->letter;
        format[at + 4] = '\0';
    }
    int width = (int)spec->width, precision = spec->has_precision ? (int)spec->precision : -1;
    for (size_t room = sizeof small;;) {
        int length = is_double ? snprintf(text, room, format, width, precision, (double)value)
                               : snprintf(text, room, format, width, precision, value);
        if (length < 0) {
            output->has_failed = 1;
        } else if ((size_t)length >= room) {
            room = (size_t)length + 1;
            text = malloc(room);
            if (text)
                continue;
            output->has_failed = 1;
        } else {
            for (const char *unit = text; *unit; unit++)
                traceweir_wide_put(output, (unsigned char)*unit);
        }
        break;
    }
    if (text != small)
        free(text);
}

struct reader {
    int is_wide;
    const void *units;
    size_t at;
};

static uint32_t peek(const struct reader *reader) {
    return reader->is_wide ? ((const wchar_t *)reader->units)[reader->at] : ((const unsigned char *)reader->units)[reader->at];
}

static int skip_letter(struct reader *reader, char letter) {
    if (peek(reader) != (unsigned char)letter)
        return 0;
    reader->at++;
    return 1;
}

/* Reads a width or precision; larger numbers are capped at INT_MAX / 2. */
static size_t read_number(struct reader *reader) {
    size_t number = 0;
    for (; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++)
        number = number > INT_MAX / 20 ? INT_MAX / 2 : number * 10 + (peek(reader) - '0');
    return number;
}

static enum size read_size(struct reader *reader) {
    if (skip_letter(reader, 'h'))
        return skip_letter(reader, 'h') ? SIZE_CHAR : SIZE_SHORT;
    if (skip_letter(reader, 'l'))
        return skip_letter(reader, 'l') ? SIZE_64 : SIZE_LONG;
    if (skip_letter(reader, 'w'))
        return SIZE_WIDE;
    if (skip_letter(reader, 'L'))
        return SIZE_LONG_DOUBLE;
    if (skip_letter(reader, 'j'))
        return SIZE_64;
    if (skip_letter(reader, 'z') || skip_letter(reader, 't'))
        return SIZE_POINTER;
    if (!skip_letter(reader, 'I'))
        return SIZE_NONE;
    size_t start = reader->at;
    if (skip_letter(reader, '6') && skip_letter(reader, '4'))
        return SIZE_64;
    reader->at = start;
    if (skip_letter(reader, '3') && skip_letter(reader, '2'))
        return SIZE_32;
    reader->at = start;
    return SIZE_POINTER;
}

static void read_flags(struct reader *reader, struct conversion *spec) {
    for (;; reader->at++) {
        switch (peek(reader)) {
        case '-': spec->is_left = 1; break;
        case '+': spec->has_plus = 1; break;
        case ' ': spec->has_space = 1; break;
        case '#': spec->has_prefix = 1; break;
        case '0': spec->has_zeros = 1; break;
        default: return;
        }
    }
}

/* A list of arguments that functions can pass on by address. */
struct arguments {
    va_list list;
};

static struct conversion read_conversion(struct reader *reader, struct arguments *arguments) {
    struct conversion spec = {0};
    read_flags(reader, &spec);
    if (skip_letter(reader, '*')) {
        int width = va_arg(arguments->list, int);
        spec.is_left |= width < 0;
        spec.width = width < 0 ? 0u - (unsigned)width : (unsigned)width;
        if (spec.width > INT_MAX / 2)
            spec.width = INT_MAX / 2;
    } else {
        spec.width = read_number(reader);
    }
    if (skip_letter(reader, '.')) {
        spec.has_precision = 1;
        if (skip_letter(reader, '*')) {
            int precision = va_arg(arguments->list, int);
            spec.has_precision = precision >= 0;
            spec.precision = precision > INT_MAX / 2 ? INT_MAX / 2 : (size_t)(precision < 0 ? 0 : precision);
        } else {
            spec.precision = read_number(reader);
        }
    }
    spec.size = read_size(reader);
    spec.letter = peek(reader) < 0x80 ? (char)peek(reader) : '\0';
    if (spec.letter)
        reader->at++;
    return spec;
}

static void put_signed(struct output *output, const struct conversion *spec, struct arguments *arguments) {
    int64_t value;
    if (spec->size == SIZE_64 || spec->size == SIZE_POINTER)
        value = va_arg(arguments->list, long long);
    else
        value = va_arg(arguments->list, int);
    if (spec->size == SIZE_CHAR)
        value = (signed char)value;
    if (spec->size == SIZE_SHORT)
        value = (short)value;
    put_integer(output, spec, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_unsigned(struct output *output, const struct conversion *spec, struct arguments *arguments) {
    uint64_t value;
    if (spec->size == SIZE_64 || spec->size == SIZE_POINTER)
        value = va_arg(arguments->list, unsigned long long);
    else
        value = va_arg(arguments->list, unsigned);
    if (spec->size == SIZE_CHAR)
        value = (unsigned char)value;
    if (spec->size == SIZE_SHORT)
        value = (unsigned short)value;
    put_integer(output, spec, 0, value);
}

static void put_conversion(struct output *output, struct conversion *spec, struct arguments *arguments) {
    switch (spec->letter) {
    case 'd': case 'i':
        put_signed(output, spec, arguments);
        break;
    case 'u': case 'o': case 'x': case 'X':
        put_unsigned(output, spec, arguments);
        break;
    case 'p':
        spec->has_precision = 1;
        spec->precision = 2 * sizeof(void *);
        put_integer(output, spec, 0, (uintptr_t)va_arg(arguments->list, void *));
        break;
    case 'c': case 'C':
        put_character(output, spec, va_arg(arguments->list, int));
        break;
    case 's': case 'S':
        put_string(output, spec, va_arg(arguments->list, const void *));
        break;
    case 'Z':
        put_counted_string(output, spec, va_arg(arguments->list, const void *));
        break;
    case 'n':
        (void)va_arg(arguments->list, void *);
        break;
    case 'a': case 'A': case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
        put_float(output, spec, spec->size == SIZE_LONG_DOUBLE ? va_arg(arguments->list, long double) : va_arg(arguments->list, double));
        break;
    case '\0':
        break;
    default:
        traceweir_wide_put(output, (unsigned char)spec->letter);
    }
}

int traceweir_wide_format(struct output *output, const void *format, va_list list) {
    struct reader reader = {output->is_wide, format, 0};
    struct arguments arguments;
    va_copy(arguments.list, list);
    if (output->file)
        flockfile(output->file);
    while (peek(&reader) && !output->has_failed && output->length <= INT_MAX) {
        uint32_t unit = peek(&reader);
        reader.at++;
        if (unit != '%') {
            traceweir_wide_put(output, unit);
            continue;
        }
        struct conversion spec = read_conversion(&reader, &arguments);
        put_conversion(output, &spec, &arguments);
    }
    if (output->file) {
        if (output->high_surrogate)
            put_code_point(output, REPLACEMENT_CHARACTER);
        traceweir_wide_flush(output);
        funlockfile(output->file);
    }
    va_end(arguments.list);
    if (output->length > INT_MAX) {
        errno = EOVERFLOW;
        return -1;
    }
    return output->has_failed ? -1 : (int)output->length;
}
