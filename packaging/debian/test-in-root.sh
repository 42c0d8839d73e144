# The part of test.sh that runs in the root folder.
set -euo pipefail
version=$1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
step() {
    echo "    $*"
}
expect() { # TEXT COMMAND…: runs a command whose output must contain a text
    local text=$1 output
    shift
    output=$("$@" 2>&1) || fail "$* (status $?): $output"
    [[ $output == *"$text"* ]] || fail "$*: no '$text' in: $output"
}
as_user() {
    su visitor -c "cd /home/visitor; $1"
}

# Lists files with type, mode, owner and target, and the accounts. Caches and the records of dpkg
# change with every installation.
list_files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /home/visitor \
        -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/systemd/catalog \) -prune -o \
        ! -path /etc/ld.so.cache ! -path /var/log/dpkg.log ! -path /var/log/alternatives.log \
        ! -path '/etc/*-' ! -path /etc/.pwd.lock \
        -printf '%y %m %u %g %p %l\n' | sort
    cat /etc/passwd /etc/group
}

useradd --create-home --shell /bin/bash visitor
list_files > /tmp/before

step install
dpkg -i /tmp/debs/*.deb > /tmp/dpkg.log 2>&1 || fail "$(cat /tmp/dpkg.log)"
expect "weir $version" weir --version
expect traceweir: getent group traceweir
dpkg -V weir libtraceweir0 libtraceweir-dev || fail "files differ from the packages"
[ -L /etc/systemd/system/sockets.target.wants/traceweir.socket ] || fail "the socket is not enabled"
systemd-analyze verify /usr/lib/systemd/system/traceweir.service /usr/lib/systemd/system/traceweir.socket > /tmp/verify 2>&1 ||
    fail "$(cat /tmp/verify)"
! grep -i traceweir /tmp/verify || fail "systemd-analyze warns"

step "manual pages and completions"
for page in weir weir-record weir-report-cpu; do
    [ -e "/usr/share/man/man1/$page.1.gz" ] || fail "no page $page"
done
expect --stop-after man --warnings -l /usr/share/man/man1/weir-record.1.gz
expect completions bash -c '. /usr/share/bash-completion/completions/weir
    COMP_WORDS=(weir compl); COMP_CWORD=1; _weir weir compl weir; echo "${COMPREPLY[@]}"'

step "record, mark and read as an ordinary user"
expect "lost: nothing" as_user "weir demo"
expect "marked 1 session: App" as_user "weir start App -o app.etl && weir mark 'here it is' && weir stop App"
expect 'text="here it is"' as_user "weir dump app.etl"
expect "sound" as_user "weir check app.etl"

step "compile and record a C program"
expect -ltraceweir pkg-config --libs traceweir
as_user "cc /tmp/examples/hello.c \$(pkg-config --cflags --libs traceweir) -o hello"
expect libtraceweir.so.0 as_user "ldd hello"
as_user "weir record -p '{3d1c9f52-6c1e-4a3b-9a52-0a8f0b1d7c11}' -o hello.etl -- ./hello" > /tmp/record.log 2>&1 ||
    fail "$(cat /tmp/record.log)"
expect 3d1c9f52 as_user "weir info hello.etl"
as_user "weir cc cc /tmp/examples/hello.c -o hello-weir-cc && ./hello-weir-cc" > /dev/null
expect libadvapi32.so as_user "weir shims shims && ls shims"

step "the system's daemon"
weir daemon --system > /tmp/daemon.log 2>&1 &
daemon=$!
for _ in $(seq 100); do
    [ -S /run/traceweir/control.sock ] && break
    sleep 0.1
done
weir start --system Machine -o /tmp/machine.etl > /tmp/start.log 2>&1 || fail "$(cat /tmp/start.log)"
weir mark --system "from root" > /dev/null
weir stop --system Machine > /dev/null 2>&1
expect "from root" weir dump /tmp/machine.etl
kill "$daemon"
wait "$daemon" || true

step upgrade
echo "max_sessions = 32" >> /etc/traceweir/traceweir.conf
dpkg -i --force-confold /tmp/next/*.deb > /tmp/dpkg.log 2>&1 || fail "$(cat /tmp/dpkg.log)"
expect "$version+next1" dpkg-query -W weir libtraceweir0 libtraceweir-dev
tail -n 1 /etc/traceweir/traceweir.conf | grep -q 'max_sessions = 32' || fail "the upgrade replaced the settings"
expect "lost: nothing" as_user "weir demo"

step remove
dpkg -r weir libtraceweir-dev libtraceweir0 > /tmp/dpkg.log 2>&1 || fail "$(cat /tmp/dpkg.log)"
[ ! -e /usr/bin/weir ] || fail "weir is still installed"
[ -e /etc/traceweir/traceweir.conf ] || fail "the settings are gone before the purge"
dpkg -P weir libtraceweir0 libtraceweir-dev > /tmp/dpkg.log 2>&1 || fail "$(cat /tmp/dpkg.log)"
list_files > /tmp/after
diff /tmp/before /tmp/after > /tmp/left || fail "left behind or changed: $(cat /tmp/left)"
[ ! -e /run/traceweir ] || fail "/run/traceweir is left"
userdel --force --remove visitor > /dev/null 2>&1
rm -f /tmp/before /tmp/after /tmp/left /tmp/*.log /tmp/machine.etl /tmp/verify
