# The samples for event tracing of microsoft/Windows-classic-samples: tracelog, SimpleProvider,
# AdvancedProvider, EtwConsumer, WppConsumer and EnumerateProviders. tracelog records the providers,
# and the output of the consumers is compared with `weir dump`.
set -euo pipefail

command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
eventing=$SOURCE/Samples/Win7Samples/winbase/Eventing
options="-DUNICODE -D_UNICODE $(pkg-config --cflags traceweir-wide)"
libraries=$(pkg-config --libs traceweir-wide)

# Build. The C++ sources assign L"text" to PWSTR and annotate parameters with __in.
cpp_options="$options -DTRACEWEIR_SAL1 -fpermissive -w"
cc $options "$eventing/Controller/tracelog.c" $libraries -o tracelog
c++ $cpp_options "$eventing"/EtwConsumer/*.cpp $libraries -o EtwConsumer
c++ $cpp_options "$eventing/WppConsumer/WppDumper.cpp" $libraries -o WppConsumer
# Of a later version of Windows, this sample calls one function more.
c++ $cpp_options -DNTDDI_VERSION=0x0A000009 "$SOURCE/Samples/EventTracingEnumerateProviders/EnumerateProviders.cpp" \
    $libraries -o EnumerateProviders
for name in Simple Advanced; do
    folder=$eventing/Provider/$name/CPP
    weir mc "$folder/${name}Provider.man" --c -z "${name}ProviderEvents"
    cc -c "${name}ProviderEvents_etw.c"
    c++ $cpp_options -I. "$folder/${name}Provider.cpp" "${name}ProviderEvents_etw.o" $libraries -o "${name}Provider"
done

# tracelog starts a session, enables a second provider, lists, queries and stops.
simple=21a9201e-73b0-43fe-9821-7e159a59bc6f
advanced=21a9201e-73b0-43fe-9821-7e159a59bc70
session=TraceweirSamples$$
trap 'weir stop "$session" >/dev/null 2>&1 || true' EXIT
./tracelog -start "$session" -f samples.etl -guid "#$simple" -max 30 >start.txt
./tracelog -enable "$session" -guid "#$advanced" >enable.txt
./SimpleProvider >simple.txt
./AdvancedProvider >advanced.txt
./tracelog -list >list.txt
./tracelog -query "$session" >query.txt
./tracelog -update "$session" -max 40 >update.txt
./tracelog -stop "$session" >stop.txt
expect() {
    grep -q "$2" "$1" || { echo "$1 lacks: $2"; cat "$1"; exit 1; }
}
expect start.txt '^Logger Started'
for output in start.txt enable.txt query.txt update.txt stop.txt; do
    expect "$output" '^Operation Status:       0L$'
    expect "$output" "^Logger Name:            $session\$"
done
expect list.txt "^Logger Name:            $session\$"
expect list.txt "^Log Filename:           $PWD/samples.etl\$"
expect query.txt '^Maximum Buffers:        30$'
expect update.txt '^Maximum Buffers:        40$'
expect stop.txt '^Events Lost:            0$'
if ./tracelog -query "$session" >gone.txt; then
    echo "$session is still running"
    exit 1
fi

# Each line "Using Macro: EventWrite…" of a provider stands for one event.
written=$(cat simple.txt advanced.txt | grep -c '^Using Macro: EventWrite')
weir dump samples.etl --format jsonl >samples.jsonl
./EtwConsumer samples.etl -xml >samples.xml
./EtwConsumer samples.etl >samples.messages

cat >compare.py <<'END'
"""Compares the output of EtwConsumer with `weir dump --format jsonl`."""
import json
import re
import sys

written = int(sys.argv[1])
events = [json.loads(line) for line in open("samples.jsonl", encoding="utf-8")]
events = [event for event in events if event["event"] != "EventTrace/Header"]
own = [event for event in events if event["guid"].startswith("21a9201e")]
if len(own) != written:
    sys.exit(f"{len(own)} of {written} events were recorded")
for event in events:
    if "undecoded" in event:
        sys.exit(f"weir dump does not decode {event}")
text = open("samples.xml", encoding="utf-8", newline="").read()
blocks = re.findall(r"<Event xmlns=.*?</Event>\nEventMessage: (?:.*?)\n(?=\r\n|\n)", text.replace("\r\n", "\n"), re.S)
if len(blocks) != len(events):
    sys.exit(f"EtwConsumer printed {len(blocks)} of {len(events)} events")


def matches(text, value):
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, (int, float)):
        # Codes are followed by their meaning.
        number = text.split(":")[0]
        return float(int(number, 16) if number.startswith("0x") else float(number)) in (value, value % 2**32)
    time = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}$", text)
    if time:
        return text + "Z" == value
    plain = text.lower().strip("{}")
    return text == value or plain == value or plain.removeprefix("0x") == value.removeprefix("0x")


fields = 0
for block, event in zip(blocks, events):
    def expect(what, is_right):
        if not is_right:
            sys.exit(f"{what} differs:\n{block}\nweir dump: {json.dumps(event)}")

    def find(pattern):
        match = re.search(pattern, block)
        expect(pattern, match is not None)
        return match[1]

    expect("provider", find(r'Guid="\{([0-9a-f-]+)') == event["guid"] or event["guid"].startswith("68fdd900"))
    for element, key in ("EventID", "id"), ("Version", "version"), ("Level", "level"), ("Task", "task"), ("Opcode", "opcode"):
        expect(key, int(find(f"<{element}>([0-9]+)<")) == event[key])
    expect("keywords", int(find("<Keywords>0x([0-9A-F]+)<"), 16) == int(event["keywords"], 16))
    expect("time", find(r'SystemTime="([^"]+)00Z"') + "Z" == event["time"])
    for attribute, key in ("ProcessID", "pid"), ("ThreadID", "tid"), ("ProcessorID", "cpu"):
        expect(key, int(find(f'{attribute}="([0-9]+)"')) == event[key] % 2**32)
    data = re.findall(r'<Data Name="([^"]*)">(.*?)</Data>', block, re.S)
    expected = []
    for name, value in event["fields"].items():
        if isinstance(value, list) and len(value) != 1:
            expected += [(f"{name}[{index}]", element) for index, element in enumerate(value)]
        else:
            expected.append((name, value[0] if isinstance(value, list) else value))
    expect("names", [name for name, _ in data] == [name for name, _ in expected])
    for (name, printed), (_, value) in zip(data, expected):
        expect(name, matches(printed, value))
        fields += 1
    if "message" in event:
        # The sample inserts only the first element of an array.
        message = re.sub(r"\[([^\],]*).*\]$", r"\1", event["message"])
        expect("message", f"EventMessage: {message}\n" in block)

messages = open("samples.messages", encoding="utf-8", newline="").read()
for message in (
    "Event 101 has been fired and logged an integer value: 3",
    "Event 104 has been fired and logged a unicode string value: Sample String.",
    "Event Message ID: event.400 - Event data: GOOD",
    "Event Message ID: event.129 - Event data: S-1-1-0",
):
    if f"EventMessage: {message}\n" not in messages:
        sys.exit(f"EtwConsumer did not print {message}")
if f"Events Processed  : {len(events)}." not in messages:
    sys.exit("EtwConsumer counted other events")
print(len(events), fields)
END
counts=$(python3 compare.py "$written")
read -r events fields <<<"$counts"

# WppConsumer prints the messages of a trace with the formats of a TMF file.
trace=$CHECKOUT/fixtures/etl/wpp.etl
formats=$CHECKOUT/fixtures/tmf/sample.tmf
./WppConsumer "$trace" "$formats" >wpp.txt
weir dump "$trace" --tmf "$formats" --format jsonl >wpp.jsonl 2>wpp.warnings
cat >compare_wpp.py <<'END'
"""Compares the output of WppConsumer with `weir dump --format jsonl`."""
import json
import re
import sys

events = [json.loads(line) for line in open("wpp.jsonl", encoding="utf-8")]
events = [event for event in events if event["event"] != "EventTrace/Header"]
text = open("wpp.txt", encoding="utf-8", newline="").read()
blocks = re.split(r"\n\nSequenceNumber: ", text.split("\n\nSummary:")[0])[1:]
if len(blocks) != len(events) or not text.endswith(f"Events Processed  : {len(events)}."):
    sys.exit(f"WppConsumer printed {len(blocks)} of {len(events)} messages")
for block, event in zip(blocks, events):
    printed = dict(re.findall(r"^([A-Z]\w+): (.*?)$(?=\n[A-Z]\w+: |\Z)", block, re.M | re.S))
    time = event["time"]
    expected = {
        "Message": event.get("message", ""),
        "TraceGuid": "{" + event["guid"].upper() + "}",
        "FileLine": event["event"] or "",
        "GuidName": event["provider"] or "",
        "SystemTime": time[:23] + "Z",
        "RawSystemTime": time[:-1] + "00Z",
    }
    if "undecoded" in event:
        # Without a format, only the header of the message is known.
        expected = {"Message": ""}
    for name, value in expected.items():
        if printed.get(name) != value:
            sys.exit(f"{name} is {printed.get(name)!r}:\n{block}\nweir dump: {json.dumps(event)}")
print(len(events))
END
messages=$(python3 compare_wpp.py)

# EnumerateProviders lists the providers that have a schema: the built-in ones, and those of the
# manifests that a variable names. The second function that it calls lists only manifests, too.
./EnumerateProviders >builtin.txt
mkdir manifests
cp "$eventing"/Provider/*/CPP/*.man manifests/
TRACEWEIR_MANIFESTS=$PWD/manifests ./EnumerateProviders >all.txt
for name in Simple:$simple Advanced:$advanced; do
    expect all.txt "^Provider name: Microsoft-Windows-SDKSample-${name%:*}Provider\$"
    expect all.txt "^Provider GUID: {$(tr a-f A-F <<<"${name#*:}")}\$"
done
listed=$(grep -c '^Provider name: ' all.txt)
known=$(grep -c '^Provider name: ' builtin.txt)
if [ "$listed" != $((known + 4)) ] || [ "$(grep -c 'output:$' all.txt)" != 2 ]; then
    echo "EnumerateProviders printed $listed and $known providers"
    exit 1
fi
echo "tracelog recorded $written events; EtwConsumer: $events events and $fields fields, WppConsumer: $messages messages as in weir dump; EnumerateProviders: $listed providers"
