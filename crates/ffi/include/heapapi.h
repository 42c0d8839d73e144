/* heapapi.h: functions for the heap, which windows.h declares. */
#include <windows.h>
