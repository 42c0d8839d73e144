/* The functions of winnls.h that write dates and times by a picture, in the way of en-US. */
#include "wide.h"

#include <stdlib.h>
#include <string.h>

#include "../include/wide/windows.h"

static const wchar_t *const days[] = {L"Sunday", L"Monday", L"Tuesday", L"Wednesday", L"Thursday", L"Friday", L"Saturday"};
static const wchar_t *const months[] = {L"January", L"February", L"March", L"April", L"May", L"June", L"July", L"August",
                                        L"September", L"October", L"November", L"December"};

/* The text so far. It is counted even where it does not fit. */
struct picture_output {
    wchar_t *text;
    size_t room;
    size_t length;
};

static void put(struct picture_output *output, wchar_t unit) {
    if (output->length < output->room)
        output->text[output->length] = unit;
    output->length++;
}

static void put_text(struct picture_output *output, const wchar_t *text, size_t limit) {
    for (size_t at = 0; text[at] && at < limit; at++)
        put(output, text[at]);
}

/* Writes a number with at least this many digits. */
static void put_number(struct picture_output *output, unsigned value, size_t digits) {
    wchar_t text[16];
    swprintf(text, 16, L"%0*u", (int)digits, value);
    put_text(output, text, 16);
}

static void put_date(struct picture_output *output, const SYSTEMTIME *date, wchar_t letter, size_t count) {
    switch (letter) {
    case L'd':
        if (count <= 2)
            put_number(output, date->wDay, count);
        else
            put_text(output, days[date->wDayOfWeek], count == 3 ? 3 : SIZE_MAX);
        break;
    case L'M':
        if (count <= 2)
            put_number(output, date->wMonth, count);
        else
            put_text(output, months[date->wMonth - 1], count == 3 ? 3 : SIZE_MAX);
        break;
    case L'y':
        if (count <= 2)
            put_number(output, date->wYear % 100, count);
        else
            put_number(output, date->wYear, count == 3 ? 4 : count > 5 ? 5 : count);
        break;
    default: /* g: the era, which this calendar does not show. */
        break;
    }
}

static void put_time(struct picture_output *output, const SYSTEMTIME *time, wchar_t letter, size_t count, DWORD flags) {
    size_t digits = count > 2 ? 2 : count;
    switch (letter) {
    case L'h':
        if (!(flags & TIME_FORCE24HOURFORMAT)) {
            put_number(output, time->wHour % 12 ? time->wHour % 12 : 12, digits);
            break;
        }
        /* fall through */
    case L'H':
        put_number(output, time->wHour, digits);
        break;
    case L'm':
        put_number(output, time->wMinute, digits);
        break;
    case L's':
        put_number(output, time->wSecond, digits);
        break;
    default: /* t: the time marker. */
        put_text(output, time->wHour < 12 ? L"AM" : L"PM", count == 1 ? 1 : SIZE_MAX);
        break;
    }
}

/* Returns whether the flags leave out a part of a time. */
static int is_left_out(wchar_t letter, DWORD flags) {
    return (letter == L't' && (flags & TIME_NOTIMEMARKER)) ||
           (letter == L's' && (flags & (TIME_NOSECONDS | TIME_NOMINUTESORSECONDS))) ||
           (letter == L'm' && (flags & TIME_NOMINUTESORSECONDS));
}

/* Writes a date or a time by a picture. Text in single quotes is copied, and two quotes in it are
 * one. Where a part is left out, so is the text between it and the part before it. */
static void format(struct picture_output *output, const SYSTEMTIME *time, const wchar_t *picture, const wchar_t *letters, DWORD flags) {
    size_t part_end = 0;
    for (const wchar_t *at = picture; *at;) {
        if (*at == L'\'') {
            for (at++; *at && (*at != L'\'' || at[1] == L'\''); at++) {
                at += *at == L'\'';
                put(output, *at);
            }
            at += *at == L'\'';
            continue;
        }
        if (!wcschr(letters, *at)) {
            put(output, *at++);
            continue;
        }
        const wchar_t *part = at;
        while (*at == *part)
            at++;
        if (letters[0] == L'd') {
            put_date(output, time, *part, (size_t)(at - part));
        } else if (is_left_out(*part, flags)) {
            output->length = part_end;
        } else {
            put_time(output, time, *part, (size_t)(at - part), flags);
            part_end = output->length;
        }
    }
}

/* Formats into memory of "room" units. Returns the number of units with the NUL, or 0. */
static int format_checked(const SYSTEMTIME *time, const wchar_t *picture, const wchar_t *letters, DWORD flags, wchar_t *to, int room) {
    struct picture_output output = {to, room > 0 ? (size_t)room : 0, 0};
    if (room < 0 || (room > 0 && !to)) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    format(&output, time, picture, letters, flags);
    put(&output, 0);
    if (room > 0 && output.length > output.room) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    return (int)output.length;
}

/* Picks the date to write, and computes its day of the week, which the caller need not set. */
static BOOL pick_date(const SYSTEMTIME *from, SYSTEMTIME *to) {
    FILETIME time;
    if (!from) {
        GetLocalTime(to);
        return TRUE;
    }
    SYSTEMTIME midnight = {from->wYear, from->wMonth, 0, from->wDay, 0, 0, 0, 0};
    return SystemTimeToFileTime(&midnight, &time) && FileTimeToSystemTime(&time, to);
}

int GetDateFormatEx(LPCWSTR locale, DWORD flags, const SYSTEMTIME *from, LPCWSTR picture, LPWSTR to, int room, LPCWSTR calendar) {
    SYSTEMTIME date;
    DWORD kind = flags & (DATE_SHORTDATE | DATE_LONGDATE | DATE_YEARMONTH | DATE_MONTHDAY);
    (void)locale;
    if (calendar) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    if ((picture && kind) || (kind & (kind - 1))) {
        SetLastError(ERROR_INVALID_FLAGS);
        return 0;
    }
    if (!pick_date(from, &date))
        return 0;
    const wchar_t *used = (const wchar_t *)picture;
    if (!used)
        used = kind == DATE_LONGDATE    ? L"dddd, MMMM d, yyyy"
               : kind == DATE_YEARMONTH ? L"MMMM yyyy"
               : kind == DATE_MONTHDAY  ? L"MMMM d"
                                        : L"M/d/yyyy";
    return format_checked(&date, used, L"dMyg", 0, (wchar_t *)to, room);
}

int GetDateFormatW(LCID locale, DWORD flags, const SYSTEMTIME *from, LPCWSTR picture, LPWSTR to, int room) {
    (void)locale;
    return GetDateFormatEx(NULL, flags, from, picture, to, room, NULL);
}

int GetTimeFormatEx(LPCWSTR locale, DWORD flags, const SYSTEMTIME *from, LPCWSTR picture, LPWSTR to, int room) {
    SYSTEMTIME time;
    (void)locale;
    if (from)
        time = *from;
    else
        GetLocalTime(&time);
    if (time.wHour > 23 || time.wMinute > 59 || time.wSecond > 59 || time.wMilliseconds > 999) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    return format_checked(&time, picture ? (const wchar_t *)picture : L"h:mm:ss tt", L"hHmst", flags, (wchar_t *)to, room);
}

int GetTimeFormatW(LCID locale, DWORD flags, const SYSTEMTIME *from, LPCWSTR picture, LPWSTR to, int room) {
    (void)locale;
    return GetTimeFormatEx(NULL, flags, from, picture, to, room);
}

/* Calls a function for wide text with a narrow picture and a narrow result. */
static int format_narrow(int (*format_wide)(LCID, DWORD, const SYSTEMTIME *, LPCWSTR, LPWSTR, int), DWORD flags, const SYSTEMTIME *from,
                         LPCSTR picture, LPSTR to, int room) {
    wchar_t *wide_picture = picture ? traceweir_wide_widen(picture) : NULL, *text = NULL;
    int length = 0;
    if (!picture || wide_picture) {
        length = format_wide(0, flags, from, (LPCWSTR)wide_picture, NULL, 0);
        text = length > 0 ? malloc((size_t)length * sizeof(wchar_t)) : NULL;
    }
    if (length > 0 && !text)
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
    if (text) {
        format_wide(0, flags, from, (LPCWSTR)wide_picture, (LPWSTR)text, length);
        length = WideCharToMultiByte(CP_ACP, 0, (LPCWSTR)text, length, to, room, NULL, NULL);
    } else {
        length = 0;
    }
    free(text);
    free(wide_picture);
    return length;
}

int GetDateFormatA(LCID locale, DWORD flags, const SYSTEMTIME *from, LPCSTR picture, LPSTR to, int room) {
    (void)locale;
    return format_narrow(GetDateFormatW, flags, from, picture, to, room);
}

int GetTimeFormatA(LCID locale, DWORD flags, const SYSTEMTIME *from, LPCSTR picture, LPSTR to, int room) {
    (void)locale;
    return format_narrow(GetTimeFormatW, flags, from, picture, to, room);
}
