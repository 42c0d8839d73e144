/* For sources that use this spelling; see Windows.h. */
#include "../winternl.h"
