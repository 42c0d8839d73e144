// The floor: the lowest possible cost of writing an event. Each thread has its own ring. An event is an
// 80-byte header copied from a template, a payload, one read of the processor's counter, and one store
// that publishes the event. There is no reader and no lock, and only the end of the ring is checked. The
// ring has the size of Traceweir's ring for one processor, so that the load on the caches is the same.
#define _GNU_SOURCE
#include "load.h"

#include <stdatomic.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define HEADER_BYTES 80
#define STAMP_OFFSET 16
#define RING_BYTES (4u << 20)

typedef struct {
    _Alignas(128) _Atomic uint64_t head;
    uint8_t *bytes;
    _Alignas(64) uint8_t header[HEADER_BYTES];
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

// `size` is a constant in every inlined copy of this function, so that each memcpy becomes a few moves.
static inline __attribute__((always_inline)) void write_event(ring *r, int size, uint64_t i, const char *words)
{
    uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed), length = (uint64_t)(HEADER_BYTES + size + 7) & ~7ull;
    if (__builtin_expect(at + length > RING_BYTES, 0)) at = 0;
    uint8_t *to = r->bytes + at;
    uint16_t event_bytes = (uint16_t)(HEADER_BYTES + size);
    uint32_t number = (uint32_t)i;
    uint64_t value = i * 0x9e37, now = counter();
    memcpy(to, r->header, HEADER_BYTES);
    memcpy(to, &event_bytes, sizeof event_bytes);
    memcpy(to + STAMP_OFFSET, &now, sizeof now);
    memcpy(to + HEADER_BYTES, &number, sizeof number);
    memcpy(to + HEADER_BYTES + 4, &value, sizeof value);
    memcpy(to + HEADER_BYTES + 12, words, (size_t)size - 12);
    atomic_store_explicit(&r->head, at + length, memory_order_release);
}

static void init_ring(ring *r)
{
    r->bytes = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->bytes == MAP_FAILED) exit(1);
    for (int i = 0; i < HEADER_BYTES; i++) r->header[i] = (uint8_t)(i * 7);
}

static __attribute__((noinline)) void emit(int thread, int payload, uint64_t count)
{
    ring *r = &rings[thread];
    if (!r->bytes) init_ring(r);
    const char *words = text;
    __asm__ volatile("" : "+r"(words)); // the compiler must not know the text
    if (payload == 40) for (uint64_t i = 0; i < count; i++) write_event(r, 40, i, words);
    else if (payload == 136) for (uint64_t i = 0; i < count; i++) write_event(r, 136, i, words);
    else if (payload == 200) for (uint64_t i = 0; i < count; i++) write_event(r, 200, i, words);
    else exit(2);
}
