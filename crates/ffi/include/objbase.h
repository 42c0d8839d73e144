/* objbase.h: windows.h declares CoCreateGuid and GetErrorInfo, combaseapi.h the rest. */
#include "windows.h"

#include "combaseapi.h"
