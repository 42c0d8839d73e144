/* A program without tracing that loads and unloads a plugin with tracing three times. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

typedef uint32_t (*FUNCTION)(void);
typedef uint32_t (*WRITE)(uint32_t);

static void *find_function(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return function;
}

int main(int count, char **arguments) {
    EXPECT(2, count);
    for (uint32_t round = 0; round < 3; round++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        FUNCTION start, stop;
        WRITE write;
        void *functions[3];
        EXPECT(1, library != NULL);
        functions[0] = find_function(library, "plugin_start");
        functions[1] = find_function(library, "plugin_write");
        functions[2] = find_function(library, "plugin_stop");
        memcpy(&start, &functions[0], sizeof start);
        memcpy(&write, &functions[1], sizeof write);
        memcpy(&stop, &functions[2], sizeof stop);
        EXPECT(0, start());
        EXPECT(0, write(round));
        EXPECT(0, stop());
        EXPECT(0, dlclose(library));
        /* The plugin is unloaded; the library that it used is not. */
        EXPECT(0, (uintptr_t)dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD));
        EXPECT(1, dlopen("libtraceweir.so.0", RTLD_NOW | RTLD_NOLOAD) != NULL);
    }
    return report_rows();
}
