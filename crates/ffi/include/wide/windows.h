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

/* Locales, which have no effect: dates and times are written in the way of en-US. */
typedef DWORD LCID;
typedef DWORD CALID;
typedef WORD LANGID;
#define LOCALE_NEUTRAL 0x0000
#define LOCALE_INVARIANT 0x007F
#define LOCALE_USER_DEFAULT 0x0400
#define LOCALE_SYSTEM_DEFAULT 0x0800
#define LOCALE_NAME_USER_DEFAULT NULL
#define LOCALE_NAME_INVARIANT TRACEWEIR_WIDE_TEXT("")
#define LOCALE_NAME_SYSTEM_DEFAULT TRACEWEIR_WIDE_TEXT("!x-sys-default-locale")
#define MAKELCID(language, sort) ((DWORD)(WORD)(language) | (DWORD)(WORD)(sort) << 16)
#define LOCALE_NOUSEROVERRIDE 0x80000000u
#define LCMAP_LOWERCASE 0x00000100
#define LCMAP_UPPERCASE 0x00000200
#define LCMAP_BYTEREV 0x00000800
#define LCMAP_LINGUISTIC_CASING 0x01000000
#define DATE_SHORTDATE 0x00000001
#define DATE_LONGDATE 0x00000002
#define DATE_YEARMONTH 0x00000008
#define DATE_MONTHDAY 0x00000080
#define TIME_NOMINUTESORSECONDS 0x00000001
#define TIME_NOSECONDS 0x00000002
#define TIME_NOTIMEMARKER 0x00000004
#define TIME_FORCE24HOURFORMAT 0x00000008

#ifdef __cplusplus
extern "C" {
#endif

/* All code pages are UTF-8. A length of -1 means up to the NUL, which is converted too. Both return
 * the length of the converted text; 0 on failure, with the reason in the last error. */
int MultiByteToWideChar(UINT CodePage, DWORD dwFlags, LPCSTR lpMultiByteStr, int cbMultiByte, LPWSTR lpWideCharStr, int cchWideChar);
int WideCharToMultiByte(UINT CodePage, DWORD dwFlags, LPCWSTR lpWideCharStr, int cchWideChar, LPSTR lpMultiByteStr, int cbMultiByte,
                        LPCSTR lpDefaultChar, LPBOOL lpUsedDefaultChar);

/* Changes the case of a text, or the order of the two bytes of each character, or both; other
 * flags are refused. A length of -1 means up to the NUL, which is copied too. Both return the length
 * of the result, also for a size of 0; 0 on failure, with the reason in the last error. */
int LCMapStringEx(LPCWSTR lpLocaleName, DWORD dwMapFlags, LPCWSTR lpSrcStr, int cchSrc, LPWSTR lpDestStr, int cchDest,
                  LPVOID lpVersionInformation, LPVOID lpReserved, ULONG_PTR sortHandle);
int LCMapStringW(LCID Locale, DWORD dwMapFlags, LPCWSTR lpSrcStr, int cchSrc, LPWSTR lpDestStr, int cchDest);
#ifdef UNICODE
#define LCMapString LCMapStringW
#endif

/* "{00000000-0000-0000-0000-000000000000}" with its NUL: 39 characters, or 0 if they do not fit. */
int StringFromGUID2(REFGUID rguid, LPWSTR lpsz, int cchMax);
/* The same text in new memory, which CoTaskMemFree (combaseapi.h) frees. */
HRESULT StringFromCLSID(REFGUID rclsid, LPWSTR *lplpsz);
HRESULT StringFromIID(REFGUID rclsid, LPWSTR *lplpsz);
/* Both return CO_E_CLASSSTRING for other text than a GUID in braces. */
HRESULT CLSIDFromString(LPCWSTR lpsz, GUID *pclsid);
HRESULT IIDFromString(LPCWSTR lpsz, GUID *lpiid);

/* Times. */
void GetSystemTime(LPSYSTEMTIME lpSystemTime);
void GetLocalTime(LPSYSTEMTIME lpSystemTime);
void GetSystemTimeAsFileTime(LPFILETIME lpSystemTimeAsFileTime);
BOOL FileTimeToLocalFileTime(const FILETIME *lpFileTime, LPFILETIME lpLocalFileTime);
int CompareFileTime(const FILETIME *lpFileTime1, const FILETIME *lpFileTime2);

/* Formats a date or a time by a picture, such as "yyyy'-'MM'-'dd" or "HH':'mm':'ss". Without a
 * picture, the flags select one; without a time, it is the local time. Returns the number of
 * characters with the NUL, also for a size of 0; 0 on failure, with the reason in the last error. */
int GetDateFormatA(LCID Locale, DWORD dwFlags, const SYSTEMTIME *lpDate, LPCSTR lpFormat, LPSTR lpDateStr, int cchDate);
int GetDateFormatW(LCID Locale, DWORD dwFlags, const SYSTEMTIME *lpDate, LPCWSTR lpFormat, LPWSTR lpDateStr, int cchDate);
int GetDateFormatEx(LPCWSTR lpLocaleName, DWORD dwFlags, const SYSTEMTIME *lpDate, LPCWSTR lpFormat, LPWSTR lpDateStr, int cchDate,
                    LPCWSTR lpCalendar);
int GetTimeFormatA(LCID Locale, DWORD dwFlags, const SYSTEMTIME *lpTime, LPCSTR lpFormat, LPSTR lpTimeStr, int cchTime);
int GetTimeFormatW(LCID Locale, DWORD dwFlags, const SYSTEMTIME *lpTime, LPCWSTR lpFormat, LPWSTR lpTimeStr, int cchTime);
int GetTimeFormatEx(LPCWSTR lpLocaleName, DWORD dwFlags, const SYSTEMTIME *lpTime, LPCWSTR lpFormat, LPWSTR lpTimeStr, int cchTime);
#ifdef UNICODE
#define GetDateFormat GetDateFormatW
#define GetTimeFormat GetTimeFormatW
#else
#define GetDateFormat GetDateFormatA
#define GetTimeFormat GetTimeFormatA
#endif

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

/* For the part of the header that TRACEWEIR_TYPES_ONLY left out before. */
#include "../windows.h"
