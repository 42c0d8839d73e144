//! The threads that request flushes.
//!
//! ```text
//!   getrq F…  thread 7 ┐
//!   getrq F…  thread 9 ┴─▶ both wait ──a worker issues a flush──▶ for 7, and with it for 9
//! ```
//!
//! 1. A disk does one flush for all requests since its last flush was issued. The event names the
//!    thread of the first request.
//! 2. Flushes are requested from partitions and issued to disks.

use std::collections::HashMap;
use std::path::Path;

/// The most disks and partitions that are kept.
const MAX_DEVICES: usize = 1 << 10;

/// Flushes that are requested and not yet issued.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// The first thread that requested a flush, by disk.
    requesters: HashMap<u32, u32>,
    /// The disk of each partition, and of each disk itself.
    disks: HashMap<u32, u32>,
}

impl Flushes {
    /// Records that a thread requests a flush from a disk or partition.
    pub(super) fn add_request(&mut self, device: u32, thread: u32) {
        let disk = self.find_disk(device);
        if self.requesters.len() < MAX_DEVICES || self.requesters.contains_key(&disk) {
            self.requesters.entry(disk).or_insert(thread);
        }
    }

    /// Removes and returns the thread that requested the flush now issued to a disk, if its request
    /// was captured.
    pub(super) fn take_requester(&mut self, disk: u32) -> Option<u32> {
        self.requesters.remove(&disk)
    }

    /// Drops all requests: after lost records they may have been issued.
    pub(super) fn clear_requests(&mut self) {
        self.requesters.clear();
    }

    fn find_disk(&mut self, device: u32) -> u32 {
        if self.disks.len() >= MAX_DEVICES {
            self.disks.clear();
        }
        *self.disks.entry(device).or_insert_with(|| read_disk("/sys".as_ref(), device).unwrap_or(device))
    }
}

/// Reads the disk of a partition from sysfs; `None` for a device that is not a partition.
fn read_disk(sys: &Path, device: u32) -> Option<u32> {
    let (major, minor) = (device >> 20, device & 0xF_FFFF);
    let folder = sys.join(format!("dev/block/{major}:{minor}"));
    // Only partitions have this file.
    std::fs::metadata(folder.join("partition")).ok()?;
    let disk = std::fs::read_to_string(folder.join("../dev")).ok()?;
    let (major, minor) = disk.trim().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major.checked_shl(20)? | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_belongs_to_the_first_requester() {
        // Device numbers that no device has.
        let (disk, other) = (0xFFF << 20, 0xFFE << 20);
        let mut flushes = Flushes::default();
        for thread in [7, 9] {
            flushes.add_request(disk, thread);
        }
        flushes.add_request(other, 8);
        let requesters = (flushes.take_requester(disk), flushes.take_requester(disk));
        assert_eq!(requesters, (Some(7), None), "two requests gave two flushes");
        flushes.clear_requests();
        assert_eq!(flushes.take_requester(other), None);
        for number in 0..2 * MAX_DEVICES as u32 {
            flushes.add_request(disk | number, 1);
        }
        assert!(flushes.requesters.len() <= MAX_DEVICES && flushes.disks.len() <= MAX_DEVICES);
    }

    #[test]
    fn partition_resolves_to_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let at = |path: &str| sys.path().join(path);
        std::fs::create_dir_all(at("devices/sda/sda1")).unwrap();
        std::fs::create_dir_all(at("dev/block")).unwrap();
        for (path, text) in [("sda/dev", "8:16\n"), ("sda/sda1/dev", "8:17\n"), ("sda/sda1/partition", "1\n")]
        {
            std::fs::write(at("devices").join(path), text).unwrap();
        }
        for (link, to) in [("8:16", "../../devices/sda"), ("8:17", "../../devices/sda/sda1")] {
            std::os::unix::fs::symlink(to, at("dev/block").join(link)).unwrap();
        }
        assert_eq!(read_disk(sys.path(), 8 << 20 | 17), Some(8 << 20 | 16));
        assert_eq!(read_disk(sys.path(), 8 << 20 | 16), None, "a disk is not a partition");
        assert_eq!(read_disk(sys.path(), 9 << 20), None);
    }
}
