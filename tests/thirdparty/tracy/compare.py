"""Checks the events that driver.cpp received while busy.c ran.

    compare.py LINES BUSY          checks numbers, stacks and times
    compare.py LINES BUSY DUMP     also compares the events of busy.c's thread with `weir dump` of a parallel session

Prints a line of numbers. If something differs, prints the difference and exits with 1.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from kernel import check_counts, describe_stacks, fail, read_dump, read_kernel_lines, read_lines, unsigned


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
        received, dumped = find_received(groups, thread), find_dumped(read_dump(dump_path), thread)
        for kind, events in received.items():
            if sorted(events) != sorted(dumped[kind]):
                different = sorted(set(events) ^ set(dumped[kind]))
                fail(f"{kind}: Tracy has {len(events)}, weir has {len(dumped[kind])}, different: {different[:5]}")
        numbers = ", ".join(f"{len(events)} {kind}" for kind, events in received.items())
        text += f"; events of one thread equal to weir dump: {numbers}"
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
