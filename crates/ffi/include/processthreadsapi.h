/* processthreadsapi.h: threads and their storage. winbase.h on Windows has some of these names. */
#ifndef TRACEWEIR_PROCESSTHREADSAPI_H
#define TRACEWEIR_PROCESSTHREADSAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

typedef DWORD(WINAPI *PTHREAD_START_ROUTINE)(LPVOID lpThreadParameter);
typedef PTHREAD_START_ROUTINE LPTHREAD_START_ROUTINE;

#define CREATE_SUSPENDED 0x00000004
#define STACK_SIZE_PARAM_IS_A_RESERVATION 0x00010000
#define STILL_ACTIVE 259u
#define TLS_OUT_OF_INDEXES 0xFFFFFFFFu
#define TLS_MINIMUM_AVAILABLE 64

#ifdef __cplusplus
extern "C" {
#endif

/* Thread ids are those of Linux (gettid). CREATE_SUSPENDED delays the start until ResumeThread; a
 * running thread cannot be suspended. */
HANDLE WINAPI CreateThread(_In_opt_ LPSECURITY_ATTRIBUTES lpThreadAttributes, SIZE_T dwStackSize, LPTHREAD_START_ROUTINE lpStartAddress,
                           _In_opt_ LPVOID lpParameter, DWORD dwCreationFlags, _Out_opt_ LPDWORD lpThreadId);
/* Ends the calling thread as pthread_exit does: destructors of C++ objects on its stack run. */
DECLSPEC_NORETURN
void WINAPI ExitThread(DWORD dwExitCode);
BOOL WINAPI GetExitCodeThread(HANDLE hThread, _Out_ LPDWORD lpExitCode);
DWORD WINAPI ResumeThread(HANDLE hThread);
DWORD WINAPI GetThreadId(HANDLE Thread);
HANDLE WINAPI GetCurrentThread(void);
DWORD WINAPI GetCurrentThreadId(void);
DWORD WINAPI GetCurrentProcessId(void);

DWORD WINAPI TlsAlloc(void);
LPVOID WINAPI TlsGetValue(DWORD dwTlsIndex);
BOOL WINAPI TlsSetValue(DWORD dwTlsIndex, _In_opt_ LPVOID lpTlsValue);
BOOL WINAPI TlsFree(DWORD dwTlsIndex);

#ifdef __cplusplus
}
#endif

#endif

#endif /* TRACEWEIR_PROCESSTHREADSAPI_H */
