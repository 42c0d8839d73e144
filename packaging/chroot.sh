# Functions for scripts that test packages and programs in Debian root folders; source this file.
#
#   make_root SUITE FOLDER [PACKAGE,PACKAGE…]   # debootstrap, minimal, with these packages
#   run_in_root FOLDER COMMAND…                 # as root, in namespaces of its own, without a network

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
archive=${DEBIAN_ARCHIVE:-http://archive.debian.org/debian}

for tool in debootstrap unshare chroot; do
    if ! command -v "$tool" >/dev/null && ! [ -x "/usr/sbin/$tool" ]; then
        echo "$0 needs $tool (apt-get install debootstrap util-linux)" >&2
        exit 1
    fi
done
if [ "$(id -u)" != 0 ]; then
    echo "$0 needs root, to make and enter root folders" >&2
    exit 1
fi

make_root() { # SUITE FOLDER [PACKAGES]
    source=$mirror
    options=
    case "$1" in
        # Old releases are in the archive, and their keys have expired.
        stretch|buster) source=$archive options=--no-check-gpg ;;
    esac
    # shellcheck disable=SC2086
    debootstrap $options --variant=minbase ${3:+--include="$3"} "$1" "$2" "$source" > "$2.log" 2>&1 || {
        tail -n 5 "$2.log" >&2
        echo "no root folder of $1 from $source" >&2
        return 1
    }
    rm -f "$2.log"
}

run_in_root() { # FOLDER COMMAND…
    folder=$1
    shift
    unshare --mount --propagation private --pid --fork --kill-child --net --ipc --uts -- sh -c '
        set -e
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/run"
        exec chroot "$root" "$@"
    ' sh "$folder" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
