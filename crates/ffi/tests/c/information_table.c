/* The table of information classes, from C: each line is a call, and what it must return. How lines are made is told at the head of the table.
 *
 *   information_table TABLE FOLDER PMU LBR      PMU, LBR: 1 where the machine has counters, records branches
 */
#include "control.h"

#include <evntprov.h>
#include <stdint.h>

static BLOCKW block;
static int has_counters, has_branches;
static unsigned char bytes[1 << 16], output[1 << 16];

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

int main(int argc, char **argv) {
    const ULONG REAL_TIME = EVENT_TRACE_REAL_TIME_MODE, UNTOUCHED = 0xEEEEEEEE;
    char line[512], call[16], session[16], buffer[256], status[64], returned[64], who[16];
    unsigned class_number, length, number = 0;
    REGHANDLE reg = 0;
    GUID provider = guid(0x7000), group = guid(0x7001);
    ENABLE_TRACE_PARAMETERS params;
    FILE *table = argc > 4 ? fopen(argv[1], "r") : NULL;
    IS(1, table != NULL);
    has_counters = argv[3][0] == '1';
    has_branches = argv[4][0] == '1';

    IS(0, EventRegister(&provider, NULL, NULL, &reg));
    CONTROLTRACE_ID live = started("live", REAL_TIME, "");
    CONTROLTRACE_ID system_wide = started("system", REAL_TIME | EVENT_TRACE_SYSTEM_LOGGER_MODE, "");
    CONTROLTRACE_ID own = started("private", EVENT_TRACE_PRIVATE_LOGGER_MODE | 1, in(argv[2], "private.etl"));
    CONTROLTRACE_ID stale = started("stale", REAL_TIME, "");
    IS(0, StopTraceW(stale, NULL, &empty(&block)->p));
    memset(&params, 0, sizeof params);
    params.Version = ENABLE_TRACE_PARAMETERS_VERSION_2;
    IS(0, EnableTraceEx2(live, &provider, 1, 4, 0, 0, 30000, &params));
    params.EnableProperty = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
    IS(0, EnableTraceEx2(live, &group, 1, 4, 0, 0, 30000, &params));

    while (fgets(line, sizeof line, table) != NULL) {
        number++;
        if (line[0] == '#') {
            continue;
        }
        int fields = sscanf(line, "%15s %u %15s %255s %u %63s %63s %15s", call, &class_number, session, buffer, &length, status,
                            returned, who);
        IS(8, fields);
        if (strcmp(who, "any") != 0) {
            continue;
        }
        ULONG got, told = UNTOUCHED;
        void *given = strcmp(buffer, "null") == 0 ? NULL : bytes;
        size_t size = given == NULL ? 0 : fill(buffer);
        CONTROLTRACE_ID id = session[0] == 'l'   ? live
                             : session[0] == 'p' ? own
                             : strcmp(session, "system") == 0 ? system_wide
                             : strcmp(session, "stale") == 0  ? stale
                                                              : 0;
        TRACE_INFO_CLASS which = (TRACE_INFO_CLASS)class_number;
        if (call[0] == 's') {
            got = TraceSetInformation(id, which, given, length);
        } else if (call[0] == 'q') {
            got = TraceQueryInformation(id, which, given, length, &told);
        } else {
            got = EnumerateTraceGuidsEx(which, given, (ULONG)size, output, length, &told);
        }
        const char *want_status = chosen(status), *want_told = chosen(returned);
        ULONG want = want_told[0] == '-' ? UNTOUCHED : (ULONG)strtoul(want_told, NULL, 10);
        int is_right = got == strtoul(want_status, NULL, 10) &&
                       (strcmp(want_told, "any") == 0 ? told != UNTOUCHED && told > 0 : told == want);
        if (!is_right) {
            fprintf(stderr, "line %u: status %u, ReturnLength %u: %s", number, (unsigned)got, (unsigned)told, line);
        }
        IS(1, is_right);
    }
    fclose(table);
    IS(0, StopTraceW(live, NULL, &empty(&block)->p));
    IS(0, StopTraceW(system_wide, NULL, &empty(&block)->p));
    IS(0, StopTraceW(own, NULL, &empty(&block)->p));
    IS(0, EventUnregister(reg));
    return finish();
}
