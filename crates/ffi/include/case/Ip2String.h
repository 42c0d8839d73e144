/* For sources that use this spelling; see Windows.h. */
#include "../ip2string.h"
