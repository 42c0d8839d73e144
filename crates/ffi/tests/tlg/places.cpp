/* Writes events in all places where C++ allows them: members, templates, packs, lambdas, and next
 * to structured bindings. */
#include "hooks.h"
#include <TraceLoggingProvider.h>

TRACELOGGING_DECLARE_PROVIDER(g_places);
TRACELOGGING_DEFINE_PROVIDER(g_places, "Places", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));

#define METADATA(literal) \
    (hook.metadata_size == sizeof(literal) - 1 && memcmp(hook.metadata, literal, sizeof(literal) - 1) == 0)

struct Pair {
    int x;
    short y;
};

struct Member {
    /* Has a value but no address, because there is no definition outside of the class. */
    static const int kMax = 7;
    int m = 1;
    int array[4] = {1, 2, 3, 4};

    int get() const { return m; }
    static int shared() { return 5; }

    void members() {
        TraceLoggingWrite(g_places, "E", TraceLoggingValue(this->m, "a"), TraceLoggingValue(m, "b"), TraceLoggingValue(get(), "c"),
                          TraceLoggingValue(static_cast<void *>(this), "d"), TraceLoggingValue(shared(), "e"),
                          TraceLoggingInt32FixedArray(this->array, sizeof(this->array) / sizeof(this->array[0]), "f"),
                          TraceLoggingInt32FixedArray(array, sizeof(array) / sizeof(array[0]), "g"));
        CHECK(METADATA("\x1e\0\0E\0a\0\7b\0\7c\0\7d\0\x15" "e\0\7f\0\x27\4\0g\0\x27\4\0"));
        CHECK(hook.payload_size == 4 * 4 + 8 + 2 * 16);
    }

    void constants() {
        TraceLoggingWrite(g_places, "E", TraceLoggingValue(kMax, "a"), TraceLoggingValue(Member::kMax, "b"), TraceLoggingInt32(kMax, "c"));
        CHECK(METADATA("\x0e\0\0E\0a\0\7b\0\7c\0\7") && hook.payload_size == 12);
    }

    template <class T>
    void generic(T value) {
        TraceLoggingWrite(g_places, "E", TraceLoggingValue(get(), "a"), TraceLoggingValue(this->m, "b"), TraceLoggingValue(value, "c"),
                          TraceLoggingStruct(1, "s"), TraceLoggingInt8(1, "d"));
        CHECK(hook.metadata_size == 21 && hook.payload_size == 4 + 4 + sizeof(T) + 1);
    }
};

template <class... Values>
void pack(Values... values) {
    ([&] {
        TraceLoggingWrite(g_places, "E", TraceLoggingValue(values, "v"));
        CHECK(hook.payload_size == sizeof(values));
        /* A char has an out type, too. */
        CHECK(hook.metadata_size == (sizeof(values) == 1 ? 9 : 8));
    }(), ...);
}

template <class T>
void generic_lambda(T outer) {
    auto write = [=](auto inner) {
        TraceLoggingWrite(g_places, "E", TraceLoggingValue(outer, "a"), TraceLoggingValue(inner, "b"));
        CHECK(hook.payload_size == sizeof(outer) + sizeof(inner));
    };
    write(1.0);
    write('c');
}

static void check_structured_bindings() {
    auto [x, y] = Pair{1, 2};
    TraceLoggingWrite(g_places, "E", TraceLoggingValue(x), TraceLoggingValue(y));
    CHECK(METADATA("\x0b\0\0E\0x\0\7y\0\5") && hook.payload_size == 6);
}

int main() {
    hook.enabled_at_register = TRUE;
    CHECK(TraceLoggingRegister(g_places) == S_OK);
    Member member;
    member.members();
    member.constants();
    member.generic(1);
    member.generic(1.0);
    pack(1, 2.0, 'c');
    generic_lambda(1LL);
    check_structured_bindings();
    TraceLoggingUnregister(g_places);
    puts("all places work");
    return 0;
}
