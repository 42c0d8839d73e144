#!/usr/bin/env bash
# TraceLoggingDynamic.h of Microsoft's tracelogging repository: a C++ header for events whose fields are known only at
# run time. A program writes events with it; the recorded events are compared with what it wrote.
set -euo pipefail

command -v c++ > /dev/null || { echo "missing: a C++ compiler (package g++)"; exit 77; }
command -v python3 > /dev/null || { echo "missing: python3"; exit 77; }

cat > writer.cpp <<'END'
#include <windows.h>
#include <TraceLoggingDynamic.h>
#include <vector>

int main() {
    tld::Provider narrow("Contoso.Dynamic");
    tld::Provider wide(L"Contoso.Dynamic.Größe");
    for (int i = 0; i < 100; i++) {
        tld::Event<std::vector<BYTE>> event("Measured", 4, 1);
        event.AddField("number", tld::TypeInt32);
        event.AddValue(i);
        event.AddField("text", tld::TypeUtf8String);
        event.AddString("größer");
        event.AddField("wide", tld::TypeUtf16String);
        event.AddString(L"größer");
        auto inner = event.AddStruct("inner");
        inner.AddField("ratio", tld::TypeDouble);
        event.AddValue(i / 4.0);
        HRESULT result = event.Write(i % 2 ? wide : narrow);
        if (result != S_OK)
            return 1;
    }
    return 0;
}
END
c++ -std=c++17 "-I$SOURCE/etw/cpp/traceloggingdynamic" writer.cpp $(pkg-config --cflags --libs traceweir-wide) -o writer
# The names select the providers by the GUIDs that both sides compute from them.
weir record -p Contoso.Dynamic -p 'Contoso.Dynamic.Größe' -o events.etl -- ./writer
weir dump events.etl --format jsonl --provider 'Contoso.*' > events.jsonl
python3 - <<'END'
import json

with open("events.jsonl") as lines:
    events = [json.loads(line) for line in lines]
assert len(events) == 100, len(events)
for number, event in enumerate(events):
    provider = "Contoso.Dynamic.Größe" if number % 2 else "Contoso.Dynamic"
    expected = {"number": number, "text": "größer", "wide": "größer", "inner": {"ratio": number / 4}}
    found = (event["provider"], event["event"], event["level"], event["keywords"], event["fields"])
    assert found == (provider, "Measured", 4, "0x1", expected), event
print("TraceLoggingDynamic.h: 100 events of two providers with all fields")
END
