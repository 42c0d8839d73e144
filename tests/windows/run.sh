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


record() { # NAME PROGRAM: records the program; NAME.txt gets its events without their identity
    TRACEWEIR_RUNTIME_DIR=$work/run LD_LIBRARY_PATH=$library "$out/debug/weir" record \
        -p '*Example.Portable,*Example.Portable.Script,*Example.Portable.Tracing,*Example.Portable.Plain' \
        --manifest examples/manifest/greenhouse.man -p Example-Greenhouse \
        -o "$work/$1.etl" -- "$2" >"$work/$1.out" 2>"$work/$1.err" || { cat "$work/$1.err" >&2; exit 1; }
    # Events of the session itself, descriptions of processes, times, processes and created activity ids differ.
    "$out/debug/weir" dump --format jsonl --manifest examples/manifest/greenhouse.man "$work/$1.etl" 2>/dev/null |
        grep -v -e '"guid":"68fdd900-' -e '"guid":"3d6fa8d0-' |
        sed -E 's/"(time|ms|pid|tid|cpu)":("[^"]*"|[-0-9.]+),//g; s/"activity":"[^"]*-e000-/"activity":"created-/;
                s/"created-[^"]*"/"created"/' >"$work/$1.txt"
}
chmod 700 "$work/run"
record linux "$out/debug/traceweir-example-portable"
record win32 "$work/win32/debug/traceweir-example-portable"
diff "$work/linux.out" "$work/win32.out"
diff "$work/linux.txt" "$work/win32.txt"
for text in mauve blåbær tomatoes served '"Message":"four"'; do
    grep -q "$text" "$work/win32.txt" || { echo "no event with $text in $work/win32.etl" >&2; exit 1; }
done
echo "   $(wc -l <"$work/win32.txt") events are equal"

if ! command -v wine >/dev/null; then
    echo "4. skipped: Wine is not installed"
    exit 0
fi
echo "4. running under Wine"
mkdir -p "$work/wine"
cp "$out/$target/debug/traceweir-example-portable.exe" "$work/wine"
# Rust's standard library needs this library, which Wine has since version 9 only.
cat >"$work/wine/prng.c" <<'EOF'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T size) {
    return SystemFunction036(bytes, (ULONG)size);
}
EOF
x86_64-w64-mingw32-gcc -shared -o "$work/wine/bcryptprimitives.dll" "$work/wine/prng.c" -ladvapi32
WINEDEBUG=-all WINEPREFIX=$work/wine/prefix wine "$work/wine/traceweir-example-portable.exe" >"$work/wine.txt"
tr -d '\r' <"$work/wine.txt" >"$work/wine.out"
# Wine accepts registrations and enables nothing.
grep -q '^macros: status 0, enabled false$' "$work/wine.out" && grep -q '^functions: enabled false$' "$work/wine.out" ||
    { cat "$work/wine.out" >&2; exit 1; }
