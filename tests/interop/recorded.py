"""Reads a recorded session with two independent readers and compares its events with those offered.

    recorded.py FILE EVENTS THREADS     recorded from the example `ticker`, which numbers the events
                                        of each thread

Each reader must find only offered events, and none twice. The number of missing events must be the
number that the file counts as lost.
"""

import struct
import sys
from collections import Counter
from pathlib import Path
from uuid import UUID

from dissect.etl.etl import ETL
from etl.etl import IEtlFileObserver, build_from_stream

# The name hash of "Example-Ticker".
PROVIDER = UUID("788c1428-e0a2-523e-bb8b-cf3ea983707d")

# Offset of the count of lost events in the log-file header, after the headers of buffer and event.
EVENTS_LOST_OFFSET = 0x48 + 0x20 + 0x30


def fail(message):
    print(f"interop: DIFFERENT: {message}")
    sys.exit(1)


def thread_and_number(payload):
    """Returns thread and number, the last twelve bytes.

    A reader may leave extended items in front of a payload.
    """
    return struct.unpack("<IQ", payload[-12:])


def read_with_dissect(path):
    found = Counter()
    with open(path, "rb") as file:
        for record in ETL(file):
            header = record.header
            provider = getattr(getattr(header, "header", None), "ProviderId", None)
            if provider is not None and UUID(bytes_le=bytes(provider)) == PROVIDER:
                found[thread_and_number(bytes(header.payload))] += 1
    return found


class Collector(IEtlFileObserver):
    def __init__(self):
        self.found = Counter()

    def on_event_record(self, event):
        self.found[thread_and_number(bytes(event.source.user_data))] += 1

    def on_trace_record(self, event):
        pass

    def on_perfinfo_trace(self, event):
        pass

    def on_system_trace(self, event):
        pass

    def on_win_trace(self, event):
        fail("etl-parser mistakes an event for a message")


def read_with_etl_parser(path):
    collector = Collector()
    build_from_stream(path.read_bytes()).parse(collector)
    return collector.found


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: recorded.py FILE EVENTS THREADS")
    path, events, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    (lost,) = struct.unpack_from("<I", path.read_bytes(), EVENTS_LOST_OFFSET)
    offered = {(thread, number) for thread in range(threads) for number in range(events)}
    for reader, found in (("dissect.etl", read_with_dissect(path)), ("etl-parser", read_with_etl_parser(path))):
        if duplicates := [key for key, count in found.items() if count > 1]:
            fail(f"{path.name}, {reader}: {len(duplicates)} events occur twice, such as {duplicates[0]}")
        if unexpected := found.keys() - offered:
            fail(f"{path.name}, {reader}: {len(unexpected)} events were never offered, such as {unexpected.pop()}")
        missing = len(offered) - len(found)
        if missing != lost:
            fail(f"{path.name}, {reader}: {missing} events are missing, the file counts {lost} as lost")
        print(f"interop: {reader} finds {len(found)} of {len(offered)} events of {path.name}, {lost} are counted as lost")


if __name__ == "__main__":
    main()
