/* tchar.h: names that stand for wide or narrow functions, as _UNICODE selects. For programs that
 * link libtraceweir-wide and are compiled with -fshort-wchar (docs/porting.md).
 */
#ifndef TRACEWEIR_TCHAR_H
#define TRACEWEIR_TCHAR_H

#include <ctype.h>
#include <wctype.h>

#include "../traceweir/wide.h"

#ifdef _UNICODE
#define __T(text) L##text
#define _TCHAR wchar_t
#define _TUCHAR wchar_t
#define _TINT wint_t
#define _TEOF WEOF
#define _tmain wmain
#define _tprintf wprintf
#define _tprintf_s wprintf_s
#define _ftprintf fwprintf
#define _ftprintf_s fwprintf_s
#define _stprintf_s swprintf_s
#define _sntprintf _snwprintf
#define _sntprintf_s _snwprintf_s
#define _sctprintf _scwprintf
#define _vtprintf vwprintf
#define _vftprintf vfwprintf
#define _vstprintf_s vswprintf_s
#define _vsntprintf _vsnwprintf
#define _vsntprintf_s _vsnwprintf_s
#define _vsctprintf _vscwprintf
#define _tcslen wcslen
#define _tcsnlen wcsnlen
#define _tcscpy wcscpy
#define _tcscpy_s wcscpy_s
#define _tcsncpy wcsncpy
#define _tcsncpy_s wcsncpy_s
#define _tcscat wcscat
#define _tcscat_s wcscat_s
#define _tcsncat wcsncat
#define _tcsncat_s wcsncat_s
#define _tcscmp wcscmp
#define _tcsncmp wcsncmp
#define _tcsicmp _wcsicmp
#define _tcsnicmp _wcsnicmp
#define _tcschr wcschr
#define _tcsrchr wcsrchr
#define _tcsstr wcsstr
#define _tcspbrk wcspbrk
#define _tcsspn wcsspn
#define _tcscspn wcscspn
#define _tcstok_s wcstok_s
#define _tcsdup _wcsdup
#define _tcstol wcstol
#define _tcstoul wcstoul
#define _tcstoi64 _wcstoi64
#define _tcstoui64 _wcstoui64
#define _tcstod wcstod
#define _ttoi _wtoi
#define _ttol _wtol
#define _ttoi64 _wtoi64
#define _tstoi _wtoi
#define _istdigit iswdigit
#define _istxdigit iswxdigit
#define _istalpha iswalpha
#define _istalnum iswalnum
#define _istspace iswspace
#define _istprint iswprint
#define _istupper iswupper
#define _istlower iswlower
#define _totupper towupper
#define _totlower towlower
#define _tfopen _wfopen
#define _tfopen_s _wfopen_s
#define _tremove _wremove
#define _tfullpath _wfullpath
#define _fputts fputws
#define _fgetts fgetws
#define _putts _putws
#define _puttc putwc
#define _puttchar putwchar
#define _gettc getwc
#define _gettchar getwchar
#else
#define __T(text) text
#define _TCHAR char
#define _TUCHAR unsigned char
#define _TINT int
#define _TEOF EOF
#define _tmain main
#define _tprintf printf
#define _tprintf_s printf_s
#define _ftprintf fprintf
#define _ftprintf_s fprintf_s
#define _stprintf_s sprintf_s
#define _sntprintf _snprintf
#define _sntprintf_s _snprintf_s
#define _sctprintf _scprintf
#define _vtprintf vprintf
#define _vftprintf vfprintf
#define _vstprintf_s vsprintf_s
#define _vsntprintf _vsnprintf
#define _vsntprintf_s _vsnprintf_s
#define _vsctprintf _vscprintf
#define _tcslen strlen
#define _tcsnlen strnlen
#define _tcscpy strcpy
#define _tcscpy_s strcpy_s
#define _tcsncpy strncpy
#define _tcsncpy_s strncpy_s
#define _tcscat strcat
#define _tcscat_s strcat_s
#define _tcsncat strncat
#define _tcsncat_s strncat_s
#define _tcscmp strcmp
#define _tcsncmp strncmp
#define _tcsicmp _stricmp
#define _tcsnicmp _strnicmp
#define _tcschr strchr
#define _tcsrchr strrchr
#define _tcsstr strstr
#define _tcspbrk strpbrk
#define _tcsspn strspn
#define _tcscspn strcspn
#define _tcstok_s strtok_s
#define _tcsdup _strdup
#define _tcstol strtol
#define _tcstoul strtoul
#define _tcstoi64 _strtoi64
#define _tcstoui64 _strtoui64
#define _tcstod strtod
#define _ttoi atoi
#define _ttol atol
#define _ttoi64 _atoi64
#define _tstoi atoi
#define _istdigit isdigit
#define _istxdigit isxdigit
#define _istalpha isalpha
#define _istalnum isalnum
#define _istspace isspace
#define _istprint isprint
#define _istupper isupper
#define _istlower islower
#define _totupper toupper
#define _totlower tolower
#define _tfopen fopen
#define _tfopen_s fopen_s
#define _tremove remove
#define _tfullpath _fullpath
#define _fputts fputs
#define _fgetts fgets
#define _putts puts
#define _puttc putc
#define _puttchar putchar
#define _gettc getc
#define _gettchar getchar
#endif
#define _T(text) __T(text)
#define _TEXT(text) __T(text)

#endif /* TRACEWEIR_TCHAR_H */
