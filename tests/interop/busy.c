/* Keeps two threads busy in functions with known names, then runs five programs. */

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static double seconds = 1;

__attribute__((noinline)) void spin_inner(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        sink += i * i;
    }
}

__attribute__((noinline)) void spin_outer(unsigned long count) {
    for (int i = 0; i < 10; i++) {
        spin_inner(count);
    }
    sink++;
}

__attribute__((noinline)) void spin_other(unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        sink ^= i << 3;
    }
    sink++;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *run(void *unused) {
    double end = now() + seconds;
    while (now() < end) {
        spin_outer(20000);
        spin_other(60000);
        usleep(100);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc > 1) {
        seconds = atof(argv[1]);
    }
    pthread_create(&thread, NULL, run, NULL);
    run(NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < 5; i++) {
        if (fork() == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(1);
        }
        wait(NULL);
    }
    return 0;
}
