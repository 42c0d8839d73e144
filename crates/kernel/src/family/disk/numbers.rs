//! Numbers of disks.
//!
//! ```text
//!   /sys/block/*/dev   7:0  8:0  8:16  254:0     in the order of major and minor
//!   number             0    1    2     3         one that appears later: the next
//! ```
//!
//! A number is given once and stays while the capture runs; it belongs to the whole disk, as requests do, never to a partition.

use std::collections::BTreeMap;
use std::fs;

/// Bits of a minor number in the kernel's own form of a device number.
const MINOR_BITS: u32 = 20;
/// Disks that have numbers of their own; all beyond share the last.
const MAX_DISKS: u32 = 4096;

/// Which number a disk has.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// By the kernel's device number. Empty: nobody has asked yet.
    known: BTreeMap<u32, u32>,
}

impl Numbers {
    /// The number of a disk by the kernel's form of its device number.
    pub(crate) fn of(&mut self, dev: u32) -> u32 {
        if self.known.is_empty() {
            self.known = (0..MAX_DISKS).zip(there()).map(|(number, dev)| (dev, number)).collect();
        }
        let next = u32::try_from(self.known.len()).unwrap_or(MAX_DISKS);
        if next >= MAX_DISKS {
            return self.known.get(&dev).copied().unwrap_or(MAX_DISKS);
        }
        *self.known.entry(dev).or_insert(next)
    }

    /// The number of a disk by major and minor number.
    pub(crate) fn number(&mut self, major: u32, minor: u32) -> u32 {
        self.of(joined(major, minor))
    }
}

const fn joined(major: u32, minor: u32) -> u32 {
    major << MINOR_BITS | minor & ((1 << MINOR_BITS) - 1)
}

/// Disks of this machine, in order.
fn there() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let dev = |entry: fs::DirEntry| parse(&fs::read_to_string(entry.path().join("dev")).ok()?);
    let mut found: Vec<u32> = entries.flatten().filter_map(dev).take(MAX_DISKS as usize).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// `254:0`
fn parse(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(joined(major.parse().ok().filter(|it| *it < 1 << 12)?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_number_and_a_new_one_gets_the_next() {
        let mut numbers = Numbers { known: [(joined(7, 0), 0), (joined(254, 0), 1)].into() };
        assert_eq!(numbers.number(254, 0), 1);
        assert_eq!(numbers.number(8, 16), 2);
        assert_eq!(numbers.of(8 << 20 | 16), 2);
        assert_eq!(numbers.number(7, 0), 0);
    }

    #[test]
    fn numbers_are_bounded() {
        let mut numbers = Numbers { known: [(0, 0)].into() };
        for dev in 0..MAX_DISKS + 100 {
            assert!(numbers.of(dev) <= MAX_DISKS);
        }
        assert_eq!(numbers.known.len(), MAX_DISKS as usize);
    }

    #[test]
    fn texts_of_devices_are_read() {
        assert_eq!(parse("254:3\n"), Some(254 << 20 | 3));
        for wrong in ["", "254", "x:1", "99999999:1", ":"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
