"""Compares converted traces with the printed events and the collapsed stacks of the same trace.

    convert-profilers.py FOLDER [SCHEMA]

The folder holds events.jsonl (weir dump), samples.folded (weir flame --collapsed, absent for traces
without samples), trace.perfetto, trace.chrome, trace.firefox, trace.pprof (absent for traces without
samples and waits), and, where their readers are installed, pprof.json, trace.speedscope and page.json
(what the page of speedscope shows). SCHEMA is the published schema of speedscope. Writes expected.json
for convert_firefox.py.
"""

import collections
import itertools
import json
import pathlib
import sys

import jsonschema
from convert_names import escape
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
        user = [e for e in events if e["provider"] != "Windows Kernel" and e.get("event")]
        # The numbers of these events become counters.
        self.counters = collections.defaultdict(list)
        for event in filter(is_counter, user):
            for name, value in counters_of(event):
                self.counters[name].append(value)
        user = [event for event in user if not is_counter(event)]
        self.user_events = collections.Counter(pair_name(e["event"]) for e in user)
        self.stops = collections.Counter(pair_name(e["event"]) for e in user if e["opcode"] == STOP)
        folded = read_frames(folder / "samples.folded")
        self.stacks = collections.Counter()
        # Own samples of functions, as Firefox and speedscope name them.
        self.functions = collections.Counter()
        for frames, count in folded:
            self.stacks[tuple(normalize(function_of(frame)) for frame in frames)] += count
            if frames:
                self.functions[frames[-1]] += count
        self.processes = {}
        for event in kernel("Process/Start") + kernel("Process/DCStart"):
            fields = event["fields"]
            self.processes.setdefault(fields["ProcessId"], set()).add(fields["ImageFileName"])
        # The fields of events whose name occurs once.
        unique = [e for e in user if self.user_events[pair_name(e["event"])] == 1]
        self.fields = {pair_name(e["event"]): e["fields"] for e in unique if "fields" in e}


def pair_name(event):
    """Returns the name of the slice that an event begins; names of other events stay."""
    ends = ("/win:Start", "/Start", "_Start", "Start", "/Begin", "Begin")
    base = next((event.removesuffix(end) for end in ends if event.endswith(end)), event)
    return base or event


def is_counter(event):
    """Returns whether the numbers of an event of a user provider are values of counters."""
    last = event["event"].split("/")[-1]
    return last.endswith(("Counter", "Counters")) or last.startswith("GCHeapStats")


def counters_of(event):
    """Yields names and values of the counters in an event."""
    fields = event.get("fields", {})
    fields = fields["Payload"] if isinstance(fields.get("Payload"), dict) else fields
    if isinstance(fields.get("Name"), str):
        value = next((fields[key] for key in ("Mean", "Increment", "Value") if key in fields), None)
        if value is not None:
            yield fields["Name"], float(value)
        return
    for key, value in fields.items():
        if isinstance(value, str) and value.startswith("0x"):
            value = int(value, 16)
        if isinstance(value, (int, float)) and not key.endswith(("Id", "ID")) and key != "Count":
            yield f"{event['event'].split('/')[-1]} {key}", float(value)


def flags_of(fields):
    flags = fields.get("Flags", 0)
    return int(flags, 0) if isinstance(flags, str) else flags


def function_of(label):
    """Returns the function of a label such as module!function."""
    return label.split("!", 1)[1] if "!" in label and not label.endswith("!?") else label


def read_frames(path):
    """Returns the frames of each stack, outermost first and without the process, and its samples."""
    stacks = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                stack, count = line.rsplit(" ", 1)
                frames = [frame for frame in stack.split(";")[1:] if frame not in ("(cut)", "(no stack)")]
                stacks.append((frames, int(count)))
    return stacks


def normalize(name):
    """Returns a name as collapsed stacks write it."""
    return escape(name.replace(";", ":")) or "?"


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
        self.counters = collections.defaultdict(list)
        self.tracks = {}
        self.start = None
        names, fields, functions, frames, stacks = {}, {}, {}, {}, {}
        for packet in trace.packet:
            if packet.HasField("clock_snapshot"):
                clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
                self.start = clocks[6]
            if packet.sequence_flags & CLEARED:
                for table in (names, fields, functions, frames, stacks):
                    table.clear()
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
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
        if kind == event.TYPE_COUNTER:
            self.counters[self.tracks[event.track_uuid]].append(event.double_counter_value)
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
    check_counters("perfetto", found.counters, expected)
    return found


def check_names(what, names, expected):
    """Compares the counts of events by name. A stop ends a slice, and is an event of its own only if the
    slice did not begin in the trace. A slice has the name of its pair."""
    by_pair = collections.Counter()
    for name, count in names.items():
        by_pair[pair_name(name)] += count
    for name, count in expected.user_events.items():
        least = count - expected.stops[name]
        if not least <= by_pair[name] <= count:
            sys.exit(f"{what}: {name} occurs {by_pair[name]} times, expected {least} to {count}")


def check_counters(what, found, expected):
    """Compares the values of the counters that events contain."""
    for name, values in expected.counters.items():
        # Some processes have counters of the same name, so values of one time may have another order.
        if sorted(found[name]) != sorted(values):
            sys.exit(f"{what}: {len(found[name])} values of counter {name}, expected {len(values)}, or others")


def check_times(what, found, expected):
    """Compares times in milliseconds to a tenth of a microsecond."""
    rounded = lambda times: [round(time, 4) for time in times]
    check(f"{what}: first times of samples", rounded(found[:5]), rounded(expected[:5]))
    check(f"{what}: last times of samples", rounded(found[-5:]), rounded(expected[-5:]))


def check_chrome(folder, expected):
    trace = json.load(open(folder / "trace.chrome", encoding="utf-8"))
    frames, samples, times = trace["stackFrames"], 0, []
    stacks, open_slices = collections.Counter(), collections.Counter()
    compared, names, counters = 0, collections.Counter(), collections.defaultdict(list)
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
        if phase in "iBb":
            names[event["name"]] += 1
        if phase == "C":
            counters[event["name"]].append(float(event["args"]["value"]))
        if phase in "iBb" and pair_name(event["name"]) in expected.fields:
            fields = expected.fields[pair_name(event["name"])]
            compared += check_fields(event["name"], event.get("args", {}), fields)
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
    check_names("chrome", names, expected)
    check_counters("chrome", counters, expected)
    return compared


def check_fields(name, found, expected):
    """Compares the fields of an event that have one value. Returns their number."""
    compared = 0
    for field, value in expected.items():
        is_single = isinstance(value, (int, float, str))
        if is_single and field in found and not isinstance(found[field], (list, dict)):
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
    counters = collections.defaultdict(list)
    for counter in profile.get("counters", []):
        # The table has the differences of the values.
        counters[counter["name"]].extend(itertools.accumulate(counter["samples"]["count"]))
    check_counters("firefox", counters, expected)
    threads = enumerate(profile["threads"])
    sampled_threads = [index for index, thread in threads if thread["samples"]["length"] > 0]
    return names.total(), sampled_threads


def check_speedscope(folder, expected, schema):
    """Validates a profile, and compares it with the collapsed stacks and with what the page shows."""
    path = folder / "trace.speedscope"
    if not path.exists():
        return False
    file = json.load(open(path, encoding="utf-8"))
    if schema:
        jsonschema.validate(file, json.load(open(schema, encoding="utf-8")))
    profile, frames = file["profiles"][0], file["shared"]["frames"]
    check("speedscope: weights", sum(profile["weights"]), profile["endValue"])
    check("speedscope: samples", sum(profile["weights"]), expected.samples)
    stacks, own = collections.Counter(), collections.Counter()
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        names = [frames[index]["name"] for index in sample]
        own[names[-1]] += weight
        names = [name for name in names[1:] if name not in ("(cut)", "(no stack)")]
        stacks[tuple(normalize(function_of(name)) for name in names)] += weight
    check_stacks("speedscope: stacks", stacks, expected)
    if (folder / "page.json").exists():
        page = json.load(open(folder / "page.json", encoding="utf-8"))
        check("speedscope: errors of the page", page["errors"], [])
        # The page shows as many rows as have room.
        known = collections.Counter(frame["name"] for frame in frames)
        rows = [(name, number_of(text)) for _, text, name in page["rows"] if known[name] == 1]
        if not rows:
            sys.exit(f"speedscope: the page shows no functions: {page['text']}")
        for name, samples in rows:
            check(f"speedscope: own samples of {name} on the page", samples, own[name])
        shown = ", ".join(f"{name} {samples}" for name, samples in rows[:2])
        print(f"{folder.name}: the page of speedscope shows {len(rows)} functions as expected: {shown}")
    return True


def number_of(cell):
    """Returns the number in a cell such as "6,320 (100%)"."""
    return int(cell.split(" ")[0].replace(",", ""))


def check_pprof(folder, expected):
    if not (folder / "trace.pprof").exists():
        check("pprof: samples of a trace without a profile", expected.samples, 0)
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
    markers, sampled_threads = check_firefox(folder, expected)
    for_firefox = {
        "firefox_markers": markers,
        "sampled_threads": sampled_threads,
        "functions": expected.functions,
        "processes": {pid: names.pop() for pid, names in expected.processes.items() if len(names) == 1},
    }
    (folder / "expected.json").write_text(json.dumps(for_firefox), encoding="utf-8")
    readers = ["perfetto", "chrome", "firefox"] + (["pprof"] if check_pprof(folder, expected) else [])
    schema = sys.argv[2] if len(sys.argv) > 2 else None
    readers += ["speedscope"] if check_speedscope(folder, expected, schema) else []
    stacks = f", {len(expected.stacks)} different stacks" if expected.stacks else ""
    print(
        f"{folder.name}: {expected.samples} samples{stacks}, {expected.switches} switches, {expected.wakes} wakes,"
        f" {sum(found.names.values())} named events, {sum(map(len, expected.counters.values()))} values of counters"
        f" and {fields} fields agree in {', '.join(readers)}"
    )


main()
