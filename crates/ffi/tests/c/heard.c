/* The status of every function while a session records everything: the parameters are checked now,
 * and the test that runs this checks the events. */
#include <evntprov.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE01, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID Activity = {0xA, 0, 0, {0}};
static const GUID Related = {0xB, 0, 0, {0}};

static EVENT_DESCRIPTOR event(USHORT id) {
    EVENT_DESCRIPTOR made;
    EventDescCreate(&made, id, 1, 0, 4, 3, 2, 0x5);
    return made;
}

static EVENT_DATA_DESCRIPTOR block(const void *data, ULONG size, UCHAR type) {
    EVENT_DATA_DESCRIPTOR made;
    EventDataDescCreate(&made, data, size);
    made.Type = type;
    return made;
}

static void parameters(REGHANDLE reg) {
    static EVENT_DATA_DESCRIPTOR many[129];
    static UCHAR large[65536];
    EVENT_DESCRIPTOR e = event(99);
    EVENT_DATA_DESCRIPTOR none = block(NULL, 1, 0), all = block(large, sizeof large, 0);
    for (unsigned i = 0; i < 129; i++) {
        many[i] = block("m", 1, 0);
    }
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, NULL, 0, NULL));
    IS(ERROR_INVALID_PARAMETER, EventWriteTransfer(reg, NULL, NULL, NULL, 0, NULL));
    IS(ERROR_INVALID_PARAMETER, EventWriteEx(reg, NULL, 0, 0, NULL, NULL, 0, NULL));
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &e, 1, NULL));
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &e, 1, &none));
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &e, 129, many));
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &e, 0xFFFFFFFF, many));
    IS(ERROR_INVALID_PARAMETER, EventWriteEx(reg, &e, 0, 4, NULL, NULL, 0, NULL));
    IS(ERROR_ARITHMETIC_OVERFLOW, EventWrite(reg, &e, 1, &all));
    IS(ERROR_INVALID_PARAMETER, EventWriteString(reg, 4, 5, NULL));
    IS(TRUE, EventEnabled(reg, &e));
    IS(TRUE, EventProviderEnabled(reg, 5, 5));
    IS(FALSE, EventProviderEnabled(reg, 6, 5));
    IS(FALSE, EventEnabled(reg, NULL));
}

static void types(REGHANDLE reg) {
    BOOLEAN yes = TRUE, no = FALSE;
    EVENT_DESCRIPTOR before = event(4), with = event(5), after = event(6);
    EVENT_DATA_DESCRIPTOR data[3] = {block("\x07\0\0ev\0\0", 7, EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA),
                                     block("\x04\0P\0", 4, EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA), block("data", 4, 0)};
    static const ULONG no_times[] = {0, 4, 7, 9, 16};
    EVENT_DATA_DESCRIPTOR time = block("12345678", 8, EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE), unknown, wrong;
    EVENT_DATA_DESCRIPTOR twice[3][2] = {{data[0], data[0]}, {data[1], data[1]}, {time, time}};
    /* Until the provider opts in, all blocks are payload. */
    IS(ERROR_SUCCESS, EventWrite(reg, &before, 3, data));
    IS(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &yes, 1));
    IS(ERROR_SUCCESS, EventWrite(reg, &with, 3, data));
    for (unsigned type = 4; type < 256; type++) {
        unknown = block("u", 1, (UCHAR)type);
        IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &unknown));
    }
    for (unsigned i = 0; i < 5; i++) {
        wrong = block("1234567812345678", no_times[i], EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE);
        IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &wrong));
    }
    for (unsigned i = 0; i < 3; i++) {
        IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 2, twice[i]));
    }
    /* Any byte except 0 is TRUE. */
    yes = 0x80;
    unknown = block("u", 1, 4);
    IS(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &no, 1));
    IS(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &yes, 1));
    IS(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &unknown));
    IS(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &no, 1));
    IS(ERROR_SUCCESS, EventWrite(reg, &after, 3, data));
}

int main(void) {
    REGHANDLE reg;
    EVENT_DESCRIPTOR one = event(1), two = event(2), three = event(3);
    ULONG number = 0x01020304;
    EVENT_DATA_DESCRIPTOR data[3];
    static WCHAR endless[40000];
    for (unsigned i = 0; i < 39999; i++) {
        endless[i] = u'e';
    }
    IS(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    WAIT_UNTIL(EventProviderEnabled(reg, 4, 5));
    parameters(reg);
    EventDataDescCreate(&data[0], &number, sizeof number);
    EventDataDescCreate(&data[1], NULL, 0);
    EventDataDescCreate(&data[2], "text", 5);
    IS(ERROR_SUCCESS, EventWrite(reg, &one, 3, data));
    IS(ERROR_SUCCESS, EventWriteTransfer(reg, &two, &Activity, &Related, 1, data));
    IS(ERROR_SUCCESS, EventWriteEx(reg, &three, 0, EVENT_WRITE_FLAG_NO_FAULTING, &Activity, NULL, 0, NULL));
    types(reg);
    IS(ERROR_SUCCESS, EventWriteString(reg, 3, 5, u"h\u00e4"));
    IS(ERROR_ARITHMETIC_OVERFLOW, EventWriteString(reg, 3, 5, endless));
    IS(ERROR_SUCCESS, EventUnregister(reg));
    return finish();
}
