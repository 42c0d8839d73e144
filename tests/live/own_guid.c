/* Registers one or two providers of one name, whose GUIDs are not the hash of the name:
 * own_guid EVENTS [two]
 * The names differ only in case, which does not count. */
#include <TraceLoggingProvider.h>

#include <stdlib.h>
#include <unistd.h>

TRACELOGGING_DEFINE_PROVIDER(first_provider, "Traceweir.Test.OwnGuid",
                             (0x5d3f1c01, 0x1111, 0x4222, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x01));
TRACELOGGING_DEFINE_PROVIDER(second_provider, "traceweir.test.OWNGUID",
                             (0x5d3f1c02, 0x1111, 0x4222, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x02));

int main(int count, char **arguments) {
    int events = count > 1 ? atoi(arguments[1]) : 1;
    int has_second_provider = count > 2;
    if (TraceLoggingRegister(first_provider) != 0 || (has_second_provider && TraceLoggingRegister(second_provider) != 0)) {
        return 1;
    }
    for (int number = 0; number < events; number++) {
        TraceLoggingWrite(first_provider, "Tick", TraceLoggingInt32(number, "number"));
        if (has_second_provider) {
            TraceLoggingWrite(second_provider, "Tock", TraceLoggingInt32(number, "number"));
        }
        usleep(1000);
    }
    TraceLoggingUnregister(first_provider);
    TraceLoggingUnregister(second_provider);
    return 0;
}
