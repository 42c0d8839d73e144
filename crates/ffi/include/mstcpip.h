/* ip2string.h declares the content of this header. */
#include "ip2string.h"
