//! Resolves addresses of a trace to functions.
//!
//! ```text
//!   record ──observe──▶ Images: loaded images and their builds
//!   (process, address, time) ──resolve──▶ frames:
//!
//!   image and offset ──▶ Module: symbols, lines, inlined functions, read on first use
//!        │                  ▲
//!        │               Search: program · debug file by build id or link · --symbol-path · PDB
//!        ├─ the kernel ──▶ Kernel: /proc/kallsyms of this boot, System.map, vmlinux
//!        ├─ [vdso] ──────▶ that of this process, if it is the same build
//!        └─ nowhere ─────▶ GeneratedCode: /tmp/perf-PID.map
//! ```
//!
//! Invariants:
//! 1. A file is used if its build id (ELF) or its signature and age (PDB) match the trace. If the
//!    trace has none, the file at the exact path is used if it is large enough, with a warning.
//! 2. Memory is limited: images ([`Images`]), files ([`MAX_LOADED`]), answers ([`MAX_ANSWERS`]). A
//!    file that was dropped is read again, but not without limit ([`MAX_LOADS`]).
//! 3. Paths in a trace are opened by [`open_program`](traceweir::consumer::open_program), and never
//!    lead out of a folder that the user named.
//! 4. An answer is never empty and never a guess: an unknown address is a frame without a function.

mod args;
mod generated_code;
mod kernel;
mod module;
mod search;
mod vdso;
mod warnings;

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_format::header::Record;

use self::generated_code::GeneratedCode;
use self::kernel::Kernel;
use self::module::Module;
use self::warnings::Warnings;
use crate::images::{DebugId, Images};

pub(crate) use args::{Options, SymbolArgs};

/// Maximum memory for data from files, in bytes.
const MAX_LOADED: usize = 1 << 30;
/// Maximum number of file reads, including repeated ones.
const MAX_LOADS: usize = 1 << 14;
/// Maximum memory for cached answers, in bytes; beyond it, all are dropped.
const MAX_ANSWERS: usize = 64 << 20;
/// Memory of an answer besides its texts, in bytes.
const ANSWER: usize = 256;

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The program, library or kernel that contains it, without the folder.
    pub module: Option<Arc<str>>,
    /// Its demangled name.
    pub function: Option<Arc<str>>,
    /// Offset of the address in the function, else in the module, else the address itself.
    pub offset: u64,
    /// Offset in the module of a function without a name, if known.
    pub start: Option<u64>,
    /// The source file of the function.
    pub file: Option<Arc<str>>,
    /// Line in the source file.
    pub line: Option<u32>,
    /// Whether it was inlined into the function of the next frame.
    pub is_inlined: bool,
}

/// Identifies a file: its path and its build.
type Key = (Arc<str>, Option<DebugId>);

/// Symbols for the addresses of one trace.
pub(crate) struct Symbols {
    options: Options,
    images: Images,
    decoder: Decoder,
    modules: Vec<Slot>,
    by_key: HashMap<Key, usize>,
    loads_left: usize,
    kernel: Option<Kernel>,
    generated: GeneratedCode,
    answers: HashMap<Lookup, Arc<[Frame]>>,
    answer_bytes: usize,
    /// Counts lookups, to find the least recently used module.
    now: u64,
    warnings: Warnings,
}

/// A module that is, was or may be loaded.
#[derive(Default)]
struct Slot {
    module: Option<Module>,
    last_use: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lookup {
    /// An offset in a module.
    Module(usize, u64),
    Kernel(u64),
    /// An address in no loaded file.
    Generated(u32, u64),
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
            generated: GeneratedCode::default(),
            answers: HashMap::new(),
            answer_bytes: 0,
            now: 0,
            warnings: Warnings::default(),
        }
    }

    /// Learns about loaded images and their builds from a record.
    #[inline]
    pub(crate) fn observe(&mut self, record: &Record<'_>) {
        if Images::is_relevant(record)
            && let Ok(found) = self.decoder.find(record)
        {
            self.images.observe_all(record, &found);
        }
    }

    /// Returns the functions at an address of a process at a time (raw timestamp of the trace), the
    /// innermost inlined one first; never empty.
    ///
    /// A return address may be the first address of the next function: subtract one before the
    /// call.
    pub(crate) fn resolve(&mut self, process: u32, address: u64, time: i64) -> Arc<[Frame]> {
        let Some(located) = self.images.find(process, address, time) else {
            let nothing = Frame { offset: address, ..Frame::default() };
            return self.generated_code((process, address, time), nothing);
        };
        let (image, offset) = (located.image, address.saturating_sub(located.base));
        if located.process == 0 && kernel::is_kernel_or_module(&image.path) {
            let name = image.name().to_owned();
            return self.answer(Lookup::Kernel(address), |symbols| symbols.in_kernel(&name, address, offset));
        }
        if generated_code::is_anonymous_memory(&image.path) {
            let module = Some(module::name_of(&image.path));
            return self
                .generated_code((process, address, time), Frame { module, offset, ..Frame::default() });
        }
        let key = (Arc::clone(&image.path), image.id.clone());
        let size = image_size(image.size);
        let slot = self.slot(key.clone());
        self.answer(Lookup::Module(slot, offset), |symbols| symbols.in_module(slot, &key, (size, offset)))
    }

    /// Returns whether the trace was recorded on Linux, as far as it has been observed.
    pub(crate) fn is_linux(&self) -> bool {
        self.images.is_linux()
    }

    /// Returns the cached answer, or the result of `find`.
    fn answer(&mut self, question: Lookup, find: impl FnOnce(&mut Self) -> Vec<Frame>) -> Arc<[Frame]> {
        self.now = self.now.saturating_add(1);
        if let Some(known) = self.answers.get(&question) {
            return Arc::clone(known);
        }
        let frames: Arc<[Frame]> = find(self).into();
        let texts = |frame: &Frame| frame.function.as_ref().map_or(0, |name| name.len());
        let bytes =
            frames.iter().fold(ANSWER, |sum, frame| sum.saturating_add(texts(frame)).saturating_add(ANSWER));
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
        // Lines are read on demand, so a module can grow after it was loaded.
        if module.bytes() > before {
            self.make_room(slot, 0);
        }
        frames
    }

    /// Loads a module that is not loaded.
    fn load(&mut self, slot: usize, key: &Key, size: u64) {
        let now = self.now;
        if let Some(slot) = self.modules.get_mut(slot) {
            slot.last_use = now;
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

    /// Drops the least recently used modules until `bytes` more fit.
    fn make_room(&mut self, keep: usize, bytes: usize) {
        let held = |slot: &Slot| slot.module.as_ref().map_or(0, Module::bytes);
        let mut all = self.modules.iter().map(held).fold(bytes, usize::saturating_add);
        while all > MAX_LOADED {
            let others =
                self.modules.iter_mut().enumerate().filter(|(index, slot)| *index != keep && held(slot) > 0);
            let Some((_, oldest)) = others.min_by_key(|(_, slot)| slot.last_use) else { return };
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

    /// Returns the function that a process generated at an address, or `otherwise`.
    fn generated_code(
        &mut self,
        (process, address, time): (u32, u64, i64),
        otherwise: Frame,
    ) -> Arc<[Frame]> {
        let find =
            |symbols: &mut Self| vec![symbols.generated_frame(process, address, time).unwrap_or(otherwise)];
        self.answer(Lookup::Generated(process, address), find)
    }

    fn generated_frame(&mut self, process: u32, address: u64, time: i64) -> Option<Frame> {
        let user = self.images.user_of(process, time);
        if !self.images.is_linux() {
            return None;
        }
        self.generated.frame(&self.options, (process, user), address)
    }
}

/// Returns the least size of an image's file: mapped sizes are multiples of a page, of at most 64
/// KiB.
fn image_size(mapped: u64) -> u64 {
    const PAGE: u64 = 64 << 10;
    mapped.saturating_sub(PAGE)
}

#[cfg(test)]
mod tests;
