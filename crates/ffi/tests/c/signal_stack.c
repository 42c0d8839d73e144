/* Measures how much stack a signal handler on an alternate stack uses to write each kind of event.
 *
 *   signal_stack BYTES          the size of the stack; prints "depth BYTES KIND" for each kind
 *
 * The stack ends at a page that cannot be accessed. It is filled with a pattern before each signal;
 * bytes that have changed were used.
 */
#include <evntprov.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "check.h"

#define PAGE 4096
#define FILL_BYTE 0xA5
/* The size of the frame that the kernel makes for a handler, if the kernel reports that size: with
 * large vector registers, 8 KiB are not enough for the frame alone. */
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static const GUID Provider = {0xC0FFEE0C, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const GUID Typed = {0xC0FFEE0D, 0x1111, 0x2222, {1, 2, 3, 4, 5, 6, 7, 8}};
static const EVENT_DESCRIPTOR Event = {1, 0, 0, 4, 0, 0, 1};
static const EVENT_DESCRIPTOR Filtered = {2, 0, 0, 4, 0, 0, 1};
static const GUID Activity = {1, 2, 3, {4}}, Related = {5, 6, 7, {8}};
static REGHANDLE reg, typed;
/* The metadata begins with its size, 900 (0x384). */
static unsigned char bytes[70000], metadata[900] = {0x84, 3, 0, 'n'};
static EVENT_DATA_DESCRIPTOR small[128], large[128], one[1], oversized[1], mixed[4], metadata_blocks[3];
static WCHAR text[2000];

static ULONG write_no_blocks(void) { return EventWrite(reg, &Event, 0, NULL); }
static ULONG write_one_block(void) { return EventWrite(reg, &Event, 1, one); }
static ULONG write_small_blocks(void) { return EventWrite(reg, &Event, 128, small); }
static ULONG write_large_blocks(void) { return EventWrite(reg, &Event, 128, large); }
static ULONG write_filtered(void) { return EventWrite(reg, &Filtered, 1, one); }
static ULONG write_activities(void) { return EventWriteTransfer(reg, &Event, &Activity, &Related, 128, small); }
static ULONG write_in_private(void) { return EventWriteEx(reg, &Event, 0, EVENT_WRITE_FLAG_INPRIVATE, &Activity, &Related, 128, large); }
static ULONG write_string(void) { return EventWriteString(reg, 4, 1, text); }
static ULONG write_too_large(void) { return EventWrite(reg, &Event, 1, oversized) == ERROR_ARITHMETIC_OVERFLOW ? 0 : 1; }
static ULONG write_self_described(void) { return EventWriteTransfer(typed, &Event, &Activity, &Related, 3, metadata_blocks); }
static ULONG write_mixed_types(void) { return EventWriteTransfer(typed, &Event, &Activity, &Related, 4, mixed); }

static const struct {
    const char *name;
    ULONG (*write)(void);
} KINDS[] = {
    {"nothing", write_no_blocks},       {"one block", write_one_block},   {"128 small blocks", write_small_blocks},   {"128 large blocks", write_large_blocks},
    {"filtered", write_filtered},     {"activities", write_activities}, {"in private", write_in_private},            {"string", write_string},
    {"too large", write_too_large},   {"self-described", write_self_described}, {"types between payload", write_mixed_types},
};

static ULONG (*volatile write_in_handler)(void);
static volatile ULONG status;
static unsigned char *volatile frame;

static void handler(int number) {
    (void)number;
    frame = (unsigned char *)__builtin_frame_address(0);
    status = write_in_handler();
}

static EVENT_DATA_DESCRIPTOR make_block(const void *data, ULONG size, UCHAR type) {
    EVENT_DATA_DESCRIPTOR descriptor;
    EventDataDescCreate(&descriptor, data, size);
    descriptor.Type = type;
    return descriptor;
}

int main(int argc, char **argv) {
    /* If the kernel's frame takes more than half of the stack, the stack grows by the excess. */
    size_t size = argc > 1 ? (size_t)atoi(argv[1]) : 2 * PAGE, frame_size = getauxval(AT_MINSIGSTKSZ);
    if (frame_size > size / 2) {
        size += (frame_size - size / 2 + PAGE - 1) / PAGE * PAGE;
    }
    unsigned char *memory = (unsigned char *)mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *stack = memory + PAGE;
    EXPECT(0, mprotect(memory, PAGE, PROT_NONE));
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    EXPECT(0, sigaltstack(&alternate, NULL));
    EXPECT(0, sigaction(SIGUSR1, &action, NULL));

    for (unsigned i = 0; i < 128; i++) {
        small[i] = make_block(bytes, i % 60, 0);
        large[i] = make_block(bytes, 100 + i, 0);
    }
    for (unsigned i = 0; i < 1999; i++) {
        text[i] = u'x';
    }
    one[0] = make_block(bytes, 8, 0);
    oversized[0] = make_block(bytes, sizeof bytes, 0);
    metadata_blocks[0] = make_block("\x04\0P\0", 4, EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA);
    metadata_blocks[1] = mixed[1] = make_block(metadata, sizeof metadata, EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA);
    metadata_blocks[2] = mixed[0] = mixed[2] = one[0];
    mixed[3] = make_block("12345678", 8, EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE);

    BOOLEAN yes = TRUE;
    EXPECT(ERROR_SUCCESS, EventRegister(&Provider, NULL, NULL, &reg));
    EXPECT(ERROR_SUCCESS, EventRegister(&Typed, NULL, NULL, &typed));
    EXPECT(ERROR_SUCCESS, EventSetInformation(typed, EventProviderUseDescriptorType, &yes, 1));
    WAIT_UNTIL(EventEnabled(reg, &Event) && EventEnabled(typed, &Event));
    /* Twice: the first event of a thread does more work. */
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
            write_in_handler = KINDS[i].write;
            /* A busy machine may need time to free a buffer. */
            for (unsigned tries = 0; tries < 6000; tries++) {
                memset(stack, FILL_BYTE, size);
                EXPECT(0, raise(SIGUSR1));
                if (status != ERROR_NOT_ENOUGH_MEMORY) {
                    break;
                }
                usleep(10000);
            }
            unsigned char *lowest = stack;
            while (*lowest == FILL_BYTE) {
                lowest++;
            }
            EXPECT(1, frame > lowest && frame < stack + size);
            EXPECT(0, status);
            printf("depth %u %s\n", (unsigned)(frame - lowest), KINDS[i].name);
        }
    }
    EXPECT(ERROR_SUCCESS, EventUnregister(typed));
    EXPECT(ERROR_SUCCESS, EventUnregister(reg));
    return report_rows();
}
