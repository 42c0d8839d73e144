/* Declared by windows.h here. */
#include "windows.h"
