#!/usr/bin/env bash
# Compiles the ETW backend of the profiler Tracy (public/client/windows/TracyETW.cpp of wolfpld/tracy) unchanged. A short
# driver starts Tracy's kernel session with Tracy's functions and prints what the callback receives while busy.c runs:
# switches, wake-ups, samples, stacks. The driver is compiled for both clocks that Tracy supports, processor ticks and
# the performance counter. A session of weir that runs at the same time must contain the same events.
# Environment: SOURCE, PREFIX, WORK, CHECKOUT.
set -euo pipefail

skip() { echo "$1"; exit 77; }

parts=$CHECKOUT/tests/thirdparty
export PYTHONDONTWRITEBYTECODE=1
[ "$(uname -m)" = x86_64 ] || skip "the processor must be x86-64: the driver reads its tick counter"
command -v c++ > /dev/null || skip "a C++ compiler is missing"
command -v python3 > /dev/null || skip "python3 is missing"
[ "$(id -u)" = 0 ] || skip "kernel sessions need root"

cc -O1 -fno-omit-frame-pointer "$parts/busy.c" -lpthread -o busy
read -ra flags < <(pkg-config --cflags --libs traceweir)
build() { # OUTPUT OPTIONS...
    local output=$1
    shift
    c++ -std=c++17 -O1 -D_WIN64 -D_WIN32_WINNT=0x0A00 "$@" "-I$SOURCE/public" "$parts/tracy/driver.cpp" "${flags[@]}" \
        -lpthread -o "$output"
}
build ticks
build counter -DTRACY_TIMER_QPC

# Runs a driver. On a busy machine its session may lose events, which Tracy reports; then it runs again.
run() { # DRIVER
    for _ in 1 2 3; do
        "./$1" "$1.txt" ./busy "$1.busy" 2> "$1.errors" || { cat "$1.errors"; exit 1; }
        grep -q 'events have been lost' "$1.errors" || return 0
    done
    echo "the session of $1 lost events three times"
    exit 1
}

run ticks
ticks=$(python3 "$parts/tracy/compare.py" ticks.txt ticks.busy) || { echo "processor ticks: $ticks"; exit 1; }

weir start Parallel --kernel cpu,sched -o parallel.etl
trap 'weir stop Parallel > /dev/null 2>&1 || true' EXIT
run counter
weir stop Parallel
trap - EXIT
weir dump parallel.etl --format jsonl > parallel.jsonl
counter=$(python3 "$parts/tracy/compare.py" counter.txt counter.busy parallel.jsonl) || { echo "performance counter: $counter"; exit 1; }

echo "clock of processor ticks: $ticks; performance counter: $counter"
