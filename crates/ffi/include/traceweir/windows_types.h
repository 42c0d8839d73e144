/* windows.h without threads, objects, locks and the console, for headers that need its types. A
 * source that includes windows.h itself gets those too. */
#define TRACEWEIR_TYPES_ONLY
#include "../windows.h"
#undef TRACEWEIR_TYPES_ONLY
