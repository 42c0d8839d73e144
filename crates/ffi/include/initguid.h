/* Makes every DEFINE_GUID from here on a definition. One or more source files of a program may
 * include this header. */
#ifndef INITGUID
#define INITGUID
#endif
#include "guiddef.h"
