//! Disks and the file systems mounted from them.
//!
//! ```text
//!   /sys/block/NAME ──▶ 0x0B0B PhyDisk
//!   /proc/self/mountinfo + /sys/dev/block/MAJOR:MINOR ──▶ 0x0B0C LogDisk
//! ```
//!
//! 1. The number of a disk is the kernel's device number, as in disk events.
//! 2. Disks no longer report cylinders. The events describe cylinders of one track of one sector,
//!    so that the product is the size of the disk.
//! 3. A mount point that is short enough stands in the field of the drive letter.

use std::collections::HashSet;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use super::event::ConfigEvent;
use super::machine_files::MachineFiles;

/// The unit of sizes in `/sys`, whatever the sector size of the disk.
const SECTOR_BYTES: u64 = 512;
/// Size of the structure of a logical disk.
const LOGICAL_DISK_STRUCT_BYTES: u32 = 112;
const DRIVE_TYPE_PARTITION: u32 = 1;
const DRIVE_TYPE_VOLUME: u32 = 2;

const PHYSICAL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_PHYSICAL_DISK, 2);
const LOGICAL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::CONFIG_LOGICAL_DISK, 2);

/// Parses `MAJOR:MINOR` into the kernel's device number.
fn parse_device(device: &str) -> Option<u32> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some((major << 20) | minor)
}

pub(super) fn add_events(files: &MachineFiles, events: &mut Vec<ConfigEvent>) {
    let mounts = files.read_text("/proc/self/mountinfo");
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
    let root = mounts.iter().find(|mount| mount.point == "/");
    let root = root.and_then(|mount| find_disk_device(files, mount.device));
    for name in files.list_names("/sys/block") {
        events.extend(build_physical_disk_event(files, &name, root.as_deref()));
    }
    let mut seen = HashSet::new();
    // A device that is mounted in several places is written once.
    let first_mounts = mounts.iter().filter(|mount| seen.insert(mount.device));
    events.extend(first_mounts.filter_map(|mount| build_logical_disk_event(files, mount)));
}

/// Returns the disk of a device: itself, or the disk that it is a partition of.
fn find_disk_device(files: &MachineFiles, device: &str) -> Option<String> {
    let folder = format!("/sys/dev/block/{device}");
    let device = match files.has_path(&format!("{folder}/partition")) {
        true => files.read_text(&format!("{folder}/../dev")),
        false => files.read_text(&format!("{folder}/dev")),
    };
    (!device.is_empty()).then_some(device)
}

fn build_physical_disk_event(files: &MachineFiles, name: &str, root: Option<&str>) -> Option<ConfigEvent> {
    let path = |file: &str| format!("/sys/block/{name}/{file}");
    let device = files.read_text(&path("dev"));
    let bytes = files.read_number(&path("size")).saturating_mul(SECTOR_BYTES);
    let sector_bytes = files.read_number(&path("queue/logical_block_size")).max(1);
    let number = parse_device(&device).filter(|_| bytes > 0)?;
    let scsi = files.read_link_name(&path("device")).unwrap_or_default();
    let scsi: Vec<u32> = scsi.split(':').map_while(|part| part.parse().ok()).collect();
    let [port, bus, target, unit] =
        if let [port, bus, target, unit] = scsi[..] { [port, bus, target, unit] } else { [0; 4] };
    // Some drivers give a vendor id such as `0x1af4` in place of a name.
    let label =
        |file| Some(files.read_text(&path(file))).filter(|text| !text.is_empty() && !text.starts_with("0x"));
    let labels: Vec<String> = ["device/vendor", "device/model"].into_iter().filter_map(label).collect();
    let label = if labels.is_empty() { name.to_owned() } else { labels.join(" ") };
    let names = files.list_names(&path(""));
    let partitions = names.iter().filter(|name| files.has_path(&path(&format!("{name}/partition")))).count();
    let mut out = Vec::new();
    put_kernel_event!(&mut out, PHYSICAL_LAYOUT, {
        DiskNumber: number,
        BytesPerSector: u32::try_from(sector_bytes).unwrap_or(0),
        SectorsPerTrack: 1_u32,
        TracksPerCylinder: 1_u32,
        Cylinders: bytes.checked_div(sector_bytes).unwrap_or(0),
        SCSIPort: port,
        SCSIPath: bus,
        SCSITarget: target,
        SCSILun: unit,
        Manufacturer: label.as_str(),
        PartitionCount: u32::try_from(partitions).unwrap_or(0),
        WriteCacheEnabled: u8::from(files.read_text(&path("queue/write_cache")) == "write back"),
        BootDriveLetter: if root == Some(&*device) { "/" } else { "" },
    });
    Some(ConfigEvent::new(hook::CONFIG_PHYSICAL_DISK, &PHYSICAL_LAYOUT, out))
}

/// A line of mountinfo: `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/sda1 rw`.
struct Mount<'a> {
    device: &'a str,
    point: String,
    kind: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(2);
        let (device, _root, point) = (words.next()?, words.next()?, words.next()?);
        // The kernel escapes blanks in names in octal.
        let point = point.replace("\\040", " ");
        Some(Self { device, point, kind: after.split(' ').next()? })
    }
}

fn build_logical_disk_event(files: &MachineFiles, mount: &Mount<'_>) -> Option<ConfigEvent> {
    let folder = format!("/sys/dev/block/{}", mount.device);
    let number = |file: &str| files.read_number(&format!("{folder}/{file}"));
    let partition = u32::try_from(number("partition")).unwrap_or(0);
    let size = number("size").saturating_mul(SECTOR_BYTES);
    let disk = find_disk_device(files, mount.device).and_then(|device| parse_device(&device))?;
    let queue = if partition > 0 { "../queue/logical_block_size" } else { "queue/logical_block_size" };
    let sector_bytes = number(queue).max(1);
    // A FUSE file system may never answer.
    let space =
        if mount.kind.starts_with("fuse") { Default::default() } else { files.query_space(&mount.point) };
    let drive_letter = if mount.point.encode_utf16().count() < 4 { &*mount.point } else { "" };
    let clusters = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut out = Vec::new();
    put_kernel_event!(&mut out, LOGICAL_LAYOUT, {
        StartOffset: number("start").saturating_mul(SECTOR_BYTES),
        PartitionSize: size,
        DiskNumber: disk,
        Size: LOGICAL_DISK_STRUCT_BYTES,
        DriveType: if partition > 0 { DRIVE_TYPE_PARTITION } else { DRIVE_TYPE_VOLUME },
        DriveLetterString: drive_letter,
        PartitionNumber: partition,
        SectorsPerCluster: u32::try_from(space.block_bytes.checked_div(sector_bytes).unwrap_or(0)).unwrap_or(0),
        BytesPerSector: u32::try_from(sector_bytes).unwrap_or(0),
        NumberOfFreeClusters: clusters(space.free_blocks),
        TotalNumberOfClusters: clusters(space.total_blocks),
        FileSystem: mount.kind,
    });
    Some(ConfigEvent::new(hook::CONFIG_LOGICAL_DISK, &LOGICAL_LAYOUT, out))
}
