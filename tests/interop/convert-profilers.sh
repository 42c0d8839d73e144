#!/bin/sh
# Converts traces to the formats of profilers, reads the results with independent readers, and compares
# them with what `weir dump` and `weir flame` print. Fails at the first difference.
#
#   tests/interop/convert-profilers.sh [TRACE]...
#
# Without arguments, converts the traces of fixtures/ and, if TRACEWEIR_SAMPLES names a folder, a
# recorded one. Needs python3 with venv and, for pprof, speedscope and the Firefox Profiler, node and
# npm; the first run also needs the package indexes. Opens the page of speedscope if playwright-core and
# Chromium are installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/convert_common.sh"
work=$target/interop/convert-profilers
mkdir -p "$work"

# Of the package of Perfetto, only the classes of the messages are used.
python=$(make_python "$work/venv" perfetto==0.59.1 protobuf==7.36.2 jsonschema==4.25.1) ||
    skip_all perfetto "its Python package cannot be installed"
build_weir

# The readers in JavaScript.
readers=$work/node
packages='pprof-format@2.3.2 speedscope@1.25.0 @firefox-devtools/profiler-cli@0.10.0'
if ! is_installed npm; then
    skip npm "it is not installed"
    packages=
elif [ "$(cat "$readers/packages" 2>/dev/null || true)" != "$packages" ]; then
    rm -rf "$readers"
    mkdir -p "$readers"
    # shellcheck disable=SC2086 # The list is several words.
    if npm --prefix "$readers" install --silent --no-audit --no-fund $packages >"$work/npm.log" 2>&1; then
        echo "$packages" >"$readers/packages"
    else
        skip npm "its registry is not available"
        packages=
    fi
fi
schema=
[ -z "$packages" ] || schema=$readers/node_modules/speedscope/dist/release/file-format-schema.json

browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome || true)
NODE_PATH=$readers/node_modules:/usr/lib/node_modules:/usr/local/lib/node_modules
export NODE_PATH
if [ -n "$packages" ] && { [ -z "$browser" ] || ! node -e 'require("playwright-core")' 2>/dev/null; }; then
    skip browser "playwright-core or Chromium is not installed"
    browser=
fi

if [ $# -eq 0 ]; then
    for name in kernel tracelogging eventsource merged narrow; do
        set -- "$@" "$root/fixtures/etl/$name.etl"
    done
    sample=${TRACEWEIR_SAMPLES:-}/net.4.5.2.x64.etl.zip
    if [ -n "${TRACEWEIR_SAMPLES:-}" ] && [ -f "$sample" ]; then
        set -- "$@" "$sample"
    else
        skip samples "TRACEWEIR_SAMPLES names no folder with net.4.5.2.x64.etl.zip"
    fi
fi

for trace in "$@"; do
    name=$(basename "$trace" | sed 's/\.etl.*//')
    out=$work/$name
    rm -rf "$out"
    mkdir -p "$out"
    run_weir dump --format jsonl "$trace" >"$out/events.jsonl"
    for format in perfetto chrome firefox; do
        run_weir convert "$trace" --to "$format" -o "$out/trace.$format"
    done
    if ! run_weir convert "$trace" --to pprof -o "$out/trace.pprof" 2>"$out/pprof.log" &&
        ! grep -q "no samples" "$out/pprof.log"; then
        cat "$out/pprof.log" && exit 1
    fi
    if run_weir flame "$trace" --collapsed -o "$out/samples.folded" 2>"$out/flame.log"; then
        run_weir convert "$trace" --to speedscope -o "$out/trace.speedscope"
    elif ! grep -q "no samples" "$out/flame.log"; then
        cat "$out/flame.log" && exit 1
    fi
    if [ -n "$packages" ] && [ -f "$out/trace.pprof" ]; then
        node "$here/convert-profilers.cjs" "$out/trace.pprof" >"$out/pprof.json"
    fi
    if [ -n "$packages" ] && [ -n "$browser" ] && [ -f "$out/trace.speedscope" ]; then
        BROWSER_PROGRAM=$browser node "$here/convert_speedscope.cjs" "$readers/node_modules/speedscope" \
            "$out/trace.speedscope" >"$out/page.json"
    fi
    "$python" "$here/convert-profilers.py" "$out" $schema
    if [ -n "$packages" ]; then
        cp "$out/trace.firefox" "$out/profile.json"
        PROFILER_CLI_SESSION_DIR=$out "$python" "$here/convert_firefox.py" \
            "$readers/node_modules/.bin/profiler-cli" "$out"
    fi
done
