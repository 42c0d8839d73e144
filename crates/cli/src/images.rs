//! Programs and libraries as a trace tells where they were loaded, for the addresses of call stacks.
//!
//! ```text
//!   Image/Load, DCStart, DCEnd, Unload     ImageBase, ImageSize, ProcessId, FileName
//!   (process, base) ──▶ the images that were there, oldest first; process 0 has those of the kernel
//! ```
//!
//! An address belongs to the image that was loaded last before its time; that it was unloaded in between is not looked at, for nothing runs there
//! then. What is kept is bounded: behind that, addresses stay addresses.

use std::collections::BTreeMap;

use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::Found;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::spec::event::class;

/// Images of one trace that are kept.
const MAX_IMAGES: usize = 1 << 17;
/// Bytes of the name of a file that are kept.
const MAX_NAME: usize = 255;

const UNLOAD: u8 = 2;
const RUNDOWN_START: u8 = 3;
const RUNDOWN_END: u8 = 4;
const LOAD: u8 = 10;

/// The images of a trace.
#[derive(Default)]
pub(crate) struct Images {
    by_base: BTreeMap<(u32, u64), Vec<Image>>,
    count: usize,
    walker: Walker,
}

#[derive(Debug, PartialEq, Eq)]
struct Image {
    /// When it was loaded; the beginning of time where it was there before the trace.
    since: i64,
    size: u64,
    /// The file, without its folder.
    name: Box<str>,
}

/// What an event says about an image.
#[derive(Default)]
struct Told {
    base: u64,
    size: u64,
    pid: u32,
    name: Vec<u8>,
}

impl<'p> Visitor<'p> for Told {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let number = || value.as_u64().unwrap_or(0);
        match &*field.name {
            "ImageBase" => self.base = number(),
            "ImageSize" => self.size = number(),
            "ProcessId" => self.pid = u32::try_from(number()).unwrap_or(0),
            "FileName" => text(field, &value, Style::default(), &mut self.name),
            _ => {}
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

impl Images {
    /// Whether an event may tell something to [`Images::observe`]: one with a hook, for what a process writes has none, and is not believed about others.
    pub(crate) fn is_informative(record: &Record<'_>) -> bool {
        let opcode = record.descriptor().opcode;
        record.hook().is_some()
            && record.provider() == class::IMAGE
            && matches!(opcode, UNLOAD | RUNDOWN_START | RUNDOWN_END | LOAD)
    }

    /// Learns from an event about an image.
    pub(crate) fn observe(&mut self, record: &Record<'_>, found: &Found<'_, '_>) {
        let mut told = Told::default();
        // A payload that ends early has told what it could.
        let _ = self.walker.walk(&found.known.schema, found.payload, record.pointer_size(), &mut told);
        let is_load = record.descriptor().opcode == LOAD;
        self.note(&told, if is_load { record.time() } else { i64::MIN });
    }

    fn note(&mut self, told: &Told, since: i64) {
        let name = String::from_utf8_lossy(&told.name);
        let name = name.rsplit(['\\', '/']).next().unwrap_or_default();
        let name: String = name.chars().take(MAX_NAME).collect();
        if told.size == 0 || name.is_empty() || self.count >= MAX_IMAGES {
            return;
        }
        let there = self.by_base.entry((told.pid, told.base)).or_default();
        // An end tells of an image whose beginning was told already, or came before the trace.
        if since == i64::MIN && there.iter().any(|image| *image.name == *name) {
            return;
        }
        let at = there.partition_point(|image| image.since <= since);
        there.insert(at, Image { since, size: told.size, name: name.into() });
        self.count = self.count.saturating_add(1);
    }

    /// The image at an address, and how far into it that is.
    pub(crate) fn locate(&self, pid: u32, address: u64, time: i64) -> Option<(&str, u64)> {
        [pid, 0].into_iter().find_map(|pid| {
            let ((_, base), there) = self.by_base.range((pid, 0)..=(pid, address)).next_back()?;
            let image = there.iter().rev().find(|image| image.since <= time)?;
            let offset = address.checked_sub(*base)?;
            (offset < image.size).then_some((&*image.name, offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::header::classic::ClassicHeader;
    use traceweir_format::header::perfinfo::PerfInfoHeader;

    fn told(pid: u32, base: u64, size: u64, name: &str) -> Told {
        Told { pid, base, size, name: name.into() }
    }

    #[test]
    fn an_address_is_told_by_the_image_that_was_there_then() {
        let mut images = Images::default();
        images.note(&told(7, 0x1000, 0x100, "\\Device\\old.dll"), i64::MIN);
        images.note(&told(7, 0x1000, 0x100, "new.dll"), 50);
        images.note(&told(7, 0x1000, 0x100, "new.dll"), i64::MIN);
        images.note(&told(7, 0x2000, 0x100, "/usr/lib/late.so"), 90);
        images.note(&told(0, 0xFFFF_0000, 0x100, "kernel"), i64::MIN);
        assert_eq!(images.locate(7, 0x1010, 10), Some(("old.dll", 0x10)));
        assert_eq!(images.locate(7, 0x1010, 60), Some(("new.dll", 0x10)));
        assert_eq!(images.locate(7, 0x1100, 60), None, "behind its end");
        assert_eq!(images.locate(7, 0x2000, 60), None, "not yet there");
        assert_eq!(images.locate(8, 0x1010, 60), None, "another process");
        assert_eq!(images.locate(8, 0xFFFF_0001, 60), Some(("kernel", 1)));
        assert_eq!(images.locate(7, 0xFFF, 60), None);
    }

    #[test]
    fn what_a_process_writes_about_images_is_not_believed() {
        let (mut forged, mut sound) = (Vec::new(), Vec::new());
        ClassicHeader { opcode: LOAD, class: class::IMAGE, ..ClassicHeader::default() }
            .encode(&[0; 64], &mut forged)
            .unwrap();
        PerfInfoHeader { pointer_size: 8, version: 3, hook: 0x140A, time: 0, counters: &[] }
            .encode(&[0; 64], &mut sound)
            .unwrap();
        let [forged, sound] = [forged, sound].map(|bytes| {
            let record = Record::parse(&bytes, 0).unwrap();
            assert_eq!((record.provider(), record.descriptor().opcode), (class::IMAGE, LOAD));
            Images::is_informative(&record)
        });
        assert_eq!((forged, sound), (false, true));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut images = Images { count: MAX_IMAGES, ..Images::default() };
        images.note(&told(7, 0x1000, 0x100, "a"), 0);
        assert_eq!(images.locate(7, 0x1000, 1), None);
    }
}
