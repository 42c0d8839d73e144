/* winnt.h: types, constants and macros, which windows.h declares. */
#include <windows.h>
