/* Makes every DEFINE_GUID from here on a definition: to be included in one source file of a program, or in several. */
#ifndef INITGUID
#define INITGUID
#endif
#include "guiddef.h"
