#!/usr/bin/env bash
# msquic (github.com/microsoft/msquic): compiles its core and platform sources with the ETW header
# that weir mc generates from its manifest, and its analyser quicetw. Then quicetw reads a trace of
# known events, a trace of msquic itself, and a running msquic (--local).
#
# msquic is built without TLS, because its TLS layer needs a newer OpenSSL than distributions have.
# So connections are opened and closed, but none completes a handshake.
set -euo pipefail

provider='{ff15e657-4f26-570e-88ab-0796b258d11c}'
command -v cc > /dev/null || { echo "missing: a C compiler (package gcc)"; exit 77; }
[ -e "$PREFIX/lib/pkgconfig/traceweir-wide.pc" ] || { echo "missing: libtraceweir-wide (package g++, then crates/ffi/install.sh)"; exit 77; }
printf '#include <openssl/evp.h>\n#include <openssl/ssl.h>\n' | cc -E - > /dev/null 2>&1 || { echo "missing: OpenSSL headers (package libssl-dev)"; exit 77; }

fail() {
    echo "$*"
    exit 1
}

mkdir generated core platform tool
weir mc "$SOURCE/src/manifest/MsQuicEtw.man" --c -o generated

# -fms-extensions is an option of msquic's own build for Linux: its structures have unnamed members.
options="-std=gnu17 -fms-extensions -w -O1 -D_GNU_SOURCE -DCX_PLATFORM_LINUX -DQUIC_BUILD_STATIC
    -DVER_BUILD_ID=0 -DVER_SUFFIX=-private -DVER_GIT_HASH=0
    -I$SOURCE/src/inc $(pkg-config --cflags traceweir-wide)"
events="-DQUIC_EVENTS_MANIFEST_ETW -DQUIC_LOGS_MANIFEST_ETW -Igenerated"
libraries="$(pkg-config --libs traceweir-wide) -lssl -lcrypto -lpthread -ldl"

compile() { # FOLDER OPTIONS SOURCE…
    local folder=$1 flags=$2
    shift 2
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'cc $1 -c "$2" -o "$3/$(basename "$2" .c).o"' - "$flags" {} "$folder"
}
platform=''
for name in crypt hashtable pcp platform_worker toeplitz platform_posix storage_posix cgroup datapath_unix datapath_linux datapath_epoll \
    datapath_xplat datapath_raw_dummy crypt_openssl certificates_posix selfsign_openssl; do
    platform="$platform $SOURCE/src/platform/$name.c"
done
compile core "$options $events" "$SOURCE"/src/core/*.c
compile platform "$options $events" $platform
# On Windows, quic_platform.h includes the two headers that -include adds here.
compile tool "$options -DQUIC_EVENTS_STUB -DQUIC_LOGS_STUB -include ws2ipdef.h -include ip2string.h" "$SOURCE"/src/tools/etw/*.c
compiled=$(ls core/*.o platform/*.o | wc -l)
cc -c generated/MsQuicEtw_etw.c -o etw.o

# platform_winuser.c defines this callback; platform_posix.c does not.
cat > callback.h <<'C'
#include "quic_platform.h"
#define QUIC_API_ENABLE_PREVIEW_FEATURES 1
#include "msquic.h"
#include "quic_trace.h"
#include <stdio.h>
#include <string.h>
void NTAPI QuicEtwCallback(LPCGUID source, ULONG code, UCHAR level, ULONGLONG any, ULONGLONG all, PEVENT_FILTER_DESCRIPTOR filter, PVOID context) {
    if (QuicTraceRundownCallback && (code == EVENT_CONTROL_CODE_ENABLE_PROVIDER || code == EVENT_CONTROL_CODE_CAPTURE_STATE) &&
        context == &MICROSOFT_MSQUIC_PROVIDER_Context)
        QuicTraceRundownCallback();
}
C
# TLS functions that msquic refers to. Without a handshake it calls only the one that names the
# provider.
cat > no_tls.c <<'C'
#include <stdint.h>
#include <stdlib.h>
const uint16_t CxPlatTlsTPHeaderSize;
#define ABSENT(name) void name(void) { abort(); }
ABSENT(CxPlatTlsExportKeyingMaterial)
ABSENT(CxPlatTlsInitialize)
ABSENT(CxPlatTlsParamGet)
ABSENT(CxPlatTlsParamSet)
ABSENT(CxPlatTlsProcessData)
ABSENT(CxPlatTlsSecConfigCreate)
ABSENT(CxPlatTlsSecConfigDelete)
ABSENT(CxPlatTlsSecConfigSetTicketKeys)
ABSENT(CxPlatTlsUninitialize)
ABSENT(CxPlatTlsUpdateHkdfLabels)
ABSENT(QuicTlsPopulateOffloadKeys)
int CxPlatTlsGetProvider(void) { return 1; }
C
cc -c no_tls.c -o no_tls.o
cc tool/*.o platform/hashtable.o platform/platform_posix.o platform/platform_worker.o platform/cgroup.o platform/crypt_openssl.o \
    -o quicetw $libraries

# Known events, written with the generated functions.
cat > known.c <<'C'
#include "callback.h"
QUIC_TRACE_RUNDOWN_CALLBACK *QuicTraceRundownCallback;
static void *const workers[] = {(void *)0x1000, (void *)0x2000};
static void *const connections[] = {(void *)0x10000, (void *)0x20000, (void *)0x30000};
static void write_address(void *connection, int is_local, const char *text, unsigned short port) {
    SOCKADDR_INET address;
    memset(&address, 0, sizeof address);
    if (strchr(text, ':')) {
        address.Ipv6.sin6_family = AF_INET6;
        address.Ipv6.sin6_port = htons(port);
        inet_pton(AF_INET6, text, &address.Ipv6.sin6_addr);
    } else {
        address.Ipv4.sin_family = AF_INET;
        address.Ipv4.sin_port = htons(port);
        inet_pton(AF_INET, text, &address.Ipv4.sin_addr);
    }
    if (is_local)
        EventWriteQuicConnLocalAddrAdded(connection, sizeof address, &address);
    else
        EventWriteQuicConnRemoteAddrAdded(connection, sizeof address, &address);
}
int main(void) {
    EventRegisterMicrosoft_Quic();
    for (int i = 0; i < 4; i++) EventWriteQuicApiEnter(2, NULL);
    for (int i = 0; i < 2; i++) EventWriteQuicWorkerCreated(workers[i], 0, NULL);
    for (int i = 0; i < 3; i++) {
        EventWriteQuicConnCreated(connections[i], 1, 100 + i);
        EventWriteQuicConnAssignWorker(connections[i], workers[i % 2]);
        EventWriteQuicConnScheduleState(connections[i], 1);
    }
    EventWriteQuicConnHandshakeStart(connections[0]);
    EventWriteQuicConnHandshakeComplete(connections[0]);
    write_address(connections[0], 1, "10.0.0.1", 443);
    write_address(connections[0], 0, "192.168.100.200", 50276);
    EventWriteQuicConnSourceCidAdded(connections[0], 0, 4, "\x01\x23\x45\x67");
    EventWriteQuicConnDestCidAdded(connections[0], 0, 3, "\x89\xAB\xCD");
    EventWriteQuicConnOutFlowStats(connections[0], 3417, 0, 0, 0, 0, 0, 0, 0, 0);
    EventWriteQuicConnInFlowStats(connections[0], 5000000000ull);
    EventWriteQuicConnPacketStats(connections[0], 300, 25, 5, 200, 0, 11, 0, 0);
    EventWriteQuicConnAppShutdown(connections[0], 0, 0);
    EventWriteQuicConnDestroyed(connections[0]);
    EventWriteQuicConnHandshakeStart(connections[1]);
    write_address(connections[1], 1, "2001:db8::1", 443);
    write_address(connections[1], 0, "fe80::12:34", 0);
    EventWriteQuicConnError(connections[1], "refused");
    EventWriteQuicConnTransportShutdown(connections[1], 2, 0, 0);
    for (int i = 0; i < 2; i++) EventWriteQuicStreamCreated((void *)(0x500000 + i * 16ull), connections[2], i, 1);
    for (int i = 0; i < 6; i++) EventWriteQuicLogInfo("text");
    EventUnregisterMicrosoft_Quic();
    return 0;
}
C
cc $options -include ws2ipdef.h $events -I. known.c etw.o -o known $libraries
weir record -p "$provider" -o known.etl -- ./known 2> known.messages

# Prints the events of a trace as quicetw counts them: "TYPE COUNT" with the type from the event id.
count_types() {
    weir dump "$1" --provider Microsoft-Quic --format jsonl | sed -E 's/.*"id":([0-9]+),.*/\1/' | awk '{ count[int($1 / 1024)]++ }
        END { split("Library Registration Worker Session Listener Connection Stream Binding Tls Datapath Log", names)
              for (i = 0; i < 11; i++) { print names[i + 1], count[i] + 0; total += count[i] } print "Events", total }' | sort
}
# Prints the same from the summary of quicetw.
read_summary() {
    awk '/^  Objects/ { exit } $1 == "Events" || /^    [A-Z]/ { print $1, $2 }' "$1" | sort
}
read_objects() {
    awk '/^  Objects/ { inside = 1; next } inside && $2 != "--" { printf "%s=%s ", $1, $2 }' "$1"
}
check_summary() { # NAME EXPECTED-OBJECTS
    ./quicetw "$1.etl" --summary > "$1.summary"
    weir info "$1.etl" | grep -q '^Lost  *0 events, 0 buffers$' || fail "$1: events were lost"
    diff <(count_types "$1.etl") <(read_summary "$1.summary") || fail "$1: quicetw --summary counts other events than weir dump"
    [ "$(read_objects "$1.summary")" = "$2" ] || fail "$1: objects are $(read_objects "$1.summary"), expected $2"
    local calls
    calls=$(weir dump "$1.etl" --event QuicApiEnter --provider Microsoft-Quic --format jsonl | wc -l)
    grep -qx "  Api Calls   $calls" "$1.summary" || fail "$1: not $calls API calls"
}
check_summary known 'Worker=2 Listener=0 Connection=3 Stream=2 Binding=0 '
grep -qx '  Events      39' known.summary || { cat known.summary; fail "known: not 39 events"; }

./quicetw known.etl --csv --conn_list | grep -E '^[0-9]+,' | cut -d , -f 1,2,7- > known.list
cat > known.list.expected <<'T'
1, SHUTDOWN,3417,5000000000,10.0.0.1:443,192.168.100.200:50276,01234567,89ABCD
2, SHUTDOWN,0,0,[2001:db8::1]:443,fe80::12:34,UNKNOWN,UNKNOWN
3,  CREATED,0,0,NotSet,NotSet,UNKNOWN,UNKNOWN
T
diff known.list.expected known.list || fail "known: quicetw --conn_list differs"

./quicetw known.etl --report | sed -n '/^CONNECTIONS/,$p' | grep . > known.report
cat > known.report.expected <<'T'
CONNECTIONS (3)
  1 connections stil active.
  1 connections encountered errors.
  2 connections failed the handshake.
  1 connections successfully shutdown by the app.
  1 connections shutdown by the transport.
  0 total congestion events.
  0 total persistent congestion events.
  300 total packets sent.
  20 total packets lost.
  200 total packets received.
  11 total packets dropped.
T
diff known.report.expected known.report || fail "known: quicetw --report differs"

# msquic itself: a library with a registration, a listener and five connections.
cat > live.c <<'C'
#include "callback.h"
static QUIC_STATUS on_connection(HQUIC connection, void *context, QUIC_CONNECTION_EVENT *event) { return QUIC_STATUS_SUCCESS; }
static QUIC_STATUS on_listener(HQUIC listener, void *context, QUIC_LISTENER_EVENT *event) { return QUIC_STATUS_SUCCESS; }
int main(void) {
    const QUIC_API_TABLE *api;
    QUIC_REGISTRATION_CONFIG config = {"third-party test", QUIC_EXECUTION_PROFILE_LOW_LATENCY};
    HQUIC registration, listener, connections[5];
    unsigned failures = 0;
    EventRegisterMicrosoft_Quic();
    failures += QUIC_FAILED(MsQuicOpenVersion(QUIC_API_VERSION_2, (const void **)&api));
    failures += QUIC_FAILED(api->RegistrationOpen(&config, &registration));
    failures += QUIC_FAILED(api->ListenerOpen(registration, on_listener, NULL, &listener));
    for (int i = 0; i < 5; i++) failures += QUIC_FAILED(api->ConnectionOpen(registration, on_connection, NULL, &connections[i]));
    printf("%u failures\n", failures);
    fflush(stdout);
    while (getchar() != EOF) {}
    for (int i = 0; i < 5; i++) api->ConnectionClose(connections[i]);
    api->ListenerClose(listener);
    api->RegistrationClose(registration);
    MsQuicClose(api);
    EventUnregisterMicrosoft_Quic();
    return failures != 0;
}
C
cc $options $events -I. live.c no_tls.o etw.o core/*.o platform/*.o -o live $libraries
weir record -p "$provider" -o live.etl -- ./live < /dev/null > live.out 2> live.messages
[ "$(cat live.out)" = '0 failures' ] || fail "msquic: $(cat live.out)"
weir dump live.etl --format jsonl --provider Microsoft-Quic > live.jsonl
[ "$(grep -c '"event":"QuicConnCreated"' live.jsonl)" -eq 5 ] || fail "live: not 5 connections were created"
workers=$(grep '"event":"QuicWorkerCreated"' live.jsonl | wc -l)
check_summary live "Worker=$workers Listener=1 Connection=5 Stream=0 Binding=0 "
grep -q '"event":"QuicRegistrationCreatedV2".*third-party test' live.jsonl || fail "live: the registration has no name"

# A running msquic: quicetw starts a session, msquic describes its objects, quicetw reads the file.
coproc LIVE { ./live; }
read -r line <&"${LIVE[0]}"
[ "$line" = '0 failures' ] || fail "msquic: $line"
./quicetw --local --summary > local.summary
cp 'C:\Windows\System32\LogFiles\WMI\quicetw.etl' local.etl
./quicetw --local --csv --conn_list | grep -E '^[0-9]+,' | cut -d , -f 1,2 > local.list
input=${LIVE[1]}
exec {input}>&-
wait "$LIVE_PID"
[ "$(read_objects local.summary)" = 'Worker=0 Listener=0 Connection=5 Stream=0 Binding=0 ' ] ||
    fail "local: objects are $(read_objects local.summary)"
diff <(count_types local.etl) <(read_summary local.summary) || fail "local: quicetw --summary counts other events than weir dump"
diff <(printf '%s,  CREATED\n' 1 2 3 4 5) local.list || fail "local: quicetw --conn_list differs"

echo "msquic: $compiled sources compile with the generated header; quicetw: 39 known events and 3 connections, $(wc -l < live.jsonl) events of msquic, $(awk '$1 == "Events" { print $2 }' local.summary) events of a rundown (--local) are right"
