/* Prints events as a program written for Windows would: queries the schema, walks the properties,
 * formats each element.
 *
 *   tdh RECORDS MANIFEST TMF     RECORDS: a file with header, items and payload of each event
 */
#include <tdh.h>

#include <limits.h>
#include <string.h>

#include "check.h"

static void print_text(const WCHAR *text) {
    for (; *text; text++) {
        if (*text >= ' ' && *text < 0x7F) {
            putchar((int)*text);
        } else {
            printf("\\u%04x", *text);
        }
    }
}

/* Converts an argument of the command line to UTF-16. */
static void widen(WCHAR *to, size_t capacity, const char *from) {
    size_t at = 0;
    for (; from[at] && at + 1 < capacity; at++) {
        to[at] = (WCHAR)(unsigned char)from[at];
    }
    to[at] = 0;
}

struct walk {
    PEVENT_RECORD event;
    PTRACE_EVENT_INFO info;
    ULONG pointer_size;
    USHORT remaining;
    PBYTE data;
    /* The value of each property, to which counts and lengths of other properties refer. */
    USHORT numbers[4096];
};

static PEVENT_MAP_INFO query_map(const struct walk *walk, PEVENT_PROPERTY_INFO property) {
    ULONG size = 0;
    PWSTR name = TEI_MAP_NAME(walk->info, property);
    if (name == NULL) {
        return NULL;
    }
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhGetEventMapInformation(walk->event, name, NULL, &size));
    PEVENT_MAP_INFO map = malloc(size);
    EXPECT(ERROR_SUCCESS, TdhGetEventMapInformation(walk->event, name, map, &size));
    return map;
}

static ULONG format_element(struct walk *walk, PEVENT_MAP_INFO map, PEVENT_PROPERTY_INFO property, USHORT length, USHORT *used) {
    static WCHAR text[1 << 17];
    ULONG size = 0;
    ULONG status = TdhFormatProperty(walk->info, map, walk->pointer_size, property->nonStructType.InType, property->nonStructType.OutType,
                                     length, walk->remaining, walk->data, &size, NULL, used);
    if (status == ERROR_INSUFFICIENT_BUFFER) {
        ULONG short_size = size - 1;
        EXPECT(ERROR_INSUFFICIENT_BUFFER,
           TdhFormatProperty(walk->info, map, walk->pointer_size, property->nonStructType.InType, property->nonStructType.OutType, length,
                             walk->remaining, walk->data, &short_size, text, used));
        EXPECT(size, short_size);
        status = TdhFormatProperty(walk->info, map, walk->pointer_size, property->nonStructType.InType, property->nonStructType.OutType,
                                   length, walk->remaining, walk->data, &size, text, used);
    } else if (status == ERROR_EVT_INVALID_EVENT_DATA && map != NULL) {
        return format_element(walk, NULL, property, length, used);
    }
    if (status == ERROR_SUCCESS) {
        print_text(text);
    }
    return status;
}

/* Checks that formatting consumes the bytes that TdhGetProperty returns. */
static void check_bytes(const struct walk *walk, PEVENT_PROPERTY_INFO property, USHORT used) {
    static BYTE bytes[1 << 16];
    PROPERTY_DATA_DESCRIPTOR step = {(ULONGLONG)(ULONG_PTR)TEI_PROPERTY_NAME(walk->info, property), 0xFFFFFFFFu, 0};
    ULONG size = 0;
    EXPECT(ERROR_SUCCESS, TdhGetPropertySize(walk->event, 0, NULL, 1, &step, &size));
    EXPECT(used, size);
    EXPECT(ERROR_SUCCESS, TdhGetProperty(walk->event, 0, NULL, 1, &step, sizeof bytes, bytes));
    EXPECT(0, memcmp(bytes, walk->data, size));
    if (size > 0) {
        EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhGetProperty(walk->event, 0, NULL, 1, &step, size - 1, bytes));
    }
}

static int is_text_of_characters(PEVENT_PROPERTY_INFO property) {
    USHORT in = property->nonStructType.InType, out = property->nonStructType.OutType;
    return in == TDH_INTYPE_UNICODECHAR || in == TDH_INTYPE_ANSICHAR ||
           (out == TDH_OUTTYPE_STRING && (in == TDH_INTYPE_INT8 || in == TDH_INTYPE_UINT8 || in == TDH_INTYPE_UINT16));
}

static int has_unique_name(const struct walk *walk, PEVENT_PROPERTY_INFO property) {
    ULONG count = 0;
    for (ULONG i = 0; i < walk->info->TopLevelPropertyCount; i++) {
        PWSTR candidate = TEI_PROPERTY_NAME(walk->info, &walk->info->EventPropertyInfoArray[i]), name = TEI_PROPERTY_NAME(walk->info, property);
        while (*candidate && *candidate == *name) {
            candidate++, name++;
        }
        count += *candidate == *name;
    }
    return count == 1;
}

static ULONG print_properties(struct walk *walk, ULONG first, ULONG end, int depth) {
    for (ULONG i = first; i < end; i++) {
        PEVENT_PROPERTY_INFO property = &walk->info->EventPropertyInfoArray[i];
        ULONG flags = (ULONG)property->Flags;
        USHORT count = flags & PropertyParamCount ? walk->numbers[property->countPropertyIndex] : property->count;
        USHORT length = flags & PropertyParamLength ? walk->numbers[property->lengthPropertyIndex] : property->length;
        int is_array = (flags & (PropertyParamCount | PropertyParamFixedCount)) != 0;
        int needs_no_bytes = !(flags & PropertyStruct) && (property->nonStructType.InType == TDH_INTYPE_NULL ||
                                                       ((flags & PropertyParamLength) && length == 0));
        /* A payload may end before any field: an older version of the event may have fewer
         * fields. */
        if (depth == 0 && walk->remaining == 0 && count != 0 && !needs_no_bytes) {
            return ERROR_SUCCESS;
        }
        for (USHORT element = 0; element < count; element++) {
            if (flags & PropertyStruct) {
                ULONG start = property->structType.StructStartIndex;
                ULONG status = print_properties(walk, start, start + property->structType.NumOfStructMembers, depth + 1);
                if (status != ERROR_SUCCESS) {
                    return status;
                }
                continue;
            }
            USHORT used = 0;
            PEVENT_MAP_INFO map = query_map(walk, property);
            int is_character = is_array && is_text_of_characters(property);
            if (walk->remaining >= 2 && property->nonStructType.InType == TDH_INTYPE_UINT16) {
                memcpy(&walk->numbers[i], walk->data, 2);
            } else if (walk->remaining >= 1) {
                /* A count or length of another type: its low one or two bytes. */
                memcpy(&walk->numbers[i], walk->data, property->length == 1 || walk->remaining < 2 ? 1 : 2);
            }
            printf("  ");
            print_text(TEI_PROPERTY_NAME(walk->info, property));
            putchar('=');
            ULONG status = format_element(walk, map, property, length, &used);
            printf(is_character ? " (one of a text)\n" : "\n");
            free(map);
            if (status != ERROR_SUCCESS) {
                return status;
            }
            if (depth == 0 && !is_array && has_unique_name(walk, property)) {
                check_bytes(walk, property, used);
            }
            walk->data += used;
            walk->remaining = (USHORT)(walk->remaining - used);
        }
    }
    return ERROR_SUCCESS;
}

static void print_event(PEVENT_RECORD event, TDH_HANDLE handle, PTDH_CONTEXT tmf) {
    static struct walk walk;
    ULONG size = 0;
    int is_message = (event->EventHeader.Flags & EVENT_HEADER_FLAG_TRACE_MESSAGE) != 0;
    ULONG contexts = is_message ? 1 : 0;
    ULONG status = TdhGetEventInformation(event, contexts, tmf, NULL, &size);
    if (status != ERROR_INSUFFICIENT_BUFFER) {
        printf("event: %u\n", status);
        return;
    }
    memset(&walk, 0, sizeof walk);
    walk.event = event;
    walk.info = malloc(size);
    ULONG short_size = size - 1;
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhGetEventInformation(event, contexts, tmf, walk.info, &short_size));
    EXPECT(size, short_size);
    EXPECT(ERROR_SUCCESS, TdhGetEventInformation(event, contexts, tmf, walk.info, &size));
    EXPECT(0, memcmp(&walk.info->EventDescriptor, &event->EventHeader.EventDescriptor, sizeof(EVENT_DESCRIPTOR)));
    printf("event: ");
    if (TEI_PROVIDER_NAME(walk.info)) {
        print_text(TEI_PROVIDER_NAME(walk.info));
    }
    printf(" source %u\n", (unsigned)walk.info->DecodingSource);
    if (is_message) {
        static WCHAR text[1 << 16];
        ULONG room = sizeof text;
        status = TdhGetWppMessage(handle, event, &room, (PBYTE)text);
        printf("  ");
        if (status == ERROR_SUCCESS) {
            print_text(text);
        }
        printf(" (%u)\n", status);
    } else {
        walk.pointer_size = event->EventHeader.Flags & EVENT_HEADER_FLAG_32_BIT_HEADER ? 4 : 8;
        walk.remaining = event->UserDataLength;
        walk.data = event->UserData;
        status = print_properties(&walk, 0, walk.info->TopLevelPropertyCount, 0);
        printf("  end %u\n", status);
    }
    free(walk.info);
}

int main(int argc, char **argv) {
    static WCHAR manifest[300], tmf[300];
    FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        return 2;
    }
    widen(manifest, 300, argv[2]);
    widen(tmf, 300, argv[3]);
    TDH_HANDLE handle = NULL;
    TDH_CONTEXT context = {(ULONGLONG)(ULONG_PTR)tmf, TDH_CONTEXT_WPP_TMFFILE, 0};
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(manifest));
    EXPECT(ERROR_SUCCESS, TdhOpenDecodingHandle(&handle));
    EXPECT(ERROR_SUCCESS, TdhSetDecodingParameter(handle, &context));
    EVENT_RECORD event;
    USHORT sizes[2];
    while (memset(&event, 0, sizeof event), fread(&event.EventHeader, sizeof event.EventHeader, 1, file) == 1) {
        EVENT_HEADER_EXTENDED_DATA_ITEM items[32];
        memset(items, 0, sizeof items);
        EXPECT(2, fread(sizes, 2, 2, file));
        event.ExtendedDataCount = sizes[0];
        event.UserDataLength = sizes[1];
        event.ExtendedData = items;
        for (USHORT i = 0; i < event.ExtendedDataCount; i++) {
            EXPECT(2, fread(sizes, 2, 2, file));
            items[i].ExtType = sizes[0];
            items[i].DataSize = sizes[1];
            items[i].DataPtr = (ULONGLONG)(ULONG_PTR)malloc(sizes[1] + 1u);
            EXPECT(sizes[1], fread((void *)(ULONG_PTR)items[i].DataPtr, 1, sizes[1], file));
        }
        event.UserData = malloc(event.UserDataLength + 1u);
        EXPECT(event.UserDataLength, fread(event.UserData, 1, event.UserDataLength, file));
        print_event(&event, handle, &context);
        free(event.UserData);
        for (USHORT i = 0; i < event.ExtendedDataCount; i++) {
            free((void *)(ULONG_PTR)items[i].DataPtr);
        }
    }
    fclose(file);
    EXPECT(ERROR_SUCCESS, TdhCloseDecodingHandle(handle));
    EXPECT(ERROR_INVALID_HANDLE, TdhCloseDecodingHandle(handle));
    EXPECT(ERROR_SUCCESS, TdhUnloadManifest(manifest));
    return report_rows();
}
