/* TraceLogging: events that describe themselves, for C11 and C++17.
 *
 *   TRACELOGGING_DEFINE_PROVIDER(g_provider, "MyCompany.MyComponent",
 *       (0xce5fa4ea, 0xab00, 0x5402, 0x8b, 0x76, 0x9f, 0x76, 0xac, 0x85, 0x8f, 0xb5));
 *
 *   TraceLoggingRegister(g_provider);
 *   TraceLoggingWrite(g_provider, "Started", TraceLoggingLevel(4),
 *       TraceLoggingInt32(argc), TraceLoggingString(argv[0], "program"));
 *   TraceLoggingUnregister(g_provider);
 *
 * Names and types are constants in read-only data: nothing is built when the program starts or when
 * it writes. Arguments are evaluated once, and only if a session listens. Otherwise a write is one
 * load and a branch, and one more load for a provider that the source only declares. Writes on a
 * provider that is not registered do nothing.
 *
 *   traceweir/tlg_provider.h   providers, registration, EventSetInformation
 *   traceweir/tlg_fields.h     the macros for fields
 *   traceweir/tlg_metadata.h   the constants of an event, and its attributes
 *   traceweir/tlg_write_*.h    passing the data of an event, in C and in C++
 *
 * Macros that are not published begin with _TLG, variables inside them with _Tlg. These names are
 * reserved in every scope, so that an argument never changes its meaning inside a macro.
 *
 * Written from the published documentation of traceloggingprovider.h.
 */
#ifndef TRACEWEIR_TRACELOGGINGPROVIDER_H
#define TRACEWEIR_TRACELOGGINGPROVIDER_H

/* Warnings about casts and other matters of style are only for the program's own source; errors and
 * assertions are reported as always. */
#ifdef __cplusplus
#pragma GCC system_header
#endif

#include "traceweir/windows_types.h"
#include "evntprov.h"
#include "traceweir/tlg_provider.h"
#include "traceweir/tlg_fields.h"
#ifdef __cplusplus
#include "traceweir/tlg_write_cpp.h"
#else
#include "traceweir/tlg_write_c.h"
#endif

/* (provider, "Name", up to 99 fields and attributes): writes an event with the activity of the
 * thread. */
#define TraceLoggingWrite(provider, ...) \
    _TLG_EVENT(provider, _TLG_FIRST(__VA_ARGS__), 5, 0, 0, _Tlg_transfer, (NULL, NULL), __VA_ARGS__)

/* (provider, "Name", activity, related activity, …): each activity is a pointer to a GUID, or
 * NULL. */
#define TraceLoggingWriteActivity(provider, name, activity, ...) \
    _TLG_EVENT(provider, name, 5, 0, 0, _Tlg_transfer, (activity, _TLG_FIRST(__VA_ARGS__)), __VA_ARGS__)

/* (provider, "Name", filter, flags, activity, related activity, …): has all options of
 * EventWriteEx. */
#define TraceLoggingWriteEx(provider, name, filter, flags, activity, ...) \
    _TLG_EVENT(provider, name, 5, 0, 0, _Tlg_write_ex, (filter, flags, activity, _TLG_FIRST(__VA_ARGS__)), __VA_ARGS__)

#endif /* TRACEWEIR_TRACELOGGINGPROVIDER_H */
