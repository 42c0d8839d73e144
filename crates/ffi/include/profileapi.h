/* profileapi.h: the performance counter, which windows.h declares. */
#include <windows.h>
