// The cost of a disabled TraceLoggingWrite in C and in C++: loops whose instructions valgrind counts.
//
//   disabled event PASSES     a TraceLoggingWrite of three fields that no session enables
//   disabled flag PASSES      a flag test
#include <TraceLoggingProvider.h>
#include <winmeta.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

TRACELOGGING_DEFINE_PROVIDER(g_bench, "Traceweir.Bench",
    (0x5bd39d4c, 0x7a1e, 0x4f60, 0x9a, 0x55, 0x1b, 0x7f, 0x6b, 0x2f, 0x0d, 0x11));

static char flag;
static uint64_t reached_count;

static __attribute__((noinline, cold)) void count_reached(void)
{
    reached_count++;
}

static __attribute__((noinline)) void pass_events(uint64_t passes)
{
    for (uint64_t i = 0; i < passes; i++) {
        // The compiler must not know that the provider and the flag never change.
        __asm__ volatile("" ::: "memory");
        TraceLoggingWrite(g_bench, "Sample", TraceLoggingLevel(WINEVENT_LEVEL_INFO), TraceLoggingKeyword(1),
            TraceLoggingUInt32(1, "number"), TraceLoggingUInt64(2, "value"), TraceLoggingString("three", "words"));
    }
}

static __attribute__((noinline)) void test_flag(uint64_t passes)
{
    for (uint64_t i = 0; i < passes; i++) {
        __asm__ volatile("" ::: "memory");
        if (__atomic_load_n(&flag, __ATOMIC_RELAXED)) count_reached();
    }
}

int main(int count, char **values)
{
    if (count != 3 || FAILED(TraceLoggingRegister(g_bench))) return 1;
    if (TraceLoggingProviderEnabled(g_bench, WINEVENT_LEVEL_INFO, 1)) return 1;
    uint64_t passes = strtoull(values[2], NULL, 10);
    if (!strcmp(values[1], "event")) pass_events(passes);
    else test_flag(passes);
    TraceLoggingUnregister(g_bench);
    return reached_count != 0;
}
