/* Critical sections, slim locks, condition variables, one-time initialization, storage of threads,
 * and Interlocked functions. */
#include <stddef.h>
#include <windows.h>

#include "threads.h"

static void check_layouts(void) {
    EXPECT(40, sizeof(CRITICAL_SECTION));
    EXPECT(8, offsetof(CRITICAL_SECTION, LockCount));
    EXPECT(12, offsetof(CRITICAL_SECTION, RecursionCount));
    EXPECT(16, offsetof(CRITICAL_SECTION, OwningThread));
    EXPECT(24, offsetof(CRITICAL_SECTION, LockSemaphore));
    EXPECT(32, offsetof(CRITICAL_SECTION, SpinCount));
    EXPECT(8, sizeof(SRWLOCK));
    EXPECT(8, sizeof(CONDITION_VARIABLE));
    EXPECT(8, sizeof(INIT_ONCE));
}

/* Plain counters that only their lock protects: ThreadSanitizer and the sum find a lock that does
 * not lock. */
static CRITICAL_SECTION section;
static SRWLOCK slim = SRWLOCK_INIT;
static HANDLE mutex;
static LONG guarded[3];

static DWORD WINAPI count_in_locks(LPVOID parameter) {
    (void)parameter;
    for (int i = 0; i < ROUNDS; i++) {
        EnterCriticalSection(&section);
        EnterCriticalSection(&section);
        guarded[0]++;
        LeaveCriticalSection(&section);
        LeaveCriticalSection(&section);
        if (i % 4 == 0) {
            AcquireSRWLockExclusive(&slim);
            guarded[1]++;
            ReleaseSRWLockExclusive(&slim);
        } else {
            AcquireSRWLockShared(&slim);
            LONG seen = guarded[1];
            ReleaseSRWLockShared(&slim);
            if (seen < 0)
                return 1;
        }
        if (WaitForSingleObject(mutex, LONG_TIME) != WAIT_OBJECT_0)
            return 2;
        guarded[2]++;
        ReleaseMutex(mutex);
    }
    return 0;
}

static DWORD WINAPI try_locks(LPVOID parameter) {
    (void)parameter;
    if (TryEnterCriticalSection(&section) || TryAcquireSRWLockExclusive(&slim))
        return 1;
    if (!TryAcquireSRWLockShared(&slim))
        return 2;
    ReleaseSRWLockShared(&slim);
    LeaveCriticalSection(&section); /* It belongs to another thread: nothing happens. */
    return 0;
}

static void check_locks(void) {
    HANDLE threads[4];
    EXPECT(TRUE, InitializeCriticalSectionAndSpinCount(&section, 400));
    EXPECT(400, SetCriticalSectionSpinCount(&section, 10));
    mutex = CreateMutexA(NULL, FALSE, NULL);
    for (int i = 0; i < 4; i++)
        threads[i] = start(count_in_locks, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i], 0);
    EXPECT(4 * ROUNDS, guarded[0]);
    EXPECT(4 * ((ROUNDS + 3) / 4), guarded[1]);
    EXPECT(4 * ROUNDS, guarded[2]);
    EXPECT(TRUE, CloseHandle(mutex));

    EXPECT(TRUE, TryEnterCriticalSection(&section));
    EXPECT(TRUE, TryAcquireSRWLockShared(&slim));
    join(start(try_locks, NULL), 0);
    EXPECT(1, section.RecursionCount);
    ReleaseSRWLockShared(&slim);
    LeaveCriticalSection(&section);
    EXPECT(-1, section.LockCount);
    EXPECT(TRUE, TryAcquireSRWLockExclusive(&slim));
    EXPECT(FALSE, TryAcquireSRWLockShared(&slim));
    ReleaseSRWLockExclusive(&slim);
    DeleteCriticalSection(&section);
}

/* A queue of one element. */
static CONDITION_VARIABLE is_full = CONDITION_VARIABLE_INIT, is_empty;
static int element;

static DWORD WINAPI consume(LPVOID uses_slim_lock) {
    DWORD sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (uses_slim_lock)
            AcquireSRWLockExclusive(&slim);
        else
            EnterCriticalSection(&section);
        while (element == 0) {
            BOOL is_woken = uses_slim_lock ? SleepConditionVariableSRW(&is_full, &slim, LONG_TIME, 0)
                                           : SleepConditionVariableCS(&is_full, &section, LONG_TIME);
            if (!is_woken)
                return 0;
        }
        sum += (DWORD)element;
        element = 0;
        if (uses_slim_lock)
            ReleaseSRWLockExclusive(&slim);
        else
            LeaveCriticalSection(&section);
        WakeConditionVariable(&is_empty);
    }
    return sum;
}

static void check_condition_variables(void) {
    InitializeConditionVariable(&is_empty);
    InitializeCriticalSection(&section);
    HANDLE consumer = start(consume, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        EnterCriticalSection(&section);
        while (element != 0)
            EXPECT(TRUE, SleepConditionVariableCS(&is_empty, &section, INFINITE));
        element = 3;
        LeaveCriticalSection(&section);
        WakeAllConditionVariable(&is_full);
    }
    join(consumer, 3 * ROUNDS);
    consumer = start(consume, &slim);
    for (int i = 0; i < ROUNDS; i++) {
        AcquireSRWLockExclusive(&slim);
        while (element != 0)
            EXPECT(TRUE, SleepConditionVariableSRW(&is_empty, &slim, INFINITE, 0));
        element = 2;
        ReleaseSRWLockExclusive(&slim);
        WakeAllConditionVariable(&is_full);
    }
    join(consumer, 2 * ROUNDS);
    AcquireSRWLockShared(&slim);
    EXPECT(FALSE, SleepConditionVariableSRW(&is_empty, &slim, 5, CONDITION_VARIABLE_LOCKMODE_SHARED));
    EXPECT(ERROR_TIMEOUT, GetLastError());
    ReleaseSRWLockShared(&slim);
    EnterCriticalSection(&section);
    EXPECT(FALSE, SleepConditionVariableCS(&is_empty, &section, 0));
    EXPECT(ERROR_TIMEOUT, GetLastError());
    LeaveCriticalSection(&section);
    EXPECT(FALSE, SleepConditionVariableCS(NULL, &section, 0));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
}

static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
static LONG initializations;
static DWORD WINAPI initialize_in_thread(LPVOID parameter);

static BOOL WINAPI initialize(PINIT_ONCE owner, PVOID parameter, PVOID *context) {
    (void)owner;
    usleep(1000);
    initializations++;
    *context = parameter;
    return initializations > 1;
}

static DWORD WINAPI initialize_in_thread(LPVOID parameter) {
    PVOID context = NULL;
    while (!InitOnceExecuteOnce(&once, initialize, parameter, &context)) {
    }
    return context == parameter ? 0 : 1;
}

static void check_one_time_initialization(void) {
    HANDLE threads[4];
    INIT_ONCE other;
    BOOL is_pending = FALSE;
    PVOID context = NULL;
    for (int i = 0; i < 4; i++)
        threads[i] = start(initialize_in_thread, &initializations);
    for (int i = 0; i < 4; i++)
        join(threads[i], 0);
    /* The first attempt failed, the second succeeded. */
    EXPECT(2, initializations);
    EXPECT(TRUE, InitOnceBeginInitialize(&once, INIT_ONCE_CHECK_ONLY, &is_pending, &context));
    EXPECT(1, !is_pending && context == &initializations);

    InitOnceInitialize(&other);
    EXPECT(FALSE, InitOnceBeginInitialize(&other, INIT_ONCE_CHECK_ONLY, &is_pending, &context));
    EXPECT(ERROR_GEN_FAILURE, GetLastError());
    EXPECT(TRUE, InitOnceBeginInitialize(&other, 0, &is_pending, &context));
    EXPECT(TRUE, is_pending);
    EXPECT(TRUE, InitOnceComplete(&other, INIT_ONCE_INIT_FAILED, NULL));
    EXPECT(TRUE, InitOnceBeginInitialize(&other, INIT_ONCE_ASYNC, &is_pending, NULL));
    EXPECT(TRUE, is_pending);
    EXPECT(FALSE, InitOnceBeginInitialize(&other, 0, &is_pending, NULL));
    EXPECT(FALSE, InitOnceComplete(&other, INIT_ONCE_ASYNC, (PVOID)(ULONG_PTR)3));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(TRUE, InitOnceComplete(&other, INIT_ONCE_ASYNC, &other));
    EXPECT(FALSE, InitOnceComplete(&other, INIT_ONCE_ASYNC, &once));
    EXPECT(TRUE, InitOnceBeginInitialize(&other, 0, &is_pending, &context));
    EXPECT(1, !is_pending && context == &other);
    EXPECT(FALSE, InitOnceExecuteOnce(&once, NULL, NULL, NULL));
    EXPECT(FALSE, InitOnceExecuteOnce(NULL, initialize, NULL, NULL));
}

static DWORD storage;

static DWORD WINAPI use_storage(LPVOID parameter) {
    if (TlsGetValue(storage) != NULL || GetLastError() != ERROR_SUCCESS || !TlsSetValue(storage, parameter))
        return 1;
    Sleep(1);
    return TlsGetValue(storage) == parameter ? 0 : 2;
}

static void check_storage(void) {
    HANDLE threads[4];
    DWORD indexes[1088], count = 0;
    storage = TlsAlloc();
    EXPECT(TRUE, TlsSetValue(storage, &storage));
    for (int i = 0; i < 4; i++)
        threads[i] = start(use_storage, &threads[i]);
    for (int i = 0; i < 4; i++)
        join(threads[i], 0);
    SetLastError(5);
    EXPECT(1, TlsGetValue(storage) == &storage && GetLastError() == ERROR_SUCCESS);
    EXPECT(TRUE, TlsFree(storage));
    EXPECT(FALSE, TlsFree(storage));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(FALSE, TlsSetValue(storage, &storage));
    EXPECT(1, TlsGetValue(TLS_OUT_OF_INDEXES) == NULL && GetLastError() == ERROR_INVALID_PARAMETER);
    /* An index that is used again has no value. */
    EXPECT(storage, TlsAlloc());
    EXPECT(1, TlsGetValue(storage) == NULL && GetLastError() == ERROR_SUCCESS);
    while (count < ARRAYSIZE(indexes) && (indexes[count] = TlsAlloc()) != TLS_OUT_OF_INDEXES)
        count++;
    EXPECT(1, count >= TLS_MINIMUM_AVAILABLE && count < ARRAYSIZE(indexes));
    while (count-- > 0)
        EXPECT(TRUE, TlsFree(indexes[count]));
    EXPECT(TRUE, TlsFree(storage));
}

static void check_interlocked(void) {
    volatile LONG number = 5;
    volatile LONG64 wide = 1;
    volatile SHORT narrow = -1;
    PVOID volatile pointer = NULL;
    EXPECT(6, InterlockedIncrement(&number));
    EXPECT(5, InterlockedDecrement(&number));
    EXPECT(5, InterlockedExchange(&number, 8));
    EXPECT(8, InterlockedExchangeAdd(&number, 2));
    EXPECT(7, InterlockedAdd(&number, -3));
    EXPECT(7, InterlockedCompareExchange(&number, 1, 2));
    EXPECT(7, InterlockedCompareExchange(&number, 1, 7));
    EXPECT(1, InterlockedOr(&number, 6));
    EXPECT(7, InterlockedAnd(&number, 3));
    EXPECT(3, InterlockedXor(&number, 1));
    EXPECT(2, InterlockedExchangeNoFence(&number, 0));
    EXPECT(0, InterlockedBitTestAndSet(&number, 31));
    EXPECT(1, InterlockedBitTestAndSet(&number, 31));
    EXPECT(1, InterlockedBitTestAndReset(&number, 31));
    EXPECT(0, number);
    EXPECT(2, InterlockedIncrement64(&wide));
    EXPECT(2, InterlockedExchangeAdd64(&wide, 1LL << 40));
    EXPECT(2 + (1LL << 40), InterlockedCompareExchange64(&wide, 0, 2 + (1LL << 40)));
    EXPECT(0, InterlockedIncrement16(&narrow));
    EXPECT(1, InterlockedCompareExchangePointer(&pointer, (PVOID)&number, NULL) == NULL);
    EXPECT(1, InterlockedExchangePointer(&pointer, NULL) == (PVOID)&number);
    EXPECT(1, _InterlockedIncrement(&number));
    MemoryBarrier();
    YieldProcessor();
}

int main(void) {
    check_layouts();
    check_locks();
    check_condition_variables();
    check_one_time_initialization();
    check_storage();
    check_interlocked();
    return report_rows();
}
