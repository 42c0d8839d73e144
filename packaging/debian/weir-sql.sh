#!/usr/bin/env bash
# Builds the Debian package of weir-sql, the program that weir sql runs, and checks it.
#
#   packaging/debian/weir-sql.sh [--out tables/target/debian] [--built FILE]
#
# --built names a weir-sql that is built already; else cargo builds a release, which takes long. The
# check installs, runs and removes the package in a root folder of its own; only root can install, so
# for other users the check extracts the package.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/tables/target}
out=$target/debian
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/tables/Cargo.toml" | head -n 1)
binary=
while [ $# -gt 0 ]; do
    case "$1" in
        --out) out=$2; shift ;;
        --built) binary=$(realpath "$2"); shift ;;
        *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
cd "$root"
if [ -z "$binary" ]; then
    cargo build --release --locked --manifest-path tables/Cargo.toml --package weir-sql
    binary=$target/release/weir-sql
fi

. packaging/debian/package.sh

stage=$(new_stage)
install -D -m 755 "$binary" "$stage/usr/bin/weir-sql"
strip --strip-unneeded --remove-section=.comment "$stage/usr/bin/weir-sql"
mkdir -p "$stage/usr/share/man/man1" "$stage/usr/share/doc/weir-sql"
"$binary" --man | gzip -9n > "$stage/usr/share/man/man1/weir-sql.1.gz"
third_party_licences tables/Cargo.toml weir-sql > "$stage/usr/share/doc/weir-sql/third-party.txt"
depends=$(shared_library_dependencies "$stage/usr/bin/weir-sql")
package=$(build_package "$stage" weir-sql "Section: utils
Priority: optional
Depends: $depends
Enhances: weir" \
    "query event traces and datasets with SQL" \
    "weir-sql reads event traces of Windows and Linux (.etl) and the Parquet datasets that weir convert writes, and answers queries in SQL. The command weir sql runs it.")

# The check.
installed=$stages/installed
mkdir -p "$installed"/var/lib/dpkg/{info,updates} "$installed/var/log"
touch "$installed/var/lib/dpkg/status"
manage() { # ARGUMENT…: runs dpkg in the root folder, which has none of the packages that others need
    dpkg --root="$installed" --force-depends "$@" > "$stages/dpkg.log" 2>&1 || { cat "$stages/dpkg.log" >&2; exit 1; }
}
if [ "$(id -u)" = 0 ]; then
    manage --install "$package"
else
    dpkg-deb --extract "$package" "$installed"
fi
(cd "$installed" && md5sum --check --quiet "$stage/DEBIAN/md5sums")
[ "$("$installed/usr/bin/weir-sql" --version)" = "weir-sql $version" ]
question="SELECT count(*) AS n FROM events"
events=$("$installed/usr/bin/weir-sql" fixtures/etl/kernel.etl "$question" --format csv | tail -n 1)
[ "$events" = "$(wc -l < fixtures/expected/kernel.jsonl)" ]
gzip -dc "$installed/usr/share/man/man1/weir-sql.1.gz" | grep -q '^\.SH OPTIONS'
[ -s "$installed/usr/share/doc/weir-sql/copyright" ]
if [ "$(id -u)" = 0 ]; then
    manage --purge weir-sql
    left=$(find "$installed" -path "$installed/var" -prune -o ! -type d -print)
    [ -z "$left" ] || { echo "left after the removal: $left" >&2; exit 1; }
fi
echo "$package: $(stat -c %s "$package") bytes, depends on $depends"
