#!/bin/sh
# Runs the system's daemon, and commands of root and two other users, in a private mount namespace
# with its own /run and /etc. anna is in the group dev, bert in the group traceweir.
#
#   unshare -m sh access.sh WEIR FOLDER
#
# FOLDER/out/STEP has the output of each step, FOLDER/out/STEP.code its exit status.
set -eu
weir=$1
work=$2
mkdir -p "$work/out"

mount --make-rprivate /
cp -a /etc "$work/etc"
mount --bind "$work/etc" /etc
mount -t tmpfs -o mode=755 tmpfs /run
rm -rf /etc/traceweir
sed -i '/^traceweir:/d' /etc/group
printf 'anna:x:64308:64308::/:/bin/sh\nbert:x:64309:64309::/:/bin/sh\n' >>/etc/passwd
printf 'anna:x:64308:\nbert:x:64309:\ndev:x:64391:anna\ntraceweir:x:64390:bert\n' >>/etc/group

daemon=''
begin_daemon() {
    "$weir" daemon --system 2>>"$work/out/log" &
    daemon=$!
    for _ in $(seq 200); do
        [ -S /run/traceweir/control.sock ] && return
        sleep 0.05
    done
    echo 'the daemon did not start' >&2
    exit 1
}
end_daemon() {
    [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon" || true; }
    daemon=''
}
trap end_daemon EXIT

step() { # NAME COMMAND…
    name=$1
    shift
    code=0
    "$@" >"$work/out/$name" 2>&1 || code=$?
    echo "$code" >"$work/out/$name.code"
}
anna() { (cd "$work/anna" && setpriv --reuid=64308 --regid=64308 --groups=64391 env -u TRACEWEIR_RUNTIME_DIR "$weir" "$@"); }
bert() { (cd "$work/bert" && setpriv --reuid=64309 --regid=64309 --groups=64390 env -u TRACEWEIR_RUNTIME_DIR "$weir" "$@"); }
for user in anna:64308 bert:64309; do
    mkdir "$work/${user%:*}"
    chown "${user#*:}" "$work/${user%:*}"
done
unset TRACEWEIR_RUNTIME_DIR

begin_daemon
step list-without-rights anna list --system
step list-user-and-system anna list
step list-with-runtime-dir env TRACEWEIR_RUNTIME_DIR="$work/nowhere" "$weir" list --system
chmod 700 /run/traceweir
step list-closed-folder anna list --system
step list-user-closed-folder anna list
chmod 755 /run/traceweir
step grant-live "$weir" access grant default --group dev create-realtime query --system
step start-live anna start Live --system
step list-shown anna list --system --json
step watch-refused anna watch Live --duration 100ms --system
step grant-watch "$weir" access grant Live --user anna consume --system
step watch-allowed anna watch Live --duration 100ms --system
step enable-refused anna enable Live Some.Provider --system
step grant-enable "$weir" access grant Some.Provider --user anna enable --system
step enable-allowed anna enable Live Some.Provider --system
step file-refused anna start File -o file.etl --system
step grant-refused anna access grant default --user anna all --system
step member-starts bert start Own -o own.etl --system
step member-grants bert access deny Some.Provider --user anna enable --system
step enable-denied anna enable Live Some.Provider --system
step stop-refused anna stop Own --system
step stop-allowed anna stop Live --system
step member-stops bert stop Own --system
echo old >"$work/bert/old.etl"
chown 64309 "$work/bert/old.etl"
step member-kernel-refused bert record --kernel cpu --force -o old.etl --duration 100ms --system
step member-kernel-logger bert start 'NT Kernel Logger' --system
step member-kernel-list bert access grant 9e814aad-3204-11d2-9a82-006008a86939 --user bert kernel-logger --system

# A file system with half of its space reserved for root, and the other half full.
mkdir "$work/half"
truncate -s 16M "$work/half.image"
if mkfs.ext4 -q -m 50 "$work/half.image" && mount -o loop "$work/half.image" "$work/half"; then
    chown 64309 "$work/half"
    setpriv --reuid=64309 --regid=64309 --clear-groups dd if=/dev/zero of="$work/half/full" bs=4k 2>>"$work/out/log" || true
    step member-has-no-space bert start Own -o "$work/half/own.etl" --system
    step root-has-space "$weir" start Roots -o "$work/half/roots.etl" --system
    step root-stops "$weir" stop Roots --system
    umount "$work/half"
fi
stat -c '%a %U %n' /etc/traceweir /etc/traceweir/security.d /etc/traceweir/security.d/* >"$work/out/files"

"$weir" access grant default --user anna create-file --system 2>>"$work/out/log"
echo old >"$work/anna/old.etl"
chown 64308 "$work/anna/old.etl"
step record-refused anna record -p Other.Provider -o old.etl --duration 100ms --system
"$weir" access remove default --system 2>>"$work/out/log"
"$weir" access grant default --group dev create-realtime query --system 2>>"$work/out/log"

end_daemon
begin_daemon
step show-kept "$weir" access show Some.Provider --json --system
step remove "$weir" access remove Some.Provider --system
step show-removed "$weir" access show Some.Provider --json --system
step start-again anna start Live --system
# A list that still grants rights to both users when the default list is corrupt.
step grant-named "$weir" access grant Some.Provider --user anna --user bert enable --system

end_daemon
for file in /etc/traceweir/security.d/0811c1af-*; do echo spoiled >"$file"; done
begin_daemon
step start-damaged anna start Live --system
step member-damaged bert start Own --system
step root-damaged "$weir" access remove default --system
step member-again bert start Own --system
