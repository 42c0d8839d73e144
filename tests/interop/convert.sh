#!/bin/sh
# Converts traces with `weir convert` and reads the outputs with independent readers: runs the scripts
# convert-*.sh beside this one, each without arguments, and prints a line for each. Fails if one fails.
#
#   tests/interop/convert.sh [PART]...
#
# The parts are ctf, profilers, network, otlp and perf. The comments of convert-PART.sh say what a part
# needs; a tool that is missing is skipped, or fails if TRACEWEIR_REQUIRE names it or is `all`.
# TRACEWEIR_SAMPLES names a folder with further traces. convert_common.sh lists the variables that name
# programs that are built already. All files are below the target folder. The parts take less than ten
# minutes in all; building and installing come on top the first time.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/convert_common.sh"
logs=$target/interop/convert
mkdir -p "$logs"

build_weir
HOSTILE_TRACE=${HOSTILE_TRACE:-$(build_example traceweir-convert hostile_trace)}
PACKET_TRACE=${PACKET_TRACE:-$(build_example traceweir-convert packet_trace)}
INTEROP_WRITE=${INTEROP_WRITE:-$(build_example traceweir-format interop_write)}
export WEIR HOSTILE_TRACE PACKET_TRACE INTEROP_WRITE

[ $# -gt 0 ] || set -- ctf profilers network otlp perf
failed=0
for part in "$@"; do
    log=$logs/$part.log
    begun=$(date +%s)
    status=0
    "$here/convert-$part.sh" >"$log" 2>&1 || status=$?
    seconds=$(($(date +%s) - begun))
    # What was not compared because a tool is missing.
    skipped=$(sed -n 's/^skipped: //p' "$log" | paste -sd ';' | sed 's/;/; /g')
    case $status in
    0) echo "convert $part: passed in $seconds s${skipped:+, without $skipped}" ;;
    77) echo "convert $part: skipped: $skipped" ;;
    *)
        failed=1
        echo "convert $part: FAILED with status $status after $seconds s; the end of $log:"
        tail -n 15 "$log" | sed 's/^/    /'
        ;;
    esac
done
exit $failed
