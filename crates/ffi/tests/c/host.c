/* A program without tracing that loads and unloads a library with it, more than once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

typedef uint32_t (*FUNCTION)(void);
typedef uint32_t (*WRITE)(uint32_t);

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

int main(int count, char **arguments) {
    IS(2, count);
    for (uint32_t turn = 0; turn < 3; turn++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        FUNCTION start, stop;
        WRITE write;
        void *found[3];
        IS(1, library != NULL);
        found[0] = function(library, "plugin_start");
        found[1] = function(library, "plugin_write");
        found[2] = function(library, "plugin_stop");
        memcpy(&start, &found[0], sizeof start);
        memcpy(&write, &found[1], sizeof write);
        memcpy(&stop, &found[2], sizeof stop);
        IS(0, start());
        IS(0, write(turn));
        IS(0, stop());
        IS(0, dlclose(library));
        /* The plugin is unloaded; the library that it used is not. */
        IS(0, (uintptr_t)dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD));
        IS(1, dlopen("libtraceweir.so.0", RTLD_NOW | RTLD_NOLOAD) != NULL);
    }
    return finish();
}
