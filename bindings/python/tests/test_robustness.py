"""Damaged files, threads, forks, signals and memory."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import traceweir
from conftest import FIXTURES, PEAK_KIB, damage, schema_options

# The big trace is written faster than its session can take the events.
pytestmark = pytest.mark.filterwarnings("ignore::traceweir.TraceWarning")

TRACES = sorted((FIXTURES / "etl").glob("*.etl"))


def touch_everything(event: traceweir.Event) -> int:
    """Reads all attributes of an event, as text."""
    names = [name for name in dir(traceweir.Event) if not name.startswith("_")]
    total = len(repr(event))
    for name in names:
        try:
            value = getattr(event, name)
            total += len(repr(value() if callable(value) and name == "keys" else value))
        except OverflowError:
            # A damaged time may be out of the range of datetime.
            assert name == "time"
    return total


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_damaged_traces_raise_nothing_but_errors_of_the_package(path: Path, tmp_path: Path) -> None:
    whole, random_numbers = path.read_bytes(), random.Random(path.stem)
    damaged = tmp_path / "damaged.etl"
    read = 0
    for _ in range(60):
        damaged.write_bytes(damage(whole, random_numbers))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", traceweir.TraceWarning)
            try:
                trace = traceweir.open(damaged, **schema_options(path.stem))
                repr((trace.files, trace.warnings, trace.session, trace.host))
                for event in trace:
                    read += 1
                    assert touch_everything(event) > 0
            except (traceweir.TraceError, OSError) as error:
                assert "internal error" not in str(error)
    assert read > 0


def test_names_of_hostile_traces_stay_on_one_line() -> None:
    for path in TRACES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for event in traceweir.open(path, **schema_options(path.stem)):
                assert all(character.isprintable() for character in repr(event))
                assert event.error is None or event.error.isprintable()


def test_kept_event_keeps_only_its_own_bytes_in_memory(big_trace: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    kept = []
    before = resident()
    for number, event in enumerate(traceweir.open(big_trace)):
        if number % 1000 == 0:
            kept.append(event)
    gc.collect()
    assert len(kept) > 100
    grown = resident() - before
    assert grown < 64 << 20, f"{grown} bytes for {len(kept)} events"
    assert touch_everything(kept[-1]) > 0


def test_abandoned_iterations_end_their_threads(big_trace: Path) -> None:
    def count_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = count_threads()
    trace = traceweir.open(big_trace)
    for _ in range(20):
        assert next(iter(trace)) is not None
    deadline = time.monotonic() + 10
    while count_threads() > before:
        assert time.monotonic() < deadline, "reader threads outlive their iterators"
        time.sleep(0.05)
    # Also if no event is accepted.
    iterator = iter(traceweir.open(big_trace, cpus=999))
    del iterator
    while count_threads() > before:
        assert time.monotonic() < deadline + 10
        time.sleep(0.05)


def test_threads_share_an_iterator_and_a_trace(big_trace: Path) -> None:
    trace = traceweir.open(big_trace)
    expected = sum(1 for _ in trace)
    shared = iter(trace)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: sum(1 for event in shared if event.time_ns), range(4)))
        assert sum(counts) == expected
        own = list(pool.map(lambda _: sum(1 for _ in trace), range(4)))
        assert own == [expected] * 4
    events = list(traceweir.open(FIXTURES / "etl" / "tracelogging.etl"))
    with ThreadPoolExecutor(8) as pool:
        # Fields are decoded once, whichever thread is first.
        for event in events:
            results = list(pool.map(lambda _: event.fields, range(8)))
            assert all(result is results[0] for result in results)


def test_other_threads_run_while_one_waits(big_trace: Path) -> None:
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    # No event is accepted, so this thread waits until the end of the trace.
    assert list(traceweir.open(big_trace, text="no event contains this text")) == []
    stop.set()
    thread.join()
    assert ticks[0] > 3


def test_forked_process_gets_an_error_instead_of_a_hang(big_trace: Path) -> None:
    program = (
        "import os, sys, traceweir\n"
        f"trace = traceweir.open({str(big_trace)!r})\n"
        "iterator = iter(trace)\n"
        "next(iterator)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        next(iterator)\n"
        "    except RuntimeError as error:\n"
        "        assert 'forked' in str(error)\n"
        "        assert next(iter(trace)) is not None\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 7\n"
        "assert sum(1 for _ in iterator) > 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)


def test_signal_ends_a_wait_and_handler_may_not_reenter(big_trace: Path) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            while True:
                list(traceweir.open(big_trace, text="no event contains this text"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_memory_is_bounded_when_the_program_is_slow(big_trace: Path) -> None:
    program = (
        "import time, traceweir\n"
        f"iterator = iter(traceweir.open({str(big_trace)!r}))\n"
        "next(iterator)\n"
        "time.sleep(0.5)\n"
        f"print({PEAK_KIB})\n"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    size_kib = big_trace.stat().st_size >> 10
    assert size_kib > 40 << 10
    assert int(output.stdout) < 120 << 10, f"{output.stdout} KiB resident for a trace of {size_kib} KiB"


def test_names_of_fields_are_not_interned() -> None:
    names = {
        name
        for path in TRACES
        for event in traceweir.open(path, **schema_options(path.stem))
        for name in event.keys()
    }
    # The function returns its argument if no equal text is interned.
    copies = ["".join(list(name)) for name in names if len(name) > 1]
    assert any(sys.intern(copy) is copy for copy in copies)


def test_objects_are_made_only_by_the_package() -> None:
    event = next(iter(traceweir.open(TRACES[0])))
    for kind in (traceweir.Event, traceweir.Trace, traceweir.EventIterator, traceweir.Frame, traceweir.Watch):
        with pytest.raises(TypeError):
            kind()
        assert kind.__module__ == "traceweir" and kind.__doc__
    with pytest.raises(TypeError):
        pickle.dumps(event)
    with pytest.raises(AttributeError):
        event.name = "other"  # type: ignore[misc]


def test_everything_public_has_documentation() -> None:
    for name in traceweir.__all__:
        value = getattr(traceweir, name)
        if name == "__version__":
            continue
        assert value.__doc__, name
        if isinstance(value, type) and value.__module__ == "traceweir":
            for member, attribute in vars(value).items():
                if not member.startswith("_"):
                    assert attribute.__doc__, f"{name}.{member}"
