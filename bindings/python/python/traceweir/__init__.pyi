"""Reads event traces (ETW) of Windows and Linux, and live sessions."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, TypeVar, Union, final, overload
from uuid import UUID

__version__: str
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

_T = TypeVar("_T")
_Path = Union[str, PathLike[str]]
_Paths = Union[_Path, Iterable[_Path]]
_Providers = Union[str, UUID, Iterable[Union[str, UUID]]]
_Events = Union[str, int, Iterable[Union[str, int]]]
_Numbers = Union[int, Iterable[int]]
_Moment = Union[datetime, timedelta, int, str]

class TraceError(Exception):
    """A trace, manifest or session that cannot be used. The text says why.

    Problems of the operating system, such as a missing file, are subclasses of OSError instead.
    """

class TraceWarning(UserWarning):
    """Damage or losses of a trace, or a missing source of schemas or symbols."""

@final
class Frame:
    """A frame of a call stack: an address and, if the trace was opened with symbols, a function.

    Inlined functions have frames of their own with the same address, the innermost first.
    """

    @property
    def address(self) -> int:
        """Address of the instruction, or the return address."""
    @property
    def module(self) -> str | None:
        """Name of the file of code; None if it is unknown."""
    @property
    def function(self) -> str | None:
        """Name of the function; None if it is unknown."""
    @property
    def offset(self) -> int | None:
        """Bytes between the start of the function, or of the module, and the address."""
    @property
    def file(self) -> str | None:
        """Path of the source file; None if it is unknown."""
    @property
    def line(self) -> int | None:
        """Line in the source file; None if it is unknown."""
    @property
    def is_inlined(self) -> bool:
        """Whether the function is inlined into that of the next frame."""

@final
class Event:
    """An event of a trace or of a live session.

    Attributes of the header are ready at once. Fields, message and stack are decoded when they are
    read. An event holds a copy of its own data and keeps no other event in memory.
    """

    @property
    def time(self) -> datetime:
        """Time of the event, in UTC, rounded down to microseconds; see time_ns."""
    @property
    def time_ns(self) -> int:
        """Time in nanoseconds since 1970-01-01 UTC; the resolution is 100 ns."""
    @property
    def ns_since_start(self) -> int:
        """Nanoseconds since the start of the first trace, by the clock of the trace."""
    @property
    def provider(self) -> str | None:
        """Name of the provider; None if it is unknown."""
    @property
    def provider_id(self) -> UUID:
        """GUID of the provider; for kernel events, of their class."""
    @property
    def name(self) -> str | None:
        """Name of the event, such as "Order" or "Process/Start"; None if no schema is known."""
    @property
    def id(self) -> int:
        """Id of the event."""
    @property
    def version(self) -> int:
        """Version of the event."""
    @property
    def channel(self) -> int:
        """Channel of the event."""
    @property
    def level(self) -> int:
        """Level: 1 critical, 2 error, 3 warning, 4 information, 5 verbose; 0 means "always"."""
    @property
    def opcode(self) -> int:
        """Opcode of the event; of a kernel event, its type."""
    @property
    def task(self) -> int:
        """Task of the event."""
    @property
    def keyword(self) -> int:
        """Keyword bits of the event."""
    @property
    def pid(self) -> int | None:
        """Id of the process that the event concerns; None if it is unknown."""
    @property
    def tid(self) -> int | None:
        """Id of the thread that the event concerns; None if it is unknown."""
    @property
    def header_pid(self) -> int | None:
        """Process id in the header of the event; None if there is none."""
    @property
    def header_tid(self) -> int | None:
        """Thread id in the header of the event; None if there is none."""
    @property
    def process(self) -> str | None:
        """Name of the program of the process that the event concerns; None if it is unknown."""
    @property
    def cpu(self) -> int:
        """Number of the processor."""
    @property
    def file_index(self) -> int:
        """Index of the trace in Trace.files."""
    @property
    def is_kernel(self) -> bool:
        """Whether this is an event of the kernel."""
    @property
    def describes_file(self) -> bool:
        """Whether this event describes the file: its header, or a process that wrote to it."""
    @property
    def activity_id(self) -> UUID | None:
        """Activity that the event belongs to; None if there is none."""
    @property
    def related_activity_id(self) -> UUID | None:
        """Related activity; None if there is none."""
    @property
    def extended(self) -> dict[str, str | int]:
        """Details of the writer that the session recorded: "sid", "session", "app", "start_key",
        "event_key" and "container"."""
    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the event by name."""
    @property
    def message(self) -> str | None:
        """The message of the event with its fields filled in; None if it has no message."""
    @property
    def stack(self) -> list[Frame] | None:
        """The call stack, innermost frame first; None if the event has none."""
    @property
    def error(self) -> str | None:
        """Why the event is not decoded, or not completely; None for a decoded event."""
    @property
    def payload(self) -> bytes:
        """The payload."""
    @property
    def extra(self) -> bytes:
        """The bytes of the payload after the last field."""
    def __getitem__(self, name: str, /) -> Any:
        """Returns a field by name. Decodes only this field."""
    def __contains__(self, name: object, /) -> bool:
        """Returns whether the event has a field of this name."""
    @overload
    def get(self, name: str) -> Any: ...
    @overload
    def get(self, name: str, default: _T) -> Any | _T:
        """Returns a field by name, or the default if the event has no such field."""
    def keys(self) -> list[str]:
        """Returns the names of the fields."""

@final
class TraceFileInfo:
    """What the header of a trace says."""

    @property
    def name(self) -> str:
        """Path of the file, escaped for display; for a ZIP archive followed by a colon and the name
        of the member."""
    @property
    def session(self) -> str:
        """Name of the session."""
    @property
    def size(self) -> int:
        """Number of bytes, unpacked."""
    @property
    def events_lost(self) -> int:
        """Number of events that the session lost."""
    @property
    def buffers_lost(self) -> int:
        """Number of buffers that the session lost."""
    @property
    def processors(self) -> int:
        """Number of processors of the machine."""
    @property
    def pointer_size(self) -> int:
        """Bytes of a pointer: 4 or 8."""
    @property
    def os_version(self) -> tuple[int, int, int]:
        """Version of the operating system: major, minor, build."""
    @property
    def is_finalised(self) -> bool:
        """Whether the session finalised the file."""
    @property
    def warnings(self) -> list[str]:
        """Damage and losses that show without reading the events."""
    @property
    def start(self) -> datetime:
        """When the trace starts, in UTC."""
    @property
    def end(self) -> datetime | None:
        """When the session ended, in UTC; None if the header has no end."""
    @property
    def boot(self) -> datetime | None:
        """When the machine started, in UTC; None if the header has no such time."""

@final
class Trace:
    """Opened traces. Iterating yields their events in the order of time; every iteration reads the
    traces again."""

    @property
    def files(self) -> list[TraceFileInfo]:
        """The opened traces; an archive may contain several."""
    @property
    def start(self) -> datetime:
        """When the earliest trace starts, in UTC."""
    @property
    def end(self) -> datetime | None:
        """When the latest session ended, in UTC; None if the header of a trace has no end."""
    @property
    def session(self) -> str:
        """Name of the session that wrote the first trace."""
    @property
    def host(self) -> str | None:
        """Name of the machine; None if no trace contains it. Only traces with kernel events can."""
    @property
    def events_lost(self) -> int:
        """Number of events that the sessions lost, by the headers of the traces."""
    @property
    def buffers_lost(self) -> int:
        """Number of buffers that the sessions lost, by the headers of the traces."""
    @property
    def warnings(self) -> list[str]:
        """Damage and losses; all of them after a complete iteration."""
    def to_arrow(
        self,
        layout: Literal["events"] = "events",
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int | None = None,
    ) -> ArrowStream:
        """Returns the events as an Arrow stream, for pyarrow, polars, pandas, DuckDB and every other
        library with the Arrow PyCapsule interface."""
    def __iter__(self) -> EventIterator:
        """Starts to read the events."""

@final
class ArrowStream:
    """The events of a trace as an Arrow stream. Every use of the stream reads the traces again."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Starts to read the traces, and returns the batches as a capsule "arrow_array_stream"."""
    def __arrow_c_schema__(self) -> Any:
        """Returns the schema as a capsule "arrow_schema"."""

@final
class EventIterator:
    """The events of a trace, in the order of time. Several threads may share an iterator."""

    def __iter__(self) -> EventIterator: ...
    def __next__(self) -> Event: ...

@final
class Watch:
    """Live events. Iterating yields them as they arrive, until the session ends or close() is
    called."""

    @property
    def session(self) -> str:
        """Name of the session."""
    @property
    def events_lost(self) -> int:
        """Number of events that were lost because this program was too slow."""
    @property
    def buffers_lost(self) -> int:
        """Number of buffers that were lost because this program was too slow."""
    def __iter__(self) -> Watch: ...
    def __next__(self) -> Event: ...
    def __enter__(self) -> Watch: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def wait(self, timeout: float) -> Event | None:
        """Waits for the next event. Returns None if no event arrives within this number of seconds,
        or if no event follows."""
    def stop(self) -> None:
        """Stops the temporary session. Iterating still yields the events that were written before."""
    def close(self) -> None:
        """Ends the watching, and the temporary session."""

def open(
    path: _Paths,
    *,
    providers: _Providers | None = None,
    events: _Events | None = None,
    level: int | str | None = None,
    keyword: int | str | None = None,
    pids: _Numbers | None = None,
    tids: _Numbers | None = None,
    cpus: _Numbers | None = None,
    start: _Moment | None = None,
    end: _Moment | None = None,
    text: str | None = None,
    manifests: _Paths | None = None,
    tmf: _Paths | None = None,
    pdb: _Paths | None = None,
    symbols: bool = False,
    symbol_paths: _Paths | None = None,
    join_stacks: bool = False,
    numeric: bool = False,
) -> Trace:
    """Opens traces: .etl files, and .zip and .gz archives of them. Several are read as one stream."""

def watch(
    session: str | Iterable[str | UUID] | None = None,
    *,
    providers: _Providers | None = None,
    events: _Events | None = None,
    level: int | str | None = None,
    keyword: int | str | None = None,
    pids: _Numbers | None = None,
    text: str | None = None,
    stacks: bool = False,
    manifests: _Paths | None = None,
    tmf: _Paths | None = None,
    pdb: _Paths | None = None,
    numeric: bool = False,
) -> Watch:
    """Watches live events, of a running session or of providers."""
