/* An enable callback: told of the session that is there already, before the registration returns, and of its end.
 * What it writes then is recorded: the handle is stored already. */
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
} told;
static REGHANDLE reg;

static void NTAPI enabled(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                          PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    if (context != &told) {
        abort();
    }
    told.source = *source;
    told.code = code;
    told.level = level;
    told.any = any;
    told.all = all;
    memset(&told.filter, 0, sizeof told.filter);
    if (filter != NULL) {
        told.filter = *filter;
        memcpy(told.data, (const void *)(ULONG_PTR)filter->Ptr, filter->Size < 8 ? filter->Size : 8);
    }
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        static const EVENT_DESCRIPTOR rundown = {77, 0, 0, 4, 0, 0, 0x10};
        EVENT_DATA_DESCRIPTOR data;
        EventDataDescCreate(&data, "early", 5);
        IS(ERROR_SUCCESS, EventWrite(reg, &rundown, 1, &data));
    }
    atomic_fetch_add(&told.calls, 1);
}

int main(void) {
    static const GUID zero;
    REGHANDLE first;
    IS(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &first));
    WAIT_UNTIL(EventProviderEnabled(first, 4, 0x10));
    IS(ERROR_SUCCESS, EventRegister(&Provider, enabled, &told, &reg));
    IS(1, told.calls);
    IS(EVENT_CONTROL_CODE_ENABLE_PROVIDER, told.code);
    IS(4, told.level);
    IS(0x30, told.any);
    IS(0x10, told.all);
    IS(0, memcmp(&told.source, &zero, sizeof zero));
    IS(7, told.filter.Type);
    IS(3, told.filter.Size);
    IS(0, memcmp(told.data, "abc", 3));
    puts("ready");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&told.calls) == 2);
    IS(2, told.calls);
    IS(EVENT_CONTROL_CODE_CAPTURE_STATE, told.code);
    IS(0, told.filter.Type);
    puts("captured");
    fflush(stdout);
    WAIT_UNTIL(atomic_load(&told.calls) == 3);
    IS(3, told.calls);
    IS(EVENT_CONTROL_CODE_DISABLE_PROVIDER, told.code);
    IS(ERROR_SUCCESS, EventUnregister(reg));
    IS(ERROR_SUCCESS, EventUnregister(first));
    return finish();
}
