/* Programs of known behaviour. Each counts its actions and prints the counts, one "name value…" per
 * line.
 *
 *   mixed FILE N     a tree of processes and threads, N rounds of ping-pong on one processor, writes,
 *                    loopback traffic
 *   switches N       N rounds of ping-pong on one processor
 *   hot MS           a hot function at a known depth
 *   ratio MS         two functions, the first of which works three times as long as the second
 *   naps COUNT MS    COUNT sleeps of MS milliseconds, and their measured time
 *   wait             prints its process id, and works and naps until its input ends
 *   leaf             exits with 3; children of mixed execute it
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 4096
#define SECTOR 4096

/* Maximum number of processes that one run makes: a mistake must not exhaust the machine. */
#define MAX_FORKS 64

/* Ids of all threads of the workload, in memory that its processes share. */
static struct { int count; int forks; int tid[MAX_THREADS]; } *participants;

/* Returns the result of a call, or exits if it is negative. */
static long must(long result, const char *call) {
    if (result < 0) perror(call), _exit(9);
    return result;
}
#define MUST(call) must((call), #call)

static pid_t fork_child(void) {
    if (__atomic_fetch_add(&participants->forks, 1, __ATOMIC_SEQ_CST) >= MAX_FORKS) _exit(10);
    return (pid_t)MUST(fork());
}

static void record_thread(void) {
    int index = __atomic_fetch_add(&participants->count, 1, __ATOMIC_SEQ_CST);
    if (index < MAX_THREADS) participants->tid[index] = (int)syscall(SYS_gettid);
}

static unsigned long long monotonic_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static unsigned long long cpu_time_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Runs on every processor once. The test compares the events of a processor between the first and
 * the last such switch. */
static void mark_processors(const cpu_set_t *all) {
    struct timespec nap = {0, 1000000};
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all)) {
            run_on(cpu);
            nanosleep(&nap, NULL);
        }
    sched_setaffinity(0, sizeof *all, all);
}

static void pingpong(long rounds, int cpu) {
    int there[2], back[2];
    char byte = 1;
    MUST(pipe(there)), MUST(pipe(back));
    pid_t partner = fork_child();
    if (partner == 0) {
        record_thread();
        run_on(cpu);
        for (long i = 0; i < rounds; i++)
            if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) _exit(8);
        _exit(0);
    }
    run_on(cpu);
    for (long i = 0; i < rounds; i++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) exit(8);
    waitpid(partner, NULL, 0);
    close(there[0]), close(there[1]), close(back[0]), close(back[1]);
}

__attribute__((noinline)) static unsigned long spin(unsigned long rounds) {
    volatile unsigned long sum = 0;
    for (unsigned long i = 0; i < rounds; i++) sum += i ^ (sum << 1);
    return sum;
}

static void *thread_main(void *nothing) {
    record_thread();
    spin(20000);
    return nothing;
}

static void make_children_and_threads(const char *self, int children, int execs, int threads) {
    for (int i = 0; i < children + execs; i++) {
        pid_t child = fork_child();
        if (child == 0) {
            record_thread();
            if (i >= children) execl(self, self, "leaf", (char *)NULL);
            _exit(i & 0x7f);
        }
        waitpid(child, NULL, 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, thread_main, NULL)) exit(7);
        pthread_join(thread, NULL);
    }
}

/* Writes blocks to a file without the page cache, if the file system allows that. Returns the bytes
 * written. */
static long write_directly(const char *path, int count) {
    int file = open(path, O_CREAT | O_WRONLY | O_DIRECT, 0600);
    if (file < 0) file = MUST(open(path, O_CREAT | O_WRONLY, 0600));
    void *block;
    long bytes = 0;
    if (posix_memalign(&block, SECTOR, SECTOR)) exit(7);
    memset(block, 7, SECTOR);
    for (int i = 0; i < count; i++) bytes += MUST(pwrite(file, block, SECTOR, (off_t)i * SECTOR));
    MUST(fsync(file));
    close(file);
    free(block);
    return bytes;
}

static void read_bytes(int from, long bytes) {
    char buffer[1000];
    while (bytes > 0) bytes -= MUST(read(from, buffer, bytes < 1000 ? bytes : 1000));
}

/* Makes one connection to itself, sends datagrams to itself, and prints the ports. */
static void loopback(int sends, int datagrams) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    char buffer[1000] = {0};
    int listener = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(listener, (struct sockaddr *)&at, size)), MUST(listen(listener, 1));
    MUST(getsockname(listener, (struct sockaddr *)&at, &size));
    printf("tcp %d\n", ntohs(at.sin_port));
    int client = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(client, (struct sockaddr *)&at, size));
    int server = MUST(accept(listener, NULL, NULL));
    for (int i = 0; i < sends; i++) {
        if (send(client, buffer, sizeof buffer, 0) != sizeof buffer) exit(6);
        read_bytes(server, sizeof buffer);
    }
    close(client), close(server), close(listener);
    int datagram_socket = MUST(socket(AF_INET, SOCK_DGRAM, 0));
    at.sin_port = 0;
    MUST(bind(datagram_socket, (struct sockaddr *)&at, size)), MUST(getsockname(datagram_socket, (struct sockaddr *)&at, &size));
    printf("udp %d\n", ntohs(at.sin_port));
    for (int i = 0; i < datagrams; i++) {
        MUST(sendto(datagram_socket, buffer, 500, 0, (struct sockaddr *)&at, size));
        MUST(recv(datagram_socket, buffer, sizeof buffer, 0));
    }
    close(datagram_socket);
}

static void mixed(const char *self, const char *path, long rounds) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    record_thread();
    mark_processors(&all);
    make_children_and_threads(self, 10, 10, 10);
    pingpong(rounds, first);
    sched_setaffinity(0, sizeof all, &all);
    spin(20000000);
    printf("written %ld\n", write_directly(path, 50));
    loopback(40, 20);
    mark_processors(&all);
    fflush(stdout);
}

/* Works in a child process: all events of the child lie between the start and the end of this
 * process. */
static void run_in_child(const char *self, int argc, char **argv) {
    pid_t child = fork_child();
    if (child == 0) {
        long rounds = argc > 2 ? atol(argv[argc - 1]) : 0;
        if (!strcmp(argv[1], "mixed")) {
            mixed(self, argv[2], rounds);
        } else {
            record_thread();
            pingpong(rounds, sched_getcpu());
        }
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) exit(5);
    /* The last switch away from an ended child may follow its exit event, on another processor. */
    struct timespec nap = {0, 50000000};
    nanosleep(&nap, NULL);
    printf("leader %d\ntids", child);
    for (int i = 0; i < participants->count && i < MAX_THREADS; i++) printf(" %d", participants->tid[i]);
    printf("\n");
}

__attribute__((noinline)) unsigned long hot_leaf(unsigned long rounds) { return spin(rounds) + 1; }
__attribute__((noinline)) unsigned long depth_3(unsigned long rounds) { return hot_leaf(rounds) + 1; }
__attribute__((noinline)) unsigned long depth_2(unsigned long rounds) { return depth_3(rounds) + 1; }
__attribute__((noinline)) unsigned long depth_1(unsigned long rounds) { return depth_2(rounds) + 1; }

#define WORK(name)                                                                                                     \
    __attribute__((noinline)) unsigned long name(unsigned long rounds) {                                               \
        volatile unsigned long sum = 0;                                                                                \
        for (unsigned long i = 0; i < rounds; i++) sum += i ^ (sum << 1);                                              \
        return sum;                                                                                                    \
    }
WORK(three_parts)
WORK(one_part)

/* Runs two functions alternately, with three times as many loop rounds in the first. */
static void ratio(unsigned long long ms) {
    unsigned long long three = 0, one = 0, start = cpu_time_ns();
    while (three + one < ms * 1000000) {
        three_parts(30000);
        unsigned long long between = cpu_time_ns();
        one_part(10000);
        unsigned long long end = cpu_time_ns();
        three += between - start, one += end - between, start = end;
    }
    printf("three %llu\none %llu\n", three, one);
}

static void hot(unsigned long long ms) {
    unsigned long long start = cpu_time_ns();
    while (cpu_time_ns() - start < ms * 1000000) depth_1(100000);
    printf("worked %llu\n", cpu_time_ns() - start);
}

static void naps(int count, long ms) {
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000};
    unsigned long long slept = 0, start = monotonic_ns();
    for (int i = 0; i < count; i++) {
        unsigned long long before = monotonic_ns();
        nanosleep(&nap, NULL);
        slept += monotonic_ns() - before;
    }
    printf("slept %llu\ntook %llu\n", slept, monotonic_ns() - start);
}

static void wait_for_end(void) {
    struct timespec nap = {0, 2000000};
    char byte;
    fcntl(0, F_SETFL, O_NONBLOCK);
    while (read(0, &byte, 1) < 0 && errno == EAGAIN) depth_1(200000), nanosleep(&nap, NULL);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    participants = mmap(NULL, sizeof *participants, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (participants == MAP_FAILED) return 9;
    if (!strcmp(argv[1], "leaf")) return 3;
    printf("pid %d\n", getpid());
    fflush(stdout);
    if (!strcmp(argv[1], "mixed") || !strcmp(argv[1], "switches")) run_in_child(argv[0], argc, argv);
    else if (!strcmp(argv[1], "hot")) hot(strtoull(argv[2], NULL, 10));
    else if (!strcmp(argv[1], "ratio")) ratio(strtoull(argv[2], NULL, 10));
    else if (!strcmp(argv[1], "naps")) naps(atoi(argv[2]), atol(argv[3]));
    else if (!strcmp(argv[1], "wait")) wait_for_end();
    return 0;
}
