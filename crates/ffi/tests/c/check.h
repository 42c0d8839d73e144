/* Rows of a table: a call and what it must return. The first wrong row ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned rows;

static inline void row(int line, const char *call, unsigned long long wanted, unsigned long long got) {
    __atomic_add_fetch(&rows, 1, __ATOMIC_RELAXED);
    if (wanted != got) {
        fprintf(stderr, "line %d: %s is %llu (0x%llx), not %llu\n", line, call, got, got, wanted);
        exit(1);
    }
}

#define IS(wanted, call) row(__LINE__, #call, (unsigned long long)(wanted), (unsigned long long)(call))

/* Waits for something that comes soon: a registration waits for daemons only for a limited time,
 * and a machine may be slow. */
#define WAIT_UNTIL(condition)                                    \
    for (int tries = 0; tries < 6000 && !(condition); tries++) { \
        usleep(10000);                                           \
    }

/* Prints how many rows were checked. */
static inline int finish(void) {
    printf("rows: %u\n", rows);
    return 0;
}

#endif
