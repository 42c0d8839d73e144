/* Threads, events, mutexes, semaphores and waits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* For gettid. */
#endif
#include <errno.h>
#include <process.h>
#include <windows.h>

#include "threads.h"

static DWORD WINAPI return_parameter(LPVOID parameter) {
    return PtrToUlong(parameter);
}

/* In C++, the end of a thread runs destructors. */
static volatile LONG left_scopes;
#ifdef __cplusplus
struct Scope {
    ~Scope() { InterlockedIncrement(&left_scopes); }
};
#define ENTER_SCOPE() Scope scope
#else
#define ENTER_SCOPE() InterlockedIncrement(&left_scopes)
#endif

/* Ends the thread if the depth is not negative. */
static int leave_deep(int depth) {
    if (depth == 0)
        ExitThread(77);
    return depth < 0 ? depth : leave_deep(depth - 1) + 1;
}

static DWORD WINAPI exit_in_the_middle(LPVOID parameter) {
    (void)parameter;
    ENTER_SCOPE();
    return (DWORD)leave_deep(3);
}

static unsigned __stdcall end_as_in_c(void *parameter) {
    _endthreadex(*(unsigned *)parameter);
    return 1;
}

static DWORD own_id;

static DWORD WINAPI store_id(LPVOID event) {
    own_id = GetCurrentThreadId();
    return (DWORD)WaitForSingleObject((HANDLE)event, LONG_TIME);
}

static void check_threads(void) {
    DWORD id = 0, code = 0;
    join(start(return_parameter, ULongToPtr(41)), 41);
    join(start(exit_in_the_middle, NULL), 77);
    EXPECT(1, left_scopes);
    unsigned value = 9, c_id = 0;
    HANDLE thread = (HANDLE)_beginthreadex(NULL, 0, end_as_in_c, &value, 0, &c_id);
    EXPECT(1, c_id != 0 && c_id != GetCurrentThreadId());
    join(thread, 9);

    /* A thread that runs has no exit code, and its handle may be closed. */
    HANDLE event = make_event(TRUE, FALSE);
    thread = CreateThread(NULL, 4096, store_id, event, STACK_SIZE_PARAM_IS_A_RESERVATION, &id);
    EXPECT(TRUE, GetExitCodeThread(thread, &code));
    EXPECT(STILL_ACTIVE, code);
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(thread, 0));
    EXPECT(id, GetThreadId(thread));
    HANDLE second = NULL;
    EXPECT(TRUE, DuplicateHandle(GetCurrentProcess(), thread, GetCurrentProcess(), &second, 0, FALSE, DUPLICATE_SAME_ACCESS));
    EXPECT(TRUE, CloseHandle(thread));
    EXPECT(TRUE, SetEvent(event));
    join(second, WAIT_OBJECT_0);
    EXPECT(id, own_id);
    EXPECT(TRUE, CloseHandle(event));

    EXPECT(1, CreateThread(NULL, 0, NULL, NULL, 0, NULL) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(1, CreateThread(NULL, 0, return_parameter, NULL, 0x1000, NULL) == NULL);
    errno = 0;
    EXPECT(0, _beginthreadex(NULL, 0, NULL, NULL, 0, NULL));
    EXPECT(EINVAL, errno);
    EXPECT(getpid(), GetCurrentProcessId());
    EXPECT(gettid(), GetCurrentThreadId());
}

static volatile LONG started;

static DWORD WINAPI count_start(LPVOID parameter) {
    (void)parameter;
    return (DWORD)InterlockedIncrement(&started);
}

static void check_suspended_threads(void) {
    DWORD id = 0;
    HANDLE thread = CreateThread(NULL, 0, count_start, NULL, CREATE_SUSPENDED, &id);
    EXPECT(1, thread != NULL && id != 0);
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(thread, 20));
    EXPECT(0, InterlockedCompareExchange(&started, 0, 0));
    EXPECT(1, ResumeThread(thread));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(thread, LONG_TIME));
    EXPECT(0, ResumeThread(thread));
    join(thread, 1);
    EXPECT((DWORD)-1, ResumeThread(thread));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
}

/* The handles of the calling thread and process, which need no closing. */
static void check_constant_handles(void) {
    DWORD code = 0;
    HANDLE real = NULL;
    EXPECT(TRUE, GetExitCodeThread(GetCurrentThread(), &code));
    EXPECT(STILL_ACTIVE, code);
    EXPECT(GetCurrentThreadId(), GetThreadId(GetCurrentThread()));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(GetCurrentThread(), 1));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(GetCurrentProcess(), 1));
    EXPECT(TRUE, CloseHandle(GetCurrentThread()));
    EXPECT(TRUE, CloseHandle(GetCurrentProcess()));
    EXPECT(TRUE, DuplicateHandle(GetCurrentProcess(), GetCurrentThread(), GetCurrentProcess(), &real, 0, FALSE, DUPLICATE_SAME_ACCESS));
    EXPECT(GetCurrentThreadId(), GetThreadId(real));
    EXPECT(TRUE, CloseHandle(real));
}

static DWORD WINAPI give_own_handle(LPVOID parameter) {
    HANDLE *handle = (HANDLE *)parameter;
    DuplicateHandle(GetCurrentProcess(), GetCurrentThread(), GetCurrentProcess(), handle, 0, FALSE, DUPLICATE_SAME_ACCESS);
    return 5;
}

static void check_duplicates(void) {
    HANDLE process = GetCurrentProcess(), own = NULL, copy = NULL, event = make_event(TRUE, FALSE);
    join(start(give_own_handle, &own), 5);
    join(own, 5);
    EXPECT(TRUE, DuplicateHandle(process, event, process, &copy, 0, FALSE, DUPLICATE_CLOSE_SOURCE | DUPLICATE_SAME_ACCESS));
    EXPECT(FALSE, SetEvent(event));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(TRUE, SetEvent(copy));
    EXPECT(FALSE, DuplicateHandle(process, event, process, &own, 0, FALSE, DUPLICATE_SAME_ACCESS));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(FALSE, DuplicateHandle(copy, copy, process, &own, 0, FALSE, DUPLICATE_SAME_ACCESS));
    EXPECT(FALSE, DuplicateHandle(process, copy, process, NULL, 0, FALSE, DUPLICATE_SAME_ACCESS));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(FALSE, DuplicateHandle(process, copy, process, &own, 0, FALSE, 0x80));
    EXPECT(TRUE, DuplicateHandle(process, copy, process, NULL, 0, FALSE, DUPLICATE_CLOSE_SOURCE));
    EXPECT(FALSE, CloseHandle(copy));

    /* Files, too. */
    char path[] = "/tmp/traceweir-threads-XXXXXX";
    close(mkstemp(path));
    DWORD written = 0;
    HANDLE file = CreateFileA(path, GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
    EXPECT(TRUE, DuplicateHandle(process, file, process, &copy, 0, FALSE, DUPLICATE_CLOSE_SOURCE));
    EXPECT(TRUE, WriteFile(copy, "x", 1, &written, NULL));
    EXPECT(FALSE, WriteFile(file, "x", 1, &written, NULL));
    EXPECT(WAIT_FAILED, WaitForSingleObject(copy, 0));
    EXPECT(TRUE, CloseHandle(copy));
    unlink(path);
}

/* Closed, foreign and invented handles, and handles of another kind. */
static void check_wrong_handles(void) {
    HANDLE event = make_event(FALSE, TRUE), semaphore = CreateSemaphoreA(NULL, 1, 1, NULL), mutex = CreateMutexA(NULL, FALSE, NULL);
    HANDLE closed = make_event(FALSE, TRUE);
    int variable = 0;
    EXPECT(TRUE, CloseHandle(closed));
    HANDLE wrong[] = {NULL, closed, INVALID_HANDLE_VALUE, &variable, (HANDLE)(ULONG_PTR)3, (HANDLE)((char *)event + 1)};
    for (size_t i = 0; i < ARRAYSIZE(wrong); i++) {
        HANDLE pair[2] = {event, wrong[i]};
        DWORD code = 0;
        SetLastError(0);
        EXPECT(FALSE, SetEvent(wrong[i]));
        EXPECT(ERROR_INVALID_HANDLE, GetLastError());
        EXPECT(FALSE, ResetEvent(wrong[i]));
        EXPECT(FALSE, ReleaseMutex(wrong[i]));
        EXPECT(FALSE, ReleaseSemaphore(wrong[i], 1, NULL));
        EXPECT(FALSE, GetExitCodeThread(wrong[i], &code));
        EXPECT(0, GetThreadId(wrong[i]));
        EXPECT((DWORD)-1, ResumeThread(wrong[i]));
        if (wrong[i] == INVALID_HANDLE_VALUE)
            continue; /* The handle of the current process, which may be waited for. */
        SetLastError(0);
        EXPECT(FALSE, CloseHandle(wrong[i]));
        EXPECT(ERROR_INVALID_HANDLE, GetLastError());
        SetLastError(0);
        EXPECT(WAIT_FAILED, WaitForSingleObject(wrong[i], 0));
        EXPECT(ERROR_INVALID_HANDLE, GetLastError());
        EXPECT(WAIT_FAILED, WaitForMultipleObjects(2, pair, FALSE, 0));
        EXPECT(WAIT_FAILED, WaitForMultipleObjects(2, pair, TRUE, 0));
    }
    /* The failed waits have not reset the event. */
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(event, 0));
    EXPECT(FALSE, SetEvent(semaphore));
    EXPECT(FALSE, SetEvent(mutex));
    EXPECT(FALSE, ReleaseMutex(event));
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(FALSE, ReleaseSemaphore(mutex, 1, NULL));
    EXPECT(FALSE, GetExitCodeThread(event, (LPDWORD)(void *)&variable));
    EXPECT(FALSE, GetExitCodeThread(GetCurrentThread(), NULL));
    EXPECT(1, CloseHandle(event) && CloseHandle(semaphore) && CloseHandle(mutex));
}

static void check_events(void) {
    HANDLE automatic = make_event(FALSE, TRUE), manual = make_event(TRUE, TRUE);
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(automatic, 0));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(automatic, 0));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(manual, 0));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObjectEx(manual, INFINITE, TRUE));
    EXPECT(TRUE, ResetEvent(manual));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(manual, 0));
    /* Setting an event twice completes one wait. */
    EXPECT(1, SetEvent(automatic) && SetEvent(automatic));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(automatic, INFINITE));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(automatic, 1));
    EXPECT(1, CloseHandle(automatic) && CloseHandle(manual));

    HANDLE event = CreateEventExA(NULL, NULL, CREATE_EVENT_MANUAL_RESET | CREATE_EVENT_INITIAL_SET, EVENT_ALL_ACCESS);
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(event, 0));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(event, 0));
    EXPECT(TRUE, CloseHandle(event));
    EXPECT(1, CreateEventExW(NULL, NULL, 8, EVENT_ALL_ACCESS) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
}

static void check_names(void) {
    static const WCHAR wide_name[] = {'L', 'o', 'c', 'a', 'l', '\\', 's', 't', 'o', 'p', 0};
    SetLastError(7);
    HANDLE first = CreateEventA(NULL, TRUE, FALSE, "stop");
    EXPECT(ERROR_SUCCESS, GetLastError());
    HANDLE second = CreateEventW(NULL, TRUE, FALSE, wide_name);
    EXPECT(ERROR_ALREADY_EXISTS, GetLastError());
    EXPECT(1, first != NULL && second != NULL && first != second);
    EXPECT(TRUE, SetEvent(first));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(second, 0));
    HANDLE third = OpenEventW(EVENT_ALL_ACCESS, FALSE, wide_name);
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(third, 0));
    EXPECT(1, CreateMutexA(NULL, FALSE, "stop") == NULL);
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(1, OpenSemaphoreA(SEMAPHORE_ALL_ACCESS, FALSE, "stop") == NULL);
    EXPECT(ERROR_INVALID_HANDLE, GetLastError());
    EXPECT(1, OpenMutexA(MUTEX_ALL_ACCESS, FALSE, "nothing") == NULL);
    EXPECT(ERROR_FILE_NOT_FOUND, GetLastError());
    EXPECT(1, OpenMutexA(MUTEX_ALL_ACCESS, FALSE, NULL) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(1, CloseHandle(first) && CloseHandle(second) && CloseHandle(third));
    /* The name is free after the last handle. */
    EXPECT(1, OpenEventA(EVENT_ALL_ACCESS, FALSE, "stop") == NULL);
    first = CreateMutexA(NULL, TRUE, "stop");
    EXPECT(ERROR_SUCCESS, GetLastError());
    EXPECT(1, ReleaseMutex(first) && CloseHandle(first));
}

static DWORD WINAPI release_foreign_mutex(LPVOID mutex) {
    if (ReleaseMutex((HANDLE)mutex) || GetLastError() != ERROR_NOT_OWNER)
        return 1;
    return WaitForSingleObject((HANDLE)mutex, 0);
}

static DWORD WINAPI take_mutex_and_end(LPVOID mutex) {
    return WaitForSingleObject((HANDLE)mutex, LONG_TIME);
}

static void check_mutexes(void) {
    HANDLE mutex = CreateMutexA(NULL, TRUE, NULL);
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(mutex, 0));
    join(start(release_foreign_mutex, mutex), WAIT_TIMEOUT);
    EXPECT(TRUE, ReleaseMutex(mutex));
    join(start(release_foreign_mutex, mutex), WAIT_TIMEOUT);
    EXPECT(TRUE, ReleaseMutex(mutex));
    EXPECT(FALSE, ReleaseMutex(mutex));
    EXPECT(ERROR_NOT_OWNER, GetLastError());
    /* A thread that ends abandons its mutexes; the next wait reports it once. */
    join(start(take_mutex_and_end, mutex), WAIT_OBJECT_0);
    EXPECT(WAIT_ABANDONED, WaitForSingleObject(mutex, LONG_TIME));
    EXPECT(TRUE, ReleaseMutex(mutex));
    HANDLE event = make_event(TRUE, TRUE), pair[2] = {event, mutex};
    join(start(take_mutex_and_end, mutex), WAIT_OBJECT_0);
    EXPECT(WAIT_ABANDONED_0, WaitForMultipleObjects(2, pair, TRUE, 0));
    EXPECT(1, ReleaseMutex(mutex) && ResetEvent(event));
    join(start(take_mutex_and_end, mutex), WAIT_OBJECT_0);
    EXPECT(WAIT_ABANDONED_0 + 1, WaitForMultipleObjects(2, pair, FALSE, LONG_TIME));
    EXPECT(1, ReleaseMutex(mutex) && CloseHandle(mutex) && CloseHandle(event));
    mutex = CreateMutexExA(NULL, NULL, CREATE_MUTEX_INITIAL_OWNER, MUTEX_ALL_ACCESS);
    EXPECT(1, ReleaseMutex(mutex) && CloseHandle(mutex));
    EXPECT(1, CreateMutexExW(NULL, NULL, 2, 0) == NULL);
}

static void check_semaphores(void) {
    LONG before = 0;
    HANDLE semaphore = CreateSemaphoreA(NULL, 1, 3, NULL);
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(semaphore, 0));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(semaphore, 0));
    EXPECT(TRUE, ReleaseSemaphore(semaphore, 2, &before));
    EXPECT(0, before);
    EXPECT(FALSE, ReleaseSemaphore(semaphore, 2, &before));
    EXPECT(ERROR_TOO_MANY_POSTS, GetLastError());
    EXPECT(FALSE, ReleaseSemaphore(semaphore, 0x7FFFFFFF, NULL));
    EXPECT(FALSE, ReleaseSemaphore(semaphore, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(TRUE, ReleaseSemaphore(semaphore, 1, &before));
    EXPECT(2, before);
    for (int i = 0; i < 3; i++)
        EXPECT(WAIT_OBJECT_0, WaitForSingleObject(semaphore, 0));
    EXPECT(WAIT_TIMEOUT, WaitForSingleObject(semaphore, 0));
    EXPECT(TRUE, CloseHandle(semaphore));
    EXPECT(1, CreateSemaphoreA(NULL, 2, 1, NULL) == NULL);
    EXPECT(1, CreateSemaphoreW(NULL, 0, 0, NULL) == NULL);
    EXPECT(1, CreateSemaphoreA(NULL, -1, 1, NULL) == NULL);
    EXPECT(1, CreateSemaphoreExA(NULL, 0, 1, NULL, 1, 0) == NULL);
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
}

static void check_several_objects(void) {
    HANDLE handles[65];
    for (int i = 0; i < 65; i++)
        handles[i] = make_event(FALSE, FALSE);
    EXPECT(WAIT_TIMEOUT, WaitForMultipleObjects(64, handles, FALSE, 1));
    EXPECT(TRUE, SetEvent(handles[63]));
    EXPECT(TRUE, SetEvent(handles[5]));
    EXPECT(WAIT_OBJECT_0 + 5, WaitForMultipleObjects(64, handles, FALSE, LONG_TIME));
    EXPECT(WAIT_OBJECT_0 + 63, WaitForMultipleObjectsEx(64, handles, FALSE, LONG_TIME, TRUE));
    EXPECT(WAIT_FAILED, WaitForMultipleObjects(65, handles, FALSE, 0));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    EXPECT(WAIT_FAILED, WaitForMultipleObjects(0, handles, FALSE, 0));
    EXPECT(WAIT_FAILED, WaitForMultipleObjects(1, NULL, FALSE, 0));
    HANDLE twice[2] = {handles[0], handles[0]};
    EXPECT(WAIT_FAILED, WaitForMultipleObjects(2, twice, TRUE, 0));
    EXPECT(ERROR_INVALID_PARAMETER, GetLastError());
    /* A wait for all that times out leaves the objects as they are. */
    EXPECT(TRUE, SetEvent(handles[0]));
    EXPECT(WAIT_TIMEOUT, WaitForMultipleObjects(3, handles, TRUE, 1));
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(handles[0], 0));
    for (int i = 0; i < 65; i++)
        EXPECT(TRUE, CloseHandle(handles[i]));
}

/* Two semaphores from which all threads take one each, in both orders, at once or not at all. Any
 * partial wait would end in a deadlock or in a wrong count. */
static HANDLE forks[2];
static volatile LONG eating;
static LONG meals;

static DWORD WINAPI eat(LPVOID parameter) {
    BOOL is_reversed = parameter != NULL;
    HANDLE both[2] = {forks[is_reversed], forks[!is_reversed]};
    for (int i = 0; i < ROUNDS; i++) {
        if (WaitForMultipleObjects(2, both, TRUE, LONG_TIME) != WAIT_OBJECT_0 || InterlockedIncrement(&eating) != 1)
            return 1;
        meals++;
        if (InterlockedDecrement(&eating) != 0 || !ReleaseSemaphore(both[0], 1, NULL) || !ReleaseSemaphore(both[1], 1, NULL))
            return 2;
    }
    return 0;
}

static void check_waits_for_all_are_atomic(void) {
    HANDLE threads[4];
    forks[0] = CreateSemaphoreA(NULL, 1, 1, NULL);
    forks[1] = CreateSemaphoreA(NULL, 1, 1, NULL);
    for (int i = 0; i < 4; i++)
        threads[i] = start(eat, ULongToPtr(i % 2));
    EXPECT(WAIT_OBJECT_0, WaitForMultipleObjects(4, threads, TRUE, LONG_TIME));
    for (int i = 0; i < 4; i++)
        join(threads[i], 0);
    EXPECT(4 * ROUNDS, meals);
    EXPECT(1, CloseHandle(forks[0]) && CloseHandle(forks[1]));
}

/* Each event that is reset by itself completes exactly one of the waits of several threads. */
static HANDLE ticks, taken;

static DWORD WINAPI take_ticks(LPVOID stop) {
    HANDLE both[2] = {(HANDLE)stop, ticks};
    DWORD count = 0;
    while (WaitForMultipleObjects(2, both, FALSE, LONG_TIME) == WAIT_OBJECT_0 + 1) {
        count++;
        SetEvent(taken);
    }
    return count;
}

static void check_each_event_completes_one_wait(void) {
    HANDLE stop = make_event(TRUE, FALSE), threads[3];
    DWORD total = 0, code = 0;
    ticks = make_event(FALSE, FALSE);
    taken = make_event(FALSE, FALSE);
    for (int i = 0; i < 3; i++)
        threads[i] = start(take_ticks, stop);
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT(TRUE, SetEvent(ticks));
        EXPECT(WAIT_OBJECT_0, WaitForSingleObject(taken, LONG_TIME));
    }
    EXPECT(TRUE, SetEvent(stop));
    for (int i = 0; i < 3; i++) {
        EXPECT(WAIT_OBJECT_0, WaitForSingleObject(threads[i], LONG_TIME));
        EXPECT(1, GetExitCodeThread(threads[i], &code) && CloseHandle(threads[i]));
        total += code;
    }
    EXPECT(ROUNDS, total);
    EXPECT(1, CloseHandle(stop) && CloseHandle(ticks) && CloseHandle(taken));
}

static void check_sleep(void) {
    LARGE_INTEGER before, after;
    QueryPerformanceCounter(&before);
    Sleep(0);
    Sleep(20);
    EXPECT(0, SleepEx(5, TRUE));
    QueryPerformanceCounter(&after);
    EXPECT(1, after.QuadPart - before.QuadPart >= 25000000);
}

int main(void) {
    check_threads();
    check_suspended_threads();
    check_constant_handles();
    check_duplicates();
    check_wrong_handles();
    check_events();
    check_names();
    check_mutexes();
    check_semaphores();
    check_several_objects();
    check_waits_for_all_are_atomic();
    check_each_event_completes_one_wait();
    check_sleep();
    return report_rows();
}
