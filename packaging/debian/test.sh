#!/usr/bin/env bash
# Installs, uses, upgrades, removes and purges the packages in a clean Debian root folder, and checks
# that nothing is left behind. Needs root, debootstrap, and the packages of this machine's release.
#
#   packaging/debian/test.sh [--suite bookworm] [--profile dist] [--built] [--root FOLDER]
#
# --root keeps a root folder, or uses the one of an earlier run. The whole takes about two minutes
# after the build.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
base=
build=()
while [ $# -gt 0 ]; do
    case "$1" in
        --suite) suite=$2; shift ;;
        --root) base=$2; shift ;;
        --profile) build+=(--profile "$2"); shift ;;
        --built) build+=(--built) ;;
        *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
cd "$root"
. packaging/chroot.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# gzip is faster than xz.
export compression=gzip
packaging/debian/build.sh "${build[@]}" --out "$work/debs"
# The same files as the next version.
packaging/debian/build.sh "${build[@]}" --built --out "$work/next" --version "$version+next1"

# What users need besides the packages: a compiler for the library, and systemd for its units.
packages=gcc,libc6-dev,pkg-config,systemd,man-db,bash-completion
if [ -z "$base" ]; then
    base=$work/root
fi
if [ ! -d "$base/etc" ]; then
    echo "making a root folder of $suite"
    mkdir -p "$base"
    make_root "$suite" "$base" "$packages"
fi
mkdir -p "$base/tmp/debs" "$base/tmp/examples"
cp "$work"/debs/*.deb "$base/tmp/debs/"
mkdir -p "$base/tmp/next"
cp "$work"/next/*.deb "$base/tmp/next/"
cp examples/c/*.c examples/c/*.h "$base/tmp/examples/"
cp packaging/debian/test-in-root.sh "$base/tmp/test.sh"
run_in_root "$base" /bin/bash /tmp/test.sh "$version"
rm -rf "$base/tmp/debs" "$base/tmp/next" "$base/tmp/examples" "$base/tmp/test.sh"
echo "the packages work in $suite, and nothing is left after their removal"
