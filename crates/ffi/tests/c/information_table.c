/* The table of information classes, from C: each line is a call, and what it must return. How lines are made is told at the head of the table.
 *
 *   information_table TABLE FOLDER PMU LBR GUEST                     PMU, LBR: 1 where the machine has counters, records branches; GUEST: a user's id
 *   information_table TABLE FOLDER PMU LBR GUEST WHO ID ID ID ID ID  the same program again, as a process with fewer rights: the lines of `plain`, of `guest`
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
enum { LIVE, SYSTEM, SPARE, PRIVATE, GONE, SESSIONS };

static BLOCKW block;
static int has_counters, has_branches;
static CONTROLTRACE_ID sessions[SESSIONS];
static unsigned char bytes[1 << 16], output[1 << 16], before[1 << 16];

static GUID guid(ULONG number) {
    GUID made;
    memset(&made, 0, sizeof made);
    made.Data1 = number;
    return made;
}

static CONTROLTRACE_ID started(const char *name, ULONG mode, const char *file) {
    CONTROLTRACE_ID id = 0;
    WCHAR wide[32];
    widen(wide, name);
    with_file(&block, mode, file)->p.Wnode.Guid = guid(file[0] == 0 ? 0 : 0x7002);
    IS(0, StartTraceW(&id, wide, &block.p));
    return id;
}

/* Puts a number behind what is there. */
static size_t put(size_t at, uint64_t number, size_t size) {
    memcpy(bytes + at, &number, size);
    return at + size;
}

/* The bytes that a buffer of the table stands for: how many. */
static size_t fill(char *text) {
    static const GUID THREAD = {0x3d6fa8d1, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};
    size_t at = 0;
    memset(bytes, 0, sizeof bytes);
    for (char *part = strtok(text, "+"); part != NULL; part = strtok(NULL, "+")) {
        ULONG number = (ULONG)strtoul(part + 2, NULL, 10);
        switch (part[0]) {
        case 'z': at += number; break;
        case 'b': at = put(at, number, 1); break;
        case 'h': at = put(at, number, 2); break;
        case 'w': at = put(at, number, 4); break;
        case 'g':
            for (ULONG i = 1; i <= number; i++) {
                at = put(at, i, 4) + 12;
            }
            break;
        case 'e':
            for (ULONG i = 0; i < number; i++) {
                memcpy(bytes + at, &THREAD, sizeof THREAD);
                at = put(at + sizeof THREAD, i & 0xFF, 8);
            }
            break;
        default: IS(0, part[0]);
        }
    }
    return at;
}

/* "IF?A:B", or just a word. */
static char *chosen(char *text) {
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
    char call[16], kind[16], session[16], buffer[256], length[16], status[64], returned[64], who[16];
    unsigned class_number;
    CONTROLTRACE_ID id;
    /* The buffer, and how many bytes it has. */
    void *given;
    ULONG size;
} ROW;

static ULONG call(const ROW *it, void *given, ULONG length, ULONG *told) {
    TRACE_INFO_CLASS which = (TRACE_INFO_CLASS)it->class_number;
    switch (it->call[0]) {
    case 's': return TraceSetInformation(it->id, which, given, length);
    case 'q': return TraceQueryInformation(it->id, which, given, length, told);
    default: {
        int has_room = strcmp(it->session, "no-out") != 0 && (length != 0 || given != NULL);
        return EnumerateTraceGuidsEx(which, it->given, it->size, has_room ? output : NULL, length, told);
    }
    }
}

/* What the same call tells for length 0. */
static ULONG needed(const ROW *it) {
    ULONG told = UNTOUCHED;
    (void)call(it, NULL, 0, &told);
    IS(1, told != UNTOUCHED);
    return told;
}

static ULONG length_of(const ROW *it) {
    if (strncmp(it->length, "need", 4) != 0) {
        return (ULONG)strtoul(it->length, NULL, 10);
    }
    ULONG all = needed(it);
    return it->length[4] == '-' && all > 0 ? all - 1 : all;
}

/* What fails writes nothing, and what succeeds nothing behind the answer. */
static int is_untouched(const ROW *it, ULONG status, ULONG told) {
    const unsigned char *after = it->call[0] == 'e' ? output : bytes;
    size_t answer = status == 0 && told != UNTOUCHED ? told : 0;
    return it->call[0] == 's' || memcmp(after + answer, before + answer, sizeof before - answer) == 0;
}

/* Makes the call of a line, and the same without a place for the length. */
static void check(ROW *it, unsigned number, const char *line) {
    ULONG told = UNTOUCHED, length = length_of(it);
    memset(output, 0xEE, sizeof output);
    memcpy(before, it->call[0] == 'e' ? output : bytes, sizeof before);
    ULONG got = call(it, it->given, length, &told);
    int is_right = is_untouched(it, got, told) && got == strtoul(chosen(it->status), NULL, 10);
    const char *want = chosen(it->returned);
    if (strcmp(want, "any") == 0) {
        is_right &= told != UNTOUCHED && told > 0;
    } else if (strcmp(want, "need") == 0) {
        is_right &= told == needed(it);
    } else {
        is_right &= told == (want[0] == '-' ? UNTOUCHED : (ULONG)strtoul(want, NULL, 10));
    }
    if (it->call[0] == 'q') {
        is_right &= got == call(it, it->given, length, NULL);
    } else if (it->call[0] == 'e') {
        is_right &= call(it, it->given, length, NULL) == ERROR_INVALID_PARAMETER;
    }
    if (!is_right) {
        fprintf(stderr, "line %u: status %u, ReturnLength %u: %s", number, (unsigned)got, (unsigned)told, line);
    }
    IS(1, is_right);
}

static CONTROLTRACE_ID id_of(const char *session) {
    for (int i = 0; i < SESSIONS; i++) {
        if (strcmp(session, NAMES[i]) == 0) {
            return sessions[i];
        }
    }
    return 0;
}

/* All lines of somebody. */
static void run(const char *file, const char *who) {
    char line[512];
    unsigned number = 0;
    ROW it;
    FILE *table = fopen(file, "r");
    IS(1, table != NULL);
    while (fgets(line, sizeof line, table) != NULL) {
        number++;
        if (line[0] == '#' || strncmp(line, "none", 4) == 0) {
            continue;
        }
        int fields = sscanf(line, "%15s %u %15s %15s %255s %15s %63s %63s %15s", it.call, &it.class_number, it.kind, it.session,
                            it.buffer, it.length, it.status, it.returned, it.who);
        IS(9, fields);
        if (strcmp(it.who, who) == 0) {
            int is_null = strncmp(it.buffer, "null", 4) == 0;
            it.id = id_of(it.session);
            it.given = is_null ? NULL : bytes;
            it.size = is_null ? (ULONG)(it.buffer[4] == '*' ? strtoul(it.buffer + 5, NULL, 10) : 0) : (ULONG)fill(it.buffer);
            check(&it, number, line);
        }
    }
    fclose(table);
}

/* Runs this program once more, as somebody with fewer rights. */
static void run_as(const char *who, char **argv) {
    char ids[SESSIONS][24];
    char *words[8 + SESSIONS] = {argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], (char *)(uintptr_t)who};
    int status = -1;
    for (int i = 0; i < SESSIONS; i++) {
        snprintf(ids[i], sizeof ids[i], "%llu", (unsigned long long)sessions[i]);
        words[7 + i] = ids[i];
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* The bounds of what the next program may do, root's too. */
        int is_less = strcmp(who, "plain") != 0 || (prctl(PR_CAPBSET_DROP, CAP_PERFMON, 0, 0, 0) == 0 &&
                                                    prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0);
        if (is_less) {
            execv(argv[0], words);
        }
        _exit(99);
    }
    IS(child, waitpid(child, &status, 0));
    IS(0, status);
}

int main(int argc, char **argv) {
    const ULONG REAL_TIME = EVENT_TRACE_REAL_TIME_MODE;
    REGHANDLE reg = 0;
    GUID provider = guid(0x7000), group = guid(0x7001);
    ENABLE_TRACE_PARAMETERS params;
    IS(1, argc == 6 || argc == 7 + SESSIONS);
    has_counters = argv[3][0] == '1';
    has_branches = argv[4][0] == '1';
    if (argc > 6) {
        uid_t guest = (uid_t)strtoul(argv[5], NULL, 10);
        /* Here and not before it is started: what was built may lie where nobody else can look. */
        int is_he = strcmp(argv[6], "guest") != 0 ||
                    (setgroups(0, NULL) == 0 && setresgid(guest, guest, guest) == 0 && setresuid(guest, guest, guest) == 0);
        IS(1, is_he);
        for (int i = 0; i < SESSIONS; i++) {
            sessions[i] = strtoull(argv[7 + i], NULL, 10);
        }
        run(argv[1], argv[6]);
        return finish();
    }

    IS(0, EventRegister(&provider, NULL, NULL, &reg));
    sessions[LIVE] = started("live", REAL_TIME, "");
    sessions[SYSTEM] = started("system", REAL_TIME | EVENT_TRACE_SYSTEM_LOGGER_MODE, "");
    sessions[SPARE] = started("spare", REAL_TIME | EVENT_TRACE_SYSTEM_LOGGER_MODE, "");
    sessions[PRIVATE] = started("private", EVENT_TRACE_PRIVATE_LOGGER_MODE | 1, in(argv[2], "private.etl"));
    sessions[GONE] = started("stale", REAL_TIME, "");
    IS(0, StopTraceW(sessions[GONE], NULL, &empty(&block)->p));
    memset(&params, 0, sizeof params);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    IS(0, EnableTraceEx2(sessions[LIVE], &provider, 1, 4, 0, 0, 30000, &params));
    params.EnableProperty = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
    IS(0, EnableTraceEx2(sessions[LIVE], &group, 1, 4, 0, 0, 30000, &params));

    run(argv[1], "any");
    run_as("plain", argv);
    run_as("guest", argv);
    for (int i = LIVE; i < GONE; i++) {
        IS(0, StopTraceW(sessions[i], NULL, &empty(&block)->p));
    }
    IS(0, EventUnregister(reg));
    return finish();
}
