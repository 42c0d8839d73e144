#!/bin/sh
# Runs `weir convert --to parquet` and `weir sql` as users do, and compares what they write and read
# with the output of `weir dump`. Fails at the first difference.
#
#   tables/end-to-end.sh
#
# WEIR (with the feature table) and WEIR_SQL name programs that are built already.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
traces=$root/fixtures/etl
if [ -z "${WEIR:-}" ]; then
    cargo build --quiet --locked --manifest-path "$root/Cargo.toml" --package traceweir-cli --features table
    WEIR=${CARGO_TARGET_DIR:-$root/target}/debug/weir
fi
if [ -z "${WEIR_SQL:-}" ]; then
    cargo build --quiet --locked --manifest-path "$here/Cargo.toml" --package weir-sql
    WEIR_SQL=${CARGO_TARGET_DIR:-$here/target}/debug/weir-sql
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# `weir sql` runs the program of this name in PATH.
mkdir bin
ln -s "$(realpath "$WEIR")" bin/weir
ln -s "$(realpath "$WEIR_SQL")" bin/weir-sql
PATH=$work/bin:$PATH

fail() {
    echo "failed: $*" >&2
    cat errors >&2
    exit 1
}

# Runs a command, and checks its exit status: expect STATUS COMMAND…
expect() {
    wanted=$1
    shift
    status=0
    "$@" 2>errors || status=$?
    [ "$status" -eq "$wanted" ] || fail "status $status, not $wanted: $*"
}

# Checks that the last command printed a text to standard error.
expect_message() {
    grep -qF -e "$1" errors || fail "no message: $1"
}

# Checks that two numbers are equal: equal NAME FOUND WANTED
equal() {
    [ "$2" = "$3" ] || fail "$1: $2 instead of $3"
    echo "$1: $2"
}

# Prints the only value that a query returns: ask INPUT QUERY
ask() {
    weir sql "$1" "$2" --format csv | tail -n 1
}

# Prints the number of events that `weir dump` prints.
dumped() {
    { weir dump --format jsonl "$1" 2>/dev/null || [ $? -eq 3 ]; } | wc -l
}

# Prints the number of rows of all tables of a dataset, except that of losses.
count_rows() {
    for table in $(weir sql "$1" --tables | awk '$1 != "losses" { print $1 }'); do
        ask "$1" "SELECT count(*) FROM $table"
    done | awk '{ sum += $1 } END { print sum }'
}

kernel=$(dumped "$traces/kernel.etl")
logging=$(dumped "$traces/tracelogging.etl")

expect 0 weir convert "$traces/kernel.etl" --to parquet -o one.parquet
equal "rows of one file" "$(ask one.parquet 'SELECT count(*) FROM events')" "$kernel"
cp one.parquet before.parquet
expect 1 weir convert "$traces/tracelogging.etl" --to parquet -o one.parquet
expect_message "--force replaces it"
cmp one.parquet before.parquet
expect 0 weir convert "$traces/tracelogging.etl" --to parquet -o one.parquet --force
equal "rows of the replaced file" "$(ask one.parquet 'SELECT count(*) FROM events')" "$logging"
expect 1 weir convert "$traces/kernel.etl" --to parquet --layout by-type -o types.parquet
expect_message "use -o FOLDER"
[ ! -e types.parquet ] || fail "types.parquet exists"

expect 0 weir convert "$traces/kernel.etl" --to arrow -o stream.arrows
weir convert "$traces/kernel.etl" --to arrow >stdout.arrows 2>errors
cmp stream.arrows stdout.arrows

expect 0 weir convert "$traces/kernel.etl" --to parquet --layout by-type -o typed
equal "rows by type" "$(count_rows typed)" "$kernel"
expect 0 weir convert "$traces/tracelogging.etl" --to parquet --layout by-type -o typed --force
expect_message "--force has no effect"
equal "rows by type of two traces" "$(count_rows typed)" $((kernel + logging))
expect 0 weir convert "$traces/kernel.etl" --to parquet --layout by-type -o typed
equal "rows by type, converted again" "$(count_rows typed)" $((kernel + logging))
equal "a field" "$(ask typed 'SELECT "ImageFileName" FROM windows_kernel_process_start_v4')" child.exe

expect 0 weir convert "$traces/kernel.etl" --to parquet --layout kernel -o kernel
switches=$(weir dump --format jsonl "$traces/kernel.etl" 2>/dev/null | grep -c '"event":"Thread/CSwitch"')
equal "context switches" "$(ask kernel 'SELECT count(*) FROM switches')" "$switches"

expect 0 weir convert "$traces/tracelogging.etl" --to parquet --host one -o hosts
expect 0 weir convert "$traces/kernel.etl" --to parquet -o hosts
equal "hosts" "$(ask hosts 'SELECT count(DISTINCT host) FROM events')" 2
equal "rows of one host" "$(ask hosts "SELECT count(*) FROM events WHERE host = 'one'")" "$logging"

# A trace that ends in the middle of its last buffer: what can be read is read.
head -c 7000 "$traces/kernel.etl" >cut.etl
readable=$(dumped cut.etl)
for layout in events by-type; do
    expect 3 weir convert cut.etl --to parquet --layout $layout -o "cut-$layout"
    expect_message "warning: cut.etl"
    equal "rows of a damaged trace, $layout" "$(count_rows "cut-$layout")" "$readable"
    defects=$(ask "cut-$layout" "SELECT count(*) FROM losses WHERE kind = 'defect'")
    [ "$defects" -gt 0 ] || fail "no defect among the losses"
done
head -c 5000 /dev/urandom >noise.etl
for output in noise.parquet noise; do
    expect 1 weir convert noise.etl --to parquet -o $output
    [ ! -e $output ] || fail "$output exists"
done
ls -A | grep '\.tmp$\|^\.' && fail "an incomplete file was left"

expect 1 weir sql typed 'SELECT "ImageFileNames" FROM windows_kernel_process_start_v4'
expect_message "did you mean"
echo "weir convert --to parquet and weir sql: as weir dump"
