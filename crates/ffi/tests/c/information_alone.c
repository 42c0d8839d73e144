/* Information calls while no daemon answers: errors in the arguments, and information of the
 * library itself, do not depend on a daemon.
 *
 *   information_alone FOLDER            no daemon runs: the answers are those of an idle system; a
 *                                       private session writes tracked.etl
 *   information_alone FOLDER STATUS     a socket exists and does not answer: queries that need a
 *                                       daemon return STATUS
 */
#include "control.h"

#include <evntprov.h>

static BLOCKW block;
static unsigned char bytes[1 << 16];
static ULONG returned;
static const GUID PROVIDER = {0xC0FFEE09, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID LATER_PROVIDER = {0xC0FFEE0A, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID THREAD_CLASS = {0x3d6fa8d1, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};

#define UNTOUCHED 0xEEEEEEEEu

static ULONG set_information(CONTROLTRACE_ID id, int info_class, void *info, ULONG length) {
    return TraceSetInformation(id, (TRACE_INFO_CLASS)info_class, info, length);
}

static ULONG query_information(CONTROLTRACE_ID id, int info_class, void *info, ULONG length) {
    returned = UNTOUCHED;
    return TraceQueryInformation(id, (TRACE_INFO_CLASS)info_class, info, length, &returned);
}

static ULONG list_guids(int info_class, void *in, ULONG in_length, void *out, ULONG length) {
    returned = UNTOUCHED;
    return EnumerateTraceGuidsEx((TRACE_QUERY_INFO_CLASS)info_class, in, in_length, out, length, &returned);
}

/* Errors that the library finds without a daemon. The tables have numbers of TRACE_INFO_CLASS.
 * Classes with `can_clear` accept a length of 0, which clears the setting. */
static void check_invalid_calls(void) {
    static const int NOT_SETTABLE[] = {-1, 0, 1, 2, 7, 11, 12, 13, 14, 15, 17, 19, 22, 23, 25, 27, 29, 0x7FFFFFFF};
    static const int NOT_QUERYABLE[] = {-1, 0, 1, 2, 6, 8, 9, 10, 12, 13, 15, 16, 18, 20, 21, 24, 26, 28, 29};
    static const struct {
        int info_class;
        ULONG min_length;
        int can_clear;
    } LENGTHS[] = {{3, 24, 1}, {4, 4, 0},  {5, 8, 0},  {6, 4, 1},  {8, 24, 0},  {9, 4, 0},   {10, 16, 1},
                   {16, 8, 1}, {18, 1, 0}, {20, 4, 0}, {21, 4, 1}, {24, 12, 0}, {26, 12, 0}, {28, 8, 1}};
    for (unsigned i = 0; i < sizeof NOT_SETTABLE / sizeof NOT_SETTABLE[0]; i++) {
        EXPECT(ERROR_NOT_SUPPORTED, set_information(STALE_ID, NOT_SETTABLE[i], NULL, 8));
    }
    for (unsigned i = 0; i < sizeof NOT_QUERYABLE / sizeof NOT_QUERYABLE[0]; i++) {
        EXPECT(ERROR_NOT_SUPPORTED, query_information(STALE_ID, NOT_QUERYABLE[i], NULL, 8));
        EXPECT(UNTOUCHED, returned);
    }
    memset(bytes, 0, sizeof bytes);
    for (unsigned i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        int info_class = LENGTHS[i].info_class, is_system_wide = info_class == 5 || info_class == 6;
        ULONG min_length = LENGTHS[i].min_length;
        EXPECT(ERROR_INVALID_PARAMETER, set_information(STALE_ID, info_class, NULL, min_length));
        EXPECT(ERROR_INVALID_PARAMETER, set_information(STALE_ID, info_class, NULL, 0xFFFFFFFF));
        EXPECT(ERROR_BAD_LENGTH, min_length > 1 ? set_information(STALE_ID, info_class, bytes, min_length - 1) : ERROR_BAD_LENGTH);
        EXPECT(ERROR_BAD_LENGTH, min_length > 1 ? set_information(STALE_ID, info_class, bytes + 1, min_length - 1) : ERROR_BAD_LENGTH);
        if (!LENGTHS[i].can_clear) {
            EXPECT(ERROR_BAD_LENGTH, set_information(STALE_ID, info_class, NULL, 0));
            EXPECT(ERROR_BAD_LENGTH, set_information(STALE_ID, info_class, bytes, 0));
        }
        /* The session id is checked next. */
        EXPECT(ERROR_INVALID_PARAMETER, set_information(is_system_wide ? STALE_ID : 0, info_class, bytes, min_length));
    }
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TraceStackTracingInfo, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TraceDisallowListQuery, NULL, 0));
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceSystemTraceEnableFlagsInfo, NULL, 0));
    EXPECT(32, returned);
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TraceSystemTraceEnableFlagsInfo, bytes, 32));
    EXPECT(ERROR_BAD_LENGTH, query_information(STALE_ID, TraceSampledProfileIntervalInfo, bytes, 7));
    EXPECT(8, returned);
    EXPECT(ERROR_INVALID_PARAMETER, query_information(STALE_ID, TraceSampledProfileIntervalInfo, bytes, 8));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(STALE_ID, TraceProfileSourceListInfo, bytes, sizeof bytes));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(STALE_ID, TraceVersionInfo, bytes, 8));
    EXPECT(ERROR_BAD_LENGTH, query_information(STALE_ID, TraceMaxLoggersQuery, bytes, 3));
    EXPECT(4, returned);
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceStreamCount, bytes, 3));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TraceStreamCount, bytes, 4));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(STALE_ID, TracePmcSessionInformation, bytes, 4));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TracePmcSessionInformation, NULL, 4));

    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuidsEx(TraceGuidQueryProcess, NULL, 0, bytes, sizeof bytes, NULL));
    for (int info_class = -1; info_class < 31; info_class++) {
        int is_known = info_class == 0 || info_class == 1 || info_class == 2 || info_class == 12 || info_class == 13 || info_class == 19;
        EXPECT(ERROR_INVALID_PARAMETER, is_known ? ERROR_INVALID_PARAMETER : list_guids(info_class, bytes, 16, bytes, 64));
    }
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceGuidQueryInfo, NULL, 16, bytes, 64));
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceGuidQueryInfo, bytes, 15, bytes, 64));
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceGroupQueryInfo, bytes, 17, bytes, 64));
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceGroupQueryInfo, NULL, 0, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceGuidQueryList, NULL, 0, NULL, 64));
    EXPECT(ERROR_INVALID_PARAMETER, list_guids(TraceMaxLoggersQuery, NULL, 0, NULL, 4));
    EXPECT(UNTOUCHED, returned);

    CLASSIC_EVENT_ID events[5];
    memset(events, 0, sizeof events);
    EXPECT(ERROR_INVALID_PARAMETER, TraceConfigureLastBranchRecord(STALE_ID, TRACE_LBR_CONFIGURATION_NONE, events, 5));
    EXPECT(ERROR_INVALID_PARAMETER, TraceConfigureLastBranchRecord(STALE_ID, TRACE_LBR_CONFIGURATION_NONE, NULL, 0xFFFFFFFF));
    EXPECT(ERROR_INVALID_PARAMETER, TraceConfigureLastBranchRecord(STALE_ID, TRACE_LBR_CONFIGURATION_NONE, NULL, 1));
    EXPECT(ERROR_INVALID_PARAMETER, TraceConfigureLastBranchRecord(0, TRACE_LBR_CONFIGURATION_NONE, events, 1));
    EXPECT(ERROR_INVALID_PARAMETER, TraceConfigureLastBranchRecord(0, TRACE_LBR_CONFIGURATION_NONE, NULL, 0));
}

/* Information that needs no daemon: of the machine, of the library and of the process. Buffers may
 * be at any address. */
static void check_local_information(void) {
    ULONG counters = 77, needed, sources;
    GUID *guids = (GUID *)(void *)bytes;
    REGHANDLE reg = 0;
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceVersionInfo, NULL, 0));
    EXPECT(8, returned);
    memset(bytes, 0xAA, sizeof bytes);
    EXPECT(0, query_information(0, TraceVersionInfo, bytes + 1, 9));
    EXPECT(8, returned);
    EXPECT(1, bytes[1] != 0xAA && bytes[5] == 0 && bytes[9] == 0xAA);
    EXPECT(0, TraceQueryInformation(0, TraceVersionInfo, bytes, 8, NULL));
    EXPECT(0, query_information(STALE_ID, TracePeriodicCaptureStateInfo, bytes, 24));
    EXPECT(8, returned);
    EXPECT(1, ((TRACE_PERIODIC_CAPTURE_STATE_INFO *)(void *)bytes)->ProviderCount > 0);
    EXPECT(0, query_information(STALE_ID, TraceMaxPmcCounterQuery, &counters, sizeof counters));
    EXPECT(1, counters < 64);

    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceProfileSourceListInfo, NULL, 0));
    sources = returned;
    EXPECT(1, sources >= 32 && sources < sizeof bytes);
    memset(bytes, 0xAA, sizeof bytes);
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceProfileSourceListInfo, bytes, sources - 1));
    EXPECT(sources, returned);
    EXPECT(0xAA, bytes[0]);
    EXPECT(0, query_information(0, TraceProfileSourceListInfo, bytes, sources));
    EXPECT(1, equals_wide(((PROFILE_SOURCE_INFO *)(void *)bytes)->Description, "Timer"));

    /* Counter owners: the length is checked first, then the session, then the processor. */
    needed = 8 + 12 * counters;
    memset(bytes, 0xFF, sizeof bytes);
    EXPECT(ERROR_BAD_LENGTH, query_information(STALE_ID, TracePmcCounterOwners, bytes, needed - 1));
    EXPECT(needed, returned);
    EXPECT(0xFF, bytes[0]);
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TracePmcCounterOwners, bytes, 8 - 1));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(STALE_ID, TracePmcCounterOwners, bytes, needed));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(0, TracePmcCounterOwners, bytes, needed));
    EXPECT(UNTOUCHED, returned);
    memset(bytes, 0, 8);
    EXPECT(0, query_information(0, TracePmcCounterOwners, bytes, needed));
    EXPECT(needed, returned);
    EXPECT(counters, ((ETW_PMC_COUNTER_OWNERSHIP_STATUS *)(void *)bytes)->NumberOfCounters);

    EXPECT(0, list_guids(TraceGuidQueryProcess, NULL, 0, NULL, 0));
    EXPECT(0, returned);
    EXPECT(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, list_guids(TraceGuidQueryProcess, NULL, 0, NULL, 0));
    EXPECT(16, returned);
    EXPECT(ERROR_INSUFFICIENT_BUFFER, list_guids(TraceGuidQueryProcess, NULL, 0, bytes, 15));
    EXPECT(0, list_guids(TraceGuidQueryProcess, bytes, 16, bytes, 16));
    EXPECT(0, memcmp(guids, &PROVIDER, sizeof PROVIDER));
    EXPECT(0, EventUnregister(reg));
}

/* Checks calls that need a daemon. The parameters are the status of calls about a session, of calls
 * about a GUID, and of all other calls. */
static void check_daemon_information(ULONG session_status, ULONG guid_status, ULONG other_status) {
    CLASSIC_EVENT_ID event;
    memset(&event, 0, sizeof event);
    /* A context switch. */
    event.EventGuid = THREAD_CLASS;
    event.Type = 36;
    memset(bytes, 0, sizeof bytes);
    EXPECT(session_status, set_information(STALE_ID, TraceStackTracingInfo, &event, sizeof event));
    EXPECT(session_status, set_information(STALE_ID, TraceStackTracingInfo, NULL, 0));
    EXPECT(session_status, set_information(STALE_ID, TraceProviderBinaryTracking, bytes, 1));
    /* The number of providers in the buffer is too large. Only the daemon checks it. */
    bytes[4] = 2;
    EXPECT(session_status, set_information(STALE_ID, TracePeriodicCaptureStateListInfo, bytes, 8));
    EXPECT(session_status, set_information(STALE_ID, TracePeriodicCaptureStateListInfo, NULL, 0));
    EXPECT(session_status, query_information(STALE_ID, TraceStackTracingInfo, NULL, 0));
    EXPECT(session_status, query_information(STALE_ID, TraceDisallowListQuery, bytes, 64));
    EXPECT(session_status, query_information(STALE_ID, TraceStreamCount, bytes, 4));
    EXPECT(UNTOUCHED, returned);
    EXPECT(session_status, TraceConfigureLastBranchRecord(STALE_ID, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    event.EventGuid = PROVIDER;
    EXPECT(session_status, TraceConfigureLastBranchRecord(STALE_ID, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    EXPECT(other_status, query_information(STALE_ID, TraceMaxLoggersQuery, bytes, 4));
    memset(bytes, 0, 16);
    EXPECT(other_status, query_information(0, TraceSampledProfileIntervalInfo, bytes, 8));
    EXPECT(other_status, query_information(0, TracePmcSessionInformation, NULL, 0));
    EXPECT(other_status, list_guids(TraceGuidQueryList, NULL, 0, NULL, 0));
    EXPECT(other_status, list_guids(TraceGroupQueryList, NULL, 0, NULL, 0));
    EXPECT(other_status, list_guids(TraceMaxLoggersQuery, NULL, 0, bytes, 4));
    memset(bytes, 1, 16);
    EXPECT(guid_status, list_guids(TraceGuidQueryInfo, bytes, 16, NULL, 0));
    EXPECT(guid_status, list_guids(TraceGroupQueryInfo, bytes, 16, bytes, 64));
}

/* A private session supports only TraceProviderBinaryTracking: it records the modules of the
 * providers that are enabled when the class is set, and of those that are enabled later. */
static void check_private_session(const char *folder) {
    CONTROLTRACE_ID id = 0;
    REGHANDLE reg = 0, later = 0;
    CLASSIC_EVENT_ID event;
    file_block(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
              path_in(folder, "tracked.etl"));
    EXPECT(0, StartTraceW(&id, u"tracked", &block.p));
    EXPECT(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 5, 0, 0, 0, NULL));
    memset(&event, 0, sizeof event);
    event.EventGuid = THREAD_CLASS;
    memset(bytes, 0, sizeof bytes);
    EXPECT(ERROR_BAD_LENGTH, set_information(id, TraceProviderBinaryTracking, NULL, 0));
    EXPECT(ERROR_INVALID_PARAMETER, set_information(id, TraceProviderBinaryTracking, NULL, 1));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TraceStackTracingInfo, &event, sizeof event));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TraceStackTracingInfo, NULL, 0));
    EXPECT(ERROR_BAD_LENGTH, set_information(id, TraceStackTracingInfo, &event, 23));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TraceSystemTraceEnableFlagsInfo, bytes, 4));
    EXPECT(ERROR_INVALID_PARAMETER, set_information(id, TraceSampledProfileIntervalInfo, bytes, 8));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TraceSetDisallowList, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TracePeriodicCaptureStateListInfo, bytes, 8));
    EXPECT(ERROR_NOT_SUPPORTED, set_information(id, TraceUnifiedStackCachingInfo, bytes, 12));
    EXPECT(ERROR_NOT_SUPPORTED, query_information(id, TraceStackTracingInfo, NULL, 0));
    EXPECT(ERROR_NOT_SUPPORTED, query_information(id, TraceStreamCount, bytes, 4));
    EXPECT(ERROR_BAD_LENGTH, query_information(id, TraceStreamCount, bytes, 3));
    EXPECT(0, query_information(id, TraceMaxLoggersQuery, bytes, 4));
    EXPECT(0, query_information(id, TracePeriodicCaptureStateInfo, bytes, 8));
    EXPECT(ERROR_INVALID_PARAMETER, query_information(id, TraceVersionInfo, bytes, 8));
    EXPECT(ERROR_NOT_SUPPORTED, TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE, &event, 1));
    EXPECT(ERROR_NOT_SUPPORTED, TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE, NULL, 0));
    bytes[0] = 1;
    EXPECT(0, set_information(id, TraceProviderBinaryTracking, bytes, 1));
    EXPECT(0, EnableTraceEx2(id, &LATER_PROVIDER, 1, 5, 0, 0, 0, NULL));
    EXPECT(0, EventRegister(&LATER_PROVIDER, NULL, NULL, &later));
    bytes[0] = 0;
    EXPECT(0, set_information(id, TraceProviderBinaryTracking, bytes, 4));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, set_information(id, TraceProviderBinaryTracking, bytes, 1));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, set_information(id, TraceStackTracingInfo, NULL, 0));
    EXPECT(0, EventUnregister(reg));
    EXPECT(0, EventUnregister(later));
}

int main(int argc, char **argv) {
    ULONG unreachable = argc > 2 ? (ULONG)strtoul(argv[2], NULL, 10) : 0;
    check_invalid_calls();
    check_local_information();
    if (unreachable != 0) {
        check_daemon_information(unreachable, unreachable, unreachable);
        memset(bytes, 0, 8);
        EXPECT(unreachable, set_information(0, TraceSampledProfileIntervalInfo, bytes, 8));
        EXPECT(unreachable, set_information(0, TraceProfileSourceConfigInfo, NULL, 0));
    } else {
        check_daemon_information(ERROR_WMI_INSTANCE_NOT_FOUND, ERROR_WMI_GUID_NOT_FOUND, ERROR_SUCCESS);
        check_private_session(argc > 1 ? argv[1] : ".");
    }
    return report_rows();
}
