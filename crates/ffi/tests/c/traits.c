/* Writes an event with every write function, and with traits of several types: a decode GUID, a
 * reserved type and a type of the provider. */
#include <evntprov.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE07, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

int main(void) {
    /* Size, "T", 2: a GUID, 5: nothing, 200: "own". */
    static char traits[] = "\x20\0T\0" "\x13\0\x02" "\x0d\xc0\xde\xc0" "56789abcdef0" "\x03\0\x05" "\x06\0\xc8own";
    EVENT_DESCRIPTOR event;
    EVENT_DATA_DESCRIPTOR metadata;
    REGHANDLE reg;
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderSetTraits, traits, 32));
    WAIT_UNTIL(EventProviderEnabled(reg, 4, 1));
    EventDescCreate(&event, 1, 0, 0, 4, 0, 0, 1);
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &event, 0, NULL));
    EXPECT(ERROR_SUCCESS, EventWriteTransfer(reg, &event, &Provider, NULL, 0, NULL));
    EXPECT(ERROR_SUCCESS, EventWriteEx(reg, &event, 0, 0, NULL, NULL, 0, NULL));
    EXPECT(ERROR_SUCCESS, EventWriteString(reg, 4, 1, u"text"));
    EventDataDescCreate(&metadata, "\x06\0\0ab", 6);
    metadata.Type = EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA;
    event.Channel = 11;
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &event, 1, &metadata));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
