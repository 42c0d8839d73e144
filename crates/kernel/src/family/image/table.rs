//! The images of each process. Linux does not report unloads one by one, so the table keeps the
//! images whose unloads have to be written.
//!
//! ```text
//!   process ──▶ threads, time of the last reading of /proc or of the fork, images by code address
//! ```
//!
//! 1. A mapping of a file that already has an image at this base extends the image. A mapping that
//!    overlaps the code of another image has replaced that image.
//! 2. The memory of the table is bounded. The load of an image beyond the bound is written, but the
//!    image is only counted: its load in a forked child and its unload are not written, and are
//!    counted as lost.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::program::BuildId;
use crate::maps::{self, ANONYMOUS, MAX_MAPPINGS};

/// The most bytes that all images together may take.
const MAX_IMAGE_BYTES: usize = 64 << 20;
/// The most processes in the table.
const MAX_PROCESSES: usize = 1 << 16;

/// An image of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedImage {
    /// The address of the file's first byte, whether it is mapped or not.
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// The base that the headers of the file request.
    pub(crate) default_base: u64,
    /// Addresses of the code seen so far.
    pub(crate) code: Range<u64>,
    /// The path of the file, or a name such as `[vdso]`.
    pub(crate) name: Arc<str>,
    pub(crate) build_id: Option<BuildId>,
}

impl LoadedImage {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.name.len())
    }

    /// Returns the address after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }

    /// Returns whether an address lies in the image.
    #[cfg(test)]
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.base <= address && address < self.end()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.code.start < other.code.end && other.code.start < self.code.end
    }

    /// Returns whether `other`, an image made from a single mapping, is part of this image.
    fn includes_mapping(&self, other: &Self) -> bool {
        // Code generated at run time grows, and is mapped repeatedly with other rights.
        let is_at_same_address =
            if &*self.name == ANONYMOUS { self.overlaps(other) } else { self.base == other.base };
        let has_other_build_id =
            self.build_id.is_some() && other.build_id.is_some() && self.build_id != other.build_id;
        is_at_same_address && !has_other_build_id && self.name == other.name
    }

    fn extend_to(&mut self, other: &Self) {
        let end = self.end().max(other.end());
        self.base = self.base.min(other.base);
        self.size = end.saturating_sub(self.base);
        self.code = self.code.start.min(other.code.start)..self.code.end.max(other.code.end);
        self.build_id = self.build_id.or(other.build_id);
    }
}

/// Adds `image`, made from a single mapping, to images that are sorted by the start of their code.
/// Returns whether it is new, not a part of an existing image. `unloaded` receives the images that
/// it replaces.
pub(crate) fn merge_image(
    images: &mut Vec<LoadedImage>,
    image: &LoadedImage,
    unloaded: &mut Vec<LoadedImage>,
) -> bool {
    let end = images.partition_point(|existing| existing.code.start < image.code.end);
    let before = images.get(..end).unwrap_or_default();
    let touched = before.iter().rev().take_while(|existing| existing.overlaps(image)).count();
    let start = end.saturating_sub(touched);
    // Other mappings of the same file overlap this one or are its neighbours.
    let neighbours = start.saturating_sub(1)..end.saturating_add(1).min(images.len());
    let mut neighbours = images.get_mut(neighbours).unwrap_or_default().iter_mut();
    if let Some(existing) = neighbours.find(|existing| existing.includes_mapping(image)) {
        existing.extend_to(image);
        return false;
    }
    unloaded.extend(images.drain(start..end));
    if images.len() < MAX_MAPPINGS {
        images.insert(start, image.clone());
    }
    true
}

fn sum_memory_bytes(images: &[LoadedImage]) -> usize {
    images.iter().fold(0, |sum, image| sum.saturating_add(image.memory_bytes()))
}

/// The images of one process.
#[derive(Debug)]
pub(crate) struct ProcessImages {
    /// Number of threads of the process.
    pub(crate) threads: u32,
    /// The time, in nanoseconds, when the images were read from `/proc` or inherited. Older records
    /// bring nothing new.
    pub(crate) since: u64,
    images: Vec<LoadedImage>,
    /// Number of images that did not fit into the table.
    omitted: u64,
}

/// The images of all processes.
#[derive(Debug, Default)]
pub(crate) struct ImageTable {
    processes: BTreeMap<u32, ProcessImages>,
    bytes: usize,
    /// Loads and unloads that were not written.
    lost: u64,
}

impl ImageTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    pub(crate) fn process_mut(&mut self, pid: u32) -> Option<&mut ProcessImages> {
        self.processes.get_mut(&pid)
    }

    /// Inserts a process with these images. Returns the images that it had before.
    pub(crate) fn insert_process(
        &mut self,
        pid: u32,
        threads: u32,
        since: u64,
        images: Vec<LoadedImage>,
    ) -> Vec<LoadedImage> {
        let (before, _) = self.take_images_and_omissions(pid);
        self.processes.remove(&pid);
        let (count, bytes) = (images.len() as u64, self.bytes.saturating_add(sum_memory_bytes(&images)));
        if self.processes.len() >= MAX_PROCESSES {
            self.lost = self.lost.saturating_add(count);
        } else if bytes <= MAX_IMAGE_BYTES {
            self.bytes = bytes;
            self.processes.insert(pid, ProcessImages { threads, since, images, omitted: 0 });
        } else {
            self.processes.insert(pid, ProcessImages { threads, since, images: Vec::new(), omitted: count });
        }
        before
    }

    /// Inserts a process with the images of its parent. Returns the images that it had before, and
    /// those that it inherits, even if they do not fit into the table.
    pub(crate) fn fork_process(
        &mut self,
        parent: u32,
        pid: u32,
        since: u64,
    ) -> (Vec<LoadedImage>, Vec<LoadedImage>) {
        let inherited = self.images(parent).to_vec();
        let omitted = self.processes.get(&parent).map_or(0, |process| process.omitted);
        let before = self.insert_process(pid, 1, since, inherited.clone());
        self.lost = self.lost.saturating_add(omitted);
        if let Some(child) = self.processes.get_mut(&pid) {
            child.omitted = child.omitted.saturating_add(omitted);
        }
        (before, inherited)
    }

    /// Removes a process and returns its images.
    pub(crate) fn remove_process(&mut self, pid: u32) -> Vec<LoadedImage> {
        let images = self.take_images(pid);
        self.processes.remove(&pid);
        images
    }

    /// Removes and returns all images of a process, which stays in the table.
    pub(crate) fn take_images(&mut self, pid: u32) -> Vec<LoadedImage> {
        let (images, omitted) = self.take_images_and_omissions(pid);
        self.lost = self.lost.saturating_add(omitted);
        images
    }

    /// Removes the images of a process. Returns the images, and the number of those that did not
    /// fit into the table.
    fn take_images_and_omissions(&mut self, pid: u32) -> (Vec<LoadedImage>, u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return (Vec::new(), 0) };
        let images = std::mem::take(&mut process.images);
        self.bytes = self.bytes.saturating_sub(sum_memory_bytes(&images));
        (images, std::mem::take(&mut process.omitted))
    }

    /// Returns how many loads and unloads were not written since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Returns the images of a process that are in the table.
    pub(crate) fn images(&self, pid: u32) -> &[LoadedImage] {
        self.processes.get(&pid).map_or(&[], |process| &process.images)
    }

    /// Returns whether a process has images, in the table or only counted.
    pub(crate) fn has_images(&self, pid: u32) -> bool {
        let process = self.processes.get(&pid);
        process.is_some_and(|process| !process.images.is_empty() || process.omitted > 0)
    }

    /// Adds an executable mapping to a process, like [`merge_image`].
    pub(crate) fn add_mapping(
        &mut self,
        pid: u32,
        image: &LoadedImage,
        unloaded: &mut Vec<LoadedImage>,
    ) -> bool {
        if !self.processes.contains_key(&pid) {
            self.insert_process(pid, maps::count_threads(pid), 0, Vec::new());
        }
        let bytes = self.bytes.saturating_add(image.memory_bytes());
        let Some(process) = self.processes.get_mut(&pid) else {
            // The process does not fit into the table: the unload will not be written.
            self.lost = self.lost.saturating_add(1);
            return true;
        };
        if bytes > MAX_IMAGE_BYTES {
            process.omitted = process.omitted.saturating_add(1);
            return true;
        }
        let (count_before, unloaded_before) = (process.images.len(), unloaded.len());
        let is_new = merge_image(&mut process.images, image, unloaded);
        let freed = unloaded.get(unloaded_before..).unwrap_or_default();
        // A process with `MAX_MAPPINGS` images gets no further one, even if the image is new.
        let is_added = process.images.len().saturating_add(freed.len()) > count_before;
        self.bytes = if is_added { bytes } else { self.bytes }.saturating_sub(sum_memory_bytes(freed));
        process.omitted = process.omitted.saturating_add((is_new && !is_added).into());
        is_new
    }

    /// Returns the image of a process at an address.
    #[cfg(test)]
    pub(crate) fn find_image(&self, pid: u32, address: u64) -> Option<&LoadedImage> {
        let images = self.images(pid);
        let after = images.partition_point(|image| image.code.start <= address);
        let mut nearby = images.get(after.saturating_sub(1)..)?.iter().take(2);
        nearby.find(|image| image.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_image(name: &str, base: u64, size: u64) -> LoadedImage {
        let code = base + 0x1000..base + size;
        LoadedImage { base, size, default_base: 0, code, name: name.into(), build_id: None }
    }

    #[test]
    fn image_is_new_once_and_replaced_by_overlapping_code() {
        let (mut table, mut unloaded) = (ImageTable::default(), Vec::new());
        assert!(table.add_mapping(7, &build_image("/a", 0x1_0000, 0x4000), &mut unloaded));
        assert!(
            !table.add_mapping(7, &build_image("/a", 0x1_0000, 0x6000), &mut unloaded),
            "a second mapping of the same file made a new image"
        );
        assert!(
            table.add_mapping(7, &build_image("/a", 0x2_0000, 0x4000), &mut unloaded),
            "the same file elsewhere made no new image"
        );
        assert!(table.add_mapping(8, &build_image("/a", 0x1_0000, 0x4000), &mut unloaded));
        assert!(unloaded.is_empty());
        assert_eq!(
            table.find_image(7, 0x1_5FFF).map(|image| image.base),
            Some(0x1_0000),
            "the image has not grown"
        );
        assert_eq!(table.find_image(7, 0x1_6000), None);
        assert!(table.add_mapping(7, &build_image("/b", 0x1_2000, 0x2000), &mut unloaded));
        assert_eq!(unloaded.len(), 1);
        assert_eq!(table.images(7).iter().map(|image| &*image.name).collect::<Vec<_>>(), ["/b", "/a"]);
        assert_eq!(table.remove_process(7).len() + table.remove_process(8).len(), 3);
        assert_eq!((table.bytes, table.is_empty()), (0, true));
    }

    #[test]
    fn generated_code_grows_without_a_new_image() {
        let (mut table, mut unloaded) = (ImageTable::default(), Vec::new());
        let jit = |base, size| LoadedImage { code: base..base + size, ..build_image(ANONYMOUS, base, size) };
        assert!(table.add_mapping(7, &jit(0x1000, 0x1000), &mut unloaded));
        assert!(!table.add_mapping(7, &jit(0x1800, 0x1800), &mut unloaded));
        assert!(table.add_mapping(7, &jit(0x8000, 0x1000), &mut unloaded), "separate code was merged");
        let grown = table.find_image(7, 0x2FFF).map(|image| (image.base, image.size));
        assert_eq!(grown, Some((0x1000, 0x2000)));
        assert!(unloaded.is_empty());
    }

    #[test]
    fn table_memory_is_bounded() {
        let mut table = ImageTable::default();
        let name = "x".repeat(4096);
        for pid in 0..3 {
            for at in 0..MAX_MAPPINGS as u64 + 10 {
                assert!(table.add_mapping(pid, &build_image(&name, at << 16, 0x4000), &mut Vec::new()));
            }
            assert!(table.images(pid).len() <= MAX_MAPPINGS && table.bytes <= MAX_IMAGE_BYTES);
        }
        (0..3).for_each(|pid| drop(table.remove_process(pid)));
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn images_that_do_not_fit_are_counted_as_lost() {
        let mut table = ImageTable::default();
        let name = "x".repeat(4096);
        let mut unloaded = Vec::new();
        for at in 0..MAX_MAPPINGS as u64 {
            table.add_mapping(1, &build_image(&name, at << 16, 0x4000), &mut unloaded);
        }
        let stored = table.images(1).len() as u64;
        let omitted = MAX_MAPPINGS as u64 - stored;
        assert!(stored > 0 && omitted > 0);
        assert_eq!(table.take_lost(), 0, "loads that were written are counted as lost");
        let (_, loaded) = table.fork_process(1, 2, 0);
        assert_eq!((loaded.len() as u64, table.take_lost()), (stored, omitted));
        assert!(table.images(2).is_empty() && table.has_images(2), "images of the child were stored");
        assert_eq!((table.remove_process(2).len(), table.take_lost()), (0, stored + omitted));
        assert_eq!((table.remove_process(1).len() as u64, table.take_lost()), (stored, omitted));
    }
}
