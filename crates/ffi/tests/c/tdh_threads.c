/* Threads that query events, each with separate schemas, while other threads load and unload a
 * manifest and open and close handles.
 *
 *   tdh_threads MANIFEST
 */
#include <tdh.h>

#include <pthread.h>
#include <string.h>

#include "check.h"

enum { THREADS = 6, ROUNDS = 400 };

static WCHAR manifest[300];

static void *query_events(void *number) {
    ULONG_PTR thread = (ULONG_PTR)number;
    static const char traits[] = {8, 0, 'p', 'r', 'o', 'v', 'X', 0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        /* An event with one number, and a name that no other thread uses. */
        BYTE metadata[] = {12, 0, 0, 'E', (BYTE)('a' + thread), (BYTE)('a' + round % 26), (BYTE)('a' + round / 26 % 26), 0, 'n', 0, TDH_INTYPE_UINT32, 0};
        BYTE payload[4] = {(BYTE)round, (BYTE)thread, 0, 0}, value[4];
        BYTE buffer[1024];
        metadata[0] = sizeof metadata - 1;
        EVENT_HEADER_EXTENDED_DATA_ITEM items[2];
        EVENT_RECORD event;
        ULONG size = sizeof buffer;
        PTRACE_EVENT_INFO info = (PTRACE_EVENT_INFO)(void *)buffer;
        memset(&event, 0, sizeof event);
        memset(items, 0, sizeof items);
        items[0].ExtType = EVENT_HEADER_EXT_TYPE_PROV_TRAITS;
        items[0].DataSize = sizeof traits;
        items[0].DataPtr = (ULONGLONG)(ULONG_PTR)traits;
        items[1].ExtType = EVENT_HEADER_EXT_TYPE_EVENT_SCHEMA_TL;
        items[1].DataSize = sizeof metadata - 1;
        items[1].DataPtr = (ULONGLONG)(ULONG_PTR)metadata;
        event.ExtendedDataCount = 2;
        event.ExtendedData = items;
        event.UserData = payload;
        event.UserDataLength = sizeof payload;
        if (TdhGetEventInformation(&event, 0, NULL, info, &size) != 0 || info->TopLevelPropertyCount != 1) {
            return (void *)"TdhGetEventInformation failed";
        }
        const WCHAR *name = (const WCHAR *)(const void *)(buffer + info->EventNameOffset);
        if (name[1] != (WCHAR)metadata[4] || name[2] != (WCHAR)metadata[5]) {
            return (void *)"TdhGetEventInformation returned the schema of another event";
        }
        PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)u"n", 0xFFFFFFFFu, 0};
        if (TdhGetProperty(&event, 0, NULL, 1, &step, sizeof value, value) != 0 || memcmp(value, payload, 4) != 0) {
            return (void *)"TdhGetProperty failed or returned another value";
        }
        size = 0;
        if (TdhEnumerateProviders(NULL, &size) != ERROR_INSUFFICIENT_BUFFER) {
            return (void *)"TdhEnumerateProviders returned another status";
        }
    }
    return NULL;
}

static void *change_library(void *unused) {
    (void)unused;
    for (unsigned round = 0; round < 20; round++) {
        TDH_HANDLE handle = NULL;
        /* Another thread may have unloaded the manifest first. */
        ULONG loaded = TdhLoadManifest(manifest), unloaded = TdhUnloadManifest(manifest);
        if (loaded != 0 || (unloaded != 0 && unloaded != ERROR_NOT_FOUND)) {
            return (void *)"loading or unloading the manifest failed";
        }
        if (TdhOpenDecodingHandle(&handle) != 0 || TdhCloseDecodingHandle(handle) != 0 || TdhCloseDecodingHandle(handle) != ERROR_INVALID_HANDLE) {
            return (void *)"opening or closing a handle returned another status";
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    if (argc != 2) {
        return 2;
    }
    for (size_t i = 0; i < 299 && argv[1][i]; i++) {
        manifest[i] = (WCHAR)(unsigned char)argv[1][i];
    }
    for (ULONG_PTR i = 0; i < THREADS; i++) {
        EXPECT(0, pthread_create(&threads[i], NULL, i < 2 ? change_library : query_events, (void *)i));
    }
    for (int i = 0; i < THREADS; i++) {
        void *failure = NULL;
        EXPECT(0, pthread_join(threads[i], &failure));
        if (failure != NULL) {
            fprintf(stderr, "thread %d: %s\n", i, (const char *)failure);
            return 1;
        }
    }
    return report_rows();
}
