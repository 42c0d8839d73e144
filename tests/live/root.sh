#!/bin/sh
# Runs commands as root and as two other users, without a system daemon, in private mount and network
# namespaces.
#
#   unshare -m -n sh root.sh WEIR FOLDER
#
# For each step, FOLDER/out/STEP has its output, and FOLDER/out/STEP.code its exit status.
set -eu
weir=$1
work=$2
shop='Traceweir.Demo.CoffeeShop'
mkdir -p "$work/out"
mkdir -m 1777 "$work/tmp"
unset TRACEWEIR_RUNTIME_DIR XDG_RUNTIME_DIR

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
[ ! -d /etc/traceweir ] || mount -t tmpfs tmpfs /etc/traceweir

processes=''
end() {
    [ ! -s /run/traceweir/daemon.lock ] || kill "$(cat /run/traceweir/daemon.lock)" || true
    [ -z "$processes" ] || kill -9 $processes 2>/dev/null || true
}
trap end EXIT

step() { # NAME COMMAND…
    name=$1
    shift
    code=0
    "$@" >"$work/out/$name" 2>&1 || code=$?
    echo "$code" >"$work/out/$name.code"
}
as() { # UID COMMAND…: runs a command as a user whose runtime folder is below FOLDER/tmp
    uid=$1
    shift
    (cd / && exec setpriv "--reuid=$uid" "--regid=$uid" --clear-groups env "TMPDIR=$work/tmp" "$@")
}
start_shop() { # UID NAME: starts a shop; its process id is in FOLDER/out/NAME.pid
    (cd / && exec setpriv "--reuid=$1" "--regid=$1" --clear-groups env "TMPDIR=$work/tmp" \
        "$weir" demo-shop --pause 1 --orders 100000000 >/dev/null 2>&1) &
    processes="$processes $!"
    echo "$!" >"$work/out/$2.pid"
    for _ in $(seq 600); do
        for socket in "$work/tmp/traceweir-$1/providers/$!"-*.sock; do
            [ ! -S "$socket" ] || return 0
        done
        sleep 0.05
    done
    echo "shop $2 did not start" >&2
    exit 1
}

# Start two programs before the daemon, and kill a third program, which leaves its socket. Also make
# a link to a file that must not be changed.
start_shop 65534 running
start_shop 65533 other
start_shop 65533 killed
killed=$(cat "$work/out/killed.pid")
kill -9 "$killed"
wait "$killed" 2>/dev/null || true
echo precious >"$work/precious"
providers="$work/tmp/traceweir-65533/providers"
ln -s "$work/precious" "$providers/5-0123456789abcdef.sock"
ls "$providers" | sort >"$work/out/before"

# On a busy machine, a second may be too short for the two programs to write: then record again.
for _ in $(seq 30); do
    step record "$weir" record -p "$shop" -o "$work/record.etl" --duration 1s
    step dump "$weir" dump --format jsonl --provider "$shop" "$work/record.etl"
    ! grep -q "\"pid\":$(cat "$work/out/running.pid")," "$work/out/dump" ||
        ! grep -q "\"pid\":$(cat "$work/out/other.pid")," "$work/out/dump" || break
done
step start "$weir" start Root -p "$shop" -o "$work/start.etl"
start_shop 65534 later
for _ in $(seq 600); do
    step providers "$weir" providers "$shop" --json
    ! grep -q "[^0-9]$(cat "$work/out/later.pid")[^0-9]" "$work/out/providers" || break
    sleep 0.05
done
step pid "$weir" record -p "$shop" --pid "$(cat "$work/out/later.pid")" -o "$work/pid.etl" --duration 1ms
step list-as-user as 65533 "$weir" list --system
step stop-as-user as 65533 "$weir" stop Root --system
step stop "$weir" stop Root
ls "$providers" | sort >"$work/out/after"
daemon=$(cat /run/traceweir/daemon.lock)
tr '\0' ' ' <"/proc/$daemon/cmdline" >"$work/out/daemon"

# If the system's folder cannot be made, root gets a daemon of its own.
kill "$daemon"
while [ -e "/proc/$daemon" ]; do sleep 0.05; done
mount -t tmpfs -o ro,mode=755 tmpfs /run
export TMPDIR="$work/tmp"
step fallback "$weir" start Own --mode buffering
step fallback-stop "$weir" stop Own
kill "$(cat "$TMPDIR/traceweir-0/daemon.lock")"
