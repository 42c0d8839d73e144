"""Reads the fixtures and real traces, and compares all events with those of weir dump."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import pytest
import traceweir
from comparison import assert_equal_event, assert_equal_value
from conftest import FIXTURES, dump, schema_options

TRACES = sorted(path.stem for path in (FIXTURES / "etl").glob("*.etl"))
SAMPLES = [
    "AMSITrace.etl",
    "SelfDescribingSingleEvent.etl",
    "ShutdownPerfDiagLogger.etl",
    "WindowsUpdate.20251008.etl",
    "gcevents.etl",
    "gcrundownevents.etl",
    "net.4.5.2.x64.etl.zip",
    "primitive-types.etl",
]


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_events_of_fixture_equal_recorded_output(trace: str) -> None:
    lines = (FIXTURES / "expected" / f"{trace}.jsonl").read_text().rstrip("\n").split("\n")
    expected = [json.loads(line) for line in lines]
    events = list(traceweir.open(FIXTURES / "etl" / f"{trace}.etl", **schema_options(trace)))
    assert len(events) == len(expected) > 0
    for number, (event, expected_event) in enumerate(zip(events, expected)):
        assert_equal_event(event, expected_event, f"{trace} event {number}")


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_fields_read_one_by_one_equal_fields_read_together(trace: str) -> None:
    path, options = FIXTURES / "etl" / f"{trace}.etl", schema_options(trace)
    count = 0
    for whole, single in zip(traceweir.open(path, **options), traceweir.open(path, **options)):
        for name, value in whole.fields.items():
            # repr, because NaN differs from itself.
            assert repr(single[name]) == repr(value)
            assert name in single and repr(single.get(name)) == repr(value)
            count += 1
        assert "no such field" not in single and single.get("no such field", 7) == 7
        with pytest.raises(KeyError, match="no such field"):
            single["no such field"]
        assert single.keys() == list(whole.fields)
    assert count > 0 or trace == "undecodable"


def open_sample(samples: Path, name: str) -> tuple[Path, list[Path]]:
    path = samples / name
    assert path.exists(), f"{name} is missing in {samples}"
    needs_runtime = name.startswith(("gc", "net"))
    return path, [samples / "clretwrc.dll"] if needs_runtime else []


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")
def test_events_of_sample_equal_those_of_the_command(weir: str, samples: Path, name: str) -> None:
    path, manifests = open_sample(samples, name)
    options = [part for manifest in manifests for part in ("--manifest", manifest)]
    expected = dump(weir, path, *options)
    count = 0
    for event, expected_event in itertools.zip_longest(traceweir.open(path, manifests=manifests), expected):
        assert event is not None and expected_event is not None, f"{name}: the counts differ at {count}"
        assert_equal_event(event, expected_event, f"{name} event {count}")
        count += 1
    assert count > 0


@pytest.mark.parametrize("name", ["gcevents.etl", "net.4.5.2.x64.etl.zip"])
def test_numeric_values_equal_those_of_the_command(weir: str, samples: Path, name: str) -> None:
    path, manifests = open_sample(samples, name)
    options = [part for manifest in manifests for part in ("--manifest", manifest)]
    expected = dump(weir, path, "--numeric", *options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        events = traceweir.open(path, manifests=manifests, numeric=True)
        for number, (event, expected_event) in enumerate(zip(events, itertools.islice(expected, 50_000))):
            assert_equal_value(event.fields, expected_event["fields"], f"{name} event {number}")
            assert event.message == expected_event.get("message")


def test_several_traces_are_one_stream_in_time_order() -> None:
    paths = [FIXTURES / "etl" / f"{name}.etl" for name in ("kernel", "tracelogging")]
    events = list(traceweir.open(paths))
    counts = [len(list(traceweir.open(path))) for path in paths]
    assert [sum(event.file_index == index for event in events) for index in (0, 1)] == counts
    times = [event.time_ns for event in events]
    assert times == sorted(times)


def test_metadata_are_those_of_the_header() -> None:
    trace = traceweir.open(FIXTURES / "etl" / "kernel.etl")
    assert trace.start.isoformat() == "2024-05-01T10:00:00+00:00"
    assert trace.end is not None and trace.end > trace.start
    assert trace.session == "fixture-kernel" == trace.files[0].session
    assert (trace.events_lost, trace.buffers_lost) == (0, 0)
    (file,) = trace.files
    assert file.name.endswith("kernel.etl")
    assert (file.processors, file.pointer_size, file.is_finalised) == (2, 8, True)
    assert file.os_version == (10, 0, 19045)
    assert file.boot is not None and (file.start - file.boot).total_seconds() == 3600
    assert file.size == (FIXTURES / "etl" / "kernel.etl").stat().st_size
    assert trace.warnings == [] == file.warnings
    computers = [event["ComputerName"] for event in trace if event.name == "SystemConfig/CPU"]
    assert trace.host == (computers[0] if computers else None)
    assert traceweir.open(FIXTURES / "etl" / "tracelogging.etl").host is None


def test_damage_is_reported_as_warnings() -> None:
    trace = traceweir.open(FIXTURES / "etl" / "crashed.etl")
    assert any("never finalised" in warning for warning in trace.warnings)
    with pytest.warns(traceweir.TraceWarning) as caught:
        events = list(trace)
    assert events and {str(warning.message) for warning in caught} == set(trace.warnings)
    # The warnings are issued once.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(trace)) == len(events)
    # A program that turns warnings into errors gets all events before the error.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = 0
        with pytest.raises(traceweir.TraceWarning):
            for _ in traceweir.open(FIXTURES / "etl" / "crashed.etl"):
                seen += 1
        assert seen == len(events)


def test_trace_can_be_read_again_and_by_two_iterators() -> None:
    trace = traceweir.open(FIXTURES / "etl" / "tracelogging.etl")
    first, second = iter(trace), iter(trace)
    pairs = list(zip(first, second))
    assert len(pairs) == len(list(trace)) > 0
    for event, other in pairs:
        assert (event.time_ns, event.name, event.payload) == (other.time_ns, other.name, other.payload)
    assert next(first, None) is None and next(second, None) is None


def test_joined_stacks_are_those_of_the_stack_events() -> None:
    path = FIXTURES / "etl" / "kernel.etl"
    separate, joined = list(traceweir.open(path)), list(traceweir.open(path, join_stacks=True))
    walks = [event for event in separate if (event.name or "").startswith("StackWalk")]
    assert walks and all(event.stack for event in walks)
    owners = [event for event in joined if event.stack and not (event.name or "").startswith("StackWalk")]
    assert owners
    rest = [event for event in joined if (event.name or "").startswith("StackWalk")]
    assert len(joined) == len(separate) - len(walks) + len(rest)
    by_stamp: dict[int, list[int]] = {}
    for walk in walks:
        frames = [frame.address for frame in walk.stack or []]
        by_stamp.setdefault(walk["EventTimeStamp"], []).extend(frames)
    joined_frames = sorted(tuple(frame.address for frame in event.stack or []) for event in owners)
    kept = {tuple(frame.address for frame in event.stack or []) for event in rest}
    assert joined_frames == sorted(tuple(frames) for frames in by_stamp.values() if tuple(frames) not in kept)
    # The other events are the same, in the same order.
    others = [event for event in separate if event not in walks]
    assert [event.payload for event in joined if event not in rest] == [event.payload for event in others]


def test_joined_stacks_survive_criteria() -> None:
    path = FIXTURES / "etl" / "kernel.etl"
    joined = [event for event in traceweir.open(path, join_stacks=True) if event.stack and event.name]
    name = next(event.name for event in joined if not event.name.startswith("StackWalk"))
    chosen = list(traceweir.open(path, events=name, join_stacks=True))
    assert [event.name for event in chosen] == [name] * len(chosen)
    stacks = [[frame.address for frame in event.stack or []] for event in chosen]
    assert stacks == [[frame.address for frame in event.stack or []] for event in joined if event.name == name]
