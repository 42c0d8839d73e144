#!/bin/sh
# Converts a trace with packets to pcapng, and compares what tshark and capinfos read with the
# packets that were written. Fails at the first difference.
#
#   tests/interop/convert-network.sh [PACKETS]
#
# Needs tshark, which comes with capinfos, and python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/interop/network
mkdir -p "$work"

cargo run --quiet --manifest-path "$root/Cargo.toml" --package traceweir-convert --example packet_trace -- \
    "$work" "${1:-1000}"
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir
# The trace reports lost events: then the exit status is 4.
"$target/debug/weir" convert "$work/packets.etl" --to pcapng -o "$work/packets.pcapng" --force || [ $? -eq 4 ]
python3 "$here/network.py" "$work"
