"""Compares the output of Driver.cs with `weir dump --format jsonl`.

    compare.py events EVENTS DUMP
    compare.py live LINES COUNT
    compare.py kernel-live LINES BUSY
    compare.py tracelog LINES DUMP

Each command prints a line of numbers if the two agree. Otherwise it prints the differences and exits with 1.
"""

import collections
import datetime
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from kernel import check_counts, describe_stacks, fail, read_dump, read_kernel_lines, read_lines, unsigned

# The id of events that have only an opcode.
CLASSIC_ID = 0xFFFF
# The ids that TraceEvent assigns to TraceLogging events, which are known by name only.
TRACELOGGING_IDS = range(0xFD00, 0xFF00)
# TraceEvent and weir round times to 100 ns, each on its own.
ROUNDING = 2
# TraceEvent reads two clocks one after the other to convert times of live events, in units of 100 ns.
CLOCK_ERROR = 20_000


def filetime(text):
    """Converts a time like 2020-02-17T12:48:30.4203138Z to units of 100 ns since 1601."""
    seconds, fraction = text.rstrip("Z").split(".")
    since = datetime.datetime.fromisoformat(seconds) - datetime.datetime(1601, 1, 1)
    return (since.days * 86400 + since.seconds) * 10_000_000 + int(fraction)


def compare_events(events_path, dump_path):
    received, dumped = collections.defaultdict(list), collections.defaultdict(list)
    for words in read_lines(events_path):
        guid, number, version, level, opcode, task, keywords, pid, tid, cpu, size, time = words
        kind = (guid, int(version), int(level), int(opcode), int(keywords, 16), int(cpu), int(size))
        received[kind].append((int(number), int(task), int(pid), int(tid), int(time)))
    for event in read_dump(dump_path):
        numbers = (event[name] for name in ("version", "level", "opcode"))
        kind = (event["guid"], *numbers, int(event["keywords"], 16), event["cpu"], event["len"])
        dumped[kind].append(event)

    differences = []
    for kind in received.keys() | dumped.keys():
        if len(received[kind]) != len(dumped[kind]):
            differences.append(f"{kind}: TraceEvent has {len(received[kind])}, weir has {len(dumped[kind])}")
        for ours, theirs in zip(dumped[kind], received[kind]):
            if not is_same(ours, *theirs):
                differences.append(f"{kind}: TraceEvent has {theirs}, weir has {ours}")
    if differences:
        fail("\n".join(sorted(differences)[:20]) + f"\n{len(differences)} differences")
    print(sum(len(events) for events in received.values()))


def is_same(event, number, task, pid, tid, time):
    """Returns whether an event of `weir dump` and an event of TraceEvent with these values are the same."""
    if number == CLASSIC_ID or number in TRACELOGGING_IDS:
        number, task = event["id"], event["task"]
    # For some kernel events, TraceEvent returns the process and thread that the payload names.
    owner = event.get("attributed", event)
    return (
        (number, task) == (event["id"], event["task"])
        and pid in (event["pid"], owner["pid"])
        and tid in (event["tid"], owner["tid"], -1)
        and abs(time - filetime(event["time"])) <= ROUNDING
    )


def compare_live(lines_path, count):
    """Checks the names, values and times of the events of writer.c."""
    expected = [("ThirdParty.TraceLogging", "Letter"), ("ThirdParty-Manifest", "Delivery")]
    written = [words for words in read_lines(lines_path) if words[0] in (name for name, _ in expected)]
    before, times = [], []
    for number, (provider, event, time, *fields) in enumerate(written):
        values = dict(field.split("=") for field in fields)
        if (provider, event) != expected[number % 2] or list(values) != ["Number", "Before", "Address"]:
            fail(f"event {number} is {provider}/{event} {fields}")
        if values["Number"] != str(number) or values["Address"] != "Fleet_Street":
            fail(f"event {number} has the values {values}")
        before.append(int(values["Before"]))
        times.append(int(time))
    if len(written) != int(count):
        fail(f"{len(written)} of {count} events arrived")
    # An event is written after its program read the time, and before the program read the time for the next event.
    early = max(earliest - time for earliest, time in zip(before, times))
    late = max(time - latest for latest, time in zip(before[1:], times))
    if max(early, late) > CLOCK_ERROR:
        fail(f"times are up to {early / 10} us too early, {late / 10} us too late")
    print(f"{len(written)} of {count} events, times at most {max(early, late, 0) / 10_000} ms off")


def compare_kernel_live(lines_path, busy_path):
    """Checks the numbers of events of busy.c, and that each stack belongs to a sample or switch of its time and thread."""
    groups = read_kernel_lines(lines_path)
    if groups["lost"] != [["0"]]:
        fail(f"lost events: {groups['lost']}")
    if not any("busy" in values for values in groups["process"]):
        fail("the start of the process busy is missing")
    check_counts(groups, busy_path)
    print(describe_stacks(groups))


def compare_tracelog(lines_path, dump_path):
    """Checks that a TraceLog has the samples and switches of the trace, each with the frames that follow it there."""
    groups = read_kernel_lines(lines_path)
    start = int(groups["start"][0][0])
    dumped = {"sample": [], "switch": []}
    frames = collections.defaultdict(list)
    for event in read_dump(dump_path):
        fields = event["fields"]
        time = start + round(event["ms"] * 1_000_000)
        if event["event"] == "PerfInfo/SampleProf":
            dumped["sample"].append((time, fields["ThreadId"]))
        elif event["event"] == "Thread/CSwitch":
            dumped["switch"].append((time, fields["NewThreadId"]))
        elif event["event"] == "StackWalk/Stack":
            frames[fields["EventTimeStamp"], fields["ThreadId"]] += fields["Stack"]
    for kind, events in dumped.items():
        received = [(int(time), unsigned(thread)) for time, thread, *_ in groups[kind]]
        if sorted(received) != sorted(events):
            wrong = set(received) ^ set(events)
            fail(f"{kind}: TraceLog has {len(received)}, weir has {len(events)}, different: {sorted(wrong)[:5]}")
        for time, thread, _, stack in groups[kind]:
            ours = ",".join(frames[int(time), unsigned(thread)]) or "-"
            if stack != ours:
                fail(f"{kind} at {time} of thread {thread}: TraceLog has the stack {stack}, weir has {ours}")
    inclusive, exclusive = map(int, map(float, groups["sum"][0]))
    if not inclusive == exclusive == len(dumped["sample"]):
        fail(f"{len(dumped['sample'])} samples, {inclusive} at the root of the tree, {exclusive} in its nodes")
    print(f"{inclusive} samples = sum of exclusive, {len(dumped['switch'])} switches, all stacks equal")


if __name__ == "__main__":
    commands = {
        "events": compare_events,
        "live": compare_live,
        "kernel-live": compare_kernel_live,
        "tracelog": compare_tracelog,
    }
    commands[sys.argv[1]](*sys.argv[2:])
