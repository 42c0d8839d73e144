# The programs of the pages "Using TdhFormatProperty to Consume Event Data" and "Using
# TdhGetProperty to Consume Event Data" (MicrosoftDocs/win32). Each prints the events of a trace;
# the output is compared with `weir dump`, event by event and field by field.
set -euo pipefail

command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
pages=$SOURCE/desktop-src/ETW

# The samples take an argument that begins with a slash for an option.
mkdir traces
if [ -n "$SAMPLES" ]; then
    for archive in "$SAMPLES"/*.etl.zip; do
        [ ! -e "$archive" ] || python3 - "$archive" <<'END'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as archive:
    for name in archive.namelist():
        if name.endswith(".etl") and "/" not in name:
            archive.extract(name, "traces")
END
    done
    find "$SAMPLES" -maxdepth 1 -name '*.etl' -exec ln -s {} traces/ ';'
fi
for name in compressed crashed; do
    ln -s "$CHECKOUT/fixtures/etl/$name.etl" "traces/traceweir-$name.etl"
done

cat >compare.py <<'END'
"""Compares what a sample printed for a trace with `weir dump --format jsonl`: each event's time,
provider, name, and every field with its value."""
import ipaddress
import json
import re
import sys

sample_path, dump_path = sys.argv[1:]
with open(sample_path, encoding="utf-8", newline="") as file:
    printed = file.read()
with open(dump_path, encoding="utf-8") as file:
    dumped = [json.loads(line) for line in file]
# The samples leave out the header of the file.
dumped = [event for event in dumped if event["event"] != "EventTrace/Header"]

starts = [match.start() for match in re.finditer(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", printed, re.M)]
blocks = [printed[start:end] for start, end in zip(starts, starts[1:] + [len(printed)])]
if len(blocks) != len(dumped):
    sys.exit(f"{sample_path}: {len(blocks)} events, weir dump has {len(dumped)}")

GUID = re.compile(r"\{?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\}?$")
# weir leaves out padding, and counts of arrays that it prints.
LEFT_OUT = re.compile(r"Reserved|Padding|^Pad\d*$|Count$|Length$|Size$")
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d+)Z?$")


def format_address(data):
    """Writes a SOCKADDR_IN or SOCKADDR_IN6 of Windows as text."""
    port = int.from_bytes(data[2:4], "big")
    if data[0] == 2:
        return f"{ipaddress.ip_address(data[4:8])}:{port}"
    return f"[{ipaddress.ip_address(data[8:24])}]:{port}"


def same_text(text, value):
    """Compares a printed value with a value of JSON that is neither an array nor a structure."""
    if isinstance(value, bool):
        return text in (("true", "1") if value else ("false", "0"))
    if isinstance(value, (int, float)):
        if re.match(r"0x[0-9a-fA-F]+$", text):
            return int(text, 16) == value
        if re.match(r"-?\d+$", text):
            return int(text) == value
        try:
            return abs(float(text) - value) <= 1e-5 * max(1, abs(value))
        except ValueError:
            return False
    if value is None:
        return text == ""
    if text == value:
        return True
    times = TIME.match(text), TIME.match(value)
    if all(times):
        # One sample prints milliseconds, the other 100 ns.
        (day, part), (dumped_day, dumped_part) = times[0].groups(), times[1].groups()
        return day == dumped_day and dumped_part.startswith(part[:7])
    guids = GUID.match(text), GUID.match(value)
    if all(guids):
        return guids[0][1].lower() == guids[1][1].lower()
    if re.match(r"(0x)?[0-9a-fA-F]+$", text) and re.match(r"(0x)?[0-9a-fA-F]+$", value):
        return text.lower().removeprefix("0x") == value.lower().removeprefix("0x")
    # Texts of a manifest's maps end with a space, which one sample prints, and it prints "| " between
    # two. The other prints a number if a bit of it has no name, which weir appends to the names.
    if re.sub(r" ?\| ", "|", text).rstrip(" ") == value:
        return True
    # A socket address of Windows, which one sample prints as bytes.
    if re.match(r"0x(0200|1700)[0-9a-f]{28,}$", text) and format_address(bytes.fromhex(text[2:])) == value:
        return True
    # Compressed text: TdhGetProperty returns its size and the compressed bytes.
    if re.match(r"0x[0-9a-f]{8,}$", text) and not value.startswith("0x"):
        size = int.from_bytes(bytes.fromhex(text[2:10]), "little")
        return size in (2 * len(value), 2 * len(value) + 2)
    if re.match(r"\d+$", text) and re.search(r"(^|\|)0x[0-9a-fA-F]+$", value):
        return int(text) & int(value.rsplit("|", 1)[-1], 16) == int(value.rsplit("|", 1)[-1], 16)
    return False


def split_fields(text, indent, names=None):
    """Splits the lines of an indentation into names and values. A value may have several lines: with
    "names", a line begins a field only if its name is one of these or one that weir leaves out."""
    fields = []
    for line in text.split("\n"):
        match = re.match(r" {%d}([^ :][^:]*):(?: (.*))?$" % indent, line, re.S)
        if match and (names is None or match[1] in names or LEFT_OUT.search(match[1])):
            fields.append([match[1], match[2] if match[2] is not None else ""])
        elif fields:
            fields[-1][1] += "\n" + line
    return fields


fields_compared = 0


def compare_value(name, text, value, indent):
    """Returns whether a printed value, with the lines of its elements or members, is a value."""
    global fields_compared
    array = re.match(r"Array\[(\d+)\](?:\n(.*))?$", text, re.S)
    if array and isinstance(value, list) and value and isinstance(value[0], dict):
        # The members of an element have the indentation of the element.
        lines = split_fields(array[2] or "", indent + 2)
        for index, element in enumerate(value):
            if lines[:1] != [[f"{name}[{index}]", ""]]:
                return False
            if not compare_fields(lines[1 : len(element) + 1], element, indent + 2):
                return False
            lines = lines[len(element) + 1 :]
        return not lines and int(array[1]) == len(value)
    if array and isinstance(value, (list, str)):
        elements = split_fields(array[2] or "", indent + 2)
        texts = [element[1] for element in elements]
        if isinstance(value, str):
            # weir joins an array of characters. A line end is a value of more than one line.
            return int(array[1]) == len(value.encode("utf-16-le")) // 2 and "".join(texts) == value
        if [element[0] for element in elements] != [f"{name}[{index}]" for index in range(len(value))]:
            return False
        return all(compare_value(name, text, element, indent + 2) for text, element in zip(texts, value))
    if isinstance(value, dict):
        return compare_fields(split_fields(text, indent + 2), value, indent + 2)
    fields_compared += 1
    return same_text(text, value)


def compare_fields(fields, values, indent):
    fields = list(fields)
    for name, value in values.items():
        while fields and fields[0][0] != name:
            left_out = fields.pop(0)
            if not LEFT_OUT.search(left_out[0]):
                print(f"weir dump has no field {left_out[0]}", file=sys.stderr)
                return False
        if not fields:
            print(f"field {name} is missing", file=sys.stderr)
            return False
        text = fields.pop(0)[1]
        if not compare_value(name, text, value, indent):
            print(f"field {name}: {text!r}, weir dump has {value!r}", file=sys.stderr)
            return False
    for name, text in fields:
        # weir leaves out a last field for which the event has no data. TdhFormatProperty makes it empty, and
        # TdhGetProperty returns ERROR_NOT_FOUND.
        if text not in ("", "TdhGetProperty error 1168") and not LEFT_OUT.search(name):
            print(f"weir dump has no field {name}", file=sys.stderr)
            return False
    return True


wrong = 0
for number, (block, event) in enumerate(zip(blocks, dumped)):
    head, _, body = block[:-1].partition("\n")
    time, _, names = head.partition(" ")
    provider = {"Windows Kernel": "MSNT_SystemTrace"}.get(event["provider"], event["provider"])
    expected_names = {event["event"], event["event"].split("/")[0], event["event"].split("/")[-1]}
    if event["opcode"] == 0:
        # The samples print the opcode of a classic event; weir leaves out the opcode "Info".
        expected_names.add("Info")
    is_right = event["time"].startswith(time[:-1])
    if "Opcode(" in event["event"]:
        # An event without a published layout: weir knows one, TDH reports only the provider.
        is_right &= names == "{" + event["guid"] + "}" and not body
    else:
        # An event of .NET brings the manifest with the name of its provider, which TDH knows only
        # after this event.
        providers = [provider] + (["{" + event["guid"] + "}"] if event["event"] == "ManifestData" else [])
        is_right &= names in {f"{provider} {name}" for provider in providers for name in expected_names}
        has_lines = any(isinstance(value, str) and "\n" in value for value in event["fields"].values())
        fields = split_fields(body, 2, event["fields"] if has_lines else None)
        is_right = is_right and compare_fields(fields, event["fields"], 2)
    if not is_right:
        wrong += 1
        if wrong <= 5:
            print(f"event {number}:\n{block}weir dump: {json.dumps(event)}", file=sys.stderr)
if wrong:
    sys.exit(f"{sample_path}: {wrong} of {len(blocks)} events differ")
print(len(blocks), fields_compared)
END

total_traces=0 total_events=0 total_fields=0
for sample in tdhformatproperty tdhgetproperty; do
    # The page has one block of code.
    awk '/^```C\+\+/ { copies = 1; next } /^```/ { copies = 0 } copies' \
        "$pages/using-$sample-to-consume-event-data.md" >"$sample.cpp"
    c++ "$sample.cpp" $(pkg-config --cflags --libs traceweir-wide) -o "$sample"
    for trace in traces/*.etl; do
        name=$(basename "$trace" .etl)
        if [ ! -e "$name.jsonl" ]; then
            # Status 3 means that the file is unfinished, 4 that its session lost events.
            status=0
            weir dump "$trace" --format jsonl >"$name.jsonl" 2>"$name.warnings" || status=$?
            case $status in 0 | 3 | 4) ;; *) cat "$name.warnings"; exit 1 ;; esac
        fi
        "./$sample" "$trace" >"$name.$sample"
        counts=$(python3 compare.py "$name.$sample" "$name.jsonl")
        read -r events fields <<<"$counts"
        echo "$sample $name: $events events, $fields fields"
        total_traces=$((total_traces + 1))
        total_events=$((total_events + events))
        total_fields=$((total_fields + fields))
    done
done
echo "2 programs on $((total_traces / 2)) traces: $total_events events and $total_fields fields as in weir dump"
