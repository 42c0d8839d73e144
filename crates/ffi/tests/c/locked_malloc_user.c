/* A program whose allocator, locked_malloc.c, registers a provider inside its first allocation.
 *
 * Two registrations run while the allocator's lock is held. Prints how long each of them took, in
 * microseconds, and how many allocations wrote an event. */
#define _GNU_SOURCE
#include "check.h"
#include "locked_malloc.h"

#include <evntrace.h>
#include <pthread.h>

#define EVENTS 10000
#define THREADS 4
#define ALLOCATIONS 500

static const GUID second_provider = {0xC0FFEE22, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

static void *allocate_repeatedly(void *unused) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        /* Volatile, so that the compiler does not remove the pair. */
        void *volatile block = malloc(64);
        free(block);
    }
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    REGHANDLE second;
    /* A deadlock ends the program. */
    alarm(100);
    trace_allocations(1);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(0, pthread_create(&threads[i], NULL, allocate_repeatedly, NULL));
    }
    long second_us = register_below_lock(&second_provider, &second);
    for (ULONG i = 0; i < EVENTS; i++) {
        EVENT_DESCRIPTOR event = {2, 0, 0, TRACE_LEVEL_INFORMATION, 0, 0, 0};
        EVENT_DATA_DESCRIPTOR data;
        EventDataDescCreate(&data, &i, sizeof i);
        EXPECT(ERROR_SUCCESS, EventWrite(second, &event, 1, &data));
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(0, pthread_join(threads[i], NULL));
    }
    trace_allocations(0);
    EXPECT(1, traced_allocations() >= THREADS * ALLOCATIONS);
    printf("%ld %ld %u\n", first_registration_us(), second_us, traced_allocations());
    return 0;
}
