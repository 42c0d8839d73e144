/* SetConsoleCtrlHandler. Each case runs in a process of its own, and ends with a status or by a
 * signal. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <windows.h>

#include "check.h"

static HANDLE event_done;
static volatile LONG calls;

static int count_threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

static int is_default(int number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL;
}

/* Waits for the handlers, or for the end of the process. */
static int wait_for_end(void) {
    return WaitForSingleObject(event_done, 30000) == WAIT_OBJECT_0 ? 0 : 99;
}

static BOOL WINAPI handle_interrupt(DWORD kind) {
    if (kind != CTRL_C_EVENT)
        return FALSE;
    SetEvent(event_done);
    return TRUE;
}

static BOOL WINAPI count_and_pass_on(DWORD kind) {
    (void)kind;
    InterlockedIncrement(&calls);
    return FALSE;
}

/* Fails the process unless it was called first. */
static BOOL WINAPI expect_first(DWORD kind) {
    (void)kind;
    if (InterlockedIncrement(&calls) != 1)
        _exit(50);
    return FALSE;
}

static BOOL WINAPI expect_second(DWORD kind) {
    if (InterlockedIncrement(&calls) != 2 || kind != CTRL_C_EVENT)
        _exit(51);
    SetEvent(event_done);
    return TRUE;
}

static BOOL WINAPI accept_close(DWORD kind) {
    return kind == CTRL_CLOSE_EVENT;
}

static BOOL WINAPI never_return(DWORD kind) {
    if (InterlockedIncrement(&calls) == 2)
        SetEvent(event_done);
    Sleep(kind == CTRL_C_EVENT ? INFINITE : 0);
    return TRUE;
}

static BOOL WINAPI end_own_thread(DWORD kind) {
    SetEvent(event_done);
    ExitThread(kind);
}

static int case_without_handler(void) {
    /* Objects and locks alone start no thread and catch no signal. */
    CRITICAL_SECTION section;
    InitializeCriticalSection(&section);
    EnterCriticalSection(&section);
    SetEvent(event_done);
    return !(count_threads() == 1 && is_default(SIGINT) && is_default(SIGTERM) && is_default(SIGHUP));
}

static int case_interrupt(void) {
    if (!SetConsoleCtrlHandler(handle_interrupt, TRUE) || is_default(SIGINT) || !is_default(SIGQUIT))
        return 1;
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_passed_on(void) {
    SetConsoleCtrlHandler(count_and_pass_on, TRUE);
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_order(void) {
    SetConsoleCtrlHandler(expect_second, TRUE);
    SetConsoleCtrlHandler(expect_first, TRUE);
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_close(int number) {
    SetConsoleCtrlHandler(accept_close, TRUE);
    kill(getpid(), number);
    return wait_for_end();
}

static int case_terminate(void) {
    return case_close(SIGTERM);
}

static int case_hang_up(void) {
    return case_close(SIGHUP);
}

static int case_ignored_hang_up(void) {
    signal(SIGHUP, SIG_IGN);
    SetConsoleCtrlHandler(accept_close, TRUE);
    kill(getpid(), SIGHUP);
    SetConsoleCtrlHandler(handle_interrupt, TRUE);
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_handler_that_blocks(void) {
    SetConsoleCtrlHandler(never_return, TRUE);
    kill(getpid(), SIGINT);
    WAIT_UNTIL(InterlockedCompareExchange(&calls, 0, 0) == 1);
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_handler_that_exits(void) {
    SetConsoleCtrlHandler(end_own_thread, TRUE);
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_ignored_interrupt(void) {
    if (!SetConsoleCtrlHandler(NULL, TRUE))
        return 1;
    kill(getpid(), SIGINT);
    if (count_threads() != 1 || !SetConsoleCtrlHandler(NULL, FALSE) || !is_default(SIGINT))
        return 2;
    kill(getpid(), SIGINT);
    return wait_for_end();
}

static int case_removed(void) {
    if (SetConsoleCtrlHandler(handle_interrupt, FALSE) || GetLastError() != ERROR_INVALID_PARAMETER)
        return 1;
    SetConsoleCtrlHandler(handle_interrupt, TRUE);
    SetConsoleCtrlHandler(handle_interrupt, TRUE);
    if (!SetConsoleCtrlHandler(handle_interrupt, FALSE) || is_default(SIGINT))
        return 2;
    if (!SetConsoleCtrlHandler(handle_interrupt, FALSE) || !is_default(SIGINT) || !is_default(SIGTERM))
        return 3;
    kill(getpid(), SIGINT);
    return wait_for_end();
}

/* The child of a program with a handler has no thread that would run it. */
static int case_child(void) {
    int status = 0;
    SetConsoleCtrlHandler(handle_interrupt, TRUE);
    pid_t child = fork();
    if (child == 0) {
        kill(getpid(), SIGINT);
        sleep(30);
        _exit(0);
    }
    return !(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

/* Returns the exit status of a case, or 1000 and the signal that ended it. */
static int run(int (*body)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        event_done = CreateEventA(NULL, TRUE, FALSE, NULL);
        _exit(body());
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void) {
    /* The test program may have been started with signals blocked or ignored. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    EXPECT(0, run(case_without_handler));
    EXPECT(0, run(case_interrupt));
    EXPECT(1000 + SIGINT, run(case_passed_on));
    EXPECT(0, run(case_order));
    EXPECT(1000 + SIGTERM, run(case_terminate));
    EXPECT(1000 + SIGHUP, run(case_hang_up));
    EXPECT(0, run(case_ignored_hang_up));
    EXPECT(0, run(case_handler_that_blocks));
    EXPECT(0, run(case_handler_that_exits));
    EXPECT(1000 + SIGINT, run(case_ignored_interrupt));
    EXPECT(1000 + SIGINT, run(case_removed));
    EXPECT(0, run(case_child));
    return report_rows();
}
