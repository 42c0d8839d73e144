"""Compares events with those that weir dump prints as JSON."""

from __future__ import annotations

import math
import struct
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import traceweir

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def ns_of(text: str) -> int:
    """Returns the nanoseconds since 1970 of a time such as 2024-05-01T10:00:00.0000001Z."""
    whole, fraction = text.rstrip("Z").split(".")
    seconds = datetime.fromisoformat(whole).replace(tzinfo=timezone.utc) - EPOCH
    return (seconds.days * 86_400 + seconds.seconds) * 10**9 + int(fraction.ljust(9, "0"))


def datetime_of(text: str) -> datetime:
    """Returns a time of JSON as datetime, rounded down to microseconds."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    time = datetime.fromisoformat(whole).replace(tzinfo=timezone.utc)
    return time.replace(microsecond=int((fraction + "000000")[:6]))


def assert_equal_value(value: Any, expected: Any, where: str) -> None:
    """Asserts that a value is the one that JSON shows."""
    if isinstance(value, dict):
        assert isinstance(expected, dict), where
        assert list(value) == list(expected), where
        for name in value:
            assert_equal_value(value[name], expected[name], f"{where}.{name}")
    elif isinstance(value, list):
        assert isinstance(expected, list) and len(value) == len(expected), where
        for index, (element, expected_element) in enumerate(zip(value, expected)):
            assert_equal_value(element, expected_element, f"{where}[{index}]")
    elif isinstance(value, bool) or value is None:
        assert value is expected, where
    elif isinstance(value, int):
        if isinstance(expected, str):
            expected = int(expected, 0)
        assert type(expected) is int and value == expected, where
    elif isinstance(value, float):
        if isinstance(expected, str):
            expected = float(expected.replace("Infinity", "inf"))
        is_nan = math.isnan(value) and math.isnan(expected)
        # JSON has the shortest digits that identify the value among those of its type.
        single = struct.unpack("f", struct.pack("f", expected))[0] if abs(expected) < 3.5e38 else expected
        assert is_nan or value == expected or value == single, where
    elif isinstance(value, bytes):
        assert value.hex() == expected, where
    elif isinstance(value, UUID):
        assert str(value) == expected, where
    elif isinstance(value, datetime):
        assert value.tzinfo is timezone.utc and value == datetime_of(expected), where
    else:
        assert isinstance(value, str) and value == expected, f"{where}: {value!r} is not {expected!r}"


def id_of(number: int | None) -> int:
    """Returns an id as JSON shows it."""
    return -1 if number is None else number


def assert_equal_event(event: traceweir.Event, expected: dict[str, Any], where: str) -> None:
    """Asserts that an event is the one that JSON shows."""
    assert event.time_ns == ns_of(expected["time"]), where
    assert event.time == datetime_of(expected["time"]), where
    assert abs(event.ns_since_start / 1e6 - expected["ms"]) < 1e-6 * max(1, abs(expected["ms"])), where
    assert event.provider == expected["provider"], where
    assert str(event.provider_id) == expected["guid"], where
    assert event.name == expected["event"], where
    for attribute in ("id", "version", "level", "opcode", "task", "cpu"):
        assert getattr(event, attribute) == expected[attribute], (where, attribute)
    assert event.keyword == int(expected["keywords"], 16), where
    assert (id_of(event.header_pid), id_of(event.header_tid)) == (expected["pid"], expected["tid"]), where
    concerned = expected.get("attributed", {"pid": expected["pid"], "tid": expected["tid"]})
    assert (id_of(event.pid), id_of(event.tid)) == (concerned["pid"], concerned["tid"]), where
    assert event.process == expected.get("process"), where
    activity, related = event.activity_id, event.related_activity_id
    assert (activity and str(activity)) == expected.get("activity"), where
    assert (related and str(related)) == expected.get("related"), where
    items = {name: expected[name] for name in event.extended}
    for name, value in items.items():
        assert_equal_value(event.extended[name], value, f"{where} {name}")
    known = {"sid", "session", "app", "start_key", "event_key", "container"}
    assert set(items) == known & set(expected), where
    if "stack" in expected and isinstance((expected["stack"] or [""])[0], str):
        assert event.stack is not None
        assert [hex(frame.address) for frame in event.stack] == expected["stack"], where
    assert event.message == expected.get("message"), where
    assert_equal_value(event.fields, expected["fields"], where)
    assert event.extra.hex() == expected.get("extra", ""), where
    if "undecoded" in expected:
        assert event.error is not None and expected["undecoded"].startswith(event.error), where
        assert event.payload.hex() == expected["raw"], where
    else:
        assert event.error is None, where
