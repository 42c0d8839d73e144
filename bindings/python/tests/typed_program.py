"""A program that uses the whole interface; the type checker reads it, and a test runs it."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import traceweir


def describe(trace: traceweir.Trace) -> list[str]:
    start: datetime = trace.start
    end: datetime | None = trace.end
    names = [f"{file.name} {file.session} {file.size}" for file in trace.files]
    lost: int = trace.events_lost + trace.buffers_lost
    return [*names, str(start), str(end), str(lost), trace.host or "", *trace.warnings]


def count(trace: traceweir.Trace) -> dict[tuple[str | None, str | None], int]:
    counts: dict[tuple[str | None, str | None], int] = {}
    for event in trace:
        key = (event.provider, event.name)
        counts[key] = counts.get(key, 0) + 1
        number: int = event.time_ns + event.keyword + event.cpu
        provider: UUID = event.provider_id
        value: Any = event.get("ProcessId", 0)
        fields: dict[str, Any] = event.fields
        for frame in event.stack or []:
            number += frame.address + (frame.line or 0)
        assert (number, provider, value, fields) is not None
    return counts


def main(paths: list[str]) -> None:
    trace = traceweir.open(map(Path, paths), level="verbose", start=timedelta(0), symbols=False)
    print("\n".join(describe(trace)))
    for (provider, name), number in count(trace).items():
        print(provider, name, number)


def watch(name: str) -> int:
    with traceweir.watch(name) as events:
        event: traceweir.Event | None = events.wait(1.0)
        return 0 if event is None else 1 + sum(1 for _ in events)


if __name__ == "__main__":
    main(sys.argv[1:])
