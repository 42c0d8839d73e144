/* conio.h: single keys. For programs that link libtraceweir-wide (docs/porting.md). */
#ifndef TRACEWEIR_CONIO_H
#define TRACEWEIR_CONIO_H

#include <wchar.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Waits for a key and returns it without showing it. */
int _getch(void);
wint_t _getwch(void);
/* Returns whether there is input. */
int _kbhit(void);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_CONIO_H */
