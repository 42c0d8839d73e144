#!/usr/bin/env bash
# Builds and runs programs that other people wrote for Windows, and compares their results with
# what they must print. README.md lists the programs and where their sources are.
#
#   tests/thirdparty/run.sh FOLDER [NAME…]      programs without a NAME are all that README.md lists
#
# FOLDER has one folder of sources for each program, called NAME. This script downloads nothing.
# It builds Traceweir in the release profile, installs it below the target folder, and starts a
# daemon of its own. Kernel sessions need root.
#
# Each program has a script NAME.sh, which gets these variables:
#
#   SOURCE    its sources; the script does not write there
#   PREFIX    the installed Traceweir; PATH, PKG_CONFIG_PATH and LD_LIBRARY_PATH point there
#   WORK      an empty folder, which is also the current folder
#   SAMPLES   a folder with sample traces of Windows, or empty (TRACEWEIR_SAMPLES)
#   CHECKOUT  the source tree of Traceweir
#
# It exits with 0 if all results are right, with 77 if something that it needs is missing, and with
# another status if a result is wrong. The last line that it prints says what was compared, or what
# is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
CHECKOUT=$(cd "$here/../.." && pwd)
if [ $# = 0 ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
fi
sources=$(cd "$1" && pwd)
shift
known=$(cd "$here" && for script in *.sh; do [ "$script" = run.sh ] || echo "${script%.sh}"; done)
names=${*:-$known}
for name in $names; do
    if ! grep -qx "$name" <<<"$known"; then
        echo "$0: no program is called $name; known are:" $known >&2
        exit 2
    fi
done

out=${CARGO_TARGET_DIR:-$CHECKOUT/target}
top=$out/thirdparty
PREFIX=$top/prefix
rm -rf "$top"
mkdir -p "$PREFIX/bin" "$top/run"
cd "$CHECKOUT"
cargo build --quiet --package traceweir-ffi --profile c
cargo build --quiet --profile dist --package traceweir-cli
crates/ffi/install.sh --prefix "$PREFIX" --built "$out/c"
install -m 755 "$out/dist/weir" "$PREFIX/bin/weir"

SAMPLES=${TRACEWEIR_SAMPLES:-}
export CHECKOUT PREFIX SAMPLES
export PATH="$PREFIX/bin:$PATH" LD_LIBRARY_PATH="$PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PKG_CONFIG_PATH="$PREFIX/lib/pkgconfig"
export TRACEWEIR_RUNTIME_DIR="$top/run"

failed='' skipped='' passed=0
for name in $names; do
    export SOURCE="$sources/$name" WORK="$top/$name"
    mkdir "$WORK"
    if [ ! -d "$SOURCE" ]; then
        status=77
        echo "$SOURCE does not exist" >"$WORK.log"
    else
        status=0
        (cd "$WORK" && bash "$here/$name.sh") >"$WORK.log" 2>&1 </dev/null || status=$?
    fi
    last=$(tail -n 1 "$WORK.log")
    case $status in
        0) passed=$((passed + 1)); echo "$name: passed: $last" ;;
        77) skipped="$skipped $name"; echo "$name: skipped: $last" ;;
        *) failed="$failed $name"; echo "$name: failed with status $status:"; tail -n 40 "$WORK.log" ;;
    esac
done
[ -z "$skipped" ] || echo "skipped:$skipped"
if [ -n "$failed" ]; then
    echo "failed:$failed; the logs are in $top" >&2
    exit 1
fi
if [ "$passed" = 0 ]; then
    echo "no program ran: $sources has no sources of a program that README.md lists" >&2
    exit 1
fi
