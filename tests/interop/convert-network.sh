#!/bin/sh
# Converts a trace with packets to pcapng, and compares what tshark and capinfos read with the
# packets that were written. Fails at the first difference.
#
#   tests/interop/convert-network.sh [PACKETS]
#
# Needs tshark, which comes with capinfos, and python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/convert_common.sh"
for tool in tshark capinfos; do
    is_installed "$tool" || skip_all "$tool" "it is not installed"
done
build_weir
work=$target/interop/network
mkdir -p "$work"

"${PACKET_TRACE:-$(build_example traceweir-convert packet_trace)}" "$work" "${1:-1000}"
# The trace counts lost events, which is no failure.
"$WEIR" convert "$work/packets.etl" --to pcapng -o "$work/packets.pcapng" --force
python3 "$here/network.py" "$work"
