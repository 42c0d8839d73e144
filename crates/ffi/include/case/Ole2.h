/* For sources that use this spelling; see Windows.h. */
#include "../ole2.h"
