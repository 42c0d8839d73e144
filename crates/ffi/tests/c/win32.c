/* Win32 functions other than those for tracing: GUIDs, SIDs, COM, the heap, versions, privileges,
 * the command line, files, libraries, volumes, the performance counter, IP addresses, compressed
 * blocks, group masks without a session. */
#include <objbase.h>
#include <intrin.h>
#include <intsafe.h>
#include <ip2string.h>
#include <mstcpip.h>
#include <netiodef.h>
#include <ntstatus.h>
#include <oleauto.h>
#include <sddl.h>
#include <shellapi.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <traceweir/nt_system_information.h>
#include <unistd.h>
#include <winternl.h>
#include <wtypes.h>

#include "check.h"

static void check_intrinsics(void) {
    EXPECT(0x04030201, _byteswap_ulong(0x01020304));
    EXPECT(1, _byteswap_uint64(1) == 0x0100000000000000ull);
    EXPECT(0x00000012, _rotl(0x20000001, 4));
    EXPECT(0x12000000, _rotr(0x20000001, 4));
    EXPECT(0x20000001, _rotl(0x20000001, 0));
    EXPECT(1, _rotl64(0x8000000000000000ull, 1) == 1 && _rotr64(1, 1) == 0x8000000000000000ull);
    EXPECT(1, _UI64_MAX == UINT64_MAX && _I64_MIN == INT64_MIN && _I32_MIN == INT32_MIN);
    LPVOID memory = CoTaskMemRealloc(CoTaskMemAlloc(1), 100);
    EXPECT(1, memory != NULL);
    CoTaskMemFree(memory);
}

/* Texts with a length, and types of COM. */
static void check_types(void) {
    static CHAR narrow[] = "text";
    static WCHAR wide[] = {'t', 'e', 'x', 't', 0};
    ANSI_STRING ansi = RTL_CONSTANT_STRING(narrow);
    UNICODE_STRING unicode = RTL_CONSTANT_STRING(wide);
    PCUNICODE_STRING constant = &unicode;
    LPOLESTR text = wide;
    UUID id = {1, 2, 3, {4, 5, 6, 7, 8, 9, 10, 11}};
    EXPECT(16, sizeof(STRING));
    EXPECT(16, sizeof(UNICODE_STRING));
    EXPECT(2, offsetof(STRING, MaximumLength));
    EXPECT(8, offsetof(STRING, Buffer));
    EXPECT(2, offsetof(UNICODE_STRING, MaximumLength));
    EXPECT(8, offsetof(UNICODE_STRING, Buffer));
    EXPECT(1, ansi.Length == 4 && ansi.MaximumLength == 5 && constant->Length == 8 && constant->MaximumLength == 10);
    EXPECT(1, text[3] == 't' && sizeof(OLECHAR) == 2);
#ifdef __cplusplus
    REFIID interface_id = id;
    REFCLSID class_id = id;
    EXPECT(1, IsEqualIID(interface_id, id) && IsEqualCLSID(class_id, interface_id));
#else
    REFIID interface_id = &id;
    REFCLSID class_id = &id;
    EXPECT(1, IsEqualIID(interface_id, &id) && IsEqualCLSID(class_id, interface_id));
#endif
}

static void check_guids_and_sids(void) {
    GUID first, second;
    EXPECT(S_OK, CoCreateGuid(&first));
    EXPECT(S_OK, CoCreateGuid(&second));
    EXPECT(1, memcmp(&first, &second, sizeof first) != 0);
    EXPECT(4, first.Data3 >> 12);
    EXPECT(2, first.Data4[0] >> 6);
    EXPECT(E_INVALIDARG, CoCreateGuid(NULL));

    SID sid = {1, 1, {{0, 0, 0, 0, 0, 5}}, {18}};
    LPSTR text = NULL;
    LPWSTR wide = NULL;
    EXPECT(TRUE, ConvertSidToStringSidA(&sid, &text));
    EXPECT(0, strcmp(text, "S-1-5-18"));
    EXPECT(1, LocalFree(text) == NULL);
    EXPECT(TRUE, ConvertSidToStringSidW(&sid, &wide));
    EXPECT(1, wide[0] == 'S' && wide[7] == '8' && wide[8] == 0);
    EXPECT(1, LocalFree(wide) == NULL);
    EXPECT(FALSE, ConvertSidToStringSidA(NULL, &text));
    EXPECT(ERROR_INVALID_SID, GetLastError());
    EXPECT(FALSE, ConvertSidToStringSidA(&sid, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    sid.Revision = 9;
    EXPECT(FALSE, ConvertSidToStringSidA(&sid, &text));
    EXPECT(ERROR_INVALID_SID, GetLastError());

    void *error = &sid;
    EXPECT(S_FALSE, GetErrorInfo(0, &error));
    EXPECT(1, error == NULL);
    EXPECT(E_INVALIDARG, GetErrorInfo(1, &error));
}

static BOOL is_at_least(DWORD major, DWORD minor, WORD service_pack) {
    OSVERSIONINFOEXA version;
    ULONGLONG mask = 0;
    memset(&version, 0, sizeof version);
    version.dwOSVersionInfoSize = sizeof version;
    version.dwMajorVersion = major;
    version.dwMinorVersion = minor;
    version.wServicePackMajor = service_pack;
    VER_SET_CONDITION(mask, VER_MAJORVERSION, VER_GREATER_EQUAL);
    VER_SET_CONDITION(mask, VER_MINORVERSION, VER_GREATER_EQUAL);
    VER_SET_CONDITION(mask, VER_SERVICEPACKMAJOR, VER_GREATER_EQUAL);
    return VerifyVersionInfoA(&version, VER_MAJORVERSION | VER_MINORVERSION | VER_SERVICEPACKMAJOR, mask);
}

static void check_versions(void) {
    EXPECT(TRUE, is_at_least(6, 1, 1));
    EXPECT(TRUE, is_at_least(6, 3, 0));
    EXPECT(TRUE, is_at_least(10, 0, 0));
    EXPECT(FALSE, is_at_least(10, 1, 0));
    EXPECT(ERROR_OLD_WIN_VERSION, GetLastError());
    EXPECT(FALSE, is_at_least(11, 0, 0));
    EXPECT(0x3 | 0x3 << 3, VerSetConditionMask(VerSetConditionMask(0, VER_MINORVERSION, VER_GREATER_EQUAL), VER_MAJORVERSION, VER_GREATER_EQUAL));

    OSVERSIONINFOEXW version;
    memset(&version, 0xFF, sizeof version);
    version.dwOSVersionInfoSize = sizeof version;
    EXPECT(0, RtlGetVersion((PRTL_OSVERSIONINFOW)(void *)&version));
    EXPECT(1, version.dwMajorVersion == 10 && version.dwMinorVersion == 0 && version.dwBuildNumber > 10000);
    EXPECT(1, version.szCSDVersion[0] == 0 && version.wProductType == VER_NT_WORKSTATION);
    version.dwBuildNumber++;
    EXPECT(FALSE, VerifyVersionInfoW(&version, VER_BUILDNUMBER, VerSetConditionMask(0, VER_BUILDNUMBER, VER_GREATER_EQUAL)));
    EXPECT(TRUE, VerifyVersionInfoW(&version, VER_BUILDNUMBER, VerSetConditionMask(0, VER_BUILDNUMBER, VER_LESS)));
    EXPECT(FALSE, VerifyVersionInfoW(&version, VER_BUILDNUMBER, 0));
    EXPECT(ERROR_BAD_ARGUMENTS, GetLastError());
    EXPECT(FALSE, VerifyVersionInfoW(NULL, VER_BUILDNUMBER, 0));
}

static void check_well_known_sids(void) {
    unsigned char memory[SECURITY_MAX_SID_SIZE];
    SID domain = {1, 1, {{0, 0, 0, 0, 0, 5}}, {21}};
    DWORD size = sizeof memory;
    LPSTR text = NULL;
    EXPECT(68, SECURITY_MAX_SID_SIZE);
    EXPECT(TRUE, CreateWellKnownSid(WinWorldSid, NULL, memory, &size));
    EXPECT(12, size);
    EXPECT(TRUE, ConvertSidToStringSidA(memory, &text));
    EXPECT(0, strcmp(text, "S-1-1-0"));
    LocalFree(text);
    EXPECT(1, IsValidSid(memory) && GetLengthSid(memory) == 12 && EqualSid(memory, memory));
    EXPECT(FALSE, EqualSid(memory, &domain));
    EXPECT(ERROR_SUCCESS, GetLastError());
    size = 4;
    EXPECT(FALSE, CreateWellKnownSid(WinBuiltinAdministratorsSid, NULL, memory, &size));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, GetLastError());
    EXPECT(16, size);
    size = sizeof memory;
    EXPECT(TRUE, CreateWellKnownSid(WinAccountAdministratorSid, &domain, memory, &size));
    EXPECT(TRUE, ConvertSidToStringSidA(memory, &text));
    EXPECT(0, strcmp(text, "S-1-5-21-500"));
    LocalFree(text);
    EXPECT(FALSE, CreateWellKnownSid(WinAccountAdministratorSid, NULL, memory, &size));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(FALSE, IsValidSid(NULL));
}

static void check_version_query(void) {
    OSVERSIONINFOA narrow;
    OSVERSIONINFOEXW wide;
    memset(&narrow, 0xFF, sizeof narrow);
    narrow.dwOSVersionInfoSize = sizeof narrow;
    EXPECT(TRUE, GetVersionExA(&narrow));
    EXPECT(1, narrow.dwMajorVersion == 10 && narrow.szCSDVersion[0] == 0);
    memset(&wide, 0xFF, sizeof wide);
    wide.dwOSVersionInfoSize = sizeof wide;
    EXPECT(TRUE, GetVersionExW((LPOSVERSIONINFOW)(void *)&wide));
    EXPECT(1, wide.dwMajorVersion == 10 && wide.wProductType == VER_NT_WORKSTATION);
    wide.dwOSVersionInfoSize = 20;
    EXPECT(FALSE, GetVersionExW((LPOSVERSIONINFOW)(void *)&wide));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, GetLastError());
}

static void check_command_line(void) {
    int count = 0;
    LPWSTR *arguments = CommandLineToArgvW(u"app \"a b\" c\\\"d", &count);
    EXPECT(3, count);
    EXPECT(0, memcmp(arguments[1], u"a b", sizeof u"a b"));
    EXPECT(0, memcmp(arguments[2], u"c\"d", sizeof u"c\"d"));
    EXPECT(1, arguments[3] == NULL);
    EXPECT(1, GlobalFree(arguments) == NULL);
    arguments = CommandLineToArgvW(GetCommandLineW(), &count);
    EXPECT(1, arguments != NULL && count >= 1 && GetCommandLineA() != NULL);
    LocalFree(arguments);
    EXPECT(1, CommandLineToArgvW(NULL, &count) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    char *memory = (char *)LocalAlloc(LPTR, 100);
    EXPECT(1, memory != NULL && memory[99] == 0);
    EXPECT(1, LocalFree(memory) == NULL);
}

static void check_files(void) {
    char path[64], bytes[16];
    DWORD count = 0;
    LARGE_INTEGER position, size;
    OVERLAPPED overlapped;
    FILE_DISPOSITION_INFO disposition = {TRUE};
    FILE_END_OF_FILE_INFO end;
    snprintf(path, sizeof path, "/tmp/traceweir-win32-%d", (int)getpid());
    HANDLE file = CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_NEW, 0, NULL);
    EXPECT(1, file != INVALID_HANDLE_VALUE && CloseHandle(file));
    EXPECT(1, CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_NEW, 0, NULL) == INVALID_HANDLE_VALUE);
    EXPECT(ERROR_FILE_EXISTS, GetLastError());
    file = CreateFileA(path, GENERIC_READ | GENERIC_WRITE | DELETE, 0, NULL, CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    EXPECT(1, file != INVALID_HANDLE_VALUE);
    EXPECT(ERROR_ALREADY_EXISTS, GetLastError());
    EXPECT(TRUE, WriteFile(file, "0123456789", 10, &count, NULL));
    EXPECT(10, count);
    EXPECT(TRUE, WriteFile(file, NULL, 0, NULL, NULL));
    memset(&overlapped, 0, sizeof overlapped);
    overlapped.Offset = 4;
    EXPECT(TRUE, ReadFile(file, bytes, 3, &count, &overlapped));
    EXPECT(1, count == 3 && memcmp(bytes, "456", 3) == 0);
    overlapped.Offset = 10;
    EXPECT(FALSE, ReadFile(file, bytes, 3, &count, &overlapped));
    EXPECT(ERROR_HANDLE_EOF, GetLastError());
    position.QuadPart = -2;
    EXPECT(TRUE, SetFilePointerEx(file, position, &size, FILE_END));
    EXPECT(8, size.QuadPart);
    EXPECT(TRUE, ReadFile(file, bytes, sizeof bytes, &count, NULL));
    EXPECT(1, count == 2 && memcmp(bytes, "89", 2) == 0);
    EXPECT(FALSE, SetFilePointerEx(file, position, NULL, FILE_BEGIN));
    EXPECT(ERROR_NEGATIVE_SEEK, GetLastError());
    position.QuadPart = 6;
    EXPECT(TRUE, SetFilePointerEx(file, position, NULL, FILE_BEGIN));
    EXPECT(1, SetEndOfFile(file) && FlushFileBuffers(file) && GetFileSizeEx(file, &size));
    EXPECT(6, size.QuadPart);
    end.EndOfFile.QuadPart = 3;
    EXPECT(TRUE, SetFileInformationByHandle(file, FileEndOfFileInfo, &end, sizeof end));
    EXPECT(1, GetFileSizeEx(file, &size) && size.QuadPart == 3);
    EXPECT(TRUE, SetFileInformationByHandle(file, FileDispositionInfo, &disposition, sizeof disposition));
    EXPECT(0, access(path, F_OK));
    EXPECT(TRUE, CloseHandle(file));
    EXPECT(-1, access(path, F_OK));
    EXPECT(FALSE, CloseHandle(file));
    EXPECT(FALSE, WriteFile(file, "x", 1, &count, NULL));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(1, CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL) == INVALID_HANDLE_VALUE);
    EXPECT(ERROR_FILE_NOT_FOUND, GetLastError());
    EXPECT(1, CreateFileW(u"/no/such/folder/file", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL) == INVALID_HANDLE_VALUE);
    EXPECT(ERROR_PATH_NOT_FOUND, GetLastError());
    file = CreateFileA(path, GENERIC_WRITE, 0, NULL, OPEN_ALWAYS, 0, NULL);
    EXPECT(ERROR_SUCCESS, GetLastError());
    EXPECT(FALSE, SetFileInformationByHandle(file, FileDispositionInfo, &disposition, sizeof disposition));
    EXPECT(ERROR_ACCESS_DENIED, GetLastError());
    EXPECT(FALSE, ReadFile(file, bytes, 1, &count, NULL));
    EXPECT(ERROR_ACCESS_DENIED, GetLastError());
    EXPECT(1, CloseHandle(file) && DeleteFileA(path));
    EXPECT(FALSE, DeleteFileA(path));
    EXPECT(1, CreateFileA(path, GENERIC_READ, 0, NULL, OPEN_EXISTING, FILE_FLAG_OVERLAPPED, NULL) == INVALID_HANDLE_VALUE);
    EXPECT(ERROR_NOT_SUPPORTED, GetLastError());
}

static void check_addresses(void) {
    IN_ADDR v4;
    IN6_ADDR v6;
    CHAR narrow[46];
    WCHAR wide[46];
    memcpy(&v4, "\x7f\x00\x00\x01", 4);
    memset(&v6, 0, sizeof v6);
    v6.s6_addr[15] = 1;
    EXPECT(9, RtlIpv4AddressToStringA(&v4, narrow) - narrow);
    EXPECT(0, strcmp(narrow, "127.0.0.1"));
    EXPECT(3, RtlIpv6AddressToStringW(&v6, wide) - wide);
    EXPECT(0, memcmp(wide, u"::1", sizeof u"::1"));
    EXPECT(14, sizeof(ETHERNET_HEADER));
    EXPECT(20, sizeof(IPV4_HEADER));
    EXPECT(40, sizeof(IPV6_HEADER));
}

static void check_safe_integers(void) {
    ULONG sum = 1;
    USHORT narrow = 1;
    INT negative = 1;
    EXPECT(S_OK, ULongAdd(0xFFFFFFFEu, 1, &sum));
    EXPECT(0xFFFFFFFFu, sum);
    EXPECT(INTSAFE_E_ARITHMETIC_OVERFLOW, ULongMult(0x10000, 0x10000, &sum));
    EXPECT(0xFFFFFFFFu, sum);
    EXPECT(INTSAFE_E_ARITHMETIC_OVERFLOW, ULongToUShort(0x10000, &narrow));
    EXPECT(USHORT_MAX, narrow);
    EXPECT(S_OK, SizeTToUShort(7, &narrow));
    EXPECT(7, narrow);
    EXPECT(INTSAFE_E_ARITHMETIC_OVERFLOW, IntSub(INT32_MIN, 1, &negative));
}

static void check_privileges(void) {
    int is_root = geteuid() == 0;
    HANDLE token = NULL;
    LUID luid = {0, 0};
    TOKEN_PRIVILEGES state, previous;
    TOKEN_ELEVATION elevation = {9};
    DWORD required_bytes = 0;
    unsigned long long user[16];
    EXPECT(TRUE, OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &token));
    /* A handle that another library made. */
    HANDLE other = NULL;
    EXPECT(TRUE, OpenProcessToken((HANDLE)(ULONG_PTR)0x164, TOKEN_QUERY, &other));
    EXPECT(TRUE, GetTokenInformation(other, TokenElevation, &elevation, sizeof elevation, &required_bytes));
    EXPECT(is_root, elevation.TokenIsElevated);
    EXPECT(TRUE, CloseHandle(other));
    EXPECT(FALSE, OpenProcessToken(NULL, TOKEN_QUERY, &token));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(TRUE, LookupPrivilegeValue(NULL, SE_SYSTEM_PROFILE_NAME, &luid));
    EXPECT(11, luid.LowPart);
    EXPECT(TRUE, LookupPrivilegeValueW(NULL, u"SeDebugPrivilege", &luid));
    EXPECT(20, luid.LowPart);
    EXPECT(FALSE, LookupPrivilegeValueA(NULL, "SeNoSuchPrivilege", &luid));
    EXPECT(ERROR_NO_SUCH_PRIVILEGE, GetLastError());
    state.PrivilegeCount = 1;
    state.Privileges[0].Luid = luid;
    state.Privileges[0].Attributes = SE_PRIVILEGE_ENABLED;
    EXPECT(TRUE, AdjustTokenPrivileges(token, FALSE, &state, sizeof previous, &previous, &required_bytes));
    EXPECT(is_root ? ERROR_SUCCESS : ERROR_NOT_ALL_ASSIGNED, GetLastError());
    EXPECT(0, previous.PrivilegeCount);
    EXPECT(FALSE, AdjustTokenPrivileges(NULL, FALSE, &state, 0, NULL, NULL));
    EXPECT(TRUE, GetTokenInformation(token, TokenElevation, &elevation, sizeof elevation, &required_bytes));
    EXPECT(is_root, elevation.TokenIsElevated);
    EXPECT(FALSE, GetTokenInformation(token, TokenUser, NULL, 0, &required_bytes));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, GetLastError());
    EXPECT(TRUE, required_bytes <= sizeof user && GetTokenInformation(token, TokenUser, user, sizeof user, &required_bytes));
    LPSTR text = NULL;
    char expected[40];
    EXPECT(TRUE, ConvertSidToStringSidA(((TOKEN_USER *)(void *)user)->User.Sid, &text));
    snprintf(expected, sizeof expected, "S-1-22-1-%u", (unsigned)geteuid());
    EXPECT(0, strcmp(text, expected));
    LocalFree(text);
    EXPECT(FALSE, GetTokenInformation(token, TokenPrivileges, NULL, 0, &required_bytes));
    EXPECT(1, is_root ? required_bytes > sizeof state : required_bytes == 4);
    EXPECT(FALSE, GetTokenInformation(token, (TOKEN_INFORMATION_CLASS)99, user, sizeof user, &required_bytes));
    EXPECT(TRUE, CloseHandle(token));
    EXPECT(FALSE, CloseHandle((HANDLE)(ULONG_PTR)77));
}

static void check_libraries(void) {
    HMODULE library = LoadLibraryW(u"C:\\Windows\\System32\\KernelTraceControl.dll");
    union {
        FARPROC address;
        DWORD(WINAPI *get_last_error)(void);
        NTSTATUS(WINAPI *get_version)(PRTL_OSVERSIONINFOW);
    } function;
    EXPECT(1, library != NULL);
    EXPECT(1, GetProcAddress(library, "CreateMergedTraceFile") != NULL);
    function.address = GetProcAddress(library, "GetLastError");
    EXPECT(1, function.get_last_error == GetLastError);
    EXPECT(1, GetProcAddress(library, "NoSuchFunction") == NULL);
    EXPECT(ERROR_PROC_NOT_FOUND, GetLastError());
    EXPECT(TRUE, FreeLibrary(library));
    library = LoadLibrary("ntdll.dll");
    function.address = GetProcAddress(library, "RtlGetVersion");
    OSVERSIONINFOW version;
    version.dwOSVersionInfoSize = sizeof version;
    EXPECT(0, function.get_version(&version));
    EXPECT(10, version.dwMajorVersion);
    EXPECT(1, GetProcAddress(library, (LPCSTR)(ULONG_PTR)7) == NULL);
    EXPECT(TRUE, FreeLibrary(library));
    library = LoadLibraryExA("libm.so.6", NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    EXPECT(1, library != NULL && GetProcAddress(library, "cos") != NULL);
    EXPECT(TRUE, FreeLibrary(library));
    EXPECT(1, LoadLibraryExW(u"/nowhere/none.dll", NULL, 0) == NULL);
    EXPECT(ERROR_MOD_NOT_FOUND, GetLastError());
    EXPECT(1, LoadLibraryExA("libm.so.6", NULL, LOAD_LIBRARY_AS_DATAFILE) == NULL);
    EXPECT(ERROR_NOT_SUPPORTED, GetLastError());
    EXPECT(1, LoadLibraryExA("libm.so.6", NULL, LOAD_LIBRARY_AS_IMAGE_RESOURCE) == NULL);
    EXPECT(1, LoadLibraryA(NULL) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(FALSE, FreeLibrary(NULL));
    EXPECT(1, GetProcAddress(NULL, "GetLastError") == NULL);
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    PVOID state = NULL;
    EXPECT(FALSE, Wow64DisableWow64FsRedirection(&state));
    EXPECT(ERROR_INVALID_FUNCTION, GetLastError());
    EXPECT(FALSE, Wow64RevertWow64FsRedirection(state));
}

static void check_volumes(void) {
    WCHAR name[64] = {7};
    EXPECT(0, GetLogicalDrives());
    EXPECT(0, QueryDosDeviceW(u"C:", name, 64));
    EXPECT(ERROR_FILE_NOT_FOUND, GetLastError());
    EXPECT(7, name[0]);
    EXPECT(1, QueryDosDeviceW(NULL, name, 64));
    EXPECT(0, name[0]);
    EXPECT(0, QueryDosDeviceA(NULL, NULL, 0));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, GetLastError());
    HANDLE volumes = FindFirstVolumeW(name, 64);
    EXPECT(1, volumes == INVALID_HANDLE_VALUE);
    EXPECT(ERROR_NO_MORE_FILES, GetLastError());
    EXPECT(FALSE, FindNextVolumeW(volumes, name, 64));
    EXPECT(FALSE, FindVolumeClose(volumes));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
}

static void check_performance_counter(void) {
    LARGE_INTEGER first, second, frequency;
    struct timespec now;
    EXPECT(TRUE, QueryPerformanceFrequency(&frequency));
    EXPECT(1000000000, frequency.QuadPart);
    EXPECT(TRUE, QueryPerformanceCounter(&first));
    EXPECT(0, clock_gettime(CLOCK_MONOTONIC, &now));
    EXPECT(TRUE, QueryPerformanceCounter(&second));
    LONGLONG between = (LONGLONG)now.tv_sec * 1000000000 + now.tv_nsec;
    EXPECT(1, first.QuadPart <= between && between <= second.QuadPart);
    EXPECT(FALSE, QueryPerformanceCounter(NULL));
    EXPECT(ERROR_NOACCESS, GetLastError());
}

static void check_endpoints(void) {
    const struct in_addr ipv4 = {htonl(0xC0A864C8)};
    struct in6_addr ipv6;
    CHAR text[64];
    WCHAR wide[64];
    ULONG length = sizeof text;
    EXPECT(1, inet_pton(AF_INET6, "fe80::12:34", &ipv6));
    EXPECT(1, RtlIpv4AddressToStringA(&ipv4, text) == text + 15 && strcmp(text, "192.168.100.200") == 0);
    EXPECT(1, RtlIpv6AddressToStringW(&ipv6, wide) == wide + 11 && wide[0] == 'f' && wide[10] == '4' && wide[11] == 0);
    EXPECT(STATUS_SUCCESS, RtlIpv4AddressToStringExA(&ipv4, htons(443), text, &length));
    EXPECT(0, strcmp(text, "192.168.100.200:443"));
    EXPECT(20, length);
    EXPECT(STATUS_SUCCESS, RtlIpv4AddressToStringExA(&ipv4, 0, text, &length));
    EXPECT(0, strcmp(text, "192.168.100.200"));
    length = 64;
    EXPECT(STATUS_SUCCESS, RtlIpv6AddressToStringExA(&ipv6, 3, htons(443), text, &length));
    EXPECT(0, strcmp(text, "[fe80::12:34%3]:443"));
    length = 64;
    EXPECT(STATUS_SUCCESS, RtlIpv6AddressToStringExA(&ipv6, 3, 0, text, &length));
    EXPECT(0, strcmp(text, "fe80::12:34%3"));
    length = 64;
    EXPECT(STATUS_SUCCESS, RtlIpv6AddressToStringExW(&ipv6, 0, htons(443), wide, &length));
    EXPECT(18, length);
    EXPECT(1, wide[0] == '[' && wide[12] == ']' && wide[16] == '3' && wide[17] == 0);
    length = 19;
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlIpv4AddressToStringExA(&ipv4, htons(443), text, &length));
    EXPECT(20, length);
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlIpv4AddressToStringExA(NULL, 0, text, &length));
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlIpv4AddressToStringExA(&ipv4, 0, NULL, &length));
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlIpv6AddressToStringExW(&ipv6, 0, 0, wide, NULL));
}

static void check_times(void) {
    /* A leap day, and the first moment of FILETIME. */
    SYSTEMTIME leap_day = {2024, 2, 0, 29, 23, 59, 58, 999}, parts;
    FILETIME time = {0, 0};
    EXPECT(TRUE, FileTimeToSystemTime(&time, &parts));
    EXPECT(1, parts.wYear == 1601 && parts.wMonth == 1 && parts.wDay == 1 && parts.wDayOfWeek == 1 && parts.wHour == 0);
    EXPECT(TRUE, SystemTimeToFileTime(&leap_day, &time));
    EXPECT(1, ((ULONGLONG)time.dwHighDateTime << 32 | time.dwLowDateTime) == 116444736000000000ull + 17092511989990000ull);
    EXPECT(TRUE, FileTimeToSystemTime(&time, &parts));
    EXPECT(1, parts.wYear == 2024 && parts.wMonth == 2 && parts.wDay == 29 && parts.wDayOfWeek == 4);
    EXPECT(1, parts.wHour == 23 && parts.wMinute == 59 && parts.wSecond == 58 && parts.wMilliseconds == 999);
    leap_day.wYear = 2023;
    EXPECT(FALSE, SystemTimeToFileTime(&leap_day, &time));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    time.dwHighDateTime = 0x80000000u;
    EXPECT(FALSE, FileTimeToSystemTime(&time, &parts));
    EXPECT(FALSE, FileTimeToSystemTime(NULL, &parts));
}

static void check_heap(void) {
    unsigned char *memory = (unsigned char *)HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, 24);
    EXPECT(1, memory != NULL && memory[0] == 0 && memory[23] == 0);
    EXPECT(TRUE, HeapFree(GetProcessHeap(), 0, memory));
    EXPECT(FALSE, HeapFree(GetProcessHeap(), 0, &memory));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(TRUE, HeapFree(GetProcessHeap(), 0, NULL));
    EXPECT(1, HeapAlloc(NULL, 0, 24) == NULL);
    LPWSTR text = NULL;
    EXPECT(1, FormatMessageW(FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, 5, 0,
                             (LPWSTR)(void *)&text, 0, NULL) > 0);
    EXPECT(TRUE, HeapFree(GetProcessHeap(), 0, text));
}

static void check_com(void) {
    GUID class_id = {1, 2, 3, {4}};
    void *object = &class_id;
    EXPECT(S_OK, CoInitializeEx(NULL, COINIT_MULTITHREADED));
    EXPECT(S_FALSE, CoInitializeEx(NULL, COINIT_MULTITHREADED));
    CoUninitialize();
    CoUninitialize();
    EXPECT(S_OK, CoInitializeEx(NULL, COINIT_MULTITHREADED));
    CoUninitialize();
    EXPECT(E_INVALIDARG, CoInitializeEx(object, COINIT_MULTITHREADED));
#ifdef __cplusplus
    EXPECT(REGDB_E_CLASSNOTREG, CoCreateInstance(class_id, NULL, CLSCTX_ALL, class_id, &object));
#else
    EXPECT(REGDB_E_CLASSNOTREG, CoCreateInstance(&class_id, NULL, CLSCTX_ALL, &class_id, &object));
#endif
    EXPECT(1, object == NULL);

    BSTR text = SysAllocString(u"four");
    EXPECT(1, text[0] == 'f' && text[3] == 'r' && text[4] == 0);
    EXPECT(4, SysStringLen(text));
    EXPECT(8, SysStringByteLen(text));
    VARIANT variant;
    EXPECT(24, sizeof variant);
    VariantInit(&variant);
    EXPECT(VT_EMPTY, variant.vt);
    variant.vt = VT_BSTR;
    variant.bstrVal = text;
    EXPECT(S_OK, VariantClear(&variant));
    EXPECT(VT_EMPTY, variant.vt);
    variant.vt = VT_UI4;
    variant.ulVal = 7;
    EXPECT(S_OK, VariantClear(&variant));
    variant.vt = 13;
    EXPECT(DISP_E_BADVARTYPE, VariantClear(&variant));
    EXPECT(E_INVALIDARG, VariantClear(NULL));
    text = SysAllocStringLen(NULL, 3);
    EXPECT(1, SysStringLen(text) == 3 && text[0] == 0 && text[3] == 0);
    SysFreeString(text);
    SysFreeString(NULL);
    EXPECT(0, SysStringLen(NULL));
    EXPECT(1, SysAllocString(NULL) == NULL);
}

static void check_compression(void) {
    /* LZNT1: chunk header, flags, 'a', a match of five bytes, 'b'. */
    UCHAR stream[] = {0x04, 0xB0, 0x02, 'a', 0x02, 0x00, 'b'}, text[64];
    ULONG size = 0;
    EXPECT(STATUS_SUCCESS, RtlDecompressBuffer(COMPRESSION_FORMAT_LZNT1 | COMPRESSION_ENGINE_MAXIMUM, text, sizeof text, stream,
                                               sizeof stream, &size));
    EXPECT(7, size);
    EXPECT(0, memcmp(text, "aaaaaab", 7));
    EXPECT((ULONG)STATUS_BAD_COMPRESSION_BUFFER, (ULONG)RtlDecompressBuffer(COMPRESSION_FORMAT_LZNT1, text, 3, stream, sizeof stream, &size));
    EXPECT((ULONG)STATUS_BAD_COMPRESSION_BUFFER, (ULONG)RtlDecompressBuffer(COMPRESSION_FORMAT_LZNT1, text, sizeof text, text, 1, &size));
    EXPECT((ULONG)STATUS_UNSUPPORTED_COMPRESSION, (ULONG)RtlDecompressBuffer(9, text, sizeof text, stream, sizeof stream, &size));
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlDecompressBuffer(COMPRESSION_FORMAT_NONE, text, sizeof text, stream, sizeof stream, &size));
    EXPECT((ULONG)STATUS_INVALID_PARAMETER, (ULONG)RtlDecompressBuffer(COMPRESSION_FORMAT_LZNT1, NULL, 0, stream, sizeof stream, &size));
}

static void check_system_information(void) {
    EVENT_TRACE_GROUPMASK_INFORMATION masks;
    ULONG length = 0;
    memset(&masks, 0, sizeof masks);
    EXPECT(48, sizeof masks);
    EXPECT((ULONG)STATUS_INVALID_INFO_CLASS, (ULONG)NtQuerySystemInformation(SystemBasicInformation, &masks, sizeof masks, &length));
    EXPECT((ULONG)STATUS_NOT_IMPLEMENTED, (ULONG)NtQuerySystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks, &length));
    masks.EventTraceInformationClass = EventTraceGroupMaskInformation;
    masks.TraceHandle = 0x7FFF00000003ull;
    EXPECT((ULONG)STATUS_INFO_LENGTH_MISMATCH, (ULONG)NtQuerySystemInformation(SystemPerformanceTraceInformation, &masks, 47, &length));
    EXPECT(sizeof masks, length);
    EXPECT((ULONG)STATUS_INFO_LENGTH_MISMATCH, (ULONG)NtSetSystemInformation(SystemPerformanceTraceInformation, &masks, 3));
    EXPECT((ULONG)STATUS_ACCESS_VIOLATION, (ULONG)NtSetSystemInformation(SystemPerformanceTraceInformation, NULL, sizeof masks));
    EXPECT((ULONG)STATUS_WMI_INSTANCE_NOT_FOUND, (ULONG)NtQuerySystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks, NULL));
    EXPECT((ULONG)STATUS_WMI_INSTANCE_NOT_FOUND, (ULONG)NtSetSystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks));
    EXPECT((ULONG)STATUS_WMI_INSTANCE_NOT_FOUND, (ULONG)ZwSetSystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks));
}

int main(void) {
    check_libraries();
    check_volumes();
    check_performance_counter();
    check_endpoints();
    check_times();
    check_heap();
    check_com();
    check_compression();
    check_system_information();
    check_intrinsics();
    check_types();
    check_guids_and_sids();
    check_versions();
    check_well_known_sids();
    check_version_query();
    check_command_line();
    check_files();
    check_addresses();
    check_safe_integers();
    check_privileges();
    return report_rows();
}
