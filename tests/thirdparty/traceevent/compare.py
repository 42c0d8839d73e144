"""Compares the output of Driver.cs with `weir dump --format jsonl`.

    compare.py events EVENTS DUMP
    compare.py live LINES COUNT
    compare.py kernel-live LINES BUSY
    compare.py tracelog LINES DUMP

Each command prints a line of numbers if the two agree. Otherwise it prints the differences and exits with 1.
"""

import collections
import datetime
import json
import re
import sys

# The id of events that have only an opcode.
CLASSIC_ID = 0xFFFF
# The ids that TraceEvent assigns to TraceLogging events, which are known by name only.
TRACELOGGING_IDS = range(0xFD00, 0xFF00)
# TraceEvent and weir round times to 100 ns, each on its own.
ROUNDING = 2
# TraceEvent reads two clocks one after the other to convert times of live events, in units of 100 ns.
CLOCK_ERROR = 20_000
# How often a thread may be switched from while it ends.
MAX_SWITCHES_AT_END = 5


def fail(message):
    print(message)
    sys.exit(1)


def read_lines(path):
    with open(path) as lines:
        return [line.split() for line in lines]


def read_dump(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


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


def read_kernel_lines(lines_path):
    """Groups the driver's lines by their first word."""
    groups = collections.defaultdict(list)
    for word, *values in read_lines(lines_path):
        groups[word].append(values)
    return groups


def compare_kernel_live(lines_path, busy_path):
    """Checks the numbers of events of busy.c, and that each stack belongs to a sample or switch of its time and thread."""
    groups = read_kernel_lines(lines_path)
    if groups["lost"] != [["0"]]:
        fail(f"lost events: {groups['lost']}")
    if not any("busy" in values for values in groups["process"]):
        fail("the start of the process busy is missing")
    check_counts(groups, busy_path)
    owners = {(values[0], unsigned(values[1])) for values in groups["sample"] + groups["switch"]}
    stacks = {(values[0], unsigned(values[1])) for values in groups["stack"]}
    if not stacks or stacks - owners:
        fail(f"stacks without an event: {len(stacks - owners)} of {len(stacks)}, {sorted(stacks - owners)[:5]}")
    print_stack_shares(groups, stacks)


def check_counts(groups, busy_path):
    """Compares the switches and samples of the thread of busy.c with the numbers that it wrote itself."""
    thread, switches, cpu_us = map(int, read_lines(busy_path)[0])
    found = sum(int(values[3]) == thread for values in groups["switch"])
    # The thread wrote its numbers just before it ended.
    if not switches < found <= switches + MAX_SWITCHES_AT_END:
        fail(f"{found} switches from thread {thread}, which counted {switches} before it ended")
    # The thread's own processor time leaves out time that a hypervisor took. The switches and the samples do not.
    running_ms, started = 0, None
    for time, new, _, old in sorted(groups["switch"], key=lambda values: int(values[0])):
        if int(new) == thread:
            started = int(time)
        elif int(old) == thread and started is not None:
            running_ms += (int(time) - started) / 1_000_000
            started = None
    samples = sum(int(values[1]) == thread for values in groups["sample"])
    if not (cpu_us / 1000 * 0.95 < running_ms and 0.8 < samples / running_ms < 1.2):
        fail(f"thread {thread} ran {running_ms} ms by its switches, {cpu_us / 1000} ms by its own clock, "
             f"and has {samples} samples of 1 ms")
    woken = sum(int(values[1]) == thread for values in groups["ready"])
    if not 0 < woken <= found:
        fail(f"thread {thread} was woken {woken} times, and {found} times switched from")


def print_stack_shares(groups, stacks):
    """Prints how many samples and switches have stacks. Fails if fewer than nine in ten have one."""
    words = []
    for kind in ("sample", "switch"):
        events = [(values[0], unsigned(values[1])) for values in groups[kind]]
        # Nothing is on the stack of the idle thread but the idle loop, which some machines leave out.
        events = [event for event in events if event[1] != 0]
        found = sum(event in stacks for event in events)
        if len(events) < 100 or found < len(events) * 9 // 10:
            fail(f"{found} of {len(events)} events of the kind {kind} have a stack")
        words.append(f"{found} of {len(events)} {kind} events with stacks")
    print(", ".join(words) + f", {len(groups['ready'])} ready events")


def unsigned(text):
    return int(text) & 0xFFFF_FFFF


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
