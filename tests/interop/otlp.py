"""Parses logs and spans with the message types of OpenTelemetry, and compares them with the events.

    otlp.py FOLDER NAME

The folder holds NAME.jsonl (weir dump), NAME.otlp.jsonl and NAME.otlp-spans.jsonl.
"""

import base64
import collections
import json
import math
import pathlib
import struct
import sys
import uuid
from datetime import datetime, timezone

from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

KERNEL = "Windows Kernel"
# The class of the events that describe a file, and its names of the two that do not.
FILE_CLASS = "68fdd900-4a3e-11d1-84f4-0000f80464e3"
CAPTURED = ("EventTrace/RDComplete", "EventTrace/EndExtension")
# Severity by level; higher levels have 1.
SEVERITIES = {0: 9, 1: 21, 2: 17, 3: 13, 4: 9, 5: 5}
START, STOP = 1, 2
# Limits of the conversion: longer bodies are cut, further attributes are left out.
MAX_BODY_BYTES = 64 << 10
MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES = 1 << 20, 4096


def fail(*reason):
    sys.exit(f"otlp: different: {' '.join(map(str, reason))}")


def read_lines(path):
    """Returns the lines of a file. Texts may hold other characters that Python takes for line ends."""
    return [line for line in path.read_text().split("\n") if line]


def parse(path, message_type):
    """Returns the messages in the lines of a file."""
    return [json_format.Parse(line, message_type()) for line in read_lines(path)]


def to_hex(field):
    """Undoes the Base64 that protobuf assumes: OTLP has ids in hexadecimal."""
    return base64.b64encode(field).decode()


def hash_activity(activity):
    """Returns the span id of an activity: the FNV-1a hash of its bytes."""
    number = 0xCBF29CE484222325
    for byte in uuid.UUID(activity).bytes_le:
        number = (number ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{max(number, 1):016x}"


def parse_time(text):
    """Returns nanoseconds since 1970."""
    date, fraction = text.removesuffix("Z").split(".")
    seconds = datetime.strptime(date, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    return int(seconds) * 10**9 + int(fraction) * 100


def check_keys(attributes):
    """Checks that no key occurs twice."""
    keys = [attribute.key for attribute in attributes]
    if len(keys) != len(set(keys)):
        fail("a key occurs twice:", keys)


def to_python(value):
    """Returns the value of an attribute."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [to_python(element) for element in value.array_value.values]
    if kind == "kvlist_value":
        check_keys(value.kvlist_value.values)
        return [to_python(member.value) for member in value.kvlist_value.values]
    return getattr(value, kind) if kind else None


def is_equal(value, expected):
    """Returns whether JSON shows this value."""
    if isinstance(expected, dict):
        expected = list(expected.values())
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(is_equal, value, expected))
    if isinstance(expected, bool) or expected is None:
        return value is expected
    if isinstance(value, bytes):
        return value.hex() == expected
    if isinstance(value, float):
        if isinstance(expected, str):
            expected = float(expected)
        if math.isnan(value) or math.isnan(expected):
            return math.isnan(value) and math.isnan(expected)
        # JSON has the shortest text of a 32-bit or of a 64-bit number.
        is_32_bit = abs(expected) < 3.5e38 and struct.unpack("<f", struct.pack("<f", expected))[0] == value
        return value == expected or is_32_bit
    # Large integers are texts in JSON, and unsigned ones in OTLP.
    return str(value) == str(expected)


def describes_file(event):
    """Returns whether an event describes the file: no log record stands for it."""
    if event["guid"] == FILE_CLASS and event["event"] not in CAPTURED:
        return True
    is_rundown = event["event"] == "Process/DCStart" and event["provider"] == KERNEL
    return is_rundown and event["tid"] == -1 and event["pid"] != -1


def key_of_event(event):
    """Returns what tells events apart, apart from their fields."""
    ids = event.get("attributed", event)
    provider = event["provider"] or event["guid"]
    # Some providers have no name.
    provider = event["guid"] if provider == "{" + event["guid"] + "}" else provider
    name = event["event"] or ""
    header = [event[key] for key in ("cpu", "id", "version", "opcode", "task")]
    header.append(int(event["keywords"], 16))
    severity = SEVERITIES.get(event["level"], 1)
    return parse_time(event["time"]) // 100, provider, ids["pid"], ids["tid"], name, severity, *header


def key_of_record(record, scope, pid):
    """Returns the key of a record, and its attributes after those of the header."""
    attributes = [(attribute.key, to_python(attribute.value)) for attribute in record.attributes]

    def take(key, default=None):
        if attributes and attributes[0][0] == key:
            return attributes.pop(0)[1]
        if default is None:
            fail(f"no {key} in", record)
        return default

    tid = take("thread.id", -1)
    header = [take(key) for key in ("cpu.logical_number", "etw.id", "etw.version", "etw.opcode", "etw.task")]
    header.append(int(take("etw.keyword", "0x0"), 16))
    key = (record.time_unix_nano // 100, scope, pid, tid, record.event_name, record.severity_number, *header)
    return key, attributes


def difference(record, attributes, event):
    """Returns how a record differs from an event in its texts, ids and fields, or None."""
    message = event.get("message", "").strip()
    body = message or event["event"] or ""
    # A long text is cut, perhaps within a character.
    cut = body.encode()[:MAX_BODY_BYTES].decode(errors="replace").strip()
    if record.body.string_value != (body if len(body.encode()) <= MAX_BODY_BYTES else cut):
        return f"body {record.body.string_value!r}, not {body!r}"
    activity = event.get("activity")
    span = hash_activity(activity) if activity else ""
    if to_hex(record.span_id) != span:
        return f"span id {to_hex(record.span_id)}, not {span}"
    if len(to_hex(record.trace_id)) != (32 if activity else 0):
        return f"trace id {to_hex(record.trace_id)}"
    if "undecoded" in event:
        # The reason comes last, after the fields that could be decoded or the payload.
        payloads = [value.hex() for key, value in attributes if key == "etw.payload"]
        has_payload = not payloads or event.get("raw", "").startswith(payloads[0])
        return None if attributes and attributes[-1][0] == "etw.undecoded" and has_payload else "undecoded"
    fields = list(event["fields"].items())
    if record.dropped_attributes_count > 0:
        # The attributes of the header count too.
        is_large = len(record.attributes) >= MAX_ATTRIBUTES or record.ByteSize() > MAX_ATTRIBUTE_BYTES // 2
        if not is_large or len(attributes) >= len(fields):
            return f"{record.dropped_attributes_count} attributes dropped without need"
        fields = fields[: len(attributes)]
    if len(fields) != len(attributes):
        return f"{len(attributes)} fields instead of {len(fields)}: {attributes}"
    for (key, value), (name, expected) in zip(attributes, fields):
        if not is_equal(value, expected):
            return f"{key} is {value!r}, not {expected!r} ({name})"
    return None


def check_losses(losses, events):
    """Compares the records of losses of one trace with the counts in its header."""
    headers = [event["fields"] for event in events if event["event"] == "EventTrace/Header"]
    counts = [headers[0][name] for name in ("EventsLost", "BuffersLost")] if headers else [0, 0]
    found = [[to_python(attribute.value) for attribute in record.attributes] for record in losses]
    # A trace can also mark losses without a count.
    is_marked = found == [[0, 0]] and "does not contain how many" in losses[0].body.string_value
    if found != ([counts] if any(counts) else []) and not (is_marked and not any(counts)):
        fail(f"losses {found}, expected {counts}")


def check_logs(path, events):
    """Compares log records with events. Returns the numbers of records and of losses."""
    records, losses = collections.defaultdict(list), []
    count = 0
    for message in parse(path, LogsData):
        for resource in message.resource_logs:
            check_keys(resource.resource.attributes)
            pids = [to_python(a.value) for a in resource.resource.attributes if a.key == "process.pid"]
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    if record.event_name == "etw.losses" and scope.scope.name == "traceweir":
                        losses.append(record)
                        continue
                    check_keys(record.attributes)
                    key, attributes = key_of_record(record, scope.scope.name, pids[0] if pids else -1)
                    records[key].append((record, attributes))
                    count += 1
    wanted = [event for event in events if not describes_file(event)]
    for event in wanted:
        candidates = records[key_of_event(event)]
        reasons = [difference(record, attributes, event) for record, attributes in candidates]
        if None not in reasons:
            near = [key for key, rest in records.items() if rest and key[0] == key_of_event(event)[0]]
            reasons = reasons or f"no such record; at this time: {near[:3]}"
            fail("log records:", json.dumps(event), key_of_event(event), reasons)
        candidates.pop(reasons.index(None))
    if count != len(wanted):
        left = [(key, rest) for key, rest in records.items() if rest]
        fail(f"{count} log records, expected {len(wanted)}; left:", left[:1])
    check_losses(losses, events)
    return count, len(losses)


def name_span(name):
    """Returns the name of the span that an event starts."""
    for end in ("/win:Start", "/Start", "_Start", "Start", "/Begin", "Begin"):
        if name.endswith(end) and name != end:
            return name.removesuffix(end)
    return name


def pair_events(events):
    """Pairs starts with stops in the plain way. Returns name, start, end and parent of each pair."""
    open_starts, open_of_owner, pairs = collections.defaultdict(list), collections.defaultdict(list), []
    for event in events:
        if event["opcode"] not in (START, STOP) or event["provider"] == KERNEL or event["guid"] == FILE_CLASS:
            continue
        activity = event.get("activity")
        owner = activity or (event["pid"], event["tid"])
        key = event["guid"], event["task"], owner
        if event["opcode"] == STOP:
            if open_starts[key]:
                start = open_starts[key].pop()
                open_of_owner[owner].remove(start)
                pairs.append((*start[:2], parse_time(event["time"]), start[2]))
            continue
        kind = event["id"], event["version"]
        # Some providers write two events at a start.
        if any(start[-1] != kind for start in open_starts[key]):
            continue
        if open_of_owner[owner]:
            parent = open_of_owner[owner][-1][1]
        else:
            related = event.get("related")
            parent = hash_activity(related) if activity and related and related != activity else None
        name = name_span(event["event"]) if event["event"] else f"task {event['task']}"
        start = (name, parse_time(event["time"]), parent, len(open_of_owner[owner]), kind)
        open_starts[key].append(start)
        open_of_owner[owner].append(start)
    return pairs


def check_spans(path, events):
    """Compares spans with the pairs of start and stop events. Returns the number of spans."""
    spans = []
    for message in parse(path, TracesData):
        for resource in message.resource_spans:
            check_keys(resource.resource.attributes)
            for scope in resource.scope_spans:
                spans.extend(scope.spans)
    starts = {}
    for span in spans:
        check_keys(span.attributes)
        if len(to_hex(span.span_id)) != 16 or len(to_hex(span.trace_id)) != 32 or not span.name:
            fail("invalid span:", span)
        starts[to_hex(span.span_id)] = span.start_time_unix_nano // 100 * 100
    if len(starts) != len(spans):
        fail("a span id occurs twice")
    found, expected = collections.Counter(), collections.Counter()
    for span in spans:
        # The parent by its start if it is a span of the file, otherwise by its id.
        parent = to_hex(span.parent_span_id) or None
        times = span.start_time_unix_nano // 100 * 100, span.end_time_unix_nano // 100 * 100
        found[span.name, *times, starts.get(parent, parent)] += 1
    for name, start, end, parent in pair_events(events):
        expected[name, start, end, starts.get(parent, parent)] += 1
    # A parent without a stop is no span of the file, so its start cannot be found by its id.
    known = set(starts.values())
    is_known = lambda parent: parent is None or parent in known
    plain = lambda pairs: collections.Counter({(*p[:3], p[3] if is_known(p[3]) else "?"): 0 for p in pairs})
    totals = [plain(pairs) for pairs in (found, expected)]
    for pairs, total in zip((found, expected), totals):
        for pair, count in pairs.items():
            total[*pair[:3], pair[3] if is_known(pair[3]) else "?"] += count
    if totals[0] != totals[1]:
        found, expected = totals
        fail("spans:", (found - expected).most_common(3), "expected", (expected - found).most_common(3))
    return len(spans)


def main():
    work, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    events = [json.loads(line) for line in read_lines(work / f"{name}.jsonl")]
    records, losses = check_logs(work / f"{name}.otlp.jsonl", events)
    spans = check_spans(work / f"{name}.otlp-spans.jsonl", events)
    print(f"otlp: {name}: {records} log records, {losses} of losses and {spans} spans are as expected")


main()
