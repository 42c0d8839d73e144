/* Information queries without a daemon that answers: errors in the call, and information that the
 * library has itself, are returned whatever is in place of a daemon.
 *
 *   asked_alone FOLDER            no daemon runs: an idle system, and a private session, which
 *                                 writes tracked.etl
 *   asked_alone FOLDER STATUS     a socket exists and does not answer: queries that need a daemon
 *                                 return STATUS
 */
#include "control.h"

#include <evntprov.h>

static BLOCKW block;
static unsigned char bytes[1 << 16];
static ULONG returned;
static const GUID PROVIDER = {0xC0FFEE09, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID LATER = {0xC0FFEE0A, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID THREAD = {0x3d6fa8d1, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};

#define UNTOUCHED 0xEEEEEEEEu

static ULONG set(CONTROLTRACE_ID id, int which, void *info, ULONG length) {
    return TraceSetInformation(id, (TRACE_INFO_CLASS)which, info, length);
}

static ULONG query(CONTROLTRACE_ID id, int which, void *info, ULONG length) {
    returned = UNTOUCHED;
    return TraceQueryInformation(id, (TRACE_INFO_CLASS)which, info, length, &returned);
}

static ULONG list(int which, void *in, ULONG in_length, void *out, ULONG length) {
    returned = UNTOUCHED;
    return EnumerateTraceGuidsEx((TRACE_QUERY_INFO_CLASS)which, in, in_length, out, length, &returned);
}

/* Errors that the library finds without a daemon. */
static void wrong_calls(void) {
    static const int NOT_SET[] = {-1, 0, 1, 2, 7, 11, 12, 13, 14, 15, 17, 19, 22, 23, 25, 27, 29, 0x7FFFFFFF};
    static const int NOT_QUERIED[] = {-1, 0, 1, 2, 6, 8, 9, 10, 12, 13, 15, 16, 18, 20, 21, 24, 26, 28, 29};
    static const struct {
        int which;
        ULONG least;
        int clears;
    } LENGTHS[] = {{3, 24, 1}, {4, 4, 0},  {5, 8, 0},  {6, 4, 1},  {8, 24, 0},  {9, 4, 0},   {10, 16, 1},
                   {16, 8, 1}, {18, 1, 0}, {20, 4, 0}, {21, 4, 1}, {24, 12, 0}, {26, 12, 0}, {28, 8, 1}};
    for (unsigned i = 0; i < sizeof NOT_SET / sizeof NOT_SET[0]; i++) {
        IS(50, set(STALE, NOT_SET[i], NULL, 8));
    }
    for (unsigned i = 0; i < sizeof NOT_QUERIED / sizeof NOT_QUERIED[0]; i++) {
        IS(50, query(STALE, NOT_QUERIED[i], NULL, 8));
        IS(UNTOUCHED, returned);
    }
    memset(bytes, 0, sizeof bytes);
    for (unsigned i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        int which = LENGTHS[i].which, is_systems = which == 5 || which == 6;
        ULONG least = LENGTHS[i].least;
        IS(87, set(STALE, which, NULL, least));
        IS(87, set(STALE, which, NULL, 0xFFFFFFFF));
        IS(24, least > 1 ? set(STALE, which, bytes, least - 1) : 24);
        IS(24, least > 1 ? set(STALE, which, bytes + 1, least - 1) : 24);
        if (!LENGTHS[i].clears) {
            IS(24, set(STALE, which, NULL, 0));
            IS(24, set(STALE, which, bytes, 0));
        }
        /* The session id is checked next. */
        IS(87, set(is_systems ? STALE : 0, which, bytes, least));
    }
    IS(87, query(0, 3, NULL, 0));
    IS(87, query(0, 14, NULL, 0));
    IS(24, query(0, 4, NULL, 0));
    IS(32, returned);
    IS(87, query(0, 4, bytes, 32));
    IS(24, query(STALE, 5, bytes, 7));
    IS(8, returned);
    IS(87, query(STALE, 5, bytes, 8));
    IS(87, query(STALE, 7, bytes, sizeof bytes));
    IS(87, query(STALE, 11, bytes, 8));
    IS(24, query(STALE, 19, bytes, 3));
    IS(4, returned);
    IS(24, query(0, 23, bytes, 3));
    IS(87, query(0, 23, bytes, 4));
    IS(87, query(STALE, 27, bytes, 4));
    IS(87, query(0, 27, NULL, 4));

    IS(87, EnumerateTraceGuidsEx(TraceGuidQueryProcess, NULL, 0, bytes, sizeof bytes, NULL));
    for (int which = -1; which < 31; which++) {
        int is_known = which == 0 || which == 1 || which == 2 || which == 12 || which == 13 || which == 19;
        IS(87, is_known ? 87 : list(which, bytes, 16, bytes, 64));
    }
    IS(87, list(1, NULL, 16, bytes, 64));
    IS(87, list(1, bytes, 15, bytes, 64));
    IS(87, list(13, bytes, 17, bytes, 64));
    IS(87, list(13, NULL, 0, NULL, 0));
    IS(87, list(0, NULL, 0, NULL, 64));
    IS(87, list(19, NULL, 0, NULL, 4));
    IS(UNTOUCHED, returned);

    CLASSIC_EVENT_ID events[5];
    memset(events, 0, sizeof events);
    IS(87, TraceConfigureLastBranchRecord(STALE, TRACE_LBR_CONFIGURATION_NONE, events, 5));
    IS(87, TraceConfigureLastBranchRecord(STALE, TRACE_LBR_CONFIGURATION_NONE, NULL, 0xFFFFFFFF));
    IS(87, TraceConfigureLastBranchRecord(STALE, TRACE_LBR_CONFIGURATION_NONE, NULL, 1));
    IS(87, TraceConfigureLastBranchRecord(0, TRACE_LBR_CONFIGURATION_NONE, events, 1));
    IS(87, TraceConfigureLastBranchRecord(0, TRACE_LBR_CONFIGURATION_NONE, NULL, 0));
}

/* Information that needs no daemon: of the machine, of the library and of the process. Buffers may
 * be at any address. */
static void own_knowledge(void) {
    ULONG counters = 77, needed, sources;
    GUID *guids = (GUID *)(void *)bytes;
    REGHANDLE reg = 0;
    IS(24, query(0, 11, NULL, 0));
    IS(8, returned);
    memset(bytes, 0xAA, sizeof bytes);
    IS(0, query(0, 11, bytes + 1, 9));
    IS(8, returned);
    IS(1, bytes[1] != 0xAA && bytes[5] == 0 && bytes[9] == 0xAA);
    IS(0, TraceQueryInformation(0, TraceVersionInfo, bytes, 8, NULL));
    IS(0, query(STALE, 17, bytes, 24));
    IS(8, returned);
    IS(1, ((TRACE_PERIODIC_CAPTURE_STATE_INFO *)(void *)bytes)->ProviderCount > 0);
    IS(0, query(STALE, 22, &counters, sizeof counters));
    IS(1, counters < 64);

    IS(24, query(0, 7, NULL, 0));
    sources = returned;
    IS(1, sources >= 32 && sources < sizeof bytes);
    memset(bytes, 0xAA, sizeof bytes);
    IS(24, query(0, 7, bytes, sources - 1));
    IS(sources, returned);
    IS(0xAA, bytes[0]);
    IS(0, query(0, 7, bytes, sources));
    IS(1, is_wide(((PROFILE_SOURCE_INFO *)(void *)bytes)->Description, "Timer"));

    /* Counter owners: the length is checked first, then the session, then the processor. */
    needed = 8 + 12 * counters;
    memset(bytes, 0xFF, sizeof bytes);
    IS(24, query(STALE, 25, bytes, needed - 1));
    IS(needed, returned);
    IS(0xFF, bytes[0]);
    IS(24, query(0, 25, bytes, 8 - 1));
    IS(87, query(STALE, 25, bytes, needed));
    IS(87, query(0, 25, bytes, needed));
    IS(UNTOUCHED, returned);
    memset(bytes, 0, 8);
    IS(0, query(0, 25, bytes, needed));
    IS(needed, returned);
    IS(counters, ((ETW_PMC_COUNTER_OWNERSHIP_STATUS *)(void *)bytes)->NumberOfCounters);

    IS(0, list(2, NULL, 0, NULL, 0));
    IS(0, returned);
    IS(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    IS(122, list(2, NULL, 0, NULL, 0));
    IS(16, returned);
    IS(122, list(2, NULL, 0, bytes, 15));
    IS(0, list(2, bytes, 16, bytes, 16));
    IS(0, memcmp(guids, &PROVIDER, sizeof PROVIDER));
    IS(0, EventUnregister(reg));
}

/* Information that needs a daemon, and the status without one. */
static void of_a_daemon(ULONG with_session, ULONG unknown, ULONG idle) {
    CLASSIC_EVENT_ID event;
    memset(&event, 0, sizeof event);
    event.EventGuid = THREAD;
    event.Type = 36;
    memset(bytes, 0, sizeof bytes);
    IS(with_session, set(STALE, 3, &event, sizeof event));
    IS(with_session, set(STALE, 3, NULL, 0));
    IS(with_session, set(STALE, 18, bytes, 1));
    /* The count in a buffer is not checked by its length alone. */
    bytes[4] = 2;
    IS(with_session, set(STALE, 16, bytes, 8));
    IS(with_session, set(STALE, 16, NULL, 0));
    IS(with_session, query(STALE, 3, NULL, 0));
    IS(with_session, query(STALE, 14, bytes, 64));
    IS(with_session, query(STALE, 23, bytes, 4));
    IS(UNTOUCHED, returned);
    IS(with_session, TraceConfigureLastBranchRecord(STALE, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    event.EventGuid = PROVIDER;
    IS(with_session, TraceConfigureLastBranchRecord(STALE, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    IS(idle, query(STALE, 19, bytes, 4));
    memset(bytes, 0, 16);
    IS(idle, query(0, 5, bytes, 8));
    IS(idle, query(0, 27, NULL, 0));
    IS(idle, list(0, NULL, 0, NULL, 0));
    IS(idle, list(12, NULL, 0, NULL, 0));
    IS(idle, list(19, NULL, 0, bytes, 4));
    memset(bytes, 1, 16);
    IS(unknown, list(1, bytes, 16, NULL, 0));
    IS(unknown, list(13, bytes, 16, bytes, 64));
}

/* A private session has one class: it records the modules of its providers, both of those that are
 * already enabled and of later ones. */
static void own_session(const char *folder) {
    CONTROLTRACE_ID id = 0;
    REGHANDLE reg = 0, later = 0;
    CLASSIC_EVENT_ID event;
    with_file(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
              in(folder, "tracked.etl"));
    IS(0, StartTraceW(&id, u"tracked", &block.p));
    IS(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 5, 0, 0, 0, NULL));
    memset(&event, 0, sizeof event);
    event.EventGuid = THREAD;
    memset(bytes, 0, sizeof bytes);
    IS(24, set(id, 18, NULL, 0));
    IS(87, set(id, 18, NULL, 1));
    IS(50, set(id, 3, &event, sizeof event));
    IS(50, set(id, 3, NULL, 0));
    IS(24, set(id, 3, &event, 23));
    IS(50, set(id, 4, bytes, 4));
    IS(87, set(id, 5, bytes, 8));
    IS(50, set(id, 10, NULL, 0));
    IS(50, set(id, 16, bytes, 8));
    IS(50, set(id, 26, bytes, 12));
    IS(50, query(id, 3, NULL, 0));
    IS(50, query(id, 23, bytes, 4));
    IS(24, query(id, 23, bytes, 3));
    IS(0, query(id, 19, bytes, 4));
    IS(0, query(id, 17, bytes, 8));
    IS(87, query(id, 11, bytes, 8));
    IS(50, TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    IS(50, TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE, NULL, 0));
    bytes[0] = 1;
    IS(0, set(id, 18, bytes, 1));
    IS(0, EnableTraceEx2(id, &LATER, 1, 5, 0, 0, 0, NULL));
    IS(0, EventRegister(&LATER, NULL, NULL, &later));
    bytes[0] = 0;
    IS(0, set(id, 18, bytes, 4));
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    IS(0, StopTraceW(id, NULL, &empty(&block)->p));
    IS(4201, set(id, 18, bytes, 1));
    IS(4201, set(id, 3, NULL, 0));
    IS(0, EventUnregister(reg));
    IS(0, EventUnregister(later));
}

int main(int argc, char **argv) {
    ULONG unreachable = argc > 2 ? (ULONG)strtoul(argv[2], NULL, 10) : 0;
    wrong_calls();
    own_knowledge();
    if (unreachable != 0) {
        of_a_daemon(unreachable, unreachable, unreachable);
        memset(bytes, 0, 8);
        IS(unreachable, set(0, 5, bytes, 8));
        IS(unreachable, set(0, 6, NULL, 0));
    } else {
        of_a_daemon(4201, 4200, 0);
        own_session(argc > 1 ? argv[1] : ".");
    }
    return finish();
}
