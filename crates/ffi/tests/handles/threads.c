/* Threads that create, use and close handles of every kind at once, including handles of other
 * threads: exactly one thread closes each handle, and callbacks call the library.
 *
 *   threads FOLDER MANIFEST [ROUNDS]
 */
#include "kinds.h"

enum { THREADS = 6, SLOTS = 4, MAX_PRIVATE = 2 };

static HANDLE64 slots[KIND_COUNT][SLOTS];
static unsigned long long created[KIND_COUNT], ended[KIND_COUNT];
static unsigned rounds = 120;

static void report_wrong_status(const char *operation, const char *kind_name, ULONG status) {
    fprintf(stderr, "%s of a %s returned %u\n", operation, kind_name, status);
    abort();
}

/* The number of private sessions that exist: a process may have only a few. */
static unsigned long long private_sessions;

/* Returns whether a handle of this kind may be created. Counts it if it is a private session. */
static BOOLEAN try_reserve(unsigned kind) {
    if (kind != KIND_PRIVATE || __atomic_add_fetch(&private_sessions, 1, __ATOMIC_RELAXED) <= MAX_PRIVATE) {
        return TRUE;
    }
    __atomic_sub_fetch(&private_sessions, 1, __ATOMIC_RELAXED);
    return FALSE;
}

/* Another thread may have closed the handle at any time. */
static void use_handle(unsigned kind, HANDLE64 handle) {
    ULONG status = handle == 0 ? KINDS[kind].zero_status : KINDS[kind].use(handle);
    BOOLEAN is_expected = status == ERROR_SUCCESS || status == (handle == 0 ? KINDS[kind].zero_status : KINDS[kind].wrong_status);
    /* The session may have no free buffer because of other writers, or be about to stop. */
    is_expected |= kind == KIND_PROVIDER && (status == ERROR_NOT_ENOUGH_MEMORY || status == ERROR_MORE_DATA);
    if (!is_expected) {
        report_wrong_status("use", KINDS[kind].name, status);
    }
}

static void end_handle(unsigned kind, HANDLE64 handle) {
    ULONG status = KINDS[kind].end(handle);
    if (status == ERROR_SUCCESS && handle != 0) {
        __atomic_add_fetch(&ended[kind], 1, __ATOMIC_RELAXED);
        if (kind == KIND_PRIVATE) {
            __atomic_sub_fetch(&private_sessions, 1, __ATOMIC_RELAXED);
        }
    } else if (status != (handle == 0 ? KINDS[kind].zero_status : KINDS[kind].wrong_status) && (kind != KIND_SESSION || status != ERROR_ACTIVE_CONNECTIONS)) {
        /* ERROR_ACTIVE_CONNECTIONS is expected for a session that another thread is stopping. */
        report_wrong_status("end", KINDS[kind].name, status);
    }
}

static void run_step(unsigned kind, unsigned slot, unsigned action) {
    HANDLE64 handle = __atomic_load_n(&slots[kind][slot], __ATOMIC_ACQUIRE);
    if (KINDS[kind].make == NULL) {
        use_handle(kind, kind == KIND_CLASS ? first_class : __atomic_load_n(&logger, __ATOMIC_ACQUIRE));
    } else if (action == 0 && try_reserve(kind)) {
        HANDLE64 next = KINDS[kind].make();
        __atomic_add_fetch(&created[kind], 1, __ATOMIC_RELAXED);
        end_handle(kind, __atomic_exchange_n(&slots[kind][slot], next, __ATOMIC_ACQ_REL));
    } else if (action == 1 && !KINDS[kind].can_repeat) {
        /* The handle stays in its slot, and other threads go on using it. An address is not closed
         * here: it may be returned again, and would then belong to another thread. */
        end_handle(kind, handle);
    } else if (KINDS[kind].use != NULL) {
        use_handle(kind, handle);
    }
    if (kind == KIND_TRACE) {
        ULONG status = ProcessTrace(&handle, 1, NULL, NULL);
        if (status != ERROR_SUCCESS && status != ERROR_INVALID_HANDLE) {
            report_wrong_status("processing", "trace", status);
        }
    }
}

static void *run_steps(void *number) {
    unsigned long long seed = (to_number(number) + 1) * 0x9E3779B97F4A7C15ull;
    for (unsigned round = 0; round < rounds; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        /* The last kind, buffers, cannot be created or used alone. */
        unsigned kind = (unsigned)(seed >> 32) % (KIND_COUNT - 1);
        run_step(kind, (unsigned)(seed >> 48) % SLOTS, (unsigned)(seed >> 56) % 4);
    }
    return NULL;
}

/* Queries lists, information and texts, while other threads change everything. */
static void *query_repeatedly(void *unused) {
    static BLOCKW blocks[8][2];
    PEVENT_TRACE_PROPERTIES block_pointers[8];
    ULONG length;
    WCHAR text[100];
    unsigned char buffer[4096];
    (void)unused;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned at = 0; at < 8; at++) {
            block_pointers[at] = &empty_block(&blocks[at][0])->p;
        }
        ULONG status = QueryAllTracesW(block_pointers, 8, &length);
        if (status != ERROR_SUCCESS && status != ERROR_MORE_DATA) {
            report_wrong_status("list", "session", status);
        }
        EnumerateTraceGuidsEx(TraceGuidQueryList, NULL, 0, buffer, sizeof buffer, &length);
        EnumerateTraceGuidsEx(TraceGuidQueryInfo, (PVOID)(ULONG_PTR)&PROVIDER, sizeof PROVIDER, buffer, sizeof buffer, &length);
        TraceQueryInformation(0, TraceMaxLoggersQuery, buffer, sizeof buffer, &length);
        length = sizeof buffer;
        TdhEnumerateProviders((PPROVIDER_ENUMERATION_INFO)(void *)buffer, &length);
        SetLastError(round);
        EXPECT(round, GetLastError());
        EXPECT(20, FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM, NULL, ERROR_ACCESS_DENIED, 0, text, 100, NULL));
        SetTraceCallback(&CLASS, NULL);
        RemoveTraceCallback(&CLASS);
    }
    return NULL;
}

/* A live trace that another thread closes while its callback calls the library. */

static PROCESSTRACE_HANDLE live;

static void WINAPI on_live(PEVENT_RECORD event) {
    on_record(event);
    if (event->EventHeader.EventDescriptor.Id == 77) {
        use_trace(__atomic_load_n(&live, __ATOMIC_ACQUIRE));
    }
}

static void *process_live_traces(void *unused) {
    (void)unused;
    for (unsigned round = 0; round < rounds / 10 + 1; round++) {
        EVENT_TRACE_LOGFILEA log;
        /* The name of lasting_session. */
        char name[] = "session 1";
        memset(&log, 0, sizeof log);
        log.LoggerName = name;
        log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD | PROCESS_TRACE_MODE_REAL_TIME;
        log.EventRecordCallback = on_live;
        PROCESSTRACE_HANDLE trace = OpenTraceA(&log);
        if (trace == INVALID_PROCESSTRACE_HANDLE) {
            report_wrong_status("opening", "live trace", GetLastError());
        }
        __atomic_store_n(&live, trace, __ATOMIC_RELEASE);
        ULONG status = ProcessTrace(&trace, 1, NULL, NULL);
        if (status != ERROR_SUCCESS && status != ERROR_INVALID_HANDLE) {
            report_wrong_status("processing", "live trace", status);
        }
    }
    __atomic_store_n(&live, 0, __ATOMIC_RELEASE);
    return NULL;
}

static void *close_live_traces(void *unused) {
    HANDLE64 previous = 0;
    (void)unused;
    for (;;) {
        HANDLE64 current = __atomic_load_n(&live, __ATOMIC_ACQUIRE);
        if (current == 0 && previous != 0) {
            return NULL;
        }
        if (current != 0 && current != previous) {
            usleep(3000);
            ULONG status = CloseTrace(current);
            if (status != ERROR_SUCCESS && status != ERROR_CTX_CLOSE_PENDING) {
                report_wrong_status("closing", "live trace", status);
            }
            previous = current;
        }
        usleep(500);
    }
}

int main(int argc, char **argv) {
    void *(*const other_threads[])(void *) = {query_repeatedly, process_live_traces, close_live_traces};
    enum { OTHER_COUNT = sizeof other_threads / sizeof *other_threads };
    pthread_t threads[THREADS + OTHER_COUNT];
    if (argc < 3) {
        return 2;
    }
    if (argc > 3) {
        rounds = (unsigned)atoi(argv[3]);
    }
    alarm(200);
    open_kinds(argv[1], argv[2]);
    for (unsigned at = 0; at < THREADS + OTHER_COUNT; at++) {
        EXPECT(0, pthread_create(&threads[at], NULL, at < THREADS ? run_steps : other_threads[at - THREADS], address(at)));
    }
    for (unsigned at = 0; at < THREADS + OTHER_COUNT; at++) {
        EXPECT(0, pthread_join(threads[at], NULL));
    }
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned slot = 0; slot < SLOTS && KINDS[kind].make != NULL; slot++) {
            end_handle(kind, slots[kind][slot]);
        }
        /* Exactly one of the racing threads closed the handle. */
        EXPECT(created[kind], ended[kind]);
        printf("%s: %llu\n", KINDS[kind].name, created[kind]);
    }
    EXPECT(TRUE, calls > 0 && delivered > 0);
    close_kinds();
    return report_rows();
}
