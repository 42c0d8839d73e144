#!/bin/sh
# Builds the library and the standard library for ThreadSanitizer, and prints the folder of the
# library:
#
#   export TRACEWEIR_THREAD_SANITIZER=$(crates/ffi/tests/thread-sanitizer.sh)
#   cargo test -p traceweir-ffi --test handles
#
# The standard library must be built the same way: otherwise its synchronization would look like
# races. This needs its sources (rust-src) and unstable options, which a stable compiler accepts
# only with RUSTC_BOOTSTRAP; nothing that is built here is used elsewhere.
#
# If the sources are not available, the script prints "none".
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
triple=$(rustc -vV | sed -n 's/^host: //p')
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] && ! rustup component add rust-src >&2; then
    echo "thread-sanitizer.sh: the sources of the standard library (rust-src) are not available here" >&2
    echo none
    exit
fi
target=${CARGO_TARGET_DIR:-$here/../../../target}/thread-sanitizer
RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=thread -Cdebuginfo=line-tables-only' CARGO_TARGET_DIR=$target \
    cargo build --quiet --manifest-path "$here/../Cargo.toml" --lib -Zbuild-std --target "$triple" >&2
cd "$target/$triple/debug"
pwd
