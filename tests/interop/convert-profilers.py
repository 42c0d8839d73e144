"""Compares converted traces with the printed events and the collapsed stacks of the same trace.

    convert-profilers.py FOLDER

The folder holds events.jsonl (weir dump), samples.folded (weir flame --collapsed, absent for traces
without samples), and trace.perfetto, trace.chrome, trace.firefox and pprof.json.
"""

import collections
import json
import pathlib
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

CLEARED = 1
# The opcode of events that end an activity.
STOP = 2


class Expected:
    """What the trace contains, by the printed events."""

    def __init__(self, folder):
        events = [json.loads(line) for line in open(folder / "events.jsonl", encoding="utf-8")]
        kernel = lambda name: [e for e in events if e.get("event") == name and e["provider"] == "Windows Kernel"]
        self.sample_times = []
        self.samples = 0
        for event in kernel("PerfInfo/SampleProf"):
            fields = event["fields"]
            if fields["ThreadId"] != 0 or flags_of(fields) & 3:
                self.samples += max(1, fields.get("Count", 1))
                self.sample_times.append(event["ms"])
        self.switches = len(kernel("Thread/CSwitch"))
        self.wakes = len(kernel("Thread/ReadyThread"))
        self.user_events = collections.Counter(
            e["event"] for e in events if e["provider"] != "Windows Kernel" and e.get("event")
        )
        self.stops = collections.Counter(
            e["event"] for e in events if e["provider"] != "Windows Kernel" and e.get("event") and e["opcode"] == STOP
        )
        self.stacks = read_folded(folder / "samples.folded")
        # The fields of events whose name occurs once.
        once = lambda e: self.user_events.get(e.get("event")) == 1 and "fields" in e
        self.fields = {e["event"]: e["fields"] for e in events if e["provider"] != "Windows Kernel" and once(e)}


def flags_of(fields):
    flags = fields.get("Flags", 0)
    return int(flags, 0) if isinstance(flags, str) else flags


def function_of(label):
    """Returns the function of a label such as module!function."""
    return label.split("!", 1)[1] if "!" in label and not label.endswith("!?") else label


def read_folded(path):
    """Returns the number of samples of each stack, outermost first, without the process."""
    stacks = collections.Counter()
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")[1:]
            frames = [frame for frame in frames if frame not in ("(cut)", "(no stack)")]
            stacks[tuple(normalize(function_of(frame)) for frame in frames)] += int(count)
    return stacks


def normalize(name):
    """Returns a name as collapsed stacks write it."""
    return name.replace(";", ":") or "?"


def check(what, found, expected):
    if found != expected:
        if isinstance(found, collections.Counter):
            found, expected = found - expected, expected - found
            found, expected = found.most_common(3), expected.most_common(3)
        sys.exit(f"{what}: found {found}, expected {expected}")


def check_stacks(what, stacks, expected):
    if expected.stacks:
        check(what, stacks, expected.stacks)


class Perfetto:
    """The content of a Perfetto trace."""

    def __init__(self, path):
        trace = perfetto_trace_pb2.Trace()
        trace.ParseFromString(path.read_bytes())
        self.samples = self.switches = self.wakes = 0
        self.sample_times = []
        self.stacks = collections.Counter()
        self.names = collections.Counter()
        self.depth = collections.Counter()
        self.start = None
        names, fields, functions, frames, stacks = {}, {}, {}, {}, {}
        for packet in trace.packet:
            if packet.HasField("clock_snapshot"):
                clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
                self.start = clocks[6]
            if packet.sequence_flags & CLEARED:
                for table in (names, fields, functions, frames, stacks):
                    table.clear()
            data = packet.interned_data
            names.update((entry.iid, entry.name) for entry in data.event_names)
            fields.update((entry.iid, entry.name) for entry in data.debug_annotation_names)
            functions.update((entry.iid, getattr(entry, "str").decode()) for entry in data.function_names)
            frames.update((entry.iid, functions[entry.function_name_id]) for entry in data.frames)
            stacks.update((entry.iid, tuple(frames[iid] for iid in entry.frame_ids)) for entry in data.callstacks)
            if packet.HasField("perf_sample"):
                sample = packet.perf_sample
                self.samples += sample.timebase_count
                self.sample_times.append((packet.timestamp - self.start) / 1e6)
                stack = tuple(normalize(name) for name in stacks.get(sample.callstack_iid, ()))
                self.stacks[stack] += sample.timebase_count
            for event in packet.ftrace_events.event:
                self.switches += event.HasField("sched_switch")
                self.wakes += event.HasField("sched_waking")
            if packet.HasField("track_event"):
                self.add_event(packet.track_event, names, fields)

    def add_event(self, event, names, fields):
        kind = event.type
        if kind == event.TYPE_SLICE_BEGIN:
            self.depth[event.track_uuid] += 1
        if kind == event.TYPE_SLICE_END:
            self.depth[event.track_uuid] -= 1
            if self.depth[event.track_uuid] < 0:
                sys.exit("perfetto: a slice ends that did not begin")
        if kind in (event.TYPE_SLICE_BEGIN, event.TYPE_INSTANT):
            self.names[names[event.name_iid]] += 1
        for annotation in event.debug_annotations:
            fields[annotation.name_iid]


def check_perfetto(folder, expected):
    found = Perfetto(folder / "trace.perfetto")
    check("perfetto: samples", found.samples, expected.samples)
    check("perfetto: switches", found.switches, expected.switches)
    check("perfetto: wakes", found.wakes, expected.wakes)
    check("perfetto: unfinished slices", sum(found.depth.values()), 0)
    check_times("perfetto", found.sample_times, expected.sample_times)
    check_stacks("perfetto: stacks", found.stacks, expected)
    check_names("perfetto", found.names, expected)
    return found


def check_names(what, names, expected):
    """Compares the counts of events by name. A stop ends a slice, and is an event of its own only if the
    slice did not begin in the trace."""
    for name, count in expected.user_events.items():
        least = count - expected.stops[name]
        if not least <= names[name] <= count:
            sys.exit(f"{what}: {name} occurs {names[name]} times, expected {least} to {count}")


def check_times(what, found, expected):
    """Compares times in milliseconds to a tenth of a microsecond."""
    rounded = lambda times: [round(time, 4) for time in times]
    check(f"{what}: first times of samples", rounded(found[:5]), rounded(expected[:5]))
    check(f"{what}: last times of samples", rounded(found[-5:]), rounded(expected[-5:]))


def check_chrome(folder, expected):
    trace = json.load(open(folder / "trace.chrome", encoding="utf-8"))
    frames, samples, times, stacks, open_slices = trace["stackFrames"], 0, [], collections.Counter(), collections.Counter()
    compared = 0
    for event in trace["traceEvents"]:
        if not (isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["ts"] >= 0):
            sys.exit(f"chrome: invalid event {event}")
        phase = event["ph"]
        if phase == "X" and event["dur"] < 0:
            sys.exit(f"chrome: negative duration in {event}")
        if phase in "BE":
            open_slices[event["pid"], event["tid"]] += 1 if phase == "B" else -1
        if phase in "be":
            open_slices[event["cat"], event["id"]] += 1 if phase == "b" else -1
        if phase in "iBb" and event["name"] in expected.fields:
            compared += check_fields(event["name"], event.get("args", {}), expected.fields[event["name"]])
        if phase != "P":
            continue
        weight = event["args"]["weight"]
        samples += weight
        times.append(event["ts"] / 1000)
        stack, frame = [], event.get("sf")
        while frame is not None:
            stack.append(normalize(frames[str(frame)]["name"]))
            frame = frames[str(frame)].get("parent")
        stacks[tuple(reversed(stack))] += weight
    check("chrome: samples", samples, expected.samples)
    check("chrome: unfinished slices", [count for count in open_slices.values() if count != 0], [])
    check_times("chrome", times, expected.sample_times)
    check_stacks("chrome: stacks", stacks, expected)
    return compared


def check_fields(name, found, expected):
    """Compares the fields of an event that have one value. Returns their number."""
    compared = 0
    for field, value in expected.items():
        if isinstance(value, (int, float, str)) and field in found and not isinstance(found[field], (list, dict)):
            # JSON has large integers as texts in both.
            if found[field] != value and str(found[field]) != str(value):
                sys.exit(f"chrome: {name}: {field} is {found[field]!r}, expected {value!r}")
            compared += 1
    return compared


def check_firefox(folder, expected):
    profile = json.load(open(folder / "trace.firefox", encoding="utf-8"))
    schemas = {schema["name"]: schema for schema in profile["meta"]["markerSchema"]}
    samples, stacks, names, times = 0, collections.Counter(), collections.Counter(), []
    for thread in profile["threads"]:
        strings = thread["stringArray"]
        table = thread["samples"]
        time = 0
        for index in range(table["length"]):
            time = table["time"][index] if "time" in table else time + table["timeDeltas"][index]
            weight = table["weight"][index] if table.get("weight") else 1
            samples += weight
            times.append(time)
            stack, node = [], table["stack"][index]
            while node is not None:
                function = thread["frameTable"]["func"][thread["stackTable"]["frame"][node]]
                stack.append(normalize(function_of(strings[thread["funcTable"]["name"][function]])))
                node = thread["stackTable"]["prefix"][node]
            stacks[tuple(reversed(stack))] += weight
        markers = thread["markers"]
        for index in range(markers["length"]):
            names[strings[markers["name"][index]]] += 1
            data = markers["data"][index]
            if data is not None and data["type"] not in schemas:
                sys.exit(f"firefox: marker type {data['type']} has no schema")
    check("firefox: samples", samples, expected.samples)
    check_times("firefox", sorted(times), expected.sample_times)
    check_stacks("firefox: stacks", stacks, expected)
    check_names("firefox", names, expected)


def check_pprof(folder, expected):
    path = folder / "pprof.json"
    if not path.exists():
        return False
    profile = json.load(open(path, encoding="utf-8"))
    types = profile["types"]
    if "samples/count" in types:
        index = types.index("samples/count")
        check("pprof: samples", sum(sample["values"][index] for sample in profile["samples"]), expected.samples)
        stacks = collections.Counter()
        for sample in profile["samples"]:
            if sample["values"][index]:
                stack = tuple(normalize(name) for name in reversed(sample["stack"]))
                stacks[stack] += sample["values"][index]
        check_stacks("pprof: stacks", stacks, expected)
    return True


def main():
    folder = pathlib.Path(sys.argv[1])
    expected = Expected(folder)
    found = check_perfetto(folder, expected)
    fields = check_chrome(folder, expected)
    check_firefox(folder, expected)
    readers = ["perfetto", "chrome", "firefox"] + (["pprof"] if check_pprof(folder, expected) else [])
    stacks = f", {len(expected.stacks)} different stacks" if expected.stacks else ""
    print(
        f"{folder.name}: {expected.samples} samples{stacks}, {expected.switches} switches, {expected.wakes} wakes,"
        f" {sum(found.names.values())} named events and {fields} fields agree in {', '.join(readers)}"
    )


main()
