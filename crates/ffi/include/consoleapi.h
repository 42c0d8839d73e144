/* consoleapi.h: handlers for Ctrl+C and for the end of the program. */
#ifndef TRACEWEIR_CONSOLEAPI_H
#define TRACEWEIR_CONSOLEAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

#define CTRL_C_EVENT 0
#define CTRL_BREAK_EVENT 1
#define CTRL_CLOSE_EVENT 2
#define CTRL_LOGOFF_EVENT 5
#define CTRL_SHUTDOWN_EVENT 6

typedef BOOL(WINAPI *PHANDLER_ROUTINE)(DWORD CtrlType);

#ifdef __cplusplus
extern "C" {
#endif

/* SIGINT becomes CTRL_C_EVENT; SIGTERM and SIGHUP become CTRL_CLOSE_EVENT. Each runs the handlers in
 * a new thread, the newest handler first, until one returns TRUE. If none does, or after
 * CTRL_CLOSE_EVENT in any case, the signal ends the process. Signals are caught only while the
 * program has handlers. With NULL and TRUE, SIGINT is ignored. */
BOOL WINAPI SetConsoleCtrlHandler(_In_opt_ PHANDLER_ROUTINE HandlerRoutine, BOOL Add);

#ifdef __cplusplus
}
#endif

#endif

#endif /* TRACEWEIR_CONSOLEAPI_H */
