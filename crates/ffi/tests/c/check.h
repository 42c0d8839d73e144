/* Rows of a table: a call and its expected result. The first wrong row ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned rows;

static inline void check_row(int line, const char *call, unsigned long long expected, unsigned long long result) {
    __atomic_add_fetch(&rows, 1, __ATOMIC_RELAXED);
    if (expected != result) {
        fprintf(stderr, "line %d: %s is %llu (0x%llx), not %llu\n", line, call, result, result, expected);
        exit(1);
    }
}

#define EXPECT(expected, call) check_row(__LINE__, #call, (unsigned long long)(expected), (unsigned long long)(call))

/* Waits up to a minute for a condition: a registration waits for daemons only for a limited time,
 * and a machine may be slow. */
#define WAIT_UNTIL(condition)                                    \
    for (int tries = 0; tries < 6000 && !(condition); tries++) { \
        usleep(10000);                                           \
    }

/* Prints how many rows were checked. */
static inline int report_rows(void) {
    printf("rows: %u\n", rows);
    return 0;
}

#endif
