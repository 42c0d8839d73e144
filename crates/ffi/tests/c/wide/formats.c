/* Every row of formats.h with a wide and a narrow function, and the results of functions whose
 * buffer is too small. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strsafe.h>
#include <wchar.h>

static int rows, failures;

#define EXPECT(condition)                                                    \
    do {                                                                     \
        rows++;                                                              \
        if (!(condition)) {                                                  \
            failures++;                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
        }                                                                    \
    } while (0)

struct counted {
    unsigned short length, capacity;
    const void *text;
};

/* The lengths are in bytes and leave out the "!". */
static const struct counted wide_counted = {14, 16, L"counted!"}, narrow_counted = {5, 8, "bytes!"};

static void check_wide_rows(void) {
    const wchar_t *own = L"text";
    const char *other = "ähm", *other_text = "text";
    wchar_t text[128];
#define T(literal) L##literal
#define ROW(expected, ...)                                                              \
    EXPECT(swprintf(text, 128, __VA_ARGS__) == (int)wcslen(expected));                  \
    if (wcscmp(text, expected) != 0)                                                    \
        fprintf(stderr, "%ls instead of %ls\n", text, expected);                        \
    EXPECT(wcscmp(text, expected) == 0);
#include "formats.h"
#undef ROW
#undef T
}

static void check_narrow_rows(void) {
    const char *own = "text";
    const wchar_t *other = L"ähm", *other_text = L"text";
    char text[128];
#define T(literal) literal
#define ROW(expected, ...)                                                              \
    EXPECT(snprintf(text, 128, __VA_ARGS__) == (int)strlen(expected));                  \
    if (strcmp(text, expected) != 0)                                                    \
        fprintf(stderr, "%s instead of %s\n", text, expected);                          \
    EXPECT(strcmp(text, expected) == 0);
#include "formats.h"
#undef ROW
#undef T
}

static void check_small_buffers(void) {
    wchar_t text[8];
    EXPECT(swprintf(text, 4, L"%d", 12345) == -1 && wcscmp(text, L"123") == 0);
    EXPECT(swprintf_s(text, 4, L"%d", 12345) == -1 && text[0] == 0 && errno == ERANGE);
    EXPECT(swprintf_s(text, 6, L"%d", 12345) == 5 && wcscmp(text, L"12345") == 0);
    wmemset(text, L'#', 8);
    EXPECT(_snwprintf(text, 3, L"%d", 123) == 3 && text[3] == L'#');
    EXPECT(_snwprintf(text, 3, L"%d", 1234) == -1 && text[2] == L'3' && text[3] == L'#');
    EXPECT(_snwprintf_s(text, 4, _TRUNCATE, L"%d", 12345) == -1 && wcscmp(text, L"123") == 0);
    EXPECT(_snwprintf_s(text, 8, 2, L"%d", 12345) == -1 && wcscmp(text, L"12") == 0);
    EXPECT(_scwprintf(L"%s-%d", L"ab", 10) == 5);
    EXPECT(wsprintfW(text, L"%s", L"ab") == 2 && wcscmp(text, L"ab") == 0);
    char narrow[8];
    EXPECT(sprintf_s(narrow, 4, "%d", 12345) == -1 && narrow[0] == 0);
    EXPECT(snprintf(narrow, 4, "%d", 12345) == 5 && strcmp(narrow, "123") == 0);
    EXPECT(_snprintf(narrow, 4, "%d", 12345) == -1 && memcmp(narrow, "1234", 4) == 0);
    EXPECT(_scprintf("%I64d", 1LL << 40) == 13);
    EXPECT(snprintf(NULL, 0, "%S", L"äö") == 4);
    EXPECT(snprintf(narrow, 8, "%" PRIx64, (uint64_t)1 << 20) == 6 && snprintf(NULL, 0, "%" PRIu64, ~(uint64_t)0) == 20);
}

static void check_strsafe(void) {
    WCHAR text[8], *end;
    size_t rest, length;
    char narrow[8];
    EXPECT(StringCchCopyW(text, 8, L"abc") == S_OK && wcscmp(text, L"abc") == 0);
    EXPECT(StringCchCatW(text, 8, L"defg") == S_OK && wcscmp(text, L"abcdefg") == 0);
    EXPECT(StringCchCatW(text, 8, L"h") == STRSAFE_E_INSUFFICIENT_BUFFER && wcscmp(text, L"abcdefg") == 0);
    EXPECT(StringCchCopyW(text, 4, L"abcdef") == STRSAFE_E_INSUFFICIENT_BUFFER && wcscmp(text, L"abc") == 0);
    EXPECT(StringCchCopyNW(text, 8, L"abcdef", 2) == S_OK && wcscmp(text, L"ab") == 0);
    EXPECT(StringCchCatNW(text, 8, L"cdef", 1) == S_OK && wcscmp(text, L"abc") == 0);
    EXPECT(StringCchCopyW(text, 0, L"a") == STRSAFE_E_INVALID_PARAMETER);
    EXPECT(StringCchPrintfW(text, 8, L"%s%u", L"n", 12u) == S_OK && wcscmp(text, L"n12") == 0);
    EXPECT(StringCchPrintfW(text, 3, L"%d", 1234) == STRSAFE_E_INSUFFICIENT_BUFFER && wcscmp(text, L"12") == 0);
    EXPECT(StringCbPrintfW(text, sizeof text, L"%I64u", 5ULL) == S_OK && wcscmp(text, L"5") == 0);
    EXPECT(StringCbPrintfW(text, 7, L"%d", 1234) == STRSAFE_E_INSUFFICIENT_BUFFER && wcscmp(text, L"12") == 0);
    EXPECT(StringCbPrintfExW(text, sizeof text, &end, &rest, 0, L"%d", 42) == S_OK && end == text + 2 && rest == 12);
    EXPECT(StringCchPrintfExW(text, 4, &end, &rest, STRSAFE_NULL_ON_FAILURE, L"%d", 12345) == STRSAFE_E_INSUFFICIENT_BUFFER &&
           end == text && rest == 4 && text[0] == 0);
    EXPECT(StringCchCopyExW(text, 8, NULL, &end, &rest, STRSAFE_IGNORE_NULLS) == S_OK && end == text && rest == 8);
    EXPECT(StringCchCopyW(text, 8, L"123") == S_OK && StringCchCatExW(text, 5, L"4567", NULL, NULL, STRSAFE_NO_TRUNCATION) == STRSAFE_E_INSUFFICIENT_BUFFER &&
           wcscmp(text, L"123") == 0);
    EXPECT(StringCchLengthW(L"four", 8, &length) == S_OK && length == 4);
    EXPECT(StringCbLengthW(L"four", 16, &length) == S_OK && length == 8);
    EXPECT(StringCchLengthW(L"four", 4, &length) == STRSAFE_E_INVALID_PARAMETER && length == 0);
    EXPECT(StringCchPrintfA(narrow, 8, "%S|%ws", L"a", L"b") == S_OK && strcmp(narrow, "a|b") == 0);
    EXPECT(StringCchCopyA(narrow, 3, "abc") == STRSAFE_E_INSUFFICIENT_BUFFER && strcmp(narrow, "ab") == 0);
    EXPECT(StringCbLengthA("abc", 8, &length) == S_OK && length == 3);
}

/* The name "wmain" and its arguments are part of what is checked. */
int wmain(int count, wchar_t **arguments) {
    EXPECT(count == 3 && wcscmp(arguments[1], L"Größe") == 0 && wcscmp(arguments[2], L"\U0001F600") == 0);
    EXPECT(arguments[count] == NULL);
    check_wide_rows();
    check_narrow_rows();
    check_small_buffers();
    check_strsafe();
    wprintf(L"wide %s %hs %c\n", arguments[1], "narrow", L'€');
    printf("narrow %S %I64u\n", arguments[2], 1ULL << 40);
    fwprintf(stdout, L"%ls%ls\n", L"\xD83D", L"\xDE00");
    _putws(L"put");
    fputws(L"ends\n", stdout);
    printf("rows: %d\n", rows);
    return failures != 0;
}
