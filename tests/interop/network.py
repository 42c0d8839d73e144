"""Compares a capture, as tshark and capinfos read it, with the packets that a trace has."""

import collections
import pathlib
import subprocess
import sys

# What tshark prints for a packet. The comment is last, because it may hold anything.
FIELDS = ["frame.time_epoch", "frame.cap_len", "frame.len", "frame.packet_flags_direction", "frame.comment"]


def run(*command):
    """Returns the lines that a program prints."""
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return output.stdout.splitlines()


def to_units(epoch):
    """Converts seconds with nine decimals to units of 100 ns."""
    seconds, fraction = epoch.split(".")
    return str(int(seconds) * 10_000_000 + int(fraction[:7].ljust(7, "0")))


def main():
    work = pathlib.Path(sys.argv[1])
    capture = str(work / "packets.pcapng")
    expected = [line.split("\t") for line in (work / "packets.tsv").read_text().splitlines()]

    options = [option for field in FIELDS for option in ("-e", field)]
    found = [line.split("\t") for line in run("tshark", "-r", capture, "-T", "fields", *options)]
    assert len(found) == len(expected), f"{len(found)} packets, expected {len(expected)}"
    for number, (have, want) in enumerate(zip(found, expected), 1):
        have = [to_units(have[0]), have[1], have[2], str(int(have[3], 0)), have[4]]
        assert have == want, f"packet {number}: {have}, expected {want}"

    malformed = run("tshark", "-r", capture, "-Y", "_ws.malformed", "-T", "fields", "-e", "frame.number")
    assert not malformed, f"malformed packets: {malformed[:5]}"
    # Whole packets of IPv4 over Ethernet, some with a VLAN tag.
    vlans = run("tshark", "-r", capture, "-Y", "vlan.id == 100 && udp", "-T", "fields", "-e", "frame.number")
    assert vlans, "no packet has a VLAN tag"

    facts = collections.defaultdict(list)
    for line in run("capinfos", "-M", capture):
        # The facts of an interface have another separator.
        name, _, value = line.partition(" = " if " = " in line else ":")
        facts[name.strip()].append(value.strip())
    # The number of the file, then that of each interface.
    assert facts["Number of packets"][0] == str(len(expected)), facts["Number of packets"]
    assert facts["Number of interfaces in file"] == ["4"], facts["Number of interfaces in file"]
    assert facts["Time resolution"] == ["0x07"] * 4, facts["Time resolution"]
    counts = sum(int(count) for count in facts["Number of packets"][1:])
    assert counts == len(expected), facts["Number of packets"]
    print(f"tshark and capinfos read {len(found)} packets as written")


main()
