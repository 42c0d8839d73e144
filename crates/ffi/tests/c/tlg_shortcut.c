/* The shortcut of the TraceLogging macros: which events it writes, and which it leaves to the
 * published functions. */
#include <TraceLoggingProvider.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE08, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR Event = {0, 0, 11, 4, 0, 0, 1}, TooVerbose = {0, 0, 11, 6, 0, 0, 1};
/* Size, no tags, "Long enough for the moves", "n": a number. */
static const char Metadata[] = "\x20\0\0Long enough for the moves\0n\0\x08";

/* Without restartable sequences in the C library there is no shortcut. */
extern const unsigned __rseq_size __attribute__((weak));

#define WRITE(event, count, data) TraceweirWriteDescribed(reg, event, Metadata, sizeof(Metadata) - 1, count, data)

int main(void) {
    const ULONG has_shortcut = &__rseq_size && __rseq_size != 0 && !getenv("TRACEWEIR_NO_RSEQ");
    UINT32 number = 7;
    EVENT_DATA_DESCRIPTOR data[129] = {0};
    REGHANDLE reg;
    EventDataDescCreate(&data[0], &number, sizeof number);
    EventDataDescCreate(&data[1], &number, sizeof number);
    EventDataDescCreate(&data[2], NULL, 0);
    EXPECT(0, TraceweirWriteDescribed(0, &Event, Metadata, sizeof(Metadata) - 1, 1, data));
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    WAIT_UNTIL(EventEnabled(reg, &Event));
    /* Without registered traits, the event itself must carry traits, so the shortcut refuses it. */
    EXPECT(0, WRITE(&Event, 1, data));
    EXPECT(ERROR_SUCCESS, EventSetInformation(reg, EventProviderSetTraits, (PVOID) "\x08\0Short", 8));
    /* The first event of a thread is written by the published function, which registers the
     * thread. */
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &Event, 1, data));
    EXPECT(has_shortcut, WRITE(&Event, 1, data));
    EXPECT(has_shortcut, WRITE(&Event, 0, data));
    EXPECT(has_shortcut, WRITE(&Event, 3, data));
    /* The shortcut refuses, in this order: a level that no session enabled, too many blocks, a
     * block without data, a block of another type, an event that is too large, and metadata that
     * is too short. */
    EXPECT(0, WRITE(&TooVerbose, 1, data));
    EXPECT(0, WRITE(&Event, 129, data));
    data[2].Size = 4;
    EXPECT(0, WRITE(&Event, 3, data));
    data[1].Reserved = EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA;
    EXPECT(0, WRITE(&Event, 2, data));
    data[1].Reserved = EVENT_DATA_DESCRIPTOR_TYPE_NONE;
    data[1].Size = 0x10000;
    EXPECT(0, WRITE(&Event, 2, data));
    EXPECT(0, TraceweirWriteDescribed(reg, &Event, "\x06\0\0ab", 6, 1, data));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    EXPECT(0, WRITE(&Event, 1, data));
    return report_rows();
}
