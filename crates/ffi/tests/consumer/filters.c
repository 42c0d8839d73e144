/* Checks the list of the filters that the manifest in the argument defines. */
#include <string.h>
#include <tdh.h>

#include "../c/check.h"

static const GUID kitchen = {0x2b4f0c6a, 0x91d3, 0x4c57, {0x8a, 0x0e, 0x6d, 0x5b, 0x3f, 0x1e, 0x7c, 0x42}};

static int equals_text(const void *start, ULONG offset, const WCHAR *expected) {
    const WCHAR *text = (const WCHAR *)(const void *)((const BYTE *)start + offset);
    while (*text != 0 && *text == *expected) {
        text++;
        expected++;
    }
    return *text == *expected;
}

int main(int arguments_count, char **arguments) {
    static ULONGLONG buffer[512];
    PPROVIDER_FILTER_INFO *filters = (PPROVIDER_FILTER_INFO *)(void *)buffer;
    const PROVIDER_FILTER_INFO *dishes, *everything;
    WCHAR manifest[512] = {0};
    ULONG count = 9, size = 0, required_size;
    if (arguments_count < 2) {
        return 2;
    }
    EXPECT(ERROR_FILE_NOT_FOUND, TdhEnumerateProviderFilters((LPGUID)(uintptr_t)&kitchen, 0, NULL, &count, NULL, &size));
    EXPECT(0, count);
    for (size_t at = 0; at < strlen(arguments[1]) && at < 511; at++) {
        manifest[at] = (WCHAR)arguments[1][at];
    }
    EXPECT(ERROR_SUCCESS, TdhLoadManifest(manifest));
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProviderFilters((LPGUID)(uintptr_t)&kitchen, 0, NULL, &count, NULL, &size));
    EXPECT(2, count);
    required_size = size;
    size = required_size - 1;
    EXPECT(ERROR_INSUFFICIENT_BUFFER, TdhEnumerateProviderFilters((LPGUID)(uintptr_t)&kitchen, 0, NULL, &count, filters, &size));
    EXPECT(required_size, size);
    EXPECT(ERROR_SUCCESS, TdhEnumerateProviderFilters((LPGUID)(uintptr_t)&kitchen, 0, NULL, &count, filters, &size));
    EXPECT(2, count);
    dishes = filters[0];
    everything = filters[1];
    EXPECT(1, (const BYTE *)dishes == (const BYTE *)buffer + 2 * sizeof *filters);
    EXPECT(1, (const BYTE *)everything < (const BYTE *)buffer + size && (uintptr_t)everything % 8 == 0);
    EXPECT(3, dishes->Id);
    EXPECT(1, dishes->Version);
    EXPECT(1, equals_text(dishes, dishes->MessageOffset, u"by dish"));
    EXPECT(3, dishes->PropertyCount);
    EXPECT(TDH_INTYPE_UINT32, dishes->EventPropertyInfoArray[0].nonStructType.InType);
    EXPECT(1, equals_text(dishes, dishes->EventPropertyInfoArray[1].NameOffset, u"dish"));
    EXPECT(1, equals_text(dishes, dishes->EventPropertyInfoArray[2].nonStructType.MapNameOffset, u"Heat"));
    EXPECT(7, everything->Id);
    EXPECT(0, everything->Version);
    EXPECT(0, everything->MessageOffset);
    EXPECT(0, everything->PropertyCount);
    return report_rows();
}
