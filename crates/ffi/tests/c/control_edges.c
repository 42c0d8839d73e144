/* Controllers and memory: nothing is read or written outside of the caller's memory, wherever it
 * is; and a call reads only those names in a block that it needs.
 *
 *   control_edges FOLDER      needs a daemon; writes logs to FOLDER
 *
 * All memory that is passed ends at the end of a page, and the next page cannot be accessed.
 */
#include "control.h"

#include <evntcons.h>
#include <evntprov.h>
#include <sys/mman.h>

#define PAGES 16
#define PAGE 4096

static BLOCKW block;
static unsigned char *edge;
static const GUID PROVIDER = {0xC0FFEE0B, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID SYSTEM_CLASS = {0x3d6fa8d1, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};

/* Returns the address of memory that ends at the edge. */
static void *before_edge(size_t bytes) {
    return edge - bytes;
}

static void *copy_before_edge(const void *from, size_t bytes) {
    return memcpy(before_edge(bytes), from, bytes);
}

static CONTROLTRACE_ID start_session(const WCHAR *name, ULONG mode, const char *file) {
    CONTROLTRACE_ID id = 0;
    file_block(&block, mode, file)->p.BufferSize = 4;
    EXPECT(0, StartTraceW(&id, name, &block.p));
    return id;
}

/* Makes a block that ends at the edge, at any alignment. An offset of 0 means no name. */
static PEVENT_TRACE_PROPERTIES block_before_edge(ULONG bytes, ULONG name, ULONG file) {
    EVENT_TRACE_PROPERTIES structure;
    memset(&structure, 0, sizeof structure);
    structure.Wnode.BufferSize = bytes;
    structure.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    structure.LoggerNameOffset = name;
    structure.LogFileNameOffset = file;
    memset(before_edge(bytes), 'x', bytes);
    return (PEVENT_TRACE_PROPERTIES)memcpy(before_edge(bytes), &structure, sizeof structure);
}

/* The session is called "edge" and has no file: its names take five units and one unit. */
static void check_name_areas(CONTROLTRACE_ID id) {
    for (ULONG more = 0; more < 24; more++) {
        ULONG size = sizeof(EVENT_TRACE_PROPERTIES) + more, name = sizeof(EVENT_TRACE_PROPERTIES);
        EXPECT(0, ControlTraceW(id, NULL, block_before_edge(size, 0, 0), EVENT_TRACE_CONTROL_QUERY));
        EXPECT(0, ControlTraceA(id, NULL, block_before_edge(size, 0, 0), EVENT_TRACE_CONTROL_QUERY));
        if (more == 0) {
            continue;
        }
        EXPECT(more >= 10 ? 0 : ERROR_MORE_DATA, QueryTraceW(id, NULL, block_before_edge(size, name, 0)));
        EXPECT(more >= 5 ? 0 : ERROR_MORE_DATA, QueryTraceA(id, NULL, block_before_edge(size, name, 0)));
        EXPECT(more >= 2 ? 0 : ERROR_MORE_DATA, QueryTraceW(id, NULL, block_before_edge(size, 0, name)));
        EXPECT(0, QueryTraceA(id, NULL, block_before_edge(size, 0, name)));
        /* Both names at one offset; the file name in the last byte; the session name in the last
         * byte. */
        EXPECT(more >= 10 ? 0 : ERROR_MORE_DATA, QueryTraceW(id, NULL, block_before_edge(size, name, name)));
        EXPECT(more >= 6 ? 0 : ERROR_MORE_DATA, QueryTraceA(id, NULL, block_before_edge(size, name, size - 1)));
        EXPECT(ERROR_MORE_DATA, QueryTraceW(id, NULL, block_before_edge(size, name, size - 1)));
        EXPECT(ERROR_MORE_DATA, QueryTraceA(id, NULL, block_before_edge(size, size - 1, name)));
    }
    /* An array of one block, also at the edge. */
    PEVENT_TRACE_PROPERTIES *array = (PEVENT_TRACE_PROPERTIES *)before_edge(sizeof *array);
    PEVENT_TRACE_PROPERTIES null_element = NULL, element = &empty_block(&block)->p;
    ULONG running = 0;
    memcpy(array, &element, sizeof element);
    EXPECT(ERROR_MORE_DATA, QueryAllTracesW(array, 1, &running));
    EXPECT(1, running > 1);
    memcpy(array, &null_element, sizeof null_element);
    EXPECT(ERROR_INVALID_PARAMETER, QueryAllTracesA(array, 1, &running));
}

/* Names that lie at the edge, at odd addresses or in the block itself, or have no terminator. */
static void check_names(CONTROLTRACE_ID id) {
    static const WCHAR NAME[] = u"edge";
    static WCHAR endless[1024];
    EXPECT(0, QueryTraceW(0, (LPCWSTR)copy_before_edge(NAME, sizeof NAME), &empty_block(&block)->p));
    EXPECT(id, block.p.Wnode.HistoricalContext);
    EXPECT(0, QueryTraceA(0, (LPCSTR)copy_before_edge("edge", 5), &empty_block(&block)->p));
    unsigned char *odd = (unsigned char *)before_edge(PAGE + 1);
    memcpy(odd, NAME, sizeof NAME);
    EXPECT(0, QueryTraceW(0, (LPCWSTR)(void *)odd, &empty_block(&block)->p));
    empty_block(&block);
    memcpy(block.name, NAME, sizeof NAME);
    EXPECT(0, QueryTraceW(0, block.name, &block.p));
    EXPECT(id, block.p.Wnode.HistoricalContext);
    for (unsigned i = 0; i < 1024; i++) {
        endless[i] = u'x';
    }
    EXPECT(ERROR_INVALID_PARAMETER, QueryTraceW(0, (LPCWSTR)copy_before_edge(endless, sizeof endless), &empty_block(&block)->p));
    memset(before_edge(3 * 1024), 'x', 3 * 1024);
    EXPECT(ERROR_INVALID_PARAMETER, StopTraceA(0, (LPCSTR)before_edge(3 * 1024), &empty_block(&block)->p));
    /* The id may be stored in the block. */
    file_block(&block, EVENT_TRACE_REAL_TIME_MODE, "");
    EXPECT(0, StartTraceW(&block.p.Wnode.HistoricalContext, u"inside", &block.p));
    id = block.p.Wnode.HistoricalContext;
    EXPECT(1, id > 0xFFFF);
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&block)->p));
}

/* Makes a block whose file name is not valid text. */
static PEVENT_TRACE_PROPERTIES block_with_invalid_name(void) {
    file_block(&block, 0, "");
    for (unsigned i = 0; i < NAME_UNITS; i++) {
        block.file[i] = 0xD800;
    }
    return &block.p;
}

/* Only UPDATE, and FLUSH of a flight recorder, read the name of the file. All other calls write
 * the name of the session's file there. */
static void check_unread_file_names(const char *folder) {
    CONTROLTRACE_ID file = start_session(u"file", EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "file.etl"));
    CONTROLTRACE_ID flight = start_session(u"flight", EVENT_TRACE_BUFFERING_MODE, "");
    CONTROLTRACE_ID private_session =
        start_session(u"private_session", EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
                path_in(folder, "private_session.etl"));
    CONTROLTRACE_ID file_sessions[] = {file, private_session};
    for (unsigned i = 0; i < 2; i++) {
        const char *name = path_in(folder, i == 0 ? "file.etl" : "private_session.etl");
        EXPECT(0, QueryTraceW(file_sessions[i], NULL, block_with_invalid_name()));
        EXPECT(1, equals_wide(block.file, name));
        EXPECT(0, FlushTraceW(file_sessions[i], NULL, block_with_invalid_name()));
        EXPECT(1, equals_wide(block.file, name));
        EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(file_sessions[i], NULL, block_with_invalid_name(), EVENT_TRACE_CONTROL_INCREMENT_FILE));
        EXPECT(ERROR_INVALID_PARAMETER, UpdateTraceW(file_sessions[i], NULL, block_with_invalid_name()));
        EXPECT(0, QueryTraceW(file_sessions[i], NULL, block_with_invalid_name()));
    }
    EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(private_session, NULL, block_with_invalid_name(), EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    EXPECT(0, ControlTraceW(file, NULL, block_with_invalid_name(), EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    EXPECT(0, StopTraceW(private_session, NULL, block_with_invalid_name()));
    EXPECT(0, StopTraceW(file, NULL, block_with_invalid_name()));
    EXPECT(ERROR_INVALID_PARAMETER, FlushTraceW(flight, NULL, block_with_invalid_name()));
    EXPECT(0, FlushTraceW(flight, NULL, &file_block(&block, 0, path_in(folder, "snapshot.etl"))->p));
    EXPECT(0, StopTraceW(flight, NULL, block_with_invalid_name()));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, FlushTraceW(flight, NULL, block_with_invalid_name()));
}

static void check_enable_parameters(CONTROLTRACE_ID id) {
    ENABLE_TRACE_PARAMETERS params;
    EVENT_FILTER_DESCRIPTOR filter;
    /* EVENT_FILTER_EVENT_ID: FilterIn, Reserved, Count (1), and the event id 7. */
    unsigned char ids[] = {1, 0, 1, 0, 7, 0};
    memset(&params, 0, sizeof params);
    /* Version 1 has no count after the address. */
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION;
    const size_t V1_BYTES = offsetof(ENABLE_TRACE_PARAMETERS, FilterDescCount);
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, (PENABLE_TRACE_PARAMETERS)copy_before_edge(&params, V1_BYTES)));
    memset(&filter, 0, sizeof filter);
    filter.Type = EVENT_FILTER_TYPE_EVENT_ID;
    filter.Size = sizeof ids;
    filter.Ptr = (ULONG_PTR)copy_before_edge(ids, sizeof ids);
    params.EnableFilterDesc = &filter;
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    filter.Ptr = (ULONG_PTR)ids;
    params.EnableFilterDesc = (PEVENT_FILTER_DESCRIPTOR)copy_before_edge(&filter, sizeof filter);
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.EnableFilterDesc = (PEVENT_FILTER_DESCRIPTOR)(void *)((unsigned char *)before_edge(PAGE + 3));
    memcpy(params.EnableFilterDesc, &filter, sizeof filter);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.FilterDescCount = 1;
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, (PENABLE_TRACE_PARAMETERS)copy_before_edge(&params, sizeof params)));
    EXPECT(0, EnableTraceEx2(id, (LPCGUID)copy_before_edge(&PROVIDER, sizeof PROVIDER), 0, 4, 0, 0, 0, NULL));
    EXPECT(0, EnableTrace(1, 1, 4, (LPCGUID)copy_before_edge(&PROVIDER, sizeof PROVIDER), id));

    unsigned char sid[12] = {1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    GUID object = PROVIDER;
    ULONG size = 0;
    EXPECT(0, EventAccessControl(&object, 0, copy_before_edge(sid, sizeof sid), 1, TRUE));
    EXPECT(ERROR_MORE_DATA, EventAccessQuery(&object, NULL, &size));
    EXPECT(0, EventAccessQuery(&object, before_edge(size), &size));
    EXPECT(0, EventAccessRemove((LPGUID)copy_before_edge(&object, sizeof object)));
    /* A SID whose count is larger than allowed. */
    unsigned char invalid_sid[2] = {1, 255};
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(&object, 0, copy_before_edge(invalid_sid, sizeof invalid_sid), 1, TRUE));
}

static ULONG query_information(CONTROLTRACE_ID id, int info_class, ULONG length, ULONG *returned) {
    memset(before_edge(length), 0, length);
    return TraceQueryInformation(id, (TRACE_INFO_CLASS)info_class, before_edge(length), length, returned);
}

static void check_information(CONTROLTRACE_ID id) {
    CLASSIC_EVENT_ID events[2];
    unsigned char on = 1;
    ULONG returned = 0, needed;
    GUID providers[3];
    memset(events, 0, sizeof events);
    for (unsigned char i = 0; i < 3; i++) {
        memset(&providers[i], 7 + i, sizeof providers[i]);
    }
    events[0].EventGuid = events[1].EventGuid = SYSTEM_CLASS;
    EXPECT(0, TraceSetInformation(id, TraceProviderBinaryTracking, copy_before_edge(&on, 1), 1));
    EXPECT(0, TraceSetInformation(id, TraceSetDisallowList, copy_before_edge(providers, sizeof providers), sizeof providers));
    /* A call that is refused for its length has read no more bytes than that. */
    EXPECT(ERROR_BAD_LENGTH, TraceSetInformation(id, TraceStackTracingInfo, copy_before_edge(events, 23), 23));
    EXPECT(ERROR_BAD_LENGTH, TraceSetInformation(id, TraceSampledProfileIntervalInfo, copy_before_edge(events, 7), 7));
    EXPECT(ERROR_INVALID_PARAMETER, TraceSetInformation(id, TraceStackTracingInfo, copy_before_edge(events, sizeof events), sizeof events));
    /* A caller without the right to profile the system is refused for that reason, whatever the
     * events are. */
    ULONG status = TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE,
                                                  (const CLASSIC_EVENT_ID *)copy_before_edge(events, sizeof events), 2);
    EXPECT(1, status == ERROR_INVALID_PARAMETER || status == ERROR_PRIVILEGE_NOT_HELD);
    /* Providers are not read past the end of the buffer. */
    TRACE_PERIODIC_CAPTURE_STATE_INFO periodic = {3600, 0xFFFF, 0};
    EXPECT(ERROR_BAD_LENGTH, TraceSetInformation(id, TracePeriodicCaptureStateListInfo, copy_before_edge(&periodic, sizeof periodic), sizeof periodic));
    EXPECT(ERROR_BAD_LENGTH, query_information(id, TraceDisallowListQuery, 16, &returned));
    EXPECT(48, returned);
    EXPECT(0, query_information(id, TraceDisallowListQuery, 48, &returned));
    EXPECT(0, memcmp(before_edge(48), providers, 48));
    EXPECT(0, query_information(id, TraceStreamCount, 4, NULL));
    EXPECT(ERROR_BAD_LENGTH, TraceQueryInformation(0, TraceProfileSourceListInfo, NULL, 0, &needed));
    EXPECT(ERROR_BAD_LENGTH, query_information(0, TraceProfileSourceListInfo, needed - 1, &returned));
    EXPECT(0, query_information(0, TraceProfileSourceListInfo, needed, &returned));
    EXPECT(needed, returned);
    /* The length may be stored inside the answer: it is written last. */
    ULONG *answer = (ULONG *)before_edge(8);
    EXPECT(0, TraceQueryInformation(0, TraceVersionInfo, answer, 8, answer + 1));
    EXPECT(8, answer[1]);
    EXPECT(0, TraceQueryInformation(id, TraceMaxLoggersQuery, before_edge(4), 4, (PULONG)before_edge(4)));

    /* The input may lie where the answer is written. */
    GUID *buffer = (GUID *)before_edge(16);
    memcpy(buffer, &PROVIDER, sizeof PROVIDER);
    EXPECT(ERROR_INSUFFICIENT_BUFFER, EnumerateTraceGuidsEx(TraceGuidQueryInfo, buffer, 16, buffer, 16, &needed));
    EXPECT(0, memcmp(buffer, &PROVIDER, sizeof PROVIDER));
    buffer = (GUID *)before_edge(needed);
    memcpy(buffer, &PROVIDER, sizeof PROVIDER);
    EXPECT(0, EnumerateTraceGuidsEx(TraceGuidQueryInfo, buffer, 16, buffer, needed, &returned));
    EXPECT(1, ((TRACE_GUID_INFO *)(void *)buffer)->InstanceCount);
    /* One byte more than a GUID is enough to refuse a longer input: no more than 17 are read. */
    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuidsEx(TraceGuidQueryInfo, before_edge(17), 0xFFFFFFFF, buffer, needed, &returned));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, EnumerateTraceGuidsEx(TraceGuidQueryList, NULL, 0, before_edge(1), 1, &needed));
    EXPECT(0, EnumerateTraceGuidsEx(TraceGuidQueryList, NULL, 0, before_edge(needed), needed, (PULONG)before_edge(4)));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    unsigned char *pages = (unsigned char *)mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REGHANDLE reg = 0;
    edge = pages + PAGES * PAGE;
    EXPECT(0, mprotect(edge, PAGE, PROT_NONE));
    EXPECT(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    CONTROLTRACE_ID id = start_session(u"edge", EVENT_TRACE_REAL_TIME_MODE, "");
    CONTROLTRACE_ID second_id = start_session(u"other", EVENT_TRACE_REAL_TIME_MODE, "");
    check_name_areas(id);
    check_names(id);
    check_unread_file_names(folder);
    check_enable_parameters(id);
    check_information(id);
    EXPECT(0, StopTraceW(second_id, NULL, &empty_block(&block)->p));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&block)->p));
    EXPECT(0, EventUnregister(reg));
    return report_rows();
}
