#!/bin/sh
# Runs the tests of the engine as an ordinary user; needs root, to become one.
#
#   tests/accounts/unprivileged.sh
#
# The binaries are copied to a folder that everybody may read, because the build may lie where nobody else can look.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 1777 "$work"

cd "$root"
cargo test --quiet -p traceweir-cli --no-run
build() { # KEY: path of the built file of that target, from cargo itself
    cargo test -p traceweir-cli --no-run --message-format=json 2>/dev/null |
        sed -n "s/.*\"name\":\"$1\".*\"executable\":\"\([^\"]*\)\".*/\1/p" | tail -1
}
cp "$(build accounts)" "$work/accounts"
cp "${CARGO_TARGET_DIR:-$root/target}/debug/weir" "$work/weir"
chmod 755 "$work/accounts" "$work/weir"

cd "$work"
setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" TMPDIR="$work" HOME="$work" \
    TRACEWEIR_TEST_WEIR="$work/weir" "$work/accounts"
