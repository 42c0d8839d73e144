/* A provider in C whose events describe themselves, so it needs no manifest.
 *
 *   cargo build -p traceweir-ffi
 *   cc examples/c/tracelogging.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o tracelogging
 *   weir record -p MyCompany.Copier -o copies.etl -- ./tracelogging
 *   weir dump copies.etl
 */
#include <TraceLoggingProvider.h>
#include <stdio.h>
#include <winmeta.h>

/* The GUID is the hash of the name, so that sessions can enable the provider by name. */
TRACELOGGING_DEFINE_PROVIDER(g_copier, "MyCompany.Copier",
    (0x5497b10c, 0xc2dd, 0x596b, 0xc2, 0x47, 0x71, 0xd0, 0xda, 0x04, 0xda, 0xa1));

#define KEYWORD_FILES 0x1
#define KEYWORD_STATISTICS 0x2

struct copy {
    const char *from;
    const char *to;
    UINT64 bytes;
    HRESULT result;
};

static void report(const struct copy *copy) {
    TraceLoggingWrite(g_copier, "FileCopied",
        TraceLoggingLevel(WINEVENT_LEVEL_INFO),
        TraceLoggingKeyword(KEYWORD_FILES),
        TraceLoggingUtf8String(copy->from, "from"),
        TraceLoggingUtf8String(copy->to, "to"),
        TraceLoggingUInt64(copy->bytes, "bytes"),
        TraceLoggingHResult(copy->result, "result"));
}

int main(void) {
    static const struct copy copies[] = {{"a.txt", "b.txt", 42, S_OK}, {"c.txt", "d.txt", 0, (HRESULT)0x80070005u}};
    UINT32 sizes[2] = {0};
    if (FAILED(TraceLoggingRegister(g_copier))) {
        fputs("tracelogging: the provider cannot be registered, nothing is recorded\n", stderr);
    }
    for (unsigned i = 0; i < 2; i++) {
        report(&copies[i]);
        sizes[i] = (UINT32)copies[i].bytes;
    }
    TraceLoggingWrite(g_copier, "Finished",
        TraceLoggingLevel(WINEVENT_LEVEL_INFO),
        TraceLoggingKeyword(KEYWORD_STATISTICS),
        TraceLoggingStruct(2, "total"),
            TraceLoggingUInt32(2, "files"),
            TraceLoggingUInt32Array(sizes, 2, "sizes"));
    TraceLoggingUnregister(g_copier);
    return 0;
}
