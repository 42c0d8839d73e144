/* For sources that use this spelling; see Windows.h. */
#include "../in6addr.h"
