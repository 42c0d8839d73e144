/* Controllers without a daemon: errors are reported, queries find no sessions, and private sessions
 * run.
 *
 *   control_alone FOLDER      logs go there; the private sessions write own.etl and next.etl
 */
#include "control.h"

#include <evntprov.h>
#include <sys/wait.h>

static BLOCKW block, other;
static const GUID PROVIDER = {0xC0FFEE08, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID KERNEL = {0x9e814aad, 0x3204, 0x11d2, {0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39}};
static const EVENT_DESCRIPTOR EVENT = {1, 0, 0, 4, 0, 0, 1};

static ULONG start(void) {
    CONTROLTRACE_ID id = 7;
    ULONG status = StartTraceW(&id, u"alone", &block.p);
    IS(status == 0, id != 0);
    return status;
}

/* The table of errors of StartTrace that need no daemon. */
static void wrong_starts(const char *folder) {
    CONTROLTRACE_ID id = 7;
    WCHAR longest[1025];
    BLOCKA narrow_block;
    const char *file = in(folder, "never.etl");
    const ULONG SEQUENTIAL = EVENT_TRACE_FILE_MODE_SEQUENTIAL;

    with_file(&block, SEQUENTIAL, file);
    IS(87, StartTraceW(NULL, u"alone", &block.p));
    IS(87, StartTraceW(&id, NULL, &block.p));
    IS(0, id);
    IS(87, StartTraceW(&id, u"alone", NULL));
    IS(87, StartTraceA(NULL, NULL, NULL));

    for (ULONG bytes = 0; bytes < sizeof block.p; bytes += 17) {
        with_file(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = bytes;
        IS(24, start());
    }
    with_file(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = sizeof block.p - 1;
    block.p.Wnode.Flags = 0;
    IS(24, start());
    with_file(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = sizeof block.p;
    IS(87, start());
    with_file(&block, SEQUENTIAL, file)->p.Wnode.Flags = 0;
    IS(87, start());
    /* Version 2: its full length, and the only version number. */
    with_file(&block, SEQUENTIAL, file)->p.Wnode.Flags |= WNODE_FLAG_VERSIONED_PROPERTIES;
    block.p.Wnode.BufferSize = sizeof(EVENT_TRACE_PROPERTIES_V2) - 1;
    IS(24, start());
    block.p.Wnode.BufferSize = sizeof block;
    IS(87, start());

    const ULONG offsets[] = {1, 48, sizeof block.p - 1, sizeof block, sizeof block + 1, 0xFFFFFFFF};
    for (unsigned i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        with_file(&block, SEQUENTIAL, file)->p.LogFileNameOffset = offsets[i];
        IS(87, start());
        with_file(&block, SEQUENTIAL, file)->p.LoggerNameOffset = offsets[i];
        IS(87, start());
    }
    with_file(&block, SEQUENTIAL, file)->p.LoggerNameOffset = 0;
    IS(87, start());
    /* Room for "alone" and its terminator is 12 bytes. */
    with_file(&block, SEQUENTIAL, file)->p.LoggerNameOffset = block.p.LogFileNameOffset - 11;
    IS(24, start());
    with_file(&block, SEQUENTIAL, file)->p.LoggerNameOffset = sizeof block - 10;
    IS(24, start());
    with_file(&block, 0, file)->p.LoggerNameOffset = sizeof block - 1;
    IS(24, start());

    for (unsigned i = 0; i < 1024; i++) {
        longest[i] = u'x';
    }
    longest[1024] = 0;
    IS(87, StartTraceW(&id, longest, &with_file(&block, SEQUENTIAL, file)->p));
    longest[0] = 0xD800;
    longest[1] = 0;
    IS(87, StartTraceW(&id, longest, &with_file(&block, SEQUENTIAL, file)->p));
    IS(87, StartTraceW(&id, u"", &with_file(&block, SEQUENTIAL, file)->p));
    IS(87, StartTraceA(&id, "\xFF", &narrow(&narrow_block, SEQUENTIAL, file)->p));
    /* A file name without a terminator. */
    with_file(&block, SEQUENTIAL, file);
    for (unsigned i = 0; i < NAME_ROOM; i++) {
        block.file[i] = u'x';
    }
    IS(87, start());

    with_file(&block, SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR, file);
    IS(87, start());
    with_file(&block, EVENT_TRACE_PRIVATE_IN_PROC | SEQUENTIAL, file);
    IS(87, start());
    with_file(&block, SEQUENTIAL, file)->p.Wnode.Guid = KERNEL;
    IS(87, start());
    with_file(&block, SEQUENTIAL, file)->p.Wnode.ClientContext = 4;
    IS(87, start());
    with_file(&block, SEQUENTIAL, file)->p.EnableFlags = EVENT_TRACE_FLAG_PROCESS;
    IS(87, start());
    /* A file is required: there is none, or one with an empty name. */
    with_file(&block, SEQUENTIAL, "");
    IS(161, start());
    with_file(&block, 0, file)->p.LogFileNameOffset = 0;
    IS(161, start());
}

static void wrong_controls(void) {
    static const ULONG codes[] = {0, 1, 2, 3, 4, 5};
    for (unsigned i = 0; i < 6; i++) {
        ULONG code = codes[i];
        IS(87, ControlTraceW(0, u"alone", NULL, code));
        IS(87, ControlTraceW(0, NULL, &empty(&block)->p, code));
        IS(87, ControlTraceW(0, u"", &empty(&block)->p, code));
        empty(&block)->p.Wnode.BufferSize = 119;
        IS(24, ControlTraceW(STALE, NULL, &block.p, code));
        empty(&block)->p.LoggerNameOffset = 119;
        IS(87, ControlTraceW(STALE, NULL, &block.p, code));
        empty(&block)->p.LogFileNameOffset = sizeof block;
        IS(87, ControlTraceW(STALE, NULL, &block.p, code));
        empty(&block)->p.Wnode.Guid = KERNEL;
        IS(87, ControlTraceW(0, u"alone", &block.p, code));
        IS(4201, ControlTraceW(STALE, NULL, &empty(&block)->p, code));
        IS(4201, ControlTraceW(1, NULL, &empty(&block)->p, code));
        IS(4201, ControlTraceW(0xFFFFFFFFFFFFFFFFull, NULL, &empty(&block)->p, code));
        IS(4201, ControlTraceW(0, u"alone", &empty(&block)->p, code));
        IS(4201, ControlTraceA(STALE, "alone", &empty(&block)->p, code));
    }
    IS(87, ControlTraceW(STALE, NULL, &empty(&block)->p, 6));
    IS(87, ControlTraceA(STALE, NULL, &empty(&block)->p, 0xFFFFFFFF));
    IS(4201, QueryTraceW(STALE, NULL, &empty(&block)->p));
    IS(4201, StopTraceA(0, "alone", &empty(&block)->p));
    IS(4201, UpdateTraceW(0, u"alone", &empty(&block)->p));
    IS(4201, FlushTraceA(STALE, NULL, &empty(&block)->p));
}

static void lists(void) {
    PEVENT_TRACE_PROPERTIES blocks[1] = {&block.p};
    TRACE_GUID_PROPERTIES properties, *all[1] = {&properties};
    ULONG count = 7;
    IS(87, QueryAllTracesW(NULL, 1, &count));
    IS(87, QueryAllTracesW(blocks, 0, &count));
    IS(87, QueryAllTracesA(blocks, 1, NULL));
    IS(7, count);
    IS(0, QueryAllTracesW(blocks, 1, &count));
    IS(0, count);
    count = 7;
    IS(87, EnumerateTraceGuids(NULL, 1, &count));
    IS(87, EnumerateTraceGuids(all, 0, &count));
    IS(87, EnumerateTraceGuids(all, 1, NULL));
    IS(0, EnumerateTraceGuids(all, 1, &count));
    IS(0, count);
}

static void wrong_enables(CONTROLTRACE_ID id, ULONG if_right) {
    ENABLE_TRACE_PARAMETERS params;
    EVENT_FILTER_DESCRIPTOR filters[14];
    memset(&params, 0, sizeof params);
    memset(filters, 0, sizeof filters);
    IS(87, EnableTraceEx2(0, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    IS(87, EnableTraceEx2(id, NULL, 1, 4, 0, 0, 0, NULL));
    IS(87, EnableTraceEx2(id, &PROVIDER, 3, 4, 0, 0, 0, NULL));
    for (ULONG version = 0; version < 4; version++) {
        params.Version = version;
        IS(version == 1 || version == 2 ? if_right : 87, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    }
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.FilterDescCount = 1;
    IS(87, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.EnableFilterDesc = filters;
    /* Filters of type "none" are ignored. */
    IS(if_right, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.FilterDescCount = 14;
    IS(87, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.FilterDescCount = 1;
    filters[0].Type = EVENT_FILTER_TYPE_EVENT_ID;
    filters[0].Size = 6;
    IS(87, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    filters[0].Ptr = (ULONG_PTR)filters;
    filters[0].Size = 4097;
    IS(87, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    IS(87, EnableTraceEx(&PROVIDER, NULL, id, 1, 4, 0, 0, 0, filters));
    IS(if_right, EnableTraceEx(&PROVIDER, NULL, id, 1, 4, 0, 0, 0, NULL));
    IS(87, EnableTraceEx(NULL, NULL, id, 1, 4, 0, 0, 0, NULL));
    IS(87, EnableTrace(1, 1, 256, &PROVIDER, id));
    IS(87, EnableTrace(1, 1, 4, &PROVIDER, 0));
    IS(if_right, EnableTrace(1, 1, 4, &PROVIDER, id));
}

static void rights(void) {
    GUID object = PROVIDER;
    unsigned char list[512], sid[12] = {1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    ULONG size = 0, small;
    IS(87, EventAccessQuery(NULL, NULL, &size));
    IS(87, EventAccessQuery(&object, list, NULL));
    IS(234, EventAccessQuery(&object, NULL, &size));
    small = size - 1;
    IS(1, size > 20 && size <= sizeof list);
    IS(234, EventAccessQuery(&object, list, &small));
    IS(size, small);
    IS(87, EventAccessQuery(&object, NULL, &small));
    IS(0, EventAccessQuery(&object, list, &size));
    IS(1, list[0]);
    IS(87, EventAccessControl(NULL, 0, sid, 1, TRUE));
    IS(87, EventAccessControl(&object, 0, NULL, 1, TRUE));
    IS(87, EventAccessControl(&object, EventSecurityMax, sid, 1, TRUE));
    sid[1] = 16;
    IS(87, EventAccessControl(&object, 0, sid, 1, TRUE));
    sid[0] = 2;
    IS(87, EventAccessControl(&object, 0, sid, 1, TRUE));
    IS(87, EventAccessRemove(NULL));
}

static int captures;

static void NTAPI count_captures(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                                 PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context;
    captures += code == EVENT_CONTROL_CODE_CAPTURE_STATE;
}

/* Private sessions of this process: found by id alone, or by name and a private mode. */
static void own(const char *folder) {
    const ULONG OWN = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    CONTROLTRACE_ID id = 0, second = 7;
    REGHANDLE reg = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&other.p};
    ULONG count = 7;
    IS(0, EventRegister(&PROVIDER, count_captures, NULL, &reg));
    with_file(&block, OWN | EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "own.etl"))->p.Wnode.Guid = PROVIDER;
    block.p.AgeLimit = -1;
    IS(0, StartTraceW(&id, u"Own \u00e4", &block.p));
    IS(1, id != 0 && id == block.p.Wnode.HistoricalContext && block.p.NumberOfBuffers != 0);
    IS(1, block.name[0] == u'O' && block.name[4] == 0xE4 && block.name[5] == 0);
    IS(0, memcmp(&block.p.Wnode.Guid, &PROVIDER, sizeof PROVIDER));
    with_file(&other, OWN, in(folder, "second.etl"));
    IS(183, StartTraceW(&second, u"OWN \u00c4", &other.p));
    IS(0, second);
    with_file(&other, OWN, in(folder, "own.etl"));
    IS(161, StartTraceW(&second, u"second", &other.p));

    wrong_enables(id, 0);
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 4, 0, 0, 0, NULL));
    captures = 0;
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_CAPTURE_STATE, 4, 0, 0, 0, NULL));
    IS(1, captures);
    IS(1, EnableTraceEx2(id, &KERNEL, EVENT_CONTROL_CODE_CAPTURE_STATE, 4, 0, 0, 0, NULL));
    IS(1, EventEnabled(reg, &EVENT));
    IS(0, EventWrite(reg, &EVENT, 0, NULL));
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0, 0, NULL));
    IS(0, EventEnabled(reg, &EVENT));
    IS(0, EnableTrace(1, 1, 4, &PROVIDER, id));

    /* The session is found by the id alone, and by the name with the mode or the id; a name alone
     * is that of another session. */
    IS(0, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(id, other.p.Wnode.HistoricalContext);
    IS(0, ControlTraceW(id, u"own \u00c4", &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(4201, ControlTraceW(0, u"Own \u00e4", &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(4201, ControlTraceW(id, u"another", &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    with_file(&other, OWN, "");
    IS(0, ControlTraceW(0, u"own \u00e4", &other.p, EVENT_TRACE_CONTROL_QUERY));
    IS(1, is_wide(other.file, in(folder, "own.etl")));
    IS(4201, ControlTraceW(id + 0x10000, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(0, QueryAllTracesW(blocks, 1, &count));
    IS(0, count);

    IS(0, FlushTraceW(id, NULL, &with_file(&other, 0, "")->p));
    IS(1, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    IS(1, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    with_file(&other, 0, in(folder, "next.etl"))->p.FlushTimer = 3;
    IS(0, UpdateTraceW(id, NULL, &other.p));
    IS(3, other.p.FlushTimer);
    IS(0, EventWrite(reg, &EVENT, 0, NULL));
    /* The name does not fit, but the session has stopped. */
    with_file(&other, 0, "");
    other.p.LogFileNameOffset = sizeof other - 4;
    IS(234, StopTraceW(id, NULL, &other.p));
    IS(0, other.file[NAME_ROOM - 2]);
    IS(0, other.p.EventsLost);
    IS(1, other.p.BuffersWritten >= 2);
    IS(4201, StopTraceW(id, NULL, &empty(&other)->p));
    IS(4201, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    IS(0, EventUnregister(reg));
}

/* A child has none of its parent's sessions; its calls return a defined status, and its parent
 * continues. */
static void forked(const char *folder) {
    CONTROLTRACE_ID id = 0;
    int ended = 0;
    with_file(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC, in(folder, "parent.etl"));
    IS(0, StartTraceW(&id, u"parent", &block.p));
    pid_t child = fork();
    if (child == 0) {
        IS(4201, QueryTraceW(id, NULL, &empty(&other)->p));
        IS(4201, StopTraceW(id, NULL, &empty(&other)->p));
        IS(4201, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
        _exit(0);
    }
    IS(child, waitpid(child, &ended, 0));
    IS(0, ended);
    IS(0, QueryTraceW(id, NULL, &empty(&other)->p));
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));
}

/* A session that ends by itself at the limit of its file. */
static void full(const char *folder) {
    static char much[8000];
    EVENT_DATA_DESCRIPTOR data;
    CONTROLTRACE_ID id = 0;
    REGHANDLE reg = 0;
    with_file(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL |
                          EVENT_TRACE_USE_KBYTES_FOR_SIZE, in(folder, "full.etl"));
    block.p.BufferSize = 16;
    block.p.MaximumFileSize = 64;
    IS(0, StartTraceW(&id, u"full", &block.p));
    IS(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    IS(0, EnableTraceEx2(id, &PROVIDER, 1, 5, 0, 0, 0, NULL));
    EventDataDescCreate(&data, much, sizeof much);
    for (int i = 0; i < 6000 && QueryTraceW(id, NULL, &empty(&other)->p) == 0; i++) {
        EventWrite(reg, &EVENT, 1, &data);
        usleep(1000);
    }
    IS(4201, QueryTraceW(id, NULL, &empty(&other)->p));
    IS(4201, StopTraceW(id, NULL, &empty(&other)->p));
    /* Its name can be used again. */
    with_file(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC, in(folder, "again.etl"));
    IS(0, StartTraceW(&id, u"full", &block.p));
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));
    IS(0, EventUnregister(reg));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    wrong_starts(folder);
    wrong_controls();
    lists();
    wrong_enables(STALE, 4201);
    rights();
    own(folder);
    forked(folder);
    full(folder);
    return finish();
}
