"""The arguments of traceweir.open."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
import traceweir
from conftest import FIXTURES

TRACE = FIXTURES / "etl" / "kernel.etl"


def read(**options: object) -> list[traceweir.Event]:
    return list(traceweir.open(TRACE, **options))  # type: ignore[arg-type]


EVENTS = read()


@pytest.mark.parametrize(
    ("options", "accepts"),
    [
        ({"events": "Process/*"}, lambda event: (event.name or "").startswith("Process/")),
        ({"events": ["Process/Start", "Thread/Start"]}, lambda event: event.name in ("Process/Start", "Thread/Start")),
        ({"events": 36}, lambda event: event.opcode == 36),
        ({"pids": 1200}, lambda event: 1200 in (event.pid, event.header_pid)),
        ({"pids": [1200, 4]}, lambda event: {1200, 4} & {event.pid, event.header_pid}),
        ({"tids": 1204}, lambda event: 1204 in (event.tid, event.header_tid)),
        ({"cpus": 1}, lambda event: event.cpu == 1),
        ({"providers": "Windows Kernel (Process)"}, lambda event: (event.name or "").startswith("Process/")),
        (
            {"providers": UUID("3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c")},
            lambda event: str(event.provider_id) == "3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c",
        ),
        (
            {"providers": ["3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c", "Nobody"]},
            lambda event: str(event.provider_id) == "3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c",
        ),
        ({"start": timedelta(milliseconds=1)}, lambda event: event.ns_since_start >= 1_000_000),
        ({"start": "1ms", "end": "2ms"}, lambda event: 1_000_000 <= event.ns_since_start <= 2_000_000),
        (
            {"end": datetime(2024, 5, 1, 12, 0, 0, 1000, tzinfo=timezone(timedelta(hours=2)))},
            lambda event: event.time <= datetime(2024, 5, 1, 10, 0, 0, 1000, tzinfo=timezone.utc),
        ),
        ({"end": EVENTS[5].time_ns}, lambda event: event.time_ns <= EVENTS[5].time_ns),
        ({"end": "2024-05-01T10:00:00.001Z"}, lambda event: event.ns_since_start <= 1_000_000),
        ({"text": "SHELL.exe"}, None),
        ({"level": 0}, lambda event: event.level == 0),
        ({"level": "warning"}, lambda event: event.level <= 3),
        ({"keyword": "0x0"}, lambda event: False),
    ],
)
def test_criteria_select_events(options: dict[str, object], accepts: Callable[[traceweir.Event], object]) -> None:
    found = [(event.time_ns, event.name, event.payload) for event in read(**options)]
    if accepts is None:
        assert 0 < len(found) < len(EVENTS)
        return
    expected = [(event.time_ns, event.name, event.payload) for event in EVENTS if accepts(event)]
    assert found == expected


def test_criteria_select_some_and_reject_some() -> None:
    for options in ({"events": "Process/*"}, {"pids": 1200}, {"cpus": 1}, {"start": "1ms"}, {"text": "shell"}):
        assert 0 < len(read(**options)) < len(EVENTS), options


@pytest.mark.parametrize(
    ("options", "exception", "text"),
    [
        ({"level": "loud"}, ValueError, "'loud'|\"loud\""),
        ({"level": 256}, ValueError, "0 to 255"),
        ({"level": True}, ValueError, "0 to 255"),
        ({"keyword": -1}, ValueError, "2\\*\\*64"),
        ({"keyword": "many"}, ValueError, "many"),
        ({"pids": [-1]}, ValueError, "-1"),
        ({"pids": "me"}, ValueError, "'me'"),
        ({"start": "yesterday"}, ValueError, "yesterday"),
        ({"start": 1.5}, TypeError, "float"),
        ({"start": datetime(2024, 5, 1)}, ValueError, "time zone"),
        ({"providers": ""}, ValueError, "empty"),
        ({"providers": 7}, TypeError, "int"),
        ({"events": [None]}, TypeError, "NoneType"),
        ({"manifests": 7}, TypeError, "int"),
        ({"colour": "red"}, TypeError, "colour"),
        ({"manifests": "/no/such/file.man"}, FileNotFoundError, "file.man"),
        ({"pdb": "/no/such/file.pdb"}, FileNotFoundError, "file.pdb"),
        ({"manifests": TRACE}, traceweir.TraceError, "kernel.etl"),
    ],
)
def test_unusable_arguments_are_explained(
    options: dict[str, object], exception: type[Exception], text: str
) -> None:
    with pytest.raises(exception, match=text):
        read(**options)


def test_paths_that_cannot_be_opened_raise_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        traceweir.open(tmp_path / "missing.etl")
    assert caught.value.errno == 2 and caught.value.filename == str(tmp_path / "missing.etl")
    with pytest.raises(FileNotFoundError):
        traceweir.open([TRACE, tmp_path / "folder" / "missing.etl"])
    with pytest.raises(ValueError, match="no path"):
        traceweir.open([])
    with pytest.raises(IsADirectoryError):
        traceweir.open(tmp_path)
    with pytest.raises(TypeError):
        traceweir.open(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="file objects"):
        traceweir.open(io.BytesIO())  # type: ignore[arg-type]


def test_files_that_are_no_traces_raise_trace_errors(tmp_path: Path) -> None:
    for content, text in ((b"", "empty"), (b"time,value\n1,2\n", "text file"), (b"PK\3\4" + bytes(50), "ZIP")):
        path = tmp_path / "file.etl"
        path.write_bytes(content)
        with pytest.raises(traceweir.TraceError, match=text):
            traceweir.open(path)


def test_first_iteration_reads_the_file_that_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "copy.etl"
    shutil.copy(TRACE, path)
    trace = traceweir.open(str(path))
    path.unlink()
    assert len(list(trace)) == len(EVENTS)
    with pytest.raises(FileNotFoundError):
        iter(trace)


def test_archives_are_read(tmp_path: Path) -> None:
    import gzip
    import zipfile

    packed = tmp_path / "packed.etl.gz"
    packed.write_bytes(gzip.compress(TRACE.read_bytes()))
    assert len(list(traceweir.open(packed))) == len(EVENTS)
    archive = tmp_path / "traces.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for name in ("a.etl", "b.etl"):
            writer.write(TRACE, name)
    trace = traceweir.open(archive)
    assert [file.name.rpartition(":")[2] for file in trace.files] == ["a.etl", "b.etl"]
    assert len(list(trace)) == 2 * len(EVENTS)
