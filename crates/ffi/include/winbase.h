/* winbase.h: functions, which windows.h declares. */
#include <windows.h>
