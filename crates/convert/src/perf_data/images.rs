//! Images: executable mappings of processes, the kernel and its modules, with their build ids.
//!
//! ```text
//!   MMAP, MMAP2 ──▶ ImageID/Info, ImageID/DbgID_RSDS with the build id (or ImageID/None),
//!                   then 0x030A load or, before the first time, 0x1403 rundown
//!   kernel      ──▶ 0x1421 base, and the rundown of process 0
//! ```
//!
//! 1. The base of an image is the address of the first byte of its file. If the file of that name
//!    here has the build id of the recording, its segments determine the base; else the mapping does.
//!    Without a build id, no file is opened. A recording chooses the names, so a file is opened as
//!    a program that a trace names: only a regular file, without waiting, and only its headers and
//!    notes are read. Nothing of it but the base and the size of the image reaches the output.
//! 2. The build id comes from the mapping or, by the name of the file, from the list of build ids.
//! 3. Several mappings of one file at one base are one image.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;

use traceweir::consumer::open_program;
use traceweir_format::etl::WriteAt;
use traceweir_format::header::NO_ID;
use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::linux::image::ImageLayout;
use traceweir_format::put_kernel_event;
use traceweir_format::spec::event::class;

use super::elf::Program;
use super::features::{BuildId, pad_build_id};
use super::output::{Moment, TaskIds, TraceOutput};
use super::record::Mapping;

const IMAGE_LAYOUT: PayloadLayout = PayloadLayout::shared(&[hook::IMAGE_LOAD, hook::IMAGE_DC_START], 3);
const KERNEL_BASE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::KERNEL_BASE, 2);
// Opcodes and version of `ImageID` events.
const ID_INFO: u8 = 0;
const ID_NONE: u8 = 32;
const ID_RSDS: u8 = 36;
const ID_VERSION: u8 = 2;
const ID_INFO_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_INFO, ID_VERSION);
const ID_NONE_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_NONE, ID_VERSION);
const ID_RSDS_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_RSDS, ID_VERSION);

/// The image name of the kernel without its modules. perf appends the symbol that begins the code.
const KERNEL_NAME: &str = "[kernel.kallsyms]";
/// The prefix of the names of a guest's kernel, whose addresses mean nothing here.
const GUEST_PREFIX: &str = "[guest.";
const VSYSCALL: &str = "[vsyscall]";
const ANONYMOUS: &str = "//anon";
/// The longest name in bytes. A record with it fits the trace.
const MAX_NAME_BYTES: usize = 4096;
/// The most images that are remembered.
const MAX_IMAGES: usize = 1 << 19;
/// The most files that are read, and the most bytes of their names.
const MAX_FILES: usize = 1 << 14;
const MAX_FILE_NAME_BYTES: usize = 16 << 20;

/// The identity of a file: its name and build id.
type FileKey = (Box<str>, BuildId);

/// Writes the images of a recording.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// Build ids by the name of the file.
    build_ids: HashMap<Box<[u8]>, BuildId>,
    /// Processes and bases of the images that were written.
    written: BTreeSet<(u32, u64)>,
    files: HashMap<FileKey, Option<Rc<Program>>>,
    /// Bytes of the names in `files`.
    file_name_bytes: usize,
    payload: Vec<u8>,
}

/// An image to be written.
struct Image<'n> {
    layout: ImageLayout,
    name: &'n str,
    build_id: Option<BuildId>,
}

impl Images {
    /// Creates the images of a recording, with the build ids of its files by name.
    pub(super) fn new(build_ids: HashMap<Box<[u8]>, BuildId>) -> Self {
        Self { build_ids, ..Self::default() }
    }

    /// Forgets the images of a process that has ended or executes another program.
    pub(super) fn forget_process(&mut self, pid: u32) {
        let images: Vec<(u32, u64)> = self.written.range((pid, 0)..=(pid, u64::MAX)).copied().collect();
        for image in images {
            self.written.remove(&image);
        }
    }

    /// Writes the image of a mapping, unless it has been written. `is_rundown` means that the
    /// mapping existed before the recording.
    pub(super) fn on_mapping<W: WriteAt>(
        &mut self,
        mapping: &Mapping<'_>,
        is_rundown: bool,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        let name = mapping.name.get(..MAX_NAME_BYTES).unwrap_or(mapping.name);
        let name = String::from_utf8_lossy(name);
        let is_kernel = mapping.is_kernel || mapping.pid == NO_ID;
        if mapping.length == 0 || &*name == VSYSCALL || name.starts_with(GUEST_PREFIX) {
            return Ok(());
        }
        let image =
            if is_kernel { self.find_kernel_image(mapping, &name) } else { self.find_image(mapping, &name) };
        let (pid, tid) = if is_kernel { (0, NO_ID) } else { (mapping.pid, mapping.tid) };
        if self.written.len() >= MAX_IMAGES {
            self.written.clear();
        }
        if image.layout.size == 0 || !self.written.insert((pid, image.layout.base)) {
            return Ok(());
        }
        if image.name == KERNEL_NAME {
            self.payload.clear();
            put_kernel_event!(&mut self.payload, KERNEL_BASE_LAYOUT, { ImageBase: image.layout.base });
            let event = (hook::KERNEL_BASE, KERNEL_BASE_LAYOUT.version());
            out.write_perfinfo(at, event, &self.payload)?;
        }
        self.write_image(TaskIds { pid, tid }, is_rundown || is_kernel, &image, at, out)
    }

    fn find_build_id(&self, mapping: &Mapping<'_>, name: &str) -> Option<BuildId> {
        pad_build_id(mapping.build_id).or_else(|| self.build_ids.get(name.as_bytes()).copied())
    }

    fn find_kernel_image<'n>(&self, mapping: &Mapping<'_>, name: &'n str) -> Image<'n> {
        let name = if name.starts_with(KERNEL_NAME) { KERNEL_NAME } else { name };
        let Mapping { start, length, .. } = *mapping;
        // The end of the address space is a valid end of the kernel.
        let size = length.min(u64::MAX.saturating_sub(start));
        let layout = ImageLayout { base: start, size, default_base: start };
        Image { layout, name, build_id: self.find_build_id(mapping, name) }
    }

    fn find_image<'n>(&mut self, mapping: &Mapping<'_>, name: &'n str) -> Image<'n> {
        let Mapping { start, length, offset, .. } = *mapping;
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        let is_file = name.starts_with('/') && name != ANONYMOUS;
        let build_id = self.find_build_id(mapping, name);
        // Memory without a file has an offset without meaning.
        let by_mapping = ImageLayout::from_mapping(start, length, if is_file { offset } else { 0 });
        let program = build_id.filter(|_| is_file).and_then(|build_id| self.find_program(name, build_id));
        let layout = program.and_then(|program| program.find_layout(start, offset)).unwrap_or(by_mapping);
        let name = if name.is_empty() || name.starts_with("[anon:") { ANONYMOUS } else { name };
        Image { layout, name, build_id }
    }

    /// Returns the program in the file of this name here, if it has the build id.
    fn find_program(&mut self, name: &str, build_id: BuildId) -> Option<Rc<Program>> {
        let key = (Box::from(name), build_id);
        if let Some(program) = self.files.get(&key) {
            return program.clone();
        }
        let name_bytes = self.file_name_bytes.saturating_add(name.len());
        if self.files.len() >= MAX_FILES || name_bytes > MAX_FILE_NAME_BYTES {
            return None;
        }
        self.file_name_bytes = name_bytes;
        let program = open_program(Path::new(name)).and_then(|file| Program::read(&file));
        let program = program.filter(|program| program.build_id == Some(build_id)).map(Rc::new);
        self.files.insert(key, program.clone());
        program
    }

    fn write_image<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        is_rundown: bool,
        image: &Image<'_>,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        self.write_ids(ids, image, at, out)?;
        let ImageLayout { base, size, default_base } = image.layout;
        self.payload.clear();
        put_kernel_event!(
            &mut self.payload,
            IMAGE_LAYOUT,
            { ImageBase: base, ImageSize: size, ProcessId: ids.pid, DefaultBase: default_base },
            { FileName: image.name }
        );
        let version = IMAGE_LAYOUT.version();
        if is_rundown {
            out.write_perfinfo(at, (hook::IMAGE_DC_START, version), &self.payload)?;
        } else {
            out.write_system(at, (hook::IMAGE_LOAD, version), ids, &self.payload)?;
        }
        Ok(())
    }

    /// Writes the ids of an image, which precede its event.
    fn write_ids<W: WriteAt>(
        &mut self,
        ids: TaskIds,
        image: &Image<'_>,
        at: Moment,
        out: &mut TraceOutput<W>,
    ) -> traceweir_format::Result<()> {
        let ImageLayout { base, size, .. } = image.layout;
        let file = image.name.rsplit('/').next().unwrap_or_default();
        let payload = &mut self.payload;
        payload.clear();
        put_kernel_event!(
            payload,
            ID_INFO_LAYOUT,
            { ImageBase: base, ImageSize: size, ProcessId: ids.pid },
            { OriginalFileName: file }
        );
        out.write_classic(at, class::IMAGE_ID, (ID_INFO, ID_VERSION), ids, payload)?;
        payload.clear();
        let opcode = match image.build_id {
            Some([signature @ .., a, b, c, d]) => {
                put_kernel_event!(
                    payload,
                    ID_RSDS_LAYOUT,
                    { ImageBase: base, ProcessId: ids.pid, GuidSig: signature, Age: [a, b, c, d] },
                    { PdbFileName: image.name }
                );
                ID_RSDS
            }
            None => {
                put_kernel_event!(payload, ID_NONE_LAYOUT, { ImageBase: base, ProcessId: ids.pid });
                ID_NONE
            }
        };
        out.write_classic(at, class::IMAGE_ID, (opcode, ID_VERSION), ids, payload)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ELF file with a code segment at 0x40_0000 and a build id.
    fn program_with_build_id(id: BuildId) -> Vec<u8> {
        let mut file = vec![0x7F, b'E', b'L', b'F', 2, 1];
        file.resize(0x20, 0);
        file.extend(64_u64.to_le_bytes());
        file.resize(0x36, 0);
        // Size and number of the program headers.
        file.extend([56, 0, 2, 0]);
        file.resize(64, 0);
        let header = |kind: u32, flags: u32, words: [u64; 6]| {
            let words = words.into_iter().flat_map(u64::to_le_bytes);
            kind.to_le_bytes().into_iter().chain(flags.to_le_bytes()).chain(words).collect::<Vec<u8>>()
        };
        file.extend(header(1, 1, [0, 0x40_0000, 0, 0x2000, 0x2000, 0]));
        file.extend(header(4, 0, [176, 0, 0, 36, 36, 0]));
        file.extend([4_u32, 20, 3].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(b"GNU\0");
        file.extend(id);
        file
    }

    #[test]
    fn only_a_file_with_the_build_id_of_the_recording_decides_about_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, program_with_build_id([7; 20])).unwrap();
        let name = path.to_str().unwrap();
        let mut images = Images::default();
        let mut find = |build_id: &[u8]| {
            let mapping = Mapping {
                pid: 1,
                tid: 1,
                start: 0x50_1000,
                length: 0x1000,
                offset: 0x1000,
                is_kernel: false,
                build_id,
                name: name.as_bytes(),
            };
            (images.find_image(&mapping, name).layout, images.files.len())
        };
        let by_mapping = ImageLayout::from_mapping(0x50_1000, 0x1000, 0x1000);
        assert_eq!(find(&[]), (by_mapping, 0), "without a build id, no file is opened");
        assert_eq!(find(&[8; 20]), (by_mapping, 1));
        let by_program = ImageLayout { base: 0x50_0000, size: 0x2000, default_base: 0x40_0000 };
        assert_eq!(find(&[7; 20]), (by_program, 2));
    }

    #[test]
    fn memory_of_file_names_is_bounded() {
        let mut images = Images::default();
        let name = format!("/no/such/file/{}", "x".repeat(MAX_NAME_BYTES));
        for number in 0..6000_u32 {
            let mut build_id = BuildId::default();
            build_id[..4].copy_from_slice(&number.to_le_bytes());
            images.find_program(&name, build_id);
        }
        assert!(images.file_name_bytes <= MAX_FILE_NAME_BYTES && images.files.len() < 6000);
    }
}
