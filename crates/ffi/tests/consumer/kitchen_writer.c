/* Writes ten pots, each hotter by ten degrees and every third one with soup, and a bell, as soon as
 * a session listens. Its manifest is compiled in. */
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
