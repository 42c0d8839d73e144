#!/bin/sh
# Compiles libtraceweir-wide.a for programs that are built with -fshort-wchar.
#
#   crates/ffi/wide/build.sh FOLDER
#
# CC and CXX name the compilers (cc, c++). Without a C++ compiler the library has no C++ strings and
# streams, and build.sh says so. A library that is newer than all sources stays.
set -eu

[ $# -eq 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
library=$out/libtraceweir-wide.a
if [ -e "$library" ] && [ -z "$(find "$here" "$here/../include/wide" -newer "$library")" ]; then
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
mv "$objects/new.a" "$library"
