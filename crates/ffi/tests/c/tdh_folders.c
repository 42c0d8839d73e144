/* Prints the user that the program runs as, and the number of providers that it knows.
 *
 *   tdh_folders [PIPE]        a pipe is not a PDB, and must not block the program
 */
#include <tdh.h>

#include <stdint.h>

#include "check.h"

static BYTE buffer[1 << 20];

static void set_message_file(const char *name) {
    static WCHAR path[4096];
    for (size_t at = 0; name[at] != 0 && at < 4095; at++) {
        path[at] = (WCHAR)(unsigned char)name[at];
    }
    TDH_HANDLE handle = NULL;
    TDH_CONTEXT context = {0};
    context.ParameterType = TDH_CONTEXT_PDB_PATH;
    context.ParameterValue = (ULONGLONG)(uintptr_t)path;
    EXPECT(ERROR_SUCCESS, TdhOpenDecodingHandle(&handle));
    EXPECT(ERROR_INVALID_PARAMETER, TdhSetDecodingParameter(handle, &context));
    EXPECT(ERROR_SUCCESS, TdhCloseDecodingHandle(handle));
}

int main(int argc, char **argv) {
    ULONG size = sizeof buffer;
    ULONG status = TdhEnumerateProviders((PROVIDER_ENUMERATION_INFO *)buffer, &size);
    ULONG count = status == ERROR_SUCCESS ? ((PROVIDER_ENUMERATION_INFO *)buffer)->NumberOfProviders : 0;
    printf("euid %u providers %u\n", (unsigned)geteuid(), (unsigned)count);
    if (argc > 1) {
        set_message_file(argv[1]);
    }
    return 0;
}
