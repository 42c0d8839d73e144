//! Which images processes have, for unloads that Linux does not tell one by one, and for addresses.
//!
//! ```text
//!   process ──▶ threads that run in it, since when it is known, images by where their code lies
//! ```
//!
//! 1. A mapping of a file that has an image there already tells nothing new; one that lies where the code of another image was has replaced it.
//! 2. Bytes are counted: what finds no room is told when it is loaded, and forgotten. How many those are is remembered: that a child has them too, and that they go with
//!    their process, is not told, and counted as lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::maps::{self, ANONYMOUS, MAX_MAPPINGS};
use super::program::BuildId;

/// Bytes that all images may take.
const MAX_BYTES: usize = 64 << 20;
/// Processes that are remembered.
const MAX_PROCESSES: usize = 1 << 16;

/// An image of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Where the first byte of the file is, or would be.
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// Where it would be by the file's own headers.
    pub(crate) default_base: u64,
    /// From where to where code of it was seen.
    pub(crate) code: (u64, u64),
    /// The path of its file, or what stands for one.
    pub(crate) name: Arc<str>,
    pub(crate) build_id: Option<BuildId>,
}

impl Image {
    fn cost(&self) -> usize {
        size_of::<Self>().saturating_add(self.name.len())
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }

    fn is_touched_by(&self, other: &Self) -> bool {
        self.code.0 < other.code.1 && other.code.0 < self.code.1
    }

    /// Whether a mapping, seen as an image, is part of this one.
    fn has(&self, other: &Self) -> bool {
        // Code that is made at run time grows, and is mapped again and again with other rights.
        let is_place =
            if &*self.name == ANONYMOUS { self.is_touched_by(other) } else { self.base == other.base };
        let is_other = self.build_id.is_some() && other.build_id.is_some() && self.build_id != other.build_id;
        is_place && !is_other && self.name == other.name
    }

    fn grow(&mut self, other: &Self) {
        let end = self.end().max(other.end());
        self.base = self.base.min(other.base);
        self.size = end.saturating_sub(self.base);
        self.code = (self.code.0.min(other.code.0), self.code.1.max(other.code.1));
        self.build_id = self.build_id.or(other.build_id);
    }
}

/// Adds a mapping to images that are sorted by where their code begins. Whether that makes one which was not there; `gone`: those that it replaced.
pub(crate) fn merge(images: &mut Vec<Image>, image: &Image, gone: &mut Vec<Image>) -> bool {
    let end = images.partition_point(|it| it.code.0 < image.code.1);
    let before = images.get(..end).unwrap_or_default();
    let touched = before.iter().rev().take_while(|it| it.is_touched_by(image)).count();
    let start = end.saturating_sub(touched);
    // Other mappings of its file are what it touches, or right beside.
    let beside = start.saturating_sub(1)..end.saturating_add(1).min(images.len());
    if let Some(known) = images.get_mut(beside).and_then(|them| them.iter_mut().find(|it| it.has(image))) {
        known.grow(image);
        return false;
    }
    gone.extend(images.drain(start..end));
    if images.len() < MAX_MAPPINGS {
        images.insert(start, image.clone());
    }
    true
}

fn cost(images: &[Image]) -> usize {
    images.iter().fold(0, |sum, image| sum.saturating_add(image.cost()))
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// Threads that run in it.
    pub(crate) threads: u32,
    /// What is older is in here already: nanoseconds.
    pub(crate) since: u64,
    images: Vec<Image>,
    /// Images that found no room.
    forgotten: u64,
}

/// Images of all processes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<u32, Process>,
    bytes: usize,
    /// Images that came or went untold.
    untold: u64,
}

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    pub(crate) fn process(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// A process that begins with these images; those it had before are returned.
    pub(crate) fn begin(&mut self, pid: u32, threads: u32, since: u64, images: Vec<Image>) -> Vec<Image> {
        let (before, _) = self.take(pid);
        self.processes.remove(&pid);
        let (count, bytes) = (images.len() as u64, self.bytes.saturating_add(cost(&images)));
        if self.processes.len() >= MAX_PROCESSES {
            self.untold = self.untold.saturating_add(count);
        } else if bytes <= MAX_BYTES {
            self.bytes = bytes;
            self.processes.insert(pid, Process { threads, since, images, forgotten: 0 });
        } else {
            self.processes.insert(pid, Process { threads, since, images: Vec::new(), forgotten: count });
        }
        before
    }

    /// A process that begins with the images of its parent. Those it had before are returned, and those it has now.
    pub(crate) fn fork(&mut self, parent: u32, pid: u32, since: u64) -> (Vec<Image>, Vec<Image>) {
        let inherited = self.images(parent).to_vec();
        let forgotten = self.processes.get(&parent).map_or(0, |it| it.forgotten);
        let before = self.begin(pid, 1, since, inherited.clone());
        self.untold = self.untold.saturating_add(forgotten);
        if let Some(child) = self.processes.get_mut(&pid) {
            child.forgotten = child.forgotten.saturating_add(forgotten);
        }
        (before, inherited)
    }

    /// Forgets a process; its images are returned.
    pub(crate) fn end(&mut self, pid: u32) -> Vec<Image> {
        let images = self.empty(pid);
        self.processes.remove(&pid);
        images
    }

    /// Takes all images from a process that runs on.
    pub(crate) fn empty(&mut self, pid: u32) -> Vec<Image> {
        let (images, forgotten) = self.take(pid);
        self.untold = self.untold.saturating_add(forgotten);
        images
    }

    /// The images of a process, and how many more it has.
    fn take(&mut self, pid: u32) -> (Vec<Image>, u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return (Vec::new(), 0) };
        let images = std::mem::take(&mut process.images);
        self.bytes = self.bytes.saturating_sub(cost(&images));
        (images, std::mem::take(&mut process.forgotten))
    }

    /// How many images came or went untold since this was asked.
    pub(crate) fn take_untold(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }

    /// All images of a process.
    pub(crate) fn images(&self, pid: u32) -> &[Image] {
        self.processes.get(&pid).map_or(&[], |it| &it.images)
    }

    /// Whether a process has any, remembered or not.
    pub(crate) fn has_images(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|it| !it.images.is_empty() || it.forgotten > 0)
    }

    /// Code was mapped: as [`merge`].
    pub(crate) fn add(&mut self, pid: u32, image: &Image, gone: &mut Vec<Image>) -> bool {
        if !self.processes.contains_key(&pid) {
            self.begin(pid, maps::threads_of(pid), 0, Vec::new());
        }
        let bytes = self.bytes.saturating_add(image.cost());
        let Some(process) = self.processes.get_mut(&pid) else {
            // It will go unseen.
            self.untold = self.untold.saturating_add(1);
            return true;
        };
        if bytes > MAX_BYTES {
            process.forgotten = process.forgotten.saturating_add(1);
            return true;
        }
        let (had, before) = (process.images.len(), gone.len());
        let is_new = merge(&mut process.images, image, gone);
        let freed = gone.get(before..).unwrap_or_default();
        let is_kept = process.images.len().saturating_add(freed.len()) > had;
        self.bytes = if is_kept { bytes } else { self.bytes }.saturating_sub(cost(freed));
        process.forgotten = process.forgotten.saturating_add((is_new && !is_kept).into());
        is_new
    }

    /// The image of a process at an address.
    #[cfg(test)]
    pub(crate) fn at(&self, pid: u32, address: u64) -> Option<&Image> {
        let images = self.images(pid);
        let behind = images.partition_point(|it| it.code.0 <= address);
        let mut around = images.get(behind.saturating_sub(1)..)?.iter().take(2);
        around.find(|it| it.base <= address && address < it.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, base: u64, size: u64) -> Image {
        let code = (base + 0x1000, base + size);
        Image { base, size, default_base: 0, code, name: name.into(), build_id: None }
    }

    #[test]
    fn an_image_is_told_once_and_replaced_by_what_lies_where_its_code_was() {
        let (mut table, mut gone) = (Table::default(), Vec::new());
        assert!(table.add(7, &image("/a", 0x1_0000, 0x4000), &mut gone));
        assert!(!table.add(7, &image("/a", 0x1_0000, 0x6000), &mut gone), "more of the same");
        assert!(table.add(7, &image("/a", 0x2_0000, 0x4000), &mut gone), "the same file elsewhere");
        assert!(table.add(8, &image("/a", 0x1_0000, 0x4000), &mut gone), "another process");
        assert!(gone.is_empty());
        assert_eq!(table.at(7, 0x1_5FFF).map(|it| it.base), Some(0x1_0000), "it has grown");
        assert_eq!(table.at(7, 0x1_6000), None);
        assert!(table.add(7, &image("/b", 0x1_2000, 0x2000), &mut gone));
        assert_eq!(gone.len(), 1);
        assert_eq!(table.images(7).iter().map(|it| &*it.name).collect::<Vec<_>>(), ["/b", "/a"]);
        assert_eq!(table.end(7).len() + table.end(8).len(), 3);
        assert_eq!((table.bytes, table.is_empty()), (0, true));
    }

    #[test]
    fn code_made_at_run_time_grows_without_being_told_again() {
        let (mut table, mut gone) = (Table::default(), Vec::new());
        let jit = |base, size| Image { code: (base, base + size), ..image(ANONYMOUS, base, size) };
        assert!(table.add(7, &jit(0x1000, 0x1000), &mut gone));
        assert!(!table.add(7, &jit(0x1800, 0x1800), &mut gone));
        assert!(table.add(7, &jit(0x8000, 0x1000), &mut gone), "apart from it");
        assert_eq!(table.at(7, 0x2FFF).map(|it| (it.base, it.size)), Some((0x1000, 0x2000)));
        assert!(gone.is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut table = Table::default();
        let name = "x".repeat(4096);
        for pid in 0..3 {
            for at in 0..MAX_MAPPINGS as u64 + 10 {
                assert!(table.add(pid, &image(&name, at << 16, 0x4000), &mut Vec::new()));
            }
            assert!(table.images(pid).len() <= MAX_MAPPINGS && table.bytes <= MAX_BYTES);
        }
        (0..3).for_each(|pid| drop(table.end(pid)));
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn what_found_no_room_is_counted_when_it_would_be_told() {
        let mut table = Table::default();
        let name = "x".repeat(4096);
        let mut gone = Vec::new();
        for at in 0..MAX_MAPPINGS as u64 {
            table.add(1, &image(&name, at << 16, 0x4000), &mut gone);
        }
        let kept = table.images(1).len() as u64;
        let forgotten = MAX_MAPPINGS as u64 - kept;
        assert!(kept > 0 && forgotten > 0);
        assert_eq!(table.take_untold(), 0, "all were told when they were loaded");
        let (_, told) = table.fork(1, 2, 0);
        assert_eq!((told.len() as u64, table.take_untold()), (kept, forgotten), "loads of the child");
        assert!(table.images(2).is_empty() && table.has_images(2), "no room");
        assert_eq!((table.end(2).len(), table.take_untold()), (0, kept + forgotten), "unloads of the child");
        assert_eq!((table.end(1).len() as u64, table.take_untold()), (kept, forgotten));
    }
}
