/* Wrong on purpose: two threads make the library write to the same address. A race detector must
 * report it. */
#include <evntprov.h>
#include <pthread.h>

static GUID shared;

static void *create_ids(void *unused) {
    (void)unused;
    for (int round = 0; round < 1000; round++) {
        EventActivityIdControl(EVENT_ACTIVITY_CTRL_CREATE_ID, &shared);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, create_ids, NULL) != 0) {
        return 2;
    }
    create_ids(NULL);
    return pthread_join(thread, NULL);
}
