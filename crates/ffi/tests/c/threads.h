/* What the programs about threads, objects and locks share. */
#ifndef THREADS_H
#define THREADS_H

#include <windows.h>

#include "check.h"

#define LONG_TIME 60000
#ifndef ROUNDS
#define ROUNDS 2000
#endif

static inline HANDLE make_event(BOOL is_manual, BOOL is_set) {
    HANDLE event = CreateEventA(NULL, is_manual, is_set, NULL);
    EXPECT(1, event != NULL);
    return event;
}

static inline HANDLE start(LPTHREAD_START_ROUTINE routine, LPVOID parameter) {
    HANDLE thread = CreateThread(NULL, 0, routine, parameter, 0, NULL);
    EXPECT(1, thread != NULL);
    return thread;
}

/* Waits for a thread, checks its exit code, and closes the handle. */
static inline void join(HANDLE thread, DWORD expected_code) {
    DWORD code = 0;
    EXPECT(WAIT_OBJECT_0, WaitForSingleObject(thread, LONG_TIME));
    EXPECT(TRUE, GetExitCodeThread(thread, &code));
    EXPECT(expected_code, code);
    EXPECT(TRUE, CloseHandle(thread));
}

#endif
