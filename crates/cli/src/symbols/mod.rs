//! Functions at addresses of a trace.
//!
//! ```text
//!   record ──observe──▶ Images: what was loaded where, which build      (process, address, time) ──resolve──▶ frames
//!                                                                                 │
//!   images: which, and how far into it ──▶ Module: symbols, lines, inlined functions, read when first asked
//!        │                                     ▲
//!        │                            Search: the program itself · debug files by build id or link · --symbol-path · PDB
//!        ├─ the kernel ──▶ Kernel: /proc/kallsyms of this boot, System.map, vmlinux
//!        ├─ [vdso] ──────▶ the one of this process, if it is the same build
//!        └─ nowhere ─────▶ MadeCode: /tmp/perf-PID.map
//! ```
//!
//! Invariants:
//! 1. A file is believed if its build id (ELF) or signature and age (PDB) are those of the trace. Where the trace has none, the file at the very path is taken if it is large enough to
//!    be it, which is said once on standard error.
//! 2. What is kept is bounded: images ([`Images`]), files ([`MAX_LOADED`]), answers ([`MAX_ANSWERS`]). A file that had to go is read again, but not for ever ([`MAX_LOADS`]).
//! 3. Paths that a trace names are opened as [`open_program`](traceweir::consumer::open_program) does it, and never leave a folder that a person named.
//! 4. An answer is never empty, and never a guess: an address that nothing is known about is a frame without a function.

mod args;
mod kernel;
mod made_code;
mod module;
mod search;
mod vdso;
mod warnings;

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_format::header::Record;

use self::kernel::Kernel;
use self::made_code::MadeCode;
use self::module::Module;
use self::warnings::Warnings;
use crate::images::{DebugId, Images};

pub(crate) use args::{Options, SymbolArgs};

/// Memory for what was read of files.
const MAX_LOADED: usize = 1 << 30;
/// Files that are read, those that are read again included.
const MAX_LOADS: usize = 1 << 14;
/// Memory for answers; past it, all are forgotten.
const MAX_ANSWERS: usize = 64 << 20;
/// What an answer takes beside its texts.
const ANSWER: usize = 256;

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The program, library or kernel that it is part of, without its folder.
    pub module: Option<Arc<str>>,
    /// Its name as people wrote it.
    pub function: Option<Arc<str>>,
    /// How far into the function the address lies; into the module where the function is not known; the address itself where neither is.
    pub offset: u64,
    /// How far into the module a function begins that has no name, where that is known.
    pub start: Option<u64>,
    /// The source.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// Whether it was made part of the next frame's function.
    pub is_inlined: bool,
}

/// What makes a file the same: its path and its build.
type Key = (Arc<str>, Option<DebugId>);

/// Names for the addresses of one trace.
pub(crate) struct Symbols {
    options: Options,
    images: Images,
    decoder: Decoder,
    modules: Vec<Slot>,
    by_key: HashMap<Key, usize>,
    loads_left: usize,
    kernel: Option<Kernel>,
    made: MadeCode,
    answers: HashMap<Question, Arc<[Frame]>>,
    answer_bytes: usize,
    /// Counts questions, to know which module was not asked for longest.
    now: u64,
    warnings: Warnings,
}

/// A module that is, was or may be read.
#[derive(Default)]
struct Slot {
    module: Option<Module>,
    asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Question {
    /// So far into a module.
    Module(usize, u64),
    Kernel(u64),
    /// In no file that was loaded.
    Made(u32, u64),
}

impl Symbols {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            images: Images::default(),
            decoder: Decoder::new(),
            modules: Vec::new(),
            by_key: HashMap::new(),
            loads_left: MAX_LOADS,
            kernel: None,
            made: MadeCode::default(),
            answers: HashMap::new(),
            answer_bytes: 0,
            now: 0,
            warnings: Warnings::default(),
        }
    }

    /// Learns where programs were loaded, and which they were, from a record on its way.
    #[inline]
    pub(crate) fn observe(&mut self, record: &Record<'_>) {
        if Images::may_tell(record)
            && let Ok(found) = self.decoder.find(record)
        {
            self.images.observe_all(record, &found);
        }
    }

    /// The functions at an address of a process at a time (raw stamp of the trace), the innermost inlined one first; never empty.
    ///
    /// The address that a call returns to may be the first of the next function: ask for one less.
    pub(crate) fn resolve(&mut self, process: u32, address: u64, time: i64) -> Arc<[Frame]> {
        let Some(located) = self.images.find(process, address, time) else {
            let nothing = Frame { offset: address, ..Frame::default() };
            return self.made_code((process, address, time), nothing);
        };
        let (image, offset) = (located.image, address.saturating_sub(located.base));
        if located.process == 0 && kernel::is_of_kernel(&image.path) {
            let name = image.name().to_owned();
            return self.answer(Question::Kernel(address), |it| it.in_kernel(&name, address, offset));
        }
        if made_code::is_made_in(&image.path) {
            let module = Some(module::name_of(&image.path));
            return self.made_code((process, address, time), Frame { module, offset, ..Frame::default() });
        }
        let key = (Arc::clone(&image.path), image.id.clone());
        let size = image_size(image.size);
        let slot = self.slot(key.clone());
        self.answer(Question::Module(slot, offset), |it| it.in_module(slot, &key, (size, offset)))
    }

    /// Whether the trace was made on Linux, as far as it has been observed.
    pub(crate) fn are_of_linux(&self) -> bool {
        self.images.are_of_linux()
    }

    /// What is known, or what `find` finds.
    fn answer(&mut self, question: Question, find: impl FnOnce(&mut Self) -> Vec<Frame>) -> Arc<[Frame]> {
        self.now = self.now.saturating_add(1);
        if let Some(known) = self.answers.get(&question) {
            return Arc::clone(known);
        }
        let frames: Arc<[Frame]> = find(self).into();
        let texts = |frame: &Frame| frame.function.as_ref().map_or(0, |name| name.len());
        let bytes =
            frames.iter().fold(ANSWER, |sum, it| sum.saturating_add(texts(it)).saturating_add(ANSWER));
        self.answer_bytes = self.answer_bytes.saturating_add(bytes);
        if self.answer_bytes > MAX_ANSWERS {
            self.answers.clear();
            self.answer_bytes = bytes;
        }
        self.answers.insert(question, Arc::clone(&frames));
        frames
    }

    fn slot(&mut self, key: Key) -> usize {
        let next = self.modules.len();
        let slot = *self.by_key.entry(key).or_insert(next);
        if slot == next {
            self.modules.push(Slot::default());
        }
        slot
    }

    fn in_module(&mut self, slot: usize, key: &Key, (size, offset): (u64, u64)) -> Vec<Frame> {
        self.load(slot, key, size);
        let name = module::name_of(&key.0);
        let Some(module) = self.modules.get_mut(slot).and_then(|slot| slot.module.as_mut()) else {
            return vec![Frame { module: Some(name), offset, ..Frame::default() }];
        };
        let before = module.bytes();
        let frames = module.frames(&name, offset);
        // Lines are read when they are asked for: a module grows after it was loaded.
        if module.bytes() > before {
            self.make_room(slot, 0);
        }
        frames
    }

    /// Reads a module that was not read, or had to go.
    fn load(&mut self, slot: usize, key: &Key, size: u64) {
        let now = self.now;
        if let Some(slot) = self.modules.get_mut(slot) {
            slot.asked = now;
            if slot.module.is_some() {
                return;
            }
        }
        let Some(left) = self.loads_left.checked_sub(1) else { return };
        self.loads_left = left;
        let module = Module::load(&self.options, key, size, &mut self.warnings);
        self.make_room(slot, module.bytes());
        if let Some(slot) = self.modules.get_mut(slot) {
            slot.module = Some(module);
        }
    }

    /// Forgets modules that were not asked for longest, until so many bytes more fit in.
    fn make_room(&mut self, keep: usize, bytes: usize) {
        let held = |slot: &Slot| slot.module.as_ref().map_or(0, Module::bytes);
        let mut all = self.modules.iter().map(held).fold(bytes, usize::saturating_add);
        while all > MAX_LOADED {
            let others = self.modules.iter_mut().enumerate().filter(|(at, it)| *at != keep && held(it) > 0);
            let Some((_, oldest)) = others.min_by_key(|(_, slot)| slot.asked) else { return };
            all = all.saturating_sub(held(oldest));
            oldest.module = None;
        }
    }

    fn in_kernel(&mut self, image: &str, address: u64, offset: u64) -> Vec<Frame> {
        if self.kernel.is_none() {
            self.kernel = Some(Kernel::load(&self.options, &self.images, &mut self.warnings));
        }
        let frames = self.kernel.as_mut().and_then(|kernel| kernel.frames(image, address));
        frames.unwrap_or_else(|| vec![Frame { module: Some(image.into()), offset, ..Frame::default() }])
    }

    /// The function that a process made at an address, or what is known `otherwise`.
    fn made_code(&mut self, (process, address, time): (u32, u64, i64), otherwise: Frame) -> Arc<[Frame]> {
        let find = |it: &mut Self| vec![it.made_at(process, address, time).unwrap_or(otherwise)];
        self.answer(Question::Made(process, address), find)
    }

    fn made_at(&mut self, process: u32, address: u64, time: i64) -> Option<Frame> {
        let user = self.images.user_of(process, time);
        if !self.images.are_of_linux() {
            return None;
        }
        self.made.frame(&self.options, (process, user), address)
    }
}

/// The size of an image for comparison: what is mapped is told in pages, of which large ones have 64 KiB.
fn image_size(told: u64) -> u64 {
    const PAGE: u64 = 64 << 10;
    told.saturating_sub(PAGE)
}

#[cfg(test)]
mod tests;
