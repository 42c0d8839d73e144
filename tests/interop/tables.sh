#!/bin/sh
# Reads tables that this project wrote with pyarrow, DuckDB, Spark and DataFusion, and compares what
# they read with the output of weir dump. Fails at the first difference.
#
#   tests/interop/tables.sh
#
# Needs python3 with venv, Java 17 or later for Spark, and for the first run the package index. Reads
# the traces of fixtures/ and, if TRACEWEIR_SAMPLES is set, of that folder. WEIR (with the feature
# table) and WEIR_SQL name programs that are built already, and TABLES_PYTHON a Python that has the
# packages. All files that this script makes are below the target folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/interop-tables
packages='pyarrow==26.* duckdb==2.* pyspark==4.*'
python=${TABLES_PYTHON:-$work/venv/bin/python}

rm -rf "$work/data"
mkdir -p "$work/data"
if [ -z "${TABLES_PYTHON:-}" ] && [ "$(cat "$work/venv/packages" 2>/dev/null || true)" != "$packages" ]; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv"
    # shellcheck disable=SC2086 # The list is several words.
    "$python" -m pip install --quiet --disable-pip-version-check $packages
    echo "$packages" >"$work/venv/packages"
fi

built=${CARGO_TARGET_DIR:-$root/target}/debug
built_tables=${CARGO_TARGET_DIR:-$root/tables/target}/debug
if [ -z "${WEIR:-}" ]; then
    cargo build --quiet --manifest-path "$root/Cargo.toml" --package traceweir-cli --bin weir --features table
    WEIR=$built/weir
fi
if [ -z "${WEIR_SQL:-}" ]; then
    cargo build --quiet --manifest-path "$root/tables/Cargo.toml" --bin weir-sql
    WEIR_SQL=$built_tables/weir-sql
fi

# Three hosts with different numbers of events and of lost events.
for host in 1 2 3; do
    mkdir -p "$work/data/written-$host"
    if [ -n "${INTEROP_WRITE:-}" ]; then
        "$INTEROP_WRITE" "$work/data/written-$host" "${host}000" $((host * 7 - 7))
    else
        cargo run --quiet --manifest-path "$root/Cargo.toml" --package traceweir-format --example interop_write -- \
            "$work/data/written-$host" "${host}000" $((host * 7 - 7))
    fi
done

export WEIR WEIR_SQL
exec "$python" "$here/tables.py" "$root" "$work/data"
