// Writes events of a TraceLogging provider and of a manifest provider in turn: writer COUNT
// Each event contains its number and the time that the program read just before it wrote the event.

#include <stdlib.h>
#include <time.h>
#include <TraceLoggingProvider.h>
#include "writer.h"

TRACELOGGING_DEFINE_PROVIDER(provider, "ThirdParty.TraceLogging",
    (0xb7d19a6e, 0x6f2c, 0x4d0e, 0x9a, 0x55, 0x0d, 0x5d, 0x3f, 0x6b, 0x2c, 0x11));

// Returns the time in units of 100 ns since 1601.
static UINT64 now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return ((UINT64)time.tv_sec + 11644473600u) * 10000000u + (UINT64)time.tv_nsec / 100u;
}

int main(int argc, char **argv)
{
    const UINT32 count = argc > 1 ? (UINT32)atoi(argv[1]) : 1;
    if (TraceLoggingRegister(provider) < 0 || EventRegisterThirdParty_Manifest() != ERROR_SUCCESS)
        return 1;
    for (UINT32 number = 0; number < count; number++) {
        if (number % 2 == 0)
            TraceLoggingWrite(provider, "Letter", TraceLoggingUInt32(number, "Number"),
                TraceLoggingUInt64(now(), "Before"), TraceLoggingString("Fleet_Street", "Address"));
        else if (EventWritePARCEL(number, now(), u"Fleet_Street") != ERROR_SUCCESS)
            return 1;
    }
    EventUnregisterThirdParty_Manifest();
    TraceLoggingUnregister(provider);
    return 0;
}
