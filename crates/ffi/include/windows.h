/* The part of windows.h that providers, controllers and consumers need: base types, GUIDs, status
 * codes. This is not a Windows SDK.
 *
 *   The sizes are those of Windows:
 *
 *     LONG ULONG DWORD BOOL HRESULT NTSTATUS   4 bytes
 *     WCHAR                                    2 bytes, a char16_t: u"text", not L"text"; with
 *                                              -fshort-wchar also L"text"
 *     BOOLEAN UCHAR BYTE                       1 byte
 *     HANDLE and pointers                      the size of a pointer of the machine
 *
 * C's own "long" has 8 bytes here and 4 on Windows; no structure of this library has one. ULONG_MAX
 * is that of C's "unsigned long", not of ULONG.
 *
 * In C, older compilers only warn about L"text" passed as a WCHAR string, which would be read as a
 * text of one letter. From here on it is an error, as it is in C++ and with newer compilers. A
 * source that cannot accept this defines TRACEWEIR_LENIENT_POINTERS before it includes the first
 * header.
 */
#ifndef TRACEWEIR_WINDOWS_H
#define TRACEWEIR_WINDOWS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifndef __cplusplus
#include <uchar.h>
#ifndef TRACEWEIR_LENIENT_POINTERS
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#endif
#endif

/* The version of Windows that a source is written for: Windows 10, unless the source defines
 * another. It changes only how headers behave. */
#define _WIN32_WINNT_NT4 0x0400
#define _WIN32_WINNT_WIN2K 0x0500
#define _WIN32_WINNT_WINXP 0x0501
#define _WIN32_WINNT_WS03 0x0502
#define _WIN32_WINNT_WIN6 0x0600
#define _WIN32_WINNT_VISTA 0x0600
#define _WIN32_WINNT_WS08 0x0600
#define _WIN32_WINNT_LONGHORN 0x0600
#define _WIN32_WINNT_WIN7 0x0601
#define _WIN32_WINNT_WIN8 0x0602
#define _WIN32_WINNT_WINBLUE 0x0603
#define _WIN32_WINNT_WINTHRESHOLD 0x0A00
#define _WIN32_WINNT_WIN10 0x0A00
#define NTDDI_WINXP 0x05010000
#define NTDDI_WS03 0x05020000
#define NTDDI_VISTA 0x06000000
#define NTDDI_LONGHORN 0x06000000
#define NTDDI_WIN7 0x06010000
#define NTDDI_WIN8 0x06020000
#define NTDDI_WINBLUE 0x06030000
#define NTDDI_WINTHRESHOLD 0x0A000000
#define NTDDI_WIN10 0x0A000000
#define NTDDI_WIN10_TH2 0x0A000001
#define NTDDI_WIN10_RS1 0x0A000002
#define NTDDI_WIN10_RS2 0x0A000003
#define NTDDI_WIN10_RS3 0x0A000004
#define NTDDI_WIN10_RS4 0x0A000005
#define NTDDI_WIN10_RS5 0x0A000006
#define NTDDI_WIN10_19H1 0x0A000007
#define NTDDI_WIN10_VB 0x0A000008
#define NTDDI_WIN10_MN 0x0A000009
#define NTDDI_WIN10_FE 0x0A00000A
#define NTDDI_WIN10_CO 0x0A00000B
#define NTDDI_WIN10_NI 0x0A00000C
#ifndef _WIN32_WINNT
#if defined(NTDDI_VERSION)
#define _WIN32_WINNT (NTDDI_VERSION >> 16)
#elif defined(WINVER)
#define _WIN32_WINNT WINVER
#else
#define _WIN32_WINNT _WIN32_WINNT_WIN10
#endif
#endif
#ifndef WINVER
#define WINVER _WIN32_WINNT
#endif
#ifndef NTDDI_VERSION
#define NTDDI_VERSION (_WIN32_WINNT << 16)
#endif

/* Declarations. Calling conventions are those of the machine; annotations for analyzers are
 * empty. */
#ifdef __cplusplus
#define EXTERN_C extern "C"
#else
#define EXTERN_C extern
#endif
#define WINAPI
#define WINAPIV
#define APIENTRY
#define NTAPI
#define CALLBACK
#define FAR
#define NEAR
#ifndef __stdcall
#define __stdcall
#endif
#ifndef __cdecl
#define __cdecl
#endif
#ifndef __fastcall
#define __fastcall
#endif
#ifndef __int64
#define __int64 long long
#endif
#ifndef __int32
#define __int32 int
#endif
#ifndef __int16
#define __int16 short
#endif
#ifndef __int8
#define __int8 char
#endif
#ifndef __forceinline
#define __forceinline static __inline__ __attribute__((always_inline))
#endif
#define UNALIGNED
#define __unaligned

/* __declspec(word) for the words that sources of tracing programs use. Any number of source files
 * may define a variable that is selectany, even if its declaration begins with "extern". So the
 * word expands to a dummy declaration, which takes the "extern", and to the start of a definition
 * of which the linker keeps one. */
#if !defined(__declspec) && !defined(_MSC_EXTENSIONS)
#define __declspec(word) TRACEWEIR_DECLSPEC_##word
#endif
#ifdef __cplusplus
#define TRACEWEIR_DECLSPEC_selectany struct traceweir_selectany; inline
#else
#define TRACEWEIR_DECLSPEC_selectany int traceweir_selectany(void); __attribute__((weak))
#endif
#define TRACEWEIR_DECLSPEC_noinline __attribute__((noinline))
#define TRACEWEIR_DECLSPEC_noreturn __attribute__((noreturn))
#define TRACEWEIR_DECLSPEC_align(bytes) __attribute__((aligned(bytes)))
#define TRACEWEIR_DECLSPEC_dllexport __attribute__((visibility("default")))
#define TRACEWEIR_DECLSPEC_dllimport
#define TRACEWEIR_DECLSPEC_novtable
#define TRACEWEIR_DECLSPEC_nothrow
#define TRACEWEIR_DECLSPEC_thread __thread
#define TRACEWEIR_DECLSPEC_deprecated __attribute__((deprecated))
#define TRACEWEIR_DECLSPEC_allocate(section)
#define TRACEWEIR_DECLSPEC_uuid(guid)
#ifndef CONST
#define CONST const
#endif
#ifndef VOID
#define VOID void
#endif
#ifndef FORCEINLINE
#define FORCEINLINE static inline __attribute__((always_inline))
#endif
#define DECLSPEC_SELECTANY TRACEWEIR_DECLSPEC_selectany
#ifdef __cplusplus
#define DECLSPEC_NOINLINE __attribute__((noinline))
#else
/* In the output of mc.exe, "__inline" follows: a function that any number of source files may
 * define. C has no such functions, so each source file gets its own. */
#define DECLSPEC_NOINLINE static __attribute__((unused))
#endif
#define DECLSPEC_NORETURN __attribute__((noreturn))
#define DECLSPEC_ALIGN(bytes) __attribute__((aligned(bytes)))
#define DECLSPEC_CACHEALIGN DECLSPEC_ALIGN(64)
#define DECLSPEC_IMPORT
/* Functions in the output of mc.exe: each source file has its own. */
#ifndef ETW_INLINE
#define ETW_INLINE static __inline__ __attribute__((unused))
#endif
#define UNREFERENCED_PARAMETER(name) ((void)(name))
#define UNREFERENCED_LOCAL_VARIABLE(name) ((void)(name))
#define DBG_UNREFERENCED_PARAMETER(name) ((void)(name))
#define ANYSIZE_ARRAY 1
#define MAX_PATH 260
#define INFINITE 0xFFFFFFFF
#define FIELD_OFFSET(type, field) ((LONG)offsetof(type, field))
#ifndef ARRAYSIZE
#define ARRAYSIZE(array) (sizeof(array) / sizeof((array)[0]))
#endif
#define RTL_NUMBER_OF ARRAYSIZE
#define CONTAINING_RECORD(address, type, field) ((type *)(void *)((char *)(address) - offsetof(type, field)))
#define LOBYTE(word) ((BYTE)((DWORD_PTR)(word) & 0xFF))
#define HIBYTE(word) ((BYTE)((DWORD_PTR)(word) >> 8 & 0xFF))
#define LOWORD(value) ((WORD)((DWORD_PTR)(value) & 0xFFFF))
#define HIWORD(value) ((WORD)((DWORD_PTR)(value) >> 16 & 0xFFFF))
#define MAKEWORD(low, high) ((WORD)((BYTE)((DWORD_PTR)(low) & 0xFF) | (WORD)(BYTE)((DWORD_PTR)(high) & 0xFF) << 8))
#define MAKELONG(low, high) ((LONG)((WORD)((DWORD_PTR)(low) & 0xFFFF) | (DWORD)(WORD)((DWORD_PTR)(high) & 0xFFFF) << 16))
#define PtrToUlong(pointer) ((ULONG)(ULONG_PTR)(pointer))
#define PtrToLong(pointer) ((LONG)(LONG_PTR)(pointer))
#define PtrToUint(pointer) ((UINT)(UINT_PTR)(pointer))
#define PtrToInt(pointer) ((INT)(INT_PTR)(pointer))
#define ULongToPtr(value) ((void *)(ULONG_PTR)(ULONG)(value))
#define LongToPtr(value) ((void *)(LONG_PTR)(LONG)(value))
#define UlongToPtr ULongToPtr
#define UNICODE_NULL ((WCHAR)0)
#define ANSI_NULL ((CHAR)0)
#define RtlZeroMemory(to, size) ((void)memset((to), 0, (size)))
#define RtlCopyMemory(to, from, size) ((void)memcpy((to), (from), (size)))
#define RtlMoveMemory(to, from, size) ((void)memmove((to), (from), (size)))
#define RtlFillMemory(to, size, byte) ((void)memset((to), (byte), (size)))
#define RtlEqualMemory(a, b, size) (memcmp((a), (b), (size)) == 0)
#define MoveMemory RtlMoveMemory
#define FillMemory RtlFillMemory
#define ZeroMemory RtlZeroMemory
#define CopyMemory RtlCopyMemory
#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

#include "sal.h"
#include "traceweir/intrinsics.h"

/* Numeric types. */
typedef unsigned char BYTE, UCHAR, BOOLEAN;
typedef char CHAR, CCHAR;
typedef short SHORT;
typedef unsigned short USHORT, WORD;
typedef int BOOL, INT;
typedef unsigned int UINT;
typedef int32_t LONG;
typedef uint32_t ULONG, DWORD;
typedef int8_t INT8;
typedef uint8_t UINT8;
typedef int16_t INT16;
typedef uint16_t UINT16;
typedef int32_t INT32, LONG32;
typedef uint32_t UINT32, ULONG32, DWORD32;
typedef float FLOAT;
typedef double DOUBLE;
typedef intptr_t INT_PTR, LONG_PTR, SSIZE_T;
typedef uintptr_t UINT_PTR, ULONG_PTR, DWORD_PTR, SIZE_T;
/* "long long" as on Windows, so that %llu is correct on both. */
typedef long long INT64, LONG64, LONGLONG;
typedef unsigned long long UINT64, ULONG64, ULONGLONG, DWORD64, DWORDLONG;
#if defined(__cplusplus) && __SIZEOF_WCHAR_T__ == 2
/* With -fshort-wchar, as on Windows. In C, wchar_t and char16_t are both "unsigned short" then. */
typedef wchar_t WCHAR;
#define TRACEWEIR_WIDE_TEXT(text) L##text
#else
typedef char16_t WCHAR;
#define TRACEWEIR_WIDE_TEXT(text) u##text
#endif

#ifndef _HRESULT_DEFINED
#define _HRESULT_DEFINED
typedef LONG HRESULT;
#endif
#ifndef _NTSTATUS_DEFINED
#define _NTSTATUS_DEFINED
typedef LONG NTSTATUS;
#endif

/* Pointer types. */
typedef void *PVOID, *LPVOID, *HANDLE, *HMODULE, *HINSTANCE, *HLOCAL, *HGLOBAL, *PSID;
typedef const void *PCVOID, *LPCVOID;
typedef HANDLE *PHANDLE, *LPHANDLE;
typedef BYTE *PBYTE, *LPBYTE;
typedef UCHAR *PUCHAR;
typedef const UCHAR *PCUCHAR;
typedef BOOLEAN *PBOOLEAN;
typedef BOOL *PBOOL, *LPBOOL;
typedef SHORT *PSHORT;
typedef USHORT *PUSHORT;
typedef WORD *PWORD, *LPWORD;
typedef INT *PINT;
typedef UINT *PUINT;
typedef LONG *PLONG, *LPLONG;
typedef ULONG *PULONG;
typedef DWORD *PDWORD, *LPDWORD;
typedef LONG64 *PLONG64;
typedef ULONG64 *PULONG64;
typedef LONGLONG *PLONGLONG;
typedef ULONGLONG *PULONGLONG;
typedef SIZE_T *PSIZE_T;
typedef ULONG_PTR *PULONG_PTR;
typedef CHAR *PCHAR, *PSTR, *LPSTR;
typedef const CHAR *PCSTR, *LPCSTR, *PCCH;
typedef WCHAR *PWCHAR, *PWSTR, *LPWSTR;
typedef const WCHAR *PCWSTR, *LPCWSTR, *PCWCH;
/* Text of COM, which wtypesbase.h declares on Windows. */
typedef WCHAR OLECHAR, *LPOLESTR;
typedef const WCHAR *LPCOLESTR;
#define OLESTR(text) TRACEWEIR_WIDE_TEXT(text)

/* Characters of the width that UNICODE selects. */
#ifdef UNICODE
typedef WCHAR TCHAR;
#define __TEXT(text) TRACEWEIR_WIDE_TEXT(text)
#else
typedef CHAR TCHAR;
#define __TEXT(text) text
#endif
#define TEXT(text) __TEXT(text)
typedef TCHAR *PTCHAR, *PTSTR, *LPTSTR;
typedef const TCHAR *PCTSTR, *LPCTSTR;

/* Structures for times, large integers and SIDs. */
typedef struct _FILETIME {
    DWORD dwLowDateTime;
    DWORD dwHighDateTime;
} FILETIME, *PFILETIME, *LPFILETIME;

typedef struct _SYSTEMTIME {
    WORD wYear;
    WORD wMonth;
    WORD wDayOfWeek;
    WORD wDay;
    WORD wHour;
    WORD wMinute;
    WORD wSecond;
    WORD wMilliseconds;
} SYSTEMTIME, *PSYSTEMTIME, *LPSYSTEMTIME;

typedef struct _TIME_ZONE_INFORMATION {
    LONG Bias;
    WCHAR StandardName[32];
    SYSTEMTIME StandardDate;
    LONG StandardBias;
    WCHAR DaylightName[32];
    SYSTEMTIME DaylightDate;
    LONG DaylightBias;
} TIME_ZONE_INFORMATION, *PTIME_ZONE_INFORMATION, *LPTIME_ZONE_INFORMATION;

/* Anonymous members are standard in C11 and a common extension in C++: "__extension__" silences the
 * warning. */
typedef union _LARGE_INTEGER {
    __extension__ struct {
        DWORD LowPart;
        LONG HighPart;
    };
    struct _LARGE_INTEGER_PARTS {
        DWORD LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;

typedef union _ULARGE_INTEGER {
    __extension__ struct {
        DWORD LowPart;
        DWORD HighPart;
    };
    struct _ULARGE_INTEGER_PARTS {
        DWORD LowPart;
        DWORD HighPart;
    } u;
    ULONGLONG QuadPart;
} ULARGE_INTEGER, *PULARGE_INTEGER;

typedef struct _SID_IDENTIFIER_AUTHORITY {
    BYTE Value[6];
} SID_IDENTIFIER_AUTHORITY, *PSID_IDENTIFIER_AUTHORITY;

typedef struct _SID {
    BYTE Revision;
    BYTE SubAuthorityCount;
    SID_IDENTIFIER_AUTHORITY IdentifierAuthority;
    DWORD SubAuthority[ANYSIZE_ARRAY];
} SID, *PISID;

#define SID_REVISION 1
#define SID_MAX_SUB_AUTHORITIES 15
#define SECURITY_MAX_SID_SIZE (sizeof(SID) - sizeof(DWORD) + SID_MAX_SUB_AUTHORITIES * sizeof(DWORD))

#include "guiddef.h"
#include "ntstatus.h"
#include "winerror.h"

/* Flags of FormatMessage. */
#define FORMAT_MESSAGE_MAX_WIDTH_MASK 0x000000FF
#define FORMAT_MESSAGE_ALLOCATE_BUFFER 0x00000100
#define FORMAT_MESSAGE_IGNORE_INSERTS 0x00000200
#define FORMAT_MESSAGE_FROM_STRING 0x00000400
#define FORMAT_MESSAGE_FROM_HMODULE 0x00000800
#define FORMAT_MESSAGE_FROM_SYSTEM 0x00001000
#define FORMAT_MESSAGE_ARGUMENT_ARRAY 0x00002000

/* Languages of FormatMessage: all texts are in English, which is also the default. */
#define LANG_NEUTRAL 0x00
#define LANG_ENGLISH 0x09
#define SUBLANG_NEUTRAL 0x00
#define SUBLANG_DEFAULT 0x01
#define SUBLANG_SYS_DEFAULT 0x02
#define SUBLANG_ENGLISH_US 0x01
#define SUBLANG_ENGLISH_UK 0x02
#define MAKELANGID(primary, sub) ((WORD)((WORD)((sub) << 10) | (WORD)(primary)))

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's last error. Functions here return their status; only those whose description
 * says so also set the last error. */
DWORD WINAPI GetLastError(void);
void WINAPI SetLastError(DWORD code);

/* Formats a Win32 code, HRESULT or NTSTATUS as text (FORMAT_MESSAGE_FROM_SYSTEM), or the text at
 * lpSource with inserts (FORMAT_MESSAGE_FROM_STRING): %1 to %99 and %1!format! are arguments, %n is a
 * line break, %0 the end. There are no other texts here. The text is stored in a buffer of nSize
 * characters. With FORMAT_MESSAGE_ALLOCATE_BUFFER it is stored in memory for LocalFree, whose address
 * is stored where lpBuffer points. Texts of codes are in English (dwLanguageId 0), one line that ends
 * with CR LF. A width in the lowest byte of dwFlags breaks them between words, and replaces the CR LF
 * at the end by a space. Returns the number of characters without the NUL. On failure it sets the
 * last error (ERROR_MR_MID_NOT_FOUND for a code that no function here returns), allocates nothing and
 * returns 0. */
DWORD WINAPI FormatMessageW(DWORD dwFlags, _In_opt_ LPCVOID lpSource, DWORD dwMessageId, DWORD dwLanguageId, LPWSTR lpBuffer,
                            DWORD nSize, _In_opt_ va_list *Arguments);
DWORD WINAPI FormatMessageA(DWORD dwFlags, _In_opt_ LPCVOID lpSource, DWORD dwMessageId, DWORD dwLanguageId, LPSTR lpBuffer,
                            DWORD nSize, _In_opt_ va_list *Arguments);
#ifdef UNICODE
#define FormatMessage FormatMessageW
#else
#define FormatMessage FormatMessageA
#endif
/* Frees memory that a function here allocated; returns NULL. */
HLOCAL WINAPI LocalFree(HLOCAL hMem);

#ifdef __cplusplus
}
#endif

#ifndef TRACEWEIR_NO_WIN32_CALLS
#include "traceweir/win32_calls.h"
#include "traceweir/kernel32_calls.h"
#include "traceweir/file_calls.h"
#endif

#define TRACEWEIR_WINDOWS_H_IS_COMPLETE
#endif /* TRACEWEIR_WINDOWS_H */

/* Threads, objects, locks and the console: only for sources that include this header. A source that
 * only includes headers for tracing may define some of these names itself. */
#if defined(TRACEWEIR_WINDOWS_H_IS_COMPLETE) && !defined(TRACEWEIR_TYPES_ONLY) && !defined(TRACEWEIR_NO_WIN32_CALLS)
#include "traceweir/interlocked.h"
#include "synchapi.h"
#include "processthreadsapi.h"
#include "handleapi.h"
#include "consoleapi.h"
#endif
