//! Programs and libraries of a trace, with their addresses, for call stacks.
//!
//! ```text
//!   Image/Load, DCStart, DCEnd, Unload     ImageBase, ImageSize, ProcessId, FileName
//!   ImageID/DbgID_RSDS                     ImageBase, ProcessId, signature, age, name: the build
//!                                          of the file; precedes the event above
//!   (process, base) ──▶ its images, oldest first; process 0 is the kernel
//! ```
//!
//! An address belongs to the image that was loaded last before the event. Unloading is ignored,
//! because no code runs in an unloaded image. The number of images is limited; addresses in
//! further images stay unresolved.
//!
//! [`LoadedImages::find_exact`] is more exact than [`LoadedImages::find_name`]: it knows that the
//! images of a process are gone when the process ends, and that a process begins with the images of
//! its parent. It needs [`LoadedImages::observe_all`].

mod lifetimes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook::{self, type_of};
use traceweir_format::spec::event::class;

use self::lifetimes::ProcessLifetimes;

const MAX_IMAGES: usize = 1 << 17;
/// Maximum number of characters of a file name to show.
const MAX_NAME_CHARS: usize = 255;
const MAX_PATH_BYTES: usize = 4096;
const MAX_TOTAL_PATH_BYTES: usize = 32 << 20;
/// Maximum number of ancestors of a process whose images are searched.
const MAX_ANCESTORS: usize = 8;
/// Start of the kernel half of the address space.
const KERNEL_HALF_START: u64 = 1 << 63;

const UNLOAD: u8 = type_of(hook::IMAGE_UNLOAD);
const RUNDOWN_START: u8 = type_of(hook::IMAGE_DC_START);
const RUNDOWN_END: u8 = type_of(hook::IMAGE_DC_END);
const LOAD: u8 = type_of(hook::IMAGE_LOAD);
/// The process that Windows assigns the kernel's images to.
const SYSTEM_PROCESS: u32 = 4;
/// Opcode of the debug identity of an image.
const DEBUG_ID_OPCODE: u8 = 36;

/// The programs and libraries of a trace, by process and address.
#[derive(Default)]
pub struct LoadedImages {
    by_base: BTreeMap<(u32, u64), Vec<LoadedImage>>,
    count: usize,
    /// Debug ids that the next event about their image takes over.
    debug_ids: BTreeMap<(u32, u64), DebugId>,
    lifetimes: ProcessLifetimes,
    /// The interned paths of images.
    paths: HashSet<Arc<str>>,
    path_bytes: usize,
    /// Traces that share the limits, or 0.
    traces: usize,
    walker: Walker,
}

/// The identity of the build of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DebugId {
    /// Signature of a PDB; the first 16 bytes of the build id of an ELF file.
    pub signature: Guid,
    /// Age of a PDB; the next 4 bytes of the build id.
    pub age: u32,
    /// Path of the PDB, or of the ELF file.
    pub path: Arc<str>,
}

impl DebugId {
    /// Number of bytes of a build id in a trace.
    const ID_BYTES: usize = 20;

    /// Returns whether a build id matches. A trace truncates a build id or pads it with zeros.
    pub fn matches_build_id(&self, build_id: &[u8]) -> bool {
        let mut padded = [0; Self::ID_BYTES];
        padded.iter_mut().zip(build_id).for_each(|(to, from)| *to = *from);
        !build_id.is_empty() && padded == self.to_bytes()
    }

    /// Returns the possible build ids, of 20, 16 and 8 bytes. Several are possible, because zeros
    /// at the end may be padding.
    pub fn possible_build_ids(&self) -> Vec<Vec<u8>> {
        let bytes = self.to_bytes();
        let can_have_length = |length: &usize| bytes.iter().skip(*length).all(|byte| *byte == 0);
        [Self::ID_BYTES, 16, 8]
            .into_iter()
            .filter(can_have_length)
            .map(|length| bytes.iter().take(length).copied().collect())
            .collect()
    }

    fn to_bytes(&self) -> [u8; Self::ID_BYTES] {
        let mut bytes = [0; Self::ID_BYTES];
        let source = self.signature.to_bytes().into_iter().chain(self.age.to_le_bytes());
        bytes.iter_mut().zip(source).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// A program or library in the memory of a process.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// When the image was loaded. If that is unknown: when the previous process of the pid ended,
    /// or `i64::MIN`.
    loaded_at: i64,
    /// Size in memory, in bytes.
    pub size: u64,
    /// Path of the file in the trace.
    pub path: Arc<str>,
    /// The build of the file, if the trace contains it.
    pub id: Option<DebugId>,
}

impl LoadedImage {
    /// Returns the file name, without the folder.
    pub fn name(&self) -> &str {
        let name = self.path.rsplit(['\\', '/']).next().unwrap_or_default();
        name.char_indices().nth(MAX_NAME_CHARS).and_then(|(end, _)| name.get(..end)).unwrap_or(name)
    }
}

/// The image at an address.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageLocation<'i> {
    /// The image.
    pub image: &'i LoadedImage,
    /// The address at which the image was loaded.
    pub base: u64,
    /// The process; 0 is the kernel.
    pub process: u32,
}

/// Fields of an event about an image.
#[derive(Default)]
struct ImageFields {
    base: u64,
    size: u64,
    pid: u32,
    name: Vec<u8>,
    signature: Guid,
    age: u32,
}

impl<'p> Visitor<'p> for ImageFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let to_number = || value.as_u64().unwrap_or(0);
        match (&*field.name, value) {
            ("ImageBase", _) => self.base = to_number(),
            ("ImageSize", _) => self.size = to_number(),
            ("ProcessId", _) => self.pid = u32::try_from(to_number()).unwrap_or(0),
            ("Age", _) => self.age = u32::try_from(to_number()).unwrap_or(0),
            ("GuidSig", Value::Guid(guid)) => self.signature = guid,
            ("FileName" | "PdbFileName", _) => push_text(field, &value, Style::default(), &mut self.name),
            _ => {}
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

impl LoadedImages {
    /// Divides the limits among traces that are read together.
    pub fn share_limits(&mut self, traces: usize) {
        (self.traces, self.lifetimes.traces) = (traces, traces);
    }

    /// Returns the share of this trace of a limit.
    fn share_of(&self, limit: usize) -> usize {
        limit.checked_div(self.traces).unwrap_or(limit)
    }

    /// Returns whether [`LoadedImages::observe`] can learn from an event. The event must have a
    /// hook. Events that a process writes have no hook, and are not trusted about other processes.
    pub fn is_informative(record: &Record<'_>) -> bool {
        let opcode = record.descriptor().opcode;
        record.hook().is_some()
            && record.provider() == class::IMAGE
            && matches!(opcode, UNLOAD | RUNDOWN_START | RUNDOWN_END | LOAD)
    }

    /// Returns whether an event contains the build of an image. Such events have no hook; they
    /// apply only to images that an event with a hook reported.
    fn is_debug_id_event(record: &Record<'_>) -> bool {
        record.provider() == class::IMAGE_ID && record.descriptor().opcode == DEBUG_ID_OPCODE
    }

    /// Returns whether [`LoadedImages::observe_all`] can learn from an event.
    pub fn is_relevant(record: &Record<'_>) -> bool {
        Self::is_informative(record)
            || Self::is_debug_id_event(record)
            || ProcessLifetimes::is_informative(record)
    }

    /// Learns from an event about an image.
    pub fn observe(&mut self, record: &Record<'_>, schema_match: &SchemaMatch<'_, '_>) {
        let fields = self.read_fields(record, schema_match);
        let is_load = record.descriptor().opcode == LOAD;
        self.add_image(&fields, if is_load { record.time() } else { i64::MIN }, is_load);
    }

    /// Learns from an event about an image, its identity, or the start or end of a process.
    pub fn observe_all(&mut self, record: &Record<'_>, schema_match: &SchemaMatch<'_, '_>) {
        if ProcessLifetimes::is_informative(record) {
            return self.lifetimes.observe(record, schema_match, &mut self.walker);
        }
        let fields = self.read_fields(record, schema_match);
        if Self::is_debug_id_event(record) {
            return self.add_debug_id(&fields);
        }
        let is_load = record.descriptor().opcode == LOAD;
        // An earlier process with this pid had other images.
        let last_end = || self.lifetimes.end_before(fields.pid, record.time()).unwrap_or(i64::MIN);
        let since = if is_load { record.time() } else { last_end() };
        self.add_image(&fields, since, is_load);
    }

    fn read_fields(&mut self, record: &Record<'_>, schema_match: &SchemaMatch<'_, '_>) -> ImageFields {
        let mut fields = ImageFields::default();
        // If the payload ends early, the fields before its end have been read.
        let _ = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            record.pointer_size(),
            &mut fields,
        );
        fields
    }

    fn add_debug_id(&mut self, fields: &ImageFields) {
        let Some(path) = self.intern_path(&fields.name) else { return };
        let id = DebugId { signature: fields.signature, age: fields.age, path };
        let key = (fields.pid, fields.base);
        if let Some(last) = self.by_base.get_mut(&key).and_then(|images| images.last_mut()) {
            last.id.get_or_insert_with(|| id.clone());
        }
        if self.debug_ids.len() < self.share_of(MAX_IMAGES) {
            self.debug_ids.insert(key, id);
        }
    }

    /// Adds an image. If `is_load`, it was loaded at `since`. Otherwise an event reported it later,
    /// and it may have existed since then.
    fn add_image(&mut self, fields: &ImageFields, since: i64, is_load: bool) {
        if fields.size == 0 || self.count >= self.share_of(MAX_IMAGES) {
            return;
        }
        let Some(path) = self.intern_path(&fields.name) else { return };
        let id = self.debug_ids.remove(&(fields.pid, fields.base));
        let image = LoadedImage { loaded_at: since, size: fields.size, path, id };
        if image.name().is_empty() {
            return;
        }
        let images = self.by_base.entry((fields.pid, fields.base)).or_default();
        // An unload or rundown event is about an image that is already known, or was loaded before
        // the trace.
        let known_image =
            images.iter_mut().find(|known| known.loaded_at >= since && known.name() == image.name());
        if let Some(known) = known_image.filter(|_| !is_load) {
            known.id = known.id.take().or(image.id);
            return;
        }
        let index = images.partition_point(|image| image.loaded_at <= since);
        images.insert(index, image);
        self.count = self.count.saturating_add(1);
    }

    /// Interns a path; `None` if the limit is reached.
    fn intern_path(&mut self, bytes: &[u8]) -> Option<Arc<str>> {
        let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(MAX_PATH_BYTES)).unwrap_or_default());
        if let Some(path) = self.paths.get(&*text) {
            return Some(Arc::clone(path));
        }
        self.path_bytes = self.path_bytes.saturating_add(text.len());
        if self.path_bytes > self.share_of(MAX_TOTAL_PATH_BYTES) {
            return None;
        }
        let text: Arc<str> = text.into();
        self.paths.insert(Arc::clone(&text));
        Some(text)
    }

    /// Returns the name of the image at an address of a process or the kernel, and the offset in
    /// the image.
    pub fn find_name(&self, pid: u32, address: u64, time: i64) -> Option<(&str, u64)> {
        [pid, 0].into_iter().find_map(|pid| {
            let location = self.image_at(pid, address, time)?;
            Some((location.image.name(), address.checked_sub(location.base)?))
        })
    }

    /// Finds the image at an address, also for a reused pid and for a process that began as a copy
    /// of its parent.
    pub fn find_exact(&self, pid: u32, address: u64, time: i64) -> Option<ImageLocation<'_>> {
        if address >= KERNEL_HALF_START {
            let kernel_image =
                [0, SYSTEM_PROCESS, pid].into_iter().find_map(|pid| self.image_at(pid, address, time))?;
            return Some(ImageLocation { process: 0, ..kernel_image });
        }
        let (mut pid, mut time) = (pid, time);
        for _ in 0..=MAX_ANCESTORS {
            let end = self.lifetimes.end_before(pid, time);
            let location = self.image_at(pid, address, time);
            let is_current =
                |location: &ImageLocation<'_>| end.is_none_or(|end| end <= location.image.loaded_at);
            if let Some(location) = location.filter(is_current) {
                return Some(location);
            }
            (time, pid) = self.lifetimes.find_parent(pid, time)?;
        }
        None
    }

    fn image_at(&self, process: u32, address: u64, time: i64) -> Option<ImageLocation<'_>> {
        let ((_, base), images) = self.by_base.range((process, 0)..=(process, address)).next_back()?;
        let image = images.iter().rev().find(|image| image.loaded_at <= time)?;
        (address.checked_sub(*base)? < image.size).then_some(ImageLocation { image, base: *base, process })
    }

    /// Returns the first image of the kernel for which `is_match` holds, and its base.
    pub fn find_kernel_image(&self, is_match: impl Fn(&LoadedImage) -> bool) -> Option<(u64, &LoadedImage)> {
        let kernel_bases =
            [0, SYSTEM_PROCESS].into_iter().flat_map(|pid| self.by_base.range((pid, 0)..=(pid, u64::MAX)));
        kernel_bases
            .flat_map(|((_, base), images)| images.iter().map(|image| (*base, image)))
            .find(|(_, image)| is_match(image))
    }

    /// Returns when a pid was last released before a time.
    pub fn end_before(&self, pid: u32, time: i64) -> Option<i64> {
        self.lifetimes.end_before(pid, time)
    }

    /// Returns the user id of a process at a time.
    pub fn user_of(&self, pid: u32, time: i64) -> Option<u32> {
        self.lifetimes.find_user(pid, time)
    }

    /// Returns whether any image has been observed.
    pub fn has_images(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns whether the trace was recorded on Linux.
    pub fn is_linux(&self) -> bool {
        self.paths.iter().any(|path| path.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::header::classic::ClassicHeader;
    use traceweir_format::header::perfinfo::PerfInfoHeader;

    fn image_fields(pid: u32, base: u64, size: u64, name: &str) -> ImageFields {
        ImageFields { pid, base, size, name: name.into(), ..ImageFields::default() }
    }

    #[test]
    fn address_belongs_to_the_image_of_its_time() {
        let mut images = LoadedImages::default();
        images.add_image(&image_fields(7, 0x1000, 0x100, "\\Device\\old.dll"), i64::MIN, false);
        images.add_image(&image_fields(7, 0x1000, 0x100, "new.dll"), 50, true);
        images.add_image(&image_fields(7, 0x1000, 0x100, "new.dll"), i64::MIN, false);
        images.add_image(&image_fields(7, 0x2000, 0x100, "/usr/lib/late.so"), 90, true);
        images.add_image(&image_fields(0, 0xFFFF_0000, 0x100, "kernel"), i64::MIN, false);
        assert_eq!(images.find_name(7, 0x1010, 10), Some(("old.dll", 0x10)));
        assert_eq!(images.find_name(7, 0x1010, 60), Some(("new.dll", 0x10)));
        assert_eq!(images.find_name(7, 0x1100, 60), None, "the address is after the end of the image");
        assert_eq!(images.find_name(7, 0x2000, 60), None, "the image is loaded later");
        assert_eq!(images.find_name(8, 0x1010, 60), None, "the image belongs to another process");
        assert_eq!(images.find_name(8, 0xFFFF_0001, 60), Some(("kernel", 1)));
        assert_eq!(images.find_name(7, 0xFFF, 60), None);
    }

    #[test]
    fn image_events_of_user_processes_are_ignored() {
        let (mut user_event, mut kernel_event) = (Vec::new(), Vec::new());
        ClassicHeader { opcode: LOAD, class: class::IMAGE, ..ClassicHeader::default() }
            .encode(&[0; 64], &mut user_event)
            .unwrap();
        PerfInfoHeader { pointer_size: 8, version: 3, hook: hook::IMAGE_LOAD, time: 0, counters: &[] }
            .encode(&[0; 64], &mut kernel_event)
            .unwrap();
        let [user_event, kernel_event] = [user_event, kernel_event].map(|bytes| {
            let record = Record::parse(&bytes, 0).unwrap();
            assert_eq!((record.provider(), record.descriptor().opcode), (class::IMAGE, LOAD));
            LoadedImages::is_informative(&record)
        });
        assert_eq!((user_event, kernel_event), (false, true));
    }

    #[test]
    fn number_of_images_is_limited() {
        let mut images = LoadedImages { count: MAX_IMAGES, ..LoadedImages::default() };
        images.add_image(&image_fields(7, 0x1000, 0x100, "a"), 0, true);
        assert_eq!(images.find_name(7, 0x1000, 1), None);
    }
}
