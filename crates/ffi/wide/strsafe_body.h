/* The functions of strsafe.h for one width: see strsafe.c. */

/* Completes a text: writes the NUL, applies the flags, and stores the results. The new part of the
 * text begins at "start"; "wanted" is the length of the whole text without a limit. */
static HRESULT NAME(finish)(UNIT *to, size_t room, size_t start, size_t wanted, UNIT **end, size_t *rest, DWORD flags) {
    int is_cut = wanted >= room;
    size_t length = is_cut ? room - 1 : wanted;
    if (is_cut && (flags & STRSAFE_NO_TRUNCATION))
        length = start;
    if (is_cut && (flags & (STRSAFE_NULL_ON_FAILURE | STRSAFE_FILL_ON_FAILURE)))
        length = 0;
    to[length] = 0;
    if (is_cut && (flags & STRSAFE_FILL_ON_FAILURE)) {
        memset(to, (int)(flags & 0xFF), room * sizeof(UNIT));
        to[room - 1] = 0;
        length = (flags & 0xFF) ? room - 1 : 0;
    } else if (!is_cut && (flags & STRSAFE_FILL_BEHIND_NULL)) {
        memset(to + length + 1, (int)(flags & 0xFF), (room - length - 1) * sizeof(UNIT));
    }
    if (end)
        *end = to + length;
    if (rest)
        *rest = room - length;
    return is_cut ? STRSAFE_E_INSUFFICIENT_BUFFER : S_OK;
}

static int NAME(is_valid)(const UNIT *to, size_t room, DWORD flags) {
    return to && room > 0 && room <= STRSAFE_MAX_CCH && (flags & ~FLAGS) == 0;
}

static HRESULT NAME(append)(UNIT *to, size_t room, const UNIT *from, size_t most, UNIT **end, size_t *rest, DWORD flags, int is_cat) {
    static const UNIT empty[1] = {0};
    if (!NAME(is_valid)(to, room, flags))
        return STRSAFE_E_INVALID_PARAMETER;
    if (!from) {
        if (!(flags & STRSAFE_IGNORE_NULLS))
            return STRSAFE_E_INVALID_PARAMETER;
        from = empty;
    }
    size_t start = is_cat ? LENGTH(to, room) : 0;
    if (start == room)
        return STRSAFE_E_INVALID_PARAMETER;
    size_t length = LENGTH(from, most < room ? most : room);
    memmove(to + start, from, (length < room - start ? length : room - start) * sizeof(UNIT));
    return NAME(finish)(to, room, start, start + length, end, rest, flags);
}

HRESULT NAME(StringCchCopy)(UNIT *to, size_t room, const UNIT *from) {
    return NAME(append)(to, room, from, STRSAFE_MAX_CCH, NULL, NULL, 0, 0);
}
HRESULT NAME(StringCchCopyEx)(UNIT *to, size_t room, const UNIT *from, UNIT **end, size_t *rest, DWORD flags) {
    return NAME(append)(to, room, from, STRSAFE_MAX_CCH, end, rest, flags, 0);
}
HRESULT NAME(StringCchCopyN)(UNIT *to, size_t room, const UNIT *from, size_t most) {
    return NAME(append)(to, room, from, most, NULL, NULL, 0, 0);
}
HRESULT NAME(StringCchCat)(UNIT *to, size_t room, const UNIT *from) {
    return NAME(append)(to, room, from, STRSAFE_MAX_CCH, NULL, NULL, 0, 1);
}
HRESULT NAME(StringCchCatEx)(UNIT *to, size_t room, const UNIT *from, UNIT **end, size_t *rest, DWORD flags) {
    return NAME(append)(to, room, from, STRSAFE_MAX_CCH, end, rest, flags, 1);
}
HRESULT NAME(StringCchCatN)(UNIT *to, size_t room, const UNIT *from, size_t most) {
    return NAME(append)(to, room, from, most, NULL, NULL, 0, 1);
}

HRESULT NAME(StringCchVPrintfEx)(UNIT *to, size_t room, UNIT **end, size_t *rest, DWORD flags, const UNIT *format, va_list arguments) {
    static const UNIT empty[1] = {0};
    if (!NAME(is_valid)(to, room, flags) || (!format && !(flags & STRSAFE_IGNORE_NULLS)))
        return STRSAFE_E_INVALID_PARAMETER;
    struct output output = {.is_wide = IS_WIDE, .buffer = to, .capacity = room};
    int length = traceweir_wide_format(&output, format ? format : empty, arguments);
    return NAME(finish)(to, room, 0, length < 0 ? room : (size_t)length, end, rest, flags);
}
HRESULT NAME(StringCchVPrintf)(UNIT *to, size_t room, const UNIT *format, va_list arguments) {
    return NAME(StringCchVPrintfEx)(to, room, NULL, NULL, 0, format, arguments);
}
HRESULT NAME(StringCchPrintf)(UNIT *to, size_t room, const UNIT *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    HRESULT result = NAME(StringCchVPrintf)(to, room, format, arguments);
    va_end(arguments);
    return result;
}
HRESULT NAME(StringCchPrintfEx)(UNIT *to, size_t room, UNIT **end, size_t *rest, DWORD flags, const UNIT *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    HRESULT result = NAME(StringCchVPrintfEx)(to, room, end, rest, flags, format, arguments);
    va_end(arguments);
    return result;
}

HRESULT NAME(StringCchLength)(const UNIT *text, size_t most, size_t *length) {
    size_t found = text && most <= STRSAFE_MAX_CCH ? LENGTH(text, most) : most;
    if (length)
        *length = found < most ? found : 0;
    return found < most ? S_OK : STRSAFE_E_INVALID_PARAMETER;
}

/* Converts the room after a text from characters to bytes. A last byte of the buffer that is only a
 * part of a character counts, too. */
static size_t *NAME(to_bytes)(size_t *rest, size_t size) {
    if (rest)
        *rest = *rest * sizeof(UNIT) + size % sizeof(UNIT);
    return rest;
}

HRESULT NAME(StringCbCopy)(UNIT *to, size_t size, const UNIT *from) {
    return NAME(StringCchCopy)(to, size / sizeof(UNIT), from);
}
HRESULT NAME(StringCbCopyEx)(UNIT *to, size_t size, const UNIT *from, UNIT **end, size_t *rest, DWORD flags) {
    HRESULT result = NAME(StringCchCopyEx)(to, size / sizeof(UNIT), from, end, rest, flags);
    if (result != STRSAFE_E_INVALID_PARAMETER)
        NAME(to_bytes)(rest, size);
    return result;
}
HRESULT NAME(StringCbCopyN)(UNIT *to, size_t size, const UNIT *from, size_t most) {
    return NAME(StringCchCopyN)(to, size / sizeof(UNIT), from, most / sizeof(UNIT));
}
HRESULT NAME(StringCbCat)(UNIT *to, size_t size, const UNIT *from) {
    return NAME(StringCchCat)(to, size / sizeof(UNIT), from);
}
HRESULT NAME(StringCbCatEx)(UNIT *to, size_t size, const UNIT *from, UNIT **end, size_t *rest, DWORD flags) {
    HRESULT result = NAME(StringCchCatEx)(to, size / sizeof(UNIT), from, end, rest, flags);
    if (result != STRSAFE_E_INVALID_PARAMETER)
        NAME(to_bytes)(rest, size);
    return result;
}
HRESULT NAME(StringCbCatN)(UNIT *to, size_t size, const UNIT *from, size_t most) {
    return NAME(StringCchCatN)(to, size / sizeof(UNIT), from, most / sizeof(UNIT));
}
HRESULT NAME(StringCbVPrintf)(UNIT *to, size_t size, const UNIT *format, va_list arguments) {
    return NAME(StringCchVPrintf)(to, size / sizeof(UNIT), format, arguments);
}
HRESULT NAME(StringCbVPrintfEx)(UNIT *to, size_t size, UNIT **end, size_t *rest, DWORD flags, const UNIT *format, va_list arguments) {
    HRESULT result = NAME(StringCchVPrintfEx)(to, size / sizeof(UNIT), end, rest, flags, format, arguments);
    if (result != STRSAFE_E_INVALID_PARAMETER)
        NAME(to_bytes)(rest, size);
    return result;
}
HRESULT NAME(StringCbPrintf)(UNIT *to, size_t size, const UNIT *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    HRESULT result = NAME(StringCbVPrintf)(to, size, format, arguments);
    va_end(arguments);
    return result;
}
HRESULT NAME(StringCbPrintfEx)(UNIT *to, size_t size, UNIT **end, size_t *rest, DWORD flags, const UNIT *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    HRESULT result = NAME(StringCbVPrintfEx)(to, size, end, rest, flags, format, arguments);
    va_end(arguments);
    return result;
}
HRESULT NAME(StringCbLength)(const UNIT *text, size_t most, size_t *length) {
    HRESULT result = NAME(StringCchLength)(text, most / sizeof(UNIT), length);
    if (length)
        *length *= sizeof(UNIT);
    return result;
}
