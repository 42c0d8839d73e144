//! Resolves addresses of a trace to functions.
//!
//! ```text
//!   record ──observe──▶ LoadedImages: loaded images and their builds
//!   (process, address, time) ──resolve──▶ frames:
//!
//!   image and offset ──▶ ModuleSymbols: symbols, lines, inlined functions, read on first use
//!        │                  ▲
//!        │               Search: program · debug file by build id or link · chosen folders · PDB
//!        ├─ the kernel ──▶ KernelSymbols: /proc/kallsyms of this boot, System.map, vmlinux
//!        ├─ [vdso] ──────▶ the vDSO of this process, if the build is the same
//!        └─ nowhere ─────▶ ManagedCode: methods of the .NET runtime, by events of the trace
//!                          GeneratedCode: /tmp/perf-PID.map
//! ```
//!
//! Invariants:
//! 1. A file is used if its build id (ELF) or its signature and age (PDB) match the trace. If the
//!    trace has none, a program is used with a warning, provided that it is large enough and is at
//!    the path in the trace or below a chosen folder ([`SymbolOptions::paths`]).
//! 2. Memory is limited: images ([`LoadedImages`]), files (`MAX_LOADED_BYTES`), answers
//!    (`MAX_ANSWER_BYTES`). A dropped file is read again, up to a limit (`MAX_LOADS`).
//! 3. A path in a trace is opened by [`open_program`](traceweir::consumer::open_program). Appended
//!    to a folder that the user named, it never leads out of this folder.
//! 4. An answer is never empty and never a guess. An unknown address is a frame without a function.

mod generated_code;
mod kernel;
mod module;
mod options;
mod search;
mod vdso;
mod warnings;

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::Decoder;
use traceweir_decode::managed_code::{ManagedCode, ManagedMethod};
use traceweir_format::header::Record;

use self::generated_code::GeneratedCode;
use self::kernel::KernelSymbols;
use self::module::ModuleSymbols;
use self::warnings::SymbolWarnings;
use crate::images::{DebugId, LoadedImages};
use crate::observer::ReadObserver;

pub use options::SymbolOptions;

/// Maximum memory for data from files, unless [`TraceSymbols::limit_loaded_bytes`] sets another.
const MAX_LOADED_BYTES: usize = 1 << 30;
/// Maximum number of file reads, including repeated ones.
const MAX_LOADS: usize = 1 << 14;
/// Maximum memory for cached answers. When it is exceeded, all cached answers are dropped.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Estimated memory of an answer, and of each of its frames, without texts.
const ANSWER_OVERHEAD_BYTES: usize = 256;

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolFrame {
    /// File name of the program, library or kernel that contains the function.
    pub module: Option<Arc<str>>,
    /// The demangled name of the function.
    pub function: Option<Arc<str>>,
    /// Offset of the address in the function; without a function, in the module; without a module,
    /// the address itself.
    pub offset: u64,
    /// Offset in the module at which a function without a name begins, if known.
    pub start: Option<u64>,
    /// The source file of the function.
    pub file: Option<Arc<str>>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// Whether the function was inlined into the function of the next frame.
    pub is_inlined: bool,
}

/// Identifies a file by path and build.
type ModuleKey = (Arc<str>, Option<DebugId>);

/// Symbols for the addresses of one trace.
pub struct TraceSymbols {
    options: SymbolOptions,
    images: LoadedImages,
    decoder: Decoder,
    modules: Vec<ModuleSlot>,
    by_key: HashMap<ModuleKey, usize>,
    loads_left: usize,
    max_loaded_bytes: usize,
    kernel: Option<KernelSymbols>,
    managed: ManagedCode,
    generated: GeneratedCode,
    answers: HashMap<SymbolLookup, Arc<[SymbolFrame]>>,
    answer_bytes: usize,
    max_answer_bytes: usize,
    /// Counts lookups, to find the least recently used module.
    lookup_count: u64,
    warnings: SymbolWarnings,
}

/// A module, while it is loaded, and the number of its last lookup.
#[derive(Default)]
struct ModuleSlot {
    module: Option<ModuleSymbols>,
    last_use: u64,
}

/// The key of a cached answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SymbolLookup {
    /// An offset in a module.
    Module(usize, u64),
    Kernel(u64),
    /// A process, an address, and when the method there was loaded.
    Managed(u32, u64, i64),
    /// A process, and an address in none of its files.
    Generated(u32, u64),
}

/// An address of a process at a time (raw timestamp of the trace).
#[derive(Clone, Copy, Debug)]
struct CodeAddress {
    process: u32,
    address: u64,
    time: i64,
}

impl TraceSymbols {
    /// Creates symbols of no image yet. `observer` receives the warnings, some of them when this
    /// value is dropped.
    pub fn new(options: SymbolOptions, observer: Arc<dyn ReadObserver>) -> Self {
        Self {
            options,
            images: LoadedImages::default(),
            decoder: Decoder::new(),
            modules: Vec::new(),
            by_key: HashMap::new(),
            loads_left: MAX_LOADS,
            max_loaded_bytes: MAX_LOADED_BYTES,
            kernel: None,
            managed: ManagedCode::default(),
            generated: GeneratedCode::default(),
            answers: HashMap::new(),
            answer_bytes: 0,
            max_answer_bytes: MAX_ANSWER_BYTES,
            lookup_count: 0,
            warnings: SymbolWarnings::new(observer),
        }
    }

    /// Limits the memory for data from files. Lines of a file that alone exceeds the limit are left out.
    pub fn limit_loaded_bytes(&mut self, bytes: usize) {
        self.max_loaded_bytes = bytes;
        self.generated.limit_bytes(bytes);
    }

    /// Divides the limits of everything but data from files among traces that are read together.
    pub fn share_limits(&mut self, traces: usize) {
        self.max_answer_bytes = MAX_ANSWER_BYTES / traces.max(1);
        self.images.share_limits(traces);
        self.managed.share_limits(traces);
    }

    /// Learns about loaded images and their builds from a record.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) {
        if LoadedImages::is_relevant(record)
            && let Ok(schema_match) = self.decoder.find(record)
        {
            self.images.observe_all(record, &schema_match);
        }
        if ManagedCode::is_informative(record) {
            let free_since = self.images.end_before(record.process_id(), record.time());
            self.managed.observe(record, free_since.unwrap_or(i64::MIN));
        }
    }

    /// Returns the functions at an address of a process at a time (raw timestamp of the trace), the
    /// innermost inlined function first; never empty.
    ///
    /// A return address may be the first address of the next function. Callers subtract one from a
    /// return address.
    pub fn resolve(&mut self, process: u32, address: u64, time: i64) -> Arc<[SymbolFrame]> {
        let code = CodeAddress { process, address, time };
        let Some(location) = self.images.find_exact(process, address, time) else {
            if let Some(frames) = self.resolve_managed_code(code, None) {
                return frames;
            }
            let unresolved = SymbolFrame { offset: address, ..SymbolFrame::default() };
            return self.resolve_generated_code(code, unresolved);
        };
        let (image, offset) = (location.image, address.saturating_sub(location.base));
        if location.process == 0 && kernel::is_kernel_or_module(&image.path) {
            let name = image.name().to_owned();
            return self.find_or_compute(SymbolLookup::Kernel(address), |symbols| {
                symbols.resolve_in_kernel(&name, address, offset)
            });
        }
        if generated_code::is_anonymous_memory(&image.path) {
            let module = Some(module::file_name_of(&image.path));
            if let Some(frames) = self.resolve_managed_code(code, None) {
                return frames;
            }
            return self
                .resolve_generated_code(code, SymbolFrame { module, offset, ..SymbolFrame::default() });
        }
        let key = (Arc::clone(&image.path), image.id.clone());
        let min_size = min_file_size(image.size);
        let slot = self.find_or_add_slot(key.clone());
        let frames = self.find_or_compute(SymbolLookup::Module(slot, offset), |symbols| {
            symbols.resolve_in_module(slot, &key, min_size, offset)
        });
        if frames.iter().any(|frame| frame.function.is_some()) || self.managed.is_empty() {
            return frames;
        }
        // The runtime also reports the methods of images with code that was compiled in advance.
        let module = frames.first().and_then(|frame| frame.module.clone());
        self.resolve_managed_code(code, module).unwrap_or(frames)
    }

    /// Returns whether image events have been observed.
    pub fn has_images(&self) -> bool {
        self.images.has_images()
    }

    /// Returns whether the trace was recorded on Linux, as far as it has been observed.
    pub fn is_linux(&self) -> bool {
        self.images.is_linux()
    }

    /// Returns the cached answer, or computes and caches it.
    fn find_or_compute(
        &mut self,
        lookup: SymbolLookup,
        compute: impl FnOnce(&mut Self) -> Vec<SymbolFrame>,
    ) -> Arc<[SymbolFrame]> {
        self.lookup_count = self.lookup_count.saturating_add(1);
        if let Some(answer) = self.answers.get(&lookup) {
            return Arc::clone(answer);
        }
        let frames: Arc<[SymbolFrame]> = compute(self).into();
        let text_bytes = |frame: &SymbolFrame| frame.function.as_ref().map_or(0, |name| name.len());
        let bytes = frames.iter().fold(ANSWER_OVERHEAD_BYTES, |sum, frame| {
            sum.saturating_add(text_bytes(frame)).saturating_add(ANSWER_OVERHEAD_BYTES)
        });
        self.answer_bytes = self.answer_bytes.saturating_add(bytes);
        if self.answer_bytes > self.max_answer_bytes {
            self.answers.clear();
            self.answer_bytes = bytes;
        }
        self.answers.insert(lookup, Arc::clone(&frames));
        frames
    }

    fn find_or_add_slot(&mut self, key: ModuleKey) -> usize {
        let next_slot = self.modules.len();
        let slot = *self.by_key.entry(key).or_insert(next_slot);
        if slot == next_slot {
            self.modules.push(ModuleSlot::default());
        }
        slot
    }

    fn resolve_in_module(
        &mut self,
        slot: usize,
        key: &ModuleKey,
        min_size: u64,
        offset: u64,
    ) -> Vec<SymbolFrame> {
        self.load_module(slot, key, min_size);
        let name = module::file_name_of(&key.0);
        let Some(module) = self.modules.get_mut(slot).and_then(|slot| slot.module.as_mut()) else {
            return vec![SymbolFrame { module: Some(name), offset, ..SymbolFrame::default() }];
        };
        let old_bytes = module.memory_bytes();
        let frames = module.find_frames(&name, offset);
        // Lines are read on demand, so a module can grow after it was loaded.
        if module.memory_bytes() > old_bytes {
            self.drop_old_modules(slot);
        }
        frames
    }

    /// Loads a module, unless it is loaded or [`MAX_LOADS`] is reached, and notes its use.
    fn load_module(&mut self, slot: usize, key: &ModuleKey, min_size: u64) {
        let lookup_count = self.lookup_count;
        if let Some(slot) = self.modules.get_mut(slot) {
            slot.last_use = lookup_count;
            if slot.module.is_some() {
                return;
            }
        }
        let Some(remaining) = self.loads_left.checked_sub(1) else { return };
        self.loads_left = remaining;
        let module = ModuleSymbols::load(&self.options, key, min_size, &mut self.warnings);
        if let Some(slot) = self.modules.get_mut(slot) {
            slot.module = Some(module);
        }
        self.drop_old_modules(slot);
    }

    /// Drops the least recently used modules, except `keep`, until the rest fits into the limit.
    fn drop_old_modules(&mut self, keep: usize) {
        let module_bytes = |slot: &ModuleSlot| slot.module.as_ref().map_or(0, ModuleSymbols::memory_bytes);
        let mut total = self.modules.iter().map(module_bytes).fold(0, usize::saturating_add);
        while total > self.max_loaded_bytes {
            let others = self
                .modules
                .iter_mut()
                .enumerate()
                .filter(|(index, slot)| *index != keep && module_bytes(slot) > 0);
            let Some((_, oldest)) = others.min_by_key(|(_, slot)| slot.last_use) else { break };
            total = total.saturating_sub(module_bytes(oldest));
            oldest.module = None;
        }
        if total > self.max_loaded_bytes
            && let Some(module) = self.modules.get_mut(keep).and_then(|slot| slot.module.as_mut())
        {
            module.drop_lines();
        }
    }

    fn resolve_in_kernel(&mut self, image: &str, address: u64, offset: u64) -> Vec<SymbolFrame> {
        if self.kernel.is_none() {
            self.kernel = Some(KernelSymbols::load(&self.options, &self.images, &mut self.warnings));
        }
        let frames = self.kernel.as_mut().and_then(|kernel| kernel.find_frames(image, address));
        frames.unwrap_or_else(|| {
            vec![SymbolFrame { module: Some(image.into()), offset, ..SymbolFrame::default() }]
        })
    }

    /// Returns the method of the .NET runtime at an address. `image` is the image at the address, or
    /// `None` for memory without a file.
    fn resolve_managed_code(
        &mut self,
        code: CodeAddress,
        image: Option<Arc<str>>,
    ) -> Option<Arc<[SymbolFrame]>> {
        let CodeAddress { process, address, time } = code;
        let not_before = self.images.end_before(process, time).unwrap_or(i64::MIN);
        let method = self.managed.find(process, address, time, not_before)?;
        let lookup = SymbolLookup::Managed(process, address, method.loaded_at);
        Some(self.find_or_compute(lookup, |_| {
            let ManagedMethod { name, module, start, .. } = method;
            vec![SymbolFrame {
                module: image.or(module).or_else(|| Some(".NET".into())),
                function: Some(name),
                offset: address.saturating_sub(start),
                ..SymbolFrame::default()
            }]
        }))
    }

    /// Returns the function that a process generated at an address, or `unresolved`.
    fn resolve_generated_code(&mut self, code: CodeAddress, unresolved: SymbolFrame) -> Arc<[SymbolFrame]> {
        let CodeAddress { process, address, time } = code;
        let find_frame = |symbols: &mut Self| {
            vec![symbols.find_generated_frame(process, address, time).unwrap_or(unresolved)]
        };
        self.find_or_compute(SymbolLookup::Generated(process, address), find_frame)
    }

    fn find_generated_frame(&mut self, process: u32, address: u64, time: i64) -> Option<SymbolFrame> {
        let user = self.images.user_of(process, time);
        if !self.images.is_linux() {
            return None;
        }
        self.generated.find_frame(&self.options, (process, user), address)
    }
}

/// Returns the minimum size of the file of an image. Mapped sizes are multiples of a page, which
/// has at most 64 KiB.
fn min_file_size(mapped_bytes: u64) -> u64 {
    const MAX_PAGE_BYTES: u64 = 64 << 10;
    mapped_bytes.saturating_sub(MAX_PAGE_BYTES)
}

#[cfg(test)]
mod tests;
