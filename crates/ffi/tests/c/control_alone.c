/* Controllers without a daemon: errors are reported, queries find no sessions, and private sessions
 * run.
 *
 *   control_alone FOLDER      writes logs to FOLDER; a private session writes own.etl and next.etl
 */
#include "control.h"

#include <evntprov.h>
#include <sys/wait.h>

static BLOCKW block, second_block;
static const GUID PROVIDER = {0xC0FFEE08, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID KERNEL_LOGGER = {0x9e814aad, 0x3204, 0x11d2, {0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39}};
static const EVENT_DESCRIPTOR EVENT = {1, 0, 0, 4, 0, 0, 1};

static ULONG start_session(void) {
    CONTROLTRACE_ID id = 7;
    ULONG status = StartTraceW(&id, u"alone", &block.p);
    EXPECT(status == 0, id != 0);
    return status;
}

/* Errors of StartTrace that the library reports without a daemon. */
static void check_invalid_starts(const char *folder) {
    CONTROLTRACE_ID id = 7;
    WCHAR name[1025];
    BLOCKA utf8_block;
    const char *file = path_in(folder, "never.etl");
    const ULONG SEQUENTIAL = EVENT_TRACE_FILE_MODE_SEQUENTIAL;

    file_block(&block, SEQUENTIAL, file);
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(NULL, u"alone", &block.p));
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, NULL, &block.p));
    EXPECT(0, id);
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, u"alone", NULL));
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceA(NULL, NULL, NULL));

    for (ULONG bytes = 0; bytes < sizeof block.p; bytes += 17) {
        file_block(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = bytes;
        EXPECT(ERROR_BAD_LENGTH, start_session());
    }
    file_block(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = sizeof block.p - 1;
    block.p.Wnode.Flags = 0;
    EXPECT(ERROR_BAD_LENGTH, start_session());
    file_block(&block, SEQUENTIAL, file)->p.Wnode.BufferSize = sizeof block.p;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    file_block(&block, SEQUENTIAL, file)->p.Wnode.Flags = 0;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    /* A structure of version 2 must have its full length, and the version number 2. */
    file_block(&block, SEQUENTIAL, file)->p.Wnode.Flags |= WNODE_FLAG_VERSIONED_PROPERTIES;
    block.p.Wnode.BufferSize = sizeof(EVENT_TRACE_PROPERTIES_V2) - 1;
    EXPECT(ERROR_BAD_LENGTH, start_session());
    block.p.Wnode.BufferSize = sizeof block;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());

    const ULONG offsets[] = {1, 48, sizeof block.p - 1, sizeof block, sizeof block + 1, 0xFFFFFFFF};
    for (unsigned i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        file_block(&block, SEQUENTIAL, file)->p.LogFileNameOffset = offsets[i];
        EXPECT(ERROR_INVALID_PARAMETER, start_session());
        file_block(&block, SEQUENTIAL, file)->p.LoggerNameOffset = offsets[i];
        EXPECT(ERROR_INVALID_PARAMETER, start_session());
    }
    file_block(&block, SEQUENTIAL, file)->p.LoggerNameOffset = 0;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    /* Room for "alone" and its terminator is 12 bytes. */
    file_block(&block, SEQUENTIAL, file)->p.LoggerNameOffset = block.p.LogFileNameOffset - 11;
    EXPECT(ERROR_BAD_LENGTH, start_session());
    file_block(&block, SEQUENTIAL, file)->p.LoggerNameOffset = sizeof block - 10;
    EXPECT(ERROR_BAD_LENGTH, start_session());
    file_block(&block, 0, file)->p.LoggerNameOffset = sizeof block - 1;
    EXPECT(ERROR_BAD_LENGTH, start_session());

    for (unsigned i = 0; i < 1024; i++) {
        name[i] = u'x';
    }
    name[1024] = 0;
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, name, &file_block(&block, SEQUENTIAL, file)->p));
    name[0] = 0xD800;
    name[1] = 0;
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, name, &file_block(&block, SEQUENTIAL, file)->p));
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceW(&id, u"", &file_block(&block, SEQUENTIAL, file)->p));
    EXPECT(ERROR_INVALID_PARAMETER, StartTraceA(&id, "\xFF", &narrow_block(&utf8_block, SEQUENTIAL, file)->p));
    /* A file name without a terminator. */
    file_block(&block, SEQUENTIAL, file);
    for (unsigned i = 0; i < NAME_UNITS; i++) {
        block.file[i] = u'x';
    }
    EXPECT(ERROR_INVALID_PARAMETER, start_session());

    file_block(&block, SEQUENTIAL | EVENT_TRACE_FILE_MODE_CIRCULAR, file);
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    file_block(&block, EVENT_TRACE_PRIVATE_IN_PROC | SEQUENTIAL, file);
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    file_block(&block, SEQUENTIAL, file)->p.Wnode.Guid = KERNEL_LOGGER;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    file_block(&block, SEQUENTIAL, file)->p.Wnode.ClientContext = 4;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    file_block(&block, SEQUENTIAL, file)->p.EnableFlags = EVENT_TRACE_FLAG_PROCESS;
    EXPECT(ERROR_INVALID_PARAMETER, start_session());
    /* A file is required, but its name is empty or missing. */
    file_block(&block, SEQUENTIAL, "");
    EXPECT(ERROR_BAD_PATHNAME, start_session());
    file_block(&block, 0, file)->p.LogFileNameOffset = 0;
    EXPECT(ERROR_BAD_PATHNAME, start_session());
}

static void check_invalid_controls(void) {
    static const ULONG codes[] = {0, 1, 2, 3, 4, 5};
    for (unsigned i = 0; i < 6; i++) {
        ULONG code = codes[i];
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(0, u"alone", NULL, code));
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(0, NULL, &empty_block(&block)->p, code));
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(0, u"", &empty_block(&block)->p, code));
        /* EVENT_TRACE_PROPERTIES has 120 bytes. */
        empty_block(&block)->p.Wnode.BufferSize = 119;
        EXPECT(ERROR_BAD_LENGTH, ControlTraceW(STALE_ID, NULL, &block.p, code));
        empty_block(&block)->p.LoggerNameOffset = 119;
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(STALE_ID, NULL, &block.p, code));
        empty_block(&block)->p.LogFileNameOffset = sizeof block;
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(STALE_ID, NULL, &block.p, code));
        empty_block(&block)->p.Wnode.Guid = KERNEL_LOGGER;
        EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(0, u"alone", &block.p, code));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(STALE_ID, NULL, &empty_block(&block)->p, code));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(1, NULL, &empty_block(&block)->p, code));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(0xFFFFFFFFFFFFFFFFull, NULL, &empty_block(&block)->p, code));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(0, u"alone", &empty_block(&block)->p, code));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceA(STALE_ID, "alone", &empty_block(&block)->p, code));
    }
    EXPECT(ERROR_INVALID_PARAMETER, ControlTraceW(STALE_ID, NULL, &empty_block(&block)->p, 6));
    EXPECT(ERROR_INVALID_PARAMETER, ControlTraceA(STALE_ID, NULL, &empty_block(&block)->p, 0xFFFFFFFF));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, QueryTraceW(STALE_ID, NULL, &empty_block(&block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, StopTraceA(0, "alone", &empty_block(&block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, UpdateTraceW(0, u"alone", &empty_block(&block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, FlushTraceA(STALE_ID, NULL, &empty_block(&block)->p));
}

static void check_lists(void) {
    PEVENT_TRACE_PROPERTIES blocks[1] = {&block.p};
    TRACE_GUID_PROPERTIES properties, *elements[1] = {&properties};
    ULONG count = 7;
    EXPECT(ERROR_INVALID_PARAMETER, QueryAllTracesW(NULL, 1, &count));
    EXPECT(ERROR_INVALID_PARAMETER, QueryAllTracesW(blocks, 0, &count));
    EXPECT(ERROR_INVALID_PARAMETER, QueryAllTracesA(blocks, 1, NULL));
    EXPECT(7, count);
    EXPECT(0, QueryAllTracesW(blocks, 1, &count));
    EXPECT(0, count);
    count = 7;
    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuids(NULL, 1, &count));
    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuids(elements, 0, &count));
    EXPECT(ERROR_INVALID_PARAMETER, EnumerateTraceGuids(elements, 1, NULL));
    EXPECT(0, EnumerateTraceGuids(elements, 1, &count));
    EXPECT(0, count);
}

/* `valid_status` is the result of valid calls for `id`: 0, or the error for an unknown session. All
 * other errors are reported before that one. */
static void check_invalid_enables(CONTROLTRACE_ID id, ULONG valid_status) {
    ENABLE_TRACE_PARAMETERS params;
    EVENT_FILTER_DESCRIPTOR filters[14];
    memset(&params, 0, sizeof params);
    memset(filters, 0, sizeof filters);
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(0, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, NULL, 1, 4, 0, 0, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 3, 4, 0, 0, 0, NULL));
    for (ULONG version = 0; version < 4; version++) {
        params.Version = version;
        EXPECT(version == 1 || version == 2 ? valid_status : ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    }
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    params.FilterDescCount = 1;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.EnableFilterDesc = filters;
    /* Filters of type "none" are ignored. */
    EXPECT(valid_status, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.FilterDescCount = 14;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    params.FilterDescCount = 1;
    filters[0].Type = EVENT_FILTER_TYPE_EVENT_ID;
    filters[0].Size = 6;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    filters[0].Ptr = (ULONG_PTR)filters;
    filters[0].Size = 4097;
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, &params));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx(&PROVIDER, NULL, id, 1, 4, 0, 0, 0, filters));
    EXPECT(valid_status, EnableTraceEx(&PROVIDER, NULL, id, 1, 4, 0, 0, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTraceEx(NULL, NULL, id, 1, 4, 0, 0, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTrace(1, 1, 256, &PROVIDER, id));
    EXPECT(ERROR_INVALID_PARAMETER, EnableTrace(1, 1, 4, &PROVIDER, 0));
    EXPECT(valid_status, EnableTrace(1, 1, 4, &PROVIDER, id));
}

static void check_access_rights(void) {
    GUID object = PROVIDER;
    unsigned char list[512], sid[12] = {1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
    ULONG size = 0, small;
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessQuery(NULL, NULL, &size));
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessQuery(&object, list, NULL));
    EXPECT(ERROR_MORE_DATA, EventAccessQuery(&object, NULL, &size));
    small = size - 1;
    EXPECT(1, size > 20 && size <= sizeof list);
    EXPECT(ERROR_MORE_DATA, EventAccessQuery(&object, list, &small));
    EXPECT(size, small);
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessQuery(&object, NULL, &small));
    EXPECT(0, EventAccessQuery(&object, list, &size));
    EXPECT(1, list[0]);
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(NULL, 0, sid, 1, TRUE));
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(&object, 0, NULL, 1, TRUE));
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(&object, EventSecurityMax, sid, 1, TRUE));
    /* A SID has at most 15 subauthorities, and the revision 1. */
    sid[1] = 16;
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(&object, 0, sid, 1, TRUE));
    sid[0] = 2;
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessControl(&object, 0, sid, 1, TRUE));
    EXPECT(ERROR_INVALID_PARAMETER, EventAccessRemove(NULL));
}

static int captures;

static void NTAPI count_captures(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                                 PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context;
    captures += code == EVENT_CONTROL_CODE_CAPTURE_STATE;
}

/* Private sessions of this process: found by id alone, or by name and a private mode. */
static void check_private_session(const char *folder) {
    const ULONG IN_PROCESS = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
    CONTROLTRACE_ID id = 0, second = 7;
    REGHANDLE reg = 0;
    PEVENT_TRACE_PROPERTIES blocks[1] = {&second_block.p};
    ULONG count = 7;
    EXPECT(0, EventRegister(&PROVIDER, count_captures, NULL, &reg));
    file_block(&block, IN_PROCESS | EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, "own.etl"))->p.Wnode.Guid = PROVIDER;
    block.p.AgeLimit = -1;
    EXPECT(0, StartTraceW(&id, u"Own \u00e4", &block.p));
    EXPECT(1, id != 0 && id == block.p.Wnode.HistoricalContext && block.p.NumberOfBuffers != 0);
    EXPECT(1, block.name[0] == u'O' && block.name[4] == 0xE4 && block.name[5] == 0);
    EXPECT(0, memcmp(&block.p.Wnode.Guid, &PROVIDER, sizeof PROVIDER));
    file_block(&second_block, IN_PROCESS, path_in(folder, "second.etl"));
    EXPECT(ERROR_ALREADY_EXISTS, StartTraceW(&second, u"OWN \u00c4", &second_block.p));
    EXPECT(0, second);
    file_block(&second_block, IN_PROCESS, path_in(folder, "own.etl"));
    EXPECT(ERROR_BAD_PATHNAME, StartTraceW(&second, u"second", &second_block.p));

    check_invalid_enables(id, 0);
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, 4, 0, 0, 0, NULL));
    captures = 0;
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_CAPTURE_STATE, 4, 0, 0, 0, NULL));
    EXPECT(1, captures);
    EXPECT(ERROR_INVALID_FUNCTION, EnableTraceEx2(id, &KERNEL_LOGGER, EVENT_CONTROL_CODE_CAPTURE_STATE, 4, 0, 0, 0, NULL));
    EXPECT(1, EventEnabled(reg, &EVENT));
    EXPECT(0, EventWrite(reg, &EVENT, 0, NULL));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0, 0, NULL));
    EXPECT(0, EventEnabled(reg, &EVENT));
    EXPECT(0, EnableTrace(1, 1, 4, &PROVIDER, id));

    /* The session is found by the id alone, and by the name with the mode or the id; a name alone
     * refers to a session of a daemon. */
    EXPECT(0, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(id, second_block.p.Wnode.HistoricalContext);
    EXPECT(0, ControlTraceW(id, u"own \u00c4", &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(0, u"Own \u00e4", &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(id, u"another", &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    file_block(&second_block, IN_PROCESS, "");
    EXPECT(0, ControlTraceW(0, u"own \u00e4", &second_block.p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(1, equals_wide(second_block.file, path_in(folder, "own.etl")));
    /* An id with the same logger id, but of another session. */
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, ControlTraceW(id + 0x10000, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_QUERY));
    EXPECT(0, QueryAllTracesW(blocks, 1, &count));
    EXPECT(0, count);

    EXPECT(0, FlushTraceW(id, NULL, &file_block(&second_block, 0, "")->p));
    EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_INCREMENT_FILE));
    EXPECT(ERROR_INVALID_FUNCTION, ControlTraceW(id, NULL, &empty_block(&second_block)->p, EVENT_TRACE_CONTROL_CONVERT_TO_REALTIME));
    file_block(&second_block, 0, path_in(folder, "next.etl"))->p.FlushTimer = 3;
    EXPECT(0, UpdateTraceW(id, NULL, &second_block.p));
    EXPECT(3, second_block.p.FlushTimer);
    EXPECT(0, EventWrite(reg, &EVENT, 0, NULL));
    /* The name does not fit, but the session has stopped. */
    file_block(&second_block, 0, "");
    second_block.p.LogFileNameOffset = sizeof second_block - 4;
    EXPECT(ERROR_MORE_DATA, StopTraceW(id, NULL, &second_block.p));
    EXPECT(0, second_block.file[NAME_UNITS - 2]);
    EXPECT(0, second_block.p.EventsLost);
    EXPECT(1, second_block.p.BuffersWritten >= 2);
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, StopTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
    EXPECT(0, EventUnregister(reg));
}

/* A child has none of its parent's sessions; its calls return a defined status, and its parent
 * continues. */
static void check_forked_child(const char *folder) {
    CONTROLTRACE_ID id = 0;
    int exit_status = 0;
    file_block(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC, path_in(folder, "parent.etl"));
    EXPECT(0, StartTraceW(&id, u"parent", &block.p));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, QueryTraceW(id, NULL, &empty_block(&second_block)->p));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, StopTraceW(id, NULL, &empty_block(&second_block)->p));
        EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, EnableTraceEx2(id, &PROVIDER, 1, 4, 0, 0, 0, NULL));
        _exit(0);
    }
    EXPECT(child, waitpid(child, &exit_status, 0));
    EXPECT(0, exit_status);
    EXPECT(0, QueryTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));
}

/* A session that ends by itself at the limit of its file. */
static void check_full_file(const char *folder) {
    static char large_payload[8000];
    EVENT_DATA_DESCRIPTOR data;
    CONTROLTRACE_ID id = 0;
    REGHANDLE reg = 0;
    file_block(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC | EVENT_TRACE_FILE_MODE_SEQUENTIAL |
                          EVENT_TRACE_USE_KBYTES_FOR_SIZE, path_in(folder, "full.etl"));
    block.p.BufferSize = 16;
    block.p.MaximumFileSize = 64;
    EXPECT(0, StartTraceW(&id, u"full", &block.p));
    EXPECT(0, EventRegister(&PROVIDER, NULL, NULL, &reg));
    EXPECT(0, EnableTraceEx2(id, &PROVIDER, 1, 5, 0, 0, 0, NULL));
    EventDataDescCreate(&data, large_payload, sizeof large_payload);
    for (int i = 0; i < 6000 && QueryTraceW(id, NULL, &empty_block(&second_block)->p) == 0; i++) {
        EventWrite(reg, &EVENT, 1, &data);
        usleep(1000);
    }
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, QueryTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(ERROR_WMI_INSTANCE_NOT_FOUND, StopTraceW(id, NULL, &empty_block(&second_block)->p));
    /* The name of the session can be used again. */
    file_block(&block, EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC, path_in(folder, "again.etl"));
    EXPECT(0, StartTraceW(&id, u"full", &block.p));
    EXPECT(0, StopTraceW(id, NULL, &empty_block(&second_block)->p));
    EXPECT(0, EventUnregister(reg));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    check_invalid_starts(folder);
    check_invalid_controls();
    check_lists();
    check_invalid_enables(STALE_ID, ERROR_WMI_INSTANCE_NOT_FOUND);
    check_access_rights();
    check_private_session(folder);
    check_forked_child(folder);
    check_full_file(folder);
    return report_rows();
}
