/* libloaderapi.h: functions for libraries, which windows.h declares. */
#include <windows.h>
