/* Enables providers with timeout 0 and writes at once, many times: FOLDER RUNS [busy].
 *
 * The program has three registrations of one provider. In every 25th run, the callback of the first
 * takes longer than an enable with timeout 0 waits; the other two must be enabled nevertheless.
 * With "busy", threads use all processors meanwhile. */
#define _GNU_SOURCE
#include "control.h"

#include <evntprov.h>
#include <pthread.h>
#include <string.h>

static const GUID provider = {0xC0FFEE20, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

/* More than one for each processor of most machines. */
#define BUSY_THREADS 16
/* Longer than an enable with timeout 0 waits for a callback. */
#define SLOW_CALLBACK_US 120000

static volatile int is_busy;
static volatile int is_slow;

static void *use_processor(void *unused) {
    while (is_busy) {
    }
    return unused;
}

static void NTAPI sleep_while_enabled(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                                      PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context;
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER && is_slow) {
        usleep(SLOW_CALLBACK_US);
    }
}

static void NTAPI do_nothing(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                             PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)code, (void)level, (void)any, (void)all, (void)filter, (void)context;
}

static void enable_and_write(const REGHANDLE *registrations, const char *folder, int run) {
    char name[32], file[32];
    BLOCKW block;
    CONTROLTRACE_ID session;
    WCHAR wide[32];
    snprintf(name, sizeof name, "at-once-%d", run);
    snprintf(file, sizeof file, "run-%d.etl", run);
    to_wide(wide, name);
    EXPECT(ERROR_SUCCESS,
           StartTraceW(&session, wide, &file_block(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, path_in(folder, file))->p));
    is_slow = run % 25 == 0;
    EXPECT(ERROR_SUCCESS, EnableTraceEx2(session, &provider, EVENT_CONTROL_CODE_ENABLE_PROVIDER, TRACE_LEVEL_VERBOSE, 0,
                                         0, 0, NULL));
    for (USHORT i = 0; i < 3; i++) {
        EVENT_DESCRIPTOR event = {(USHORT)(i + 1), 0, 0, TRACE_LEVEL_INFORMATION, 0, 0, 0};
        EXPECT(ERROR_SUCCESS, EventWrite(registrations[i], &event, 0, NULL));
    }
    EXPECT(ERROR_SUCCESS, ControlTraceW(session, NULL, &empty_block(&block)->p, EVENT_TRACE_CONTROL_STOP));
}

int main(int count, char **arguments) {
    pthread_t threads[BUSY_THREADS];
    REGHANDLE registrations[3];
    int runs = atoi(arguments[2]);
    is_busy = count > 3;
    for (int i = 0; is_busy && i < BUSY_THREADS; i++) {
        EXPECT(0, pthread_create(&threads[i], NULL, use_processor, NULL));
    }
    EXPECT(ERROR_SUCCESS, EventRegister(&provider, sleep_while_enabled, NULL, &registrations[0]));
    EXPECT(ERROR_SUCCESS, EventRegister(&provider, do_nothing, NULL, &registrations[1]));
    EXPECT(ERROR_SUCCESS, EventRegister(&provider, NULL, NULL, &registrations[2]));
    for (int run = 0; run < runs; run++) {
        enable_and_write(registrations, arguments[1], run);
    }
    int was_busy = is_busy;
    is_busy = 0;
    for (int i = 0; was_busy && i < BUSY_THREADS; i++) {
        EXPECT(0, pthread_join(threads[i], NULL));
    }
    for (int i = 0; i < 3; i++) {
        EXPECT(ERROR_SUCCESS, EventUnregister(registrations[i]));
    }
    return report_rows();
}
