/* The functions of kernel32 for files that tracing programs call. Paths are those of Linux. A
 * program that has its own versions of these functions defines TRACEWEIR_NO_WIN32_CALLS before it
 * includes the first header.
 */
#ifndef TRACEWEIR_FILE_CALLS_H
#define TRACEWEIR_FILE_CALLS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "../windows.h"

#ifndef INVALID_HANDLE_VALUE
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#endif

/* Rights. */
#define FILE_READ_DATA 0x0001
#define FILE_WRITE_DATA 0x0002
#define FILE_APPEND_DATA 0x0004
#define FILE_READ_ATTRIBUTES 0x0080
#define FILE_WRITE_ATTRIBUTES 0x0100
#ifndef DELETE
#define DELETE 0x00010000
#endif
#ifndef SYNCHRONIZE
#define SYNCHRONIZE 0x00100000
#endif
#ifndef GENERIC_READ
#define GENERIC_ALL 0x10000000
#define GENERIC_EXECUTE 0x20000000
#define GENERIC_WRITE 0x40000000
#define GENERIC_READ 0x80000000u
#endif

/* Share modes, which have no effect. */
#define FILE_SHARE_READ 0x00000001
#define FILE_SHARE_WRITE 0x00000002
#define FILE_SHARE_DELETE 0x00000004

#define CREATE_NEW 1
#define CREATE_ALWAYS 2
#define OPEN_EXISTING 3
#define OPEN_ALWAYS 4
#define TRUNCATE_EXISTING 5

/* Attributes and flags. FILE_FLAG_DELETE_ON_CLOSE deletes the file; FILE_FLAG_OVERLAPPED is refused
 * with ERROR_NOT_SUPPORTED; the others have no effect. */
#define FILE_ATTRIBUTE_READONLY 0x00000001
#define FILE_ATTRIBUTE_HIDDEN 0x00000002
#define FILE_ATTRIBUTE_NORMAL 0x00000080
#define FILE_ATTRIBUTE_TEMPORARY 0x00000100
#define FILE_FLAG_DELETE_ON_CLOSE 0x04000000
#define FILE_FLAG_SEQUENTIAL_SCAN 0x08000000
#define FILE_FLAG_RANDOM_ACCESS 0x10000000
#define FILE_FLAG_NO_BUFFERING 0x20000000
#define FILE_FLAG_OVERLAPPED 0x40000000
#define FILE_FLAG_WRITE_THROUGH 0x80000000u

#define FILE_BEGIN 0
#define FILE_CURRENT 1
#define FILE_END 2

/* These precede FILE_DISPOSITION_INFO, because they also rename its member, as on Windows. */
#ifdef UNICODE
#define CreateFile CreateFileW
#define DeleteFile DeleteFileW
#else
#define CreateFile CreateFileA
#define DeleteFile DeleteFileA
#endif

typedef struct _SECURITY_ATTRIBUTES {
    DWORD nLength;
    LPVOID lpSecurityDescriptor;
    BOOL bInheritHandle;
} SECURITY_ATTRIBUTES, *PSECURITY_ATTRIBUTES, *LPSECURITY_ATTRIBUTES;

typedef struct _OVERLAPPED {
    ULONG_PTR Internal;
    ULONG_PTR InternalHigh;
    __extension__ union {
        __extension__ struct {
            DWORD Offset;
            DWORD OffsetHigh;
        };
        PVOID Pointer;
    };
    HANDLE hEvent;
} OVERLAPPED, *LPOVERLAPPED;

typedef enum _FILE_INFO_BY_HANDLE_CLASS {
    FileDispositionInfo = 4,
    FileEndOfFileInfo = 6
} FILE_INFO_BY_HANDLE_CLASS, *PFILE_INFO_BY_HANDLE_CLASS;

typedef struct _FILE_DISPOSITION_INFO {
    BOOLEAN DeleteFile;
} FILE_DISPOSITION_INFO, *PFILE_DISPOSITION_INFO;

typedef struct _FILE_END_OF_FILE_INFO {
    LARGE_INTEGER EndOfFile;
} FILE_END_OF_FILE_INFO, *PFILE_END_OF_FILE_INFO;

#ifdef __cplusplus
extern "C" {
#endif

/* On failure they return INVALID_HANDLE_VALUE and set the last error. CloseHandle closes the
 * file. */
HANDLE WINAPI CreateFileA(_In_ LPCSTR lpFileName, DWORD dwDesiredAccess, DWORD dwShareMode,
                          _In_opt_ LPSECURITY_ATTRIBUTES lpSecurityAttributes, DWORD dwCreationDisposition,
                          DWORD dwFlagsAndAttributes, HANDLE hTemplateFile);
HANDLE WINAPI CreateFileW(_In_ LPCWSTR lpFileName, DWORD dwDesiredAccess, DWORD dwShareMode,
                          _In_opt_ LPSECURITY_ATTRIBUTES lpSecurityAttributes, DWORD dwCreationDisposition,
                          DWORD dwFlagsAndAttributes, HANDLE hTemplateFile);
/* With lpOverlapped, they read and write at its offset; they always wait until they are done. */
BOOL WINAPI ReadFile(HANDLE hFile, LPVOID lpBuffer, DWORD nNumberOfBytesToRead, LPDWORD lpNumberOfBytesRead, LPOVERLAPPED lpOverlapped);
BOOL WINAPI WriteFile(HANDLE hFile, LPCVOID lpBuffer, DWORD nNumberOfBytesToWrite, LPDWORD lpNumberOfBytesWritten,
                      LPOVERLAPPED lpOverlapped);
BOOL WINAPI FlushFileBuffers(HANDLE hFile);
BOOL WINAPI SetFilePointerEx(HANDLE hFile, LARGE_INTEGER liDistanceToMove, PLARGE_INTEGER lpNewFilePointer, DWORD dwMoveMethod);
BOOL WINAPI GetFileSizeEx(HANDLE hFile, _Out_ PLARGE_INTEGER lpFileSize);
BOOL WINAPI SetEndOfFile(HANDLE hFile);
BOOL WINAPI SetFileInformationByHandle(HANDLE hFile, FILE_INFO_BY_HANDLE_CLASS FileInformationClass, LPVOID lpFileInformation,
                                       DWORD dwBufferSize);
BOOL WINAPI DeleteFileA(_In_ LPCSTR lpFileName);
BOOL WINAPI DeleteFileW(_In_ LPCWSTR lpFileName);

#ifdef __cplusplus
}
#endif

#endif /* TRACEWEIR_FILE_CALLS_H */
