/* Helpers of the examples: literals in UTF-16, text from and for the terminal, and status codes as
 * text. Only the macro W differs between Windows and Linux: WCHAR is wchar_t on Windows, where it
 * has 16 bits, and char16_t on Linux. */
#ifndef EXAMPLES_WIDE_H
#define EXAMPLES_WIDE_H

#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define W(text) L##text
#else
#define W(text) u##text
#endif

/* Converts UTF-8 to UTF-16; characters that do not fit into `capacity` units are left out. */
static inline void widen(const char *from, WCHAR *to, size_t capacity) {
    size_t used = 0;
    while (*from != 0) {
        unsigned char first = (unsigned char)*from++;
        unsigned more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
        unsigned long code = more == 0 ? first : first & (0x3Fu >> more);
        for (; more > 0 && (*from & 0xC0) == 0x80; more--) {
            code = code << 6 | (*from++ & 0x3F);
        }
        /* A surrogate pair: 0xD7C0 is 0xD800 - (0x10000 >> 10). */
        if (code >= 0x10000 && used + 2 < capacity) {
            to[used++] = (WCHAR)(0xD7C0 + (code >> 10));
            to[used++] = (WCHAR)(0xDC00 + (code & 0x3FF));
        } else if (code < 0x10000 && used + 1 < capacity) {
            to[used++] = (WCHAR)code;
        }
    }
    to[used] = 0;
}

/* Prints UTF-16 as UTF-8. */
static inline void print_wide(const WCHAR *text) {
    while (*text != 0) {
        unsigned long code = *text++;
        if (code >= 0xD800 && code < 0xDC00 && *text >= 0xDC00 && *text < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (*text++ - 0xDC00u);
        }
        if (code < 0x80) {
            putchar((int)code);
        } else if (code < 0x800) {
            printf("%c%c", (int)(0xC0 | code >> 6), (int)(0x80 | (code & 0x3F)));
        } else if (code < 0x10000) {
            printf("%c%c%c", (int)(0xE0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3F)), (int)(0x80 | (code & 0x3F)));
        } else {
            printf("%c%c%c%c", (int)(0xF0 | code >> 18), (int)(0x80 | (code >> 12 & 0x3F)), (int)(0x80 | (code >> 6 & 0x3F)),
                   (int)(0x80 | (code & 0x3F)));
        }
    }
}

static inline void print_guid(const GUID *guid) {
    printf("{%08x-%04x-%04x-", (unsigned)guid->Data1, guid->Data2, guid->Data3);
    for (int at = 0; at < 8; at++) {
        printf("%s%02x", at == 2 ? "-" : "", guid->Data4[at]);
    }
    putchar('}');
}

/* Parses {xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}, with or without braces; FALSE for other text. */
static inline BOOL parse_guid(const char *text, GUID *guid) {
    unsigned part[11];
    text += *text == '{';
    if (sscanf(text, "%8x-%4x-%4x-%2x%2x-%2x%2x%2x%2x%2x%2x", &part[0], &part[1], &part[2], &part[3], &part[4], &part[5], &part[6],
               &part[7], &part[8], &part[9], &part[10]) != 11) {
        return FALSE;
    }
    guid->Data1 = part[0];
    guid->Data2 = (USHORT)part[1];
    guid->Data3 = (USHORT)part[2];
    for (int at = 0; at < 8; at++) {
        guid->Data4[at] = (BYTE)part[3 + at];
    }
    return TRUE;
}

/* Prints what failed, with the system's text for the status. Returns the exit code of the program. */
static inline int failed(const char *operation, ULONG status) {
    LPSTR text = NULL;
    DWORD length = FormatMessageA(FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, status, 0,
                                  (LPSTR)&text, 0, NULL);
    /* Texts of the system end with a line break. */
    while (length > 0 && (text[length - 1] == '\r' || text[length - 1] == '\n')) {
        text[--length] = 0;
    }
    fprintf(stderr, "%s: %s (%u)\n", operation, length > 0 ? text : "no text", (unsigned)status);
    LocalFree(text);
    return 1;
}

#endif
