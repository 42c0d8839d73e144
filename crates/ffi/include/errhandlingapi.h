/* errhandlingapi.h: the last error, which windows.h declares. */
#include <windows.h>
