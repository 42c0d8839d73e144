"""Trace.to_arrow, read with pyarrow, polars, pandas and DuckDB."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest
import traceweir
from conftest import FIXTURES, PEAK_KIB, damage, schema_options

TRACES = sorted(path.stem for path in (FIXTURES / "etl").glob("*.etl"))


def fixture(name: str, **options: Any) -> traceweir.Trace:
    return traceweir.open(FIXTURES / "etl" / f"{name}.etl", **{**schema_options(name), **options})


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_rows_equal_events(trace: str) -> None:
    rows = pyarrow.table(fixture(trace).to_arrow()).to_pylist()
    events = list(fixture(trace))
    assert len(rows) == len(events) > 0
    lines = (FIXTURES / "expected" / f"{trace}.jsonl").read_text().rstrip("\n").split("\n")
    for row, event, line in itertools.zip_longest(rows, events, lines):
        assert row["time"].value == event.time_ns
        assert row["provider"] == event.provider and row["event"] == event.name
        assert row["provider_id"] == str(event.provider_id)
        assert (row["id"], row["version"], row["level"]) == (event.id, event.version, event.level)
        assert (row["opcode"], row["task"], row["keywords"]) == (event.opcode, event.task, event.keyword)
        assert (row["process_id"], row["thread_id"], row["cpu"]) == (event.pid, event.tid, event.cpu)
        assert row["process"] == event.process and row["message"] == event.message
        fields = json.loads(line)["fields"]
        assert (json.loads(row["payload"]) if row["payload"] else {}) == fields
        stack = event.stack and [frame.address for frame in event.stack]
        assert (row["stack"] or None) == (stack or None)


def test_all_libraries_read_the_stream() -> None:
    trace = fixture("kernel")
    count = sum(1 for _ in trace)
    starts = sum(event.name == "Process/Start" for event in trace)
    reader = pyarrow.RecordBatchReader.from_stream(trace.to_arrow())
    assert sum(batch.num_rows for batch in reader) == count
    frame = polars.DataFrame(trace.to_arrow())
    assert frame.height == count
    assert frame.filter(polars.col("event") == "Process/Start").height == starts
    data: pandas.DataFrame = pyarrow.table(trace.to_arrow()).to_pandas()
    assert len(data) == count and (data["event"] == "Process/Start").sum() == starts
    stream = pyarrow.RecordBatchReader.from_stream(trace.to_arrow())  # noqa: F841 (DuckDB finds it by name)
    query = "select count(*) filter (event = 'Process/Start'), count(*) from stream"
    assert duckdb.sql(query).fetchall() == [(starts, count)]


def test_criteria_and_columns_apply() -> None:
    stream = fixture("kernel", events="Process/*").to_arrow(columns=["event", "time"], batch_rows=3)
    assert stream.columns == ["time", "event"]
    assert pyarrow.schema(stream).names == ["time", "event"]
    table = pyarrow.table(stream)
    assert table.num_rows == len(list(fixture("kernel", events="Process/*"))) > 3
    assert all(name.startswith("Process/") for name in table["event"].to_pylist())
    assert max(len(batch) for batch in table.to_batches()) <= 3


def test_stream_can_be_used_again() -> None:
    stream = fixture("kernel").to_arrow()
    assert pyarrow.table(stream).equals(pyarrow.table(stream))


@pytest.mark.parametrize(
    ("options", "arguments", "text"),
    [
        ({}, {"layout": "pivot"}, "pivot"),
        ({}, {"columns": ["colour"]}, "colour.*time"),
        ({}, {"columns": []}, "empty"),
        ({}, {"columns": ["functions"]}, "symbols=True"),
        ({}, {"batch_rows": 0}, "batch_rows"),
        ({"numeric": True}, {}, "numeric"),
    ],
)
def test_unusable_arguments_are_explained(options: dict[str, Any], arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        fixture("kernel", **options).to_arrow(**arguments)


@pytest.mark.parametrize("arguments", [{"columns": 7}, {"columns": [7]}, {"columns": "time"}, {"batch_rows": "many"}])
def test_arguments_of_the_wrong_type_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(arguments))):
        fixture("kernel").to_arrow(**arguments)


def test_functions_are_a_column_with_symbols() -> None:
    assert "functions" in fixture("kernel", symbols=True).to_arrow().columns
    assert "functions" not in fixture("kernel").to_arrow().columns


@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_damage_is_known_after_reading() -> None:
    by_iteration, by_arrow = fixture("crashed"), fixture("crashed")
    events = len(list(by_iteration))
    assert pyarrow.table(by_arrow.to_arrow()).num_rows == events
    deadline = time.monotonic() + 5
    while by_arrow.warnings != by_iteration.warnings:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_damaged_traces_have_the_rows_of_their_events(trace: str, tmp_path: Path) -> None:
    whole = (FIXTURES / "etl" / f"{trace}.etl").read_bytes()
    damaged, random_numbers, rows = tmp_path / "damaged.etl", random.Random(trace), 0
    for _ in range(15):
        damaged.write_bytes(damage(whole, random_numbers))
        try:
            events = sum(1 for _ in traceweir.open(damaged))
        except (traceweir.TraceError, OSError) as error:
            assert "internal error" not in str(error)
            with pytest.raises(Exception, match="damaged.etl"):
                pyarrow.table(traceweir.open(damaged).to_arrow())
            continue
        assert pyarrow.table(traceweir.open(damaged).to_arrow()).num_rows == events
        rows += events
    assert rows > 0


def test_errors_reach_the_consumer(tmp_path: Path) -> None:
    path = tmp_path / "gone.etl"
    path.write_bytes((FIXTURES / "etl" / "kernel.etl").read_bytes())
    trace = traceweir.open(path)
    path.unlink()
    with pytest.raises(Exception, match="gone.etl"):
        pyarrow.table(trace.to_arrow())


def test_released_streams_end_their_threads(big_trace: Path) -> None:
    def count_threads() -> int:
        return len([name for name in os.listdir("/proc/self/task") if thread_name(name) in OWN_THREADS])

    def thread_name(name: str) -> str:
        try:
            return Path(f"/proc/self/task/{name}/comm").read_text().strip()
        except OSError:
            return ""

    for _ in range(5):
        reader = pyarrow.RecordBatchReader.from_stream(traceweir.open(big_trace).to_arrow())
        assert reader.read_next_batch().num_rows > 0
        del reader
    gc.collect()
    deadline = time.monotonic() + 10
    while count_threads() > 0:
        assert time.monotonic() < deadline, "threads outlive their streams"
        time.sleep(0.05)


OWN_THREADS = {"traceweir", "decode", "write"}


def test_other_threads_run_while_a_batch_is_read(big_trace: Path) -> None:
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    count = pyarrow.table(traceweir.open(big_trace, text="in no event").to_arrow()).num_rows
    stop.set()
    thread.join()
    assert count == 0 and ticks[0] > 3


def test_memory_is_bounded(big_trace: Path) -> None:
    program = (
        "import pyarrow, traceweir\n"
        f"trace = traceweir.open([{str(big_trace)!r}] * 3)\n"
        "rows = 0\n"
        "for batch in pyarrow.RecordBatchReader.from_stream(trace.to_arrow()):\n"
        "    rows += batch.num_rows\n"
        f"print(rows, {PEAK_KIB})\n"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    rows, resident_kib = map(int, output.stdout.split())
    assert rows > 1_000_000 and resident_kib < 512 << 10
