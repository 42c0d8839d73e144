#!/usr/bin/env bash
# ferrisetw (github.com/n4r1b/ferrisetw), a Rust crate for consumers: its own tests, linked with
# libtraceweir. The tests start tools of Windows and load one of its libraries; stand-ins for these
# are in the folder tools.
set -euo pipefail

# Tests that need COM: Provider::by_name searches the collection of Performance Logs and Alerts.
com_tests='native::pla::test::test_get_provider
native::pla::test::test_provider_not_found'

command -v cargo > /dev/null || { echo "missing: cargo"; exit 77; }
command -v cc > /dev/null || { echo "missing: a C compiler (package gcc)"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "missing: root, for kernel sessions"; exit 77; }

fail() {
    echo "$*"
    exit 1
}

# logman lists and stops sessions.
mkdir tools
cat > tools/logman <<'T'
#!/bin/sh
case $1 in
    query) exec weir list ;;
    stop) exec weir stop "$3" ;;
esac
exit 1
T
chmod +x tools/logman
# ping.exe resolves a name, and Windows' DNS client reports it.
cat > tools/ping.c <<'C'
#include <evntprov.h>
static const GUID dns_client = {0x1c95126e, 0x7eea, 0x49a9, {0xa3, 0xfe, 0xa3, 0x78, 0xb0, 0x3d, 0xdb, 0x4d}};
int main(int count, char **arguments) {
    WCHAR name[256] = {0};
    ULONG type = 1, status = 0;
    ULONGLONG options = 0x40026010;
    ULONG zeros[4] = {0};
    WCHAR results[] = u"192.0.2.1;";
    const EVENT_DESCRIPTOR initiated = {3006, 0, 16, 4, 0, 3006, 0x8000000000000000ull};
    const EVENT_DESCRIPTOR completed = {3008, 0, 16, 4, 0, 3008, 0x8000000000000000ull};
    EVENT_DATA_DESCRIPTOR fields[5];
    REGHANDLE handle;
    for (int i = 0; i < 255 && arguments[count - 1][i]; i++)
        name[i] = (WCHAR)arguments[count - 1][i];
    ULONG name_bytes = 0;
    while (name[name_bytes++]) {}
    name_bytes *= sizeof(WCHAR);
    if (EventRegister(&dns_client, NULL, NULL, &handle) != 0)
        return 1;
    EventDataDescCreate(&fields[0], name, name_bytes);
    EventDataDescCreate(&fields[1], &type, sizeof type);
    EventDataDescCreate(&fields[2], &options, sizeof options);
    EventDataDescCreate(&fields[3], u"", sizeof(WCHAR));
    EventDataDescCreate(&fields[4], zeros, sizeof zeros);
    EventWrite(handle, &initiated, 5, fields);
    EventDataDescCreate(&fields[3], &status, sizeof status);
    EventDataDescCreate(&fields[4], results, sizeof results);
    EventWrite(handle, &completed, 5, fields);
    return EventUnregister(handle) != 0;
}
C
cc tools/ping.c $(pkg-config --cflags --libs traceweir) -o tools/ping.exe
# A library that the kernel test loads, to find its load among the events.
echo 'int stands_in_for_crypt32;' | cc -shared -fPIC -x c - -o tools/crypt32.dll

# The copy is inside the workspace of Traceweir, of which it is not a member, so it gets its own.
cp -r "$SOURCE" source
printf '[workspace]\nresolver = "2"\nmembers = ["source"]\n' > Cargo.toml
cd source
export CARGO_TARGET_DIR="$WORK/target"
export RUSTFLAGS="-L native=$PREFIX/lib -l traceweir"
# rustdoc has no option -l.
export RUSTDOCFLAGS="-C link-arg=-L$PREFIX/lib -C link-arg=-ltraceweir"
export PATH="$WORK/tools:$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$WORK/tools"
if ! cargo fetch > ../fetch.log 2>&1; then
    cat ../fetch.log
    echo "missing: the crates that ferrisetw depends on (no connection to a registry)"
    exit 77
fi
cargo test --no-run --all-features

# The tests of ferrisetw, without those that it ignores itself.
cargo test --all-features --lib --tests -- --list --format terse | sed -n 's/: test$//p' | sort > ../all
cargo test --all-features --lib --tests -- --list --format terse --ignored | sed -n 's/: test$//p' | sort > ../ignored
skip=''
for name in $com_tests; do
    grep -qx "$name" ../all || fail "no test is called $name"
    skip="$skip --skip $name"
done
status=0
cargo test --all-features --lib --tests --no-fail-fast -- --exact $skip 2>&1 | tee ../run.log || status=$?
sed -n 's/^test \(.*\) \.\.\. ok$/\1/p' ../run.log | sort > ../passed
expected=$(comm -23 ../all ../ignored | grep -vxF "$com_tests")
diff <(echo "$expected") ../passed || fail "other tests passed than expected (<)"
[ "$status" = 0 ] || fail "cargo test failed with status $status"

# The examples in its documentation, without the one of Provider::by_name, which needs COM.
cargo test --all-features --doc -- --skip Provider::by_name 2>&1 | tee ../doc.log
documented=$(sed -n 's/^test result: ok\. \([0-9]*\) passed; 0 failed.* 1 filtered out.*/\1/p' ../doc.log)
[ -n "$documented" ] || fail "other documentation tests passed than expected"

echo "ferrisetw: $(wc -l < ../passed) of its $(wc -l < ../all) tests and $documented documentation tests pass; left out: $(wc -l < ../ignored) that it ignores itself, and $(echo "$com_tests" | wc -l) and 1 that need COM ($(echo $com_tests), documentation of Provider::by_name)"
