/* Starts the kernel logger with the stacks of process starts, starts processes, and changes the
 * group masks of the logger with the functions of winternl.h.
 *
 *   kernel_logger FILE     prints "unsupported STATUS" where the machine gives no kernel events
 */
#include <KernelTraceControl.h>
#include <string.h>
#include <sys/wait.h>
#include <traceweir/nt_system_information.h>
#include <unistd.h>

#include "control.h"

#define PROCESS_START 1

static const GUID PROCESS_CLASS = {0x3d6fa8d0, 0xfe05, 0x11d0, {0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c}};

static ULONG query_masks(EVENT_TRACE_GROUPMASK_INFORMATION *masks, TRACEHANDLE session) {
    ULONG length = 0;
    memset(masks, 0xFF, sizeof *masks);
    masks->EventTraceInformationClass = EventTraceGroupMaskInformation;
    masks->TraceHandle = session;
    EXPECT(0, NtQuerySystemInformation(SystemPerformanceTraceInformation, masks, sizeof *masks, &length));
    EXPECT(sizeof *masks, length);
    EXPECT(session, masks->TraceHandle);
    return masks->EventTraceGroupMasks.Masks[0];
}

static void check_masks(TRACEHANDLE session) {
    EVENT_TRACE_GROUPMASK_INFORMATION masks;
    ULONG other_masks[8], length = 0;
    EXPECT(EVENT_TRACE_FLAG_PROCESS, query_masks(&masks, session));
    EXPECT(0, masks.EventTraceGroupMasks.Masks[7]);
    masks.EventTraceGroupMasks.Masks[0] |= EVENT_TRACE_FLAG_THREAD;
    EXPECT(0, NtSetSystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks));
    EXPECT(EVENT_TRACE_FLAG_PROCESS | EVENT_TRACE_FLAG_THREAD, query_masks(&masks, session));
    EXPECT(0, TraceQueryInformation(session, TraceSystemTraceEnableFlagsInfo, other_masks, sizeof other_masks, &length));
    EXPECT(0, memcmp(other_masks, masks.EventTraceGroupMasks.Masks, sizeof other_masks));
    masks.EventTraceGroupMasks.Masks[0] = EVENT_TRACE_FLAG_PROCESS;
    EXPECT(0, ZwSetSystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks));
    EXPECT(0, ZwQuerySystemInformation(SystemPerformanceTraceInformation, &masks, sizeof masks, NULL));
    EXPECT(EVENT_TRACE_FLAG_PROCESS, masks.EventTraceGroupMasks.Masks[0]);
}

int main(int argc, char **argv) {
    static BLOCKW block;
    TRACEHANDLE session = 7;
    STACK_TRACING_EVENT_ID stacks[1];
    memset(stacks, 0, sizeof stacks);
    stacks[0].EventGuid = PROCESS_CLASS;
    stacks[0].Type = PROCESS_START;
    EXPECT(24, sizeof stacks);
    file_block(&block, EVENT_TRACE_FILE_MODE_SEQUENTIAL, argc > 1 ? argv[1] : "");
    block.p.EnableFlags = EVENT_TRACE_FLAG_PROCESS;
    EXPECT(ERROR_INVALID_PARAMETER, StartKernelTrace(NULL, &block.p, stacks, 1));
    EXPECT(ERROR_INVALID_PARAMETER, StartKernelTrace(&session, NULL, stacks, 1));
    EXPECT(0, session);
    EXPECT(ERROR_INVALID_PARAMETER, StartKernelTrace(&session, &block.p, NULL, 1));
    EXPECT(ERROR_INVALID_PARAMETER, StartKernelTrace(&session, &block.p, stacks, 257));
    ULONG status = StartKernelTrace(&session, &block.p, stacks, 1);
    if (status == ERROR_NOT_SUPPORTED || status == ERROR_PRIVILEGE_NOT_HELD) {
        printf("unsupported %u\n", status);
        return 0;
    }
    EXPECT(0, status);
    EXPECT(0xFFFF, session);
    EXPECT(1, equals_wide(block.name, "NT Kernel Logger"));
    EXPECT(ERROR_ALREADY_EXISTS, StartKernelTrace(&session, &block.p, NULL, 0));
    session = 0xFFFF;
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        printf("child %d\n", (int)child);
        EXPECT(child, waitpid(child, NULL, 0));
    }
    check_masks(session);
    EXPECT(0, StopTraceW(session, NULL, &file_block(&block, 0, "")->p));
    return report_rows();
}
