/* Registers one or two providers of one name, whose GUIDs are not the hash of the name:
 * own_guid COUNT [two] */
#include <TraceLoggingProvider.h>

#include <stdlib.h>
#include <unistd.h>

TRACELOGGING_DEFINE_PROVIDER(one, "Traceweir.Test.OwnGuid",
                             (0x5d3f1c01, 0x1111, 0x4222, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x01));
TRACELOGGING_DEFINE_PROVIDER(two, "traceweir.test.OWNGUID",
                             (0x5d3f1c02, 0x1111, 0x4222, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x02));

int main(int count, char **arguments) {
    int events = count > 1 ? atoi(arguments[1]) : 1;
    int has_two = count > 2;
    if (TraceLoggingRegister(one) != 0 || (has_two && TraceLoggingRegister(two) != 0)) {
        return 1;
    }
    for (int number = 0; number < events; number++) {
        TraceLoggingWrite(one, "Tick", TraceLoggingInt32(number, "number"));
        if (has_two) {
            TraceLoggingWrite(two, "Tock", TraceLoggingInt32(number, "number"));
        }
        usleep(1000);
    }
    TraceLoggingUnregister(one);
    TraceLoggingUnregister(two);
    return 0;
}
