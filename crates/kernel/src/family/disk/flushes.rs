//! Who asks for flushes.
//!
//! ```text
//!   getrq F…  thread 7 ┐
//!   getrq F…  thread 9 ┴─▶ both wait ──issue of a flush, by a worker──▶ for 7, and with it for 9
//! ```
//!
//! 1. A disk does one flush for all who have asked since the last one was issued: it is told as that of the first.
//! 2. Requests are asked for by partitions, and issued to disks.

use std::collections::HashMap;
use std::path::Path;

/// Disks and partitions that are remembered.
const MAX_DEVICES: usize = 1 << 10;

/// Flushes that are asked for and not issued.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// The first who has asked, by disk.
    asked: HashMap<u32, u32>,
    /// Disks of partitions, and of disks themselves.
    disks: HashMap<u32, u32>,
}

impl Flushes {
    /// A thread asks a disk or partition for a flush.
    pub(super) fn ask(&mut self, device: u32, thread: u32) {
        let disk = self.disk_of(device);
        if self.asked.len() < MAX_DEVICES || self.asked.contains_key(&disk) {
            self.asked.entry(disk).or_insert(thread);
        }
    }

    /// A disk gets a flush: who has asked for it, if that was told.
    pub(super) fn issue(&mut self, disk: u32) -> Option<u32> {
        self.asked.remove(&disk)
    }

    /// What is known may be over.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }

    fn disk_of(&mut self, device: u32) -> u32 {
        if self.disks.len() >= MAX_DEVICES {
            self.disks.clear();
        }
        *self.disks.entry(device).or_insert_with(|| disk_below("/sys".as_ref(), device).unwrap_or(device))
    }
}

/// The disk that a device is a partition of.
fn disk_below(sys: &Path, device: u32) -> Option<u32> {
    let (major, minor) = (device >> 20, device & 0xF_FFFF);
    let place = sys.join(format!("dev/block/{major}:{minor}"));
    // Only partitions have a number.
    std::fs::metadata(place.join("partition")).ok()?;
    let disk = std::fs::read_to_string(place.join("../dev")).ok()?;
    let (major, minor) = disk.trim().split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major.checked_shl(20)? | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_that_of_the_first_who_asked() {
        // Numbers that no device has.
        let (disk, other) = (0xFFF << 20, 0xFFE << 20);
        let mut flushes = Flushes::default();
        for thread in [7, 9] {
            flushes.ask(disk, thread);
        }
        flushes.ask(other, 8);
        assert_eq!((flushes.issue(disk), flushes.issue(disk)), (Some(7), None), "one for both");
        flushes.forget();
        assert_eq!(flushes.issue(other), None);
        for number in 0..2 * MAX_DEVICES as u32 {
            flushes.ask(disk | number, 1);
        }
        assert!(flushes.asked.len() <= MAX_DEVICES && flushes.disks.len() <= MAX_DEVICES);
    }

    #[test]
    fn a_partition_is_one_of_its_disk() {
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
        assert_eq!(disk_below(sys.path(), 8 << 20 | 17), Some(8 << 20 | 16));
        assert_eq!(disk_below(sys.path(), 8 << 20 | 16), None, "a disk");
        assert_eq!(disk_below(sys.path(), 9 << 20), None);
    }
}
