"""Compares a trace with the recording that it was imported from, as perf reads it."""

import collections
import json
import re
import subprocess
import sys

# The line of an event: pid/tid time: event:
HEAD = re.compile(r"^\s*(-?\d+)/(-?\d+)\s+(\d+)\.(\d{9}):\s+(\S+?):\s*$")
# The line before a sample in a dump, and a line of its call chain.
DUMP_HEAD = re.compile(r"^(?:-?\d+ )?(\d+) 0x[0-9a-f]+ \[0x[0-9a-f]+\]: PERF_RECORD_SAMPLE\([^)]*\): (-?\d+)/(-?\d+):")
DUMP_FRAME = re.compile(r"^\.{5}\s+\d+: ([0-9a-f]{16})$")
# The markers between the parts of a call chain.
FIRST_MARKER = 2**64 - 4095
# The user part of a stack ends before an address of the kernel.
KERNEL_HALF = 2**63


def run(*command):
    """Returns the output of a program. Exit status 3 and 4 mean damage and losses."""
    result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert result.returncode in (0, 3, 4), (command, result.stderr)
    return result.stdout


def read_script(recording):
    """Yields event, tid and time in nanoseconds of each sample, as perf prints them."""
    for line in run("perf", "script", "--ns", "-F", "pid,tid,time,event", "-i", recording).splitlines():
        head = HEAD.match(line)
        if head:
            yield head[5], int(head[2]), int(head[3]) * 10**9 + int(head[4])


def read_chains(recording):
    """Returns the call chains of all samples by time in nanoseconds and thread."""
    chains, frames = collections.defaultdict(list), []
    for line in run("perf", "script", "-D", "-i", recording).splitlines():
        head = DUMP_HEAD.match(line)
        if head:
            frames = []
            chains[int(head[1]), int(head[3])].append(frames)
        frame = DUMP_FRAME.match(line)
        if frame:
            frames.append(int(frame[1], 16))
    return chains


def clean(frames):
    """Returns frames as an import keeps them: without markers and without invalid user frames."""
    kept, is_user = [], False
    for frame in frames:
        if frame >= FIRST_MARKER or frame == 0:
            continue
        if frame < KERNEL_HALF:
            is_user = True
        elif is_user:
            break
        kept.append(frame)
    return tuple(kept)


def main():
    weir, recording, trace = sys.argv[1:4]
    samples = list(read_script(recording))
    names = collections.Counter(name.split(":")[-1] if name.startswith("sched:") else name.split(":")[0] for name, _, _ in samples)

    counts = collections.Counter()
    stacks = collections.defaultdict(list)
    # Texts may hold characters that Python takes for line ends.
    for line in filter(None, run(weir, "dump", trace, "--format", "jsonl", "--numeric").split("\n")):
        event = json.loads(line)
        counts[event["event"]] += 1
        if event["event"] == "StackWalk/Stack":
            fields = event["fields"]
            key = (int(fields["EventTimeStamp"]), fields["ThreadId"])
            stacks[key].extend(int(frame, 16) for frame in fields["Stack"])

    pairs = {
        "cpu-clock": "PerfInfo/SampleProf",
        "page-faults": "PerfInfo/PmcCounterProf",
        "sched_switch": "Thread/CSwitch",
        "sched_wakeup": "Thread/ReadyThread",
        "sched_stat_runtime": "sched_stat_runtime",
    }
    for name, event in pairs.items():
        assert counts[event] == names[name], f"{event}: {counts[event]}, perf has {names[name]} of {name}"

    # Stacks of samples; those of switches belong to a later time. A time at which a thread has
    # several samples does not tell which stack belongs to which.
    chains = read_chains(recording)
    compared = 0
    for name, tid, time in samples:
        frames = [clean(chain) for chain in chains[time, tid]]
        if name.split(":")[0] == "cpu-clock" and len(frames) == 1 and frames[0]:
            have = tuple(stacks.get((time, tid), ()))
            # A sample with a copy of the user stack has the user function as its only user frame.
            if have[: len(frames[0])] != frames[0] or len(have) > len(frames[0]) + 1:
                raise AssertionError((time, tid, list(map(hex, have)), list(map(hex, frames[0]))))
            compared += 1

    # Functions of the program, by their own samples.
    expected = collections.Counter()
    report = run("perf", "report", "-i", recording, "--no-children", "-g", "none", "-n", "--stdio", "--percentage", "absolute",
                 "-F", "sample,symbol,comm", "--comm", "busy,work", "-t", "|")
    is_clock = False
    for line in report.splitlines():
        if line.startswith("# Samples:"):
            is_clock = "cpu-clock" in line
        fields = [field.strip() for field in line.split("|")]
        if is_clock and len(fields) == 3 and fields[0].isdigit():
            expected[re.sub(r"^\[[.k]\]\s*", "", fields[1])] += int(fields[0])
    rows = [json.loads(line) for line in run(weir, "report", "cpu", trace, "--json", "--top", "0", "--process", "busy", "--process", "work").splitlines()]
    functions = collections.Counter()
    for row in rows:
        if row["by"] == "function" and row["function"]:
            functions[row["function"]] += row["own"]
    for symbol in ("spin_inner", "spin_other"):
        have, want = functions[symbol], expected[symbol]
        assert have == want and have > 0, f"{symbol}: {have} samples, perf has {want}"
    print(f"{trace}: {sum(names.values())} events of perf, {compared} stacks are equal")


main()
