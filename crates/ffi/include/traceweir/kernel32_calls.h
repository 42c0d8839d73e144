/* The few functions of kernel32 and ntdll about libraries, volumes, the heap, the performance
 * counter and compressed blocks that tracing programs call. A program that brings its own defines
 * TRACEWEIR_NO_WIN32_CALLS before it includes the first header.
 */
#ifndef TRACEWEIR_KERNEL32_CALLS_H
#define TRACEWEIR_KERNEL32_CALLS_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "../windows.h"

#ifndef INVALID_HANDLE_VALUE
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#endif

#ifdef __cplusplus
typedef LONGLONG(WINAPI *FARPROC)();
#else
typedef LONGLONG(WINAPI *FARPROC)(void);
#endif

#define DONT_RESOLVE_DLL_REFERENCES 0x00000001
#define LOAD_LIBRARY_AS_DATAFILE 0x00000002
#define LOAD_LIBRARY_AS_IMAGE_RESOURCE 0x00000020
#define LOAD_LIBRARY_AS_DATAFILE_EXCLUSIVE 0x00000040
#define LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR 0x00000100
#define LOAD_LIBRARY_SEARCH_APPLICATION_DIR 0x00000200
#define LOAD_LIBRARY_SEARCH_USER_DIRS 0x00000400
#define LOAD_LIBRARY_SEARCH_SYSTEM32 0x00000800
#define LOAD_LIBRARY_SEARCH_DEFAULT_DIRS 0x00001000

#define COMPRESSION_FORMAT_NONE 0x0000
#define COMPRESSION_FORMAT_DEFAULT 0x0001
#define COMPRESSION_FORMAT_LZNT1 0x0002
#define COMPRESSION_FORMAT_XPRESS 0x0003
#define COMPRESSION_FORMAT_XPRESS_HUFF 0x0004
#define COMPRESSION_ENGINE_STANDARD 0x0000
#define COMPRESSION_ENGINE_MAXIMUM 0x0100

#ifdef __cplusplus
extern "C" {
#endif

/* For the name of a Windows library that this library stands for, in whatever folder, they return
 * this library; they pass other names to dlopen. On failure they return NULL and set
 * ERROR_MOD_NOT_FOUND. */
HMODULE WINAPI LoadLibraryA(_In_ LPCSTR lpLibFileName);
HMODULE WINAPI LoadLibraryW(_In_ LPCWSTR lpLibFileName);
HMODULE WINAPI LoadLibraryExA(_In_ LPCSTR lpLibFileName, HANDLE hFile, DWORD dwFlags);
HMODULE WINAPI LoadLibraryExW(_In_ LPCWSTR lpLibFileName, HANDLE hFile, DWORD dwFlags);
FARPROC WINAPI GetProcAddress(HMODULE hModule, _In_ LPCSTR lpProcName);
BOOL WINAPI FreeLibrary(HMODULE hLibModule);
/* Both fail with ERROR_INVALID_FUNCTION, as in every process of 64 bits. */
BOOL WINAPI Wow64DisableWow64FsRedirection(PVOID *OldValue);
BOOL WINAPI Wow64RevertWow64FsRedirection(PVOID OlValue);

/* There are no drive letters and no volumes here: the lists are empty. */
DWORD WINAPI GetLogicalDrives(void);
DWORD WINAPI QueryDosDeviceA(_In_opt_ LPCSTR lpDeviceName, LPSTR lpTargetPath, DWORD ucchMax);
DWORD WINAPI QueryDosDeviceW(_In_opt_ LPCWSTR lpDeviceName, LPWSTR lpTargetPath, DWORD ucchMax);
HANDLE WINAPI FindFirstVolumeA(LPSTR lpszVolumeName, DWORD cchBufferLength);
HANDLE WINAPI FindFirstVolumeW(LPWSTR lpszVolumeName, DWORD cchBufferLength);
BOOL WINAPI FindNextVolumeA(HANDLE hFindVolume, LPSTR lpszVolumeName, DWORD cchBufferLength);
BOOL WINAPI FindNextVolumeW(HANDLE hFindVolume, LPWSTR lpszVolumeName, DWORD cchBufferLength);
BOOL WINAPI FindVolumeClose(HANDLE hFindVolume);

/* The heap of the process. Memory is always zeroed. Texts of FormatMessage belong to this heap. */
#define HEAP_NO_SERIALIZE 0x00000001
#define HEAP_ZERO_MEMORY 0x00000008
HANDLE WINAPI GetProcessHeap(void);
LPVOID WINAPI HeapAlloc(HANDLE hHeap, DWORD dwFlags, SIZE_T dwBytes);
BOOL WINAPI HeapFree(HANDLE hHeap, DWORD dwFlags, LPVOID lpMem);

/* Times in UTC. */
BOOL WINAPI FileTimeToSystemTime(_In_ const FILETIME *lpFileTime, _Out_ LPSYSTEMTIME lpSystemTime);
BOOL WINAPI SystemTimeToFileTime(_In_ const SYSTEMTIME *lpSystemTime, _Out_ LPFILETIME lpFileTime);

/* The performance counter is CLOCK_MONOTONIC in nanoseconds, the clock of raw time stamps. */
BOOL WINAPI QueryPerformanceCounter(_Out_ LARGE_INTEGER *lpPerformanceCount);
BOOL WINAPI QueryPerformanceFrequency(_Out_ LARGE_INTEGER *lpFrequency);

/* Decompresses LZNT1, and XPRESS if the buffer has exactly the size of the uncompressed data. */
NTSTATUS WINAPI RtlDecompressBuffer(USHORT CompressionFormat, PUCHAR UncompressedBuffer, ULONG UncompressedBufferSize,
                                    PUCHAR CompressedBuffer, ULONG CompressedBufferSize, _Out_ PULONG FinalUncompressedSize);

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define LoadLibrary LoadLibraryW
#define LoadLibraryEx LoadLibraryExW
#define QueryDosDevice QueryDosDeviceW
#define FindFirstVolume FindFirstVolumeW
#define FindNextVolume FindNextVolumeW
#else
#define LoadLibrary LoadLibraryA
#define LoadLibraryEx LoadLibraryExA
#define QueryDosDevice QueryDosDeviceA
#define FindFirstVolume FindFirstVolumeA
#define FindNextVolume FindNextVolumeA
#endif

#endif /* TRACEWEIR_KERNEL32_CALLS_H */
