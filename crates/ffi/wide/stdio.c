/* Wide text in streams and names of files. Streams hold UTF-8, and wide and narrow functions may be
 * mixed on one stream. */
#include "wide.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static int put_text(FILE *file, const wchar_t *text, int ends_line) {
    struct output output = {.is_wide = 1, .file = file};
    flockfile(file);
    for (; *text; text++)
        traceweir_wide_put(&output, *text);
    if (ends_line)
        traceweir_wide_put(&output, '\n');
    if (output.high_surrogate)
        traceweir_wide_put(&output, 0xD800); /* Writes U+FFFD for the pending unit, nothing more. */
    traceweir_wide_flush(&output);
    funlockfile(file);
    return output.has_failed ? -1 : 0;
}

int fputws(const wchar_t *text, FILE *file) {
    return put_text(file, text, 0);
}

int _putws(const wchar_t *text) {
    return put_text(stdout, text, 1);
}

wint_t fputwc(wchar_t unit, FILE *file) {
    const wchar_t text[2] = {unit, L'\0'};
    if (unit == L'\0')
        return putc('\0', file) == EOF ? WEOF : 0;
    return put_text(file, text, 0) < 0 ? WEOF : unit;
}

wint_t putwc(wchar_t unit, FILE *file) {
    return fputwc(unit, file);
}

wint_t putwchar(wchar_t unit) {
    return fputwc(unit, stdout);
}

/* Reads one character; those above U+FFFF do not fit and become U+FFFD. */
wint_t fgetwc(FILE *file) {
    char bytes[4];
    int first = getc(file);
    if (first == EOF)
        return WEOF;
    bytes[0] = (char)first;
    size_t size = 1, more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
    while (more-- > 0) {
        int next = getc(file);
        if (next == EOF || (next & 0xC0) != 0x80) {
            ungetc(next, file);
            break;
        }
        bytes[size++] = (char)next;
    }
    struct text text = {0, bytes, size};
    size_t at = 0;
    uint32_t code_point = traceweir_wide_next(&text, &at);
    return code_point < 0x10000 ? code_point : REPLACEMENT_CHARACTER;
}

wint_t getwc(FILE *file) {
    return fgetwc(file);
}

wint_t getwchar(void) {
    return fgetwc(stdin);
}

/* Puts the bytes of one character back. */
wint_t ungetwc(wint_t unit, FILE *file) {
    char bytes[4];
    if (unit == WEOF)
        return WEOF;
    for (size_t size = traceweir_wide_to_utf8(unit & 0xFFFF, bytes); size > 0; size--)
        if (ungetc((unsigned char)bytes[size - 1], file) == EOF)
            return WEOF;
    return unit;
}

wchar_t *fgetws(wchar_t *text, int room, FILE *file) {
    int length = 0;
    while (length + 1 < room) {
        wint_t unit = fgetwc(file);
        if (unit == WEOF)
            break;
        text[length++] = (wchar_t)unit;
        if (unit == L'\n')
            break;
    }
    if (length == 0 || room <= 0)
        return NULL;
    text[length] = L'\0';
    return text;
}

/* Copies a mode without the parts that Linux does not have: "t", and the encoding after a comma. */
static void copy_mode(const wchar_t *mode, char *to, size_t room) {
    size_t length = 0;
    for (; *mode && *mode != L',' && length + 1 < room; mode++)
        if (*mode < 0x80 && strchr("rwab+x", (char)*mode))
            to[length++] = (char)*mode;
    to[length] = '\0';
}

FILE *_wfopen(const wchar_t *path, const wchar_t *mode) {
    char narrow_mode[8];
    char *narrow = traceweir_wide_narrow(path);
    copy_mode(mode, narrow_mode, sizeof narrow_mode);
    FILE *file = narrow ? fopen(narrow, narrow_mode) : NULL;
    int error = errno;
    free(narrow);
    errno = error;
    return file;
}

int _wfopen_s(FILE **file, const wchar_t *path, const wchar_t *mode) {
    if (!file || !path || !mode)
        return EINVAL;
    *file = _wfopen(path, mode);
    return *file ? 0 : errno;
}

int fopen_s(FILE **file, const char *path, const char *mode) {
    if (!file || !path || !mode)
        return EINVAL;
    *file = fopen(path, mode);
    return *file ? 0 : errno;
}

int _wremove(const wchar_t *path) {
    char *narrow = traceweir_wide_narrow(path);
    int result = narrow ? remove(narrow) : -1;
    free(narrow);
    return result;
}

/* Removes ".", ".." and doubled slashes from an absolute path. */
static void simplify(char *path) {
    char *to = path, *from = path;
    while (*from) {
        while (*from == '/')
            from++;
        size_t length = strcspn(from, "/");
        if (length == 2 && memcmp(from, "..", 2) == 0) {
            while (to > path && *--to != '/') {
            }
        } else if (length > 0 && !(length == 1 && *from == '.')) {
            *to++ = '/';
            memmove(to, from, length);
            to += length;
        }
        from += length;
    }
    if (to == path)
        *to++ = '/';
    *to = '\0';
}

char *_fullpath(char *to, const char *path, size_t room) {
    char *folder = path[0] == '/' ? NULL : getcwd(NULL, 0), *full = NULL;
    if (path[0] != '/' && !folder)
        return NULL;
    if (asprintf(&full, "%s/%s", folder ? folder : "", path) < 0)
        full = NULL;
    free(folder);
    if (!full)
        return NULL;
    simplify(full);
    if (!to)
        return full;
    size_t size = strlen(full) + 1;
    char *result = size <= room ? memcpy(to, full, size) : NULL;
    free(full);
    if (!result)
        errno = ERANGE;
    return result;
}

wchar_t *_wfullpath(wchar_t *to, const wchar_t *path, size_t room) {
    char *narrow = traceweir_wide_narrow(path), *full = narrow ? _fullpath(NULL, narrow, 0) : NULL;
    wchar_t *wide = full ? traceweir_wide_widen(full) : NULL;
    free(narrow);
    free(full);
    if (!wide || !to)
        return wide;
    wchar_t *result = wcslen(wide) < room ? wcscpy(to, wide) : NULL;
    free(wide);
    if (!result)
        errno = ERANGE;
    return result;
}

/* Reads one key. If standard input is a terminal, does not wait for the end of the line. */
int _getch(void) {
    struct termios before, raw;
    int is_terminal = tcgetattr(STDIN_FILENO, &before) == 0;
    fflush(stdout);
    if (is_terminal) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    int key = getchar();
    if (is_terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return key;
}

wint_t _getwch(void) {
    int key = _getch();
    return key == EOF ? WEOF : (wint_t)key;
}

int _kbhit(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}
