/* windef.h: types and macros, which windows.h declares. */
#include <windows.h>
