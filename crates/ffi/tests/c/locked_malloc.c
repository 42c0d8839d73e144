/* An allocator for tests that replaces malloc, with one lock that a thread cannot take twice.
 *
 * It registers a provider inside its first allocation, while it holds the lock. Meanwhile, other
 * threads that call malloc wait, and a second allocation by the same thread would wait forever. */
#define _GNU_SOURCE
#include "locked_malloc.h"

#include <errno.h>
#include <evntrace.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEAP_BYTES (256u << 20)
/* Before each block there are as many bytes as its alignment; the last of them hold its size. */
#define MIN_ALIGN 16

static const GUID provider = {0xC0FFEE21, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char heap[HEAP_BYTES] __attribute__((aligned(4096)));
static size_t used;
static int is_registered, is_tracing;
static REGHANDLE handle;
static long first_us;
static unsigned traced;

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static long time_registration(const GUID *id, REGHANDLE *registered) {
    long start = now_us();
    if (EventRegister(id, NULL, NULL, registered) != ERROR_SUCCESS) {
        _exit(3);
    }
    return now_us() - start;
}

static void *allocate(size_t bytes, size_t align) {
    char *block = NULL;
    align = align < MIN_ALIGN ? MIN_ALIGN : align;
    pthread_mutex_lock(&lock);
    if (!is_registered) {
        is_registered = 1;
        first_us = time_registration(&provider, &handle);
    }
    size_t start = (used + align - 1) / align * align + align;
    if (bytes < HEAP_BYTES && start < HEAP_BYTES - bytes) {
        block = heap + start;
        used = start + bytes;
        memcpy(block - sizeof(size_t), &bytes, sizeof(size_t));
    }
    if (is_tracing) {
        EVENT_DESCRIPTOR event = {1, 0, 0, TRACE_LEVEL_INFORMATION, 0, 0, 0};
        EVENT_DATA_DESCRIPTOR data;
        EventDataDescCreate(&data, &bytes, sizeof bytes);
        if (EventWrite(handle, &event, 1, &data) != ERROR_SUCCESS) {
            _exit(4);
        }
        traced++;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

long first_registration_us(void) {
    return first_us;
}

void trace_allocations(int is_traced) {
    pthread_mutex_lock(&lock);
    is_tracing = is_traced;
    pthread_mutex_unlock(&lock);
}

unsigned traced_allocations(void) {
    return traced;
}

long register_below_lock(const GUID *id, REGHANDLE *registered) {
    pthread_mutex_lock(&lock);
    long us = time_registration(id, registered);
    pthread_mutex_unlock(&lock);
    return us;
}

void *malloc(size_t bytes) {
    return allocate(bytes, MIN_ALIGN);
}

/* Blocks are never used again, so they are zero. */
void *calloc(size_t count, size_t bytes) {
    size_t all;
    return __builtin_mul_overflow(count, bytes, &all) ? NULL : allocate(all, MIN_ALIGN);
}

void free(void *block) {
    (void)block;
}

void *realloc(void *block, size_t bytes) {
    char *new_block = allocate(bytes, MIN_ALIGN);
    if (block != NULL && new_block != NULL) {
        size_t size;
        memcpy(&size, (char *)block - sizeof(size_t), sizeof(size_t));
        memcpy(new_block, block, size < bytes ? size : bytes);
    }
    return new_block;
}

void *aligned_alloc(size_t align, size_t bytes) {
    return allocate(bytes, align);
}

void *memalign(size_t align, size_t bytes) {
    return allocate(bytes, align);
}

int posix_memalign(void **block, size_t align, size_t bytes) {
    *block = allocate(bytes, align);
    return *block == NULL ? ENOMEM : 0;
}
