/* specstrings.h: annotations for the analyzers of Windows. */
#include "sal.h"
