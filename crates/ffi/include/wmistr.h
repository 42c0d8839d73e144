/* The part of wmistr.h for tracing: WNODE_HEADER and its flags, which evntrace.h declares. There
 * are no WMI data blocks here. */
#include "evntrace.h"
