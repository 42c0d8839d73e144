"""Reads a recording of kernel events with two independent readers and compares it with `weir dump`.

    kernel.py FILE DUMP     DUMP is `weir dump --format jsonl --numeric FILE`

dissect.etl reads the whole file: number of all events, and of each class, type and length; fields
of context switches and ready threads. etl-parser: the fields of processes, threads, images and disk
I/O that it knows.

A dump has no raw stamps, so multisets are compared: how often each combination of values occurs.
"""

import json
import struct
import sys
from collections import Counter
from pathlib import Path

from dissect.etl.etl import ETL
from etl.etl import IEtlFileObserver, build_from_stream

# Fields that etl-parser names differently.
ETL_PARSER_NAMES = {"TThreadId": "ThreadId", "HighResResponseTime": "HighResponseTime"}

# Classes whose fields are compared, and the fields that both know, by class and type.
PROCESS = ("ProcessId", "ParentId", "SessionId", "ExitStatus")
THREAD = ("ProcessId", "TThreadId", "BasePriority")
IMAGE = ("ImageBase", "ImageSize", "ProcessId")
DISK = ("DiskNumber", "TransferSize", "ByteOffset", "IssuingThreadId")
FIELDS = {
    "Process/Start": PROCESS,
    "Process/End": PROCESS,
    "Process/DCStart": PROCESS,
    "Process/DCEnd": PROCESS,
    "Thread/Start": THREAD,
    "Thread/End": THREAD,
    "Thread/DCStart": THREAD,
    "Thread/DCEnd": THREAD,
    "Image/Load": IMAGE,
    "Image/UnLoad": IMAGE,
    "Image/DCStart": IMAGE,
    "Image/DCEnd": IMAGE,
    "DiskIo/Read": DISK,
    "DiskIo/Write": DISK,
}
GROUPS = {0x01: "DiskIo", 0x03: "Process", 0x05: "Thread", 0x14: "Image"}
TYPES = {1: "Start", 2: "End", 3: "DCStart", 4: "DCEnd", 10: "Read", 11: "Write"}
IMAGE_TYPES = {2: "UnLoad", 3: "DCStart", 4: "DCEnd"}

# Offset of the user of a process. Four zero bytes mean no user, which etl-parser cannot parse.
USER_SID_OFFSET = 36

CSWITCH_HOOK = 0x0524
READY_THREAD_HOOK = 0x0532
CSWITCH = struct.Struct("<IIbbBbbbbbII")
CSWITCH_FIELDS = (
    "NewThreadId OldThreadId NewThreadPriority OldThreadPriority PreviousCState SpareByte OldThreadWaitReason "
    "OldThreadWaitMode OldThreadState OldThreadIdealProcessor NewThreadWaitTime Reserved"
).split()
READY = struct.Struct("<Ibbbb")
READY_FIELDS = ("ThreadId", "AdjustReason", "AdjustIncrement", "Flags")


def fail(message):
    print(f"interop: DIFFERENT: {message}")
    sys.exit(1)


def assert_same(what, wanted, found):
    if wanted != found:
        only = list((wanted - found).items())[:5], list((found - wanted).items())[:5]
        fail(f"{what}: only in the dump {only[0]}, only in the reader {only[1]}")


def parse_number(value):
    return int(value, 16) if isinstance(value, str) and value.startswith("0x") else value


def field_values(event, names):
    return tuple(parse_number(event["fields"][name]) for name in names)


def compare_with_dissect(path, dump):
    shapes, switches, ready, count = Counter(), Counter(), Counter(), 0
    with open(path, "rb") as file:
        for record in ETL(file):
            header, payload = record.header, bytes(record.header.payload)
            count += 1
            opcode = getattr(header, "opcode", None)
            hook = getattr(header, "hook_id", None)
            if opcode is not None and hook is not None:
                shapes[(str(header.provider_id), opcode, len(payload))] += 1
            if hook == CSWITCH_HOOK:
                switches[CSWITCH.unpack(payload)] += 1
            elif hook == READY_THREAD_HOOK:
                ready[READY.unpack(payload)[:4]] += 1
    if count != len(dump):
        fail(f"{path.name}, dissect.etl: {count} events, the dump has {len(dump)}")
    kernel_events = [e for e in dump if e["provider"] == "Windows Kernel"]
    guids = {guid for guid, _, _ in shapes}
    wanted = Counter((e["guid"], e["opcode"], e["len"]) for e in kernel_events if e["guid"] in guids)
    assert_same(f"{path.name}, dissect.etl: class, type and length", wanted, shapes)
    events_named = lambda name: [e for e in dump if e["event"] == name]
    assert_same("context switches", Counter(field_values(e, CSWITCH_FIELDS) for e in events_named("Thread/CSwitch")), switches)
    assert_same("ready threads", Counter(field_values(e, READY_FIELDS) for e in events_named("Thread/ReadyThread")), ready)
    print(f"interop: dissect.etl agrees on {count} events of {path.name}, with {sum(switches.values())} context switches")


class Collector(IEtlFileObserver):
    def __init__(self):
        self.count, self.found = 0, Counter()

    def on_event_record(self, event):
        self.count += 1

    def on_trace_record(self, event):
        self.count += 1

    def on_perfinfo_trace(self, event):
        self.add_event(event, event.source.header)

    def on_system_trace(self, event):
        self.add_event(event, event.source.system_header.header)

    def on_win_trace(self, event):
        fail("etl-parser mistakes an event for a message")

    def add_event(self, event, header):
        self.count += 1
        name = event_name(header)
        if name in FIELDS and has_user(name, event.source.mof_data):
            source = event.get_mof().source
            self.found[(name,) + tuple(source[ETL_PARSER_NAMES.get(field, field)] for field in FIELDS[name])] += 1


def has_user(name, payload):
    return not name.startswith("Process/") or struct.unpack_from("<I", payload, USER_SID_OFFSET)[0] != 0


def event_name(header):
    group, kind = int(header.group), int(header.type)
    # Image loads are in the group of processes.
    if (group, kind) == (0x03, 10):
        return "Image/Load"
    types = IMAGE_TYPES if group == 0x14 else TYPES
    return f"{GROUPS.get(group)}/{types.get(kind)}"


def compare_with_etl_parser(path, dump):
    collector = Collector()
    build_from_stream(path.read_bytes()).parse(collector)
    known = [e for e in dump if e["event"] in FIELDS and e["fields"].get("UserSID", "") is not None]
    wanted = Counter((e["event"],) + field_values(e, FIELDS[e["event"]]) for e in known)
    assert_same(f"{path.name}, etl-parser: fields", wanted, collector.found)
    print(f"interop: etl-parser agrees on the fields of {sum(wanted.values())} of {collector.count} events of {path.name}")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: kernel.py FILE DUMP")
    path = Path(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as lines:
        dump = [json.loads(line) for line in lines]
    compare_with_dissect(path, dump)
    compare_with_etl_parser(path, dump)


if __name__ == "__main__":
    main()
