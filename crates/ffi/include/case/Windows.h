/* For sources that use this spelling. It has a folder of its own, because a checkout may be on a
 * file system that ignores case. */
#include "../windows.h"
