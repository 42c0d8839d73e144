#!/bin/sh
# Installs the library for C and C++: headers, libtraceweir.so, libtraceweir.a and traceweir.pc.
#
#   crates/ffi/install.sh [--prefix /usr/local] [--libdir PREFIX/lib] [--built target/c] [--destdir ""]
#
# Build the library first: cargo build -p traceweir-ffi --profile c
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
prefix=/usr/local
libdir=
destdir=
built=${CARGO_TARGET_DIR:-$root/target}/c

while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --built) built=$2 ;;
        --destdir) destdir=$2 ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift 2
done
libdir=${libdir:-$prefix/lib}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)

if [ ! -e "$built/libtraceweir_c.so" ]; then
    echo "$built/libtraceweir_c.so does not exist; build it with: cargo build -p traceweir-ffi --profile c" >&2
    exit 1
fi

install -d "$destdir$libdir/pkgconfig" "$destdir$prefix/include/traceweir"
install -m 755 "$built/libtraceweir_c.so" "$destdir$libdir/libtraceweir.so.$version"
ln -sf "libtraceweir.so.$version" "$destdir$libdir/libtraceweir.so.0"
ln -sf libtraceweir.so.0 "$destdir$libdir/libtraceweir.so"
install -m 644 "$built/libtraceweir_c.a" "$destdir$libdir/libtraceweir.a"
(cd "$here/include" && find . -name '*.h') | while read -r header; do
    install -D -m 644 "$here/include/$header" "$destdir$prefix/include/traceweir/$header"
done
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@version@|$version|" \
    "$here/traceweir.pc.in" > "$destdir$libdir/pkgconfig/traceweir.pc"
