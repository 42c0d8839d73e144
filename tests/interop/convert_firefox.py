"""Loads a profile with profiler-cli, the command-line reader of the Firefox Profiler, and compares what
it prints with the trace.

    convert_firefox.py PROFILER_CLI FOLDER

FOLDER has profile.json, and expected.json from convert-profilers.py.
"""

import collections
import json
import pathlib
import subprocess
import sys
import time

from convert_names import escape

# How often loading a profile is tried.
LOAD_ATTEMPTS = 5


def main(program, folder):
    folder = pathlib.Path(folder)
    expected = json.load(open(folder / "expected.json", encoding="utf-8"))
    session = ["--session", "interop"]

    def call(*arguments):
        command = [program, *arguments, *session]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        return result.returncode, result.stdout, result.stdout + result.stderr

    def run(*arguments):
        status, output, messages = call(*arguments)
        if status != 0:
            sys.exit(f"profiler-cli: {' '.join(arguments)}: {messages}")
        return output

    def load(path):
        for _ in range(LOAD_ATTEMPTS):
            status, _, messages = call("load", path)
            if status == 0:
                return
            if "did not become ready" not in messages:
                break
            # The program waits half a second for its daemon, which is too short on a busy machine. The
            # daemon is stopped as soon as it answers.
            for _ in range(20):
                time.sleep(0.5)
                if call("stop")[0] == 0:
                    break
        sys.exit(f"profiler-cli: load: {messages}")

    load(str(folder / "profile.json"))
    try:
        threads = json.loads(run("thread", "list", "--json", "--limit", "100000"))["threads"]
        functions = collections.Counter()
        for thread in threads:
            if thread["threadIndex"] in expected["sampled_threads"]:
                handle = thread["threadHandle"]
                options = ["--json", "--include-idle", "--limit", "0", "--thread", handle]
                for function in json.loads(run("thread", "functions", *options))["functions"]:
                    functions[escape(function["nameWithLibrary"].replace(";", ":"))] += function["selfSamples"]
    finally:
        run("stop")
    markers = sum(thread["markerCount"] for thread in threads)
    if markers != expected["firefox_markers"]:
        sys.exit(f"profiler-cli: {markers} markers, expected {expected['firefox_markers']}")
    processes = {int(thread["pid"]): thread["processName"] for thread in threads}
    for pid, name in expected["processes"].items():
        if processes.get(int(pid), name) != name:
            sys.exit(f"profiler-cli: process {pid} is {processes[int(pid)]}, expected {name}")
    if expected["functions"]:
        found = +functions
        wanted = collections.Counter(expected["functions"])
        if found != wanted:
            found, wanted = (found - wanted).most_common(3), (wanted - found).most_common(3)
            sys.exit(f"profiler-cli: own samples {found}, expected {wanted}")
    samples = functions.total()
    counts = f"{len(threads)} threads, {markers} markers and {samples} samples"
    print(f"{folder.name}: profiler-cli reads {counts} as expected")


main(*sys.argv[1:])
