"""Paths and helpers of the tests.

Environment:
    WEIR                the command weir, to compare with
    TRACEWEIR_SAMPLES   a folder of real traces; tests that need it are skipped if it is not set
    TRACEWEIR_REQUIRE   "all": what is missing is a failure, not a skip
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "fixtures"

# An expression for the most memory in KiB that a program has used. The maximum of getrusage includes
# that of the process that started the program.
PEAK_KIB = "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))"


def skip(reason: str) -> None:
    """Skips a test, or fails if nothing may be skipped."""
    if os.environ.get("TRACEWEIR_REQUIRE") == "all":
        pytest.fail(f"required: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def weir() -> str:
    """Returns the path of the command weir."""
    path = os.environ.get("WEIR") or shutil.which("weir")
    if path is None:
        skip("the command weir is not installed; WEIR names it")
    assert path is not None
    return path


@pytest.fixture(scope="session")
def samples() -> Path:
    """Returns the folder of real traces."""
    path = os.environ.get("TRACEWEIR_SAMPLES")
    if path is None:
        skip("TRACEWEIR_SAMPLES names no folder of real traces")
    assert path is not None
    return Path(path)


def schema_options(trace: str) -> dict[str, Any]:
    """Returns the arguments of traceweir.open that decode a fixture."""
    everything = [FIXTURES / "manifests" / "everything.man"]
    return {
        "manifest": {"manifests": everything},
        "narrow": {"manifests": everything},
        "wpp": {"tmf": FIXTURES / "tmf" / "sample.tmf"},
    }.get(trace, {})


def damage(content: bytes, numbers: random.Random) -> bytes:
    """Returns a copy of a file in which bytes are overwritten, and which may be shorter."""
    damaged = bytearray(content)
    if numbers.randrange(3) == 0:
        del damaged[numbers.randrange(len(damaged)) :]
    for _ in range(numbers.choice([1, 8, 64])):
        if damaged:
            damaged[numbers.randrange(len(damaged))] = numbers.choice([0, 1, 0x7F, 0x80, 0xFF])
    return bytes(damaged)


def dump(weir: str, *arguments: str | Path) -> Iterator[dict[str, Any]]:
    """Yields the events that weir dump prints."""
    command = [weir, "dump", "--format", "jsonl", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)


def start_daemon(weir: str, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a daemon in a new folder, and waits until it accepts connections."""
    folder.mkdir(mode=0o700)
    command = [weir, "daemon", "--runtime-dir", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not accepts_connections(folder / "control.sock"):
        assert process.poll() is None and time.monotonic() < deadline, "the daemon does not start"
        time.sleep(0.02)
    return process


def accepts_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True


@pytest.fixture(scope="session")
def big_trace(weir: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records a trace of more than 40 MiB."""
    folder = tmp_path_factory.mktemp("big")
    runtime, path = folder / "runtime", folder / "big.etl"
    environment = {**os.environ, "TRACEWEIR_RUNTIME_DIR": str(runtime)}
    daemon = start_daemon(weir, runtime)
    try:
        command = [weir, "record", "-p", "Traceweir.Demo.CoffeeShop", "-o", str(path), "--", weir]
        subprocess.run(
            [*command, "demo-shop", "--orders", "150000", "--pause", "0"],
            env=environment,
            check=True,
            capture_output=True,
        )
    finally:
        daemon.terminate()
        daemon.wait()
    assert path.stat().st_size > 40 << 20
    return path
