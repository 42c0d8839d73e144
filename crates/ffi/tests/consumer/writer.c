/* Writes events 1 to 5, 99, and 6 to 10 as soon as a session listens. */
#include <evntprov.h>

#include "../c/check.h"

static const GUID provider = {0xC0FFEE0C, 0x1111, 0x2222, {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08}};

int main(void) {
    static const USHORT ids[] = {1, 2, 3, 4, 5, 99, 6, 7, 8, 9, 10};
    REGHANDLE handle;
    EXPECT(ERROR_SUCCESS, EventRegister(&provider, NULL, NULL, &handle));
    WAIT_UNTIL(EventProviderEnabled(handle, 4, 0));
    for (unsigned at = 0; at < sizeof ids / sizeof *ids; at++) {
        EVENT_DESCRIPTOR descriptor = {ids[at], 1, 0, 4, 7, 3, 0x10};
        EVENT_DATA_DESCRIPTOR data;
        EventDataDescCreate(&data, &ids[at], sizeof ids[at]);
        EXPECT(ERROR_SUCCESS, EventWrite(handle, &descriptor, 1, &data));
    }
    return EventUnregister(handle) == ERROR_SUCCESS ? 0 : 1;
}
