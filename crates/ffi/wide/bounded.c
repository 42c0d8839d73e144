/* The functions that take the size of their buffer: wcscpy_s, strcpy_s and the like.
 *
 * For invalid parameters, the library of Windows calls a handler, which ends the program. These
 * functions empty the buffer (memmove_s leaves it as it is) and return the error.
 */
#include "wide.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define TRUNCATE ((size_t)-1)

#define UNIT wchar_t
#define NAME(name) wcs##name
#define MEMORY(name) w##name
#include "bounded_body.h"
#undef UNIT
#undef NAME
#undef MEMORY

#define UNIT char
#define NAME(name) str##name
#define MEMORY(name) name
#include "bounded_body.h"

int memcpy_s(void *to, size_t room, const void *from, size_t size) {
    if (size == 0)
        return 0;
    if (!to || !from || room < size) {
        if (to)
            memset(to, 0, room);
        return to && from ? ERANGE : EINVAL;
    }
    memcpy(to, from, size);
    return 0;
}

int memmove_s(void *to, size_t room, const void *from, size_t size) {
    if (size == 0)
        return 0;
    if (!to || !from)
        return EINVAL;
    if (room < size)
        return ERANGE;
    memmove(to, from, size);
    return 0;
}

int wmemcpy_s(wchar_t *to, size_t room, const wchar_t *from, size_t count) {
    if (room > SIZE_MAX / sizeof(wchar_t) || count > SIZE_MAX / sizeof(wchar_t))
        return ERANGE;
    return memcpy_s(to, room * sizeof(wchar_t), from, count * sizeof(wchar_t));
}

char *strtok_s(char *text, const char *stops, char **next) {
    return strtok_r(text, stops, next);
}

int _stricmp(const char *a, const char *b) {
    return strcasecmp(a, b);
}

int _strnicmp(const char *a, const char *b, size_t count) {
    return strncasecmp(a, b, count);
}

char *_strdup(const char *text) {
    return text ? strdup(text) : NULL;
}
