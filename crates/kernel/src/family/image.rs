//! Images: load, unload, rundown, and their ids.
//!
//! ```text
//!   executable mapping ──▶ program: address of the file's first byte, size, build id
//!                          ──▶ table ─ new ──▶ 0x030A load
//!   fork               ──▶ the images of the parent, loaded in the child
//!   exec, last exit    ──▶ 0x1402 unload of all images of the process
//!   rundown            ──▶ kernel: 0x1421 base, then 0x1403/0x1404 of process 0;
//!                          then those of each process, from /proc/PID/maps
//! ```
//!
//! 1. Several mappings of one file are one image, which is loaded with its first executable
//!    mapping. Its size spans all segments that come from the file.
//! 2. The ids of an image precede its event, with the same time and on the same processor:
//!    `ImageID/Info`, then `ImageID/DbgID_RSDS` with the build id or, if there is no build id,
//!    `ImageID/None`. On Windows, a merge puts them there, so a one-pass reader knows the id when
//!    the image event comes.
//! 3. The GUID of `DbgID_RSDS` is the first 16 bytes of the build id unchanged, the age the next
//!    four: none of the usual twenty bytes is lost.
//! 4. Link times, checksums and code signatures do not exist on Linux: these fields are 0.
//! 5. Programs choose how much they map, and a fork repeats all of it. The bytes written for
//!    forks and unloads between two polls, and in a rundown, are bounded; events beyond the bound
//!    are counted as lost.
//! 6. Linux does not report that code was unmapped: an unload is written when other code is mapped
//!    there, or when the process ends or calls exec.

mod kernel;
mod program;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::linux::image::ImageLayout;
use traceweir_format::put_kernel_event;
use traceweir_format::spec::event::class;

use self::kernel::{KERNEL_NAME, KernelImages};
use self::program::{BuildId, FileIdentity, FileMapping, ProgramFile, Programs};
use self::table::{ImageTable, LoadedImage};
use super::{Context, EventFamily, Rundown};
use crate::clock::now_ns;
use crate::groups::Group;
use crate::maps::{self, VDSO};
use crate::out::{Out, writer_ids};
use crate::proc;
use crate::record::{MappingIdentity, Mmap, Sideband, SidebandRecord};
use crate::tasks::{TaskIds, Tasks};

/// The image family: images of all processes and of the kernel.
#[derive(Debug, Default)]
pub(crate) struct ImageFamily {
    table: ImageTable,
    programs: Programs,
    kernel: KernelImages,
    /// The build id of the vDSO in 64-bit processes, once it has been read.
    vdso: Option<Option<BuildId>>,
    /// Bytes that `write_all` may still write until the next poll or, in a rundown, for a process
    /// or the kernel.
    bytes_left: usize,
}

/// The kind of an image event, with its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageEvent {
    Load = hook::IMAGE_LOAD as isize,
    Unload = hook::IMAGE_UNLOAD as isize,
    RundownStart = hook::IMAGE_DC_START as isize,
    RundownEnd = hook::IMAGE_DC_END as isize,
}

const IMAGE_LAYOUT: PayloadLayout = PayloadLayout::shared(
    &[hook::IMAGE_LOAD, hook::IMAGE_UNLOAD, hook::IMAGE_DC_START, hook::IMAGE_DC_END],
    3,
);
const KERNEL_BASE_LAYOUT: PayloadLayout = PayloadLayout::new(hook::KERNEL_BASE, 2);
// Opcodes and version of `ImageID` events.
const ID_INFO: u8 = 0;
const ID_NONE: u8 = 32;
const ID_RSDS: u8 = 36;
const ID_VERSION: u8 = 2;
const ID_INFO_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_INFO, ID_VERSION);
const ID_NONE_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_NONE, ID_VERSION);
const ID_RSDS_LAYOUT: PayloadLayout = PayloadLayout::for_class(class::IMAGE_ID, ID_RSDS, ID_VERSION);
/// The most bytes written between two polls for images that a fork loads, or that are unloaded.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// The most bytes written in a rundown.
const MAX_RUNDOWN_BYTES: usize = 256 << 20;
const MAX_RUNDOWN_BYTES_PER_PROCESS: usize = 2 << 20;
/// The most files that are opened between two polls.
const MAX_FILES_PER_POLL: usize = 4096;
/// The most files that are opened in a rundown.
const MAX_RUNDOWN_FILES: usize = 1 << 16;
const MAX_RUNDOWN_FILES_PER_PROCESS: usize = 1024;
/// `ImageID/Info`, then `ImageID/DbgID_RSDS` or `ImageID/None`, then the image event.
const EVENTS_PER_IMAGE: u64 = 3;
/// Bytes of the events of one image without names. The name is stored twice in UTF-16 and once in
/// UTF-8.
const IMAGE_EVENT_BYTES: usize = 288;
/// The thread id in the headers of the `ImageID` events of a rundown.
const NO_THREAD: u32 = u32::MAX;

impl ImageFamily {
    /// Reserves the bytes for the events of an image. Returns false if too few are left.
    fn reserve_bytes(&mut self, image: &LoadedImage) -> bool {
        let cost = image.name.len().saturating_mul(5).saturating_add(IMAGE_EVENT_BYTES);
        let left = self.bytes_left.checked_sub(cost);
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }

    /// Reads the images of a process from `/proc` into the table, and returns all of them, even
    /// those that do not fit into the table.
    fn read_process(&mut self, pid: u32) -> Vec<LoadedImage> {
        let (since, threads) = (now_ns(), maps::count_threads(pid));
        let mut images = Vec::new();
        for mapping in maps::read_code_mappings(pid) {
            let is_file = mapping.inode != 0 && maps::is_file_path(&mapping.name);
            let identity = is_file.then_some(FileIdentity::Inode(mapping.inode));
            let range = mapping.start..mapping.end;
            let image = self.build_image(pid, range, mapping.offset, &mapping.name, identity);
            table::merge_image(&mut images, &image, &mut Vec::new());
        }
        // A process that has just ended has no mappings left: its images stay in the table until
        // its exit record comes.
        if !images.is_empty() || !self.table.has_images(pid) {
            self.table.insert_process(pid, threads, since, images.clone());
        }
        images
    }

    /// Builds the image that an executable mapping belongs to.
    fn build_image(
        &mut self,
        pid: u32,
        range: Range<u64>,
        offset: u64,
        name: &str,
        identity: Option<FileIdentity>,
    ) -> LoadedImage {
        let Range { start, end } = range;
        let length = end.saturating_sub(start);
        let (layout, build_id) = match identity {
            Some(identity) => {
                let program =
                    self.programs.find_program(&FileMapping { pid, start, end, path: name, identity });
                (program.find_layout(start, length, offset), program.build_id)
            }
            None => {
                let build_id = if name == VDSO { self.vdso_build_id(start) } else { None };
                (ImageLayout { base: start, size: length, default_base: 0 }, build_id)
            }
        };
        let ImageLayout { base, size, default_base } = layout;
        LoadedImage { base, size, default_base, code: start..end, name: name.into(), build_id }
    }

    /// Returns the build id of the vDSO mapped at `start`. All 64-bit processes have the same vDSO
    /// as this one.
    fn vdso_build_id(&mut self, start: u64) -> Option<BuildId> {
        let build_id = *self.vdso.get_or_insert_with(read_vdso_build_id);
        // A lower address may be that of the vDSO of a 32-bit process.
        build_id.filter(|_| start > u64::from(u32::MAX))
    }

    /// Adds a mapping to the table. Returns the image if it is new; `unloaded` receives the images
    /// that the mapping replaced.
    fn add_mapping(&mut self, mmap: &Mmap<'_>, unloaded: &mut Vec<LoadedImage>) -> Option<LoadedImage> {
        let name = maps::image_name(mmap.name);
        let identity = match mmap.identity {
            MappingIdentity::BuildId(id) => BuildId::new(id).map(FileIdentity::BuildId),
            MappingIdentity::Inode(inode) => (inode != 0).then_some(FileIdentity::Inode(inode)),
        };
        let identity = identity.filter(|_| maps::is_file_path(&name));
        let range = mmap.start..mmap.start.checked_add(mmap.length)?;
        let image = self.build_image(mmap.pid, range, mmap.offset, &name, identity);
        self.table.add_mapping(mmap.pid, &image, unloaded).then_some(image)
    }
}

/// Reads the build id of this process's vDSO.
fn read_vdso_build_id() -> Option<BuildId> {
    use std::os::unix::fs::FileExt;
    const MAX_VDSO_BYTES: u64 = 1 << 20;
    let mut mappings = maps::read_code_mappings(std::process::id()).into_iter();
    let vdso = mappings.find(|mapping| mapping.name == VDSO)?;
    let length = vdso.end.checked_sub(vdso.start).filter(|length| *length <= MAX_VDSO_BYTES)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, vdso.start).ok()?;
    ProgramFile::read(&*bytes).build_id
}

impl EventFamily for ImageFamily {
    /// Handles an executable mapping, a new thread, and a fork, which copies the mappings of the
    /// parent.
    fn on_sideband(&mut self, record: &SidebandRecord<'_>, context: &mut Context, out: &mut Out<'_>) {
        if !self.update_tracking(context) {
            return;
        }
        // A record that is older than the last reading of /proc is not new: the table already
        // contains its images.
        let is_new = |table: &mut ImageTable, pid| {
            table.process_mut(pid).is_none_or(|process| process.since <= record.time)
        };
        match &record.body {
            Sideband::Mmap(mmap) if mmap.protection & libc::PROT_EXEC.cast_unsigned() != 0 => {
                if !is_new(&mut self.table, mmap.pid) {
                    return;
                }
                let (mut unloaded, ids) = (Vec::new(), TaskIds { pid: mmap.pid, tid: mmap.tid });
                let loaded = self.add_mapping(mmap, &mut unloaded);
                self.write_all(ImageEvent::Unload, ids, &unloaded, context, out);
                if let Some(image) = loaded.filter(|_| context.groups.has(Group::IMAGE_LOAD)) {
                    write_image(ImageEvent::Load, ids, &image, out);
                }
            }
            Sideband::Fork { pid, ppid, .. } if pid == ppid => {
                let process = self.table.process_mut(*pid);
                if let Some(process) = process.filter(|process| process.since <= record.time) {
                    process.threads = process.threads.saturating_add(1);
                }
            }
            Sideband::Fork { pid, ppid, tid, .. } if is_new(&mut self.table, *pid) => {
                let ids = TaskIds { pid: *pid, tid: *tid };
                let (unloaded, inherited) = self.table.fork_process(*ppid, *pid, record.time);
                self.write_all(ImageEvent::Unload, ids, &unloaded, context, out);
                self.write_all(ImageEvent::Load, ids, &inherited, context, out);
            }
            _ => {}
        }
    }

    /// Writes the rundown of all images: the kernel's first, then those of each process.
    fn run_down(&mut self, when: Rundown, context: &mut Context, out: &mut Out<'_>) {
        if !context.groups.has(Group::IMAGE_LOAD) {
            return;
        }
        let event = if when == Rundown::Start { ImageEvent::RundownStart } else { ImageEvent::RundownEnd };
        let images = self.kernel.read_images(Path::new("/"));
        if let Some(kernel) = images.first().filter(|image| &*image.name == KERNEL_NAME) {
            let mut payload = out.new_payload();
            put_kernel_event!(&mut payload, KERNEL_BASE_LAYOUT, { ImageBase: kernel.base });
            out.write_perfinfo(hook::KERNEL_BASE, KERNEL_BASE_LAYOUT.version(), payload);
        }
        let mut rundown_bytes_left = MAX_RUNDOWN_BYTES;
        self.bytes_left = rundown_bytes_left;
        self.write_all(event, TaskIds { pid: 0, tid: NO_THREAD }, &images, context, out);
        let mut files_left = MAX_RUNDOWN_FILES;
        for pid in list_processes(&context.tasks).into_iter().filter(|pid| context.is_process_in_scope(*pid))
        {
            self.programs.allow_reads(MAX_RUNDOWN_FILES_PER_PROCESS.min(files_left));
            let images = self.read_process(pid);
            files_left = files_left.saturating_sub(images.len());
            let allowed = MAX_RUNDOWN_BYTES_PER_PROCESS.min(rundown_bytes_left);
            self.bytes_left = allowed;
            self.write_all(event, TaskIds { pid, tid: NO_THREAD }, &images, context, out);
            rundown_bytes_left = rundown_bytes_left.saturating_sub(allowed.saturating_sub(self.bytes_left));
        }
        self.begin_poll(context);
    }

    /// Renews the bounds on bytes written and files opened.
    fn begin_poll(&mut self, _: &Context) {
        self.bytes_left = MAX_EVENT_BYTES;
        self.programs.allow_reads(MAX_FILES_PER_POLL);
    }
}

impl ImageFamily {
    /// Returns whether images are tracked; if not, empties the table.
    fn update_tracking(&mut self, context: &Context) -> bool {
        let is_tracking = context.groups.has(Group::IMAGE_LOAD);
        if !is_tracking && !self.table.is_empty() {
            self.table = ImageTable::default();
        }
        is_tracking
    }

    /// Finds the kernel's images before the capture begins, because that takes long.
    pub(crate) fn prepare_kernel_images(&mut self, context: &Context) {
        if context.groups.has(Group::IMAGE_LOAD) {
            self.kernel.read_images(Path::new("/"));
        }
    }

    /// Unloads the images of a program that ends: its last thread exits, or it calls exec. Called
    /// before any family handles the record, so that the unloads precede the end of the process.
    pub(crate) fn unload_ended_program(
        &mut self,
        record: &SidebandRecord<'_>,
        context: &Context,
        out: &mut Out<'_>,
    ) {
        if !self.update_tracking(context) {
            return;
        }
        let (Sideband::Exit { pid, tid, .. } | Sideband::Comm { pid, tid, is_exec: true, .. }) = record.body
        else {
            return;
        };
        let process = self.table.process_mut(pid);
        let Some(process) = process.filter(|process| process.since <= record.time) else { return };
        let unloaded = if matches!(record.body, Sideband::Exit { .. }) {
            process.threads = process.threads.saturating_sub(1);
            if process.threads > 0 {
                return;
            }
            self.table.remove_process(pid)
        } else {
            process.threads = 1;
            self.table.take_images(pid)
        };
        self.write_all(ImageEvent::Unload, TaskIds { pid, tid }, &unloaded, context, out);
    }

    /// Writes events for images if their group is enabled. Counts as lost the events beyond the
    /// bound, and the events of images that did not fit into the table.
    fn write_all(
        &mut self,
        event: ImageEvent,
        ids: TaskIds,
        images: &[LoadedImage],
        context: &Context,
        out: &mut Out<'_>,
    ) {
        if !context.groups.has(Group::IMAGE_LOAD) {
            return;
        }
        let mut lost_images = self.table.take_lost();
        for image in images {
            if self.reserve_bytes(image) {
                write_image(event, ids, image, out);
            } else {
                lost_images = lost_images.saturating_add(1);
            }
        }
        let lost_events = lost_images.saturating_mul(EVENTS_PER_IMAGE);
        *out.lost_records = out.lost_records.saturating_add(lost_events);
    }
}

/// Lists the processes in the table of tasks or, if it is empty, those in `/proc`.
fn list_processes(tasks: &Tasks) -> Vec<u32> {
    let tracked: Vec<u32> = tasks.process_ids().collect();
    if tracked.is_empty() { proc::list_processes().collect() } else { tracked }
}

/// Writes the ids of an image and then its event.
fn write_image(event: ImageEvent, ids: TaskIds, image: &LoadedImage, out: &mut Out<'_>) {
    write_ids(ids, image, out);
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        IMAGE_LAYOUT,
        {
            ImageBase: image.base,
            ImageSize: image.size,
            ProcessId: ids.pid,
            DefaultBase: image.default_base,
        },
        { FileName: &*image.name }
    );
    let (hook, version) = (event as u16, IMAGE_LAYOUT.version());
    let is_rundown = matches!(event, ImageEvent::RundownStart | ImageEvent::RundownEnd);
    match (is_rundown, ids.pid) {
        (false, _) => out.write_system(hook, version, ids, payload),
        // In a rundown, the events of the kernel's images name the process that writes them, which
        // is this one. The headers of the other events name no process.
        (true, 0) => out.write_system(hook, version, writer_ids(), payload),
        (true, _) => out.write_perfinfo(hook, version, payload),
    }
}

fn write_ids(ids: TaskIds, image: &LoadedImage, out: &mut Out<'_>) {
    let file = image.name.rsplit('/').next().unwrap_or_default();
    let mut payload = out.new_payload();
    put_kernel_event!(
        &mut payload,
        ID_INFO_LAYOUT,
        { ImageBase: image.base, ImageSize: image.size, ProcessId: ids.pid },
        { OriginalFileName: file }
    );
    out.write_classic(class::IMAGE_ID, ID_INFO, ID_VERSION.into(), ids, payload);
    let mut payload = out.new_payload();
    let opcode = match &image.build_id {
        Some(id) => {
            let [signature @ .., a, b, c, d] = *id.padded_bytes();
            put_kernel_event!(
                &mut payload,
                ID_RSDS_LAYOUT,
                { ImageBase: image.base, ProcessId: ids.pid, GuidSig: signature, Age: [a, b, c, d] },
                { PdbFileName: &*image.name }
            );
            ID_RSDS
        }
        None => {
            put_kernel_event!(&mut payload, ID_NONE_LAYOUT, { ImageBase: image.base, ProcessId: ids.pid });
            ID_NONE
        }
    };
    out.write_classic(class::IMAGE_ID, opcode, ID_VERSION.into(), ids, payload);
}
