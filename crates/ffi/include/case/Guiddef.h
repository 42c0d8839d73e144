/* For sources that spell it so, as Windows.h. */
#include "../guiddef.h"
