// The LTTng-UST peer: one tracepoint with three fields under the load of load.h. The benchmark creates
// the session.
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_tp.h"

#include "load.h"

static __attribute__((noinline)) void emit(int thread, int payload, uint64_t count)
{
    (void)thread;
    (void)payload;
    for (uint64_t i = 0; i < count; i++) {
        lttng_ust_tracepoint(traceweir_bench, sample, (uint32_t)i, i * 0x9e37, text);
        __asm__ volatile("" ::: "memory");
    }
}
