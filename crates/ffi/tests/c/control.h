/* Blocks of properties for tests of controllers. */
#ifndef CONTROL_H
#define CONTROL_H

#include <evntrace.h>
#include <string.h>

#include "check.h"

#define NAME_ROOM 1024
#define STALE 0x7FFF00000003ull

/* A block with room for the longest names, in UTF-16 and in UTF-8. */
typedef struct {
    EVENT_TRACE_PROPERTIES p;
    WCHAR name[NAME_ROOM];
    WCHAR file[NAME_ROOM];
} BLOCKW;

typedef struct {
    EVENT_TRACE_PROPERTIES p;
    char name[NAME_ROOM];
    char file[NAME_ROOM];
} BLOCKA;

static inline void widen(WCHAR *to, const char *from) {
    do {
        *to++ = (WCHAR)(unsigned char)*from;
    } while (*from++ != 0);
}

/* Returns whether a text is equal to another. */
static inline int is_wide(const WCHAR *text, const char *wanted) {
    WCHAR wide[NAME_ROOM];
    size_t length = strlen(wanted) + 1;
    widen(wide, wanted);
    return memcmp(text, wide, length * sizeof(WCHAR)) == 0;
}

static inline BLOCKW *empty(BLOCKW *block) {
    memset(block, 0, sizeof *block);
    block->p.Wnode.BufferSize = sizeof *block;
    block->p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    block->p.LoggerNameOffset = offsetof(BLOCKW, name);
    return block;
}

/* A block for a session that writes a file, or with room for its name. */
static inline BLOCKW *with_file(BLOCKW *block, ULONG mode, const char *file) {
    empty(block)->p.LogFileMode = mode;
    block->p.LogFileNameOffset = offsetof(BLOCKW, file);
    widen(block->file, file);
    return block;
}

static inline BLOCKA *narrow(BLOCKA *block, ULONG mode, const char *file) {
    memset(block, 0, sizeof *block);
    block->p.Wnode.BufferSize = sizeof *block;
    block->p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    block->p.LoggerNameOffset = offsetof(BLOCKA, name);
    block->p.LogFileNameOffset = offsetof(BLOCKA, file);
    block->p.LogFileMode = mode;
    strcpy(block->file, file);
    return block;
}

static char path_room[4][512];

/* A path in the folder of the test. */
static inline const char *in(const char *folder, const char *name) {
    static unsigned turn;
    char *path = path_room[turn++ % 4];
    snprintf(path, sizeof path_room[0], "%s/%s", folder, name);
    return path;
}

#endif
