/* Controllers and memory: nothing is read or written outside of the caller's memory, wherever it
 * is; and only those names in a block are read that the call needs.
 *
 *   control_edges FOLDER      with a daemon; logs go there
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

/* Returns the address of a number of bytes before the edge. */
static void *before_edge(size_t bytes) {
    return edge - bytes;
}

static void *copied(const void *from, size_t bytes) {
    return memcpy(before_edge(bytes), from, bytes);
}

static CONTROLTRACE_ID started(const WCHAR *name, ULONG mode, const char *file) {
    CONTROLTRACE_ID id = 0;
    with_file(&block, mode, file)->p.BufferSize = 4;
    IS(0, StartTraceW(&id, name, &block.p));
    return id;
}

/* A block of a number of bytes before the edge, at any alignment; an offset of 0 is none. */
static PEVENT_TRACE_PROPERTIES block_before_edge(ULONG bytes, ULONG name, ULONG file) {
    EVENT_TRACE_PROPERTIES head;
    memset(&head, 0, sizeof head);
    head.Wnode.BufferSize = bytes;
    head.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
    head.LoggerNameOffset = name;
    head.LogFileNameOffset = file;
    memset(before_edge(bytes), 'x', bytes);
    return (PEVENT_TRACE_PROPERTIES)memcpy(before_edge(bytes), &head, sizeof head);
}

/* The session is called "edge" and has no file: five units, and one. */
static void rooms(CONTROLTRACE_ID id) {
    for (ULONG more = 0; more < 24; more++) {
        ULONG size = sizeof(EVENT_TRACE_PROPERTIES) + more, name = sizeof(EVENT_TRACE_PROPERTIES);
        IS(0, ControlTraceW(id, NULL, block_before_edge(size, 0, 0), EVENT_TRACE_CONTROL_QUERY));
        IS(0, ControlTraceA(id, NULL, block_before_edge(size, 0, 0), EVENT_TRACE_CONTROL_QUERY));
        if (more == 0) {
            continue;
        }
        IS(more >= 10 ? 0 : 234, QueryTraceW(id, NULL, block_before_edge(size, name, 0)));
        IS(more >= 5 ? 0 : 234, QueryTraceA(id, NULL, block_before_edge(size, name, 0)));
        IS(more >= 2 ? 0 : 234, QueryTraceW(id, NULL, block_before_edge(size, 0, name)));
        IS(0, QueryTraceA(id, NULL, block_before_edge(size, 0, name)));
        /* Both names at one offset; that of the file in the last byte; the name after the file. */
        IS(more >= 10 ? 0 : 234, QueryTraceW(id, NULL, block_before_edge(size, name, name)));
        IS(more >= 6 ? 0 : 234, QueryTraceA(id, NULL, block_before_edge(size, name, size - 1)));
        IS(234, QueryTraceW(id, NULL, block_before_edge(size, name, size - 1)));
        IS(234, QueryTraceA(id, NULL, block_before_edge(size, size - 1, name)));
    }
    /* An array of one block, also at the edge. */
    PEVENT_TRACE_PROPERTIES *all = (PEVENT_TRACE_PROPERTIES *)before_edge(sizeof *all);
    PEVENT_TRACE_PROPERTIES none = NULL, one = &empty(&block)->p;
    ULONG running = 0;
    memcpy(all, &one, sizeof one);
    IS(234, QueryAllTracesW(all, 1, &running));
    IS(1, running > 1);
    memcpy(all, &none, sizeof none);
    IS(87, QueryAllTracesA(all, 1, &running));
}

/* Names that lie at the edge, at odd addresses or in the block itself, or have no terminator. */
static void names(CONTROLTRACE_ID id) {
    static const WCHAR NAME[] = u"edge";
    static WCHAR endless[1024];
    IS(0, QueryTraceW(0, (LPCWSTR)copied(NAME, sizeof NAME), &empty(&block)->p));
    IS(id, block.p.Wnode.HistoricalContext);
    IS(0, QueryTraceA(0, (LPCSTR)copied("edge", 5), &empty(&block)->p));
    unsigned char *odd = (unsigned char *)before_edge(PAGE + 1);
    memcpy(odd, NAME, sizeof NAME);
    IS(0, QueryTraceW(0, (LPCWSTR)(void *)odd, &empty(&block)->p));
    empty(&block);
    memcpy(block.name, NAME, sizeof NAME);
    IS(0, QueryTraceW(0, block.name, &block.p));
    IS(id, block.p.Wnode.HistoricalContext);
    for (unsigned i = 0; i < 1024; i++) {
        endless[i] = u'x';
    }
    IS(87, QueryTraceW(0, (LPCWSTR)copied(endless, sizeof endless), &empty(&block)->p));
    memset(before_edge(3 * 1024), 'x', 3 * 1024);
    IS(87, StopTraceA(0, (LPCSTR)before_edge(3 * 1024), &empty(&block)->p));
    /* The id may be stored in the block. */
    with_file(&block, EVENT_TRACE_REAL_TIME_MODE, "");
    IS(0, StartTraceW(&block.p.Wnode.HistoricalContext, u"inside", &block.p));
    id = block.p.Wnode.HistoricalContext;
    IS(1, id > 0xFFFF);
    IS(0, StopTraceW(id, NULL, &empty(&block)->p));
}

/* Room for the name of the file, without a text in it. */
static PEVENT_TRACE_PROPERTIES no_text(void) {
    with_file(&block, 0, "");
    for (unsigned i = 0; i < NAME_ROOM; i++) {
        block.file[i] = 0xD800;
    }
    return &block.p;
}

/* Only UPDATE, and FLUSH of a flight recorder, read the name of the file. All others write the name
 * of the session's own file there. */
static void unread_names(const char *folder) {
    CONTROLTRACE_ID file = started(u"file", EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "file.etl"));
    CONTROLTRACE_ID flight = started(u"flight", EVENT_TRACE_BUFFERING_MODE, "");
    CONTROLTRACE_ID own =
        started(u"own", EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
                in(folder, "own.etl"));
    CONTROLTRACE_ID both[] = {file, own};
    for (unsigned i = 0; i < 2; i++) {
        const char *name = in(folder, i == 0 ? "file.etl" : "own.etl");
        IS(0, QueryTraceW(both[i], NULL, no_text()));
        IS(1, is_wide(block.file, name));
        IS(0, FlushTraceW(both[i], NULL, no_text()));
        IS(1, is_wide(block.file, name));
        IS(1, ControlTraceW(both[i], NULL, no_text(), EVENT_TRACE_CONTROL_INCREMENT_FILE));
        IS(87, UpdateTraceW(both[i], NULL, no_text()));
        IS(0, QueryTraceW(both[i], NULL, no_text()));
    }
    IS(1, ControlTraceW(own, NULL, no_text(), EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    IS(0, ControlTraceW(file, NULL, no_text(), EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    IS(0, StopTraceW(own, NULL, no_text()));
    IS(0, StopTraceW(file, NULL, no_text()));
    IS(87, FlushTraceW(flight, NULL, no_text()));
    IS(0, FlushTraceW(flight, NULL, &with_file(&block, 0, in(folder, "snapshot.etl"))->p));
    IS(0, StopTraceW(flight, NULL, no_text()));
    IS(4201, FlushTraceW(flight, NULL, no_text()));
}

static void parameters(CONTROLTRACE_ID id) {
    ENABLE_TRACE_PARAMETERS params;
    EVENT_FILTER_DESCRIPTOR filter;
    unsigned char ids[] = {1, 0, 1, 0, 7, 0};
    memset(&params, 0, sizeof params);
    /* Version 1 has no count after the address. */
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION;
    const size_t FIRST = offsetof(ENABLE_TRACE_PARAMETERS, FilterDescCount);
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, (PENABLE_TRACE_PARAMETERS)copied(&params, FIRST)));
    memset(&filter, 0, sizeof filter);
    filter.Type = EVENT_FILTER_TYPE_EVENT_ID;
    filter.Size = sizeof ids;
    filter.Ptr = (ULONG_PTR)copied(ids, sizeof ids);
    params.EnableFilterDesc = &filter;
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    filter.Ptr = (ULONG_PTR)ids;
    params.EnableFilterDesc = (PEVENT_FILTER_DESCRIPTOR)copied(&filter, sizeof filter);
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.EnableFilterDesc = (PEVENT_FILTER_DESCRIPTOR)(void *)((unsigned char *)before_edge(PAGE + 3));
    memcpy(params.EnableFilterDesc, &filter, sizeof filter);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.FilterDescCount = 1;
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, (PENABLE_TRACE_PARAMETERS)copied(&params, sizeof params)));
    IS(0, EnableTraceEx2(id, (LPCGUID)copied(&PROVIDER, sizeof PROVIDER), 0, 4, 0, 0, 0, NULL));
    IS(0, EnableTrace(1, 1, 4, (LPCGUID)copied(&PROVIDER, sizeof PROVIDER), id));

    unsigned char sid[12] = {1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    GUID object = PROVIDER;
    ULONG size = 0;
    IS(0, EventAccessControl(&object, 0, copied(sid, sizeof sid), 1, TRUE));
    IS(234, EventAccessQuery(&object, NULL, &size));
    IS(0, EventAccessQuery(&object, before_edge(size), &size));
    IS(0, EventAccessRemove((LPGUID)copied(&object, sizeof object)));
    /* A SID whose count is larger than allowed. */
    unsigned char liar[2] = {1, 255};
    IS(87, EventAccessControl(&object, 0, copied(liar, sizeof liar), 1, TRUE));
}

static ULONG query(CONTROLTRACE_ID id, int which, ULONG length, ULONG *returned) {
    memset(before_edge(length), 0, length);
    return TraceQueryInformation(id, (TRACE_INFO_CLASS)which, before_edge(length), length, returned);
}

static void information(CONTROLTRACE_ID id) {
    CLASSIC_EVENT_ID events[2];
    unsigned char on = 1;
    ULONG returned = 0, needed;
    GUID providers[3];
    memset(events, 0, sizeof events);
    for (unsigned char i = 0; i < 3; i++) {
        memset(&providers[i], 7 + i, sizeof providers[i]);
    }
    events[0].EventGuid = events[1].EventGuid = SYSTEM_CLASS;
    IS(0, TraceSetInformation(id, TraceProviderBinaryTracking, copied(&on, 1), 1));
    IS(0, TraceSetInformation(id, TraceSetDisallowList, copied(providers, sizeof providers), sizeof providers));
    /* A call that is refused for its length has read no more bytes than that. */
    IS(24, TraceSetInformation(id, TraceStackTracingInfo, copied(events, 23), 23));
    IS(24, TraceSetInformation(id, TraceSampledProfileIntervalInfo, copied(events, 7), 7));
    IS(87, TraceSetInformation(id, TraceStackTracingInfo, copied(events, sizeof events), sizeof events));
    /* A caller without the right to profile the system is refused for that reason, whatever the
     * events are. */
    ULONG refused = TraceConfigureLastBranchRecord(id, TRACE_LBR_CONFIGURATION_NONE,
                                                   (const CLASSIC_EVENT_ID *)copied(events, sizeof events), 2);
    IS(1, refused == 87 || refused == 1314);
    /* Providers are not read past the end of the buffer. */
    TRACE_PERIODIC_CAPTURE_STATE_INFO periodic = {3600, 0xFFFF, 0};
    IS(24, TraceSetInformation(id, TracePeriodicCaptureStateListInfo, copied(&periodic, sizeof periodic), sizeof periodic));
    IS(24, query(id, TraceDisallowListQuery, 16, &returned));
    IS(48, returned);
    IS(0, query(id, TraceDisallowListQuery, 48, &returned));
    IS(0, memcmp(before_edge(48), providers, 48));
    IS(0, query(id, TraceStreamCount, 4, NULL));
    IS(24, TraceQueryInformation(0, TraceProfileSourceListInfo, NULL, 0, &needed));
    IS(24, query(0, TraceProfileSourceListInfo, needed - 1, &returned));
    IS(0, query(0, TraceProfileSourceListInfo, needed, &returned));
    IS(needed, returned);
    /* The length may be stored inside the answer: it is written last. */
    ULONG *over = (ULONG *)before_edge(8);
    IS(0, TraceQueryInformation(0, TraceVersionInfo, over, 8, over + 1));
    IS(8, over[1]);
    IS(0, TraceQueryInformation(id, TraceMaxLoggersQuery, before_edge(4), 4, (PULONG)before_edge(4)));

    /* The input may lie where the answer is written. */
    GUID *place = (GUID *)before_edge(16);
    memcpy(place, &PROVIDER, sizeof PROVIDER);
    IS(122, EnumerateTraceGuidsEx(TraceGuidQueryInfo, place, 16, place, 16, &needed));
    IS(0, memcmp(place, &PROVIDER, sizeof PROVIDER));
    place = (GUID *)before_edge(needed);
    memcpy(place, &PROVIDER, sizeof PROVIDER);
    IS(0, EnumerateTraceGuidsEx(TraceGuidQueryInfo, place, 16, place, needed, &returned));
    IS(1, ((TRACE_GUID_INFO *)(void *)place)->InstanceCount);
    IS(87, EnumerateTraceGuidsEx(TraceGuidQueryInfo, before_edge(17), 0xFFFFFFFF, place, needed, &returned));
    IS(122, EnumerateTraceGuidsEx(TraceGuidQueryList, NULL, 0, before_edge(1), 1, &needed));
    IS(0, EnumerateTraceGuidsEx(TraceGuidQueryList, NULL, 0, before_edge(needed), needed, (PULONG)before_edge(4)));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    unsigned char *pages = (unsigned char *)mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REGHANDLE reg = 0;
    edge = pages + PAGES * PAGE;
    IS(0, mprotect(edge, PAGE, PROT_NONE));
    IS(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    CONTROLTRACE_ID id = started(u"edge", EVENT_TRACE_REAL_TIME_MODE, "");
    CONTROLTRACE_ID other = started(u"other", EVENT_TRACE_REAL_TIME_MODE, "");
    rooms(id);
    names(id);
    unread_names(folder);
    parameters(id);
    information(id);
    IS(0, StopTraceW(other, NULL, &empty(&block)->p));
    IS(0, StopTraceW(id, NULL, &empty(&block)->p));
    IS(0, EventUnregister(reg));
    return finish();
}
