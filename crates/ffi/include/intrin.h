/* intrin.h: functions that the compiler replaces by instructions. */
#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

#include "traceweir/intrinsics.h"
