/* Activities in C++: the events of one operation carry one id, from start to stop; the start event names the enclosing activity.
 *
 *   cargo build -p traceweir-ffi
 *   c++ -std=c++17 examples/cpp/activities.cpp -Icrates/ffi/include -Ltarget/debug -ltraceweir -Wl,-rpath,$PWD/target/debug -o activities
 *   weir record -p MyCompany.Server -o server.etl -- ./activities
 *   weir dump server.etl
 */
#include <TraceLoggingActivity.h>
#include <string>

/* The GUID is the hash of the name, so that sessions can enable the provider by name. */
TRACELOGGING_DEFINE_PROVIDER(g_server, "MyCompany.Server",
    (0xb942d2d2, 0x0ee6, 0x53a2, 0xa6, 0x4f, 0x0d, 0xab, 0x4f, 0xe7, 0xe9, 0x90));

static std::u16string page(int number) { return u"/page/" + std::u16string(1, static_cast<char16_t>(u'0' + number)); }

/* All events of the thread belong to the activity of this function until it returns. */
static void look_up(int number) {
    TraceLoggingFunction(g_server, TraceLoggingValue(number));
    TraceLoggingWrite(g_server, "Found", TraceLoggingWideString(page(number).c_str(), "path"), TraceLoggingBoolean(number > 1, "cached"));
}

static void serve(int number) {
    TraceLoggingThreadActivity<g_server, 0x1, WINEVENT_LEVEL_INFO> request;
    TraceLoggingWriteStart(request, "Request", TraceLoggingValue(number));
    look_up(number);
    if (number == 2) {
        return; /* The destructor writes the stop event. */
    }
    TraceLoggingWriteStop(request, "Request", TraceLoggingHResult(S_OK, "result"));
}

int main() {
    if (FAILED(TraceLoggingRegister(g_server))) {
        return 1;
    }
    serve(1);
    serve(2);
    TraceLoggingUnregister(g_server);
    return 0;
}
