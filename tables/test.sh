#!/bin/sh
# Checks and tests the workspace of tables: formatting, lints, tests, documentation, `weir convert` and
# `weir sql` as users run them and, with the argument "interop", the readers of others.
#
#   tables/test.sh [interop]
#
# The first build takes long: DataFusion is large.
set -eu

cd "$(dirname "$0")"
cargo fmt --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo test --workspace --locked
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
./end-to-end.sh
if [ "${1:-}" = interop ]; then
    ../tests/interop/tables.sh
fi
