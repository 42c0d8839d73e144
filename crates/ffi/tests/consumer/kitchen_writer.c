/* Waits until a session enables the provider. Then writes ten events Boiled, each ten degrees
 * hotter than the one before and every third with soup, and one event Bell. The manifest is
 * compiled in. */
#include "kitchen.h"

#include "../c/check.h"

int main(void) {
    EXPECT(ERROR_SUCCESS, EventRegisterKitchen());
    WAIT_UNTIL(EventEnabledBoiled());
    for (unsigned at = 0; at < 10; at++) {
        EXPECT(ERROR_SUCCESS, EventWriteBoiled(at * 10, at % 3 == 0 ? u"pea SOUP" : u"tea", (UCHAR)(1 + at % 2)));
    }
    EXPECT(ERROR_SUCCESS, EventWriteBell());
    return EventUnregisterKitchen() == ERROR_SUCCESS ? 0 : 1;
}
