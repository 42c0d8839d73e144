#!/bin/sh
# Builds the library, and the standard library with it, for ThreadSanitizer, and prints the folder that has it:
#
#   export TRACEWEIR_THREAD_SANITIZER=$(crates/ffi/tests/thread-sanitizer.sh)
#   cargo test -p traceweir-ffi --test handles
#
# The standard library has to be built the same way: what it synchronizes would be races otherwise. That takes its sources (rust-src) and options
# that a stable compiler has only when it is told to be one of tomorrow; nothing that is built here goes anywhere else.
#
# Where those sources cannot be had it prints "none".
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
triple=$(rustc -vV | sed -n 's/^host: //p')
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] && ! rustup component add rust-src >&2; then
    echo "thread-sanitizer.sh: the sources of the standard library (rust-src) cannot be had here" >&2
    echo none
    exit
fi
target=${CARGO_TARGET_DIR:-$here/../../../target}/thread-sanitizer
RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=thread -Cdebuginfo=line-tables-only' CARGO_TARGET_DIR=$target \
    cargo build --quiet --manifest-path "$here/../Cargo.toml" --lib -Zbuild-std --target "$triple" >&2
cd "$target/$triple/debug"
pwd
