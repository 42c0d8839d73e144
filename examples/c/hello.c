/* A provider in C that needs no manifest: an event with data, and a string.
 *
 *   cargo build -p traceweir-ffi
 *   cc examples/c/hello.c -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o hello
 *   weir record -p '{3d1c9f52-6c1e-4a3b-9a52-0a8f0b1d7c11}' -o hello.etl -- ./hello
 *   weir dump hello.etl
 */
#include <windows.h>
#include <evntprov.h>
#include <stdio.h>
#include <string.h>

/* Text in UTF-16: wchar_t has 16 bits on Windows only. */
#ifdef _WIN32
#define W(text) L##text
#else
#define W(text) u##text
#endif

static const GUID HelloProvider = {0x3d1c9f52, 0x6c1e, 0x4a3b, {0x9a, 0x52, 0x0a, 0x8f, 0x0b, 0x1d, 0x7c, 0x11}};

/* Id 1, version 0, channel 0, level 4 (information), opcode 0, task 0, keyword 1. */
static const EVENT_DESCRIPTOR Greeted = {1, 0, 0, 4, 0, 0, 0x1};

static ULONG greet(REGHANDLE reg, ULONG number, const char *name) {
    EVENT_DATA_DESCRIPTOR data[2];
    /* The data is prepared only if a session enables the event. */
    if (!EventEnabled(reg, &Greeted)) {
        return ERROR_SUCCESS;
    }
    EventDataDescCreate(&data[0], &number, sizeof number);
    EventDataDescCreate(&data[1], name, (ULONG)(strlen(name) + 1));
    return EventWrite(reg, &Greeted, 2, data);
}

int main(void) {
    static const char *const names[] = {"world", "Linux", "Windows"};
    REGHANDLE reg = 0;
    ULONG status = EventRegister(&HelloProvider, NULL, NULL, &reg);
    for (ULONG i = 0; i < 3 && status == ERROR_SUCCESS; i++) {
        status = greet(reg, i, names[i]);
    }
    if (status == ERROR_SUCCESS) {
        status = EventWriteString(reg, 4, 0x1, W("that was all"));
    }
    if (status != ERROR_SUCCESS) {
        fprintf(stderr, "hello: status %u\n", (unsigned)status);
    }
    EventUnregister(reg);
    return status == ERROR_SUCCESS ? 0 : 1;
}
