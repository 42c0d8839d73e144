//! Stacks of programs without frame pointers, from the bytes of their stacks and the tables of their programs.
//!
//! ```text
//!   sample: registers, stack bytes ──▶ modules of the process ──▶ framehop ──▶ return addresses
//!                                          ▲ answers
//!   a program that was not seen ──▶ thread that reads files (super::reader; it may hang, nothing waits for it longer than a moment)
//! ```
//!
//! U1 A process's modules are what its mappings say: read from /proc when its first stack comes, again when it has mapped something since, and after a while where a file was not read
//! in time. U2 The same file is read once; one that could not be found is asked for again. U3 All tables together, all files and all processes are bounded; what does not fit is unwound by
//! frame pointers. U4 framehop tells sets of modules apart by 16 bits, which all captures share: what it keeps is dropped before they come round.
//! U5 A file over which the thread hangs is given up for good, and another thread goes on with the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder as _,
    UnwinderNative,
};

use super::program::{self, Tables};
use super::reader::{Answer, FileKey, Mapping, ReadTables, Reader};
use super::register;
use crate::family::image::maps;
use crate::record::{Mmap, Sample};

/// Bytes of all tables together.
const MAX_BYTES: usize = 512 << 20;
/// Processes whose modules are known.
const MAX_PROCESSES: usize = 4096;
/// Modules of one process.
const MAX_MODULES: usize = 1024;
/// Files whose tables are known.
const MAX_FILES: usize = 4096;
/// How long files that were not read in time are not asked for again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a file may take to be read, by disks that are busy: what takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Sets of modules after which framehop's rules are dropped.
const MAX_SETS: u64 = 60_000;

type Process = UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>;

/// What is known of a process.
#[derive(Default)]
struct Known {
    modules: Process,
    files: HashSet<FileKey>,
    /// It has mapped something since its modules were read.
    is_stale: bool,
    /// Some of its files are not known yet: they are asked for again then.
    again: Option<Instant>,
}

/// Sets of modules that framehop has numbered, in all captures.
static SETS: AtomicU64 = AtomicU64::new(0);

/// Unwinds the stacks of all processes.
pub(crate) struct Unwinder {
    processes: HashMap<u32, Known>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Of [`SETS`] when the cache was empty.
    sets: u64,
    known: HashMap<FileKey, Option<Arc<Tables>>>,
    bytes: usize,
    /// Files over which a thread hangs or has ended.
    given_up: HashSet<FileKey>,
    read: ReadTables,
    /// `None` while too many hang.
    reader: Option<Reader>,
    hangs_after: Duration,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

impl Unwinder {
    /// Knows nothing yet. `None` where the thread that reads cannot be had.
    pub(crate) fn new() -> Option<Self> {
        let read = |process: u32, mapping: &Mapping| {
            let Mapping { range, path, file: (.., inode), .. } = mapping;
            program::tables(process, range, path, *inode)
        };
        Self::reading(Arc::new(read), HANGS_AFTER)
    }

    fn reading(read: ReadTables, hangs_after: Duration) -> Option<Self> {
        Some(Self {
            processes: HashMap::new(),
            cache: CacheNative::new(),
            sets: SETS.load(Relaxed),
            known: HashMap::new(),
            bytes: 0,
            given_up: HashSet::new(),
            reader: Some(Reader::start(&read)?),
            read,
            hangs_after,
        })
    }

    /// A process has mapped something to run: its modules are read again when its next stack comes.
    pub(crate) fn mapped(&mut self, mmap: &Mmap<'_>) {
        if let Some(process) = self.processes.get_mut(&mmap.pid) {
            process.is_stale = true;
        }
    }

    /// A process runs another program, or has ended.
    pub(crate) fn gone(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Whether something is kept of a process.
    #[cfg(test)]
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// Appends the frames of a sample's program, innermost first. Whether there were any.
    pub(crate) fn put_frames(&mut self, sample: &Sample<'_>, most: usize, out: &mut Vec<u8>) -> bool {
        let Some((pc, stack_pointer, regs)) = registers(sample.user_regs) else { return false };
        self.learn(sample.pid);
        self.forget_rules();
        let Some(Known { modules, .. }) = self.processes.get(&sample.pid) else { return false };
        let mut read = |address: u64| {
            let at = address.checked_sub(stack_pointer).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            let word = sample.user_stack.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_le_bytes(*word))
        };
        let mut frames = modules.iter_frames(pc, regs, &mut self.cache, &mut read);
        let mut count = 0_usize;
        while let Ok(Some(frame)) = frames.next() {
            if count == most {
                break;
            }
            out.extend_from_slice(&frame.address().to_le_bytes());
            count = count.saturating_add(1);
        }
        count > 0
    }

    /// Knows the modules of a process from now on.
    fn learn(&mut self, process: u32) {
        self.take_answers(None);
        self.mind_reader();
        if !self.processes.contains_key(&process) {
            if self.processes.len() >= MAX_PROCESSES {
                self.processes.clear();
            }
            SETS.fetch_add(1, Relaxed);
            self.processes.insert(process, Known { is_stale: true, ..Known::default() });
        }
        let Some(known) = self.processes.get_mut(&process) else { return };
        let is_due = known.again.is_some_and(|again| again <= Instant::now());
        if !std::mem::take(&mut known.is_stale) && !is_due {
            return;
        }
        known.again = None;
        let mut is_whole = true;
        for mapping in mappings(process) {
            is_whole &= self.add(process, &mapping);
        }
        if !is_whole && let Some(known) = self.processes.get_mut(&process) {
            known.again = Instant::now().checked_add(PAUSE);
        }
    }

    /// Drops what framehop keeps before its numbers come round.
    fn forget_rules(&mut self) {
        let sets = SETS.load(Relaxed);
        if sets.saturating_sub(self.sets) >= MAX_SETS {
            (self.cache, self.sets) = (CacheNative::new(), sets);
        }
    }

    /// Adds a mapping to the modules of its process. Whether its file is known.
    fn add(&mut self, process: u32, mapping: &Mapping) -> bool {
        let is_known = |known: &Known| known.files.contains(&mapping.file);
        if self.processes.get(&process).is_none_or(is_known) {
            return true;
        }
        let Some(known) = self.tables(process, mapping) else { return false };
        let Some(tables) = known else { return true };
        // Learning of files may have emptied everything.
        let Some(Known { modules, files, .. }) = self.processes.get_mut(&process) else { return true };
        if files.len() >= MAX_MODULES || !files.insert(mapping.file) {
            return true;
        }
        // Where the file's first byte is, or would be.
        let start = mapping.range.start.saturating_sub(mapping.offset);
        let (eh_frame_svma, eh_frame) = tables.eh_frame.clone().unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = tables.eh_frame_hdr.clone().unzip();
        let sections = ExplicitModuleSectionInfo {
            base_svma: tables.base,
            text_svma: tables.text.clone(),
            got_svma: tables.got.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        modules.add_module(Module::new(mapping.path.clone(), mapping.range.clone(), start, sections));
        SETS.fetch_add(1, Relaxed);
        true
    }

    /// What is known of a file's tables within a moment.
    fn tables(&mut self, process: u32, mapping: &Mapping) -> Answer {
        if let Some(known) = self.known.get(&mapping.file) {
            return Some(known.clone());
        }
        if self.given_up.contains(&mapping.file) {
            return Some(None);
        }
        if !self.reader.as_mut()?.ask(process, mapping) {
            return None;
        }
        self.take_answers(Some(mapping.file));
        self.known.get(&mapping.file).cloned()
    }

    /// Gives up a file over which the reader hangs or has ended, and goes on with another reader.
    fn mind_reader(&mut self) {
        if let Some(file) = self.reader.as_ref().and_then(|reader| reader.hangs_at(self.hangs_after)) {
            // Those over which it hung have cost their time, so that there are never many; it ends at once over others.
            if self.given_up.len() >= MAX_FILES {
                self.given_up.clear();
            }
            self.given_up.insert(file);
            self.reader = None;
        }
        if self.reader.is_none() {
            self.reader = Reader::start(&self.read);
        }
    }

    /// Takes in what was read; waits a moment for the answer about one file.
    fn take_answers(&mut self, wanted: Option<FileKey>) {
        let mut awaited = wanted;
        loop {
            let answer = self.reader.as_mut().and_then(|reader| reader.next(awaited.is_some()));
            let Some((file, answer)) = answer else { return };
            awaited = awaited.filter(|awaited| *awaited != file);
            if let Some(tables) = answer {
                self.keep(file, tables);
            }
        }
    }

    fn keep(&mut self, file: FileKey, tables: Option<Arc<Tables>>) {
        if self.known.len() >= MAX_FILES {
            // Processes hold tables too.
            self.known.clear();
            self.processes.clear();
            self.bytes = 0;
        }
        let size = tables.as_ref().map_or(0, |it| it.size());
        let all = self.bytes.saturating_add(size);
        let kept = tables.filter(|_| all <= MAX_BYTES);
        if kept.is_some() {
            self.bytes = all;
        }
        self.known.insert(file, kept);
    }
}

/// Where unwinding begins: instruction, stack pointer, and what else there is of them.
#[cfg(target_arch = "x86_64")]
fn registers(regs: &[u8]) -> Option<(u64, u64, UnwindRegsNative)> {
    let (rbp, rsp, rip) = (register(regs, 6)?, register(regs, 7)?, register(regs, 8)?);
    Some((rip, rsp, UnwindRegsNative::new(rip, rsp, rbp)))
}

/// Where unwinding begins: instruction, stack pointer, and what else there is of them.
#[cfg(target_arch = "aarch64")]
fn registers(regs: &[u8]) -> Option<(u64, u64, UnwindRegsNative)> {
    let (fp, lr, sp, pc) =
        (register(regs, 29)?, register(regs, 30)?, register(regs, 31)?, register(regs, 32)?);
    Some((pc, sp, UnwindRegsNative::new(lr, sp, fp)))
}

/// What a process has mapped to run of files, as /proc tells.
fn mappings(process: u32) -> impl Iterator<Item = Mapping> {
    let of_files = maps::code_of(process).into_iter().filter(|it| it.inode != 0).take(MAX_MODULES);
    of_files.map(|it| Mapping {
        range: it.start..it.end,
        offset: it.offset,
        file: (it.device.0, it.device.1, it.inode),
        path: it.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program as it is mapped.
    fn own() -> Mapping {
        let exe = std::fs::read_link("/proc/self/exe").expect("this program");
        let is_own = |it: &Mapping| std::path::Path::new(&it.path) == exe;
        mappings(std::process::id()).find(is_own).expect("it is mapped")
    }

    #[test]
    fn a_file_that_is_not_found_is_asked_for_again() {
        let mut unwinder = Unwinder::new().expect("a thread");
        let me = std::process::id();
        let mut other = own();
        other.file.2 = other.file.2.wrapping_add(1);
        assert_eq!(unwinder.tables(me, &other).map(|it| it.is_some()), None, "another file by that name");
        assert!(unwinder.known.is_empty(), "nothing is kept of it");
        unwinder.processes.insert(me, Known::default());
        assert!(!unwinder.add(me, &other), "not known yet");
        unwinder.learn(me);
        let known = &unwinder.processes[&me];
        assert!(known.files.is_empty() && known.again.is_none(), "nothing was mapped since");
        unwinder.processes.get_mut(&me).expect("known").again = Some(Instant::now());
        // The thread may be behind on a busy machine.
        for _ in 0..100 {
            unwinder.learn(me);
            if unwinder.known.contains_key(&own().file) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it was not asked for again");
    }

    #[test]
    fn a_file_over_which_the_reader_hangs_is_given_up_and_another_reader_goes_on() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let hanging = own().file;
        let read = move |_: u32, mapping: &Mapping| {
            if mapping.file == hanging {
                let _ = held.lock().map(|held| held.recv());
            }
            Some(None)
        };
        let mut unwinder = Unwinder::reading(Arc::new(read), Duration::from_millis(20)).expect("a thread");
        let me = std::process::id();
        let mut other = own();
        other.file.2 = other.file.2.wrapping_add(1);
        assert!(unwinder.tables(me, &own()).is_none(), "it hangs");
        assert!(unwinder.tables(me, &other).is_none(), "and so does what is behind it");
        std::thread::sleep(Duration::from_millis(30));
        unwinder.learn(me);
        assert!(unwinder.tables(me, &own()).is_some_and(|it| it.is_none()), "given up");
        let deadline = Instant::now() + Duration::from_secs(60);
        while unwinder.tables(me, &other).is_none() {
            assert!(Instant::now() < deadline, "nobody reads any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(hold);
    }

    #[test]
    fn files_and_rules_are_bounded() {
        let mut unwinder = Unwinder::new().expect("a thread");
        unwinder.bytes = MAX_BYTES;
        unwinder.processes.insert(1, Known::default());
        for inode in 0..=MAX_FILES as u64 {
            unwinder.keep((1, 2, inode), None);
        }
        assert_eq!((unwinder.known.len(), unwinder.processes.len(), unwinder.bytes), (1, 0, 0));
        SETS.fetch_add(MAX_SETS, Relaxed);
        unwinder.forget_rules();
        assert!(SETS.load(Relaxed).saturating_sub(unwinder.sets) < MAX_SETS);
    }
}
