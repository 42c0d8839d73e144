/* The part of wmistr.h that tracing has: WNODE_HEADER and its flags, which evntrace.h declares. There are no data blocks of WMI here. */
#include "evntrace.h"
