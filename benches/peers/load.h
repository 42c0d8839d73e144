// The load of `traceweir-bench -- write` for tracers that are measured with a program in C or C++. The
// program includes this file and defines `emit`. src/write/load.rs is the same load in Rust.
//
//   PROGRAM burst THREADS PAYLOAD EVENTS BURSTS PAUSE_US
//     bursts that fit into the buffers, with pauses in which the tracer empties the buffers
//   PROGRAM paced THREADS PAYLOAD RATE MILLISECONDS
//     RATE events a second by all threads together, in steps of a millisecond
//
// The program prints one line: events, processor nanoseconds of the writing threads inside `emit`,
// wall nanoseconds of the slowest thread with its pauses. Thread t stays on processor t. All
// threads begin a burst at the same time. The first WARM_BURSTS touch all memory; they count only
// in the wall time.
#ifndef LOAD_H
#define LOAD_H
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WARM_BURSTS 24
#define MAX_THREADS 64
#define FIXED_BYTES 13 // u32, u64 and the terminator of the text

// Writes `count` events of `payload` bytes: u32, u64, and a text with its terminator.
static void emit(int thread, int payload, uint64_t count);

static char text[256];
static int threads, payload;
static uint64_t events, bursts, pause_us, rate, length_ms;
static pthread_barrier_t start_together;

typedef struct { int thread; uint64_t events, cpu_ns, wall_ns; } job;

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void write_measured(job *j, uint64_t count)
{
    uint64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    emit(j->thread, payload, count);
    j->cpu_ns += nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before;
    j->events += count;
}

static void write_bursts(job *j)
{
    for (uint64_t burst = 0; burst < WARM_BURSTS + bursts; burst++) {
        pthread_barrier_wait(&start_together);
        if (burst < WARM_BURSTS) emit(j->thread, payload, events);
        else write_measured(j, events);
        sleep_ns(pause_us * 1000u);
    }
}

static void write_paced(job *j)
{
    pthread_barrier_wait(&start_together);
    uint64_t start = nanoseconds(CLOCK_MONOTONIC), end = length_ms * 1000000u;
    for (;;) {
        uint64_t now = nanoseconds(CLOCK_MONOTONIC) - start;
        if (now > end) now = end;
        uint64_t due = (uint64_t)((double)rate / threads * (double)now / 1e9);
        if (due > j->events) write_measured(j, due - j->events);
        if (now == end) return;
        uint64_t spent = nanoseconds(CLOCK_MONOTONIC) - start;
        if (spent / 1000000u == now / 1000000u) sleep_ns(1000000u - spent % 1000000u);
    }
}

static void *run_thread(void *argument)
{
    job *j = (job *)argument; // C++ requires the cast.
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(j->thread % sysconf(_SC_NPROCESSORS_ONLN), &only);
    sched_setaffinity(0, sizeof only, &only);
    uint64_t before = nanoseconds(CLOCK_MONOTONIC);
    if (bursts) write_bursts(j);
    else write_paced(j);
    j->wall_ns = nanoseconds(CLOCK_MONOTONIC) - before;
    return NULL;
}

int main(int count, char **values)
{
    if (count < 6) return 2;
    int is_burst = !strcmp(values[1], "burst");
    threads = atoi(values[2]);
    payload = atoi(values[3]);
    if (threads < 1 || threads > MAX_THREADS || payload < FIXED_BYTES || payload > (int)sizeof text) return 2;
    if (is_burst) {
        if (count < 7) return 2;
        events = strtoull(values[4], NULL, 10);
        bursts = strtoull(values[5], NULL, 10);
        pause_us = strtoull(values[6], NULL, 10);
    } else {
        rate = strtoull(values[4], NULL, 10);
        length_ms = strtoull(values[5], NULL, 10);
    }
    for (int i = 0; i < payload - FIXED_BYTES; i++) text[i] = (char)('a' + i % 26);
    pthread_barrier_init(&start_together, NULL, (unsigned)threads);
    pthread_t ids[MAX_THREADS];
    static job jobs[MAX_THREADS], sum;
    for (int t = 0; t < threads; t++) {
        jobs[t].thread = t;
        if (pthread_create(&ids[t], NULL, run_thread, &jobs[t])) return 1;
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(ids[t], NULL);
        sum.events += jobs[t].events;
        sum.cpu_ns += jobs[t].cpu_ns;
        if (jobs[t].wall_ns > sum.wall_ns) sum.wall_ns = jobs[t].wall_ns;
    }
    printf("%llu %llu %llu\n", (unsigned long long)sum.events, (unsigned long long)sum.cpu_ns, (unsigned long long)sum.wall_ns);
    return 0;
}
#endif
