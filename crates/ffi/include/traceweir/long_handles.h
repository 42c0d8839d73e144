/* On Windows, uint64_t is the type of handles and keywords. Here it is "unsigned long", another type
 * of the same size. In C++, functions that fill or read handles have an overload for it.
 */
#ifndef TRACEWEIR_LONG_HANDLES_H
#define TRACEWEIR_LONG_HANDLES_H

#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "../windows.h"

#if defined(__cplusplus) && __SIZEOF_LONG__ == 8
extern "C++" {
namespace traceweir {
/* Has a member only for "unsigned long", so that NULL selects the published function. */
template <typename Handle> struct LongHandle {};
template <> struct LongHandle<unsigned long> {
    typedef ULONG Status;
};
}
}
#endif

#endif /* TRACEWEIR_LONG_HANDLES_H */
