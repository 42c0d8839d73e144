//! Images: load, unload, rundown, and their ids.
//!
//! ```text
//!   mapping of code ──▶ program: where the file's first byte lies, how far it goes, its build id ──▶ table ─ new ──▶ 0x030A load
//!   fork            ──▶ the images of the parent, loaded in the child
//!   exec, last exit ──▶ 0x1402 unload of all that the process had
//!   rundown         ──▶ kernel: 0x1421 base, then 0x1403/0x1404 of process 0; then those of each process, by /proc/PID/maps
//! ```
//!
//! 1. Several mappings of one file are one image, loaded with the first that is code; its size is that of all segments that come from the file.
//! 2. In front of each image event stand its ids, with the same time, on the same processor: `ImageID/Info`, then `DbgID_RSDS` with the build id or `None`. That is where merging
//!    puts them on Windows, so whoever reads in one pass knows the id of an image when it comes.
//! 3. The signature is the first 16 bytes of the build id as they are, the age the next four: nothing of the usual twenty is lost.
//! 4. Times of linking, checksums and signatures do not exist: 0.
//! 5. Programs choose how much they map, and a fork repeats it all: what is told between two looks and in a rundown has bounds in bytes, the rest is counted as lost.
//! 6. That code was unmapped is not told by Linux: it is noticed where something else is mapped there, or when the process ends.

pub(crate) mod kernel;
pub(crate) mod maps;
pub(crate) mod program;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use traceweir_format::spec::event::class;
use traceweir_format::wire::Put;

use self::kernel::Kernel;
use self::maps::VDSO;
use self::program::{BuildId, Mapping, Place, Program, Programs, Which};
use self::table::{Image, Table};
use super::Rundown;
use crate::groups::Group;
use crate::now_ns;
use crate::out::Out;
use crate::proc;
use crate::record::{Context, Identity, Mmap, Other};
use crate::state::State as All;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    table: Table,
    programs: Programs,
    kernel: Kernel,
    /// Told at the last rundown.
    kernel_images: Vec<Image>,
    /// The build id of the kernel's code in 64-bit processes, once it was looked for.
    vdso: Option<Option<BuildId>>,
    /// Bytes that may be told until [`beside`] is called again.
    left: usize,
    /// Whether somebody asks for addresses, so that images are followed though nobody wants their events.
    is_asked: bool,
}

/// Which event tells of an image: its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Load = 0x030A,
    Unload = 0x1402,
    Start = 0x1403,
    End = 0x1404,
}

const KERNEL_BASE: u16 = 0x1421;
const VERSION: u8 = 3;
/// Version and opcodes of ids.
const ID_VERSION: u16 = 2;
const ID_INFO: u8 = 0;
const ID_NONE: u8 = 32;
const ID_RSDS: u8 = 36;
/// What is told at most between two looks: of images that come by a fork, or go.
const MAX_TOLD: usize = 64 << 20;
/// In a rundown: of one process, and of all.
const MAX_RUNDOWN: (usize, usize) = (2 << 20, 256 << 20);
/// Files that are looked at between two looks, in a rundown of one process, and of all.
const MAX_LOOKS: (usize, usize, usize) = (4096, 1024, 1 << 16);
/// Records about one image, and their bytes without names; each name is in there twice in 16 bits and once in 8.
const RECORDS: (u64, usize) = (3, 288);
/// Nobody's thread, in the ids of a rundown.
const NO_THREAD: u32 = u32::MAX;

impl State {
    /// The image of a process at an address; those of the kernel for its addresses. A process that was never heard of is looked at now.
    #[cfg(test)]
    pub(crate) fn find(&mut self, pid: u32, address: u64) -> Option<&Image> {
        self.is_asked = true;
        if address >> 63 != 0 {
            if self.kernel_images.is_empty() {
                self.kernel_images = self.kernel.images(Path::new("/"));
            }
            return self.kernel_images.iter().find(|it| it.base <= address && address < it.end());
        }
        if self.table.process(pid).is_none() {
            self.look_at(pid);
        }
        self.table.at(pid, address)
    }

    /// Pays for what is told of an image; whether there was enough.
    fn pay(&mut self, image: &Image) -> bool {
        let cost = image.name.len().saturating_mul(5).saturating_add(RECORDS.1);
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Learns what a process has mapped; there may be more than is remembered.
    fn look_at(&mut self, pid: u32) -> Vec<Image> {
        let (since, threads) = (now_ns(), maps::threads_of(pid));
        let mut images = Vec::new();
        for mapped in maps::code_of(pid) {
            let is_file = mapped.inode != 0 && maps::is_file(&mapped.name);
            let which = is_file.then_some(Which::Inode(mapped.inode));
            let (range, name) = ((mapped.start, mapped.end), mapped.name.as_str());
            let image = self.image(pid, range, mapped.offset, name, which);
            table::merge(&mut images, &image, &mut Vec::new());
        }
        // One that has just ended has nothing mapped any more: what it had is told when the record of its end comes.
        if !images.is_empty() || !self.table.has_images(pid) {
            self.table.begin(pid, threads, since, images.clone());
        }
        images
    }

    fn image(
        &mut self,
        pid: u32,
        (start, end): (u64, u64),
        offset: u64,
        name: &str,
        which: Option<Which>,
    ) -> Image {
        let length = end.saturating_sub(start);
        let (place, build_id) = match which {
            Some(which) => {
                let program = self.programs.of(&Mapping { pid, start, end, path: name, which });
                (program.place(start, length, offset), program.build_id)
            }
            None => {
                let build_id = if name == VDSO { self.vdso_of(start) } else { None };
                (Place { base: start, size: length, default_base: 0 }, build_id)
            }
        };
        let Place { base, size, default_base } = place;
        Image { base, size, default_base, code: (start, end), name: name.into(), build_id }
    }

    /// The build id of the kernel's code in a process: this process has the same, if both are of 64 bits.
    fn vdso_of(&mut self, start: u64) -> Option<BuildId> {
        let own = *self.vdso.get_or_insert_with(own_vdso);
        own.filter(|_| start > u64::from(u32::MAX))
    }

    fn on_mmap(&mut self, mmap: &Mmap<'_>, gone: &mut Vec<Image>) -> Option<Image> {
        let name = maps::name_of(mmap.name);
        let which = match mmap.identity {
            Identity::BuildId(id) => BuildId::new(id).map(Which::BuildId),
            Identity::Inode(inode) => (inode != 0).then_some(Which::Inode(inode)),
        };
        let which = which.filter(|_| maps::is_file(&name));
        let range = (mmap.start, mmap.start.checked_add(mmap.length)?);
        let image = self.image(mmap.pid, range, mmap.offset, &name, which);
        self.table.add(mmap.pid, &image, gone).then_some(image)
    }
}

/// The build id of the code that the kernel gives to this process.
fn own_vdso() -> Option<BuildId> {
    use std::os::unix::fs::FileExt;
    const MAX_VDSO: u64 = 1 << 20;
    let own = maps::code_of(std::process::id()).into_iter().find(|it| it.name == VDSO)?;
    let length = own.end.checked_sub(own.start).filter(|length| *length <= MAX_VDSO)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, own.start).ok()?;
    Program::read(&*bytes).build_id
}

/// Whether images are followed.
fn is_wanted(state: &mut All) -> bool {
    let is_wanted = state.groups.has(Group::IMAGE_LOAD) || state.images.is_asked;
    if !is_wanted && !state.images.table.is_empty() {
        state.images.table = Table::default();
    }
    is_wanted
}

/// Before anything is captured: what takes long to find.
pub(crate) fn prepare(state: &mut All) {
    if state.groups.has(Group::IMAGE_LOAD) {
        state.images.kernel_images = state.images.kernel.images(Path::new("/"));
    }
}

/// Before others hear of it: the images of a program that ends go first.
pub(crate) fn on_end(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    if !is_wanted(state) {
        return;
    }
    let (Other::Exit { pid, tid, .. } | Other::Comm { pid, tid, is_exec: true, .. }) = *other else { return };
    let Some(process) = state.images.table.process(pid).filter(|it| it.since <= context.time) else { return };
    let gone = if matches!(other, Other::Exit { .. }) {
        process.threads = process.threads.saturating_sub(1);
        if process.threads > 0 {
            return;
        }
        state.images.table.end(pid)
    } else {
        process.threads = 1;
        state.images.table.empty(pid)
    };
    tell_all(state, Told::Unload, (pid, tid), &gone, out);
}

/// A mapping, or a process with the mappings of its parent.
pub(crate) fn on_other(state: &mut All, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    if !is_wanted(state) {
        return;
    }
    let is_news = |table: &mut Table, pid| table.process(pid).is_none_or(|it| it.since <= context.time);
    match other {
        Other::Mmap(mmap) if mmap.protection & libc::PROT_EXEC.cast_unsigned() != 0 => {
            if !is_news(&mut state.images.table, mmap.pid) {
                return;
            }
            let (mut gone, who) = (Vec::new(), (mmap.pid, mmap.tid));
            let loaded = state.images.on_mmap(mmap, &mut gone);
            tell_all(state, Told::Unload, who, &gone, out);
            if let Some(image) = loaded.filter(|_| state.groups.has(Group::IMAGE_LOAD)) {
                tell(Told::Load, who, &image, out);
            }
        }
        Other::Fork { pid, ppid, .. } if pid == ppid => {
            if let Some(process) = state.images.table.process(*pid).filter(|it| it.since <= context.time) {
                process.threads = process.threads.saturating_add(1);
            }
        }
        Other::Fork { pid, ppid, tid, .. } if is_news(&mut state.images.table, *pid) => {
            let (gone, inherited) = state.images.table.fork(*ppid, *pid, context.time);
            tell_all(state, Told::Unload, (*pid, *tid), &gone, out);
            tell_all(state, Told::Load, (*pid, *tid), &inherited, out);
        }
        _ => {}
    }
}

/// Tells of all images that there are.
pub(crate) fn run_down(state: &mut All, when: Rundown, out: &mut Out<'_>) {
    if !state.groups.has(Group::IMAGE_LOAD) {
        return;
    }
    let told = if when == Rundown::Start { Told::Start } else { Told::End };
    let images = state.images.kernel.images(Path::new("/"));
    if let Some(own) = images.first().filter(|it| &*it.name == kernel::KERNEL) {
        let mut payload = out.payload();
        payload.put_u64(own.base);
        out.perfinfo(KERNEL_BASE, 2, payload);
    }
    let (of_one, mut of_all) = MAX_RUNDOWN;
    state.images.left = of_all;
    tell_all(state, told, (0, NO_THREAD), &images, out);
    state.images.kernel_images = images;
    let (_, looks_of_one, mut looks) = MAX_LOOKS;
    for pid in processes(state) {
        state.images.programs.allow(looks_of_one.min(looks));
        let images = state.images.look_at(pid);
        looks = looks.saturating_sub(images.len());
        let may = of_one.min(of_all);
        state.images.left = may;
        tell_all(state, told, (pid, NO_THREAD), &images, out);
        of_all = of_all.saturating_sub(may.saturating_sub(state.images.left));
    }
    beside(state);
}

/// Between looks.
pub(crate) fn beside(state: &mut All) {
    state.images.left = MAX_TOLD;
    state.images.programs.allow(MAX_LOOKS.0);
}

fn processes(state: &All) -> Vec<u32> {
    let known: Vec<u32> = state.tasks.processes().collect();
    if known.is_empty() { proc::processes().collect() } else { known }
}

/// Tells of images, if anybody wants to know, and counts those that it cannot tell.
fn tell_all(state: &mut All, told: Told, who: (u32, u32), images: &[Image], out: &mut Out<'_>) {
    if !state.groups.has(Group::IMAGE_LOAD) {
        return;
    }
    let mut untold = state.images.table.take_untold();
    for image in images {
        if state.images.pay(image) {
            tell(told, who, image, out);
        } else {
            untold = untold.saturating_add(1);
        }
    }
    *out.too_large = out.too_large.saturating_add(untold.saturating_mul(RECORDS.0));
}

/// Tells of an image of a process, its ids first.
fn tell(told: Told, (pid, tid): (u32, u32), image: &Image, out: &mut Out<'_>) {
    tell_ids((pid, tid), image, out);
    let mut payload = out.payload();
    payload.put_u64(image.base).put_u64(image.size).put_u32(pid);
    payload.put_u32(0).put_u32(0).put_u32(0).put_u64(image.default_base);
    payload.put(&[0; 16]).put_wide_z(&image.name);
    let (hook, is_rundown) = (told as u16, matches!(told, Told::Start | Told::End));
    match (is_rundown, pid) {
        (false, _) => out.system(hook, VERSION, (pid, tid), payload),
        // The kernel's images are told by whoever writes them.
        (true, 0) => out.system(hook, VERSION, crate::writer(), payload),
        (true, _) => out.perfinfo(hook, VERSION, payload),
    }
}

fn tell_ids(who: (u32, u32), image: &Image, out: &mut Out<'_>) {
    let file = image.name.rsplit('/').next().unwrap_or_default();
    let mut payload = out.payload();
    payload.put_u64(image.base).put_u64(image.size).put_u32(who.0).put_u32(0).put_wide_z(file);
    out.classic(class::IMAGE_ID, ID_INFO, ID_VERSION, who, payload);
    let mut payload = out.payload();
    payload.put_u64(image.base).put_u32(who.0);
    let opcode = match &image.build_id {
        Some(id) => {
            payload.put(id.padded()).put_ansi_z(&image.name);
            ID_RSDS
        }
        None => ID_NONE,
    };
    out.classic(class::IMAGE_ID, opcode, ID_VERSION, who, payload);
}
