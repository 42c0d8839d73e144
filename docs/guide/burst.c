/* burst.c: writes events as fast as it can. */
#include <TraceLoggingProvider.h>
#include <stdio.h>
#include <stdlib.h>

/* The GUID is the hash of the name. */
TRACELOGGING_DEFINE_PROVIDER(burst, "MyCompany.Burst",
    (0x549fc090, 0x4240, 0x5830, 0x2d, 0x07, 0x05, 0x5d, 0xc6, 0xd2, 0xd0, 0x90));

int main(int argc, char **argv) {
    unsigned events = argc > 1 ? (unsigned)atoi(argv[1]) : 1000000;
    TraceLoggingRegister(burst);
    for (unsigned number = 0; number < events; number++) {
        TraceLoggingWrite(burst, "Tick", TraceLoggingLevel(4), TraceLoggingUInt32(number, "number"),
            TraceLoggingString("a text that makes the event larger than its number", "text"));
    }
    printf("%u events\n", events);
    TraceLoggingUnregister(burst);
    return 0;
}
