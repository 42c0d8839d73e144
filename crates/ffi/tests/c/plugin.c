/* A shared library that registers a provider, for host.c. */
#include <evntprov.h>
#include <unistd.h>

static const GUID Provider = {0xC0FFEE04, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static REGHANDLE reg;
static volatile ULONG enable_code;

extern ULONG plugin_start(void);
extern ULONG plugin_write(ULONG number);
extern ULONG plugin_stop(void);

static void NTAPI on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                            PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context;
    enable_code = code;
}

ULONG plugin_start(void) {
    ULONG status = EventRegister(&Provider, on_enable, NULL, &reg);
    return status != ERROR_SUCCESS ? status : EventSetInformation(reg, EventProviderBinaryTrackInfo, NULL, 0);
}

ULONG plugin_write(ULONG number) {
    EVENT_DESCRIPTOR event;
    EVENT_DATA_DESCRIPTOR data;
    EventDescCreate(&event, 1, 0, 0, 4, 0, 0, 0);
    EventDataDescCreate(&data, &number, sizeof number);
    for (int tries = 0; tries < 6000 && enable_code != 1; tries++) {
        usleep(10000);
    }
    return enable_code == 1 ? EventWrite(reg, &event, 1, &data) : ERROR_INVALID_FUNCTION;
}

ULONG plugin_stop(void) { return EventUnregister(reg); }
