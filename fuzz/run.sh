#!/bin/sh
# Runs the fuzz targets on a stable compiler. FUZZ_SANITIZER=address adds a sanitizer.
#
#   fuzz/run.sh [seconds] [target…]       by default all targets, 60 seconds each
#
# Prints a line for each target, and the end of the output of each target that fails. Exits with 1 if a
# target failed; the inputs are in fuzz/artifacts/<target>. `cargo +nightly fuzz run <target>` works as well.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
seconds=60
case ${1:-} in
    '' | *[!0-9]*) ;;
    *) seconds=$1; shift ;;
esac
if [ $# -eq 0 ]; then
    for source in "$here"/fuzz_targets/*.rs; do set -- "$@" "$(basename "$source" .rs)"; done
fi

memory=512
case ${FUZZ_SANITIZER:-} in
    '') ;;
    # RUSTC_BOOTSTRAP allows the option -Zsanitizer in a stable compiler. With `fuzz_exact`,
    # allocations have exactly the size that calls get, so the sanitizer detects reads beyond it. The
    # sanitizer keeps freed memory for a while, so the targets need more memory.
    *) export RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=$FUZZ_SANITIZER --cfg fuzz_exact"
       memory=2048 ;;
esac
# The flags of cargo-fuzz for `--sanitizer none`. Because a target is named, they do not reach build
# scripts and procedural macros.
triple=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="${RUSTFLAGS:-} --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Clink-dead-code -Cdebug-assertions=on -Coverflow-checks=on -Ccodegen-units=1"
bins=''
for target in "$@"; do bins="$bins --bin $target"; done
# shellcheck disable=SC2086
cargo build --manifest-path "$here/Cargo.toml" --release --target "$triple" $bins
built="${CARGO_TARGET_DIR:-$here/target}/$triple/release"

# Runs one target, and creates the file `passed` in its folder if it passes. Prints its lines at once,
# because several targets run at a time.
fuzz_target() { # TARGET
    corpus="${FUZZ_CORPUS:-$here/corpus}/$1"
    artifacts="$here/artifacts/$1"
    log="$artifacts.log"
    mkdir -p "$corpus" "$artifacts"
    rm -f "$artifacts/passed"
    if "$built/$1" "$corpus" "$here/seeds/$1" -max_total_time="$seconds" -rss_limit_mb=$memory -timeout=10 \
        -malloc_limit_mb=128 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$artifacts/" >"$log" 2>&1; then
        : >"$artifacts/passed"
        inputs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
        printf '== %s: %s s, inputs: %s\n' "$1" "$seconds" "$inputs"
    else
        printf '== %s: %s s: failed\n%s\n' "$1" "$seconds" "$(grep -Ev '^#[0-9]+[[:space:]]' "$log" | tail -n 200)"
    fi
}

# One target for each processor at a time. All of them take the same time.
processors=$(nproc)
started=0
for target in "$@"; do
    fuzz_target "$target" &
    started=$((started + 1))
    [ $((started % processors)) -ne 0 ] || wait
done
wait
failed=''
for target in "$@"; do
    [ -e "$here/artifacts/$target/passed" ] || failed="$failed $target"
done
if [ -n "$failed" ]; then
    echo "fuzz targets that failed:$failed (inputs: $here/artifacts)" >&2
    exit 1
fi
