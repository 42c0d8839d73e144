/* The table of information classes, from C: each line is a call, and the result that it must have.
 * A comment in the table describes the format of its lines.
 *
 *   information_table TABLE FOLDER PMU LBR GUEST
 *       PMU: 1 if the machine has counters; LBR: 1 if it records branches; GUEST: a user id
 *   information_table TABLE FOLDER PMU LBR GUEST CALLER ID ID ID ID ID
 *       run by the first form with fewer privileges; checks only the lines of CALLER
 */
#define _GNU_SOURCE

#include "control.h"

#include <evntprov.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define UNTOUCHED 0xEEEEEEEEu

/* The sessions of the table. */
static const char *const NAMES[] = {"live", "system", "spare", "private", "stale"};
enum { LIVE, SYSTEM, SPARE, PRIVATE, STOPPED, SESSIONS };

static BLOCKW block;
static int has_counters, has_branches;
static CONTROLTRACE_ID sessions[SESSIONS];
static unsigned char bytes[1 << 16], output[1 << 16], before[1 << 16];

static GUID make_guid(ULONG number) {
    GUID guid;
    memset(&guid, 0, sizeof guid);
    guid.Data1 = number;
    return guid;
}

/* Only the private session has a file; its GUID is that of its provider. */
static CONTROLTRACE_ID start_session(const char *name, ULONG mode, const char *file) {
    CONTROLTRACE_ID id = 0;
    WCHAR wide[32];
    to_wide(wide, name);
    file_block(&block, mode, file)->p.Wnode.Guid = make_guid(file[0] == 0 ? 0 : 0x7002);
    EXPECT(0, StartTraceW(&id, wide, &block.p));
    return id;
}

/* Appends a number. */
static size_t append_number(size_t at, uint64_t number, size_t size) {
    memcpy(bytes + at, &number, size);
    return at + size;
}

/* Makes the bytes that a buffer of the table describes, and returns their number. Parts: z zeros;
 * b, h, w a number of 1, 2 or 4 bytes; g GUIDs; e CLASSIC_EVENT_IDs. */
static size_t fill_buffer(char *text) {
    static const GUID THREAD = {0x3d6fa8d1, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};
    size_t at = 0;
    memset(bytes, 0, sizeof bytes);
    for (char *part = strtok(text, "+"); part != NULL; part = strtok(NULL, "+")) {
        ULONG number = (ULONG)strtoul(part + 2, NULL, 10);
        switch (part[0]) {
        case 'z': at += number; break;
        case 'b': at = append_number(at, number, 1); break;
        case 'h': at = append_number(at, number, 2); break;
        case 'w': at = append_number(at, number, 4); break;
        case 'g':
            for (ULONG i = 1; i <= number; i++) {
                at = append_number(at, i, 4) + 12;
            }
            break;
        case 'e':
            for (ULONG i = 0; i < number; i++) {
                memcpy(bytes + at, &THREAD, sizeof THREAD);
                at = append_number(at + sizeof THREAD, i & 0xFF, 8);
            }
            break;
        default: EXPECT(0, part[0]);
        }
    }
    return at;
}

/* Returns A or B of "CONDITION?A:B", or the whole text if it has no condition. */
static char *choose_alternative(char *text) {
    char *yes = strchr(text, '?');
    if (yes == NULL) {
        return text;
    }
    *yes++ = 0;
    char *no = strchr(yes, ':');
    *no++ = 0;
    return (strcmp(text, "pmu") == 0 ? has_counters : has_branches) ? yes : no;
}

/* One line of the table. */
typedef struct {
    char call[16], kind[16], session[16], buffer[256], length[16], status[64], returned[64], caller[16];
    unsigned class_number;
    CONTROLTRACE_ID id;
    /* The buffer, and its size in bytes. */
    void *input;
    ULONG size;
} TABLE_LINE;

static ULONG make_call(const TABLE_LINE *entry, void *input, ULONG length, ULONG *returned) {
    TRACE_INFO_CLASS info_class = (TRACE_INFO_CLASS)entry->class_number;
    switch (entry->call[0]) {
    case 's': return TraceSetInformation(entry->id, info_class, input, length);
    case 'q': return TraceQueryInformation(entry->id, info_class, input, length, returned);
    default: {
        int has_room = strcmp(entry->session, "no-out") != 0 && (length != 0 || input != NULL);
        return EnumerateTraceGuidsEx(info_class, entry->input, entry->size, has_room ? output : NULL, length, returned);
    }
    }
}

/* Returns the length that the same call returns for length 0. */
static ULONG query_needed_length(const TABLE_LINE *entry) {
    ULONG returned = UNTOUCHED;
    (void)make_call(entry, NULL, 0, &returned);
    EXPECT(1, returned != UNTOUCHED);
    return returned;
}

static ULONG parse_length(const TABLE_LINE *entry) {
    if (strncmp(entry->length, "need", 4) != 0) {
        return (ULONG)strtoul(entry->length, NULL, 10);
    }
    ULONG needed = query_needed_length(entry);
    return entry->length[4] == '-' && needed > 0 ? needed - 1 : needed;
}

/* Returns whether a failed call wrote nothing, or a successful one nothing after its answer. */
static int is_untouched(const TABLE_LINE *entry, ULONG status, ULONG returned) {
    const unsigned char *buffer = entry->call[0] == 'e' ? output : bytes;
    size_t answer = status == 0 && returned != UNTOUCHED ? returned : 0;
    return entry->call[0] == 's' || memcmp(buffer + answer, before + answer, sizeof before - answer) == 0;
}

/* Checks the call of a line, and the same call without a return length. */
static void check_line(TABLE_LINE *entry, unsigned number, const char *line) {
    ULONG returned = UNTOUCHED, length = parse_length(entry);
    memset(output, 0xEE, sizeof output);
    memcpy(before, entry->call[0] == 'e' ? output : bytes, sizeof before);
    ULONG status_returned = make_call(entry, entry->input, length, &returned);
    int is_expected = is_untouched(entry, status_returned, returned) && status_returned == strtoul(choose_alternative(entry->status), NULL, 10);
    const char *expected_length = choose_alternative(entry->returned);
    if (strcmp(expected_length, "any") == 0) {
        is_expected &= returned != UNTOUCHED && returned > 0;
    } else if (strcmp(expected_length, "need") == 0) {
        is_expected &= returned == query_needed_length(entry);
    } else {
        is_expected &= returned == (expected_length[0] == '-' ? UNTOUCHED : (ULONG)strtoul(expected_length, NULL, 10));
    }
    if (entry->call[0] == 'q') {
        is_expected &= status_returned == make_call(entry, entry->input, length, NULL);
    } else if (entry->call[0] == 'e') {
        is_expected &= make_call(entry, entry->input, length, NULL) == ERROR_INVALID_PARAMETER;
    }
    if (!is_expected) {
        fprintf(stderr, "line %u: status %u, ReturnLength %u: %s", number, (unsigned)status_returned, (unsigned)returned, line);
    }
    EXPECT(1, is_expected);
}

static CONTROLTRACE_ID find_session_id(const char *session) {
    for (int i = 0; i < SESSIONS; i++) {
        if (strcmp(session, NAMES[i]) == 0) {
            return sessions[i];
        }
    }
    return 0;
}

/* Checks all lines of one kind of caller. */
static void check_lines_of_caller(const char *file, const char *caller) {
    char line[512];
    unsigned number = 0;
    TABLE_LINE entry;
    FILE *table = fopen(file, "r");
    EXPECT(1, table != NULL);
    while (fgets(line, sizeof line, table) != NULL) {
        number++;
        if (line[0] == '#' || strncmp(line, "none", 4) == 0) {
            continue;
        }
        int fields = sscanf(line, "%15s %u %15s %15s %255s %15s %63s %63s %15s", entry.call, &entry.class_number, entry.kind, entry.session,
                            entry.buffer, entry.length, entry.status, entry.returned, entry.caller);
        EXPECT(9, fields);
        if (strcmp(entry.caller, caller) == 0) {
            int is_null = strncmp(entry.buffer, "null", 4) == 0;
            entry.id = find_session_id(entry.session);
            entry.input = is_null ? NULL : bytes;
            entry.size = is_null ? (ULONG)(entry.buffer[4] == '*' ? strtoul(entry.buffer + 5, NULL, 10) : 0) : (ULONG)fill_buffer(entry.buffer);
            check_line(&entry, number, line);
        }
    }
    fclose(table);
}

/* Runs this program once more, with fewer privileges. */
static void run_with_fewer_privileges(const char *caller, char **argv) {
    char ids[SESSIONS][24];
    char *arguments[8 + SESSIONS] = {argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], (char *)(uintptr_t)caller};
    int status = -1;
    for (int i = 0; i < SESSIONS; i++) {
        snprintf(ids[i], sizeof ids[i], "%llu", (unsigned long long)sessions[i]);
        arguments[7 + i] = ids[i];
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* The bounding set limits the next program, even if it runs as root. */
        int is_limited = strcmp(caller, "plain") != 0 || (prctl(PR_CAPBSET_DROP, CAP_PERFMON, 0, 0, 0) == 0 &&
                                                    prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0);
        if (is_limited) {
            execv(argv[0], arguments);
        }
        _exit(99);
    }
    EXPECT(child, waitpid(child, &status, 0));
    EXPECT(0, status);
}

int main(int argc, char **argv) {
    const ULONG REAL_TIME = EVENT_TRACE_REAL_TIME_MODE;
    REGHANDLE reg = 0;
    GUID provider = make_guid(0x7000), group = make_guid(0x7001);
    ENABLE_TRACE_PARAMETERS params;
    EXPECT(1, argc == 6 || argc == 7 + SESSIONS);
    has_counters = argv[3][0] == '1';
    has_branches = argv[4][0] == '1';
    if (argc > 6) {
        uid_t guest = (uid_t)strtoul(argv[5], NULL, 10);
        /* The user changes only now: other users may be unable to read the build folder, and so
         * to start the program. */
        int is_user_changed = strcmp(argv[6], "guest") != 0 ||
                    (setgroups(0, NULL) == 0 && setresgid(guest, guest, guest) == 0 && setresuid(guest, guest, guest) == 0);
        EXPECT(1, is_user_changed);
        for (int i = 0; i < SESSIONS; i++) {
            sessions[i] = strtoull(argv[7 + i], NULL, 10);
        }
        check_lines_of_caller(argv[1], argv[6]);
        return report_rows();
    }

    EXPECT(0, EventRegister(&provider, NULL, NULL, &reg));
    sessions[LIVE] = start_session("live", REAL_TIME, "");
    sessions[SYSTEM] = start_session("system", REAL_TIME | EVENT_TRACE_SYSTEM_LOGGER_MODE, "");
    sessions[SPARE] = start_session("spare", REAL_TIME | EVENT_TRACE_SYSTEM_LOGGER_MODE, "");
    sessions[PRIVATE] = start_session("private", EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(argv[2], "private.etl"));
    sessions[STOPPED] = start_session("stale", REAL_TIME, "");
    EXPECT(0, StopTraceW(sessions[STOPPED], NULL, &empty_block(&block)->p));
    memset(&params, 0, sizeof params);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    EXPECT(0, EnableTraceEx2(sessions[LIVE], &provider, 1, 4, 0, 0, 30000, &params));
    params.EnableProperty = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
    EXPECT(0, EnableTraceEx2(sessions[LIVE], &group, 1, 4, 0, 0, 30000, &params));

    check_lines_of_caller(argv[1], "any");
    run_with_fewer_privileges("plain", argv);
    run_with_fewer_privileges("guest", argv);
    for (int i = LIVE; i < STOPPED; i++) {
        EXPECT(0, StopTraceW(sessions[i], NULL, &empty_block(&block)->p));
    }
    EXPECT(0, EventUnregister(reg));
    return report_rows();
}
