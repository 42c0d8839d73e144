#!/bin/sh
# Compiles libtraceweir-wide.a for programs that are built with -fshort-wchar.
#
#   crates/ffi/wide/build.sh FOLDER
#
# CC and CXX name the compilers (cc, c++). Without a C++ compiler the library has no C++ strings and
# streams, and build.sh says so. A library of the same sources, headers and compilers stays: beside
# it, libtraceweir-wide.stamp has their checksums and versions.
set -eu

[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
library=$out/libtraceweir-wide.a
stamp=$out/libtraceweir-wide.stamp

# This script, with the flags of the compilers, is one of the sources.
describe() {
    for tool in "${CC:-cc}" "${CXX:-c++}" "${AR:-ar}"; do
        echo "$tool: $({ $tool --version 2>/dev/null || echo "not installed"; } | head -n 1)"
    done
    (cd "$here/.." && find wide include -type f | LC_ALL=C sort | xargs cksum)
}
description=$(describe)
if [ -e "$library" ] && [ -e "$stamp" ] && [ "$description" = "$(cat "$stamp")" ]; then
    exit 0
fi
objects=$(mktemp -d "$out/wide.XXXXXX")
trap 'rm -rf "$objects"' EXIT

# Hidden: a shared object of the process keeps using the C library's functions.
flags="-O2 -fPIC -fshort-wchar -fvisibility=hidden -Wall -Wextra -U_FORTIFY_SOURCE"
for source in "$here"/*.c; do
    ${CC:-cc} -std=gnu11 $flags -c "$source" -o "$objects/$(basename "$source" .c).o"
done
if ${CXX:-c++} --version > /dev/null 2>&1; then
    for source in "$here"/*.cpp; do
        standard=c++17
        [ "${source%20.cpp}" = "$source" ] || standard=c++20
        ${CXX:-c++} -std=$standard $flags -fvisibility-inlines-hidden -c "$source" -o "$objects/$(basename "$source" .cpp).o"
    done
else
    echo "libtraceweir-wide.a has no C++ strings and streams: ${CXX:-c++} is not installed" >&2
fi
${AR:-ar} rcs "$objects/new.a" "$objects"/*.o
echo "$description" > "$objects/new.stamp"
# The stamp comes last: without it, the next call compiles again.
rm -f "$stamp"
mv "$objects/new.a" "$library"
mv "$objects/new.stamp" "$stamp"
