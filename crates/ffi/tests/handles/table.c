/* Handles that are stale, closed twice, of another kind, or invented, for every function that takes
 * one: each call returns its error and has no other effect.
 *
 *   table FOLDER MANIFEST
 */
#include "kinds.h"

/* The number of handles of each kind that exist at once, so that small numbers of different kinds
 * are equal. */
enum { EACH = 6 };

static HANDLE64 all[KIND_COUNT][EACH];

static unsigned most(unsigned kind) {
    return KINDS[kind].make == NULL ? 0 : kind == OF_PRIVATE ? 3 : EACH;
}
static unsigned at_work;

/* Prints the kinds that a wrong row was about. */
static void expect(ULONG wanted, ULONG got, const char *what, const char *of, HANDLE64 handle) {
    rows++;
    if (wanted != got) {
        fprintf(stderr, "%s of a %s with 0x%llx is %u, not %u\n", what, of, handle, got, wanted);
        exit(1);
    }
}

static void refused(unsigned kind, HANDLE64 handle) {
    ULONG wanted = handle == 0 ? KINDS[kind].zero : KINDS[kind].wrong;
    if (KINDS[kind].use != NULL) {
        expect(wanted, KINDS[kind].use(handle), "use", KINDS[kind].name, handle);
    }
    if (KINDS[kind].end != NULL) {
        expect(wanted, KINDS[kind].end(handle), "end", KINDS[kind].name, handle);
    }
}

/* Sessions of the daemon and of the process have ids of the same kind. */
static BOOLEAN same(unsigned one, unsigned other) {
    return one == other || (one >= OF_SESSION && one <= OF_PRIVATE && other >= OF_SESSION && other <= OF_PRIVATE);
}

static BOOLEAN lives(unsigned kind, HANDLE64 handle) {
    for (unsigned other = 0; other < KIND_COUNT; other++) {
        for (unsigned at = 0; at < EACH; at++) {
            if (same(kind, other) && all[other][at] == handle) {
                return TRUE;
            }
        }
    }
    /* The class handles of other registrations do not belong to this test, but are valid. */
    return (handle == lasting && same(kind, OF_SESSION)) || (kind == OF_CLASS && lives(OF_CLASSIC, handle ^ 1ull << 11));
}

static void works(unsigned kind) {
    for (unsigned at = 0; at < EACH; at++) {
        if (all[kind][at] != 0 && KINDS[kind].use != NULL) {
            expect(ERROR_SUCCESS, KINDS[kind].use(all[kind][at]), "use", KINDS[kind].name, all[kind][at]);
        }
    }
}

static void foreign(void) {
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned other = 0; other < KIND_COUNT; other++) {
            for (unsigned at = 0; at < EACH; at++) {
                if (!same(kind, other) && all[other][at] != 0) {
                    refused(kind, all[other][at]);
                }
            }
        }
    }
    /* None of these calls closed a handle. */
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        works(kind);
    }
}

static void invented(void) {
    static const HANDLE64 known[] = {0, 2, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x100000000ull - 1, 0x8000000000000000ull, ~0ull, ~0ull - 1};
    HANDLE64 seed = 0x9E3779B97F4A7C15ull;
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < sizeof known / sizeof *known; at++) {
            refused(kind, known[at]);
        }
        for (unsigned round = 0; round < 40; round++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            refused(kind, seed);
        }
        /* Handles that differ from a valid one in one bit; for a logger, the lowest bits select
         * another registration. */
        for (unsigned bit = kind == OF_LOGGER ? 10 : 0; bit < 64 && all[kind][0] != 0; bit++) {
            HANDLE64 near = all[kind][0] ^ 1ull << bit;
            if (!lives(kind, near) && near > 1) {
                refused(kind, near);
            }
        }
    }
}

static void stale(void) {
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        if (KINDS[kind].make == NULL) {
            continue;
        }
        HANDLE64 handle = KINDS[kind].make();
        expect(ERROR_SUCCESS, KINDS[kind].end(handle), "end", KINDS[kind].name, handle);
        refused(kind, handle);
        HANDLE64 next = KINDS[kind].make();
        if (!KINDS[kind].again) {
            IS(TRUE, handle != next);
            refused(kind, handle);
        }
        expect(ERROR_SUCCESS, KINDS[kind].end(next), "end", KINDS[kind].name, next);
        refused(kind, next);
    }
}

/* A kept buffer: only its owner can release it, as many times as it was kept, and no more. */

static const ETW_BUFFER_HEADER *kept;
static HANDLE64 keeper;

static void *give_back(void *unused) {
    (void)unused;
    WAIT_UNTIL(__atomic_load_n(&kept, __ATOMIC_ACQUIRE) != NULL);
    /* The callback may not have returned yet. */
    usleep(50000);
    IS(ERROR_INVALID_HANDLE, CloseTrace(number_of(kept)));
    IS(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(keeper, kept));
    IS(ERROR_SUCCESS, end_buffer(number_of(kept)));
    IS(ERROR_SUCCESS, end_buffer(number_of(kept)));
    return NULL;
}

static BOOL WINAPI keep(const ETW_BUFFER_HEADER *buffer, ULONG size, const ETW_BUFFER_CALLBACK_INFORMATION *information, PVOID context) {
    (void)size, (void)context;
    IS(keeper, information->TraceHandle);
    if (kept == NULL) {
        IS(ERROR_INVALID_PARAMETER, end_buffer(number_of(buffer)));
        IS(ERROR_INVALID_HANDLE, ProcessTraceBufferIncrementReference(12345, buffer));
        IS(ERROR_INVALID_PARAMETER, ProcessTraceBufferIncrementReference(all[OF_TRACE][0], buffer));
        IS(ERROR_SUCCESS, ProcessTraceBufferIncrementReference(keeper, buffer));
        IS(ERROR_SUCCESS, ProcessTraceBufferIncrementReference(keeper, buffer));
        __atomic_store_n(&kept, buffer, __ATOMIC_RELEASE);
    }
    return TRUE;
}

static void buffers(void) {
    WCHAR path[450];
    pthread_t other;
    ETW_OPEN_TRACE_OPTIONS options = {ETW_PROCESS_TRACE_MODE_NONE, NULL, NULL, keep, NULL};
    widen(path, trace_file);
    keeper = OpenTraceFromFile(path, &options, NULL);
    IS(TRUE, keeper != INVALID_PROCESSTRACE_HANDLE);
    IS(0, pthread_create(&other, NULL, give_back, NULL));
    IS(ERROR_SUCCESS, ProcessTrace(&keeper, 1, NULL, NULL));
    IS(0, pthread_join(other, NULL));
    IS(ERROR_INVALID_PARAMETER, end_buffer(number_of(kept)));
    IS(ERROR_SUCCESS, CloseTrace(keeper));
}

/* Handles that are closed by their own callbacks. */

static HANDLE64 self;

static void NTAPI end_self(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG keywords, PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)code, (void)level, (void)any, (void)keywords, (void)filter, (void)context;
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        at_work++;
        IS(ERROR_SUCCESS, use_provider(self));
        IS(ERROR_SUCCESS, EventUnregister(self));
        refused(OF_PROVIDER, self);
    }
}

static ULONG WMIAPI end_classic_self(WMIDPREQUESTCODE code, PVOID context, ULONG *size, PVOID buffer) {
    (void)context, (void)size;
    if (code == WMI_ENABLE_EVENTS) {
        TRACEHANDLE current = GetTraceLoggerHandle(buffer);
        at_work++;
        IS(ERROR_SUCCESS, UnregisterTraceGuids(self));
        IS(ERROR_INVALID_PARAMETER, UnregisterTraceGuids(self));
        IS(ERROR_INVALID_HANDLE, use_logger(current));
    }
    return ERROR_SUCCESS;
}

static void WINAPI end_trace_self(PEVENT_RECORD event) {
    (void)event;
    at_work++;
    IS(ERROR_INVALID_HANDLE, ProcessTrace(&self, 1, NULL, NULL));
    IS(ERROR_SUCCESS, use_trace(self));
    IS(ERROR_CTX_CLOSE_PENDING, CloseTrace(self));
    refused(OF_TRACE, self);
}

static void from_within(void) {
    TRACE_GUID_REGISTRATION class_ = {&CLASS, NULL};
    EVENT_TRACE_LOGFILEA log;
    at_work = 0;
    IS(ERROR_SUCCESS, EventRegister(&PROVIDER, end_self, NULL, &self));
    WAIT_UNTIL(at_work == 1);
    IS(1, at_work);
    refused(OF_PROVIDER, self);
    IS(ERROR_SUCCESS, RegisterTraceGuidsW(end_classic_self, NULL, &CLASSIC, 1, &class_, NULL, NULL, &self));
    WAIT_UNTIL(at_work == 2);
    IS(2, at_work);
    refused(OF_CLASSIC, self);
    IS(ERROR_INVALID_PARAMETER, use_class(number_of(class_.RegHandle)));
    memset(&log, 0, sizeof log);
    log.LogFileName = trace_file;
    log.ProcessTraceMode = PROCESS_TRACE_MODE_EVENT_RECORD;
    log.EventRecordCallback = end_trace_self;
    self = OpenTraceA(&log);
    PROCESSTRACE_HANDLE trace = self;
    IS(ERROR_SUCCESS, ProcessTrace(&trace, 1, NULL, NULL));
    IS(3, at_work);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    alarm(200);
    open_kinds(argv[1], argv[2]);
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < most(kind); at++) {
            all[kind][at] = KINDS[kind].make();
        }
    }
    all[OF_CLASS][0] = first_class;
    all[OF_LOGGER][0] = logger;
    foreign();
    invented();
    buffers();
    for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
        for (unsigned at = 0; at < most(kind); at++) {
            expect(ERROR_SUCCESS, KINDS[kind].end(all[kind][at]), "end", KINDS[kind].name, all[kind][at]);
            refused(kind, all[kind][at]);
            all[kind][at] = 0;
        }
    }
    stale();
    from_within();
    close_kinds();
    return finish();
}
