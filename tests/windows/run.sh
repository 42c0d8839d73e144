#!/bin/sh
# Checks the Windows half of crate `traceweir`:
#
#   1. it compiles for Windows without warnings, together with the examples that only write events;
#   2. controllers are refused there at compile time, with the reason;
#   3. built against libtraceweir.so, it writes the events that the Linux half writes;
#   4. under Wine, if that is installed, the example runs to its end.
#
#   tests/windows/run.sh
#
# Needs the Rust target x86_64-pc-windows-gnu and mingw-w64. All files that it makes are below the
# target folder.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
out=${CARGO_TARGET_DIR:-$root/target}
work=$out/windows
target=x86_64-pc-windows-gnu
rm -rf "$work/run"
mkdir -p "$work/run"

echo "1. compiling for $target"
cargo clippy --quiet --target "$target" --package traceweir --features tracing -- -D warnings
cargo build --quiet --target "$target" --package traceweir-example-portable \
    --package traceweir-example-rust --package traceweir-example-manifest

echo "2. compiling a controller for $target, which must fail"
mkdir -p "$work/controller/src"
cat >"$work/controller/Cargo.toml" <<EOF
[package]
name = "controller"
version = "0.0.0"
edition = "2024"
[dependencies]
traceweir = { path = "$root/crates/api" }
[workspace]
EOF
cp Cargo.lock "$work/controller/Cargo.lock"
echo 'fn main() { let _ = traceweir::Session::builder("s"); }' >"$work/controller/src/main.rs"
if CARGO_TARGET_DIR=$out cargo check --quiet --offline --target "$target" \
    --manifest-path "$work/controller/Cargo.toml" 2>"$work/controller.txt"; then
    echo "a controller compiled for Windows" >&2
    exit 1
fi
grep -q 'not(any(windows' "$work/controller.txt" || { cat "$work/controller.txt" >&2; exit 1; }

echo "3. recording the Linux half and the Windows half"
cargo build --quiet --package traceweir-cli --package traceweir-ffi --package traceweir-example-portable
library=$(dirname "$(find "$out/debug" -maxdepth 2 -name libtraceweir.so | head -n 1)")
CARGO_TARGET_DIR=$work/win32 RUSTFLAGS="--cfg traceweir_win32 -L native=$library" \
    cargo build --quiet --package traceweir-example-portable

record() { # NAME PROGRAM: records the program and prints its events without times and process ids
    TRACEWEIR_RUNTIME_DIR=$work/run LD_LIBRARY_PATH=$library "$out/debug/weir" record --quiet \
        -p '*Example.Portable' -p '*Example.Portable.Script' -p '*Example.Portable.Tracing' \
        -p '*Example.Portable.Plain' --manifest examples/manifest/greenhouse.man -p Example-Greenhouse \
        -o "$work/$1.etl" --force -- "$2" >"$work/$1.out"
    "$out/debug/weir" dump --format jsonl --manifest examples/manifest/greenhouse.man "$work/$1.etl" |
        python3 -c '
import json, sys
for line in sys.stdin:
    event = json.loads(line)
    if "Example" in event.get("provider", "") or event.get("level") == 4:
        for key in ("time", "pid", "tid", "cpu", "session", "raw_time", "process", "thread"):
            event.pop(key, None)
        print(json.dumps(event, sort_keys=True))
' >"$work/$1.txt"
}
record linux "$out/debug/traceweir-example-portable"
record win32 "$work/win32/debug/traceweir-example-portable"
diff "$work/linux.out" "$work/win32.out"
