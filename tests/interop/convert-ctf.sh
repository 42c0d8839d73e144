#!/bin/sh
# Converts traces to CTF. babeltrace2 must read as many events as `weir dump` prints, with the same
# times, context and fields; its Python bindings deliver the values. Fails at the first difference.
#
#   tests/interop/convert-ctf.sh [TRACE]...
#
# Without arguments, converts the fixtures, the samples, a trace of many events, and a trace whose
# names, texts and payloads try to break the format. Needs babeltrace2 and its bindings for the
# system's Python.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/convert_common.sh"
if ! is_installed babeltrace2 || ! /usr/bin/python3 -c 'import bt2' 2>/dev/null; then
    skip_all babeltrace2 "it or its module bt2 for /usr/bin/python3 is not installed"
fi
build_weir
work=$target/interop/convert-ctf
mkdir -p "$work"

if [ $# -eq 0 ]; then
    "${HOSTILE_TRACE:-$(build_example traceweir-convert hostile_trace)}" "$work/hostile.etl" 3000
    "${INTEROP_WRITE:-$(build_example traceweir-format interop_write)}" "$work" 20000
fi
list_traces "$@" >"$work/traces"
[ $# -gt 0 ] || ls "$work/hostile.etl" "$work/plain.etl" >>"$work/traces"

while read -r trace; do
    name=$(basename "$trace")
    out=$work/$name
    run_weir convert "$trace" --to ctf -o "$out.ctf" --force 2>"$out.log" || { cat "$out.log" && exit 1; }
    run_weir convert "$trace" --to jsonl -o "$out.jsonl" --numeric --force 2>>"$out.log"
    run_weir convert "$trace" --to jsonl -o "$out.named.jsonl" --force 2>>"$out.log"
    babeltrace2 "$out.ctf" >"$out.text" 2>"$out.messages" || { tail -3 "$out.messages" && exit 1; }
    /usr/bin/python3 "$here/convert_ctf.py" "$out.ctf" "$out.jsonl" "$out.named.jsonl" "$out.messages"
done <"$work/traces"
