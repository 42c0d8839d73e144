#!/bin/sh
# Converts traces with `weir convert` and reads the outputs with independent readers.
#
#   tests/interop/convert.sh [TRACE…]
#
# Without TRACE, the fixtures and the samples are converted. Each format has a function below; a format
# whose reader is not installed is skipped, or fails if TRACEWEIR_REQUIRE names it. The scripts
# convert-*.sh beside this one check further formats and are run at the end.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/interop/convert
weir=$target/debug/weir

mkdir -p "$work"
cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir

# Prints that a reader is missing, or fails if it is required.
skip() {
    case ",${TRACEWEIR_REQUIRE:-}," in
    *,all,* | *",$1,"*) echo "required: $1" && exit 1 ;;
    esac
    echo "skipped: $1 is not installed"
}

# Traces whose names, texts and payloads try to break a format, and one of many events.
cargo run --quiet --manifest-path "$root/Cargo.toml" --package traceweir-convert --example hostile_trace -- \
    "$work/hostile.etl" 3000
cargo run --quiet --manifest-path "$root/Cargo.toml" --package traceweir-format --example interop_write -- \
    "$work" 20000

# Prints the traces to convert.
list_traces() {
    if [ $# -gt 0 ]; then
        printf '%s\n' "$@"
        return
    fi
    ls "$root"/fixtures/etl/*.etl "$work/hostile.etl" "$work/plain.etl"
    samples=${TRACEWEIR_SAMPLES:-$root/../shared/data}
    if [ -d "$samples" ]; then
        ls "$samples"/*.etl "$samples"/*.etl.zip
    fi
}

# ctf: babeltrace2 must read as many events as `weir dump` prints, with the same times, context and
# fields. Its Python bindings deliver the values.
check_ctf() {
    if ! command -v babeltrace2 >/dev/null || ! /usr/bin/python3 -c 'import bt2' 2>/dev/null; then
        skip babeltrace2
        return
    fi
    list_traces "$@" | while read -r trace; do
        name=$(basename "$trace")
        # Status 3: the trace is damaged, and its readable part was converted.
        "$weir" convert "$trace" --to ctf -o "$work/$name.ctf" --force 2>"$work/$name.log" || [ $? -eq 3 ]
        "$weir" convert "$trace" --to jsonl -o "$work/$name.jsonl" --numeric --force 2>>"$work/$name.log" || [ $? -eq 3 ]
        "$weir" convert "$trace" --to jsonl -o "$work/$name.named.jsonl" --force 2>>"$work/$name.log" || [ $? -eq 3 ]
        babeltrace2 "$work/$name.ctf" >"$work/$name.text" 2>"$work/$name.messages"
        /usr/bin/python3 "$here/convert_ctf.py" "$work/$name.ctf" "$work/$name.jsonl" "$work/$name.named.jsonl" \
            "$work/$name.messages"
    done
}

check_ctf "$@"

for script in "$here"/convert-*.sh; do
    [ -e "$script" ] || continue
    "$script" "$@"
done
