/* Blocks of properties for tests of controllers. */
#ifndef CONTROL_H
#define CONTROL_H

#include <evntrace.h>
#include <string.h>

#include "check.h"

#define NAME_UNITS 1024
/* The id of no session. */
#define STALE_ID 0x7FFF00000003ull

/* A block with space for the longest names, in UTF-16 and in UTF-8. */
typedef struct {
    EVENT_TRACE_PROPERTIES p;
    WCHAR name[NAME_UNITS];
    WCHAR file[NAME_UNITS];
} BLOCKW;

typedef struct {
    EVENT_TRACE_PROPERTIES p;
    char name[NAME_UNITS];
    char file[NAME_UNITS];
} BLOCKA;

static inline void to_wide(WCHAR *to, const char *from) {
    do {
        *to++ = (WCHAR)(unsigned char)*from;
    } while (*from++ != 0);
}

/* Returns whether a UTF-16 text equals an ASCII text. */
static inline int equals_wide(const WCHAR *text, const char *expected) {
    WCHAR wide[NAME_UNITS];
    size_t length = strlen(expected) + 1;
    to_wide(wide, expected);
    return memcmp(text, wide, length * sizeof(WCHAR)) == 0;
}

static inline BLOCKW *empty_block(BLOCKW *block) {
    memset(block, 0, sizeof *block);
    block->p.Wnode.BufferSize = sizeof *block;
    block->p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    block->p.LoggerNameOffset = offsetof(BLOCKW, name);
    return block;
}

/* Makes a block with a file name, which may be empty. */
static inline BLOCKW *file_block(BLOCKW *block, ULONG mode, const char *file) {
    empty_block(block)->p.LogFileMode = mode;
    block->p.LogFileNameOffset = offsetof(BLOCKW, file);
    to_wide(block->file, file);
    return block;
}

static inline BLOCKA *narrow_block(BLOCKA *block, ULONG mode, const char *file) {
    memset(block, 0, sizeof *block);
    block->p.Wnode.BufferSize = sizeof *block;
    block->p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    block->p.LoggerNameOffset = offsetof(BLOCKA, name);
    block->p.LogFileNameOffset = offsetof(BLOCKA, file);
    block->p.LogFileMode = mode;
    strcpy(block->file, file);
    return block;
}

static char path_buffers[4][512];

/* Returns the path of a file in a folder. The last four paths stay valid. */
static inline const char *path_in(const char *folder, const char *name) {
    static unsigned next;
    char *path = path_buffers[next++ % 4];
    snprintf(path, sizeof path_buffers[0], "%s/%s", folder, name);
    return path;
}

#endif
