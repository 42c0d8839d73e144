"""Reads event traces (ETW) of Windows and Linux, and live sessions.

    import traceweir

    trace = traceweir.open("trace.etl", providers="Contoso.*")
    for event in trace:
        print(event.time, event.name, event["Total"])
"""

from ._traceweir import (
    ArrowStream,
    Event,
    EventIterator,
    Frame,
    Trace,
    TraceError,
    TraceFileInfo,
    TraceWarning,
    Watch,
    __version__,
    open,
    watch,
)

__all__ = [
    "ArrowStream",
    "Event",
    "EventIterator",
    "Frame",
    "Trace",
    "TraceError",
    "TraceFileInfo",
    "TraceWarning",
    "Watch",
    "__version__",
    "open",
    "watch",
]
