/* For sources that use this spelling; see Windows.h. Only libtraceweir-wide has this header. */
#include <tchar.h>
