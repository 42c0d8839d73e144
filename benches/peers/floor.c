// The floor: what writing an event costs at the very least. Each thread has a ring of its own; an event is a header of 80 bytes from a
// template and a payload, one reading of the counter, and one store that publishes it. Nobody reads, nobody is excluded, nothing is checked
// but the ring's end. The ring is as large as that of a processor on our side, so that the caches have the same to do.
#define _GNU_SOURCE
#include "load.h"

#include <stdatomic.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define HEADER 80
#define RING (4u << 20)

typedef struct {
    _Alignas(128) _Atomic uint64_t head;
    uint8_t *bytes;
    _Alignas(64) uint8_t header[HEADER];
} ring;

static ring rings[MAX_THREADS];

static inline uint64_t counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#endif
}

// Sizes are constants wherever this is inlined, so that every copy is a few moves.
static inline __attribute__((always_inline)) void put(ring *r, int size, uint64_t i, const char *words)
{
    uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed), length = (uint64_t)(HEADER + size + 7) & ~7ull;
    if (__builtin_expect(at + length > RING, 0)) at = 0;
    uint8_t *to = r->bytes + at;
    uint16_t whole = (uint16_t)(HEADER + size);
    uint32_t number = (uint32_t)i;
    uint64_t value = i * 0x9e37, now = counter();
    memcpy(to, r->header, HEADER);
    memcpy(to, &whole, sizeof whole);
    memcpy(to + 16, &now, sizeof now);
    memcpy(to + HEADER, &number, sizeof number);
    memcpy(to + HEADER + 4, &value, sizeof value);
    memcpy(to + HEADER + 12, words, (size_t)size - 12);
    atomic_store_explicit(&r->head, at + length, memory_order_release);
}

static void make(ring *r)
{
    r->bytes = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->bytes == MAP_FAILED) exit(1);
    for (int i = 0; i < HEADER; i++) r->header[i] = (uint8_t)(i * 7);
}

static __attribute__((noinline)) void emit(int thread, int payload, uint64_t count)
{
    ring *r = &rings[thread];
    if (!r->bytes) make(r);
    const char *words = text;
    __asm__ volatile("" : "+r"(words)); // the compiler must not know the text
    if (payload == 40) for (uint64_t i = 0; i < count; i++) put(r, 40, i, words);
    else if (payload == 200) for (uint64_t i = 0; i < count; i++) put(r, 200, i, words);
    else exit(2);
}
