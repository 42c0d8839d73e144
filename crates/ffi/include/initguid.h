/* Makes every DEFINE_GUID from here on a definition. Include it in one or more source files of a
 * program. */
#ifndef INITGUID
#define INITGUID
#endif
#include "guiddef.h"
