/* shellapi.h: the function that splits a command line. */
#ifndef TRACEWEIR_SHELLAPI_H
#define TRACEWEIR_SHELLAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <windows.h>

#ifndef TRACEWEIR_NO_WIN32_CALLS
#ifdef __cplusplus
extern "C" {
#endif

/* Splits a command line by the quoting rules of Windows. The caller frees the array with LocalFree.
 * On failure it returns NULL and sets the last error. */
LPWSTR* WINAPI CommandLineToArgvW(_In_ LPCWSTR lpCmdLine, _Out_ int *pNumArgs);

#ifdef __cplusplus
}
#endif
#endif

#endif /* TRACEWEIR_SHELLAPI_H */
