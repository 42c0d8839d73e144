/* fileapi.h: functions for files, which windows.h declares. */
#include <windows.h>
