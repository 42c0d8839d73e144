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
. "$here/convert_common.sh"
is_installed perf || skip_all perf "it is not installed"
build_weir
work=$target/interop/perf
mkdir -p "$work"

if [ $# -eq 0 ]; then
    is_installed cc || skip_all cc "it is not installed"
    cc -O1 -g -fno-omit-frame-pointer -o "$work/busy" "$here/busy.c" -lpthread
    perf record -q -a -e cpu-clock -o "$work/right.data" -- true 2>"$work/right.log" ||
        skip_all "perf events" "perf cannot record all processors here"
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
    run_weir convert "$recording" --to etl -o "$trace" --force
    "$WEIR" check "$trace"
    python3 "$here/perf.py" "$WEIR" "$recording" "$trace"
done
