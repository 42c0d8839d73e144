/* windows.h declares the content of this header. */
#include "windows.h"
