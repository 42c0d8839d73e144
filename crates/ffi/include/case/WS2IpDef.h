/* For sources that use this spelling; see Windows.h. */
#include "../ws2ipdef.h"
