/* The contract of the provider and write macros, row by row, for C and C++. Prints violations to
 * standard error. */
#include "hooks.h"
#include <TraceLoggingProvider.h>

TRACELOGGING_DECLARE_PROVIDER(g_rules);
TRACELOGGING_DEFINE_PROVIDER(g_rules, "My.Rules",
    (0xb3864c38, 0x4273, 0x58c5, 0x54, 0x5b, 0x8b, 0x36, 0x08, 0x34, 0x34, 0x71));
TRACELOGGING_DEFINE_PROVIDER_STORAGE(s_grouped, "Grouped", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    TraceLoggingOptionGroup(0x11223344, 0x5566, 0x7788, 1, 2, 3, 4, 5, 6, 7, 8));
static const TraceLoggingHProvider g_grouped = &s_grouped;

#define BYTES(part, literal) (hook.part##_size == sizeof(literal) - 1 && memcmp(hook.part, literal, sizeof(literal) - 1) == 0)
/* Metadata after size and tags: the names and types. */
#define FIELDS(event, literal)                                                                      \
    (hook.metadata_size == 3 + sizeof(event) + sizeof(literal) - 1 &&                               \
     memcmp(hook.metadata + 3, event, sizeof(event)) == 0 &&                                        \
     memcmp(hook.metadata + 3 + sizeof(event), literal, sizeof(literal) - 1) == 0)

static int s_calls;
static int count_call(int value) {
    s_calls++;
    return value;
}

static void enable(UCHAR level, ULONGLONG any, ULONGLONG all) {
    hook_enable(EVENT_CONTROL_CODE_ENABLE_PROVIDER, level, any, all);
}

static void provider_starts_unregistered(void) {
    const GUID expected = {0xb3864c38, 0x4273, 0x58c5, {0x54, 0x5b, 0x8b, 0x36, 0x08, 0x34, 0x34, 0x71}};
    GUID id = TraceLoggingProviderId(g_rules);
    CHECK(memcmp(&id, &expected, sizeof id) == 0);
    CHECK(!TraceLoggingProviderEnabled(g_rules, 0, 0));
    TraceLoggingWrite(g_rules, "Nobody", TraceLoggingInt32(count_call(1)));
    TraceLoggingUnregister(g_rules);
    CHECK(hook.writes == 0 && hook.unregisters == 0 && s_calls == 0);
    CHECK(TraceLoggingSetInformation(g_rules, EventProviderSetTraits, NULL, 0) == 0);
    CHECK(hook.handle == 0);
}

static void registering_sets_the_traits(void) {
    hook.set_status = ERROR_ACCESS_DENIED;
    CHECK(TraceLoggingRegister(g_rules) == S_OK);
    CHECK(hook.registers == 1 && hook.handle == HOOK_HANDLE && hook.set_class == EventProviderSetTraits);
    CHECK(hook.set_size == 11 && memcmp(hook.set_data, "\x0b\0My.Rules", 11) == 0);
    TraceLoggingUnregister(g_rules);
    CHECK(hook.unregisters == 1);
    hook.set_status = 0;
    CHECK(TraceLoggingRegister(g_grouped) == S_OK);
    CHECK(hook.set_size == 29);
    CHECK(memcmp(hook.set_data, "\x1d\0Grouped\0\x13\0\1\x44\x33\x22\x11\x66\x55\x88\x77\1\2\3\4\5\6\7\x08", 29) == 0);
    TraceLoggingUnregister(g_grouped);
}

static void failed_registration_leaves_provider_unregistered(void) {
    hook.register_status = ERROR_NOT_ENOUGH_MEMORY;
    ULONG sets = hook.sets;
    CHECK(TraceLoggingRegister(g_rules) == (HRESULT)0x80070008u);
    CHECK(hook.sets == sets);
    hook.register_status = 0;
}

static ULONG s_callback_calls;
static void NTAPI on_enable(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all,
                       PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    CHECK(source && !filter && context == &s_callback_calls && any == 0 && all == 0);
    s_callback_calls++;
    CHECK(TraceLoggingProviderEnabled(g_rules, level, 0) == (code != EVENT_CONTROL_CODE_DISABLE_PROVIDER));
}

static void callback_runs_after_the_state_changed(void) {
    CHECK(TraceLoggingRegisterEx(g_rules, on_enable, &s_callback_calls) == S_OK);
    enable(4, 0, 0);
    hook_enable(EVENT_CONTROL_CODE_CAPTURE_STATE, 4, 0, 0);
    hook_enable(EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0);
    CHECK(s_callback_calls == 3);
    TraceLoggingUnregister(g_rules);
}

static void level_and_keywords_decide_whether_provider_is_enabled(void) {
    CHECK(TraceLoggingRegister(g_rules) == S_OK);
    enable(3, 0x6, 0x2);
    CHECK(TraceLoggingProviderEnabled(g_rules, 3, 0) && !TraceLoggingProviderEnabled(g_rules, 4, 0));
    CHECK(TraceLoggingProviderEnabled(g_rules, 0, 0));
    CHECK(TraceLoggingProviderEnabled(g_rules, 3, 0x2) && TraceLoggingProviderEnabled(g_rules, 3, 0x7));
    CHECK(!TraceLoggingProviderEnabled(g_rules, 3, 0x4) && !TraceLoggingProviderEnabled(g_rules, 3, 0x8));
    enable(0, 0, 0);
    CHECK(TraceLoggingProviderEnabled(g_rules, 255, 0x8));
    enable(255, 0, 0);
    CHECK(TraceLoggingProviderEnabled(g_rules, 255, 0));
    hook_enable(EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0);
    CHECK(!TraceLoggingProviderEnabled(g_rules, 0, 0));
    enable(5, 0, 0);
    TraceLoggingUnregister(g_rules);
    CHECK(!TraceLoggingProviderEnabled(g_rules, 0, 0));
}

static void arguments_are_evaluated_once_if_a_session_listens(void) {
    ULONG writes = hook.writes;
    const GUID *none = NULL;
    s_calls = 0;
    enable(4, 1, 0);
    TraceLoggingWrite(g_rules, "Verbose", TraceLoggingInt32(count_call(1)));
    TraceLoggingWrite(g_rules, "Other", TraceLoggingLevel(4), TraceLoggingKeyword(2), TraceLoggingInt32(count_call(1)));
    TraceLoggingWriteActivity(g_rules, "Verbose", (count_call(1), none), none, TraceLoggingInt32(count_call(1)));
    CHECK(hook.writes == writes && s_calls == 0);
    TraceLoggingWrite(g_rules, "E", TraceLoggingLevel(4), TraceLoggingInt32(count_call(7), "a"),
                      TraceLoggingCountedString("abc", count_call(2), "b"), TraceLoggingBinary((count_call(0), "xy"), count_call(1), "c"));
    CHECK(hook.writes == writes + 1 && s_calls == 4);
    CHECK(BYTES(payload, "\7\0\0\0\2\0ab\1\0x"));
    if (hook.writes)
        TraceLoggingWrite(g_rules, "E", TraceLoggingLevel(4));
    else
        CHECK(FALSE);
    CHECK(hook.blocks == 2 && hook.payload_size == 0);
    enable(0, 0, 0);
}

static void activity_ids_are_passed_on(void) {
    const GUID a = {1, 2, 3, {4}}, b = {5, 6, 7, {8}};
    TraceLoggingWrite(g_rules, "E");
    CHECK(!hook.has_activity && !hook.has_related && hook.handle == HOOK_HANDLE);
    TraceLoggingWriteActivity(g_rules, "E", &a, &b, TraceLoggingInt8(1, "x"));
    CHECK(memcmp(&hook.activity, &a, sizeof a) == 0 && memcmp(&hook.related, &b, sizeof b) == 0);
    CHECK(BYTES(metadata, "\x08\0\0E\0x\0\3") && BYTES(payload, "\1"));
    TraceLoggingWriteActivity(g_rules, "E", NULL, NULL);
    CHECK(!hook.has_activity && !hook.has_related && hook.writes_ex == 0);
    TraceLoggingWriteEx(g_rules, "X", 0x1122334455667788u, EVENT_WRITE_FLAG_NO_FAULTING, &a, NULL, TraceLoggingInt8(1, "x"));
    CHECK(hook.writes_ex == 1 && hook.filter == 0x1122334455667788u && hook.flags == 1);
    CHECK(hook.has_activity && !hook.has_related && BYTES(metadata, "\x08\0\0X\0x\0\3"));
    TraceLoggingWriteEx(g_rules, "X", 0, 0, NULL, &b);
    CHECK(hook.writes_ex == 2 && !hook.has_activity && hook.has_related);
}

static void attributes_have_defaults_and_rules_for_repeats(void) {
    TraceLoggingWrite(g_rules, "E");
    CHECK(hook.event.Level == 5 && hook.event.Keyword == 0 && hook.event.Opcode == 0 && hook.event.Channel == 11);
    CHECK(hook.event.Id == 0 && hook.event.Version == 0 && hook.event.Task == 0);
    TraceLoggingWrite(g_rules, "E", TraceLoggingLevel(1), TraceLoggingLevel(2), TraceLoggingKeyword(1), TraceLoggingKeyword(6),
                      TraceLoggingOpcode(1), TraceLoggingOpcode(2), TraceLoggingChannel(16), TraceLoggingChannel(17),
                      TraceLoggingEventTag(0x4000), TraceLoggingEventTag(0x200000), TraceLoggingDescription("what "),
                      TraceLoggingDescription("it is"), TraceLoggingCustomAttribute("key", "value"), TraceLoggingIdVersion(9, 3));
    CHECK(hook.event.Level == 2 && hook.event.Keyword == 7 && hook.event.Opcode == 2 && hook.event.Channel == 17);
    CHECK(hook.event.Id == 9 && hook.event.Version == 3);
    CHECK(BYTES(metadata, "\6\0\x81\1E\0"));
}

static void default_name_is_the_source_text_of_the_value(void) {
    int value = 1, array[2] = {1, 2};
    struct { char text[4]; } at = {"abc"}, *p = &at;
#define CONSTANT 3
    TraceLoggingWrite(g_rules, "E", TraceLoggingInt32(value), TraceLoggingInt32(value + array[1]), TraceLoggingInt32(CONSTANT),
                      TraceLoggingInt32Array(array, 2), TraceLoggingInt32FixedArray(array, 2), TraceLoggingString(p->text),
                      TraceLoggingCountedString(at.text, 2), TraceLoggingBinaryEx(&value, 1, TlgOutJSON),
                      TraceLoggingCustom(p->text, 1, 5, (1), 1), TraceLoggingPackedField(&array[0], 4, TlgInINT32));
    CHECK(FIELDS("E", "value\0\7value + array[1]\0\7CONSTANT\0\7array\0\x47" "array\0\x27\2\0p->text\0\2"
                      "at.text\0\x17&value\0\x8e\x0cp->text\0\x65\1\0\1&array[0]\0\7"));
}

static void macros_do_not_conflict_with_names_of_a_program(void) {
    UINT8 _tlg_at = 1, _tlg_data = 2, _tlg_provider = 3, _tlg_v1 = 4, _tlg_p2 = 5, _tlg_c3 = 6, _tlg = 7, _tlg_metadata = 8;
    UINT8 provider = 9, event = 10, data = 11, at = 12, size = 13, metadata = 14, count = 15, activity = 16, related = 17;
    UINT8 value = 18, pointer = 19, type = 20, name = 21, text = 22, in = 23, out = 24, tags = 25, level = 26, send = 27, how = 28, i = 29;
#define U(v) TraceLoggingUInt8(v)
    TraceLoggingWrite(g_rules, "E", U(_tlg_at), U(_tlg_data), U(_tlg_provider), U(_tlg_v1), U(_tlg_p2), U(_tlg_c3), U(_tlg), U(_tlg_metadata),
                      U(provider), U(event), U(data), U(at), U(size), U(metadata), U(count), U(activity), U(related), U(value), U(pointer),
                      U(type), U(name), U(text), U(in), U(out), U(tags), U(level), U(send), U(how), U(i));
    CHECK(BYTES(payload, "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d"));
    TraceLoggingWrite(g_rules, "E", TraceLoggingBinary(&_tlg_at, _tlg_at), TraceLoggingCountedString((char *)&_tlg_data, _tlg_at),
                      TraceLoggingUInt8Array(&_tlg_p2, _tlg_at), TraceLoggingUInt8FixedArray(&_tlg_c3, 1), TraceLoggingValue(_tlg_v1),
                      TraceLoggingPackedData(&_tlg_at, _tlg_at));
    CHECK(BYTES(payload, "\1\0\1\1\0\2\1\0\5\6\4\1"));
}

static void null_strings_are_empty(void) {
    const char *narrow = NULL;
    const WCHAR *wide = NULL;
    TraceLoggingWrite(g_rules, "E", TraceLoggingString(narrow), TraceLoggingUtf8String(narrow), TraceLoggingString16(wide),
                      TraceLoggingWideString(wide), TraceLoggingCountedString(narrow, 0), TraceLoggingCountedWideString(wide, 0),
                      TraceLoggingBinary(NULL, 0));
    CHECK(BYTES(payload, "\0\0\0\0\0\0\0\0\0\0\0\0"));
}

static void too_long_values_keep_a_size_that_is_refused(void) {
    static UINT64 many[0x2100];
    TraceLoggingWrite(g_rules, "E", TraceLoggingUInt64Array(many, 0x2100));
    CHECK(hook.payload_size == 2 + 0x10000);
    TraceLoggingWrite(g_rules, "E", TraceLoggingBinary(many, 0x10000 + 5));
    CHECK(hook.payload_size == 2 + 0x10000);
    TraceLoggingWrite(g_rules, "E", TraceLoggingCountedWideString((const WCHAR *)many, 0x8000));
    CHECK(hook.payload_size == 2 + 0x10000);
    TraceLoggingWrite(g_rules, "E", TraceLoggingBinary(many, 0xFFFF));
    CHECK(hook.payload_size == 2 + 0xFFFF);
    TraceLoggingWrite(g_rules, "E", TraceLoggingPackedData(many, 0x100000004u));
    CHECK(hook.payload_size == 0x10000);
    TraceLoggingWrite(g_rules, "E", TraceLoggingPackedField(many, 0x100000004u, TlgInBINARY));
    CHECK(hook.payload_size == 0x10000);
}

#define BINARY TraceLoggingBinary("x", 1, "b")
#define NINE(field) field, field, field, field, field, field, field, field, field

/* A binary field has two blocks; traits and metadata have one each. So 63 fields are the limit. */
static void an_event_has_up_to_128_blocks(void) {
    TraceLoggingWrite(g_rules, "E", NINE(BINARY), NINE(BINARY), NINE(BINARY), NINE(BINARY), NINE(BINARY), NINE(BINARY), NINE(BINARY));
    CHECK(hook.blocks == 128 && hook.payload_size == 63 * 3);
    CHECK(hook.types[0] == EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA && hook.types[1] == EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA);
}

static void packed_metadata_and_data_are_separate(void) {
    TraceLoggingWrite(g_rules, "E", TraceLoggingPackedMetadata(TlgInUINT8 | TlgInVcount, "a"),
                      TraceLoggingPackedMetadataEx(TlgInUINT16, TlgOutHEX, "b", "described"),
                      TraceLoggingPackedStruct(1, "c"), TraceLoggingPackedMetadata(TlgInCOUNTEDBINARY, "d", "described", 0x200000),
                      TraceLoggingPackedStructArray(2, "e"), TraceLoggingPackedMetadata(TlgInINT8, "f"),
                      TraceLoggingPackedMetadataEx(TlgInLONG, TlgOutNULL, "g"), TraceLoggingPackedData("data", 4),
                      TraceLoggingPackedFieldEx("more", 5, TlgInANSISTRING, TlgOutUTF8, "h"));
    CHECK(FIELDS("E", "a\0\x44" "b\0\x86\4c\0\x98\1d\0\x99\x80\1e\0\xd8\2f\0\3g\0\x09h\0\x82\x23"));
    CHECK(BYTES(payload, "datamore\0") && hook.blocks == 4);
    int evaluated = 0;
    TraceLoggingWrite(g_rules, "E", TraceLoggingPackedMetadata(TlgInUINT8, "a"), TraceLoggingPackedData("a", 1),
                      TraceLoggingPackedDataEx("typed", 5, (evaluated++, EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE)),
                      TraceLoggingUInt8(1, "b"));
    CHECK(evaluated == 1 && hook.blocks == 5 && FIELDS("E", "a\0\4b\0\4"));
    CHECK(hook.types[2] == 0 && hook.types[3] == EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE && hook.types[4] == 0);
}

static void values_choose_their_type(void) {
    const GUID guid = {1, 2, 3, {4}};
    const FILETIME file_time = {1, 2};
    const SYSTEMTIME system_time = {1, 2, 3, 4, 5, 6, 7, 8};
    SID sid = {1, 1, {{0, 0, 0, 0, 0, 5}}, {18}};
    const SID *const_sid = &sid;
    void *pointer = NULL;
    const void *const_pointer = NULL;
    char text[] = "t";
    const char *const_text = NULL;
    WCHAR wide[] = u"w";
    const WCHAR *const_wide = wide;
    char character = 'c';
#ifdef __cplusplus
    bool flag = true;
#else
    _Bool flag = 1;
#endif
    const int const_int = 4;
    TraceLoggingWrite(g_rules, "I", TraceLoggingValue((signed char)1, "a"), TraceLoggingValue((unsigned char)1, "b"),
                      TraceLoggingValue((short)1, "c"), TraceLoggingValue((unsigned short)1, "d"), TraceLoggingValue(const_int),
                      TraceLoggingValue(1u, "f"), TraceLoggingValue(1L, "g"), TraceLoggingValue(1UL, "h"), TraceLoggingValue(1LL, "i"),
                      TraceLoggingValue(1ULL, "j"), TraceLoggingValue(1.0f, "k"), TraceLoggingValue(1.0, "l"),
                      TraceLoggingValue(character, "m"), TraceLoggingValue(flag));
    CHECK(FIELDS("I", "a\0\3b\0\4c\0\5d\0\6const_int\0\7f\0\x08g\0\x09h\0\x0ai\0\x09j\0\x0ak\0\x0bl\0\x0cm\0\x84\2" "flag\0\x84\3"));
    CHECK(hook.payload_size == 1 + 1 + 2 + 2 + 4 + 4 + 8 * 4 + 4 + 8 + 1 + 1);
    TraceLoggingWrite(g_rules, "S", TraceLoggingValue(guid, "a"), TraceLoggingValue(file_time, "b"), TraceLoggingValue(system_time, "c"),
                      TraceLoggingValue(&sid, "d"), TraceLoggingValue(const_sid, "e"), TraceLoggingValue(pointer, "f"),
                      TraceLoggingValue(const_pointer, "g", "described", 0x200000));
    CHECK(FIELDS("S", "a\0\x0f" "b\0\x11" "c\0\x12" "d\0\x13" "e\0\x13" "f\0\x15g\0\x95\x80\1"));
    CHECK(hook.payload_size == 16 + 8 + 16 + 12 + 12 + 8 + 8);
    TraceLoggingWrite(g_rules, "T", TraceLoggingValue(text, "a"), TraceLoggingValue(const_text, "b"), TraceLoggingValue("literal"),
                      TraceLoggingValue(wide, "c"), TraceLoggingValue(const_wide, "d"));
    CHECK(FIELDS("T", "a\0\2b\0\2\"literal\"\0\2c\0\1d\0\1") && BYTES(payload, "t\0\0literal\0w\0\0\0w\0\0\0"));
}

static void tags_of_fields_keep_28_bits(void) {
    TraceLoggingWrite(g_rules, "E", TraceLoggingInt8(1, "a", "", 0x0FFFFFFF), TraceLoggingUInt8(1, "b", "", 0), TraceLoggingStruct(1, "s", "", 1),
                      TraceLoggingPid(1, "p", "", 0x4000));
    CHECK(FIELDS("E", "a\0\x83\x80\xff\xff\xff\x7f" "b\0\4s\0\x98\x81\x80\x80\x80\1p\0\x88\x85\x80\1"));
}

static void a_provider_registers_again(void) {
    ULONG registers = hook.registers;
    TraceLoggingUnregister(g_rules);
    TraceLoggingUnregister(g_rules);
    CHECK(TraceLoggingRegister(g_rules) == S_OK && hook.registers == registers + 1);
    TraceLoggingUnregister(g_rules);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "twice") == 0) {
        TraceLoggingRegister(g_rules);
        TraceLoggingRegister(g_rules);
        return 0;
    }
    provider_starts_unregistered();
    registering_sets_the_traits();
    failed_registration_leaves_provider_unregistered();
    callback_runs_after_the_state_changed();
    level_and_keywords_decide_whether_provider_is_enabled();
    CHECK(TraceLoggingRegister(g_rules) == S_OK);
    enable(0, 0, 0);
    arguments_are_evaluated_once_if_a_session_listens();
    activity_ids_are_passed_on();
    attributes_have_defaults_and_rules_for_repeats();
    default_name_is_the_source_text_of_the_value();
    macros_do_not_conflict_with_names_of_a_program();
    null_strings_are_empty();
    too_long_values_keep_a_size_that_is_refused();
    an_event_has_up_to_128_blocks();
    packed_metadata_and_data_are_separate();
    values_choose_their_type();
    tags_of_fields_keep_28_bits();
    a_provider_registers_again();
    puts("all rules hold");
    return 0;
}
