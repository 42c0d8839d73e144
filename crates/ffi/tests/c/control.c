/* Controllers with a daemon: sessions from their start to their stop.
 *
 *   control FOLDER [daemon]      writes logs to FOLDER; with "daemon", starts no private session
 */
#include "control.h"

#include <evntprov.h>
#include <pthread.h>
#include <unistd.h>

static BLOCKW block, second_block;
static const GUID PROVIDER = {0xC0FFEE09, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR ERROR_EVENT = {1, 0, 0, 2, 0, 0, 1}, VERBOSE_EVENT = {2, 0, 0, 5, 0, 0, 2};
static REGHANDLE reg;

static ULONG query_session(CONTROLTRACE_ID id) {
    return ControlTraceW(id, NULL, &file_block(&second_block, 0, "")->p, EVENT_TRACE_CONTROL_QUERY);
}

/* One session from start to stop, in UTF-16. */
static void check_session_in_utf16(const char *folder) {
    CONTROLTRACE_ID id = 0, second = 7;
    ULONG running = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&second_block.p};
    file_block(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "whole.etl"));
    block.p.BufferSize = 15;
    block.p.MinimumBuffers = 1;
    block.p.Wnode.ClientContext = 2;
    EXPECT(0, StartTraceW(&id, u"Whole life", &block.p));
    EXPECT(1, id != 0);
    EXPECT(id, block.p.Wnode.HistoricalContext);
    EXPECT(16, block.p.BufferSize);
    EXPECT(1, block.p.MinimumBuffers >= 2 && block.p.MaximumBuffers >= block.p.MinimumBuffers);
    EXPECT(1, block.p.NumberOfBuffers >= 1 && block.p.LoggerThreadId != NULL);
    EXPECT(1, block.p.Wnode.Guid.Data1 != 0 && block.p.Wnode.TimeStamp.QuadPart > 0);
    EXPECT(1, equals_wide(block.name, "Whole life") && equals_wide(block.file, path_in(folder, "whole.etl")));

    /* The name, the GUID and the file of a running session cannot be used again. */
    file_block(&second_block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "other.etl"));
    EXPECT(ERROR_ALREADY_EXISTS, StartTraceW(&second, u"WHOLE LIFE", &second_block.p));
    EXPECT(0, second);
    file_block(&second_block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "other.etl"))->p.Wnode.Guid = block.p.Wnode.Guid;
    EXPECT(ERROR_ALREADY_EXISTS, StartTraceW(&second, u"other", &second_block.p));
    file_block(&second_block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "whole.etl"));
    EXPECT(ERROR_BAD_PATHNAME, StartTraceW(&second, u"other", &second_block.p));
    file_block(&second_block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "none/other.etl"));
    EXPECT(ERROR_PATH_NOT_FOUND, StartTraceW(&second, u"other", &second_block.p));

    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, TRACE_LEVEL_ERROR, 0, 0, 10000, NULL));
    EXPECT(1, EventEnabled(reg, &ERROR_EVENT));
    EXPECT(0, EventEnabled(reg, &VERBOSE_EVENT));
    EXPECT(0, EventWrite(reg, &ERROR_EVENT, 0, NULL));
    EXPECT(0, EventWrite(reg, &VERBOSE_EVENT, 0, NULL));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_CAPTURE_STATE, 0, 0, 0, 10000, NULL));

    EXPECT(0, query_session(id));
    EXPECT(1, equals_wide(second_block.name, "Whole life") && equals_wide(second_block.file, path_in(folder, "whole.etl")));
    EXPECT(0, memcmp(&second_block.p.Wnode.Guid, &block.p.Wnode.Guid, sizeof(GUID)));
    EXPECT(2, second_block.p.Wnode.ClientContext);
    EXPECT(0, ControlTraceW(STALE_ID, u"whole LIFE", &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(id, u"another", &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(0, FlushTraceW(id, NULL, &file_block(&second_block, 0, path_in(folder, "whole.etl"))->p));
    EXPECT(1, second_block.p.BuffersWritten >= 1);
    EXPECT(0, QueryAllTracesW(blocks, 1, &running));
    EXPECT(1, running);
    EXPECT(id, second_block.p.Wnode.HistoricalContext);

    /* Offsets of 0: no names are returned. */
    memset(&second_block, 0, sizeof second_block);
    second_block.p.Wnode.BufferSize = sizeof second_block.p;
    EXPECT(0, ControlTraceW(id, NULL, &second_block.p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    /* A name that does not fit is reported, with everything else filled in. */
    empty_block(&second_block)->p.LogFileNameOffset = offsetof(BLOCKW, name) + 8;
    EXPECT(ERROR_MORE_DATA, ControlTraceW(id, NULL, &second_block.p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    EXPECT(0, second_block.name[0]);
    EXPECT(1, equals_wide(second_block.name + 4, path_in(folder, "whole.etl")));

    file_block(&second_block, 0, path_in(folder, "whole.etl"));
    EXPECT(ERROR_BAD_PATHNAME, UpdateTraceW(id, NULL, &second_block.p));
    EXPECT(ERROR_INVALID_PARAMETER, (empty_block(&second_block)->p.EnableFlags = EVENT_TRACE_FLAG_PROCESS, UpdateTraceW(id, NULL, &second_block.p)));
    empty_block(&second_block)->p.FlushTimer = 5;
    second_block.p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    EXPECT(0, UpdateTraceW(id, NULL, &second_block.p));
    EXPECT(5, second_block.p.FlushTimer);
    EXPECT(EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_REAL_TIME_MODE, second_block.p.LogFileMode);
    /* A mode of 0 ends live delivery; a flush timer of 0 changes nothing. */
    file_block(&second_block, 0, path_in(folder, "second.etl"));
    EXPECT(0, UpdateTraceW(id, NULL, &second_block.p));
    EXPECT(EVENT_TRACE_FILE_MODE_SEQUENTIAL, second_block.p.LogFileMode);
    EXPECT(5, second_block.p.FlushTimer);
    EXPECT(1, equals_wide(second_block.file, path_in(folder, "second.etl")));
    EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    EXPECT(0, EventWrite(reg, &ERROR_EVENT, 0, NULL));

    /* The file name does not fit, but the session stops. */
    empty_block(&second_block)->p.LogFileNameOffset = sizeof second_block - 6;
    EXPECT(ERROR_MORE_DATA, ControlTraceW(id, NULL, &second_block.p, EVENT_TRACE_CONTROL_STOP));
    EXPECT(0, second_block.p.EventsLost);
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, query_session(id));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, StopTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 4, 0, 0, 0, NULL));
    EXPECT(0, EventEnabled(reg, &ERROR_EVENT));
}

/* One session from start to stop, in UTF-8, with the names in the other order. */
static void check_session_in_utf8(const char *folder) {
    BLOCKA a;
    CONTROLTRACE_ID id = 0;
    ULONG running = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&a.p};
    narrow_block(&a, EVENT_TRACE_FILE_MODE_SEQUENTIAL, "");
    a.p.LogFileNameOffset = offsetof(BLOCKA, name);
    a.p.LoggerNameOffset = offsetof(BLOCKA, file);
    strcpy(a.name, path_in(folder, "narrow-\xC3\xA4.etl"));
    EXPECT(0, StartTraceA(&id, "schm\xC3\xA4l", &a.p));
    EXPECT(0, strcmp(a.file, "schm\xC3\xA4l"));
    EXPECT(0, ControlTraceA(id, NULL, &narrow_block(&a, 0, "")->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(0, strcmp(a.name, "schm\xC3\xA4l"));
    EXPECT(0, strcmp(a.file, path_in(folder, "narrow-\xC3\xA4.etl")));
    EXPECT(0, QueryTraceW(0, u"SCHM\u00c4L", &file_block(&second_block, 0, "")->p));
    EXPECT(1, second_block.name[4] == 0xE4 && second_block.name[5] == u'l' && second_block.name[6] == 0);
    EXPECT(0, QueryAllTracesA(blocks, 1, &running));
    EXPECT(1, running);
    EXPECT(0, strcmp(a.name, "schm\xC3\xA4l"));
    EXPECT(0, UpdateTraceA(0, "schm\xC3\xA4l", &narrow_block(&a, 0, "")->p));
    EXPECT(0, FlushTraceA(0, "schm\xC3\xA4l", &narrow_block(&a, 0, "")->p));
    EXPECT(0, StopTraceA(0, "schm\xC3\xA4l", &narrow_block(&a, 0, "")->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, QueryTraceA(0, "schm\xC3\xA4l", &narrow_block(&a, 0, "")->p));
}

/* A flight recorder, a file sequence, a session that becomes live. */
static void check_other_modes(const char *folder) {
    CONTROLTRACE_ID id = 0;
    empty_block(&block)->p.LogFileMode = EVENT_TRACE_BUFFERING_MODE;
    EXPECT(0, StartTraceW(&id, u"recorder", &block.p));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 0, 0, 0, 10000, NULL));
    EXPECT(0, EventWrite(reg, &VERBOSE_EVENT, 0, NULL));
    EXPECT(0, FlushTraceW(id, NULL, &file_block(&second_block, 0, path_in(folder, "snapshot.etl"))->p));
    EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));

    file_block(&block, EVENT_TRACE_FILE_MODE_NEWFILE, path_in(folder, "row-%d.etl"))->p.MaximumFileSize = 1;
    EXPECT(0, StartTraceW(&id, u"row", &block.p));
    EXPECT(0, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    EXPECT(0, StopTraceW(0, u"row", &empty_block(&second_block)->p));
    EXPECT(0, access(path_in(folder, "row-2.etl"), F_OK));
    /* A file sequence needs %d in its name. */
    file_block(&block, EVENT_TRACE_FILE_MODE_NEWFILE, path_in(folder, "row.etl"))->p.MaximumFileSize = 1;
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, u"row", &block.p));

    file_block(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "turns.etl"));
    EXPECT(0, StartTraceW(&id, u"turns", &block.p));
    EXPECT(0, ControlTraceW(id, NULL, &file_block(&second_block, 0, "")->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    EXPECT(EVENT_TRACE_REAL_TIME_MODE, second_block.p.LogFileMode);
    EXPECT(0, second_block.file[0]);
    /* The session has no other output any more, so it cannot stop being live. */
    EXPECT(ERROR_INVALID_PARAMETER, UpdateTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));
}

/* A private session that the processes of a provider run; this process is one of them. */
static void check_private_session_of_processes(const char *folder) {
    static struct {
        EVENT_TRACE_PROPERTIES_V2 p;
        WCHAR name[32];
        WCHAR file[NAME_UNITS];
    } v2;
    ULONG own_pid = (ULONG)getpid();
    EVENT_FILTER_DESCRIPTOR filter = {(ULONG_PTR)&own_pid, sizeof own_pid, EVENT_FILTER_TYPE_PID};
    CONTROLTRACE_ID id = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&second_block.p};
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
    to_wide(v2.file, path_in(folder, "private.etl"));
    EXPECT(0, StartTraceW(&id, u"private", (PEVENT_TRACE_PROPERTIES)&v2));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 0, 0, 10000, NULL));
    EXPECT(1, EventEnabled(reg, &VERBOSE_EVENT));
    EXPECT(0, EventWrite(reg, &VERBOSE_EVENT, 0, NULL));
    EXPECT(0, query_session(id));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    EXPECT(0, memcmp(&second_block.p.Wnode.Guid, &PROVIDER, sizeof PROVIDER));
    file_block(&second_block, EVENT_TRACE_PRIVATE_LOGGER_MODE, "");
    EXPECT(0, ControlTraceW(0, u"PRIVATE", &second_block.p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    empty_block(&second_block)->p.FlushTimer = 7;
    EXPECT(0, UpdateTraceW(id, NULL, &second_block.p));
    EXPECT(7, second_block.p.FlushTimer);
    EXPECT(0, FlushTraceW(id, NULL, &empty_block(&second_block)->p));
    /* A private session is in no list, as documented. */
    empty_block(&second_block);
    EXPECT(0, QueryAllTracesW(blocks, 1, &running));
    EXPECT(0, running);
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, query_session(id));
}

/* Filters, older functions, and the list of registered providers. */
static void check_enables(void) {
    CONTROLTRACE_ID id = 0;
    struct {
        EVENT_FILTER_EVENT_ID head;
        USHORT more[1];
    } ids = {{TRUE, 0, 2, {2}}, {3}};
    EVENT_FILTER_DESCRIPTOR filter = {(ULONG_PTR)&ids, 8, EVENT_FILTER_TYPE_EVENT_ID};
    EVENT_FILTER_DESCRIPTOR twice[2];
    ENABLE_TRACE_PARAMETERS params;
    TRACE_GUID_PROPERTIES properties[64], *elements[64];
    ULONG count = 0, index = 64;
    empty_block(&block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    EXPECT(0, StartTraceW(&id, u"enables", &block.p));
    EXPECT(1, block.p.FlushTimer);
    memset(&params, 0, sizeof params);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.EnableFilterDesc = &filter;
    params.FilterDescCount = 1;
    params.EnableProperty = EVENT_ENABLE_PROPERTY_SID;
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    EXPECT(1, EventEnabled(reg, &VERBOSE_EVENT));
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION;
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    /* Two filters of the same type are refused, and so is a filter that is cut off. */
    twice[0] = twice[1] = filter;
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.EnableFilterDesc = twice;
    params.FilterDescCount = 2;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 5, 3, 0, 10000, &params));
    filter.Size = 7;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx(&PROVIDER, &PROVIDER, id, 1, 5, 3, 0, 0, &filter));
    filter.Size = 8;
    /* Types that only `weir` sends: process trees, and the filters of its sessions. */
    for (ULONG type = 0xC0000001; type <= 0xC0000004; type++) {
        filter.Type = type;
        EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx(&PROVIDER, &PROVIDER, id, 1, 5, 3, 0, 0, &filter));
    }
    filter.Type = EVENT_FILTER_TYPE_EVENT_ID;
    EXPECT(0, EnableTraceEx(&PROVIDER, &PROVIDER, id, 1, 5, 3, 0, 0, &filter));

    for (unsigned i = 0; i < 64; i++) {
        elements[i] = &properties[i];
    }
    EXPECT(0, EnumerateTraceGuids(elements, 64, &count));
    for (ULONG i = 0; i < count; i++) {
        index = memcmp(&properties[i].Guid, &PROVIDER, sizeof PROVIDER) == 0 ? i : index;
    }
    EXPECT(1, index < count);
    EXPECT(1, properties[index].IsEnable);
    EXPECT(id & 0xFFFF, properties[index].LoggerId);
    EXPECT(5, properties[index].EnableLevel);
    EXPECT(3, properties[index].EnableFlags);
    elements[0] = NULL;
    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuids(elements, 64, &count));

    EXPECT(0, EnableTrace(FALSE, 0, 0, &PROVIDER, id));
    WAIT_UNTIL(!EventEnabled(reg, &ERROR_EVENT));
    EXPECT(0, EnableTrace(TRUE, 1, 2, &PROVIDER, id));
    WAIT_UNTIL(EventEnabled(reg, &ERROR_EVENT));
    EXPECT(1, EventEnabled(reg, &ERROR_EVENT));
    EXPECT(0, EventEnabled(reg, &VERBOSE_EVENT));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));
}

/* More sessions than blocks; a block of version 2; an invalid block among valid ones. */
static void check_many_sessions(void) {
    static struct {
        EVENT_TRACE_PROPERTIES_V2 p;
        WCHAR name[32];
    } v2;
    CONTROLTRACE_ID first = 0, second = 0;
    PEVENT_TRACE_PROPERTIES blocks[3] = {&block.p, &second_block.p, NULL};
    ULONG running = 0;
    empty_block(&block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    EXPECT(0, StartTraceW(&first, u"first", &block.p));
    v2.p.Wnode.BufferSize = sizeof v2;
    v2.p.Wnode.Flags = WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES;
    v2.p.VersionNumber = 2;
    v2.p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    v2.p.LoggerNameOffset = sizeof(EVENT_TRACE_PROPERTIES);
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    v2.p.LoggerNameOffset = sizeof v2.p;
    v2.p.FilterDescCount = 1;
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    v2.p.FilterDescCount = 0;
    EXPECT(0, StartTraceW(&second, u"second", (PEVENT_TRACE_PROPERTIES)&v2));
    EXPECT(1, equals_wide(v2.name, "second"));
    EXPECT(2, v2.p.VersionNumber);
    empty_block(&block);
    EXPECT(ERROR_MORE_DATA, QueryAllTracesW(blocks, 1, &running));
    EXPECT(2, running);
    EXPECT(first, block.p.Wnode.HistoricalContext);
    empty_block(&block);
    empty_block(&second_block)->p.Wnode.BufferSize = 7;
    EXPECT(ERROR_BAD_LENGTH, QueryAllTracesW(blocks, 2, &running));
    EXPECT(0, block.p.Wnode.HistoricalContext);
    blocks[1] = NULL;
    EXPECT(ERROR_INVALID_PARAMETER, QueryAllTracesW(blocks, 2, &running));
    blocks[1] = &second_block.p;
    empty_block(&second_block)->p.LoggerNameOffset = sizeof second_block - 2;
    EXPECT(ERROR_MORE_DATA, QueryAllTracesW(blocks, 3, &running));
    EXPECT(second, second_block.p.Wnode.HistoricalContext);
    EXPECT(0, StopTraceW(first, NULL, &empty_block(&second_block)->p));
    EXPECT(0, StopTraceW(second, NULL, &empty_block(&second_block)->p));
}

/* An entry for a SID of 16 bytes (S-1-22-1-1000) makes the list 24 bytes longer. */
static void check_access_rights(void) {
    GUID object = PROVIDER;
    unsigned char before[512], after[512], sid[16] = {1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0};
    ULONG size_before = sizeof before, size = sizeof after;
    EXPECT(0, EventAccessQuery(&object, before, &size_before));
    EXPECT(0, EventAccessControl(&object, EventSecurityAddDACL, sid, TRACELOG_GUID_ENABLE, TRUE));
    EXPECT(0, EventAccessQuery(&object, after, &size));
    EXPECT(size_before + 24, size);
    EXPECT(0, EventAccessRemove(&object));
    size = sizeof after;
    EXPECT(0, EventAccessQuery(&object, after, &size));
    EXPECT(size_before, size);
    EXPECT(0, memcmp(before, after, size));
}

/* Starts, enables and stops a session repeatedly, while other threads do the same. Returns NULL if
 * each call succeeds or returns a defined error. */
static void *control_repeatedly(void *number) {
    char name[16];
    WCHAR wide[16];
    BLOCKW *own_block = (BLOCKW *)malloc(sizeof(BLOCKW));
    snprintf(name, sizeof name, "busy %d", (int)(LONG_PTR)number % 2);
    to_wide(wide, name);
    for (int round = 0; round < 10; round++) {
        CONTROLTRACE_ID id = 0;
        empty_block(own_block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
        ULONG status = StartTraceW(&id, wide, &own_block->p);
        if (status != 0 && status != ERROR_ALREADY_EXISTS) {
            return own_block;
        }
        status = EnableTraceEx2(id != 0 ? id : STALE_ID, &PROVIDER, 1, 5, 0, 0, 0, NULL);
        if (status != 0 && status != ERROR_WMI_INSTANCE_NOT_FOUND) {
            return own_block;
        }
        status = ControlTraceW(id, wide, &empty_block(own_block)->p, EVENT_TRACE_CONTROL_STOP);
        if (status != 0 && status != ERROR_WMI_INSTANCE_NOT_FOUND && status != ERROR_ACTIVE_CONNECTIONS) {
            return own_block;
        }
    }
    free(own_block);
    return NULL;
}

static void check_concurrent_controllers(void) {
    pthread_t threads[4];
    void *failed = NULL;
    ULONG running = 7;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&second_block.p};
    for (LONG_PTR i = 0; i < 4; i++) {
        EXPECT(0, pthread_create(&threads[i], NULL, control_repeatedly, (void *)i));
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(0, pthread_join(threads[i], &failed));
        EXPECT(1, failed == NULL);
    }
    empty_block(&second_block);
    EXPECT(0, QueryAllTracesW(blocks, 1, &running));
    EXPECT(0, running);
}

/* A relative file name comes back as it was given, into an area of exactly its size. */
static void check_relative_file_name(const char *folder) {
    typedef struct {
        EVENT_TRACE_PROPERTIES p;
        WCHAR name[sizeof "Relative"];
        WCHAR file[sizeof "relative.etl"];
    } EXACT;
    EXACT exact;
    const char *file_name = "relative.etl";
    CONTROLTRACE_ID id = 0;
    char before[4096];
    EXPECT(1, getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    for (int step = 0; step < 3; step++) {
        memset(&exact, 0, sizeof exact);
        exact.p.Wnode.BufferSize = sizeof exact;
        exact.p.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        exact.p.LoggerNameOffset = offsetof(EXACT, name);
        exact.p.LogFileNameOffset = offsetof(EXACT, file);
        if (step == 0) {
            exact.p.LogFileMode = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
            to_wide(exact.file, file_name);
            EXPECT(0, StartTraceW(&id, u"Relative", &exact.p));
        } else {
            EXPECT(0, ControlTraceW(id, NULL, &exact.p, step == 1 ? EVENT_TRACE_CONTROL_QUERY : EVENT_TRACE_CONTROL_STOP));
        }
        EXPECT(1, equals_wide(exact.file, file_name) && equals_wide(exact.name, "Relative"));
    }
    EXPECT(0, chdir(before));
}

/* Returns how many sessions record a provider of the kernel, and stores the logger id of the first.
 * Such a provider has one instance, whose process id is 0. */
static ULONG count_kernel_enables(GUID provider, USHORT *logger) {
    struct {
        TRACE_GUID_INFO info;
        TRACE_PROVIDER_INSTANCE_INFO instance;
        TRACE_ENABLE_INFO enables[8];
    } answer;
    ULONG length = 0;
    memset(&answer, 0, sizeof answer);
    EXPECT(0, EnumerateTraceGuidsEx(TraceGuidQueryInfo, &provider, sizeof provider, &answer, sizeof answer, &length));
    EXPECT(1, answer.info.InstanceCount);
    EXPECT(0, answer.instance.Pid);
    *logger = answer.enables[0].LoggerId;
    return answer.instance.EnableCount;
}

static const GUID SYSTEM_PROCESS = {0x151f55dc, 0x467d, 0x471f, {0x83, 0xb5, 0x5f, 0x88, 0x9d, 0x46, 0xff, 0x66}};
static const GUID SYSTEM_TRACE = {0x9e814aad, 0x3204, 0x11d2, {0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39}};

/* The kernel logger has the id 0xFFFF. */
static void check_kernel_logger(void) {
    CONTROLTRACE_ID id = 0;
    USHORT logger = 0;
    EXPECT(0, count_kernel_enables(SYSTEM_PROCESS, &logger));
    empty_block(&block)->p.LogFileMode = EVENT_TRACE_REAL_TIME_MODE;
    block.p.EnableFlags = EVENT_TRACE_FLAG_PROCESS;
    ULONG status = StartTraceW(&id, u"NT Kernel Logger", &block.p);
    if (status == ERROR_NOT_SUPPORTED || status == ERROR_PRIVILEGE_NOT_HELD) {
        return; /* This machine gives the daemon no kernel events. */
    }
    EXPECT(0, status);
    EXPECT(0xFFFF, id);
    EXPECT(0xFFFF, block.p.Wnode.HistoricalContext);
    EXPECT(0, query_session(0xFFFF));
    EXPECT(1, equals_wide(second_block.name, "NT Kernel Logger"));
    ULONG masks[8], length = 0;
    EXPECT(0, TraceQueryInformation(0xFFFF, TraceSystemTraceEnableFlagsInfo, masks, sizeof masks, &length));
    EXPECT(1, masks[0] & EVENT_TRACE_FLAG_PROCESS);
    EXPECT(1, count_kernel_enables(SYSTEM_PROCESS, &logger));
    EXPECT(0xFFFF, logger);
    EXPECT(1, count_kernel_enables(SYSTEM_TRACE, &logger));
    EXPECT(0, StopTraceW(0xFFFF, NULL, &empty_block(&second_block)->p));
    EXPECT(0xFFFF, second_block.p.Wnode.HistoricalContext);
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, query_session(0xFFFF));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    EXPECT(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    check_session_in_utf16(folder);
    check_session_in_utf8(folder);
    check_other_modes(folder);
    if (argc < 3) {
        check_private_session_of_processes(folder);
    }
    check_relative_file_name(folder);
    check_kernel_logger();
    check_enables();
    check_many_sessions();
    check_access_rights();
    check_concurrent_controllers();
    EXPECT(0, EventUnregister(reg));
    return report_rows();
}
