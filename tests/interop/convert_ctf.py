"""Compares what babeltrace2 reads from a CTF folder with what `weir` prints as JSON.

    convert_ctf.py FOLDER JSONL NAMED MESSAGES

JSONL has numbers instead of names of values (--numeric); NAMED has names, as the messages of events in
CTF. MESSAGES is what babeltrace2 printed to standard error: it names discarded events.
"""

import json
import math
import os
import re
import struct
import sys
from collections import defaultdict
from datetime import datetime, timezone

import bt2
from convert_names import escape


def fail(message):
    print(f"ctf: different: {message}")
    sys.exit(1)


def to_python(field):
    """Returns a field as numbers, strings, lists and dicts; an enumeration by its number."""
    if field is None:
        return {}
    if isinstance(field, bt2._StructureFieldConst):
        members = {}
        for name, value in field.items():
            if isinstance(value, bt2._DynamicArrayFieldConst):
                # The member before an array is its length.
                members.popitem()
            members[name] = to_python(value)
        return members
    if isinstance(field, (bt2._DynamicArrayFieldConst, bt2._StaticArrayFieldConst)):
        return [to_python(value) for value in field]
    if isinstance(field, bt2._StringFieldConst):
        return str(field)
    if isinstance(field, bt2._RealFieldConst):
        return float(field)
    return int(field)


def is_equal(field, expected):
    """Returns whether JSON shows this value."""
    if isinstance(expected, bool):
        return bool(field) == expected
    if expected is None:
        return field in ("", "(no date)")
    if isinstance(field, float):
        names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        number = names.get(expected, expected) if isinstance(expected, str) else expected
        if math.isnan(field) or math.isnan(number):
            return math.isnan(field) and math.isnan(number)
        # JSON has the shortest text of a 32-bit or of a 64-bit number.
        return number == field or (abs(number) < 3.5e38 and to_float32(number) == field)
    if isinstance(field, int):
        if isinstance(expected, str):
            expected = int(expected, 16) if expected.startswith("0x") else int(expected)
        # Hexadecimal integers have no sign in CTF.
        return field == expected or (expected < 0 and field - expected in (1 << 8, 1 << 16, 1 << 32, 1 << 64))
    if isinstance(field, str):
        # Bytes that are no address are hexadecimal.
        is_hex = field.startswith("0x") and field[2:].lower() == expected
        return is_hex or field == str(expected).replace("\0", "\u2400")
    if isinstance(field, list):
        if isinstance(expected, str):
            return bytes(field).hex() == expected
        return len(field) == len(expected) and all(map(is_equal, field, expected))
    if isinstance(expected, dict):
        return len(field) == len(expected) and all(map(is_equal, field.values(), expected.values()))
    # One of several values of bytes is a structure.
    return len(field) == 1 and is_equal(next(iter(field.values())), expected)


def to_float32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def parse_time(text):
    """Returns a time of JSON in units of 100 ns since 1970."""
    date, fraction = re.fullmatch(r"(.*)\.(\d{7})Z", text).groups()
    seconds = datetime.strptime(date, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    return int(seconds) * 10_000_000 + int(fraction)


def read_folder(folder):
    """Returns the events of each processor and time."""
    events = defaultdict(list)
    for message in bt2.TraceCollectionMessageIterator(folder):
        if type(message) is not bt2._EventMessageConst:
            continue
        event = message.event
        context = to_python(event.common_context_field)
        context["provider"] = event.common_context_field["provider"].labels
        time = message.default_clock_snapshot.ns_from_origin // 100
        fields = to_python(event.payload_field)
        events[time, context["cpu"]].append((event.cls.name, context, fields))
    return events


def difference(event, line):
    """Returns the first difference of an event, or None."""
    name, context, fields = event
    ids = line.get("attributed", line)
    expected = {
        "pid": ids["pid"],
        "tid": ids["tid"],
        "process": line.get("process", "-"),
        "activity": line.get("activity", "-"),
        "related_activity": line.get("related", "-"),
        "event_id": line["id"],
        "version": line["version"],
        "level": line["level"],
        "opcode": line["opcode"],
        "task": line["task"],
        "keyword": int(line["keywords"], 16),
        "stack": [int(frame, 16) for frame in line.get("stack", [])],
    }
    for key, value in expected.items():
        if context[key] != value:
            return f"{key} is {context[key]!r}, not {value!r}"
    if line["guid"] not in context["provider"]:
        return f"provider is {context['provider']}"
    if line["event"] is not None and not name.endswith(":" + escape(line["event"])):
        return f"name is {name}"
    if "undecoded" in line:
        return None if bytes(fields["payload"]).hex() == line["raw"] else "payload differs"
    values = list(fields.values())
    wanted = list(line["fields"].values())
    wanted += [line[key] for key in ("extra", "message") if key in line]
    if "message" not in line and list(fields)[-1:] == ["message"] and values[-1] == "":
        values.pop()
    if len(values) != len(wanted):
        return f"{len(values)} fields instead of {len(wanted)}: {fields}"
    for value, want in zip(values, wanted):
        if not is_equal(value, want):
            return f"field {value!r}, not {want!r}"
    return None


def main(folder, jsonl, named, messages):
    events = read_folder(folder)
    count = sum(map(len, events.values()))
    lines = 0
    with open(jsonl, encoding="utf-8") as file, open(named, encoding="utf-8") as named_file:
        for text, named_text in zip(file, named_file, strict=True):
            line = json.loads(text)
            if "message" in line:
                line["message"] = json.loads(named_text)["message"]
            lines += 1
            candidates = events[parse_time(line["time"]), line["cpu"]]
            # Events of one processor and time may be in another order.
            reasons = [difference(event, line) for event in candidates]
            if None not in reasons:
                fail(f"{folder}: {text.strip()}: {reasons or 'no event at this time'}")
            candidates.pop(reasons.index(None))
    if count != lines:
        fail(f"{folder}: {count} events instead of {lines}")
    with open(messages, encoding="utf-8", errors="replace") as file:
        discarded = sum(map(int, re.findall(r"Tracer discarded (\d+) event", file.read())))
    print(f"ctf: {os.path.basename(folder)}: {count} events are equal, {discarded} are reported as discarded")


main(*sys.argv[1:])
