/* Handles that are stale, closed twice, of another kind, or invented, for every function that takes
 * a handle: each call returns its error and has no other effect.
 *
 *   table FOLDER MANIFEST
 */
#include "kinds.h"

/* Several handles of each kind exist at once, so that the small numbers in handles of different
 * kinds overlap. */
enum { HANDLES_PER_KIND = 6 };

static HANDLE64 handles[KIND_COUNT][HANDLES_PER_KIND];

/* A process may have only a few private sessions. */
static unsigned handle_count(unsigned kind) {
    return KINDS[kind].make == NULL ? 0 : kind == KIND_PRIVATE ? 3 : HANDLES_PER_KIND;
}
static unsigned callback_calls;

/* Checks the status of a call. Prints the kind and the handle if the status is wrong. */
static void expect_status(ULONG expected, ULONG status, const char *operation, const char *kind_name, HANDLE64 handle) {
    rows++;
    if (expected != status) {
        fprintf(stderr, "%s of a %s with handle 0x%llx returned %u, not %u\n", operation, kind_name, handle, status, expected);
        exit(1);
    }
}

static void check_refused(unsigned kind, HANDLE64 handle) {
    ULONG expected = handle == 0 ? KINDS[kind].zero_status : KINDS[kind].wrong_status;
    if (KINDS[kind].use != NULL) {
        expect_status(expected, KINDS[kind].use(handle), "use", KINDS[kind].name, handle);
    }
    if (KINDS[kind].end != NULL) {
        expect_status(expected, KINDS[kind].end(handle), "end", KINDS[kind].name, handle);
    }
}

/* Sessions of the daemon and of the process have ids of the same kind. */
static BOOLEAN is_same_kind(unsigned first, unsigned second) {
    return first == second || (first >= KIND_SESSION && first <= KIND_PRIVATE && second >= KIND_SESSION && second <= KIND_PRIVATE);
}

static BOOLEAN is_live(unsigned kind, HANDLE64 handle) {
    for (unsigned other_kind = 0; other_kind < KIND_COUNT; other_kind++) {
        for (unsigned at = 0; at < HANDLES_PER_KIND; at++) {
            if (is_same_kind(kind, other_kind) && handles[other_kind][at] == handle) {
                return TRUE;
            }
        }
    }
    /* The class handles of the other registrations are valid, although they are not in the table. A
     * class handle differs from the handle of its registration in bit 11. */
    return (handle == lasting_session && is_same_kind(kind, KIND_SESSION)) || (kind == KIND_CLASS && is_live(KIND_CLASSIC, handle ^ 1ull << 11));
}

static void check_usable(unsigned kind) {
    for (unsigned at = 0; at < HANDLES_PER_KIND; at++) {
        if (handles[kind][at] != 0 && KINDS[kind].use != NULL) {
            expect_status(ERROR_SUCCESS, KINDS[kind].use(handles[kind][at]), "use", KINDS[kind].name, handles[kind][at]);
        }
    }
}

static void check_foreign_handles(void) {
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned other_kind = 0; other_kind < KIND_COUNT; other_kind++) {
            for (unsigned at = 0; at < HANDLES_PER_KIND; at++) {
                if (!is_same_kind(kind, other_kind) && handles[other_kind][at] != 0) {
                    check_refused(kind, handles[other_kind][at]);
                }
            }
        }
    }
    /* None of these calls closed a handle. */
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        check_usable(kind);
    }
}

static void check_invented_handles(void) {
    static const HANDLE64 invented[] = {0, 2, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x100000000ull - 1, 0x8000000000000000ull, ~0ull, ~0ull - 1};
    HANDLE64 seed = 0x9E3779B97F4A7C15ull;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < sizeof invented / sizeof *invented; at++) {
            check_refused(kind, invented[at]);
        }
        for (unsigned round = 0; round < 40; round++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            check_refused(kind, seed);
        }
        /* Handles that differ from a valid one in one bit; for a logger, the lowest bits select
         * another registration. */
        for (unsigned bit = kind == KIND_LOGGER ? 10 : 0; bit < 64 && handles[kind][0] != 0; bit++) {
            HANDLE64 similar = handles[kind][0] ^ 1ull << bit;
            if (!is_live(kind, similar) && similar > 1) {
                check_refused(kind, similar);
            }
        }
    }
}

static void check_stale_handles(void) {
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (KINDS[kind].make == NULL) {
            continue;
        }
        HANDLE64 handle = KINDS[kind].make();
        expect_status(ERROR_SUCCESS, KINDS[kind].end(handle), "end", KINDS[kind].name, handle);
        check_refused(kind, handle);
        HANDLE64 next = KINDS[kind].make();
        if (!KINDS[kind].can_repeat) {
            EXPECT(TRUE, handle != next);
            check_refused(kind, handle);
        }
        expect_status(ERROR_SUCCESS, KINDS[kind].end(next), "end", KINDS[kind].name, next);
        check_refused(kind, next);
    }
}

/* A kept buffer can be released as many times as it was kept, and no more. */

static const ETW_BUFFER_HEADER *kept_buffer;
static HANDLE64 keeping_trace;

static void *release_buffer(void *unused) {
    (void)unused;
    WAIT_UNTIL(__atomic_load_n(&kept_buffer, __ATOMIC_ACQUIRE) != NULL);
    /* The callback may not have returned yet. */
    usleep(50000);
    EXPECT(ERROR_INVALID_HANDLE, CloseTrace(to_number(kept_buffer)));
    EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(keeping_trace, kept_buffer));
    EXPECT(ERROR_SUCCESS, end_buffer(to_number(kept_buffer)));
    EXPECT(ERROR_SUCCESS, end_buffer(to_number(kept_buffer)));
    return NULL;
}

static BOOL WINAPI keep_buffer(const ETW_BUFFER_HEADER *buffer, ULONG size, const ETW_BUFFER_CALLBACK_INFORMATION *information, PVOID context) {
    (void)size, (void)context;
    EXPECT(keeping_trace, information->TraceHandle);
    if (kept_buffer == NULL) {
        EXPECT(ERROR_INVALID_PARAMETER, end_buffer(to_number(buffer)));
        EXPECT(ERROR_INVALID_HANDLE, ProcessTraceBufferIncrementReference(12345, buffer));
        EXPECT(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(handles[KIND_TRACE][0], buffer));
        EXPECT(ERROR_SUCCESS, ProcessTraceBufferIncrementReference(keeping_trace, buffer));
        EXPECT(ERROR_SUCCESS, ProcessTraceBufferIncrementReference(keeping_trace, buffer));
        __atomic_store_n(&kept_buffer, buffer, __ATOMIC_RELEASE);
    }
    return TRUE;
}

static void check_buffers(void) {
    WCHAR path[450];
    pthread_t releaser;
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, NULL, NULL, keep_buffer, NULL};
    to_wide(path, trace_file);
    keeping_trace = OpenTraceFromFile(path, &options, NULL);
    EXPECT(TRUE, keeping_trace != INVALID_PROCESSTRACE_HANDLE);
    EXPECT(0, pthread_create(&releaser, NULL, release_buffer, NULL));
    EXPECT(ERROR_SUCCESS, ProcessTrace(&keeping_trace, 1, NULL, NULL));
    EXPECT(0, pthread_join(releaser, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, end_buffer(to_number(kept_buffer)));
    EXPECT(ERROR_SUCCESS, CloseTrace(keeping_trace));
}

/* Handles that are closed by their own callbacks. */

static HANDLE64 self;

static void NTAPI end_self(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG keywords, PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)code, (void)level, (void)any, (void)keywords, (void)filter, (void)context;
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        callback_calls++;
        EXPECT(ERROR_SUCCESS, use_provider(self));
        EXPECT(ERROR_SUCCESS, EventUnregister(self));
        check_refused(KIND_PROVIDER, self);
    }
}

static ULONG WMIAPI end_classic_self(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    (void)context, (void)size;
    if (code == WMI_ENABLE_EVENTS) {
        TRACEHANDLE current = GetTraceLoggerHandle(buffer);
        callback_calls++;
        EXPECT(ERROR_SUCCESS, UnregisterTraceGuids(self));
        EXPECT(ERROR_INVALID_PARAMETER, UnregisterTraceGuids(self));
        EXPECT(ERROR_INVALID_HANDLE, use_logger(current));
    }
    return ERROR_SUCCESS;
}

static void WINAPI end_trace_self(PEVENT_RECORD event) {
    (void)event;
    callback_calls++;
    EXPECT(ERROR_INVALID_HANDLE, ProcessTrace(&self, 1, NULL, NULL));
    EXPECT(ERROR_SUCCESS, use_trace(self));
    EXPECT(ERROR_CTX_CLOSE_PENDING, CloseTrace(self));
    check_refused(KIND_TRACE, self);
}

static void check_close_in_callbacks(void) {
    TRACE_GUID_REGISTRATION class_ = {&CLASS, NULL};
    EVENT_TRACE_LOGFILEA log;
    callback_calls = 0;
    EXPECT(ERROR_SUCCESS, EventRegister(&PROVIDER, end_self, NULL, &self));
    WAIT_UNTIL(callback_calls == 1);
    EXPECT(1, callback_calls);
    check_refused(KIND_PROVIDER, self);
    EXPECT(ERROR_SUCCESS, RegisterTraceGuidsW(end_classic_self, NULL, &CLASSIC, 1, &class_, NULL, NULL, &self));
    WAIT_UNTIL(callback_calls == 2);
    EXPECT(2, callback_calls);
    check_refused(KIND_CLASSIC, self);
    EXPECT(ERROR_INVALID_PARAMETER, use_class(to_number(class_.RegHandle)));
    memset(&log, 0, sizeof log);
    log.LogFileName = trace_file;
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = end_trace_self;
    self = OpenTraceA(&log);
    PROCESSTRACE_HANDLE trace = self;
    EXPECT(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    EXPECT(3, callback_calls);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    alarm(200);
    open_kinds(argv[1], argv[2]);
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < handle_count(kind); at++) {
            handles[kind][at] = KINDS[kind].make();
        }
    }
    handles[KIND_CLASS][0] = first_class;
    handles[KIND_LOGGER][0] = logger;
    check_foreign_handles();
    check_invented_handles();
    check_buffers();
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < handle_count(kind); at++) {
            expect_status(ERROR_SUCCESS, KINDS[kind].end(handles[kind][at]), "end", KINDS[kind].name, handles[kind][at]);
            check_refused(kind, handles[kind][at]);
            handles[kind][at] = 0;
        }
    }
    check_stale_handles();
    check_close_in_callbacks();
    close_kinds();
    return report_rows();
}
