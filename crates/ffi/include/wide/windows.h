/* windows.h for programs that link libtraceweir-wide: besides the common part, the functions for
 * text, GUIDs and times that consumers print events with. A source that brings its own defines
 * TRACEWEIR_NO_WIN32_CALLS before it includes the first header. */
#ifndef TRACEWEIR_WIDE_WINDOWS_H
#define TRACEWEIR_WIDE_WINDOWS_H

#include <limits.h>

#include "../windows.h"

/* The limits of Windows' long, which are those of LONG and ULONG. */
#undef LONG_MAX
#undef LONG_MIN
#undef ULONG_MAX
#define LONG_MAX 2147483647
#define LONG_MIN (-2147483647 - 1)
#define ULONG_MAX 0xFFFFFFFFu

#ifndef TRACEWEIR_NO_WIN32_CALLS

#define CP_ACP 0
#define CP_OEMCP 1
#define CP_THREAD_ACP 3
#define CP_UTF8 65001
#define MB_PRECOMPOSED 0x01
#define MB_ERR_INVALID_CHARS 0x08
#define WC_ERR_INVALID_CHARS 0x80
#define ERROR_ENVVAR_NOT_FOUND 203
#define ERROR_NO_UNICODE_TRANSLATION 1113

#ifdef __cplusplus
extern "C" {
#endif

/* All code pages are UTF-8. A length of -1 means up to the NUL, which is converted too. Both return
 * the length of the converted text; 0 on failure, with the reason in the last error. */
int MultiByteToWideChar(UINT CodePage, DWORD dwFlags, LPCSTR lpMultiByteStr, int cbMultiByte, LPWSTR lpWideCharStr, int cchWideChar);
int WideCharToMultiByte(UINT CodePage, DWORD dwFlags, LPCWSTR lpWideCharStr, int cchWideChar, LPSTR lpMultiByteStr, int cbMultiByte,
                        LPCSTR lpDefaultChar, LPBOOL lpUsedDefaultChar);

/* "{00000000-0000-0000-0000-000000000000}" with its NUL: 39 characters, or 0 if they do not fit. */
int StringFromGUID2(REFGUID rguid, LPWSTR lpsz, int cchMax);
/* Both return CO_E_CLASSSTRING for other text than a GUID in braces. */
HRESULT CLSIDFromString(LPCWSTR lpsz, GUID *pclsid);
HRESULT IIDFromString(LPCWSTR lpsz, GUID *lpiid);

/* Times. */
void GetSystemTime(LPSYSTEMTIME lpSystemTime);
void GetLocalTime(LPSYSTEMTIME lpSystemTime);
void GetSystemTimeAsFileTime(LPFILETIME lpSystemTimeAsFileTime);
BOOL FileTimeToSystemTime(const FILETIME *lpFileTime, LPSYSTEMTIME lpSystemTime);
BOOL SystemTimeToFileTime(const SYSTEMTIME *lpSystemTime, LPFILETIME lpFileTime);
BOOL FileTimeToLocalFileTime(const FILETIME *lpFileTime, LPFILETIME lpLocalFileTime);
int CompareFileTime(const FILETIME *lpFileTime1, const FILETIME *lpFileTime2);

void Sleep(DWORD dwMilliseconds);
DWORD GetCurrentProcessId(void);
DWORD GetCurrentThreadId(void);

/* Both return the length of the value. If it does not fit, they return the size that it needs; if
 * there is no such variable, 0, and the last error is ERROR_ENVVAR_NOT_FOUND. */
DWORD GetEnvironmentVariableA(LPCSTR lpName, LPSTR lpBuffer, DWORD nSize);
DWORD GetEnvironmentVariableW(LPCWSTR lpName, LPWSTR lpBuffer, DWORD nSize);
#ifdef UNICODE
#define GetEnvironmentVariable GetEnvironmentVariableW
#else
#define GetEnvironmentVariable GetEnvironmentVariableA
#endif

#ifdef __cplusplus
}
#endif

#ifndef CO_E_CLASSSTRING
#define CO_E_CLASSSTRING ((HRESULT)0x800401F3)
#endif

#endif

#endif /* TRACEWEIR_WIDE_WINDOWS_H */
