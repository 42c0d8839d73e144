# etl2pcapng (microsoft/etl2pcapng) converts a packet capture to pcapng. A program of this script
# writes known packets as events of Microsoft-Windows-NDIS-PacketCapture; the converted packets must
# be the same, byte by byte.
set -euo pipefail

command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }

# "inline" without "static" defines a function in C of Windows, as in C of 1989 with gcc.
weir cc --wide --32-bit-long gcc -fgnu89-inline -DUNICODE -D_UNICODE "$SOURCE/src/main.c" -o etl2pcapng

# Writes the packets as events, and prints each: interface, direction, length on the wire, bytes.
cat >writer.c <<'END'
#include <evntprov.h>
#include <stdio.h>
#include <string.h>

/* Microsoft-Windows-NDIS-PacketCapture, and its event of a fragment of a packet. */
static const GUID provider = {0x2ed6006e, 0x4729, 0x4609, {0xb4, 0x23, 0x3e, 0xe7, 0xbc, 0xd6, 0x78, 0xef}};
#define FRAGMENT_ID 1001
#define ETHERNET 0x1ull
#define WIRELESS_WAN 0x200ull
#define PACKET_START 0x40000000ull
#define PACKET_END 0x80000000ull
#define SEND 0x100000000ull
#define RECEIVE 0x200000000ull

static REGHANDLE handle;

static ULONG write_fragment(ULONG interface_index, ULONGLONG keywords, const unsigned char *bytes, ULONG size) {
    EVENT_DESCRIPTOR descriptor = {FRAGMENT_ID, 0, 16, 4, 0, 0, keywords};
    ULONG miniport_index = interface_index + 100;
    EVENT_DATA_DESCRIPTOR fields[4];
    EventDataDescCreate(&fields[0], &miniport_index, sizeof miniport_index);
    EventDataDescCreate(&fields[1], &interface_index, sizeof interface_index);
    EventDataDescCreate(&fields[2], &size, sizeof size);
    EventDataDescCreate(&fields[3], bytes, size);
    return EventWrite(handle, &descriptor, 4, fields);
}

int main(void) {
    static unsigned char packet[1514];
    ULONG failures = EventRegister(&provider, NULL, NULL, &handle);
    unsigned random = 12345;
    for (unsigned number = 0; number < 60; number++) {
        unsigned size = number == 59 ? sizeof packet : 60 + number * 19;
        for (unsigned at = 0; at < size; at++) {
            random = random * 1103515245 + 12345;
            packet[at] = (unsigned char)(random >> 16);
        }
        unsigned kind = number % 5, wire_size = size;
        int is_sent = number % 3 == 0;
        ULONG interface_index = kind == 4 ? 9 : number % 2 ? 7 : 8;
        ULONGLONG keywords = (kind == 4 ? WIRELESS_WAN : ETHERNET) | (is_sent ? SEND : RECEIVE);
        unsigned char *ip = kind == 4 ? packet : packet + 14;
        unsigned ip_size = size - (unsigned)(ip - packet);
        if (kind == 1) {
            /* Truncated: the header has the length that the packet had. */
            ip_size += 100;
            wire_size += 100;
        }
        if (kind <= 1 || kind == 4) {
            memcpy(ip - (kind == 4 ? 0 : 2), kind == 4 ? "\x45" : "\x08\x00\x45", kind == 4 ? 1 : 3);
            if (kind == 4)
                /* For raw frames the program adds the size of a header of Ethernet. */
                wire_size += 14;
            ip[2] = (unsigned char)(ip_size >> 8);
            ip[3] = (unsigned char)ip_size;
        } else if (kind == 2) {
            memcpy(ip - 2, "\x86\xdd\x60", 3);
            ip[4] = (unsigned char)((ip_size - 40) >> 8);
            ip[5] = (unsigned char)(ip_size - 40);
        } else {
            memcpy(ip - 2, "\x08\x06", 2);
        }
        if (number % 10 == 3) {
            /* A packet of two events. */
            failures += write_fragment(interface_index, keywords | PACKET_START, packet, size / 2);
            failures += write_fragment(interface_index, keywords | PACKET_END, packet + size / 2, size - size / 2);
        } else {
            failures += write_fragment(interface_index, keywords | PACKET_START | PACKET_END, packet, size);
        }
        printf("%u %s %u ", interface_index, is_sent ? "sent" : "received", wire_size);
        for (unsigned at = 0; at < size; at++)
            printf("%02x", packet[at]);
        printf("\n");
    }
    EventUnregister(handle);
    return failures != 0;
}
END
cc writer.c $(pkg-config --cflags --libs traceweir) -o writer

weir record -p '{2ed6006e-4729-4609-b423-3ee7bcd678ef}' -o capture.etl -- ./writer >packets.txt
weir dump capture.etl --format jsonl >events.jsonl
# The program does not set all members of a structure that it allocates. These settings make the
# malloc of glibc return zeroed memory.
export GLIBC_TUNABLES=glibc.malloc.perturb=255:glibc.malloc.tcache_count=0
./etl2pcapng capture.etl capture.pcapng >converted.txt
cat converted.txt

cat >compare.py <<'END'
import json
import struct
import sys

packets = [line.split() for line in open("packets.txt")]
# The last event of each packet; its time is that of the packet.
events = [json.loads(line) for line in open("events.jsonl")]
events = [event for event in events if event["guid"].startswith("2ed6006e")]
ends = [event for event in events if int(event["keywords"], 16) & 0x80000000]
if len(events) != 66 or len(ends) != len(packets):
    sys.exit(f"{len(events)} events and {len(ends)} packets were recorded")

data = open("capture.pcapng", "rb").read()
interfaces, converted, at = [], [], 0
while at < len(data):
    kind, length = struct.unpack_from("<II", data, at)
    if struct.unpack_from("<I", data, at + length - 4)[0] != length:
        sys.exit(f"the block at {at} has two lengths")
    body = data[at + 8 : at + length - 4]
    if kind == 1:
        interfaces.append(struct.unpack_from("<H", body)[0])
    elif kind == 6:
        number, high, low, captured, original = struct.unpack_from("<IIIII", body)
        options, position = {}, 20 + (captured + 3) // 4 * 4
        while position < len(body):
            code, size = struct.unpack_from("<HH", body, position)
            options[code] = body[position + 4 : position + 4 + size]
            position += 4 + (size + 3) // 4 * 4
        converted.append((number, high << 32 | low, body[20 : 20 + captured], original, options))
    at += length
if len(converted) != len(packets):
    sys.exit(f"{len(converted)} of {len(packets)} packets were converted")

def microseconds(event):
    import calendar
    import time
    seconds, fraction = event["time"].rstrip("Z").split(".")
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) * 1000000 + int(fraction[:6])

by_index, size = {}, 0
for (index, direction, wire_size, text), event, packet in zip(packets, ends, converted):
    number, stamp, captured, original, options = packet
    expected_link = 101 if index == "9" else 1
    comment = f"PID={event['pid']} TID={event['tid']}".encode()
    checks = {
        "bytes": captured.hex() == text,
        "length": original == int(wire_size),
        "interface": by_index.setdefault(index, number) == number and interfaces[number] == expected_link,
        "direction": options[2] == struct.pack("<I", 2 if direction == "sent" else 1),
        "comment": options[1] == comment,
        "time": stamp == microseconds(event),
    }
    wrong = [name for name, is_right in checks.items() if not is_right]
    if wrong:
        sys.exit(f"{', '.join(wrong)} differ: expected {index} {direction} {wire_size} {text} "
                 f"{event['time']} {comment}, got {packet}")
    size += len(captured)
if len(interfaces) != 3 or len(set(by_index.values())) != 3:
    sys.exit(f"{len(interfaces)} interfaces")
print(f"{len(packets)} packets ({size} bytes) on 3 interfaces identical: bytes, lengths, directions, times")
END
result=$(python3 compare.py)
grep -q '^Wrote 60 frames to capture.pcapng$' converted.txt

# Without packets, the program deletes its output again.
./etl2pcapng "$CHECKOUT/fixtures/etl/compressed.etl" none.pcapng >none.txt
grep -q 'does not contain' none.txt
[ ! -e none.pcapng ] || { echo "none.pcapng was not deleted"; exit 1; }
echo "$result"
