/* Merges traces.
 *
 *   merge OUTPUT FLAGS TRACE...      FLAGS is hexadecimal
 */
#include <KernelTraceControl.h>

#include "control.h"

#define MAX_TRACES 8

int main(int argc, char **argv) {
    static WCHAR output[NAME_UNITS], names[MAX_TRACES][NAME_UNITS];
    LPCWSTR traces[MAX_TRACES];
    ULONG count = 0;
    LPCWSTR none[] = {NULL}, missing[] = {u"/nowhere/none.etl"}, empty[] = {u""};
    to_wide(output, argv[1]);
    for (int i = 3; i < argc && count < MAX_TRACES; i++, count++) {
        to_wide(names[count], argv[i]);
        traces[count] = names[count];
    }
    EXPECT(ERROR_INVALID_PARAMETER, CreateMergedTraceFile(NULL, traces, count, 0));
    EXPECT(ERROR_INVALID_PARAMETER, CreateMergedTraceFile(output, traces, 0, 0));
    EXPECT(ERROR_INVALID_PARAMETER, CreateMergedTraceFile(output, NULL, 1, 0));
    EXPECT(ERROR_INVALID_PARAMETER, CreateMergedTraceFile(output, none, 1, 0));
    EXPECT(ERROR_INVALID_PARAMETER, CreateMergedTraceFile(output, empty, 1, 0));
    EXPECT(1, CreateMergedTraceFile(output, missing, 1, 0) != ERROR_SUCCESS);
    /* The output cannot be one of the inputs. */
    EXPECT(ERROR_SHARING_VIOLATION, CreateMergedTraceFile(names[0], traces, count, 0));
    EXPECT(ERROR_SUCCESS, CreateMergedTraceFile(output, traces, count, (DWORD)strtoul(argv[2], NULL, 16)));
    return report_rows();
}
