/* For sources that spell it so, as Windows.h. */
#include "../evntrace.h"
