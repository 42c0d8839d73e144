/* Writes an event with each published function, and prints the address of the writer. The call
 * stack of an event must begin in the function that wrote it. */
#include <evntprov.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE05, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR Event = {1, 0, 0, 4, 0, 0, 1};
static REGHANDLE reg;

/* Adding `rows` prevents a tail call, which would leave no frame of the writer. */
#define WRITER __attribute__((noinline, noipa)) static ULONG

WRITER call_event_write(void) { return EventWrite(reg, &Event, 0, NULL) + rows; }
WRITER call_event_write_transfer(void) { return EventWriteTransfer(reg, &Event, NULL, NULL, 0, NULL) + rows; }
WRITER call_event_write_ex(void) { return EventWriteEx(reg, &Event, 0, 0, NULL, NULL, 0, NULL) + rows; }
WRITER call_event_write_string(void) { return EventWriteString(reg, 4, 1, u"text") + rows; }

int main(void) {
    ULONG (*const writers[])(void) = {call_event_write, call_event_write_transfer, call_event_write_ex, call_event_write_string};
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    WAIT_UNTIL(EventEnabled(reg, &Event));
    for (unsigned i = 0; i < 4; i++) {
        printf("%llu\n", (unsigned long long)(ULONG_PTR)writers[i]);
        EXPECT(rows, writers[i]());
    }
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
