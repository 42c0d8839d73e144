/* The status of every function while a session records everything: the parameters are
 * checked in this state. The test that runs this program checks the events. */
#include <evntprov.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE01, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID Activity = {0xA, 0, 0, {0}};
static const GUID Related = {0xB, 0, 0, {0}};

static EVENT_DESCRIPTOR make_event(USHORT id) {
    EVENT_DESCRIPTOR event;
    EventDescCreate(&event, id, 1, 0, 4, 3, 2, 0x5);
    return event;
}

static EVENT_DATA_DESCRIPTOR make_block(const void *data, ULONG size, UCHAR type) {
    EVENT_DATA_DESCRIPTOR block;
    EventDataDescCreate(&block, data, size);
    block.Type = type;
    return block;
}

/* A write has at most 128 blocks and the flags 1 and 2; the session records levels up to 5. */
static void check_parameters(REGHANDLE reg) {
    static EVENT_DATA_DESCRIPTOR many[129];
    static UCHAR large[65536];
    EVENT_DESCRIPTOR event = make_event(99);
    EVENT_DATA_DESCRIPTOR null_block = make_block(NULL, 1, 0), large_block = make_block(large, sizeof large, 0);
    for (unsigned i = 0; i < 129; i++) {
        many[i] = make_block("m", 1, 0);
    }
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, NULL, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EventWriteTransfer(reg, NULL, NULL, NULL, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EventWriteEx(reg, NULL, 0, 0, NULL, NULL, 0, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &event, 1, NULL));
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &event, 1, &null_block));
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &event, 129, many));
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &event, 0xFFFFFFFF, many));
    EXPECT(ERROR_INVALID_PARAMETER, EventWriteEx(reg, &event, 0, 4, NULL, NULL, 0, NULL));
    EXPECT(ERROR_ARITHMETIC_OVERFLOW, EventWrite(reg, &event, 1, &large_block));
    EXPECT(ERROR_INVALID_PARAMETER, EventWriteString(reg, 4, 5, NULL));
    EXPECT(TRUE, EventEnabled(reg, &event));
    EXPECT(TRUE, EventProviderEnabled(reg, 5, 5));
    EXPECT(FALSE, EventProviderEnabled(reg, 6, 5));
    EXPECT(FALSE, EventEnabled(reg, NULL));
}

static void check_descriptor_types(REGHANDLE reg) {
    BOOLEAN yes = TRUE, no = FALSE;
    EVENT_DESCRIPTOR before = make_event(4), with = make_event(5), after = make_event(6);
    EVENT_DATA_DESCRIPTOR data[3] = {make_block("\x07\0\0ev\0\0", 7, EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA),
                                     make_block("\x04\0P\0", 4, EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA), make_block("data", 4, 0)};
    static const ULONG invalid_sizes[] = {0, 4, 7, 9, 16};
    EVENT_DATA_DESCRIPTOR time = make_block("12345678", 8, EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE), unknown, wrong;
    EVENT_DATA_DESCRIPTOR twice[3][2] = {{data[0], data[0]}, {data[1], data[1]}, {time, time}};
    /* Until the provider opts in, all blocks are payload. */
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &before, 3, data));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &yes, 1));
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &with, 3, data));
    for (unsigned type = 4; type < 256; type++) {
        unknown = make_block("u", 1, (UCHAR)type);
        EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &unknown));
    }
    for (unsigned i = 0; i < 5; i++) {
        wrong = make_block("1234567812345678", invalid_sizes[i], EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE);
        EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &wrong));
    }
    for (unsigned i = 0; i < 3; i++) {
        EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 2, twice[i]));
    }
    /* Any byte except 0 is TRUE. */
    yes = 0x80;
    unknown = make_block("u", 1, 4);
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &no, 1));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &yes, 1));
    EXPECT(ERROR_INVALID_PARAMETER, EventWrite(reg, &with, 1, &unknown));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &no, 1));
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &after, 3, data));
}

int main(void) {
    REGHANDLE reg;
    EVENT_DESCRIPTOR one = make_event(1), two = make_event(2), three = make_event(3);
    ULONG number = 0x01020304;
    EVENT_DATA_DESCRIPTOR data[3];
    static WCHAR too_long[40000];
    for (unsigned i = 0; i < 39999; i++) {
        too_long[i] = u'e';
    }
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    WAIT_UNTIL(EventProviderEnabled(reg, 4, 5));
    check_parameters(reg);
    EventDataDescCreate(&data[0], &number, sizeof number);
    EventDataDescCreate(&data[1], NULL, 0);
    EventDataDescCreate(&data[2], "text", 5);
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &one, 3, data));
    EXPECT(ERROR_SUCCESS, EventWriteTransfer(reg, &two, &Activity, &Related, 1, data));
    EXPECT(ERROR_SUCCESS, EventWriteEx(reg, &three, 0, EVENT_WRITE_FLAG_NO_FAULTING, &Activity, NULL, 0, NULL));
    check_descriptor_types(reg);
    EXPECT(ERROR_SUCCESS, EventWriteString(reg, 3, 5, u"h\u00e4"));
    EXPECT(ERROR_ARITHMETIC_OVERFLOW, EventWriteString(reg, 3, 5, too_long));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
