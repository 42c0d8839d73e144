//! Configuration events of a machine that consists of files.

use std::os::unix::fs::symlink;

use traceweir_format::kernel::{Repeat, Ty, shape_of};
use traceweir_format::spec::system::add_group;
use traceweir_format::wire::{u16_at, u32_at, u64_at};

use super::*;
use crate::family::testing::assert_written;

struct FakeMachine(tempfile::TempDir);

impl FakeMachine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add_file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn add_link(&self, path: &str, to: &str) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }

    fn collect_events(&self) -> Vec<ConfigEvent> {
        let events = collect_events(&MachineFiles::new(self.0.path()), &Groups::default());
        events.iter().for_each(assert_documented_layout);
        events
    }
}

/// Checks that a payload has its documented layout to the last byte.
fn assert_documented_layout(event: &ConfigEvent) {
    let [opcode, _] = event.hook.to_le_bytes();
    let (shape, name) =
        shape_of(&class::CONFIG, opcode, event.version).expect("the event has no documented layout");
    let (mut offset, mut count) = (0, 0);
    for field in shape.fields {
        let times = if let Repeat::By(_) = field.repeat { count } else { 1 };
        for _ in 0..times {
            offset += match (field.ty.size(8), field.ty) {
                (Some(size), _) => size,
                (None, Ty::Wz) => {
                    let units = event.payload[offset..].as_chunks::<2>().0;
                    (units.iter().position(|unit| *unit == [0, 0]).expect("no terminator") + 1) * 2
                }
                (None, other) => panic!("{other:?}"),
            };
        }
        if field.ty == Ty::U32 {
            count = u32_at(&event.payload, offset - 4);
        }
    }
    assert_eq!(offset, event.payload.len(), "{name}");
}

fn find_payload(events: &[ConfigEvent], hook: u16) -> &[u8] {
    let matching: Vec<&ConfigEvent> = events.iter().filter(|event| event.hook == hook).collect();
    assert_eq!(matching.len(), 1, "events with hook {hook:04x}");
    &matching[0].payload
}

fn read_utf16(payload: &[u8], at: usize) -> String {
    let units = payload[at..].as_chunks::<2>().0.iter();
    let units: Vec<u16> = units.map(|unit| u16::from_le_bytes(*unit)).collect();
    String::from_utf16(units.split(|unit| *unit == 0).next().unwrap()).unwrap()
}

#[test]
fn processors_are_described_by_cpuinfo_and_sysfs() {
    let machine = FakeMachine::new();
    let block = |number| {
        format!(
            "processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n\
                         model\t\t: 85\nmodel name\t: A Processor\n\
             stepping\t: 7\ncpu MHz\t\t: 2100.500\nflags\t\t: fpu pae nx hypervisor\n\n"
        )
    };
    machine.add_file("/proc/cpuinfo", block(0) + &block(65));
    machine.add_file("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
    machine.add_file("/proc/sys/kernel/arch", "x86_64\n");
    machine
        .add_file("/proc/sys/kernel/hostname", "a-host\n")
        .add_file("/proc/sys/kernel/domainname", "(none)\n");
    machine.add_file("/sys/devices/system/cpu/online", "0,65\n");
    machine.add_file("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,32\n");
    machine.add_file("/sys/devices/system/node/node0/cpumap", "00000002,00000000,00000001\n");
    machine
        .add_file("/sys/devices/system/node/node1/cpumap", "f\n")
        .add_file("/sys/devices/system/node/online", "0-1\n");
    let events = machine.collect_events();
    // MHz, processors, MiB of memory; host and domain; mask of hyper-threaded processors, highest
    // user address; architecture, family, model and stepping; PAE, NX.
    let cpu = find_payload(&events, hook::CONFIG_CPU);
    assert_eq!((u32_at(cpu, 0), u32_at(cpu, 4), u32_at(cpu, 8)), (2100, 2, 8192));
    assert_eq!((read_utf16(cpu, 20), read_utf16(cpu, 532)), ("a-host".to_owned(), String::new()));
    assert_eq!((u64_at(cpu, 800), u64_at(cpu, 808)), (1, 0x7FFF_FFFF_EFFF));
    assert_eq!((u16_at(cpu, 816), u16_at(cpu, 818), u16_at(cpu, 820)), (9, 6, 85 << 8 | 7));
    assert_eq!((cpu[822], cpu[823]), (1, 1));
    // The lists begin with their count. The masks of nodes have processors below 64 only. Processor
    // 65 is number 1 of group 1.
    let nodes = find_payload(&events, hook::CONFIG_NUMA_NODE);
    assert_eq!((u32_at(nodes, 0), u64_at(nodes, 4), u64_at(nodes, 12)), (2, 1, 15));
    let groups = find_payload(&events, hook::CONFIG_PROCESSOR_GROUP);
    assert_eq!((u32_at(groups, 0), u64_at(groups, 4), u64_at(groups, 12)), (2, 1, 2));
    let numbers = find_payload(&events, hook::CONFIG_PROCESSOR_NUMBER);
    assert_eq!((u32_at(numbers, 0), u32_at(numbers, 4), u32_at(numbers, 8)), (2, 0, 0x1_0001));
    let processors: Vec<_> = events.iter().filter(|event| event.hook == hook::CONFIG_PROCESSORS).collect();
    assert_eq!(processors.len(), 2);
    assert_eq!(u32_at(&processors[1].payload, 0), 65);
    assert_eq!(read_utf16(&processors[1].payload, 12), "A Processor");
    assert_eq!(read_utf16(&processors[1].payload, 172), "x86_64 Family 6 Model 85 Stepping 7");
    // The third byte is set because the flags contain "hypervisor".
    assert_eq!(find_payload(&events, hook::CONFIG_VIRTUALIZATION), [0, 0, 1, 0]);
}

#[test]
fn disks_and_mounts_have_the_numbers_of_disk_events() {
    let machine = FakeMachine::new();
    let disk = "/sys/devices/pci/sda";
    machine.add_file(&format!("{disk}/dev"), "8:0\n").add_file(&format!("{disk}/size"), "2048\n");
    machine.add_file(&format!("{disk}/queue/logical_block_size"), "4096\n");
    machine.add_file(&format!("{disk}/queue/write_cache"), "write back\n");
    machine.add_file(&format!("{disk}/sda1/dev"), "8:1\n").add_file(&format!("{disk}/sda1/partition"), "1\n");
    machine.add_file(&format!("{disk}/sda1/start"), "8\n").add_file(&format!("{disk}/sda1/size"), "1024\n");
    machine
        .add_file("/sys/devices/pci/2:0:1:3/vendor", "ATA     \n")
        .add_file("/sys/devices/pci/2:0:1:3/model", "A Disk\n");
    machine.add_link(&format!("{disk}/device"), "../2:0:1:3");
    machine.add_link("/sys/block/sda", "../devices/pci/sda");
    machine.add_file("/sys/block/loop0/dev", "7:0\n").add_file("/sys/block/loop0/size", "0\n");
    machine.add_link("/sys/dev/block/8:1", "../../devices/pci/sda/sda1");
    machine.add_file(
        "/proc/self/mountinfo",
        "22 1 0:21 / /proc rw - proc proc rw\n27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
         28 27 8:1 /a /mnt/b rw - ext4 /dev/sda1 rw\nbroken\n",
    );
    let events = machine.collect_events();
    // Device number, bytes per sector, cylinders; SCSI address; label, partitions, write cache.
    let disk = find_payload(&events, hook::CONFIG_PHYSICAL_DISK);
    assert_eq!((u32_at(disk, 0), u32_at(disk, 4), u64_at(disk, 16)), (8 << 20, 4096, 256));
    assert_eq!([24, 28, 32, 36].map(|at| u32_at(disk, at)), [2, 0, 1, 3]);
    assert_eq!((read_utf16(disk, 40), u32_at(disk, 552), disk[556]), ("ATA A Disk".to_owned(), 1, 1));
    assert_eq!(read_utf16(disk, 558), "/", "the disk contains the root file system");
    // Start, size; disk, size of the structure, drive type, partition; mount point, file system;
    // bytes per sector.
    let part = find_payload(&events, hook::CONFIG_LOGICAL_DISK);
    assert_eq!((u64_at(part, 0), u64_at(part, 8)), (4096, 524_288));
    assert_eq!([16, 20, 24, 40].map(|at| u32_at(part, at)), [8 << 20, 112, 1, 1]);
    assert_eq!((read_utf16(part, 28), read_utf16(part, 72)), ("/".to_owned(), "ext4".to_owned()));
    assert_eq!(u32_at(part, 48), 4096);
}

#[test]
fn interfaces_interrupts_and_firmware_are_described() {
    let machine = FakeMachine::new();
    machine
        .add_file("/sys/class/net/eth0/address", "02:00:5e:00:00:01\n")
        .add_file("/sys/class/net/eth0/ifindex", "2\n");
    machine.add_file("/sys/class/net/eth0/type", "1\n").add_file("/sys/class/net/bonding_masters", "\n");
    machine.add_file("/etc/resolv.conf", "# x\nnameserver 10.0.0.53\nnameserver fd00::53\nnameserver ../x\n");
    machine.add_file(
        "/proc/interrupts",
        "           CPU0       CPU1\n  9:          0          5   IO-APIC    9-fasteoi   acpi\n NMI:  0  0 x\n",
    );
    machine.add_file("/proc/irq/9/smp_affinity", "00000003\n");
    machine
        .add_file("/sys/class/dmi/id/sys_vendor", "A Maker\n")
        .add_file("/sys/class/dmi/id/bios_version", "1.2\n");
    machine
        .add_file("/sys/power/state", "freeze mem disk\n")
        .add_file("/sys/power/mem_sleep", "s2idle [deep]\n");
    machine.add_file(
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        [6, 0, 0, 0, 1],
    );
    machine.add_file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    let events = machine.collect_events();
    // Hardware address and its length; name and name servers.
    let nic = find_payload(&events, hook::CONFIG_NIC);
    assert_eq!((&nic[..8], u32_at(nic, 8)), (&[2, 0, 0x5E, 0, 0, 1, 0, 0][..], 6));
    assert_eq!(
        (read_utf16(nic, 20), read_utf16(nic, 32)),
        ("eth0".to_owned(), "10.0.0.53;fd00::53".to_owned())
    );
    // Affinity, number, description; length of the description.
    let irq = find_payload(&events, hook::CONFIG_IRQ);
    assert_eq!(
        (u64_at(irq, 0), u32_at(irq, 12), read_utf16(irq, 20)),
        (3, 9, "IO-APIC 9-fasteoi acpi".to_owned())
    );
    assert_eq!(u32_at(irq, 16), 22);
    // S1 to S5, then padding.
    assert_eq!(find_payload(&events, hook::CONFIG_POWER), [0, 0, 1, 1, 0, 0, 0, 0]);
    assert_eq!(read_utf16(find_payload(&events, hook::CONFIG_PLATFORM), 0), "A Maker");
    // Firmware type; secure boot enabled, secure boot capable.
    let boot = find_payload(&events, hook::CONFIG_BOOT);
    assert_eq!((u32_at(boot, 8), boot[12], boot[13]), (2, 1, 1));
    // Table partitions, table size, highest user port, seconds in TIME_WAIT.
    let settings = network::build_settings(&MachineFiles::new(machine.0.path()));
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&settings, at)), [0, u32::MAX, 60999, 60]);
}

#[test]
fn empty_or_malformed_files_give_valid_events() {
    let machine = FakeMachine::new();
    let hooks: Vec<u16> = machine.collect_events().iter().map(|event| event.hook).collect();
    assert_eq!(
        hooks,
        [
            hook::CONFIG_CPU,
            hook::CONFIG_PROCESSOR_GROUP,
            hook::CONFIG_PROCESSOR_NUMBER,
            hook::CONFIG_POWER,
            hook::CONFIG_VIRTUALIZATION,
            hook::CONFIG_BOOT
        ],
        "events that need no files"
    );
    let long = "\u{1F600}".repeat(1000);
    machine.add_file("/proc/sys/kernel/hostname", &long).add_file("/sys/class/dmi/id/sys_vendor", &long);
    machine
        .add_file("/proc/cpuinfo", "processor: x\n\nprocessor: 4294967295\nmodel: 99999999999\n:\n\n::::\n");
    machine.add_file("/proc/interrupts", "CPU0\n99999999999: 1\n7:\n: x\n");
    machine.add_file("/proc/self/mountinfo", " - \n1 2 99999:1 / /x rw - ext4 x rw\n1 2 8:1 / / rw - \n");
    machine.add_file("/sys/devices/system/cpu/online", "0-4294967295,7-9\n");
    machine
        .add_file("/sys/block/x/dev", "99999:99999999\n")
        .add_file("/sys/block/x/size", "18446744073709551615\n");
    machine
        .add_file("/sys/class/net/e/ifindex", "99999999999\n")
        .add_file("/proc/meminfo", "MemTotal: 99999999999999999999 kB");
    let events = machine.collect_events();
    // The field has 256 units with the terminator; a character of the name takes two.
    let cpu = find_payload(&events, hook::CONFIG_CPU);
    assert_eq!(read_utf16(cpu, 20).chars().count(), 127, "cut between characters");
    assert_eq!(u32_at(cpu, 4), 4096);
}

#[test]
fn disabled_groups_are_left_out() {
    let machine = FakeMachine::new();
    machine.add_file("/sys/class/net/eth0/ifindex", "2\n");
    let files = MachineFiles::new(machine.0.path());
    let mut groups = Groups::default();
    groups.0[0] = Group::NO_SYSCONFIG.0;
    assert_eq!(collect_events(&files, &groups), []);
    add_group(&mut groups.0, CONFIG_NETWORK.0);
    assert_eq!(
        collect_events(&files, &groups).iter().map(|event| event.hook).collect::<Vec<_>>(),
        [hook::CONFIG_NIC]
    );
}

#[test]
fn start_and_os_info_payloads_have_the_documented_layout() {
    let machine = FakeMachine::new();
    machine.add_file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    machine
        .add_file("/proc/sys/kernel/osrelease", "6.1\n")
        .add_file("/etc/os-release", "PRETTY_NAME=\"L\"\n");
    let files = MachineFiles::new(machine.0.path());
    let write = |out: &mut Out<'_>| {
        write_start_events(&files, &Groups::default(), out);
        out.write_classic(
            class::SYS_CONFIG_EX,
            platform::OS_INFO_OPCODE,
            0,
            TaskIds::default(),
            platform::build_os_info(&files),
        );
    };
    // Hook id or event type, version, payload.
    assert_written(
        write,
        &[
            "0b11 02 00000000 ffffffff 47ee0000 3c000000",
            // Both folders are "/usr": the .NET library TraceEvent refuses a system directory of
            // one character.
            "0021 00 2f0075007300720000002f007500730072000000",
            "0023 00 2f0000002f000000",
            // The time is the Unix epoch as FILETIME.
            "0020 00 00803ed5deb19d01 36002e00310000004c000000",
        ],
    );
}
