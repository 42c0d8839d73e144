/* Activities, and C++ constructs that are difficult for macros: templates, inline functions,
 * lambdas, temporaries. */
#include "hooks.h"
#include <TraceLoggingActivity.h>
#include <string>
#include <utility>
#include <vector>

TRACELOGGING_DEFINE_PROVIDER(g_p, "P", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));

/* Replaces the function of the runtime, for one thread. */
static GUID s_thread_activity;
static UINT32 s_created;
extern "C" ULONG EventActivityIdControl(ULONG code, LPGUID id) {
    GUID previous = s_thread_activity;
    switch (code) {
    case EVENT_ACTIVITY_CTRL_CREATE_ID:
        *id = GUID{++s_created, 0, 0, {}};
        return 0;
    case EVENT_ACTIVITY_CTRL_SET_ID:
        s_thread_activity = *id;
        return 0;
    case EVENT_ACTIVITY_CTRL_GET_SET_ID:
        s_thread_activity = *id;
        *id = previous;
        return 0;
    default:
        abort();
    }
}

/* The metadata begins with its size and one byte of tags. */
static std::string event_name() { return reinterpret_cast<const char *>(hook.metadata + 3); }
static std::string field_name() { return reinterpret_cast<const char *>(hook.metadata + 3 + event_name().size() + 1); }

static void enable(UCHAR level, ULONGLONG any) { hook_enable(EVENT_CONTROL_CODE_ENABLE_PROVIDER, level, any, 0); }
static void disable() { hook_enable(EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0); }

static void activity_has_an_id_and_does_not_change_the_thread() {
    s_thread_activity = GUID{99, 0, 0, {}};
    TraceLoggingActivity<g_p, 0x10, 4> a;
    CHECK(a.Provider() == g_p && *a.Id() == GUID{});
    TraceLoggingWriteStart(a, "Work", TraceLoggingInt32(7, "n"));
    CHECK(event_name() == "Work" && hook.event.Opcode == 1 && hook.event.Level == 4 && hook.event.Keyword == 0x10);
    CHECK(*a.Id() != GUID{} && hook.activity == *a.Id() && !hook.has_related && hook.payload_size == 4);
    TraceLoggingWriteTagged(a, "Step", TraceLoggingKeyword(1), TraceLoggingLevel(2));
    CHECK(event_name() == "Step" && hook.event.Opcode == 0 && hook.event.Level == 2 && hook.event.Keyword == 0x11);
    CHECK(hook.has_activity && hook.activity == *a.Id());
    TraceLoggingWriteStop(a, "Work", TraceLoggingHResult(0, "hr"));
    CHECK(event_name() == "Work" && field_name() == "hr" && hook.event.Opcode == 2 && hook.activity == *a.Id());
    CHECK((s_thread_activity == GUID{99, 0, 0, {}}));
}

static void a_started_activity_stops_with_its_scope() {
    ULONG writes = hook.writes;
    GUID id;
    {
        TraceLoggingActivity<g_p, 0x10, 3> a;
        TraceLoggingWriteStart(a, "Scope", TraceLoggingInt32(7, "n"), TraceLoggingEventTag(1));
        id = *a.Id();
    }
    CHECK(hook.writes == writes + 2 && hook.event.Opcode == 2 && hook.event.Level == 3 && hook.event.Keyword == 0x10);
    CHECK(event_name() == "Scope" && hook.metadata_size == 9 && hook.payload_size == 0 && hook.activity == id);
    { TraceLoggingActivity<g_p> never_started; }
    {
        TraceLoggingActivity<g_p> stopped;
        TraceLoggingWriteStart(stopped, "S");
        TraceLoggingWriteStop(stopped, "S");
    }
    CHECK(hook.writes == writes + 4);
}

static void related_activities_are_written_at_the_start() {
    const GUID id{42, 0, 0, {}};
    TraceLoggingActivity<g_p> a, b, c;
    a.SetRelatedActivityId(id);
    TraceLoggingWriteStart(a, "A");
    CHECK(hook.has_related && hook.related == id);
    b.SetRelatedActivityId(&id);
    TraceLoggingWriteStart(b, "B");
    CHECK(hook.has_related && hook.related == id);
    c.SetRelatedActivity(a);
    TraceLoggingWriteStart(c, "C");
    CHECK(hook.has_related && hook.related == *a.Id());
}

static void activity_can_be_moved() {
    ULONG writes = hook.writes;
    {
        TraceLoggingActivity<g_p> a;
        TraceLoggingWriteStart(a, "Moved");
        GUID id = *a.Id();
        TraceLoggingActivity<g_p> b(std::move(a));
        CHECK(*b.Id() == id && *a.Id() == GUID{});
    }
    CHECK(hook.writes == writes + 2 && event_name() == "Moved" && hook.event.Opcode == 2);
}

static void thread_activity_sets_the_id_of_the_thread() {
    const GUID before{7, 7, 7, {}};
    s_thread_activity = before;
    {
        TraceLoggingThreadActivity<g_p> outer;
        TraceLoggingWriteStart(outer, "Outer");
        CHECK(s_thread_activity == *outer.Id() && hook.has_related && hook.related == before);
        {
            TraceLoggingThreadActivity<g_p> inner;
            TraceLoggingWriteStart(inner, "Inner");
            CHECK(s_thread_activity == *inner.Id() && hook.related == *outer.Id());
        }
        CHECK(event_name() == "Inner" && hook.event.Opcode == 2 && s_thread_activity == *outer.Id());
        TraceLoggingWriteStop(outer, "Outer");
        CHECK(s_thread_activity == before && hook.activity == *outer.Id());
    }
    CHECK(s_thread_activity == before);
}

static void setter_sets_the_id_of_the_thread() {
    const GUID before = s_thread_activity, id{3, 2, 1, {}};
    {
        TraceLoggingThreadActivityIdSetter by_reference(id);
        CHECK(s_thread_activity == id);
        const GUID other_id{4, 2, 1, {}};
        TraceLoggingThreadActivityIdSetter by_pointer(&other_id);
        CHECK(s_thread_activity == other_id);
    }
    CHECK(s_thread_activity == before);
}

static void function_activity_has_its_name() {
    const GUID before = s_thread_activity;
    TraceLoggingFunction(g_p, TraceLoggingInt32(5, "n"));
    CHECK(event_name() == "function_activity_has_its_name" && field_name() == "n" && hook.event.Opcode == 1 && s_thread_activity != before);
}

static void nothing_is_written_without_a_session() {
    disable();
    const GUID before = s_thread_activity;
    UINT32 created = s_created;
    ULONG writes = hook.writes;
    {
        TraceLoggingThreadActivity<g_p> a;
        TraceLoggingWriteStart(a, "A");
        CHECK(s_thread_activity == before && *a.Id() == GUID{});
        enable(0, 0);
    }
    CHECK(s_created == created && hook.writes == writes && s_thread_activity == before);
    enable(4, 0);
    TraceLoggingActivity<g_p, 0, 5> verbose;
    TraceLoggingWriteStart(verbose, "V");
    CHECK(*verbose.Id() == GUID{} && hook.writes == writes);
    enable(0, 0);
}

template <class T>
static void from_a_template(const T &value, char in) {
    TraceLoggingWrite(g_p, "Template", TraceLoggingValue(value, "v"));
    CHECK(hook.metadata[hook.metadata_size - 1] == static_cast<UINT8>(in));
    TraceLoggingFunction(g_p, TraceLoggingValue(value, "v"));
    CHECK(event_name() == "from_a_template");
}

inline void from_an_inline_function(int value) {
    TraceLoggingWrite(g_p, "Inline", TraceLoggingInt32(value));
    TraceLoggingFunction(g_p);
    CHECK(event_name() == "from_an_inline_function");
}

struct Object {
    std::vector<int> numbers{1, 2, 3};
    template <int n>
    void method() const {
        TraceLoggingWrite(g_p, "Method", TraceLoggingInt32(n, "n"),
                          TraceLoggingInt32Array(numbers.data(), numbers.size(), "numbers"));
        CHECK(hook.payload_size == 4 + 2 + 12);
    }
};

static void check_difficult_constructs() {
    from_a_template(1, TlgInINT32);
    from_a_template(2.0, TlgInDOUBLE);
    from_a_template("text", TlgInANSISTRING);
    from_a_template(std::string("x").c_str(), TlgInANSISTRING);
    from_an_inline_function(3);
    Object().method<1>();
    Object().method<2>();
    auto lambda = [](auto value) { TraceLoggingWrite(g_p, "Lambda", TraceLoggingValue(value)); };
    lambda(1);
    lambda(u"wide");
    CHECK(event_name() == "Lambda" && field_name() == "value" && hook.payload_size == 10);
    bool flag = true;
    TraceLoggingWrite(g_p, "Bool", TraceLoggingValue(flag), TraceLoggingValue(u'x', "c"));
    CHECK(hook.payload_size == 3 && memcmp(hook.metadata + 8, "flag\0\x84\3c\0\x86\2", 11) == 0);
    /* The string lives until the event is written. */
    TraceLoggingWrite(g_p, "Temporary", TraceLoggingString((std::string(100, 'x') + "y").c_str(), "s"),
                      TraceLoggingWideString((std::u16string(100, u'x') + u"y").c_str(), "w"));
    CHECK(hook.payload_size == 102 + 204 && hook.payload[0] == 'x' && hook.payload[100] == 'y');
    TraceLoggingWrite(g_p, "Null", TraceLoggingString(nullptr, "a"), TraceLoggingWideString(nullptr, "b"),
                      TraceLoggingPointer(nullptr, "c"), TraceLoggingCodePointer(&check_difficult_constructs, "d"));
    CHECK(hook.payload_size == 1 + 2 + 8 + 8);
}

int main(int argc, char **argv) {
    hook.enabled_at_register = TRUE;
    CHECK(TraceLoggingRegister(g_p) == S_OK);
    /* With an argument, the program makes a call in the wrong order: an assertion must fail. */
    if (argc > 1) {
        TraceLoggingActivity<g_p> a;
        std::string wrong_call = argv[1];
        TraceLoggingWriteStart(a, "A");
        if (wrong_call == "start") {
            TraceLoggingWriteStart(a, "A");
        } else if (wrong_call == "related") {
            a.SetRelatedActivityId(GUID{});
        } else {
            TraceLoggingWriteStop(a, "A");
            TraceLoggingWriteStop(a, "A");
        }
        return 0;
    }
    activity_has_an_id_and_does_not_change_the_thread();
    a_started_activity_stops_with_its_scope();
    related_activities_are_written_at_the_start();
    activity_can_be_moved();
    thread_activity_sets_the_id_of_the_thread();
    setter_sets_the_id_of_the_thread();
    const GUID before = s_thread_activity;
    function_activity_has_its_name();
    CHECK(event_name() == "function_activity_has_its_name" && hook.event.Opcode == 2 && s_thread_activity == before);
    nothing_is_written_without_a_session();
    check_difficult_constructs();
    TraceLoggingUnregister(g_p);
    puts("all rules hold");
    return 0;
}
