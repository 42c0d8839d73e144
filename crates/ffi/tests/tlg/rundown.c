/* Writes its state in the enable callback, which runs while the provider is being registered. With
 * WITH_GROUP, the provider is a member of a group. */
#include <TraceLoggingProvider.h>

#ifdef WITH_GROUP
#define GROUP , TraceLoggingOptionGroup(0xC0FFEE11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
#else
#define GROUP
#endif
TRACELOGGING_DEFINE_PROVIDER(provider, "Rundown", (0xC0FFEE10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) GROUP);

static VOID NTAPI on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                          PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    (void)source, (void)level, (void)any, (void)all, (void)filter, (void)context;
    if (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER) {
        TraceLoggingWrite(provider, "State", TraceLoggingUInt32(code, "code"));
    }
}

int main(void) {
    /* The second registration must not be affected by the state that the first one left. */
    for (UINT32 turn = 1; turn <= 2; turn++) {
        if (TraceLoggingRegisterEx(provider, on_enable, NULL) != 0) {
            return 1;
        }
        TraceLoggingWrite(provider, "After", TraceLoggingUInt32(turn, "turn"));
        TraceLoggingUnregister(provider);
    }
    return 0;
}
