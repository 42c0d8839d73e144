/* Controllers with a daemon: sessions from their start to their stop.
 *
 *   control FOLDER [daemon]      logs go there; daemon: without private sessions of this process
 */
#include "control.h"

#include <evntprov.h>
#include <pthread.h>

static BLOCKW block, other;
static const GUID PROVIDER = {0xC0FFEE09, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR LOUD = {1, 0, 0, 2, 0, 0, 1}, QUIET = {2, 0, 0, 5, 0, 0, 2};
static REGHANDLE reg;

static ULONG query(CONTROLTRACE_ID id) {
    return ControlTraceW(id, NULL, &with_file(&other, 0, "")->p, EVENT_TRACE_CONTROL_QUERY);
}

/* One session from start to stop, in UTF-16. */
static void whole_life(const char *folder) {
    CONTROLTRACE_ID id = 0, second = 7;
    ULONG running = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&other.p};
    with_file(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "whole.etl"));
    block.p.BufferSize = 15;
    block.p.MinimumBuffers = 1;
    block.p.Wnode.ClientContext = 2;
    IS(0, StartTraceW(&id, u"Whole life", &block.p));
    IS(1, id != 0);
    IS(id, block.p.Wnode.HistoricalContext);
    IS(16, block.p.BufferSize);
    IS(1, block.p.MinimumBuffers >= 2 && block.p.MaximumBuffers >= block.p.MinimumBuffers);
    IS(1, block.p.NumberOfBuffers >= 1 && block.p.LoggerThreadId != NULL);
    IS(1, block.p.Wnode.Guid.Data1 != 0 && block.p.Wnode.TimeStamp.QuadPart > 0);
    IS(1, is_wide(block.name, "Whole life") && is_wide(block.file, in(folder, "whole.etl")));

    with_file(&other, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "other.etl"));
    IS(183, StartTraceW(&second, u"WHOLE LIFE", &other.p));
    IS(0, second);
    with_file(&other, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "other.etl"))->p.Wnode.Guid = block.p.Wnode.Guid;
    IS(183, StartTraceW(&second, u"other", &other.p));
    with_file(&other, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "whole.etl"));
    IS(161, StartTraceW(&second, u"other", &other.p));
    with_file(&other, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "none/other.etl"));
    IS(3, StartTraceW(&second, u"other", &other.p));

    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, TRACE_LEVEL_ERROR, 0, 0, 10000, NULL));
    IS(1, EventEnabled(reg, &LOUD));
    IS(0, EventEnabled(reg, &QUIET));
    IS(0, EventWrite(reg, &LOUD, 0, NULL));
    IS(0, EventWrite(reg, &QUIET, 0, NULL));
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_CAPTURE_STATE, 0, 0, 0, 10000, NULL));

    IS(0, query(id));
    IS(1, is_wide(other.name, "Whole life") && is_wide(other.file, in(folder, "whole.etl")));
    IS(0, memcmp(&other.p.Wnode.Guid, &block.p.Wnode.Guid, sizeof(GUID)));
    IS(2, other.p.Wnode.ClientContext);
    IS(0, ControlTraceW(STALE, u"whole LIFE", &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(id, other.p.Wnode.HistoricalContext);
    IS(4201, ControlTraceW(id, u"another", &empty(&other)->p, EVENT_TRACE_CONTROL_QUERY));
    IS(0, FlushTraceW(id, NULL, &with_file(&other, 0, in(folder, "whole.etl"))->p));
    IS(1, other.p.BuffersWritten >= 1);
    IS(0, QueryAllTracesW(blocks, 1, &running));
    IS(1, running);
    IS(id, other.p.Wnode.HistoricalContext);

    /* Offsets of 0: no names are returned. */
    memset(&other, 0, sizeof other);
    other.p.Wnode.BufferSize = sizeof other.p;
    IS(0, ControlTraceW(id, NULL, &other.p, EVENT_TRACE_CONTROL_QUERY));
    IS(id, other.p.Wnode.HistoricalContext);
    /* A name that does not fit is reported, with everything else filled in. */
    empty(&other)->p.LogFileNameOffset = offsetof(BLOCKW, name) + 8;
    IS(234, ControlTraceW(id, NULL, &other.p, EVENT_TRACE_CONTROL_QUERY));
    IS(id, other.p.Wnode.HistoricalContext);
    IS(0, other.name[0]);
    IS(1, is_wide(other.name + 4, in(folder, "whole.etl")));

    with_file(&other, 0, in(folder, "whole.etl"));
    IS(161, UpdateTraceW(id, NULL, &other.p));
    IS(87, (empty(&other)->p.EnableFlags = EVENT_TRACE_FLAG_PROCESS, UpdateTraceW(id, NULL, &other.p)));
    empty(&other)->p.FlushTimer = 5;
    other.p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    IS(0, UpdateTraceW(id, NULL, &other.p));
    IS(5, other.p.FlushTimer);
    IS(EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_REAL_TIME_MODE, other.p.LogFileMode);
    with_file(&other, 0, in(folder, "second.etl"));
    IS(0, UpdateTraceW(id, NULL, &other.p));
    IS(EVENT_TRACE_FILE_MODE_SEQUENTIAL, other.p.LogFileMode);
    IS(5, other.p.FlushTimer);
    IS(1, is_wide(other.file, in(folder, "second.etl")));
    IS(1, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    IS(0, EventWrite(reg, &LOUD, 0, NULL));

    empty(&other)->p.LogFileNameOffset = sizeof other - 6;
    IS(234, ControlTraceW(id, NULL, &other.p, EVENT_TRACE_CONTROL_STOP));
    IS(0, other.p.EventsLost);
    IS(4201, query(id));
    IS(4201, StopTraceW(id, NULL, &empty(&other)->p));
    IS(4201, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 4, 0, 0, 0, NULL));
    IS(0, EventEnabled(reg, &LOUD));
}

/* The same in UTF-8, with the names in the other order. */
static void narrow_life(const char *folder) {
    BLOCKA a;
    CONTROLTRACE_ID id = 0;
    ULONG running = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&a.p};
    narrow(&a, EVENT_TRACE_FILE_MODE_SEQUENTIAL, "");
    a.p.LogFileNameOffset = offsetof(BLOCKA, name);
    a.p.LoggerNameOffset = offsetof(BLOCKA, file);
    strcpy(a.name, in(folder, "narrow-\xC3\xA4.etl"));
    IS(0, StartTraceA(&id, "schm\xC3\xA4l", &a.p));
    IS(0, strcmp(a.file, "schm\xC3\xA4l"));
    IS(0, ControlTraceA(id, NULL, &narrow(&a, 0, "")->p, EVENT_TRACE_CONTROL_QUERY));
    IS(0, strcmp(a.name, "schm\xC3\xA4l"));
    IS(0, strcmp(a.file, in(folder, "narrow-\xC3\xA4.etl")));
    IS(0, QueryTraceW(0, u"SCHM\u00c4L", &with_file(&other, 0, "")->p));
    IS(1, other.name[4] == 0xE4 && other.name[5] == u'l' && other.name[6] == 0);
    IS(0, QueryAllTracesA(blocks, 1, &running));
    IS(1, running);
    IS(0, strcmp(a.name, "schm\xC3\xA4l"));
    IS(0, UpdateTraceA(0, "schm\xC3\xA4l", &narrow(&a, 0, "")->p));
    IS(0, FlushTraceA(0, "schm\xC3\xA4l", &narrow(&a, 0, "")->p));
    IS(0, StopTraceA(0, "schm\xC3\xA4l", &narrow(&a, 0, "")->p));
    IS(4201, QueryTraceA(0, "schm\xC3\xA4l", &narrow(&a, 0, "")->p));
}

/* A flight recorder, a file sequence, a session that becomes live. */
static void other_kinds(const char *folder) {
    CONTROLTRACE_ID id = 0;
    empty(&block)->p.LogFileMode = EVENT_TRACE_BUFFERING_MODE;
    IS(0, StartTraceW(&id, u"recorder", &block.p));
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 0, 0, 0, 10000, NULL));
    IS(0, EventWrite(reg, &QUIET, 0, NULL));
    IS(0, FlushTraceW(id, NULL, &with_file(&other, 0, in(folder, "snapshot.etl"))->p));
    IS(1, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));

    with_file(&block, EVENT_TRACE_FILE_MODE_NEWFILE, in(folder, "row-%d.etl"))->p.MaximumFileSize = 1;
    IS(0, StartTraceW(&id, u"row", &block.p));
    IS(0, ControlTraceW(id, NULL, &empty(&other)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    IS(0, StopTraceW(0, u"row", &empty(&other)->p));
    IS(0, access(in(folder, "row-2.etl"), F_OK));
    with_file(&block, EVENT_TRACE_FILE_MODE_NEWFILE, in(folder, "row.etl"))->p.MaximumFileSize = 1;
    IS(87, StartTraceW(&id, u"row", &block.p));

    with_file(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, in(folder, "turns.etl"));
    IS(0, StartTraceW(&id, u"turns", &block.p));
    IS(0, ControlTraceW(id, NULL, &with_file(&other, 0, "")->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    IS(EVENT_TRACE_REAL_TIME_MODE, other.p.LogFileMode);
    IS(0, other.file[0]);
    /* The file was its only other output: it cannot stop being live. */
    IS(87, UpdateTraceW(id, NULL, &empty(&other)->p));
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));
}

/* A private session that the processes of a provider run; this is one of them. */
static void private_from_outside(const char *folder) {
    static struct {
        EVENT_TRACE_PROPERTIES_V2 p;
        WCHAR name[32];
        WCHAR file[NAME_ROOM];
    } v2;
    ULONG me = (ULONG)getpid();
    EVENT_FILTER_DESCRIPTOR filter = {(ULONG_PTR)&me, sizeof me, EVENT_FILTER_TYPE_PID};
    CONTROLTRACE_ID id = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&other.p};
    ULONG running = 7;
    v2.p.Wnode.BufferSize = sizeof v2;
    v2.p.Wnode.Flags = WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES;
    v2.p.Wnode.Guid = PROVIDER;
    v2.p.VersionNumber = 2;
    v2.p.FilterDescCount = 1;
    v2.p.FilterDesc = &filter;
    v2.p.LogFileMode = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL;
    v2.p.LoggerNameOffset = sizeof v2.p;
    v2.p.LogFileNameOffset = sizeof v2.p + sizeof v2.name;
    widen(v2.file, in(folder, "private.etl"));
    IS(0, StartTraceW(&id, u"private", (PEVENT_TRACE_PROPERTIES)&v2));
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 10000, NULL));
    IS(1, EventEnabled(reg, &QUIET));
    IS(0, EventWrite(reg, &QUIET, 0, NULL));
    IS(0, query(id));
    IS(id, other.p.Wnode.HistoricalContext);
    IS(0, memcmp(&other.p.Wnode.Guid, &PROVIDER, sizeof PROVIDER));
    with_file(&other, EVENT_TRACE_PRIVATE_LOGGER_MODE, "");
    IS(0, ControlTraceW(0, u"PRIVATE", &other.p, EVENT_TRACE_CONTROL_QUERY));
    IS(id, other.p.Wnode.HistoricalContext);
    empty(&other)->p.FlushTimer = 7;
    IS(0, UpdateTraceW(id, NULL, &other.p));
    IS(7, other.p.FlushTimer);
    IS(0, FlushTraceW(id, NULL, &empty(&other)->p));
    /* It is in no list, as published. */
    empty(&other);
    IS(0, QueryAllTracesW(blocks, 1, &running));
    IS(0, running);
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));
    IS(4201, query(id));
}

/* Filters, older functions, and the list of enabled providers. */
static void enables(void) {
    CONTROLTRACE_ID id = 0;
    struct {
        EVENT_FILTER_EVENT_ID head;
        USHORT more[1];
    } ids = {{TRUE, 0, 2, {2}}, {3}};
    EVENT_FILTER_DESCRIPTOR filter = {(ULONG_PTR)&ids, 8, EVENT_FILTER_TYPE_EVENT_ID};
    EVENT_FILTER_DESCRIPTOR twice[2];
    ENABLE_TRACE_PARAMETERS params;
    TRACE_GUID_PROPERTIES found[64], *all[64];
    ULONG count = 0, at = 64;
    empty(&block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    IS(0, StartTraceW(&id, u"enables", &block.p));
    IS(1, block.p.FlushTimer);
    memset(&params, 0, sizeof params);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.EnableFilterDesc = &filter;
    params.FilterDescCount = 1;
    params.EnableProperty = EVENT_ENABLE_PROPERTY_SID;
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    IS(1, EventEnabled(reg, &QUIET));
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION;
    IS(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    twice[0] = twice[1] = filter;
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.EnableFilterDesc = twice;
    params.FilterDescCount = 2;
    IS(87, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    filter.Size = 7;
    IS(87, EnableTraceEx(&PROVIDER, &PROVIDER, id, 1, 5, 3, 0, 0, &filter));
    filter.Size = 8;
    IS(0, EnableTraceEx(&PROVIDER, &PROVIDER, id, 1, 5, 3, 0, 0, &filter));

    for (unsigned i = 0; i < 64; i++) {
        all[i] = &found[i];
    }
    IS(0, EnumerateTraceGuids(all, 64, &count));
    for (ULONG i = 0; i < count; i++) {
        at = memcmp(&found[i].Guid, &PROVIDER, sizeof PROVIDER) == 0 ? i : at;
    }
    IS(1, at < count);
    IS(1, found[at].IsEnable);
    IS(id & 0xFFFF, found[at].LoggerId);
    IS(5, found[at].EnableLevel);
    IS(3, found[at].EnableFlags);
    all[0] = NULL;
    IS(87, EnumerateTraceGuids(all, 64, &count));

    IS(0, EnableTrace(FALSE, 0, 0, &PROVIDER, id));
    WAIT_UNTIL(!EventEnabled(reg, &LOUD));
    IS(0, EnableTrace(TRUE, 1, 2, &PROVIDER, id));
    WAIT_UNTIL(EventEnabled(reg, &LOUD));
    IS(1, EventEnabled(reg, &LOUD));
    IS(0, EventEnabled(reg, &QUIET));
    IS(0, StopTraceW(id, NULL, &empty(&other)->p));
}

/* More sessions than blocks; a block of version 2; an invalid block among valid ones. */
static void many(void) {
    static struct {
        EVENT_TRACE_PROPERTIES_V2 p;
        WCHAR name[32];
    } v2;
    CONTROLTRACE_ID first = 0, second = 0;
    PEVENT_TRACE_PROPERTIES blocks[3] = {&block.p, &other.p, NULL};
    ULONG running = 0;
    empty(&block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    IS(0, StartTraceW(&first, u"first", &block.p));
    v2.p.Wnode.BufferSize = sizeof v2;
    v2.p.Wnode.Flags = WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES;
    v2.p.VersionNumber = 2;
    v2.p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    v2.p.LoggerNameOffset = sizeof(EVENT_TRACE_PROPERTIES);
    IS(87, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    v2.p.LoggerNameOffset = sizeof v2.p;
    v2.p.FilterDescCount = 1;
    IS(87, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    v2.p.FilterDescCount = 0;
    IS(0, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    IS(1, is_wide(v2.name, "second"));
    IS(2, v2.p.VersionNumber);
    empty(&block);
    IS(234, QueryAllTracesW(blocks, 1, &running));
    IS(2, running);
    IS(first, block.p.Wnode.HistoricalContext);
    empty(&block);
    empty(&other)->p.Wnode.BufferSize = 7;
    IS(24, QueryAllTracesW(blocks, 2, &running));
    IS(0, block.p.Wnode.HistoricalContext);
    blocks[1] = NULL;
    IS(87, QueryAllTracesW(blocks, 2, &running));
    blocks[1] = &other.p;
    empty(&other)->p.LoggerNameOffset = sizeof other - 2;
    IS(234, QueryAllTracesW(blocks, 3, &running));
    IS(second, other.p.Wnode.HistoricalContext);
    IS(0, StopTraceW(first, NULL, &empty(&other)->p));
    IS(0, StopTraceW(second, NULL, &empty(&other)->p));
}

static void rights(void) {
    GUID object = PROVIDER;
    unsigned char before[512], after[512], sid[16] = {1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0};
    ULONG was = sizeof before, size = sizeof after;
    IS(0, EventAccessQuery(&object, before, &was));
    IS(0, EventAccessControl(&object, EventSecurityAddDACL, sid, TRACELOG_GUID_ENABLE, TRUE));
    IS(0, EventAccessQuery(&object, after, &size));
    IS(was + 24, size);
    IS(0, EventAccessRemove(&object));
    size = sizeof after;
    IS(0, EventAccessQuery(&object, after, &size));
    IS(was, size);
    IS(0, memcmp(before, after, size));
}

/* Many threads that start, query and stop: each gets its own result, or a defined error. */
static void *busy(void *number) {
    char name[16];
    WCHAR wide[16];
    BLOCKW *mine = (BLOCKW *)malloc(sizeof(BLOCKW));
    snprintf(name, sizeof name, "busy %d", (int)(LONG_PTR)number % 2);
    widen(wide, name);
    for (int turn = 0; turn < 10; turn++) {
        CONTROLTRACE_ID id = 0;
        empty(mine)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
        ULONG status = StartTraceW(&id, wide, &mine->p);
        if (status != 0 && status != 183) {
            return mine;
        }
        status = EnableTraceEx2(id != 0 ? id : STALE, &PROVIDER, 1, 5, 0, 0, 0, NULL);
        if (status != 0 && status != 4201) {
            return mine;
        }
        status = ControlTraceW(id, wide, &empty(mine)->p, EVENT_TRACE_CONTROL_STOP);
        if (status != 0 && status != 4201 && status != 2402) {
            return mine;
        }
    }
    free(mine);
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    void *failed = NULL;
    ULONG running = 7;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&other.p};
    for (LONG_PTR i = 0; i < 4; i++) {
        IS(0, pthread_create(&all[i], NULL, busy, (void *)i));
    }
    for (int i = 0; i < 4; i++) {
        IS(0, pthread_join(all[i], &failed));
        IS(1, failed == NULL);
    }
    empty(&other);
    IS(0, QueryAllTracesW(blocks, 1, &running));
    IS(0, running);
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    IS(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    whole_life(folder);
    narrow_life(folder);
    other_kinds(folder);
    if (argc < 3) {
        private_from_outside(folder);
    }
    enables();
    many();
    rights();
    threads();
    IS(0, EventUnregister(reg));
    return finish();
}
