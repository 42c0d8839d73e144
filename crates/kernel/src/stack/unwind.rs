//! Unwinds user stacks of programs without frame pointers, from stack copies and DWARF tables.
//!
//! ```text
//!   sample: registers, stack copy ──▶ modules of the process ──▶ framehop ──▶ return addresses
//!                                          ▲ answers
//!   a new program ──▶ thread that reads files (super::reader; it may hang, and nothing waits for
//!                     it longer than a moment)
//! ```
//!
//! - U1 The modules of a process come from its mappings in /proc. These are read for the first
//!   stack of the process, for the next stack after it has mapped something, and again after a
//!   pause if a file was not read in time.
//! - U2 Each file is read once. A file that was not found is requested again.
//! - U3 The size of all tables together and the numbers of files and processes are bounded. Code
//!   whose tables exceed the bounds is unwound through its frame pointers.
//! - U4 framehop numbers sets of modules with 16 bits, in one sequence for all captures. So its
//!   cache is dropped before the numbers repeat.
//! - U5 A file on which the thread hangs is given up for good, and another thread reads the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder as _,
    UnwinderNative,
};

use super::program::{self, UnwindTables};
use super::reader::{ModuleFileKey, ModuleMapping, ReadTables, TableAnswer, TableReader};
use super::registers::read_register;
use crate::maps;
use crate::record::{Mmap, PerfSample};

/// Upper bound for the bytes of all tables together.
const MAX_TABLE_BYTES: usize = 512 << 20;
/// The largest number of processes with stored modules.
const MAX_PROCESSES: usize = 4096;
/// The largest number of modules of one process.
const MAX_MODULES: usize = 1024;
/// The largest number of files with stored tables.
const MAX_FILES: usize = 4096;
/// The pause before files that were not read in time are requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time after which a read counts as hanging, chosen for busy disks.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of module sets after which framehop's cache is dropped.
const MAX_MODULE_SETS: u64 = 60_000;

type ModuleUnwinder = UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>;

/// The modules of a process.
#[derive(Default)]
struct ProcessModules {
    modules: ModuleUnwinder,
    files: HashSet<ModuleFileKey>,
    /// Whether the process has mapped something since its modules were read.
    is_stale: bool,
    /// The time at which missing files are requested again.
    retry_at: Option<Instant>,
}

/// The number of module sets that framehop has numbered, in all captures.
static MODULE_SETS: AtomicU64 = AtomicU64::new(0);

/// Unwinds the user stacks of all processes.
pub(crate) struct StackUnwinder {
    processes: HashMap<u32, ProcessModules>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// The value of [`MODULE_SETS`] when the cache was created.
    sets_before_cache: u64,
    tables: HashMap<ModuleFileKey, Option<Arc<UnwindTables>>>,
    /// The size of all stored tables.
    bytes: usize,
    /// Files on which a thread hangs or has ended.
    abandoned_files: HashSet<ModuleFileKey>,
    read: ReadTables,
    /// `None` while too many threads hang.
    reader: Option<TableReader>,
    hang_timeout: Duration,
}

impl std::fmt::Debug for StackUnwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackUnwinder").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

impl StackUnwinder {
    /// Creates an unwinder without modules. Returns `None` if no thread can be started.
    pub(crate) fn new() -> Option<Self> {
        let read = |process: u32, mapping: &ModuleMapping| {
            program::read_tables(process, &mapping.range, &mapping.path, mapping.file.inode)
        };
        Self::with_reader(Arc::new(read), HANG_TIMEOUT)
    }

    fn with_reader(read: ReadTables, hang_timeout: Duration) -> Option<Self> {
        Some(Self {
            processes: HashMap::new(),
            cache: CacheNative::new(),
            sets_before_cache: MODULE_SETS.load(Relaxed),
            tables: HashMap::new(),
            bytes: 0,
            abandoned_files: HashSet::new(),
            reader: Some(TableReader::start(&read)?),
            read,
            hang_timeout,
        })
    }

    /// Records that a process has mapped a file, so that its modules are read again for its next
    /// stack.
    pub(crate) fn note_mapping(&mut self, mmap: &Mmap<'_>) {
        if let Some(process) = self.processes.get_mut(&mmap.pid) {
            process.is_stale = true;
        }
    }

    /// Drops the modules of a process that has executed another program or ended.
    pub(crate) fn forget_process(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Returns whether modules of a process are stored.
    #[cfg(test)]
    pub(crate) fn has_process(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// Appends the user frames of a sample, innermost first. Returns whether there are any.
    pub(crate) fn put_frames(
        &mut self,
        sample: &PerfSample<'_>,
        max_frames: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(start) = read_unwind_start(sample.user_regs) else { return false };
        self.update_modules(sample.pid);
        self.limit_cache();
        let Some(ProcessModules { modules, .. }) = self.processes.get(&sample.pid) else { return false };
        let mut read_stack = |address: u64| {
            let offset = address.checked_sub(start.stack_pointer).ok_or(())?;
            let offset = usize::try_from(offset).map_err(|_| ())?;
            let word = sample.user_stack.get(offset..).and_then(|tail| tail.first_chunk::<8>()).ok_or(())?;
            Ok(u64::from_le_bytes(*word))
        };
        let mut frames =
            modules.iter_frames(start.instruction_pointer, start.registers, &mut self.cache, &mut read_stack);
        let mut count = 0_usize;
        while let Ok(Some(frame)) = frames.next() {
            if count == max_frames {
                break;
            }
            out.extend_from_slice(&frame.address().to_le_bytes());
            count = count.saturating_add(1);
        }
        count > 0
    }

    /// Reads the modules of a process if they are unknown or out of date.
    fn update_modules(&mut self, process: u32) {
        self.take_answers(None);
        self.replace_stuck_reader();
        if !self.processes.contains_key(&process) {
            if self.processes.len() >= MAX_PROCESSES {
                self.processes.clear();
            }
            MODULE_SETS.fetch_add(1, Relaxed);
            self.processes.insert(process, ProcessModules { is_stale: true, ..ProcessModules::default() });
        }
        let Some(entry) = self.processes.get_mut(&process) else { return };
        let is_due = entry.retry_at.is_some_and(|retry_at| retry_at <= Instant::now());
        if !std::mem::take(&mut entry.is_stale) && !is_due {
            return;
        }
        entry.retry_at = None;
        let mut is_complete = true;
        for mapping in list_mappings(process) {
            is_complete &= self.add_mapping(process, &mapping);
        }
        if !is_complete && let Some(entry) = self.processes.get_mut(&process) {
            entry.retry_at = Instant::now().checked_add(RETRY_PAUSE);
        }
    }

    /// Drops framehop's cache before its ids wrap around.
    fn limit_cache(&mut self) {
        let sets = MODULE_SETS.load(Relaxed);
        if sets.saturating_sub(self.sets_before_cache) >= MAX_MODULE_SETS {
            (self.cache, self.sets_before_cache) = (CacheNative::new(), sets);
        }
    }

    /// Adds a mapping to the modules of its process. Returns `false` if its file is not read yet.
    fn add_mapping(&mut self, process: u32, mapping: &ModuleMapping) -> bool {
        let has_file = |entry: &ProcessModules| entry.files.contains(&mapping.file);
        if self.processes.get(&process).is_none_or(has_file) {
            return true;
        }
        let Some(answer) = self.find_tables(process, mapping) else { return false };
        let Some(tables) = answer else { return true };
        // Storing tables may have removed all processes.
        let Some(ProcessModules { modules, files, .. }) = self.processes.get_mut(&process) else {
            return true;
        };
        if files.len() >= MAX_MODULES || !files.insert(mapping.file) {
            return true;
        }
        // The address at which the first byte of the file is, or would be.
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
        MODULE_SETS.fetch_add(1, Relaxed);
        true
    }

    /// Returns the tables of a file. Waits for a moment if they have to be read. Returns `None` if
    /// they were not read in time, or the file was not found.
    fn find_tables(&mut self, process: u32, mapping: &ModuleMapping) -> TableAnswer {
        if let Some(tables) = self.tables.get(&mapping.file) {
            return Some(tables.clone());
        }
        if self.abandoned_files.contains(&mapping.file) {
            return Some(None);
        }
        if !self.reader.as_mut()?.request(process, mapping) {
            return None;
        }
        self.take_answers(Some(mapping.file));
        self.tables.get(&mapping.file).cloned()
    }

    /// Gives up a file on which the reader hangs or has ended, and starts another reader.
    fn replace_stuck_reader(&mut self) {
        if let Some(file) = self.reader.as_ref().and_then(|reader| reader.stuck_file(self.hang_timeout)) {
            // Hanging takes time, so there are never many such files; but a thread that panics ends
            // at once.
            if self.abandoned_files.len() >= MAX_FILES {
                self.abandoned_files.clear();
            }
            self.abandoned_files.insert(file);
            self.reader = None;
        }
        if self.reader.is_none() {
            self.reader = TableReader::start(&self.read);
        }
    }

    /// Stores the tables that were read. Waits for a moment if `awaited_file` names a file.
    fn take_answers(&mut self, mut awaited_file: Option<ModuleFileKey>) {
        loop {
            let answer = self.reader.as_mut().and_then(|reader| reader.next_answer(awaited_file.is_some()));
            let Some((file, answer)) = answer else { return };
            awaited_file = awaited_file.filter(|awaited| *awaited != file);
            if let Some(tables) = answer {
                self.store_tables(file, tables);
            }
        }
    }

    fn store_tables(&mut self, file: ModuleFileKey, tables: Option<Arc<UnwindTables>>) {
        if self.tables.len() >= MAX_FILES {
            // The modules of processes hold tables too.
            self.tables.clear();
            self.processes.clear();
            self.bytes = 0;
        }
        let size = tables.as_ref().map_or(0, |tables| tables.table_bytes());
        let total_bytes = self.bytes.saturating_add(size);
        let tables = tables.filter(|_| total_bytes <= MAX_TABLE_BYTES);
        if tables.is_some() {
            self.bytes = total_bytes;
        }
        self.tables.insert(file, tables);
    }
}

/// The registers with which unwinding starts.
struct UnwindStart {
    instruction_pointer: u64,
    stack_pointer: u64,
    registers: UnwindRegsNative,
}

#[cfg(target_arch = "x86_64")]
fn read_unwind_start(regs: &[u8]) -> Option<UnwindStart> {
    let (rbp, rsp, rip) = (read_register(regs, 6)?, read_register(regs, 7)?, read_register(regs, 8)?);
    let registers = UnwindRegsNative::new(rip, rsp, rbp);
    Some(UnwindStart { instruction_pointer: rip, stack_pointer: rsp, registers })
}

#[cfg(target_arch = "aarch64")]
fn read_unwind_start(regs: &[u8]) -> Option<UnwindStart> {
    let (fp, lr, sp, pc) = (
        read_register(regs, 29)?,
        read_register(regs, 30)?,
        read_register(regs, 31)?,
        read_register(regs, 32)?,
    );
    let registers = UnwindRegsNative::new(lr, sp, fp);
    Some(UnwindStart { instruction_pointer: pc, stack_pointer: sp, registers })
}

/// Lists the executable file mappings of a process, from /proc.
fn list_mappings(process: u32) -> impl Iterator<Item = ModuleMapping> {
    let maps = maps::read_code_mappings(process).into_iter().filter(|map| map.inode != 0).take(MAX_MODULES);
    maps.map(|map| ModuleMapping {
        range: map.start..map.end,
        offset: map.offset,
        file: ModuleFileKey { device: map.device, inode: map.inode },
        path: map.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a mapping of this program.
    fn find_own_mapping() -> ModuleMapping {
        let exe = std::fs::read_link("/proc/self/exe").expect("the link of this program is not readable");
        let is_own = |mapping: &ModuleMapping| std::path::Path::new(&mapping.path) == exe;
        list_mappings(std::process::id()).find(is_own).expect("this program is not mapped")
    }

    #[test]
    fn missing_file_is_requested_again() {
        let mut unwinder = StackUnwinder::new().expect("the reader thread does not start");
        let own_pid = std::process::id();
        let mut other = find_own_mapping();
        other.file.inode = other.file.inode.wrapping_add(1);
        let answer = unwinder.find_tables(own_pid, &other);
        assert!(answer.is_none(), "read another file with this path");
        assert!(unwinder.tables.is_empty(), "stored tables of a missing file");
        unwinder.processes.insert(own_pid, ProcessModules::default());
        assert!(!unwinder.add_mapping(own_pid, &other), "a missing file counts as read");
        unwinder.update_modules(own_pid);
        let entry = &unwinder.processes[&own_pid];
        assert!(entry.files.is_empty() && entry.retry_at.is_none(), "read without a new mapping");
        unwinder.processes.get_mut(&own_pid).expect("the process has no entry").retry_at =
            Some(Instant::now());
        // The thread may be late on a busy machine.
        for _ in 0..100 {
            unwinder.update_modules(own_pid);
            if unwinder.tables.contains_key(&find_own_mapping().file) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the file was not requested again");
    }

    #[test]
    fn file_on_which_the_reader_hangs_is_given_up() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let hanging = find_own_mapping().file;
        let read = move |_: u32, mapping: &ModuleMapping| {
            if mapping.file == hanging {
                let _ = released.lock().map(|released| released.recv());
            }
            Some(None)
        };
        let mut unwinder = StackUnwinder::with_reader(Arc::new(read), Duration::from_millis(20))
            .expect("the reader thread does not start");
        let own_pid = std::process::id();
        let mut other = find_own_mapping();
        other.file.inode = other.file.inode.wrapping_add(1);
        assert!(unwinder.find_tables(own_pid, &find_own_mapping()).is_none(), "the thread does not hang");
        assert!(unwinder.find_tables(own_pid, &other).is_none(), "the next request did not wait");
        std::thread::sleep(Duration::from_millis(30));
        unwinder.update_modules(own_pid);
        assert!(
            unwinder.find_tables(own_pid, &find_own_mapping()).is_some_and(|tables| tables.is_none()),
            "the file was not given up"
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        while unwinder.find_tables(own_pid, &other).is_none() {
            assert!(Instant::now() < deadline, "no thread reads any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(release);
    }

    #[test]
    fn files_and_cache_are_bounded() {
        let mut unwinder = StackUnwinder::new().expect("the reader thread does not start");
        unwinder.bytes = MAX_TABLE_BYTES;
        unwinder.processes.insert(1, ProcessModules::default());
        for inode in 0..=MAX_FILES as u64 {
            unwinder.store_tables(ModuleFileKey { device: (1, 2), inode }, None);
        }
        assert_eq!((unwinder.tables.len(), unwinder.processes.len(), unwinder.bytes), (1, 0, 0));
        MODULE_SETS.fetch_add(MAX_MODULE_SETS, Relaxed);
        unwinder.limit_cache();
        assert!(MODULE_SETS.load(Relaxed).saturating_sub(unwinder.sets_before_cache) < MAX_MODULE_SETS);
    }
}
