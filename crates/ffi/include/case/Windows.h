/* For sources that use this spelling. These headers have a folder of their own, because a checkout
 * may be on a file system that ignores case. */
#include <windows.h>
