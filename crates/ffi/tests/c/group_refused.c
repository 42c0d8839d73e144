/* A provider of a user who may not join a group: the call returns the error, none of the traits are
 * kept, and the provider may join another group.
 *
 *   group_refused UID      the user to become; the session has enabled both groups
 */
#define _GNU_SOURCE

#include <TraceLoggingProvider.h>
#include <evntprov.h>
#include <grp.h>
#include <string.h>

#include "check.h"

static const GUID Provider = {0xC0FFEE31, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

TRACELOGGING_DEFINE_PROVIDER(g_refused, "Refused", (0xC0FFEE32, 0x1111, 0x2222, 1, 2, 3, 4, 5, 6, 7, 8),
                             TraceLoggingOptionGroup(0xC0FFEE40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));

/* Makes provider traits: their size, the name "T", and a trait of type 1 (a group). */
static const unsigned char *make_traits(ULONG group) {
    static unsigned char traits[23] = {23, 0, 'T', 0, 19, 0, 1};
    memcpy(traits + 7, &group, sizeof group);
    return traits;
}

static ULONG join_group(REGHANDLE reg, ULONG group) {
    return EventSetInformation(reg, EventProviderSetTraits, (PVOID)(uintptr_t)make_traits(group), 23);
}

int main(int argc, char **argv) {
    const ULONG CLOSED_GROUP = 0xC0FFEE40, OPEN_GROUP = 0xC0FFEE41;
    EVENT_DESCRIPTOR event;
    REGHANDLE reg;
    EXPECT(2, argc);
    uid_t user = (uid_t)strtoul(argv[1], NULL, 10);
    EXPECT(0, setgroups(0, NULL) | setresgid(user, user, user) | setresuid(user, user, user));

    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    EXPECT(ERROR_ACCESS_DENIED, join_group(reg, CLOSED_GROUP));
    EXPECT(ERROR_ACCESS_DENIED, join_group(reg, CLOSED_GROUP));
    EXPECT(0, EventProviderEnabled(reg, 4, 1));
    /* Traits can be set only once. This succeeds, so the refused traits were not kept. */
    EXPECT(ERROR_SUCCESS, join_group(reg, OPEN_GROUP));
    EXPECT(ERROR_INVALID_PARAMETER, join_group(reg, OPEN_GROUP));
    WAIT_UNTIL(EventProviderEnabled(reg, 4, 1));
    EventDescCreate(&event, 1, 0, 0, 4, 0, 0, 1);
    EXPECT(ERROR_SUCCESS, EventWrite(reg, &event, 0, NULL));

    /* Refused traits do not fail the registration of a TraceLogging provider. */
    EXPECT(0, TraceLoggingRegister(g_refused));
    EXPECT(0, TraceLoggingProviderEnabled(g_refused, 4, 0));
    EXPECT(STATUS_OR_HRESULT, (ULONG)TraceLoggingSetInformation(g_refused, EventProviderSetTraits, (PVOID)(uintptr_t)make_traits(CLOSED_GROUP), 23));
    EXPECT(0, TraceLoggingSetInformation(g_refused, EventProviderSetTraits, (PVOID)(uintptr_t)make_traits(OPEN_GROUP), 23));
    WAIT_UNTIL(TraceLoggingProviderEnabled(g_refused, 4, 0));
    EXPECT(1, TraceLoggingProviderEnabled(g_refused, 4, 0) != 0);
    TraceLoggingUnregister(g_refused);
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
