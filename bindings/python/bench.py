"""Measures how many events a second traceweir and dissect.etl read, in the same run.

Usage: python bench.py TRACE [ROUNDS]

The contestants take turns, so that a slow phase of the machine hits all of them. The output is one
JSON object with the median of each contestant in events a second.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import traceweir


def count_headers(path: str) -> int:
    """Reads the id and the processor of each event."""
    count = total = 0
    for event in traceweir.open(path):
        total += event.id + event.cpu
        count += 1
    return count


def count_only(path: str) -> int:
    """Makes the event objects and reads nothing of them."""
    count = 0
    for _ in traceweir.open(path):
        count += 1
    return count


def count_times(path: str) -> int:
    """Reads the time of each event as datetime."""
    count = 0
    for event in traceweir.open(path):
        event.time
        count += 1
    return count


def find_field(path: str) -> str:
    """Returns the name of the field that most events have."""
    counts: dict[str, int] = {}
    for number, event in enumerate(traceweir.open(path)):
        for name in event.keys():
            counts[name] = counts.get(name, 0) + 1
        if number > 20_000:
            break
    return max(counts, key=lambda name: counts[name])


def count_field(path: str, name: str) -> int:
    """Reads one field of each event that has it."""
    count = 0
    for event in traceweir.open(path):
        event.get(name)
        count += 1
    return count


def count_fields(path: str) -> int:
    """Reads all fields of each event."""
    count = 0
    for event in traceweir.open(path):
        event.fields
        count += 1
    return count


def count_dissect(path: str) -> int:
    """Reads the provider of each event with dissect.etl."""
    from dissect.etl.etl import ETL

    count = 0
    with open(path, "rb") as file:
        for record in ETL(file):
            record.event.provider_id()
            count += 1
    return count


def count_dissect_fields(path: str) -> int:
    """Reads all events and their fields with dissect.etl."""
    from dissect.etl.etl import ETL

    count = 0
    with open(path, "rb") as file:
        for record in ETL(file):
            try:
                record.event.event_values()
            except Exception:  # dissect.etl cannot decode every payload
                pass
            count += 1
    return count


def main() -> None:
    path = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    warnings.simplefilter("ignore")
    field = find_field(path)
    contestants: dict[str, Callable[[], int]] = {
        "traceweir: iterate": lambda: count_only(path),
        "traceweir: two attributes of the header": lambda: count_headers(path),
        "traceweir: time as datetime": lambda: count_times(path),
        f"traceweir: one field ({field})": lambda: count_field(path, field),
        "traceweir: all fields": lambda: count_fields(path),
    }
    versions = {"python": platform.python_version(), "traceweir": traceweir.__version__}
    try:
        versions["dissect.etl"] = version("dissect.etl")
        contestants["dissect.etl: provider"] = lambda: count_dissect(path)
        contestants["dissect.etl: all fields"] = lambda: count_dissect_fields(path)
    except PackageNotFoundError:
        print("dissect.etl is not installed: pip install dissect.etl", file=sys.stderr)
    if hasattr(traceweir.Trace, "to_arrow"):
        import pyarrow

        versions["pyarrow"] = pyarrow.__version__

        def count_arrow() -> int:
            reader = pyarrow.RecordBatchReader.from_stream(traceweir.open(path).to_arrow())
            return sum(batch.num_rows for batch in reader)

        contestants["traceweir: to_arrow"] = count_arrow
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            counts[name] = run()
            rates[name].append(counts[name] / (time.perf_counter() - began))
    result = {
        "trace": os.path.basename(path),
        "bytes": os.path.getsize(path),
        "rounds": rounds,
        "processors": os.cpu_count(),
        "versions": versions,
        "events": counts,
        "events_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
