// Makes a known number of context switches and samples: busy OUT
// A thread exchanges messages with the main thread, then computes for 400 ms of processor time. It writes its thread
// id, the number of times the kernel switched away from it, and its processor time in microseconds to OUT.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 500, COMPUTE_MS = 400 };

static int to_thread[2], to_main[2];

static long cpu_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void *run(void *out)
{
    const long tid = syscall(SYS_gettid);
    char message;
    for (int i = 0; i < MESSAGES; i++)
        if (read(to_thread[0], &message, 1) != 1 || write(to_main[1], &message, 1) != 1)
            return NULL;
    const long start = cpu_us();
    while (cpu_us() - start < COMPUTE_MS * 1000)
        ;
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    fprintf(out, "%ld %ld %ld\n", tid, usage.ru_nvcsw + usage.ru_nivcsw, cpu_us());
    return out;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 1 ? fopen(argv[1], "w") : NULL;
    pthread_t thread;
    void *result = NULL;
    char message = 0;
    if (out == NULL || pipe(to_thread) != 0 || pipe(to_main) != 0 || pthread_create(&thread, NULL, run, out) != 0)
        return 1;
    for (int i = 0; i < MESSAGES; i++)
        if (write(to_thread[1], &message, 1) != 1 || read(to_main[0], &message, 1) != 1)
            return 1;
    pthread_join(thread, &result);
    return fclose(out) != 0 || result == NULL;
}
