/* synchapi.h: events, mutexes, semaphores and waits; critical sections, slim locks, condition
 * variables and one-time initialization.
 *
 * Objects with a name are shared only within the process. No function is alertable: there are no
 * asynchronous procedure calls here, so the Ex functions never return WAIT_IO_COMPLETION.
 */
#ifndef TRACEWEIR_SYNCHAPI_H
#define TRACEWEIR_SYNCHAPI_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"

#ifndef TRACEWEIR_NO_WIN32_CALLS

/* Results of waits. */
#define WAIT_OBJECT_0 0x00000000u
#define WAIT_ABANDONED 0x00000080u
#define WAIT_ABANDONED_0 0x00000080u
#define WAIT_IO_COMPLETION 0x000000C0u
#define WAIT_TIMEOUT 258u
#define WAIT_FAILED 0xFFFFFFFFu
#define MAXIMUM_WAIT_OBJECTS 64

/* Rights, which have no effect: every handle has all of them. */
#define EVENT_MODIFY_STATE 0x0002
#define EVENT_ALL_ACCESS 0x001F0003
#define MUTEX_MODIFY_STATE 0x0001
#define MUTEX_ALL_ACCESS 0x001F0001
#define SEMAPHORE_MODIFY_STATE 0x0002
#define SEMAPHORE_ALL_ACCESS 0x001F0003

#define CREATE_EVENT_MANUAL_RESET 0x00000001
#define CREATE_EVENT_INITIAL_SET 0x00000002
#define CREATE_MUTEX_INITIAL_OWNER 0x00000001

/* A critical section. Its members are private, as on Windows. */
typedef struct _RTL_CRITICAL_SECTION {
    struct _RTL_CRITICAL_SECTION_DEBUG *DebugInfo;
    LONG LockCount;
    LONG RecursionCount;
    HANDLE OwningThread;
    HANDLE LockSemaphore;
    ULONG_PTR SpinCount;
} RTL_CRITICAL_SECTION, *PRTL_CRITICAL_SECTION, CRITICAL_SECTION, *PCRITICAL_SECTION, *LPCRITICAL_SECTION;

#define CRITICAL_SECTION_NO_DEBUG_INFO 0x01000000

typedef struct _RTL_SRWLOCK {
    PVOID Ptr;
} RTL_SRWLOCK, *PRTL_SRWLOCK, SRWLOCK, *PSRWLOCK;

typedef struct _RTL_CONDITION_VARIABLE {
    PVOID Ptr;
} RTL_CONDITION_VARIABLE, *PRTL_CONDITION_VARIABLE, CONDITION_VARIABLE, *PCONDITION_VARIABLE;

typedef union _RTL_RUN_ONCE {
    PVOID Ptr;
} RTL_RUN_ONCE, *PRTL_RUN_ONCE, INIT_ONCE, *PINIT_ONCE, *LPINIT_ONCE;

#define RTL_SRWLOCK_INIT {0}
#define SRWLOCK_INIT RTL_SRWLOCK_INIT
#define RTL_CONDITION_VARIABLE_INIT {0}
#define CONDITION_VARIABLE_INIT RTL_CONDITION_VARIABLE_INIT
#define CONDITION_VARIABLE_LOCKMODE_SHARED 0x1
#define RTL_RUN_ONCE_INIT {0}
#define INIT_ONCE_STATIC_INIT RTL_RUN_ONCE_INIT
#define INIT_ONCE_CHECK_ONLY 0x1u
#define INIT_ONCE_ASYNC 0x2u
#define INIT_ONCE_INIT_FAILED 0x4u
#define INIT_ONCE_CTX_RESERVED_BITS 2

typedef BOOL(WINAPI *PINIT_ONCE_FN)(PINIT_ONCE InitOnce, PVOID Parameter, PVOID *Context);

#ifdef __cplusplus
extern "C" {
#endif

/* Create functions return NULL on failure. The last error is ERROR_ALREADY_EXISTS if they return an
 * object that has the name already, else 0. CloseHandle closes the handles. */
HANDLE WINAPI CreateEventA(_In_opt_ LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset, BOOL bInitialState,
                           _In_opt_ LPCSTR lpName);
HANDLE WINAPI CreateEventW(_In_opt_ LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset, BOOL bInitialState,
                           _In_opt_ LPCWSTR lpName);
HANDLE WINAPI CreateEventExA(_In_opt_ LPSECURITY_ATTRIBUTES lpEventAttributes, _In_opt_ LPCSTR lpName, DWORD dwFlags,
                             DWORD dwDesiredAccess);
HANDLE WINAPI CreateEventExW(_In_opt_ LPSECURITY_ATTRIBUTES lpEventAttributes, _In_opt_ LPCWSTR lpName, DWORD dwFlags,
                             DWORD dwDesiredAccess);
HANDLE WINAPI OpenEventA(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCSTR lpName);
HANDLE WINAPI OpenEventW(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCWSTR lpName);
BOOL WINAPI SetEvent(HANDLE hEvent);
BOOL WINAPI ResetEvent(HANDLE hEvent);

HANDLE WINAPI CreateMutexA(_In_opt_ LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, _In_opt_ LPCSTR lpName);
HANDLE WINAPI CreateMutexW(_In_opt_ LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, _In_opt_ LPCWSTR lpName);
HANDLE WINAPI CreateMutexExA(_In_opt_ LPSECURITY_ATTRIBUTES lpMutexAttributes, _In_opt_ LPCSTR lpName, DWORD dwFlags,
                             DWORD dwDesiredAccess);
HANDLE WINAPI CreateMutexExW(_In_opt_ LPSECURITY_ATTRIBUTES lpMutexAttributes, _In_opt_ LPCWSTR lpName, DWORD dwFlags,
                             DWORD dwDesiredAccess);
HANDLE WINAPI OpenMutexA(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCSTR lpName);
HANDLE WINAPI OpenMutexW(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCWSTR lpName);
BOOL WINAPI ReleaseMutex(HANDLE hMutex);

HANDLE WINAPI CreateSemaphoreA(_In_opt_ LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount, LONG lMaximumCount,
                               _In_opt_ LPCSTR lpName);
HANDLE WINAPI CreateSemaphoreW(_In_opt_ LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount, LONG lMaximumCount,
                               _In_opt_ LPCWSTR lpName);
HANDLE WINAPI CreateSemaphoreExA(_In_opt_ LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount, LONG lMaximumCount,
                                 _In_opt_ LPCSTR lpName, DWORD dwFlags, DWORD dwDesiredAccess);
HANDLE WINAPI CreateSemaphoreExW(_In_opt_ LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount, LONG lMaximumCount,
                                 _In_opt_ LPCWSTR lpName, DWORD dwFlags, DWORD dwDesiredAccess);
HANDLE WINAPI OpenSemaphoreA(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCSTR lpName);
HANDLE WINAPI OpenSemaphoreW(DWORD dwDesiredAccess, BOOL bInheritHandle, _In_ LPCWSTR lpName);
BOOL WINAPI ReleaseSemaphore(HANDLE hSemaphore, LONG lReleaseCount, _Out_opt_ LPLONG lpPreviousCount);

/* Waits for events, mutexes, semaphores and threads. With bWaitAll, the states of the objects change
 * only at the moment when all are signaled. */
DWORD WINAPI WaitForSingleObject(HANDLE hHandle, DWORD dwMilliseconds);
DWORD WINAPI WaitForSingleObjectEx(HANDLE hHandle, DWORD dwMilliseconds, BOOL bAlertable);
DWORD WINAPI WaitForMultipleObjects(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll, DWORD dwMilliseconds);
DWORD WINAPI WaitForMultipleObjectsEx(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll, DWORD dwMilliseconds, BOOL bAlertable);

#ifndef Sleep
void WINAPI Sleep(DWORD dwMilliseconds);
#endif
DWORD WINAPI SleepEx(DWORD dwMilliseconds, BOOL bAlertable);

void WINAPI InitializeCriticalSection(_Out_ LPCRITICAL_SECTION lpCriticalSection);
BOOL WINAPI InitializeCriticalSectionAndSpinCount(_Out_ LPCRITICAL_SECTION lpCriticalSection, DWORD dwSpinCount);
BOOL WINAPI InitializeCriticalSectionEx(_Out_ LPCRITICAL_SECTION lpCriticalSection, DWORD dwSpinCount, DWORD Flags);
DWORD WINAPI SetCriticalSectionSpinCount(_Inout_ LPCRITICAL_SECTION lpCriticalSection, DWORD dwSpinCount);
void WINAPI EnterCriticalSection(_Inout_ LPCRITICAL_SECTION lpCriticalSection);
BOOL WINAPI TryEnterCriticalSection(_Inout_ LPCRITICAL_SECTION lpCriticalSection);
void WINAPI LeaveCriticalSection(_Inout_ LPCRITICAL_SECTION lpCriticalSection);
void WINAPI DeleteCriticalSection(_Inout_ LPCRITICAL_SECTION lpCriticalSection);

void WINAPI InitializeSRWLock(_Out_ PSRWLOCK SRWLock);
void WINAPI AcquireSRWLockExclusive(_Inout_ PSRWLOCK SRWLock);
void WINAPI AcquireSRWLockShared(_Inout_ PSRWLOCK SRWLock);
BOOLEAN WINAPI TryAcquireSRWLockExclusive(_Inout_ PSRWLOCK SRWLock);
BOOLEAN WINAPI TryAcquireSRWLockShared(_Inout_ PSRWLOCK SRWLock);
void WINAPI ReleaseSRWLockExclusive(_Inout_ PSRWLOCK SRWLock);
void WINAPI ReleaseSRWLockShared(_Inout_ PSRWLOCK SRWLock);

/* On a timeout, the functions that sleep return FALSE and set ERROR_TIMEOUT. They may wake without
 * a reason, as on Windows: check the condition again. */
void WINAPI InitializeConditionVariable(_Out_ PCONDITION_VARIABLE ConditionVariable);
BOOL WINAPI SleepConditionVariableCS(_Inout_ PCONDITION_VARIABLE ConditionVariable, _Inout_ PCRITICAL_SECTION CriticalSection,
                                     DWORD dwMilliseconds);
BOOL WINAPI SleepConditionVariableSRW(_Inout_ PCONDITION_VARIABLE ConditionVariable, _Inout_ PSRWLOCK SRWLock, DWORD dwMilliseconds,
                                      ULONG Flags);
void WINAPI WakeConditionVariable(_Inout_ PCONDITION_VARIABLE ConditionVariable);
void WINAPI WakeAllConditionVariable(_Inout_ PCONDITION_VARIABLE ConditionVariable);

void WINAPI InitOnceInitialize(_Out_ PINIT_ONCE InitOnce);
BOOL WINAPI InitOnceExecuteOnce(_Inout_ PINIT_ONCE InitOnce, PINIT_ONCE_FN InitFn, PVOID Parameter, LPVOID *Context);
BOOL WINAPI InitOnceBeginInitialize(_Inout_ LPINIT_ONCE lpInitOnce, DWORD dwFlags, _Out_ PBOOL fPending, LPVOID *lpContext);
BOOL WINAPI InitOnceComplete(_Inout_ LPINIT_ONCE lpInitOnce, DWORD dwFlags, _In_opt_ LPVOID lpContext);

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define CreateEvent CreateEventW
#define CreateEventEx CreateEventExW
#define OpenEvent OpenEventW
#define CreateMutex CreateMutexW
#define CreateMutexEx CreateMutexExW
#define OpenMutex OpenMutexW
#define CreateSemaphore CreateSemaphoreW
#define CreateSemaphoreEx CreateSemaphoreExW
#define OpenSemaphore OpenSemaphoreW
#else
#define CreateEvent CreateEventA
#define CreateEventEx CreateEventExA
#define OpenEvent OpenEventA
#define CreateMutex CreateMutexA
#define CreateMutexEx CreateMutexExA
#define OpenMutex OpenMutexA
#define CreateSemaphore CreateSemaphoreA
#define CreateSemaphoreEx CreateSemaphoreExA
#define OpenSemaphore OpenSemaphoreA
#endif

#endif

#endif /* TRACEWEIR_SYNCHAPI_H */
