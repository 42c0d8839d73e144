/* wincon.h: the console, of which windows.h declares a part. */
#include <windows.h>
