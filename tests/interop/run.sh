#!/bin/sh
# Reads files that this project wrote with two independent readers, and compares what they read with
# the written events. Fails at the first difference.
#
#   tests/interop/run.sh [EVENTS]
#
# Needs python3 with venv; the first run also needs the package index. All files that this script
# makes are below the target folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/interop
python=$work/venv/bin/python

mkdir -p "$work"
# Build the venv, or rebuild it if the pinned versions have changed.
if ! cmp -s "$here/requirements.txt" "$work/venv/requirements.txt"; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    "$python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$work/venv/requirements.txt"
fi

cargo run --quiet --manifest-path "$root/Cargo.toml" --package traceweir-format --example interop_write -- \
    "$work" "${1:-20000}"
"$python" "$here/interop.py" "$work"

built=${CARGO_TARGET_DIR:-$root/target}/debug
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir

# Relog the same events: split them into two files and merge these, and compress them. The events
# must stay the same.
relogged=$work/relogged
mkdir -p "$relogged"
cp "$work/expected.jsonl" "$relogged"
"$built/weir" relog "$work/plain.etl" -o "$relogged/early.etl" --force --compress --bare --to 2.5s
"$built/weir" relog "$work/compressed.etl" -o "$relogged/late.etl" --force --decompress --bare --from 2.5000001s
"$built/weir" relog "$relogged/late.etl" "$relogged/early.etl" -o "$relogged/plain.etl" --force --decompress
"$built/weir" relog "$work/plain.etl" -o "$relogged/compressed.etl" --force --compress
"$python" "$here/interop.py" "$relogged"

# Record a real session: another process writes events, and the daemon collects them.
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir --example ticker
runtime=$work/run
TRACEWEIR_RUNTIME_DIR=$runtime TRACEWEIR_DAEMON=$built/weir \
    "$built/weir" record -p Example-Ticker -o "$work/recorded.etl" -- "$built/examples/ticker" "${1:-20000}" 3
"$python" "$here/recorded.py" "$work/recorded.etl" "${1:-20000}" 3

# Relog this recording. On a busy machine the session may have lost events: then the exit status
# is 4.
"$built/weir" relog "$work/recorded.etl" -o "$work/recorded-again.etl" --force || [ $? -eq 4 ]
"$python" "$here/recorded.py" "$work/recorded-again.etl" "${1:-20000}" 3

# Record kernel events, if this machine provides them.
if TRACEWEIR_RUNTIME_DIR=$runtime TRACEWEIR_DAEMON=$built/weir "$built/weir" record --kernel sched,disk,net -o "$work/kernel.etl" -- \
    sh -c 'for i in 1 2 3; do dd if=/dev/zero of="$0" bs=4096 count=10 conv=fsync 2>/dev/null; done' "$work/written"; then
    "$built/weir" check "$work/kernel.etl"
    "$built/weir" dump --format jsonl --numeric "$work/kernel.etl" >"$work/kernel.jsonl"
    "$python" "$here/kernel.py" "$work/kernel.etl" "$work/kernel.jsonl"
else
    case ",${TRACEWEIR_REQUIRE:-}," in
    *,all,* | *,"kernel events",*) echo "required: kernel events" && exit 1 ;;
    esac
    echo "skipped: kernel events are not available here"
fi
