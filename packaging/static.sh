#!/usr/bin/env bash
# Builds weir as one file without shared libraries, which runs on any Linux of this architecture.
#
#   packaging/static.sh [--out target/weir-static] [--profile dist]
#
# Needs the musl target: rustup target add x86_64-unknown-linux-musl
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/weir-static
profile=dist
while [ $# -gt 0 ]; do
    case "$1" in
        --out) out=$2 ;;
        --profile) profile=$2 ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
triple=$(uname -m)-unknown-linux-musl
cd "$root"
cargo build --locked --profile "$profile" --target "$triple" -p traceweir-cli --features view
folder=$profile
[ "$profile" = dev ] && folder=debug
install -D -m 755 "$target/$triple/$folder/weir" "$out"
strip --strip-unneeded "$out"
if readelf -l "$out" | grep -q INTERP; then
    echo "$out needs a dynamic loader" >&2
    exit 1
fi
echo "$out ($(stat -c %s "$out") bytes)"
