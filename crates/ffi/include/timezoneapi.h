/* timezoneapi.h: functions for times, which windows.h declares. */
#include <windows.h>
