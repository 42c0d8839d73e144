/* Traits, time stamps that the provider sets, excluded sessions, and events larger than a
 * buffer. */
#include <evntprov.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE06, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

static ULONG write_event(REGHANDLE reg, USHORT id, ULONG64 filter, ULONG flags, ULONG count, PEVENT_DATA_DESCRIPTOR data) {
    EVENT_DESCRIPTOR event;
    EventDescCreate(&event, id, 0, 0, 4, 0, 0, 1);
    return EventWriteEx(reg, &event, filter, flags, NULL, NULL, count, data);
}

int main(void) {
    static UCHAR traits[] = "\x05\0C!";
    static UCHAR other_traits[] = "\x05\0D!";
    static UCHAR large[5000];
    ULONGLONG stamp = 0x1234567;
    BOOLEAN no = FALSE;
    EVENT_DATA_DESCRIPTOR typed[3], large_block;
    REGHANDLE reg;
    EventDataDescCreate(&typed[0], traits, 5);
    typed[0].Type = EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA;
    EventDataDescCreate(&typed[1], &stamp, sizeof stamp);
    typed[1].Type = EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE;
    EventDataDescCreate(&typed[2], "pay", 3);
    EventDataDescCreate(&large_block, large, sizeof large);
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    WAIT_UNTIL(EventProviderEnabled(reg, 4, 1));

    EXPECT(ERROR_SUCCESS, write_event(reg, 1, 0, EVENT_WRITE_FLAG_INPRIVATE, 1, &typed[2]));
    /* All sessions are excluded. */
    EXPECT(ERROR_SUCCESS, write_event(reg, 2, ~0ull, 0, 1, &typed[2]));
    EXPECT(ERROR_MORE_DATA, write_event(reg, 3, 0, 0, 1, &large_block));
    /* From now on, every event has the traits exactly once. Traits enable descriptor types, which
     * stay enabled. */
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderSetTraits, traits, 5));
    EXPECT(ERROR_INVALID_PARAMETER, EventSetInformation(reg, EventProviderSetTraits, other_traits, 5));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderUseDescriptorType, &no, 1));
    EXPECT(ERROR_SUCCESS, write_event(reg, 4, 0, 0, 1, &typed[2]));
    EXPECT(ERROR_SUCCESS, write_event(reg, 5, 0, 0, 3, typed));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
