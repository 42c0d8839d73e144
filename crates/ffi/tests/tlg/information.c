/* TraceLoggingSetInformation with the library, class by class, in every mode of compilation: it
 * returns the status of EventSetInformation as an HRESULT or, in kernel mode, as an NTSTATUS. */
#include <TraceLoggingProvider.h>

#include "../c/check.h"

TRACELOGGING_DEFINE_PROVIDER(g_info, "Info", (0xC0FFEE20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));

#if TLG_HAVE_EVENT_SET_INFORMATION == 0
/* EventSetInformation is not called: every class has the same status. */
#define USER(code) 0x80070032u
#define KERNEL(code) 0xC0000139u
#else
#define USER(code) ((code) == 0 ? 0u : 0x80070000u | (code))
#define KERNEL(code) ((code) == 0 ? 0u : (code) == ERROR_INVALID_PARAMETER ? 0xC000000Du : 0xC00000BBu)
#endif
#if defined(_KERNEL_MODE)
#define STATUS_OF KERNEL
#define IS_GOOD NT_SUCCESS
#else
#define STATUS_OF USER
#define IS_GOOD SUCCEEDED
#endif

#define SET(code, info_class, data, size) \
    EXPECT(STATUS_OF(code), (ULONG)TraceLoggingSetInformation(g_info, (EVENT_INFO_CLASS)(info_class), data, size))

int main(void) {
    UINT8 yes = 1, wide[4] = {1, 0, 0, 0};
    char name[] = "\x07\0Info";
    /* Not registered: the handle is 0. The class is checked first. */
    SET(ERROR_INVALID_PARAMETER, EventProviderBinaryTrackInfo, NULL, 0);
    SET(ERROR_INVALID_PARAMETER, EventProviderSetTraits, name, 7);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, &yes, 1);
    SET(ERROR_NOT_SUPPORTED, EventProviderSetReserved1, NULL, 0);
    SET(ERROR_NOT_SUPPORTED, MaxEventInfo, NULL, 0);

    EXPECT(0, TraceLoggingRegister(g_info));
    SET(ERROR_SUCCESS, EventProviderBinaryTrackInfo, NULL, 0);
    SET(ERROR_SUCCESS, EventProviderBinaryTrackInfo, &yes, 1);
    SET(ERROR_INVALID_PARAMETER, EventProviderBinaryTrackInfo, NULL, 1);
    SET(ERROR_NOT_SUPPORTED, EventProviderSetReserved1, NULL, 0);
    SET(ERROR_NOT_SUPPORTED, EventProviderSetReserved1, &yes, 1);
    /* Registration has set the traits: they can be set only once. */
    SET(ERROR_INVALID_PARAMETER, EventProviderSetTraits, name, 7);
    SET(ERROR_SUCCESS, EventProviderUseDescriptorType, &yes, 1);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, NULL, 0);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, NULL, 1);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, &yes, 0);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, wide, 4);
    EXPECT(TLG_HAVE_EVENT_SET_INFORMATION != 0, IS_GOOD(TraceLoggingSetInformation(g_info, EventProviderUseDescriptorType, &yes, 1)));
    EXPECT(0, IS_GOOD(TraceLoggingSetInformation(g_info, MaxEventInfo, NULL, 0)));
    SET(ERROR_NOT_SUPPORTED, MaxEventInfo, NULL, 0);
    SET(ERROR_NOT_SUPPORTED, 5, &yes, 1);
    SET(ERROR_NOT_SUPPORTED, -1, NULL, 0);

    TraceLoggingUnregister(g_info);
    SET(ERROR_INVALID_PARAMETER, EventProviderUseDescriptorType, &yes, 1);
    SET(ERROR_NOT_SUPPORTED, MaxEventInfo, NULL, 0);
    return report_rows();
}
