/* handleapi.h: copies of handles. windows.h also declares CloseHandle and INVALID_HANDLE_VALUE. */
#ifndef TRACEWEIR_HANDLEAPI_H
#define TRACEWEIR_HANDLEAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

#define DUPLICATE_CLOSE_SOURCE 0x00000001
#define DUPLICATE_SAME_ACCESS 0x00000002

#ifdef __cplusplus
extern "C" {
#endif

/* Both processes must be the current process. A copy of GetCurrentThread names the calling thread
 * everywhere. */
BOOL WINAPI DuplicateHandle(HANDLE hSourceProcessHandle, HANDLE hSourceHandle, HANDLE hTargetProcessHandle, LPHANDLE lpTargetHandle,
                            DWORD dwDesiredAccess, BOOL bInheritHandle, DWORD dwOptions);

#ifdef __cplusplus
}
#endif

#endif

#endif /* TRACEWEIR_HANDLEAPI_H */
