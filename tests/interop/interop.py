"""Reads files of the Rust writer with two independent readers and compares every event.

    interop.py FOLDER       with plain.etl, compressed.etl and expected.jsonl of the example `interop_write`

dissect.etl reads both files: count, provider, ids, extended items, payload bytes, raw stamps, wall
times within 1 us. etl-parser does not decompress, so it reads the plain file, and it does not count
the header buffer: count, raw stamps, ids, payload bytes, and the fields of process, thread, image,
disk and TraceLogging events that it knows.

Events are matched by their stamps, which are unique. Prints a line for each comparison; the first
difference ends the program with status 1 and a line with the property, the place, and the expected
and actual values.
"""

import json
import sys
from pathlib import Path
from uuid import UUID

from dissect.etl.etl import ETL
from etl.etl import IEtlFileObserver, build_from_stream

# 100 ns units in a microsecond.
MICROSECOND = 10

# Fields that etl-parser names differently, and those that it lacks.
ETL_PARSER_NAMES = {"TThreadId": "ThreadId", "HighResResponseTime": "HighResponseTime"}
MISSING_IN_ETL_PARSER = {"ThreadName"}


def fail(message):
    print(f"interop: DIFFERENT: {message}")
    sys.exit(1)


def assert_same(where, what, wanted, found):
    if wanted != found:
        fail(f"{where}: {what}: wanted {wanted!r}, found {found!r}")


def load_expected(folder):
    with open(folder / "expected.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# dissect.etl


def compare_dissect_event(where, event, header):
    """Compares an EVENT header and returns the payload, without the extended items that dissect.etl
    leaves in front of it.

    The reader swaps the bytes of the provider differently from other GUIDs, and continues to parse
    items in the payload: so the raw bytes are compared, and as many items as were written.
    """
    assert_same(where, "provider", UUID(event["provider"]), UUID(bytes_le=bytes(header.header.ProviderId)))
    assert_same(where, "64-bit", event["pointer"] == 8, header.is_64bit)
    found = header.descriptor
    for name in ("id", "version", "channel", "level", "opcode", "task"):
        assert_same(where, name, event[name], getattr(found, name))
    assert_same(where, "keyword", event["keyword"], found.keywords)
    items = header.header_extensions[: len(event["items"])] if event["items"] else []
    assert_same(where, "extended items", event["items"], [[int(i.ext_type), bytes(i.raw_data).hex()] for i in items])
    return bytes(header.payload)[sum(i.size for i in items) :]


def compare_dissect_record(where, event, header):
    """Compares the header and returns the payload."""
    kind = event["kind"]
    if kind != "perfinfo":
        assert_same(where, "thread", event["thread"], header.thread_id)
        assert_same(where, "process", event["process"], header.process_id)
    if kind == "event":
        return compare_dissect_event(where, event, header)
    assert_same(where, "provider", event["provider"], str(header.provider_id))
    if kind == "classic":
        # In this header, type, level and version are one number.
        assert_same(where, "class", event["opcode"] | event["level"] << 8 | event["version"] << 16, header.version)
    else:
        for name in ("group", "opcode", "version"):
            assert_same(where, name, event[name], getattr(header, name))
    return bytes(header.payload)


def compare_with_dissect(path, expected):
    with open(path, "rb") as file:
        trace = ETL(file)
        records = iter(trace)
        first = next(records).header
        assert_same(path.name, "hook of the first event", 0, first.hook_id)
        found = {}
        for record in records:
            if record.header.time_delta in found:
                fail(f"{path.name}: two events at {record.header.time_delta}")
            found[record.header.time_delta] = record.header
        assert_same(path.name, "number of events", len(expected), len(found))
        for event in expected:
            where = f"{path.name}, event at {event['time']}"
            header = found.get(event["time"])
            if header is None:
                fail(f"{where}: missing")
            assert_same(where, "payload", event["payload"], compare_dissect_record(where, event, header).hex())
            wall_time = trace.get_filetime_for_event(header.time_delta)
            if abs(wall_time - event["filetime"]) > MICROSECOND:
                fail(f"{where}: wall time: wanted {event['filetime']}, found {wall_time}")
    print(f"interop: dissect.etl agrees on {len(expected)} events of {path.name}")


# etl-parser


def decode_string(string):
    """Decodes a string of etl-parser and removes its terminator."""
    units = bytes(string.string)
    return units[:-2].decode("utf-16le") if units.endswith(b"\0\0") and len(units) % 2 == 0 else units[:-1].decode()


class Collector(IEtlFileObserver):
    """Collects the events by stamp: kind, payload bytes, and the reader's object."""

    def __init__(self):
        self.found = {}
        self.count = 0

    def add(self, time, kind, payload, event):
        self.count += 1
        self.found[time] = (kind, payload, event)

    def on_event_record(self, event):
        self.add(event.get_timestamp(), "event", event.source.user_data, event)

    def on_trace_record(self, event):
        self.add(event.source.event_header.timestamp, "classic", event.source.user_data, event)

    def on_perfinfo_trace(self, event):
        self.add(event.get_timestamp(), "perfinfo", event.source.mof_data, event)

    def on_system_trace(self, event):
        self.add(event.source.system_header.system_time, "system", event.source.mof_data, event)

    def on_win_trace(self, event):
        fail("etl-parser mistakes an event for a message")


def compare_kernel_fields(where, wanted, event):
    source = event.get_mof().source
    compared = 0
    for name, value in wanted.items():
        if name in MISSING_IN_ETL_PARSER:
            continue
        found = source[ETL_PARSER_NAMES.get(name, name)]
        if isinstance(value, str):
            found = decode_string(found)
        assert_same(where, name, value, found)
        compared += 1
    return compared


def compare_tracelogging_fields(where, wanted, event):
    parsed = event.parse_tracelogging()
    assert_same(where, "TraceLogging name", "Reading", parsed.get_name())
    for name, value in wanted.items():
        found = parsed[name]
        if isinstance(found, bytes):
            found = found.decode()
        assert_same(where, name, value, found)
    return len(wanted)


def compare_with_etl_parser(path, expected):
    collector = Collector()
    build_from_stream(path.read_bytes()).parse(collector)
    assert_same(path.name, "number of events", len(expected), collector.count)
    assert_same(path.name, "number of stamps", len(expected), len(collector.found))
    fields = 0
    for event in expected:
        where = f"{path.name}, etl-parser, event at {event['time']}"
        if event["time"] not in collector.found:
            fail(f"{where}: missing")
        kind, payload, parsed = collector.found[event["time"]]
        assert_same(where, "kind", event["kind"], kind)
        assert_same(where, "payload", event["payload"], bytes(payload).hex())
        if kind != "perfinfo":
            header = parsed.source.system_header if kind == "system" else parsed.source.event_header
            assert_same(where, "thread", event["thread"], header.thread_id)
            assert_same(where, "process", event["process"], header.process_id)
        if "fields" in event:
            compare_fields = compare_tracelogging_fields if kind == "event" else compare_kernel_fields
            fields += compare_fields(where, event["fields"], parsed)
    print(f"interop: etl-parser agrees on {len(expected)} events and {fields} fields of {path.name}")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: interop.py FOLDER")
    folder = Path(sys.argv[1])
    expected = load_expected(folder)
    if not expected:
        fail("nothing to compare")
    compare_with_dissect(folder / "plain.etl", expected)
    compare_with_dissect(folder / "compressed.etl", expected)
    compare_with_etl_parser(folder / "plain.etl", expected)


if __name__ == "__main__":
    main()
