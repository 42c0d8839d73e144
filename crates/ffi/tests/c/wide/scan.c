/* Formatted input with Windows' size letters, narrow and wide, from texts and streams. Compiled as
 * C and as C++. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>
#include <wchar.h>
#ifdef __cplusplus
#include <cstdio>
#define SSCANF std::sscanf
#else
#define SSCANF sscanf
#endif

static int rows, failures;

#define EXPECT(condition)                                                    \
    do {                                                                     \
        rows++;                                                              \
        if (!(condition)) {                                                  \
            failures++;                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
        }                                                                    \
    } while (0)

/* A variable between two others, which a store of the wrong size changes. */
#define GUARD 0xAAAAAAAAAAAAAAAAULL
struct guarded {
    ULONGLONG before;
    union {
        BYTE bits8;
        WORD bits16;
        DWORD bits32;
        ULONGLONG bits64;
    } value;
    ULONGLONG after;
};

static struct guarded guarded;

static void *reset(void) {
    guarded.before = guarded.value.bits64 = guarded.after = GUARD;
    return &guarded.value;
}

/* Returns whether exactly "size" bytes were stored. */
static int holds(ULONGLONG number, size_t size) {
    ULONGLONG expected = GUARD;
    memcpy(&expected, &number, size);
    return guarded.before == GUARD && guarded.after == GUARD && guarded.value.bits64 == expected;
}

#define EXPECT_STORED(text, format, number, size)                                           \
    do {                                                                                    \
        EXPECT(SSCANF(text, format, reset()) == 1 && holds((ULONGLONG)(number), size));     \
        EXPECT(swscanf(L##text, L##format, reset()) == 1 && holds((ULONGLONG)(number), size)); \
    } while (0)

static void check_sizes(void) {
    EXPECT_STORED("5", "%lu", 5, 4);
    EXPECT_STORED("4294967295", "%lu", 0xFFFFFFFF, 4);
    EXPECT_STORED("-1", "%ld", -1, 4);
    EXPECT_STORED("deadBEEF", "%lx", 0xDEADBEEF, 4);
    EXPECT_STORED("0x1f", "%lX", 0x1F, 4);
    EXPECT_STORED("18446744073709551615", "%I64u", ~0ULL, 8);
    EXPECT_STORED("-9223372036854775808", "%I64d", 1ULL << 63, 8);
    EXPECT_STORED("99999999999999999999", "%I64d", (1ULL << 63) - 1, 8);
    EXPECT_STORED("99999999999999999999", "%llu", ~0ULL, 8);
    EXPECT_STORED("cafe", "%I64x", 0xCAFE, 8);
    EXPECT_STORED("7", "%I32u", 7, 4);
    EXPECT_STORED("7", "%Iu", 7, 8);
    EXPECT_STORED("7", "%zu", 7, 8);
    EXPECT_STORED("7", "%ju", 7, 8);
    EXPECT_STORED("65535", "%hu", 65535, 2);
    EXPECT_STORED("255", "%hhu", 255, 1);
    EXPECT_STORED("000000000000CAFE", "%p", 0xCAFE, 8);
    EXPECT_STORED("0777", "%i", 0777, 4);
    EXPECT_STORED("0x10", "%i", 16, 4);
    EXPECT_STORED("00000000000000000000000000000000000000000000000000000000000000000000000000000000005", "%lu", 5, 4);
    EXPECT_STORED("12345", "%3lu", 123, 4);
}

static void check_macros(void) {
    EXPECT_STORED("-5", "%" SCNd64, -5, 8);
    EXPECT(SSCANF("12345678901", "%" SCNu64, (uint64_t *)reset()) == 1 && holds(12345678901, 8));
    EXPECT(SSCANF("12345678901", "%" SCNuMAX, (uintmax_t *)reset()) == 1 && holds(12345678901, 8));
    EXPECT(SSCANF("12345678901", "%" SCNuPTR, (uintptr_t *)reset()) == 1 && holds(12345678901, 8));
    EXPECT(SSCANF("ffffffffff", "%" SCNxFAST32, (uint_fast32_t *)reset()) == 1 && holds(0xFFFFFFFFFF, 8));
    EXPECT(SSCANF("ffffffff", "%" SCNx32, (uint32_t *)reset()) == 1 && holds(0xFFFFFFFF, 4));
    EXPECT(SSCANF("255", "%" SCNu8, (uint8_t *)reset()) == 1 && holds(255, 1));
}

static void check_text(void) {
    char word[16], other[16];
    wchar_t wide[16];
    int a = 0, b = 0, n = 0;
    float real = 0;
    double large = 0;
    long double largest = 0;
    EXPECT(SSCANF(" 12 -0x1f", "%d %i%n", &a, &b, &n) == 2 && a == 12 && b == -31 && n == 9);
    EXPECT(SSCANF("key=value", "%[^=]=%*[v-z]%c", word, other) == 2 && strcmp(word, "key") == 0 && other[0] == 'a');
    EXPECT(SSCANF("]-a", "%[]-]", word) == 1 && strcmp(word, "]-") == 0);
    EXPECT(SSCANF("größe größe", "%s %S", word, wide) == 2 && strcmp(word, "größe") == 0 && wcscmp(wide, L"größe") == 0);
    EXPECT(SSCANF("größe", "%3ls%s", wide, word) == 2 && wcscmp(wide, L"grö") == 0 && strcmp(word, "ße") == 0);
    EXPECT(SSCANF("a€b", "%c%lc%hc", word, wide, other) == 3 && word[0] == 'a' && wide[0] == L'€' && other[0] == 'b');
    EXPECT(swscanf(L"€ größe", L"%hs %S", word, other) == 2 && strcmp(word, "€") == 0 && strcmp(other, "größe") == 0);
    EXPECT(SSCANF("2.5 -1e3 0x1.8p1", "%f %lf %Lf", &real, &large, &largest) == 3 && real == 2.5f && large == -1000 && largest == 3);
    EXPECT(SSCANF("1.5.25", "%f%lf", &real, &large) == 2 && real == 1.5f && large == 0.25);
    EXPECT(SSCANF("inf,7", "%lf,%d", &large, &a) == 2 && large > 1e308 && a == 7);
    EXPECT(SSCANF("1e+", "%lf", &large) == 0 && SSCANF("0xz", "%x", (unsigned *)&a) == 0);
    EXPECT(SSCANF("", "%d", &a) == EOF && SSCANF("x", "%d", &a) == 0 && SSCANF("  ", "%s", word) == EOF);
    EXPECT(SSCANF("5%6", "%d%%%d", &a, &b) == 2 && a == 5 && b == 6);
    EXPECT(SSCANF("1,2", "%d;%d", &a, &b) == 1);
}

static void check_bounded(void) {
    char word[8] = "before";
    wchar_t wide[8];
    int a = 0;
    EXPECT(sscanf_s("abc 7", "%s %d", word, 8u, &a) == 2 && a == 7 && strcmp(word, "abc") == 0);
    EXPECT(sscanf_s("abcdefgh", "%s", word, 8u) == 0 && word[0] == '\0');
    EXPECT(sscanf_s("abcdefgh", "%7s", word, 8u) == 1 && strcmp(word, "abcdefg") == 0);
    EXPECT(sscanf_s("ab", "%c%c", word, 1u, word + 1, 1u) == 2 && word[1] == 'b');
    EXPECT(sscanf_s("größe!!", "%S", wide, 8u) == 1 && wcscmp(wide, L"größe!!") == 0);
    EXPECT(swscanf_s(L"abcdefgh", L"%s", wide, 8u) == 0 && wide[0] == 0);
}

static int scan_list(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int stored = vsscanf(text, format, arguments);
    va_end(arguments);
    return stored;
}

static int scan_stream_list(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int stored = vfscanf(file, format, arguments);
    va_end(arguments);
    return stored;
}

static int scan_safe_list(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int stored = vsscanf_s(text, format, arguments);
    va_end(arguments);
    return stored;
}

static void check_streams_and_lists(void) {
    char word[300], longest[300], small[4];
    FILE *file = tmpfile();
    memset(longest, 'w', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    fprintf(file, "5 ffx 18446744073709551615\n%s tail 12345678", longest);
    rewind(file);
    EXPECT(fscanf(file, "%lu", (DWORD *)reset()) == 1 && holds(5, 4));
    /* The unit after a number stays in the stream. */
    EXPECT(fscanf(file, "%lx", (DWORD *)reset()) == 1 && holds(0xFF, 4) && getc(file) == 'x');
    EXPECT(scan_stream_list(file, "%I64u", reset()) == 1 && holds(~0ULL, 8));
    EXPECT(fscanf(file, "%s", word) == 1 && strcmp(word, longest) == 0);
    EXPECT(fscanf_s(file, "%s", small, 4u) == 0 && small[0] == '\0');
    EXPECT(fscanf(file, "%4lu", (DWORD *)reset()) == 1 && holds(1234, 4) && getc(file) == '5');
    EXPECT(fscanf(file, "%lu", (DWORD *)reset()) == 1 && holds(678, 4));
    EXPECT(fscanf(file, "%lu", (DWORD *)reset()) == EOF && feof(file));
    fclose(file);
    EXPECT(scan_list("5", "%lu", reset()) == 1 && holds(5, 4));
    EXPECT(scan_safe_list("abc", "%s", small, 3u) == 0 && scan_safe_list("ab", "%s", small, 3u) == 1);
}

int main(void) {
    DWORD number = 0;
    EXPECT(scanf("%lu", (DWORD *)reset()) == 1 && holds(7, 4));
    EXPECT(scanf_s("%lu", &number) == 1 && number == 8);
    check_sizes();
    check_macros();
    check_text();
    check_bounded();
    check_streams_and_lists();
    printf("rows: %d\n", rows);
    return failures != 0;
}
