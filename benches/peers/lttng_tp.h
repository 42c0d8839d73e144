// The tracepoint of lttng.c. LTTng includes this file several times, with different macros each time.
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER traceweir_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_tp.h"
#if !defined(LTTNG_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_TP_H
#include <lttng/tracepoint.h>
#include <stdint.h>
LTTNG_UST_TRACEPOINT_EVENT(traceweir_bench, sample,
    LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value, const char *, words),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, number, number)
        lttng_ust_field_integer(uint64_t, value, value)
        lttng_ust_field_string(words, words)))
#endif
#include <lttng/tracepoint-event.h>
