/* TraceLogging: events that say themselves what they are, from C11 and C++17.
 *
 *   TRACELOGGING_DEFINE_PROVIDER(g_provider, "MyCompany.MyComponent",
 *       (0xce5fa4ea, 0xab00, 0x5402, 0x8b, 0x76, 0x9f, 0x76, 0xac, 0x85, 0x8f, 0xb5));
 *
 *   TraceLoggingRegister(g_provider);
 *   TraceLoggingWrite(g_provider, "Started", TraceLoggingLevel(4), TraceLoggingInt32(argc), TraceLoggingString(argv[0], "program"));
 *   TraceLoggingUnregister(g_provider);
 *
 * Names and types are constants in read-only data: nothing is built when the program starts or when it writes. Arguments are evaluated
 * once, and only if somebody listens; if nobody does, a write is one load and a branch, and one load more for a provider that is only declared in the source. Writes
 * on a provider that is not registered do nothing.
 *
 *   traceweir/tlg_provider.h   providers, registration, EventSetInformation
 *   traceweir/tlg_fields.h     the macros that stand for fields
 *   traceweir/tlg_metadata.h   how an event becomes a constant, and its attributes
 *   traceweir/tlg_write_*.h    how data are handed over, in C and in C++
 *
 * Macros that are not published begin with _TLG, variables inside them with _Tlg: no program may have such names in any scope, so that what it hands over never
 * means something else inside.
 *
 * Written from the published documentation of traceloggingprovider.h.
 */
#ifndef TRACEWEIR_TRACELOGGINGPROVIDER_H
#define TRACEWEIR_TRACELOGGINGPROVIDER_H

/* Warnings about the style of casts and the like are for the program's own text; errors and assertions are said as always. */
#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "windows.h"
#include "evntprov.h"
#include "traceweir/tlg_provider.h"
#include "traceweir/tlg_fields.h"
#ifdef __cplusplus
#include "traceweir/tlg_write_cpp.h"
#else
#include "traceweir/tlg_write_c.h"
#endif

/* (provider, "Name", up to 99 fields and attributes): under the activity of the thread. */
#define TraceLoggingWrite(provider, ...) \
    _TLG_EVENT(provider, _TLG_FIRST(__VA_ARGS__), 5, 0, 0, _Tlg_transfer, (NULL, NULL), __VA_ARGS__)

/* (provider, "Name", activity, related activity, …): each a pointer to a GUID, or NULL. */
#define TraceLoggingWriteActivity(provider, name, activity, ...) \
    _TLG_EVENT(provider, name, 5, 0, 0, _Tlg_transfer, (activity, _TLG_FIRST(__VA_ARGS__)), __VA_ARGS__)

/* (provider, "Name", filter, flags, activity, related activity, …): all that EventWriteEx can do. */
#define TraceLoggingWriteEx(provider, name, filter, flags, activity, ...) \
    _TLG_EVENT(provider, name, 5, 0, 0, _Tlg_write_ex, (filter, flags, activity, _TLG_FIRST(__VA_ARGS__)), __VA_ARGS__)

#endif /* TRACEWEIR_TRACELOGGINGPROVIDER_H */
