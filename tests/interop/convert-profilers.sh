#!/bin/sh
# Converts traces to the formats of profilers, reads the results with independent readers, and compares
# them with what `weir dump` and `weir flame` print. Fails at the first difference.
#
#   tests/interop/convert-profilers.sh [TRACE…]
#
# Without arguments, it converts the traces of fixtures/ and, if TRACEWEIR_SAMPLES names a folder, a
# recorded one. WEIR names another program than the one that this script builds. A reader that cannot
# be installed is skipped with a message. All files that this script makes are below the target folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
built=${CARGO_TARGET_DIR:-$root/target}
work=$built/interop/convert-profilers
mkdir -p "$work"

if [ -z "${WEIR:-}" ]; then
    cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir
    WEIR=$built/debug/weir
fi

# Reports a reader that is not available, and fails if TRACEWEIR_REQUIRE asks for it.
skip() {
    case ",${TRACEWEIR_REQUIRE:-}," in
    *,all,* | *,"$1",*) echo "required: $1: $2" && exit 1 ;;
    esac
    echo "skipped: $1: $2"
}

# The readers in Python: only the classes of Perfetto's messages are used.
python=$work/venv/bin/python
if [ ! -x "$python" ] || ! "$python" -c 'import perfetto.protos.perfetto.trace.perfetto_trace_pb2' 2>/dev/null; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    "$python" -m pip install --quiet --disable-pip-version-check perfetto==0.59.1 protobuf==7.36.2 ||
        { skip "perfetto" "PyPI is not available" && exit 0; }
fi

# The readers in JavaScript.
readers=$work/node
if [ ! -d "$readers/node_modules/pprof-format" ]; then
    mkdir -p "$readers"
    npm --prefix "$readers" install --silent --no-audit --no-fund \
        pprof-format@2.3.2 speedscope@1.25.0 @firefox-devtools/profiler-cli@0.10.0 >/dev/null 2>&1 ||
        skip "pprof-format" "npm or its registry is not available"
fi

if [ $# -eq 0 ]; then
    for name in kernel tracelogging eventsource merged narrow; do
        set -- "$@" "$root/fixtures/etl/$name.etl"
    done
    sample=${TRACEWEIR_SAMPLES:-}/net.4.5.2.x64.etl.zip
    if [ -n "${TRACEWEIR_SAMPLES:-}" ] && [ -f "$sample" ]; then
        set -- "$@" "$sample"
    else
        skip "samples" "TRACEWEIR_SAMPLES names no folder with net.4.5.2.x64.etl.zip"
    fi
fi

for trace in "$@"; do
    name=$(basename "$trace" | sed 's/\.etl.*//')
    out=$work/$name
    rm -rf "$out"
    mkdir -p "$out"
    # The exit status 4 reports losses.
    "$WEIR" dump --format jsonl "$trace" >"$out/events.jsonl" || [ $? -eq 4 ]
    "$WEIR" flame "$trace" --collapsed -o "$out/samples.folded" 2>/dev/null || rm -f "$out/samples.folded"
    for format in perfetto chrome firefox pprof; do
        "$WEIR" convert "$trace" --to "$format" -o "$out/trace.$format" || [ $? -eq 4 ]
    done
    if [ -d "$readers/node_modules/pprof-format" ]; then
        NODE_PATH=$readers/node_modules node "$here/convert-profilers.cjs" "$out/trace.pprof" >"$out/pprof.json"
    fi
    "$python" "$here/convert-profilers.py" "$out"
done

# Firefox's own command-line reader loads a profile as the page does.
cli=$readers/node_modules/.bin/profiler-cli
if [ -x "$cli" ] && [ -f "$work/kernel/trace.firefox" ]; then
    cp "$work/kernel/trace.firefox" "$work/kernel/profile.json"
    if session=$("$cli" load "$work/kernel/profile.json" 2>"$work/profiler-cli.log"); then
        echo "$session" >>"$work/profiler-cli.log"
        "$cli" profile info >"$work/profiler-info.txt"
        "$cli" stop >/dev/null 2>&1 || true
        grep -q "child.exe" "$work/profiler-info.txt" || { echo "profiler-cli does not list child.exe" && exit 1; }
        echo "profiler-cli: loads the profile and lists its processes"
    else
        skip "profiler-cli" "it cannot load profiles here"
    fi
else
    skip "profiler-cli" "it is not installed"
fi
