#!/bin/sh
# Builds the Debian package of weir-sql, the program that `weir sql` runs, and checks that it can be
# installed, run and removed.
#
#   packaging/debian-sql.sh FOLDER
#
# FOLDER gets weir-sql_VERSION_ARCHITECTURE.deb. WEIR_SQL names a program that is built already;
# otherwise cargo builds a release, which takes long. Needs dpkg-deb; with dpkg-shlibdeps (package
# dpkg-dev), the dependencies are those of the program. As root, the package is also installed and
# removed.
set -eu

output=$(mkdir -p "${1:?usage: debian-sql.sh FOLDER}" && cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${WEIR_SQL:-}" ]; then
    cargo build --release --locked --manifest-path "$root/tables/Cargo.toml" --package weir-sql
    WEIR_SQL=${CARGO_TARGET_DIR:-$root/tables/target}/release/weir-sql
fi
program=$(realpath "$WEIR_SQL")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/tables/Cargo.toml" | head -n 1)
architecture=$(dpkg --print-architecture)
# Equal sources give equal packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

tree=$work/tree
install -D -m 755 "$program" "$tree/usr/bin/weir-sql"
if command -v strip >/dev/null; then
    strip --strip-unneeded "$tree/usr/bin/weir-sql"
fi
mkdir -p "$tree/usr/share/man/man1" "$tree/usr/share/doc/weir-sql" "$tree/DEBIAN"
"$program" --man | gzip -9n >"$tree/usr/share/man/man1/weir-sql.1.gz"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n'
    printf 'Files: *\nCopyright: 2026 The Traceweir authors\nLicense: MIT or Apache-2.0\n\n'
    printf 'License: MIT\n'
    sed 's/^$/./; s/^/ /' "$root/LICENSE-MIT"
    printf '\nLicense: Apache-2.0\n On Debian, the file /usr/share/common-licenses/Apache-2.0 has the text.\n'
} >"$tree/usr/share/doc/weir-sql/copyright"

# dpkg-shlibdeps reads debian/control in the current folder.
depends="libc6, libgcc-s1"
if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$work/source/debian"
    printf 'Source: weir-sql\n\nPackage: weir-sql\nArchitecture: any\n' >"$work/source/debian/control"
    depends=$(cd "$work/source" && dpkg-shlibdeps -O -e"$tree/usr/bin/weir-sql" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p')
fi
cat >"$tree/DEBIAN/control" <<CONTROL
Package: weir-sql
Version: $version
Architecture: $architecture
Maintainer: The Traceweir authors <traceweir@users.noreply.github.com>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f 1)
Depends: $depends
Enhances: weir
Section: utils
Priority: optional
Homepage: https://github.com/traceweir/traceweir
Description: query event traces and datasets with SQL
 weir-sql reads event traces of Windows and Linux (.etl), and the Parquet
 datasets that weir convert writes, and answers queries in SQL. The command
 weir sql runs it.
CONTROL
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
package=$output/weir-sql_${version}_$architecture.deb
dpkg-deb --build --root-owner-group "$tree" "$package" >/dev/null

# Checks the package as it is, in a root folder of its own.
installed=$work/installed
trace=$root/fixtures/etl/kernel.etl
mkdir -p "$installed/var/lib/dpkg/info" "$installed/var/lib/dpkg/updates" "$installed/var/log"
: >"$installed/var/lib/dpkg/status"
if [ "$(id -u)" = 0 ]; then
    dpkg --root="$installed" --force-depends --install "$package" >/dev/null 2>&1
else
    dpkg-deb --extract "$package" "$installed"
fi
"$installed/usr/bin/weir-sql" --version | grep -qx "weir-sql $version"
events=$("$installed/usr/bin/weir-sql" "$trace" "SELECT count(*) AS n FROM events" --format csv | tail -n 1)
[ "$events" = "$(wc -l <"$root/fixtures/expected/kernel.jsonl")" ]
(cd "$installed" && md5sum --check --quiet "$tree/DEBIAN/md5sums")
gzip -dc "$installed/usr/share/man/man1/weir-sql.1.gz" | grep -q '^\.SH OPTIONS'
[ -s "$installed/usr/share/doc/weir-sql/copyright" ]
if [ "$(id -u)" = 0 ]; then
    dpkg --root="$installed" --purge weir-sql >/dev/null 2>&1
    left=$(find "$installed" -path "$installed/var" -prune -o -type f -print)
    [ -z "$left" ] || { echo "left after the removal: $left" >&2 && exit 1; }
fi
echo "$package: $(stat -c %s "$package") bytes, depends on $depends"
