//! Programs and libraries as a trace tells where they were loaded, for the addresses of call stacks.
//!
//! ```text
//!   Image/Load, DCStart, DCEnd, Unload     ImageBase, ImageSize, ProcessId, FileName
//!   ImageID/DbgID_RSDS                     ImageBase, ProcessId, signature, age, name: which file it was, in front of the event above
//!   (process, base) ──▶ the images that were there, oldest first; process 0 has those of the kernel
//! ```
//!
//! An address belongs to the image that was loaded last before its time; that it was unloaded in between is not looked at, for nothing runs there
//! then. What is kept is bounded: behind that, addresses stay addresses.
//!
//! [`Images::find`] looks closer than [`Images::locate`]: what a process had is gone when it ends, and a process begins with what its parent had.

mod lives;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::Found;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::class;

use self::lives::Lives;

/// Images of one trace that are kept.
const MAX_IMAGES: usize = 1 << 17;
/// Characters of the name of a file that are shown.
const MAX_NAME: usize = 255;
/// Bytes of a path that are kept, and of all paths of a trace.
const MAX_PATH: usize = 4096;
const MAX_TEXTS: usize = 32 << 20;
/// Processes whose parents are asked, one after the other.
const MAX_PARENTS: usize = 8;
/// Where the kernel's half of memory begins.
const KERNEL_HALF: u64 = 1 << 63;

const UNLOAD: u8 = 2;
const RUNDOWN_START: u8 = 3;
const RUNDOWN_END: u8 = 4;
const LOAD: u8 = 10;
/// The debug identity of an image.
const DEBUG_ID: u8 = 36;

/// The images of a trace.
#[derive(Default)]
pub(crate) struct Images {
    by_base: BTreeMap<(u32, u64), Vec<Image>>,
    count: usize,
    /// Identities whose image was not told yet.
    identities: BTreeMap<(u32, u64), DebugId>,
    lives: Lives,
    /// Paths, each once.
    texts: HashSet<Arc<str>>,
    text_bytes: usize,
    walker: Walker,
}

/// Which build of a file it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DebugId {
    /// Of a PDB; the first 16 bytes of the build id of an ELF file.
    pub(crate) signature: Guid,
    /// Of a PDB; the next 4 bytes of the build id.
    pub(crate) age: u32,
    /// The path of the PDB, or of the ELF file.
    pub(crate) path: Arc<str>,
}

/// An image while it was loaded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// When it was loaded; the beginning of time where it was there before the trace.
    since: i64,
    pub(crate) size: u64,
    pub(crate) path: Arc<str>,
    pub(crate) id: Option<DebugId>,
}

impl Image {
    /// The file, without its folder.
    pub(crate) fn name(&self) -> &str {
        let name = self.path.rsplit(['\\', '/']).next().unwrap_or_default();
        name.char_indices().nth(MAX_NAME).and_then(|(end, _)| name.get(..end)).unwrap_or(name)
    }
}

/// Where an address lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Located<'i> {
    pub(crate) image: &'i Image,
    /// Where the image lies.
    pub(crate) base: u64,
    /// Whose it is; 0 is the kernel.
    pub(crate) process: u32,
}

/// What an event says about an image.
#[derive(Default)]
struct Told {
    base: u64,
    size: u64,
    pid: u32,
    name: Vec<u8>,
    signature: Guid,
    age: u32,
}

impl<'p> Visitor<'p> for Told {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let number = || value.as_u64().unwrap_or(0);
        match (&*field.name, value) {
            ("ImageBase", _) => self.base = number(),
            ("ImageSize", _) => self.size = number(),
            ("ProcessId", _) => self.pid = u32::try_from(number()).unwrap_or(0),
            ("Age", _) => self.age = u32::try_from(number()).unwrap_or(0),
            ("GuidSig", Value::Guid(guid)) => self.signature = guid,
            ("FileName" | "PdbFileName", _) => text(field, &value, Style::default(), &mut self.name),
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

    /// Whether an event says which build an image is. Such events have no hook; they tell nothing about images that no event with a hook told of.
    fn is_identity(record: &Record<'_>) -> bool {
        record.provider() == class::IMAGE_ID && record.descriptor().opcode == DEBUG_ID
    }

    /// Whether an event may tell something to [`Images::observe_all`].
    pub(crate) fn may_tell(record: &Record<'_>) -> bool {
        Self::is_informative(record) || Self::is_identity(record) || Lives::is_informative(record)
    }

    /// Learns from an event about an image.
    pub(crate) fn observe(&mut self, record: &Record<'_>, found: &Found<'_, '_>) {
        let told = self.told(record, found);
        let is_load = record.descriptor().opcode == LOAD;
        self.note(&told, if is_load { record.time() } else { i64::MIN }, is_load);
    }

    /// Learns from an event about an image, its identity, or the life of a process.
    pub(crate) fn observe_all(&mut self, record: &Record<'_>, found: &Found<'_, '_>) {
        if Lives::is_informative(record) {
            return self.lives.observe(record, found, &mut self.walker);
        }
        let told = self.told(record, found);
        if Self::is_identity(record) {
            return self.identify(&told);
        }
        let is_load = record.descriptor().opcode == LOAD;
        // Who had the number before had other images.
        let there = || self.lives.end_before(told.pid, record.time()).unwrap_or(i64::MIN);
        let since = if is_load { record.time() } else { there() };
        self.note(&told, since, is_load);
    }

    fn told(&mut self, record: &Record<'_>, found: &Found<'_, '_>) -> Told {
        let mut told = Told::default();
        // A payload that ends early has told what it could.
        let _ = self.walker.walk(&found.known.schema, found.payload, record.pointer_size(), &mut told);
        told
    }

    fn identify(&mut self, told: &Told) {
        let Some(path) = self.text(&told.name) else { return };
        let id = DebugId { signature: told.signature, age: told.age, path };
        let key = (told.pid, told.base);
        if let Some(last) = self.by_base.get_mut(&key).and_then(|there| there.last_mut()) {
            last.id.get_or_insert_with(|| id.clone());
        }
        if self.identities.len() < MAX_IMAGES {
            self.identities.insert(key, id);
        }
    }

    /// Notes an image that was loaded at a time, or was there since.
    fn note(&mut self, told: &Told, since: i64, is_load: bool) {
        if told.size == 0 || self.count >= MAX_IMAGES {
            return;
        }
        let Some(path) = self.text(&told.name) else { return };
        let id = self.identities.remove(&(told.pid, told.base));
        let image = Image { since, size: told.size, path, id };
        if image.name().is_empty() {
            return;
        }
        let there = self.by_base.entry((told.pid, told.base)).or_default();
        // An end tells of an image whose beginning was told already, or came before the trace.
        let known = there.iter_mut().find(|it| it.since >= since && it.name() == image.name());
        if let Some(known) = known.filter(|_| !is_load) {
            known.id = known.id.take().or(image.id);
            return;
        }
        let at = there.partition_point(|image| image.since <= since);
        there.insert(at, image);
        self.count = self.count.saturating_add(1);
    }

    /// A text, each of which is kept once; `None` where there is no room for more.
    fn text(&mut self, bytes: &[u8]) -> Option<Arc<str>> {
        let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(MAX_PATH)).unwrap_or_default());
        if let Some(known) = self.texts.get(&*text) {
            return Some(Arc::clone(known));
        }
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        if self.text_bytes > MAX_TEXTS {
            return None;
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        Some(text)
    }

    /// The image at an address, and how far into it that is.
    pub(crate) fn locate(&self, pid: u32, address: u64, time: i64) -> Option<(&str, u64)> {
        [pid, 0].into_iter().find_map(|pid| {
            let found = self.at(pid, address, time)?;
            Some((found.image.name(), address.checked_sub(found.base)?))
        })
    }

    /// The image at an address of a process that may have ended, or have begun as a copy of another.
    pub(crate) fn find(&self, pid: u32, address: u64, time: i64) -> Option<Located<'_>> {
        /// The process that Windows gives its kernel's images to.
        const SYSTEM: u32 = 4;
        if address >= KERNEL_HALF {
            let of_kernel = [0, SYSTEM, pid].into_iter().find_map(|pid| self.at(pid, address, time))?;
            return Some(Located { process: 0, ..of_kernel });
        }
        let (mut pid, mut time) = (pid, time);
        for _ in 0..=MAX_PARENTS {
            let ended = self.lives.end_before(pid, time);
            let found = self.at(pid, address, time);
            if let Some(found) = found.filter(|it| ended.is_none_or(|end| end <= it.image.since)) {
                return Some(found);
            }
            (time, pid) = self.lives.parent(pid, time)?;
        }
        None
    }

    fn at(&self, process: u32, address: u64, time: i64) -> Option<Located<'_>> {
        let ((_, base), there) = self.by_base.range((process, 0)..=(process, address)).next_back()?;
        let image = there.iter().rev().find(|image| image.since <= time)?;
        (address.checked_sub(*base)? < image.size).then_some(Located { image, base: *base, process })
    }

    /// The first image of the kernel for which `is_it` holds, and its base.
    pub(crate) fn of_kernel(&self, is_it: impl Fn(&Image) -> bool) -> Option<(u64, &Image)> {
        let all = [0, 4].into_iter().flat_map(|pid| self.by_base.range((pid, 0)..=(pid, u64::MAX)));
        all.flat_map(|((_, base), there)| there.iter().map(|image| (*base, image)))
            .find(|(_, image)| is_it(image))
    }

    /// The user that a process ran as, where the trace tells.
    pub(crate) fn user_of(&self, pid: u32, time: i64) -> Option<u32> {
        self.lives.user(pid, time)
    }

    /// Whether the trace was made on Linux.
    pub(crate) fn are_of_linux(&self) -> bool {
        self.texts.iter().any(|path| path.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::header::classic::ClassicHeader;
    use traceweir_format::header::perfinfo::PerfInfoHeader;

    fn told(pid: u32, base: u64, size: u64, name: &str) -> Told {
        Told { pid, base, size, name: name.into(), ..Told::default() }
    }

    #[test]
    fn an_address_is_told_by_the_image_that_was_there_then() {
        let mut images = Images::default();
        images.note(&told(7, 0x1000, 0x100, "\\Device\\old.dll"), i64::MIN, false);
        images.note(&told(7, 0x1000, 0x100, "new.dll"), 50, true);
        images.note(&told(7, 0x1000, 0x100, "new.dll"), i64::MIN, false);
        images.note(&told(7, 0x2000, 0x100, "/usr/lib/late.so"), 90, true);
        images.note(&told(0, 0xFFFF_0000, 0x100, "kernel"), i64::MIN, false);
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
        images.note(&told(7, 0x1000, 0x100, "a"), 0, true);
        assert_eq!(images.locate(7, 0x1000, 1), None);
    }
}
