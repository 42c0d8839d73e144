#!/bin/sh
# Converts traces to logs and spans of OpenTelemetry, parses each line with the message types that
# OpenTelemetry publishes, and compares them with what `weir dump` prints. Fails at the first difference.
#
#   tests/interop/convert-otlp.sh [TRACE]...
#
# Without arguments, converts the fixtures, the samples, and a trace whose names, texts and payloads
# try to break the format. Needs python3 with venv; the first run also needs the package index.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/convert_common.sh"
work=$target/interop/otlp
mkdir -p "$work"
python=$(make_python "$work/venv" opentelemetry-proto==1.45.2) ||
    skip_all opentelemetry-proto "it cannot be installed"
build_weir

list_traces "$@" >"$work/traces"
if [ $# -eq 0 ]; then
    "${HOSTILE_TRACE:-$(build_example traceweir-convert hostile_trace)}" "$work/hostile.etl" 3000
    echo "$work/hostile.etl" >>"$work/traces"
fi
while read -r trace; do
    name=$(basename "$trace" | sed 's/\.etl.*//')
    # Python takes half a millisecond for a record, so large archives are compared in part.
    end=
    case $trace in *.zip) end=4s ;; esac
    for format in otlp otlp-spans; do
        run_weir convert "$trace" --to "$format" -o "$work/$name.$format.jsonl" --force ${end:+--until "$end"}
    done
    run_weir dump "$trace" --format jsonl -o "$work/$name.jsonl" --force ${end:+--to "$end"}
    "$python" "$here/otlp.py" "$work" "$name"
done <"$work/traces"
