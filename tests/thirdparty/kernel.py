"""Checks of kernel events that a consumer received while busy.c ran.

A consumer prints one line for each event:

    switch TIME NEW_THREAD PROCESSOR OLD_THREAD
    ready TIME THREAD
    sample TIME THREAD ...
    stack TIME THREAD PROCESS ...
"""

import collections
import json
import sys

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


def read_kernel_lines(lines_path):
    """Groups the consumer's lines by their first word."""
    groups = collections.defaultdict(list)
    for word, *values in read_lines(lines_path):
        groups[word].append(values)
    return groups


def check_counts(groups, busy_path, ticks_per_ms=1_000_000):
    """Compares the switches and samples of the thread of busy.c with the numbers that it wrote itself."""
    thread, switches, cpu_us = map(int, read_lines(busy_path)[0])
    found = sum(int(values[3]) == thread for values in groups["switch"])
    # The thread wrote its numbers just before it ended.
    if not switches < found <= switches + MAX_SWITCHES_AT_END:
        fail(f"{found} switches from thread {thread}, which counted {switches} before it ended")
    # The thread's own processor time leaves out time that a hypervisor took. The switches contain it. Samples may come
    # late in it, or not at all.
    running_ms, started = 0, None
    for time, new, _, old in sorted(groups["switch"], key=lambda values: int(values[0])):
        if int(new) == thread:
            started = int(time)
        elif int(old) == thread and started is not None:
            running_ms += (int(time) - started) / ticks_per_ms
            started = None
    samples = sum(int(values[1]) == thread for values in groups["sample"])
    if not (cpu_us / 1000 * 0.95 < running_ms and cpu_us / 1000 * 0.8 < samples < running_ms * 1.2):
        fail(f"thread {thread} ran {running_ms} ms by its switches, {cpu_us / 1000} ms by its own clock, "
             f"and has {samples} samples of 1 ms")
    woken = sum(int(values[1]) == thread for values in groups["ready"])
    if not 0 < woken <= found:
        fail(f"thread {thread} was woken {woken} times, and {found} times switched from")


def describe_stacks(groups):
    """Checks that each stack belongs to a sample or switch of its time and thread, and that at least nine in ten of
    these have one. Returns the numbers as text."""
    owners = {(values[0], unsigned(values[1])) for values in groups["sample"] + groups["switch"]}
    stacks = {(values[0], unsigned(values[1])) for values in groups["stack"]}
    if not stacks or stacks - owners:
        fail(f"stacks without an event: {len(stacks - owners)} of {len(stacks)}, {sorted(stacks - owners)[:5]}")
    words = []
    for kind in ("sample", "switch"):
        events = [(values[0], unsigned(values[1])) for values in groups[kind]]
        # Nothing is on the stack of the idle thread but the idle loop, which some machines leave out.
        events = [event for event in events if event[1] != 0]
        found = sum(event in stacks for event in events)
        if len(events) < 100 or found < len(events) * 9 // 10:
            fail(f"{found} of {len(events)} events of the kind {kind} have a stack")
        words.append(f"{found} of {len(events)} {kind} events with stacks")
    return ", ".join(words) + f", {len(groups['ready'])} ready events"


def unsigned(text):
    return int(text) & 0xFFFF_FFFF
