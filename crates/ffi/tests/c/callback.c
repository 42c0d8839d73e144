/* An enable callback. It is called before the registration returns, because a session already
 * enables the provider, then for a capture state, and when the session ends. The event that the
 * first call writes is recorded: the handle is already stored. */
#include <evntprov.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE02, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

static struct {
    atomic_uint calls;
    GUID source;
    ULONG code;
    UCHAR level;
    ULONGLONG any, all;
    EVENT_FILTER_DESCRIPTOR filter;
    UCHAR data[8];
} received;
static REGHANDLE reg;

static void NTAPI on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                          PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    if (context != &received) {
        abort();
    }
    received.source = *source;
    received.code = code;
    received.level = level;
    received.any = any;
    received.all = all;
    memset(&received.filter, 0, sizeof received.filter);
    if (filter != NULL) {
        received.filter = *filter;
        memcpy(received.data, (const void *)(ULONG_PTR)filter->Ptr, filter->Size < 8 ? filter->Size : 8);
    }
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        static const EVENT_DESCRIPTOR rundown = {77, 0, 0, 4, 0, 0, 0x10};
        EVENT_DATA_DESCRIPTOR data;
        EventDataDescCreate(&data, "early", 5);
        EXPECT(ERROR_SUCCESS, EventWrite(reg, &rundown, 1, &data));
    }
    atomic_fetch_add(&received.calls, 1);
}

int main(void) {
    static const GUID zero;
    REGHANDLE first;
    /* The first registration waits for the session's enable, which the second then finds. Level,
     * keywords and filter are those that the test that runs this program passes. */
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &first));
    WAIT_UNTIL(EventProviderEnabled(first, 4, 0x10));
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, on_enable, &received, &reg));
    EXPECT(1, received.calls);
    EXPECT(EVENT_CONTROL_CODE_ENABLE_PROVIDER, received.code);
    EXPECT(4, received.level);
    EXPECT(0x30, received.any);
    EXPECT(0x10, received.all);
    EXPECT(0, memcmp(&received.source, &zero, sizeof zero));
    EXPECT(7, received.filter.Type);
    EXPECT(3, received.filter.Size);
    EXPECT(0, memcmp(received.data, "abc", 3));
    puts("ready");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&received.calls) == 2);
    EXPECT(2, received.calls);
    EXPECT(EVENT_CONTROL_CODE_CAPTURE_STATE, received.code);
    EXPECT(0, received.filter.Type);
    puts("captured");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&received.calls) == 3);
    EXPECT(3, received.calls);
    EXPECT(EVENT_CONTROL_CODE_DISABLE_PROVIDER, received.code);
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    EXPECT(ERROR_SUCCESS, EventUnregister(first));
    return report_rows();
}
