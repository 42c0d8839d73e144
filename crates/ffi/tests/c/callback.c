/* An enable callback: called for a session that already runs, before the registration returns, and
 * for its end. What it writes then is recorded: the handle is already stored. */
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

static void NTAPI enabled(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
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
        IS(ERROR_SUCCESS, EventWrite(reg, &rundown, 1, &data));
    }
    atomic_fetch_add(&received.calls, 1);
}

int main(void) {
    static const GUID zero;
    REGHANDLE first;
    IS(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &first));
    WAIT_UNTIL(EventProviderEnabled(first, 4, 0x10));
    IS(ERROR_SUCCESS, EventRegister(&Provider, enabled, &received, &reg));
    IS(1, received.calls);
    IS(EVENT_CONTROL_CODE_ENABLE_PROVIDER, received.code);
    IS(4, received.level);
    IS(0x30, received.any);
    IS(0x10, received.all);
    IS(0, memcmp(&received.source, &zero, sizeof zero));
    IS(7, received.filter.Type);
    IS(3, received.filter.Size);
    IS(0, memcmp(received.data, "abc", 3));
    puts("ready");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&received.calls) == 2);
    IS(2, received.calls);
    IS(EVENT_CONTROL_CODE_CAPTURE_STATE, received.code);
    IS(0, received.filter.Type);
    puts("captured");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&received.calls) == 3);
    IS(3, received.calls);
    IS(EVENT_CONTROL_CODE_DISABLE_PROVIDER, received.code);
    IS(ERROR_SUCCESS, EventUnregister(reg));
    IS(ERROR_SUCCESS, EventUnregister(first));
    return finish();
}
