/* basetsd.h: integer types of fixed size, which windows.h declares. */
#include <windows.h>
