"""Live sessions with a private daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import traceweir
from conftest import start_daemon

SHOP = "Traceweir.Demo.CoffeeShop"
EVENTS_PER_ORDER = 3


@pytest.fixture
def daemon(weir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Starts a daemon of its own and yields its folder."""
    folder = tmp_path / "runtime"
    monkeypatch.setenv("TRACEWEIR_RUNTIME_DIR", str(folder))
    process = start_daemon(weir, folder)
    yield folder
    process.terminate()
    process.wait(20)


def start_shop(weir: str, orders: int, pause: int = 0, linger: int = 300) -> subprocess.Popen[bytes]:
    command = [weir, "demo-shop", "--orders", str(orders), "--pause", str(pause), "--linger", str(linger)]
    return subprocess.Popen(command)


def sessions(weir: str) -> str:
    return subprocess.run([weir, "list"], capture_output=True, text=True).stdout


def test_events_of_a_provider_arrive_while_they_are_written(weir: str, daemon: Path) -> None:
    with traceweir.watch(providers=SHOP) as watch:
        assert watch.session in sessions(weir)
        shop = start_shop(weir, 1_000_000, pause=5)
        events = [next(watch) for _ in range(60)]
        assert shop.poll() is None, "events arrive only after the provider has ended"
        shop.kill()
        shop.wait()
    assert {event.provider for event in events} == {SHOP}
    assert {event.pid for event in events} == {shop.pid}
    assert all(event.fields and event.error is None for event in events)
    times = [event.time_ns for event in events]
    assert times == sorted(times) and abs(times[-1] - time.time_ns()) < 60 * 10**9
    assert watch.session not in sessions(weir), "the temporary session still runs"
    assert list(watch) == [], "a closed watch yields events"


def test_stop_delivers_all_events_that_were_written(weir: str, daemon: Path) -> None:
    watch = traceweir.watch([SHOP])
    shop = start_shop(weir, 1000)
    assert shop.wait() == 0
    watch.stop()
    orders = list(watch)
    assert len(orders) == 1000 * EVENTS_PER_ORDER
    assert (watch.events_lost, watch.buffers_lost) == (0, 0)
    with pytest.raises(traceweir.TraceError, match="not a temporary one"):
        watch.stop()


def test_running_session_is_watched_and_runs_on(weir: str, daemon: Path) -> None:
    subprocess.run([weir, "start", "Live", "--real-time", "-p", SHOP], check=True, capture_output=True)
    with traceweir.watch("Live", level="warning") as warnings, traceweir.watch("live") as watch:
        shop = start_shop(weir, 20)
        events = [next(watch) for _ in range(20 * EVENTS_PER_ORDER)]
        assert shop.wait() == 0
        assert any("drink" in event for event in events)
        expected = [event.time_ns for event in events if event.level <= 3]
        assert 0 < len(expected) < len(events)
        assert [next(warnings).time_ns for _ in expected] == expected
        assert watch.wait(0.05) is None
    assert "Live" in sessions(weir)
    # The end of the session ends the iteration.
    watch = traceweir.watch("Live")
    threading.Timer(0.5, lambda: subprocess.run([weir, "stop", "Live"], capture_output=True)).start()
    assert list(watch) == []


def test_several_threads_share_a_watch(weir: str, daemon: Path) -> None:
    seen: list[list[int]] = [[], [], []]
    with traceweir.watch(providers=SHOP) as watch:
        def collect(events: list[int]) -> None:
            events.extend(event.time_ns for event in watch)

        threads = [threading.Thread(target=collect, args=(events,)) for events in seen]
        for thread in threads:
            thread.start()
        assert start_shop(weir, 500).wait() == 0
        watch.stop()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert sum(map(len, seen)) == 500 * EVENTS_PER_ORDER
    assert all(events == sorted(events) for events in seen)


def test_close_from_another_thread_ends_a_waiting_iteration(daemon: Path) -> None:
    watch = traceweir.watch(providers="Nobody.Writes.This")
    threading.Timer(0.3, watch.close).start()
    began = time.monotonic()
    assert list(watch) == []
    assert 0.2 < time.monotonic() - began < 10


def test_dropped_watch_ends_its_session(weir: str, daemon: Path) -> None:
    watch = traceweir.watch(providers=SHOP)
    name = watch.session
    assert name in sessions(weir)
    del watch
    assert name not in sessions(weir)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_killed_programs_leave_no_session(weir: str, daemon: Path, ending: int) -> None:
    program = (
        "import traceweir\n"
        f"watch = traceweir.watch(providers={SHOP!r})\n"
        "print(watch.session, flush=True)\n"
        "try:\n"
        "    for event in watch: pass\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', list(watch), flush=True)\n"
    )
    # SIGINT of a background process may be ignored, unless the program says otherwise.
    reset = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, preexec_fn=reset)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    assert name in sessions(weir)
    time.sleep(0.3)
    os.kill(process.pid, ending)
    output, _ = process.communicate(timeout=20)
    if ending == signal.SIGINT:
        assert process.returncode == 0 and output == "interrupted []\n"
        assert name not in sessions(weir)
    deadline = time.monotonic() + 10
    while name in sessions(weir):
        assert time.monotonic() < deadline, "the session outlives the program"
        time.sleep(0.1)


def test_problems_of_sessions_are_trace_errors(weir: str, daemon: Path) -> None:
    with pytest.raises(traceweir.TraceError, match="Missing"):
        traceweir.watch("Missing")
    with pytest.raises(ValueError, match="name a session or providers"):
        traceweir.watch()
    with pytest.raises(ValueError, match="stacks"):
        traceweir.watch("Missing", stacks=True)
    with pytest.raises(traceweir.TraceError, match="at most 8"):
        traceweir.watch(providers=SHOP, pids=range(1, 10))
    with pytest.raises(ValueError, match="seconds"):
        traceweir.watch(providers=SHOP).wait(-1)


def test_only_requested_processes_and_stacks(weir: str, daemon: Path) -> None:
    with traceweir.watch(providers=SHOP, pids=os.getpid()) as nothing:
        with traceweir.watch(providers=SHOP, stacks=True) as watch:
            assert start_shop(weir, 5).wait() == 0
            events = [next(watch) for _ in range(5 * EVENTS_PER_ORDER)]
            assert all(event.stack for event in events)
        assert nothing.wait(0.3) is None


def test_end_of_the_daemon_raises_an_error(weir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runtime"
    monkeypatch.setenv("TRACEWEIR_RUNTIME_DIR", str(folder))
    process = start_daemon(weir, folder)
    try:
        watch = traceweir.watch(providers=SHOP)
        process.kill()
        process.wait()
        with pytest.raises(traceweir.TraceError):
            next(watch)
        assert list(watch) == []
    finally:
        process.kill()
        process.wait()
