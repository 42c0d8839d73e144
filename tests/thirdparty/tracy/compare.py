"""Checks the events that driver.cpp received while busy.c ran.

    compare.py LINES BUSY          checks numbers, stacks and times
    compare.py LINES BUSY DUMP     also compares the events of busy.c's thread with `weir dump` of a parallel session

The kernel takes the time of an event for each session, one after the other, and it samples for each session. So the
times of a switch differ slightly, and samples differ in time and stack.

Prints a line of numbers. If something differs, prints the difference and exits with 1.
"""

import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from kernel import check_counts, describe_stacks, fail, read_dump, read_kernel_lines, read_lines, unsigned

# The greatest median of the differences between the times of an event in two sessions, in nanoseconds. A single
# difference may be great: an interrupt or a hypervisor may come between the two readings of the clock.
MAX_MEDIAN_DIFFERENCE = 1_000_000


def check_times(groups, thread, begin, end):
    """Checks that the thread of busy.c ran between two readings of the clock that the session uses."""
    times = [int(values[0]) for values in groups["switch"] if thread in (int(values[1]), int(values[3]))]
    if min(times) < begin or max(times) > end:
        fail(f"events from {min(times)} to {max(times)}, clock from {begin} to {end}")


def find_received(groups, thread):
    """Returns the events of a thread that driver.cpp received."""
    switches = [(int(time), int(new), int(old)) for time, new, _, old in groups["switch"]]
    return {
        "switch": [values for values in switches if thread in values[1:]],
        "ready": [int(time) for time, woken in groups["ready"] if int(woken) == thread],
        "sample": [int(time) for time, running in groups["sample"] if int(running) == thread],
        "stack": [(int(time), frames) for time, owner, _, frames in groups["stack"] if unsigned(owner) == thread],
    }


def find_dumped(events, thread):
    """Returns the events of a thread in a trace with times in nanoseconds. `weir dump` prints times from the start of
    the trace; a stack has the time of its event, and the clock's value for it."""
    first = next(event for event in events if event["event"] == "StackWalk/Stack")
    start = first["fields"]["EventTimeStamp"] - round(first["ms"] * 1_000_000)
    found = {"switch": [], "ready": [], "sample": [], "stack": []}
    for event in events:
        fields, time = event["fields"], start + round(event["ms"] * 1_000_000)
        if event["event"] == "Thread/CSwitch" and thread in (fields["NewThreadId"], fields["OldThreadId"]):
            found["switch"].append((time, fields["NewThreadId"], fields["OldThreadId"]))
        elif event["event"] == "Thread/ReadyThread" and fields["ThreadId"] == thread:
            found["ready"].append(time)
        elif event["event"] == "PerfInfo/SampleProf" and fields["ThreadId"] == thread:
            found["sample"].append(time)
        elif event["event"] == "StackWalk/Stack" and fields["ThreadId"] == thread:
            found["stack"].append((fields["EventTimeStamp"], ",".join(fields["Stack"])))
    return found


def compare_sessions(received, dumped):
    """Compares the events of a thread in two sessions. Returns the numbers as text."""
    counts = {kind: (len(events), len(dumped[kind])) for kind, events in received.items()}
    for kind in ("switch", "ready"):
        if counts[kind][0] != counts[kind][1]:
            fail(f"{kind}: Tracy has {counts[kind][0]}, weir has {counts[kind][1]}")
        received[kind].sort()
        dumped[kind].sort()
    if not 0.9 < counts["sample"][0] / counts["sample"][1] < 1.1:
        fail(f"samples: Tracy has {counts['sample'][0]}, weir has {counts['sample'][1]}")
    differences = [abs(ours - theirs) for ours, theirs in zip(dumped["ready"], received["ready"])]
    received_stacks, dumped_stacks = dict(received["stack"]), dict(dumped["stack"])
    stacks = 0
    for theirs, ours in zip(received["switch"], dumped["switch"]):
        differences.append(abs(ours[0] - theirs[0]))
        frames = received_stacks.get(theirs[0]), dumped_stacks.get(ours[0])
        if theirs[1:] != ours[1:] or frames[0] != frames[1]:
            fail(f"switch: Tracy has {theirs} with stack {frames[0]}, weir has {ours} with stack {frames[1]}")
        stacks += frames[0] is not None
    median = statistics.median(differences)
    if median > MAX_MEDIAN_DIFFERENCE:
        fail(f"the times of events differ by {median} ns")
    if stacks < counts["switch"][0] // 4:
        fail(f"only {stacks} of {counts['switch'][0]} switches have a stack")
    return (f"; of one thread as in a parallel session of weir: {counts['switch'][0]} switches in order, {stacks} of them "
            f"with equal stacks, {counts['ready'][0]} wake-ups; times differ by {median / 1000:.1f} us; "
            f"{counts['sample'][0]} and {counts['sample'][1]} samples")


def main(lines_path, busy_path, dump_path=None):
    groups = read_kernel_lines(lines_path)
    begin, end, nanoseconds = map(int, groups["clock"][0])
    thread = int(read_lines(busy_path)[0][0])
    if thread not in (int(values[1]) for values in groups["thread"]):
        fail(f"the start of thread {thread} is missing")
    check_counts(groups, busy_path, (end - begin) / (nanoseconds / 1_000_000))
    check_times(groups, thread, begin, end)
    text = describe_stacks(groups)
    if dump_path is not None:
        text += compare_sessions(find_received(groups, thread), find_dumped(read_dump(dump_path), thread))
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
