#!/bin/sh
# Converts traces to logs and spans of OpenTelemetry, and parses each line with the message types
# that OpenTelemetry publishes. Fails at the first difference.
#
#   tests/interop/convert-otlp.sh [TRACE]...
#
# Without arguments, converts the traces in fixtures/etl. Needs python3 with venv; the first run also
# needs the package index.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/interop/otlp
python=$work/venv/bin/python
mkdir -p "$work"
if ! [ -x "$python" ] || ! "$python" -c 'import opentelemetry.proto' 2>/dev/null; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    "$python" -m pip install --quiet --disable-pip-version-check opentelemetry-proto==1.45.2
fi

[ $# -gt 0 ] || set -- "$root"/fixtures/etl/*.etl
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir
for trace in "$@"; do
    name=$(basename "$trace" .etl)
    # Some traces are damaged or report losses: then the exit status is 3 or 4.
    for format in otlp otlp-spans; do
        "$target/debug/weir" convert "$trace" --to "$format" -o "$work/$name.$format.jsonl" --force ||
            [ $? -eq 3 ] || [ $? -eq 4 ]
    done
    "$target/debug/weir" dump "$trace" --format jsonl -o "$work/$name.jsonl" --force || [ $? -eq 3 ] || [ $? -eq 4 ]
    "$python" "$here/otlp.py" "$work" "$name"
done
