#!/bin/sh
# Records with perf, imports the recordings, and compares the traces with what perf reads from the
# same files: numbers of samples, switches and wakeups, every stack, and the hottest functions. Fails
# at the first difference.
#
#   tests/interop/convert-perf.sh [RECORDING]...
#
# Needs perf, the right to record all processors (root), a C compiler and python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/interop/perf
weir=$target/debug/weir
mkdir -p "$work"
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir

if [ $# -eq 0 ]; then
    cc -O1 -g -fno-omit-frame-pointer -o "$work/busy" "$here/busy.c" -lpthread
    perf record -q -a -g -F 499 -e cpu-clock -o "$work/all.data" -- "$work/busy" 1
    perf record -q -g -F 499 -e cpu-clock -e page-faults -o "$work/process.data" -- "$work/busy" 1
    perf record -q -a -g -F 199 -e cpu-clock -e sched:sched_switch -e sched:sched_wakeup \
        -e sched:sched_stat_runtime -o "$work/sched.data" -- "$work/busy" 1
    perf record -q -a -g -F 199 -e cpu-clock -e sched:sched_switch -o - -- "$work/busy" 1 >"$work/pipe.data"
    perf record -q --call-graph dwarf -F 199 -e cpu-clock -o "$work/dwarf.data" -- "$work/busy" 0.5
    set -- "$work/all.data" "$work/process.data" "$work/sched.data" "$work/pipe.data" "$work/dwarf.data"
fi

for recording in "$@"; do
    trace=$work/$(basename "$recording" .data).etl
    # A recording that lost records, or was cut, gives the exit status 3 or 4.
    "$weir" convert "$recording" --to etl -o "$trace" --force || [ $? -eq 3 ] || [ $? -eq 4 ]
    "$weir" check "$trace"
    python3 "$here/perf.py" "$weir" "$recording" "$trace"
done
