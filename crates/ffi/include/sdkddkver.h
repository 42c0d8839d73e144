/* sdkddkver.h: names of versions of Windows, which windows.h declares. */
#include <windows.h>
