// Traceweir in C and in C++: TraceLoggingWrite with the three fields of lttng.c under the load of load.h.
// The benchmark starts the session.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <TraceLoggingProvider.h>
#include <winmeta.h>

#include "load.h"

TRACELOGGING_DEFINE_PROVIDER(g_bench, "Traceweir.Bench",
    (0x5bd39d4c, 0x7a1e, 0x4f60, 0x9a, 0x55, 0x1b, 0x7f, 0x6b, 0x2f, 0x0d, 0x11));

static __attribute__((noinline)) void emit(int thread, int payload, uint64_t count)
{
    (void)thread;
    (void)payload;
    for (uint64_t i = 0; i < count; i++) {
        TraceLoggingWrite(g_bench, "Sample", TraceLoggingLevel(WINEVENT_LEVEL_INFO), TraceLoggingKeyword(1),
            TraceLoggingUInt32((uint32_t)i, "number"),
            TraceLoggingUInt64(i * 0x9e37, "value"),
            TraceLoggingString(text, "words"));
        __asm__ volatile("" ::: "memory");
    }
}

// Runs before the `main` of load.h, which does not know the tracer.
static __attribute__((constructor)) void register_provider(void)
{
    if (FAILED(TraceLoggingRegister(g_bench)) || !TraceLoggingProviderEnabled(g_bench, WINEVENT_LEVEL_INFO, 1)) {
        fputs("the provider is not enabled after its registration\n", stderr);
        _exit(1);
    }
}
