/* The functions of windows.h for text, GUIDs and times, with which consumers print events. */
#include "wide.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wctype.h>

#include "../include/wide/windows.h"

/* The numbers of 100 ns units from 1601, where FILETIME begins, to 1970, and in a second. */
#define EPOCH 116444736000000000LL
#define SECOND 10000000LL

/* Converts text of one width into the other, and returns the number of units, or 0 for an error.
 * With a room of 0, it only counts. */
static int convert(struct text text, void *to, int room, BOOL is_strict) {
    size_t at = 0, length = 0;
    if (room < 0 || (room > 0 && !to) || !text.units || text.length == 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    while (at < text.length) {
        wchar_t units[2];
        char bytes[4];
        size_t start = at;
        uint32_t code_point = traceweir_wide_next(&text, &at);
        BOOL is_malformed = code_point == REPLACEMENT_CHARACTER &&
                            (text.is_wide ? ((const wchar_t *)text.units)[start] != 0xFFFD : at - start == 1);
        if (is_malformed && is_strict) {
            SetLastError(ERROR_NO_UNICODE_TRANSLATION);
            return 0;
        }
        size_t size = text.is_wide ? traceweir_wide_to_utf8(code_point, bytes) : traceweir_wide_to_utf16(code_point, units);
        if (room > 0 && (size_t)room - length < size) {
            SetLastError(ERROR_INSUFFICIENT_BUFFER);
            return 0;
        }
        if (room > 0 && text.is_wide)
            memcpy((char *)to + length, bytes, size);
        else if (room > 0)
            memcpy((wchar_t *)to + length, units, size * sizeof(wchar_t));
        length += size;
        if (length > INT32_MAX) {
            SetLastError(ERROR_INVALID_PARAMETER);
            return 0;
        }
    }
    return (int)length;
}

int MultiByteToWideChar(UINT page, DWORD flags, LPCSTR from, int size, LPWSTR to, int room) {
    (void)page;
    size_t length = size >= 0 ? (size_t)size : from ? strlen(from) + 1 : 0;
    return convert((struct text){0, from, length}, to, room, (flags & MB_ERR_INVALID_CHARS) != 0);
}

int WideCharToMultiByte(UINT page, DWORD flags, LPCWSTR from, int size, LPSTR to, int room, LPCSTR other, LPBOOL was_other_used) {
    (void)page;
    (void)other;
    if (was_other_used)
        *was_other_used = FALSE;
    size_t length = size >= 0 ? (size_t)size : from ? wcslen((const wchar_t *)from) + 1 : 0;
    return convert((struct text){1, from, length}, to, room, (flags & WC_ERR_INVALID_CHARS) != 0);
}

int StringFromGUID2(REFGUID guid, LPWSTR to, int room) {
    const GUID *id = guid;
    if (!to || room < 39)
        return 0;
    swprintf((wchar_t *)to, 39, L"{%08X-%04X-%04X-%02X%02X-%02X%02X%02X%02X%02X%02X}", id->Data1, id->Data2, id->Data3, id->Data4[0],
             id->Data4[1], id->Data4[2], id->Data4[3], id->Data4[4], id->Data4[5], id->Data4[6], id->Data4[7]);
    return 39;
}

HRESULT StringFromCLSID(REFGUID guid, LPWSTR *text) {
    if (!text)
        return E_INVALIDARG;
    *text = malloc(39 * sizeof(WCHAR));
    if (!*text)
        return E_OUTOFMEMORY;
    StringFromGUID2(guid, *text, 39);
    return S_OK;
}

HRESULT StringFromIID(REFGUID guid, LPWSTR *text) {
    return StringFromCLSID(guid, text);
}

/* The locale in which all letters of Unicode have a case, or (locale_t)0. It is never freed. */
static locale_t unicode_locale(void) {
    static locale_t shared;
    locale_t found = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    locale_t created = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (created && !__atomic_compare_exchange_n(&shared, &found, created, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        freelocale(created);
        created = found;
    }
    return created;
}

/* Changes the case of a character in the way of Unicode, or only of ASCII if the system lacks the
 * locale. */
static wchar_t change_case(wchar_t unit, int is_upper, locale_t locale) {
    if (!locale)
        return (wchar_t)(is_upper ? towupper(unit) : towlower(unit));
    wint_t changed = is_upper ? towupper_l(unit, locale) : towlower_l(unit, locale);
    return changed > 0xFFFF ? unit : (wchar_t)changed;
}

int LCMapStringEx(LPCWSTR locale, DWORD flags, LPCWSTR from, int length, LPWSTR to, int room, LPVOID version, LPVOID reserved,
                  ULONG_PTR sort) {
    (void)locale, (void)version, (void)reserved, (void)sort;
    if (!from || length == 0 || length < -1 || room < 0 || (room > 0 && !to)) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    const DWORD known = LCMAP_LOWERCASE | LCMAP_UPPERCASE | LCMAP_BYTEREV | LCMAP_LINGUISTIC_CASING;
    const DWORD letter_case = flags & (LCMAP_LOWERCASE | LCMAP_UPPERCASE);
    if ((flags & ~known) != 0 || (flags & (known ^ LCMAP_LINGUISTIC_CASING)) == 0 ||
        letter_case == (LCMAP_LOWERCASE | LCMAP_UPPERCASE)) {
        SetLastError(ERROR_INVALID_FLAGS);
        return 0;
    }
    const size_t count = length == -1 ? wcslen((const wchar_t *)from) + 1 : (size_t)length;
    if (count > INT_MAX || (room > 0 && (size_t)room < count)) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    const locale_t unicode_case = letter_case ? unicode_locale() : (locale_t)0;
    for (size_t at = 0; room > 0 && at < count; at++) {
        wchar_t unit = (wchar_t)from[at];
        if (letter_case)
            unit = change_case(unit, letter_case == LCMAP_UPPERCASE, unicode_case);
        to[at] = (WCHAR)(flags & LCMAP_BYTEREV ? __builtin_bswap16((unsigned short)unit) : unit);
    }
    return (int)count;
}

int LCMapStringW(LCID locale, DWORD flags, LPCWSTR from, int length, LPWSTR to, int room) {
    (void)locale;
    return LCMapStringEx(NULL, flags, from, length, to, room, NULL, NULL, 0);
}

static int digit_of(wchar_t unit) {
    const wchar_t *digits = L"0123456789abcdef", *found = unit ? wcschr(digits, unit >= L'A' && unit <= L'F' ? unit + 32 : unit) : NULL;
    return found ? (int)(found - digits) : -1;
}

HRESULT CLSIDFromString(LPCWSTR text, GUID *id) {
    static const char form[] = "{xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}";
    unsigned char bytes[16];
    size_t digits = 0;
    if (!text || !id)
        return E_INVALIDARG;
    memset(id, 0, sizeof *id);
    for (size_t at = 0; at < sizeof form; at++) {
        int digit = digit_of((wchar_t)text[at]);
        if (form[at] == 'x' ? digit < 0 : (char)text[at] != form[at] || text[at] >= 0x80)
            return CO_E_CLASSSTRING;
        if (form[at] == 'x') {
            bytes[digits / 2] = (unsigned char)(digits % 2 ? bytes[digits / 2] << 4 | digit : digit);
            digits++;
        }
    }
    id->Data1 = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    id->Data2 = (uint16_t)(bytes[4] << 8 | bytes[5]);
    id->Data3 = (uint16_t)(bytes[6] << 8 | bytes[7]);
    memcpy(id->Data4, bytes + 8, 8);
    return S_OK;
}

HRESULT IIDFromString(LPCWSTR text, GUID *id) {
    return CLSIDFromString(text, id);
}

static int64_t ticks_of(const FILETIME *time) {
    return (int64_t)((uint64_t)time->dwHighDateTime << 32 | time->dwLowDateTime);
}

static FILETIME from_ticks(int64_t ticks) {
    return (FILETIME){(DWORD)ticks, (DWORD)((uint64_t)ticks >> 32)};
}

static void split(const struct tm *time, int64_t part, LPSYSTEMTIME to) {
    *to = (SYSTEMTIME){(WORD)(time->tm_year + 1900), (WORD)(time->tm_mon + 1), (WORD)time->tm_wday, (WORD)time->tm_mday,
                       (WORD)time->tm_hour, (WORD)time->tm_min, (WORD)time->tm_sec, (WORD)(part / 10000)};
}

void GetSystemTimeAsFileTime(LPFILETIME to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *to = from_ticks(EPOCH + now.tv_sec * SECOND + now.tv_nsec / 100);
}

void GetSystemTime(LPSYSTEMTIME to) {
    FILETIME now;
    GetSystemTimeAsFileTime(&now);
    FileTimeToSystemTime(&now, to);
}

void GetLocalTime(LPSYSTEMTIME to) {
    FILETIME now, local;
    GetSystemTimeAsFileTime(&now);
    FileTimeToLocalFileTime(&now, &local);
    FileTimeToSystemTime(&local, to);
}

BOOL FileTimeToSystemTime(const FILETIME *from, LPSYSTEMTIME to) {
    int64_t ticks = ticks_of(from);
    struct tm parts;
    /* The subtraction comes after the division: the remainder of a time before 1970 would otherwise
     * be negative. */
    time_t seconds = (time_t)(ticks / SECOND - EPOCH / SECOND);
    if (ticks < 0 || !gmtime_r(&seconds, &parts) || parts.tm_year + 1900 > 30827) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    split(&parts, ticks % SECOND, to);
    return TRUE;
}

BOOL SystemTimeToFileTime(const SYSTEMTIME *from, LPFILETIME to) {
    struct tm parts = {.tm_year = from->wYear - 1900, .tm_mon = from->wMonth - 1, .tm_mday = from->wDay, .tm_hour = from->wHour,
                       .tm_min = from->wMinute, .tm_sec = from->wSecond};
    struct tm same = parts;
    time_t seconds = timegm(&same);
    if (from->wYear < 1601 || from->wYear > 30827 || from->wMonth < 1 || from->wMonth > 12 || from->wMilliseconds > 999 ||
        same.tm_mday != from->wDay || same.tm_hour != from->wHour || same.tm_min != from->wMinute || same.tm_sec != from->wSecond) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    *to = from_ticks(EPOCH + (int64_t)seconds * SECOND + from->wMilliseconds * 10000LL);
    return TRUE;
}

BOOL FileTimeToLocalFileTime(const FILETIME *from, LPFILETIME to) {
    int64_t ticks = ticks_of(from);
    time_t now = time(NULL);
    struct tm local;
    /* As on Windows, with the offset that holds now. */
    if (ticks < 0 || !localtime_r(&now, &local)) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    *to = from_ticks(ticks + (int64_t)local.tm_gmtoff * SECOND);
    return TRUE;
}

int CompareFileTime(const FILETIME *a, const FILETIME *b) {
    uint64_t left = (uint64_t)ticks_of(a), right = (uint64_t)ticks_of(b);
    return (left > right) - (left < right);
}

DWORD GetEnvironmentVariableA(LPCSTR name, LPSTR to, DWORD room) {
    const char *value = name ? getenv(name) : NULL;
    if (!value) {
        SetLastError(name ? ERROR_ENVVAR_NOT_FOUND : ERROR_INVALID_PARAMETER);
        return 0;
    }
    size_t length = strlen(value);
    if (!to || length >= room)
        return (DWORD)length + 1;
    memcpy(to, value, length + 1);
    SetLastError(ERROR_SUCCESS);
    return (DWORD)length;
}

DWORD GetEnvironmentVariableW(LPCWSTR name, LPWSTR to, DWORD room) {
    char *narrow = name ? traceweir_wide_narrow((const wchar_t *)name) : NULL;
    const char *value = narrow ? getenv(narrow) : NULL;
    wchar_t *wide = value ? traceweir_wide_widen(value) : NULL;
    size_t length = wide ? wcslen(wide) : 0;
    BOOL is_found = wide != NULL, has_room = is_found && to && length < room;
    if (!wide)
        SetLastError(!name ? ERROR_INVALID_PARAMETER : narrow && !value ? ERROR_ENVVAR_NOT_FOUND : ERROR_NOT_ENOUGH_MEMORY);
    if (has_room) {
        wmemcpy((wchar_t *)to, wide, length + 1);
        SetLastError(ERROR_SUCCESS);
    }
    free(wide);
    free(narrow);
    return is_found && !has_room ? (DWORD)length + 1 : (DWORD)length;
}
