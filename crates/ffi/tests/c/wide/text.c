/* The wide-character functions over a wchar_t of 16 bits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>
#include <objbase.h>
#include <tchar.h>
#include <wchar.h>
#include <wctype.h>

static int rows, failures;

#define EXPECT(condition)                                                    \
    do {                                                                     \
        rows++;                                                              \
        if (!(condition)) {                                                  \
            failures++;                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
        }                                                                    \
    } while (0)

/* Keeps the compiler from knowing the text. */
static const wchar_t *hide(const wchar_t *text) {
    __asm__("" : "+r"(text));
    return text;
}

static void check_text(void) {
    wchar_t to[16];
    const wchar_t *text = hide(L"tele.graph");
    EXPECT(sizeof(wchar_t) == 2);
    EXPECT(wcslen(text) == 10 && wcsnlen(text, 4) == 4);
    EXPECT(wcscmp(wcscpy(to, text), text) == 0 && wcscmp(text, L"tele") > 0 && wcsncmp(text, L"tele", 4) == 0);
    EXPECT(wcscmp(wcscat(wcscpy(to, L"a"), L"bc"), L"abc") == 0);
    EXPECT(wcscmp(wcsncat(to, L"defgh", 2), L"abcde") == 0);
    EXPECT(wmemcmp(wcsncpy(to, L"xy", 5), L"xy\0\0\0", 5) == 0 && to[5] == 0);
    EXPECT(wcschr(text, L'e') == text + 1 && wcsrchr(text, L'e') == text + 3 && !wcschr(text, L'z'));
    EXPECT(wcschr(text, L'\0') == text + 10);
    EXPECT(wcsstr(text, L"gra") == text + 5 && !wcsstr(text, L"grab") && wcsstr(text, L"") == text);
    EXPECT(wcsspn(text, L"tel") == 4 && wcscspn(text, L".") == 4 && wcspbrk(text, L".g") == text + 4);
    EXPECT(_wcsicmp(L"TDH.dll", hide(L"tdh.DLL")) == 0 && _wcsicmp(L"a", L"B") < 0 && _wcsnicmp(L"ABCx", L"abcy", 3) == 0);
    wchar_t words[] = L"-a  b-", *context, *token = wcstok_s(words, L" -", &context);
    EXPECT(wcscmp(token, L"a") == 0);
    EXPECT(wcscmp(wcstok_s(NULL, L" -", &context), L"b") == 0 && !wcstok_s(NULL, L" -", &context));
    wchar_t *copy = _wcsdup(text);
    EXPECT(copy && copy != text && wcscmp(_wcsupr(copy), L"TELE.GRAPH") == 0 && wcscmp(_wcslwr(copy), text) == 0);
    free(copy);
    EXPECT(wmemchr(text, L'g', 10) == text + 5 && !wmemchr(text, L'g', 5));
    EXPECT(wmemcmp(wmemset(to, L'=', 3), L"===", 3) == 0 && wmemmove(to + 1, to, 3)[2] == L'=');
    EXPECT(wcscmp(L"\xFFFF", L"a") > 0);
    EXPECT(iswdigit(L'7') && !iswdigit(L'x') && iswspace(L'\t') && iswxdigit(L'f') && iswalpha(L'q'));
    EXPECT(towupper(L'q') == L'Q' && towlower(L'Q') == L'q');
}

static void check_bounded(void) {
    wchar_t to[4];
    char narrow[4];
    EXPECT(wcscpy_s(to, 4, L"abc") == 0 && wcscmp(to, L"abc") == 0);
    EXPECT(wcscpy_s(to, 4, L"abcd") == ERANGE && to[0] == 0 && wcscpy_s(NULL, 4, L"a") == EINVAL);
    EXPECT(wcsncpy_s(to, 4, L"abcdef", 2) == 0 && wcscmp(to, L"ab") == 0);
    EXPECT(wcsncpy_s(to, 4, L"abcdef", _TRUNCATE) == STRUNCATE && wcscmp(to, L"abc") == 0);
    EXPECT(wcsncpy_s(to, 4, L"abcdef", 4) == ERANGE && to[0] == 0);
    EXPECT(wcscpy_s(to, 4, L"a") == 0 && wcscat_s(to, 4, L"bc") == 0 && wcscmp(to, L"abc") == 0);
    EXPECT(wcscat_s(to, 4, L"d") == ERANGE && to[0] == 0);
    EXPECT(wcsncat_s(to, 4, L"xyz", 1) == 0 && wcscmp(to, L"x") == 0);
    EXPECT(strcpy_s(narrow, 4, "abc") == 0 && strcat_s(narrow, 4, "d") == ERANGE && narrow[0] == 0);
    EXPECT(strncpy_s(narrow, 4, "abcdef", _TRUNCATE) == STRUNCATE && strcmp(narrow, "abc") == 0);
    EXPECT(memcpy_s(narrow, 4, "xy", 2) == 0 && narrow[0] == 'x' && memcpy_s(narrow, 1, "ab", 2) == ERANGE);
    EXPECT(_stricmp("ABC", "abc") == 0 && _strnicmp("ABx", "aby", 2) == 0);
}

static void check_numbers(void) {
    wchar_t *end, text[70];
    const wchar_t *hex = L" 0x1Fg";
    EXPECT(wcstol(hex, &end, 16) == 31 && end == hex + 5);
    EXPECT(wcstoul(L"4294967295", NULL, 10) == 0xFFFFFFFFu);
    errno = 0;
    EXPECT(wcstoul(L"4294967296", NULL, 10) == 0xFFFFFFFFu && errno == ERANGE);
    EXPECT(wcstol(L"-3000000000", NULL, 10) == -2147483648 && wcstol(L"x", &end, 10) == 0);
    EXPECT(_wcstoui64(L"0xFFFFFFFFFFFFFFFF", NULL, 0) == ~0ULL && _wcstoi64(L"-5", NULL, 10) == -5);
    EXPECT(_wtoi(L"42abc") == 42 && _wtoi64(L"1099511627776") == 1LL << 40 && wcstod(L"2.5", NULL) == 2.5);
    EXPECT(wcscmp(_itow(-31, text, 10), L"-31") == 0 && wcscmp(_itow(-1, text, 16), L"ffffffff") == 0);
    EXPECT(wcscmp(_ui64tow(~0ULL, text, 2), L"1111111111111111111111111111111111111111111111111111111111111111") == 0);
    EXPECT(_itow_s(1234, text, 4, 10) == ERANGE && _itow_s(123, text, 4, 10) == 0 && wcscmp(text, L"123") == 0);
}

static void check_scanning(void) {
    int a = 0, b = 0, n = 0;
    unsigned short part = 0;
    unsigned long long large = 0;
    double real = 0;
    wchar_t word[8];
    char narrow[8];
    EXPECT(swscanf(L" 12 -0x1f", L"%d %i%n", &a, &b, &n) == 2 && a == 12 && b == -31 && n == 9);
    EXPECT(swscanf(L"{C0FFEE20-1A2B", L"{%8x-%4hx", (unsigned *)&a, &part) == 2 && (unsigned)a == 0xC0FFEE20 && part == 0x1A2B);
    EXPECT(swscanf(L"18446744073709551615", L"%I64u", &large) == 1 && large == ~0ULL);
    EXPECT(swscanf(L"größe ä 2.5", L"%s %hs %lf", word, narrow, &real) == 3 && wcscmp(word, L"größe") == 0 && strcmp(narrow, "\xC3\xA4") == 0 &&
           real == 2.5);
    EXPECT(swscanf(L"key=value", L"%[^=]=%*[v-z]%c", word, word + 4) == 2 && wcscmp(word, L"key") == 0 && word[4] == L'a');
    EXPECT(swscanf_s(L"abc 7", L"%s %d", word, 8u, &a) == 2 && a == 7 && wcscmp(word, L"abc") == 0);
    EXPECT(swscanf_s(L"abcdefgh", L"%s", word, 8u) == 0 && word[0] == 0);
    EXPECT(swscanf(L"", L"%d", &a) == EOF && swscanf(L"x", L"%d", &a) == 0 && swscanf(L"5%6", L"%d%%%d", &a, &b) == 2 && b == 6);
}

static void check_bounded_conversions(void) {
    wchar_t wide[4];
    char narrow[4];
    size_t units = 9;
    EXPECT(mbstowcs_s(&units, wide, 4, "a\xC3\xA4", _TRUNCATE) == 0 && units == 3 && wcscmp(wide, L"aä") == 0);
    EXPECT(mbstowcs_s(&units, wide, 4, "abcd", _TRUNCATE) == STRUNCATE && units == 4 && wcscmp(wide, L"abc") == 0);
    EXPECT(mbstowcs_s(&units, wide, 4, "abc", 3) == 0 && units == 4 && wcscmp(wide, L"abc") == 0);
    EXPECT(mbstowcs_s(&units, wide, 4, "abcd", 2) == 0 && units == 3 && wcscmp(wide, L"ab") == 0);
    EXPECT(mbstowcs_s(&units, wide, 4, "abcd", 4) == ERANGE && wide[0] == 0);
    EXPECT(mbstowcs_s(&units, wide, 4, "ab\xF0\x9F\x98\x80", _TRUNCATE) == STRUNCATE && units == 3 && wcscmp(wide, L"ab") == 0);
    EXPECT(mbstowcs_s(&units, NULL, 0, "abcd", 0) == 0 && units == 5);
    EXPECT(mbstowcs_s(NULL, wide, 4, "x", _TRUNCATE) == 0 && wcscmp(wide, L"x") == 0);
    EXPECT(mbstowcs_s(&units, NULL, 4, "abcd", 0) == EINVAL && mbstowcs_s(&units, wide, 0, "a", 1) == EINVAL);
    EXPECT(mbstowcs_s(&units, wide, 4, NULL, 1) == EINVAL && wide[0] == 0);
    EXPECT(wcstombs_s(&units, narrow, 4, L"aä", _TRUNCATE) == 0 && units == 4 && strcmp(narrow, "a\xC3\xA4") == 0);
    EXPECT(wcstombs_s(&units, narrow, 4, L"ää", _TRUNCATE) == STRUNCATE && units == 3 && strcmp(narrow, "\xC3\xA4") == 0);
    EXPECT(wcstombs_s(&units, narrow, 4, L"abcd", 4) == ERANGE && narrow[0] == 0);
}

static void check_environment(void) {
    WCHAR wide[4];
    CHAR narrow[4];
    setenv("TRACEWEIR_TEST_TEXT", "\xC3\xA4" "b", 1);
    EXPECT(GetEnvironmentVariableW(L"TRACEWEIR_TEST_TEXT", wide, 4) == 2 && wcscmp(wide, L"äb") == 0);
    EXPECT(GetEnvironmentVariableW(L"TRACEWEIR_TEST_TEXT", wide, 2) == 3 && GetEnvironmentVariableW(L"TRACEWEIR_TEST_TEXT", NULL, 0) == 3);
    EXPECT(GetEnvironmentVariableA("TRACEWEIR_TEST_TEXT", narrow, 4) == 3 && strcmp(narrow, "\xC3\xA4" "b") == 0);
    EXPECT(GetEnvironmentVariableA("TRACEWEIR_TEST_TEXT", narrow, 3) == 4);
    setenv("TRACEWEIR_TEST_TEXT", "", 1);
    EXPECT(GetEnvironmentVariableW(L"TRACEWEIR_TEST_TEXT", wide, 4) == 0 && wide[0] == 0 && GetLastError() == ERROR_SUCCESS);
    unsetenv("TRACEWEIR_TEST_TEXT");
    EXPECT(GetEnvironmentVariableW(L"TRACEWEIR_TEST_TEXT", wide, 4) == 0 && GetLastError() == ERROR_ENVVAR_NOT_FOUND);
    EXPECT(GetEnvironmentVariableA("TRACEWEIR_TEST_TEXT", narrow, 4) == 0 && GetLastError() == ERROR_ENVVAR_NOT_FOUND);
}

static void check_conversions(void) {
    wchar_t wide[8];
    char narrow[16];
    EXPECT(mbstowcs(wide, "a\xC3\xA4\xF0\x9F\x98\x80", 8) == 4 && wcscmp(wide, L"aä\U0001F600") == 0);
    EXPECT(mbstowcs(NULL, "a\xC3\xA4", 0) == 2 && mbstowcs(wide, "\xFF", 8) == 1 && wide[0] == 0xFFFD);
    EXPECT(wcstombs(narrow, L"aä\U0001F600", 16) == 7 && strcmp(narrow, "a\xC3\xA4\xF0\x9F\x98\x80") == 0);
    EXPECT(wcstombs(narrow, L"ääää", 3) == 2);
    EXPECT(mbtowc(wide, "\xC3\xA4", 2) == 2 && wide[0] == L'ä' && wctomb(narrow, L'ä') == 2);
    EXPECT(MB_CUR_MAX == 4);
}

static void check_files(const wchar_t *folder) {
    wchar_t path[512], line[16];
    swprintf_s(path, 512, L"%s/wörter.txt", folder);
    FILE *file = _wfopen(path, L"w, ccs=UTF-8");
    EXPECT(file != NULL);
    if (!file)
        return;
    EXPECT(fputws(L"größe\n", file) >= 0 && fwprintf(file, L"%s-%d\n", L"zwei", 2) == 7 && fputwc(L'€', file) == L'€');
    fclose(file);
    EXPECT(_wfopen_s(&file, path, L"rt") == 0);
    EXPECT(fgetws(line, 16, file) && wcscmp(line, L"größe\n") == 0 && fgetws(line, 4, file) && wcscmp(line, L"zwe") == 0);
    EXPECT(fgetwc(file) == L'i' && ungetwc(L'ß', file) == L'ß' && fgetwc(file) == L'ß');
    EXPECT(fgetws(line, 16, file) && fgetwc(file) == L'€' && fgetwc(file) == WEOF);
    fclose(file);
    EXPECT(_wremove(path) == 0 && !_wfopen(path, L"r"));
    EXPECT(wcscmp(_wfullpath(path, L"/a/./b/../c//d", 512), L"/a/c/d") == 0 && !_wfullpath(path, L"/abc", 4));
}

#include <pshpack1.h>
struct packed {
    char kind;
    ULONG length;
};
#include <poppack.h>

static void check_win32(void) {
    static const GUID id = {0xC0FFEE20, 0x1A2B, 0x3C4D, {1, 2, 3, 4, 5, 6, 7, 0xF8}};
    WCHAR text[40];
    char narrow[8];
    GUID same;
    EXPECT(sizeof(struct packed) == 5 && ULONG_MAX == (ULONG)-1 && LONG_MIN < 0);
    EXPECT(StringFromGUID2(&id, text, 40) == 39 && wcscmp(text, L"{C0FFEE20-1A2B-3C4D-0102-0304050607F8}") == 0);
    EXPECT(StringFromGUID2(&id, text, 38) == 0);
    LPWSTR allocated = NULL;
    EXPECT(StringFromCLSID(&id, &allocated) == S_OK && wcscmp(allocated, L"{C0FFEE20-1A2B-3C4D-0102-0304050607F8}") == 0);
    CoTaskMemFree(allocated);
    EXPECT(StringFromIID(&id, NULL) == E_INVALIDARG);
    EXPECT(LCMapStringEx(LOCALE_NAME_INVARIANT, LCMAP_UPPERCASE, L"aß1ä", -1, text, 40, NULL, NULL, 0) == 5 && wcscmp(text, L"Aß1Ä") == 0);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, LCMAP_LOWERCASE | LCMAP_BYTEREV, L"ABC", 2, text, 2) == 2 && text[0] == 0x6100 && text[1] == 0x6200);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, LCMAP_UPPERCASE, L"abc", 3, NULL, 0) == 3);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, LCMAP_UPPERCASE, L"abc", 3, text, 2) == 0 && GetLastError() == ERROR_INSUFFICIENT_BUFFER);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, LCMAP_UPPERCASE | LCMAP_LOWERCASE, L"abc", 3, text, 9) == 0 && GetLastError() == ERROR_INVALID_FLAGS);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, 0x400, L"abc", 3, text, 9) == 0 && GetLastError() == ERROR_INVALID_FLAGS);
    EXPECT(LCMapStringW(LOCALE_INVARIANT, LCMAP_UPPERCASE, L"abc", 0, text, 9) == 0 && GetLastError() == ERROR_INVALID_PARAMETER);
    EXPECT(CLSIDFromString(L"{c0ffee20-1A2B-3C4D-0102-0304050607F8}", &same) == S_OK && memcmp(&same, &id, sizeof id) == 0);
    EXPECT(CLSIDFromString(L"{c0ffee20-1A2B-3C4D-0102-0304050607F8", &same) == CO_E_CLASSSTRING);
    EXPECT(CLSIDFromString(L"c0ffee20", &same) == CO_E_CLASSSTRING);
    EXPECT(WideCharToMultiByte(CP_UTF8, 0, L"ä€", -1, NULL, 0, NULL, NULL) == 6);
    EXPECT(WideCharToMultiByte(CP_ACP, 0, L"ä€", -1, narrow, 8, NULL, NULL) == 6 && strcmp(narrow, "\xC3\xA4\xE2\x82\xAC") == 0);
    EXPECT(WideCharToMultiByte(CP_UTF8, 0, L"ä€", -1, narrow, 5, NULL, NULL) == 0 && GetLastError() == ERROR_INSUFFICIENT_BUFFER);
    EXPECT(MultiByteToWideChar(CP_UTF8, 0, "\xC3\xA4!", 2, text, 40) == 1 && text[0] == L'ä');
    EXPECT(MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, "\xC3", 1, text, 40) == 0 && GetLastError() == ERROR_NO_UNICODE_TRANSLATION);
    EXPECT(MultiByteToWideChar(CP_UTF8, 0, NULL, -1, text, 40) == 0 && GetLastError() == ERROR_INVALID_PARAMETER);
    FILETIME time = {0xD53E8000, 0x019DB1DE}, back, now;
    SYSTEMTIME parts;
    EXPECT(FileTimeToSystemTime(&time, &parts) && parts.wYear == 1970 && parts.wMonth == 1 && parts.wDay == 1 && parts.wDayOfWeek == 4);
    parts = (SYSTEMTIME){2024, 2, 0, 29, 23, 59, 58, 123};
    EXPECT(SystemTimeToFileTime(&parts, &back) && FileTimeToSystemTime(&back, &parts) && parts.wDay == 29 && parts.wMilliseconds == 123);
    EXPECT(CompareFileTime(&time, &back) == -1 && CompareFileTime(&back, &back) == 0);
    parts.wDay = 30;
    EXPECT(!SystemTimeToFileTime(&parts, &back) && GetLastError() == ERROR_INVALID_PARAMETER);
    time.dwHighDateTime = 0;
    time.dwLowDateTime = 1;
    EXPECT(FileTimeToSystemTime(&time, &parts) && parts.wYear == 1601 && parts.wDay == 1);
    GetSystemTimeAsFileTime(&now);
    GetSystemTime(&parts);
    EXPECT(SystemTimeToFileTime(&parts, &back) && CompareFileTime(&now, &back) <= 1 && GetCurrentProcessId() > 0);
}

static void check_dates(void) {
    SYSTEMTIME time = {2024, 2, 0, 29, 15, 4, 9, 123}, wrong = {2023, 2, 0, 29, 0, 0, 0, 0};
    WCHAR text[64];
    CHAR narrow[64];
    EXPECT(GetDateFormatW(LOCALE_USER_DEFAULT, 0, &time, L"yyyy'-'MM'-'dd", text, 64) == 11 && wcscmp(text, L"2024-02-29") == 0);
    EXPECT(GetTimeFormatW(LOCALE_USER_DEFAULT, 0, &time, L"HH':'mm':'ss", text, 64) == 9 && wcscmp(text, L"15:04:09") == 0);
    EXPECT(GetDateFormatW(0, 0, &time, L"ddd dddd d MMM MMMM M yy y 'it''s'", text, 64) > 0 &&
           wcscmp(text, L"Thu Thursday 29 Feb February 2 24 24 it's") == 0);
    EXPECT(GetDateFormatW(0, DATE_LONGDATE, &time, NULL, text, 64) > 0 && wcscmp(text, L"Thursday, February 29, 2024") == 0);
    EXPECT(GetDateFormatEx(NULL, 0, &time, NULL, text, 64, NULL) == 10 && wcscmp(text, L"2/29/2024") == 0);
    EXPECT(GetTimeFormatEx(NULL, 0, &time, NULL, text, 64) == 11 && wcscmp(text, L"3:04:09 PM") == 0);
    EXPECT(GetTimeFormatW(0, TIME_NOSECONDS | TIME_NOTIMEMARKER, &time, NULL, text, 64) == 5 && wcscmp(text, L"3:04") == 0);
    EXPECT(GetTimeFormatW(0, TIME_FORCE24HOURFORMAT, &time, L"h:m:s t", text, 64) == 9 && wcscmp(text, L"15:4:9 P") == 0);
    EXPECT(GetDateFormatA(0, 0, &time, "yyyy/MM", narrow, 64) == 8 && strcmp(narrow, "2024/02") == 0);
    EXPECT(GetTimeFormatA(0, 0, &time, "HH", narrow, 3) == 3 && strcmp(narrow, "15") == 0);
    EXPECT(GetDateFormatW(0, 0, &time, L"yyyy", NULL, 0) == 5);
    EXPECT(GetDateFormatW(0, 0, &time, L"yyyy", text, 4) == 0 && GetLastError() == ERROR_INSUFFICIENT_BUFFER);
    EXPECT(GetDateFormatW(0, 0, &wrong, L"yyyy", text, 64) == 0 && GetLastError() == ERROR_INVALID_PARAMETER);
    EXPECT(GetDateFormatW(0, DATE_LONGDATE, &time, L"yyyy", text, 64) == 0 && GetLastError() == ERROR_INVALID_FLAGS);
    EXPECT(GetDateFormatW(0, 0, NULL, NULL, text, 64) > 0);
    EXPECT(_byteswap_ushort(0x1234) == 0x3412 && _byteswap_ulong(0x12345678) == 0x78563412);
}

int _tmain(int count, TCHAR *arguments[]) {
    EXPECT(count == 2 && _tcslen(arguments[1]) > 0 && _tcsicmp(_T("A"), _T("a")) == 0);
    check_text();
    check_bounded();
    check_numbers();
    check_conversions();
    check_bounded_conversions();
    check_environment();
    check_scanning();
    check_files(arguments[1]);
    check_win32();
    check_dates();
    _tprintf(_T("rows: %d\n"), rows);
    return failures != 0;
}
