/* Prints the status of a macro in the mode that TLG_HAVE_EVENT_SET_INFORMATION, the version of
 * Windows, and kernel or user mode select. STATUS is the status of the function that the
 * macro calls.
 *
 *   modes STATUS              TraceLoggingSetInformation
 *   modes register STATUS     TraceLoggingRegister
 *
 * With WITH_OVERRIDE, the macros call hook_set_information; with WITH_FUNCTION, they find a
 * function EventSetInformation.
 */
#ifdef WITH_OVERRIDE
#include "hooks.h"
#else
#define HOOK_NO_SET_INFORMATION
#include "hooks.h"
#endif
#include <TraceLoggingProvider.h>

TRACELOGGING_DEFINE_PROVIDER(g_modes, "Modes", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));

#ifdef WITH_FUNCTION
/* Replaces the function of the library. */
EXTERN_C ULONG EventSetInformation(REGHANDLE handle, EVENT_INFO_CLASS kind, PVOID data, ULONG size) {
    return hook_set_information(handle, kind, data, size);
}
#endif

int main(int argc, char **argv) {
    if (argc == 3) {
        hook.register_status = (ULONG)strtoul(argv[2], NULL, 0);
        printf("%08x\n", (unsigned)TraceLoggingRegister(g_modes));
        return 0;
    }
    CHECK(argc == 2);
    CHECK(TraceLoggingRegister(g_modes) == 0);
    hook.set_status = (ULONG)strtoul(argv[1], NULL, 0);
    printf("%d sets=%u", TLG_HAVE_EVENT_SET_INFORMATION, hook.sets);
    printf(" status=%08x", (unsigned)TraceLoggingSetInformation(g_modes, EventProviderUseDescriptorType, &hook.set_status, 1));
    printf(" class=%d size=%u\n", (int)hook.set_class, hook.set_size);
    return 0;
}
