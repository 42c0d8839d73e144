/* process.h: threads of the C library of Windows. They are the same as those of CreateThread. */
#ifndef TRACEWEIR_PROCESS_H
#define TRACEWEIR_PROCESS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

typedef unsigned(__stdcall *_beginthreadex_proc_type)(void *);

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a handle for CloseHandle, or 0 on failure, with the reason in errno. */
uintptr_t WINAPI _beginthreadex(_In_opt_ void *security, unsigned stack_size, _beginthreadex_proc_type start_address,
                                _In_opt_ void *arglist, unsigned initflag, _Out_opt_ unsigned *thrdaddr);
DECLSPEC_NORETURN
void WINAPI _endthreadex(unsigned retval);

#ifdef __cplusplus
}
#endif

#endif

#endif /* TRACEWEIR_PROCESS_H */
