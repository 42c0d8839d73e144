/* ntdef.h: texts with a length in bytes. windows.h declares the other types. */
#ifndef TRACEWEIR_NTDEF_H
#define TRACEWEIR_NTDEF_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

typedef struct _STRING {
    USHORT Length;
    USHORT MaximumLength;
    PCHAR Buffer;
} STRING, *PSTRING, ANSI_STRING, *PANSI_STRING, OEM_STRING, *POEM_STRING, UTF8_STRING, *PUTF8_STRING;
typedef const STRING *PCSTRING, *PCANSI_STRING, *PCOEM_STRING, *PCUTF8_STRING;

typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    PWSTR Buffer;
} UNICODE_STRING, *PUNICODE_STRING;
typedef const UNICODE_STRING *PCUNICODE_STRING;

/* The initializer of a text that is a literal. */
#define RTL_CONSTANT_STRING(text) {sizeof(text) - sizeof((text)[0]), sizeof(text), (text)}

#endif /* TRACEWEIR_NTDEF_H */
