/* For sources that use this spelling; see Windows.h. */
#include "../winsock2.h"
