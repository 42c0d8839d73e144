// The cost of TdhGetEventInformation in C for a self-describing event, in nanoseconds per call.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <tdh.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char TRAITS[] = "\x10\0Bench.Traced";
// The event name, then name and type of each field: two strings, numbers of 32 and 64 bits, a
// pointer, bytes (0x0e), and a number of 64 bits. TDH lists the length of the bytes as an eighth
// property.
static const char METADATA[] = "\x3a\0\0Request\0url\0\x01method\0\x02status\0\x08" "bytes\0\x0a" "address\0\x10" "body\0\x0e" "duration\0\x0a";

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void)
{
    enum { CALLS = 1000000 };
    static BYTE buffer[4096];
    EVENT_HEADER_EXTENDED_DATA_ITEM items[2];
    EVENT_RECORD event;
    char traits[sizeof TRAITS - 1], metadata[sizeof METADATA - 1];
    double start;
    int call;
    ULONG size;
    memcpy(traits, TRAITS, sizeof traits);
    memcpy(metadata, METADATA, sizeof metadata);
    traits[0] = (char)sizeof traits;
    metadata[0] = (char)sizeof metadata;
    memset(&event, 0, sizeof event);
    memset(items, 0, sizeof items);
    items[0].ExtType = EVENT_HEADER_EXT_TYPE_PROV_TRAITS;
    items[0].DataSize = sizeof traits;
    items[0].DataPtr = (ULONGLONG)(ULONG_PTR)traits;
    items[1].ExtType = EVENT_HEADER_EXT_TYPE_EVENT_SCHEMA_TL;
    items[1].DataSize = sizeof metadata;
    items[1].DataPtr = (ULONGLONG)(ULONG_PTR)metadata;
    event.ExtendedDataCount = 2;
    event.ExtendedData = items;
    event.EventHeader.EventDescriptor.Channel = 11; // TraceLogging.
    start = seconds();
    for (call = 0; call < CALLS; call++) {
        ULONG status;
        size = sizeof buffer;
        event.EventHeader.EventDescriptor.Keyword = (ULONGLONG)call;
        status = TdhGetEventInformation(&event, 0, NULL, (PTRACE_EVENT_INFO)buffer, &size);
        if (status != ERROR_SUCCESS || ((PTRACE_EVENT_INFO)buffer)->TopLevelPropertyCount != 8) {
            fprintf(stderr, "status %u\n", status);
            return 1;
        }
    }
    printf("%f\n", (seconds() - start) * 1e9 / CALLS);
    return 0;
}
