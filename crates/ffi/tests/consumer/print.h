/* Prints events in the form that the test computes from the same file. */
#ifndef PRINT_H
#define PRINT_H

#include <evntcons.h>
#include <stdio.h>

static inline unsigned long long hash(unsigned long long seed, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t at = 0; at < size; at++) {
        seed = (seed ^ bytes[at]) * 0x100000001B3ull;
    }
    return seed;
}

#define HASH_START 0xCBF29CE484222325ull

/* Prints the time, the provider, the id, version, level, opcode, task and keyword, then values with
 * their names. For items and payload, it prints their number or size and a hash. */
static inline void print_record(const EVENT_RECORD *event) {
    const EVENT_HEADER *header = &event->EventHeader;
    unsigned long long item_hash = HASH_START;
    for (USHORT index = 0; index < event->ExtendedDataCount; index++) {
        const EVENT_HEADER_EXTENDED_DATA_ITEM *item = &event->ExtendedData[index];
        item_hash = hash(item_hash, &item->ExtType, 2);
        item_hash = hash(item_hash, (const void *)(uintptr_t)item->DataPtr, item->DataSize);
        if (item->Linkage != (index + 1 < event->ExtendedDataCount)) {
            printf("item %u of %u has the wrong Linkage\n", index, event->ExtendedDataCount);
        }
    }
    printf("%lld %08x %u %u %u %u %u %llu cpu %u ids %u %u flags %x property %u activity %08x items %u %016llx payload %u %016llx\n",
           header->TimeStamp.QuadPart, header->ProviderId.Data1, header->EventDescriptor.Id, header->EventDescriptor.Version,
           header->EventDescriptor.Level, header->EventDescriptor.Opcode, header->EventDescriptor.Task, header->EventDescriptor.Keyword,
           GetEventProcessorIndex(event), header->ThreadId, header->ProcessId, header->Flags, header->EventProperty, header->ActivityId.Data1,
           event->ExtendedDataCount, item_hash, event->UserDataLength, hash(HASH_START, event->UserData, event->UserDataLength));
}

#endif
