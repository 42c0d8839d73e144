//! Bounds of the calling thread's stack, and safe reads in it.
//!
//! ```text
//!   /proc/self/maps
//!     … │ lo ····· sp ····· hi │ [stack]                 the first thread: read directly
//!     … │ guard │ lo ····· sp ····· thread pointer │ …   another thread: its control block is on
//!                                                        top of its stack
//!     … │ ···· sp ···· │                                 neither: a signal stack, or one that the
//!                                                        program allocated
//! ```
//!
//! The first capture of a thread finds the bounds, which costs some tens of microseconds, and
//! caches them: the thread's own stack stays as long as the thread. The signal stack is
//! queried each time (one system call). A stack that the program allocated (coroutines) may be
//! freed at any time: its cached bounds only save the next search, and only the pages in use are
//! read directly.
//!
//! Only two ranges are certain to be mapped and are read directly: `[stack]`, which the kernel
//! never merges with a neighbour, and the pages from the stack pointer to this library's own
//! frames, which are in use. For all other mappings the list in `maps` is not enough: the kernel
//! merges neighbours into one, so that the mapping with the thread pointer may begin in unrelated
//! memory, which is unmapped later; and guard pages may lie inside, unlisted
//! (`MADV_GUARD_INSTALL`, as of glibc 2.42). This memory is read with `process_vm_readv`,
//! [`WINDOW_BYTES`] at a time: the captured stack ends at a hole, without a fault.
//! (`pthread_getattr_np` knows the bounds, but allocates and takes locks, which a signal handler
//! must not do.)

use std::cell::Cell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use rustix::fs::{Mode, OFlags};

/// The smallest page size of all machines.
const MIN_PAGE_BYTES: usize = 4096;
/// Bytes that the kernel reads at once: a part of a page, so that all of them are mapped or none.
const WINDOW_BYTES: usize = 1024;
/// An upper limit of the size of all frames of a write, including its caller's frame.
const MAX_WRITE_FRAME_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = size_of::<usize>();
const MAPS: &CStr = c"/proc/self/maps";

thread_local! {
    // No destructor and no lazy initialization: a signal handler may read them.
    /// The bounds of the thread's own stack, if known.
    static OWN_STACK: OwnStackBounds = const { OwnStackBounds { low: AtomicUsize::new(0), high: AtomicUsize::new(0), is_certain: AtomicBool::new(false) } };
    /// The bounds of another stack that the thread ran on.
    static OTHER_STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// The cached bounds of a thread's own stack. Atomic for the signal handlers of the same thread,
/// not for other threads.
struct OwnStackBounds {
    low: AtomicUsize,
    /// 0 while the bounds are unknown.
    high: AtomicUsize,
    /// The stack is `[stack]`, so all of it is certain to be mapped.
    is_certain: AtomicBool,
}

impl OwnStackBounds {
    /// Returns the bounds, and whether all memory between them is certain to be mapped.
    #[inline(always)]
    fn get(&self) -> (Range<usize>, bool) {
        // The end is read first, because it is set last: once it is set, the other words are set
        // too.
        let high = self.high.load(Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        (self.low.load(Ordering::Relaxed)..high, self.is_certain.load(Ordering::Relaxed))
    }

    /// Sets the bounds. A signal handler in between finds nothing, and searches itself.
    fn set(&self, range: Range<usize>, is_certain: bool) {
        self.high.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.low.store(range.start, Ordering::Relaxed);
        self.is_certain.store(is_certain, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.high.store(range.end, Ordering::Relaxed);
    }
}

/// A buffer for the list of mappings, and then for the part of a stack that the kernel read.
pub(in crate::write) struct WorkBuffer {
    words: [usize; WINDOW_BYTES / WORD_BYTES],
}

impl WorkBuffer {
    pub(in crate::write) const BYTES: usize = WINDOW_BYTES;

    pub(in crate::write) const fn new() -> Self {
        Self { words: [0; WINDOW_BYTES / WORD_BYTES] }
    }

    pub(in crate::write) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the bytes of the words; any bytes are valid words.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), Self::BYTES) }
    }
}

/// The memory that a walk may read.
#[derive(Debug)]
pub(super) struct Readable<'w> {
    /// Certain to be mapped, read directly.
    certain: Range<usize>,
    /// The remainder of the stack in use, read by the kernel.
    uncertain: Range<usize>,
    /// The thread's own stack while another is in use, read by the kernel.
    own_stack: Range<usize>,
    window: KernelReadWindow<'w>,
}

impl<'w> Readable<'w> {
    /// Returns the memory that a walk of this thread may read. The stack pointer is `sp`, `inside`
    /// lies in a frame of this library, and `caller` lies in the frame that called the library.
    /// `caller` is a hint: the compiler may have moved the value out of the stack, so it shows how
    /// far to go, but not that memory is mapped there.
    #[inline]
    pub(super) fn for_current_stack(
        sp: usize,
        inside: usize,
        caller: usize,
        work: &'w mut WorkBuffer,
    ) -> Self {
        if let Some((certain, uncertain)) = split_own_stack(sp, inside) {
            return Self { certain, uncertain, own_stack: 0..0, window: KernelReadWindow::empty(work) };
        }
        Self::for_other_stack(sp, inside, caller, work)
    }

    #[cold]
    #[inline(never)]
    fn for_other_stack(sp: usize, inside: usize, caller: usize, work: &'w mut WorkBuffer) -> Self {
        let signal = signal_stack().filter(|stack| stack.contains(&sp));
        let (other_start, other_end) = OTHER_STACK.get();
        let is_in_known_other = (other_start..other_end).contains(&sp);
        let is_own_known = !OWN_STACK.with(OwnStackBounds::get).0.is_empty();
        // The bounds of a signal stack are known; the search is for those of the own stack then.
        if !is_in_known_other && (signal.is_none() || !is_own_known) {
            cache_stack_bounds(sp, work.bytes());
        }
        if let Some((certain, uncertain)) = split_own_stack(sp, inside) {
            return Self { certain, uncertain, own_stack: 0..0, window: KernelReadWindow::empty(work) };
        }
        let certain_end = page_end(sp, inside);
        // A hint that is farther away is not in this stack.
        let is_near = caller.checked_sub(sp).is_some_and(|distance| distance < MAX_WRITE_FRAME_BYTES);
        let caller_end = if is_near { page_end(certain_end.saturating_sub(1), caller) } else { certain_end };
        // Of a stack that the program allocated, only the pages up to the caller's frame are read.
        let uncertain = certain_end..signal.map_or(caller_end, |stack| stack.end);
        let own_stack = OWN_STACK.with(OwnStackBounds::get).0;
        Self { certain: sp..certain_end, uncertain, own_stack, window: KernelReadWindow::empty(work) }
    }

    #[inline]
    pub(super) fn contains(&self, address: usize) -> bool {
        self.certain.contains(&address)
            || self.uncertain.contains(&address)
            || self.own_stack.contains(&address)
    }

    /// Reads a word of the stack.
    #[inline(always)]
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        let last = address.checked_add(WORD_BYTES - 1)?;
        let is_inside = |range: &Range<usize>| range.start <= address && last < range.end;
        if !address.is_multiple_of(WORD_BYTES) {
            return None;
        }
        if is_inside(&self.certain) {
            // SAFETY: aligned, and in pages that stay mapped and readable while the calling
            // function runs: `[stack]`, or frames in use. Other threads and this one's own frames
            // may write there; the volatile read takes any value.
            return Some(unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_volatile() });
        }
        (is_inside(&self.uncertain) || is_inside(&self.own_stack))
            .then(|| self.window.word(address))
            .flatten()
    }
}

/// Splits the thread's own stack into the part that is certain to be mapped and the remainder, if
/// the stack is known and `sp` is in it.
#[inline(always)]
fn split_own_stack(sp: usize, inside: usize) -> Option<(Range<usize>, Range<usize>)> {
    let (own, is_certain) = OWN_STACK.with(OwnStackBounds::get);
    own.contains(&sp).then(|| {
        let certain = if is_certain { own.end } else { page_end(sp, inside).min(own.end) };
        (sp..certain, certain..own.end)
    })
}

/// Returns the end of the page that holds the higher of two addresses.
#[inline(always)]
fn page_end(first: usize, second: usize) -> usize {
    first.max(second).saturating_add(1).checked_next_multiple_of(MIN_PAGE_BYTES).unwrap_or(first)
}

/// The words that the kernel read last.
#[derive(Debug)]
struct KernelReadWindow<'w> {
    /// A multiple of [`WINDOW_BYTES`]; 1 if nothing was read.
    start: Cell<usize>,
    words: &'w [Cell<usize>],
}

impl<'w> KernelReadWindow<'w> {
    #[inline(always)]
    fn empty(work: &'w mut WorkBuffer) -> Self {
        Self { start: Cell::new(1), words: Cell::from_mut(&mut work.words[..]).as_slice_of_cells() }
    }

    /// Returns the word at an aligned address, if memory is mapped there.
    #[inline(never)]
    fn word(&self, address: usize) -> Option<usize> {
        let offset = address % WINDOW_BYTES;
        let start = address.wrapping_sub(offset);
        if self.start.get() != start {
            self.start.set(1);
            if !read_by_kernel(start, self.words.as_ptr().cast_mut().cast()) {
                return None;
            }
            self.start.set(start);
        }
        self.words.get(offset / WORD_BYTES).map(Cell::get)
    }
}

/// Copies a window from `start`, which may be any address, and returns whether all of it was
/// mapped.
fn read_by_kernel(start: usize, into: *mut usize) -> bool {
    let local = libc::iovec { iov_base: into.cast(), iov_len: WINDOW_BYTES };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: WINDOW_BYTES };
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the caller's buffer has the size of a window; the kernel checks the address that is
    // read. `errno` belongs to the program and is restored.
    unsafe {
        let error = *libc::__errno_location();
        let count = libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0);
        *libc::__errno_location() = error;
        count.cast_unsigned() == WINDOW_BYTES
    }
}

/// Returns the signal stack of this thread.
fn signal_stack() -> Option<Range<usize>> {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: only a query; the structure is writable.
    if unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled by the call.
    let stack = unsafe { stack.assume_init() };
    let start = stack.ss_sp.addr();
    (stack.ss_flags & libc::SS_DISABLE == 0).then(|| start..start.saturating_add(stack.ss_size))
}

/// Finds and caches the bounds of the thread's own stack and, if `sp` is in another stack, of the
/// mapping around `sp`.
fn cache_stack_bounds(sp: usize, chunk: &mut [u8]) {
    let thread = thread_pointer();
    let (mut own_stack, mut first_stack, mut around_sp) = (None, None, None);
    for_each_mapping(chunk, |range, is_first_stack| {
        if range.contains(&sp) {
            around_sp = Some(range.clone());
        }
        if range.contains(&thread) {
            own_stack = Some(range.start..thread);
        }
        if is_first_stack {
            first_stack = Some(range);
        }
    });
    let holds_sp = |range: &Option<Range<usize>>| range.as_ref().is_some_and(|range| range.contains(&sp));
    // The first thread's control block is not on its stack, but where stacks of coroutines may lie.
    let is_first = rustix::thread::gettid() == rustix::process::getpid();
    let is_certain = is_first || holds_sp(&first_stack);
    let choice = if is_certain { first_stack } else { own_stack };
    if !holds_sp(&choice) {
        let around_sp = around_sp.unwrap_or(0..0);
        OTHER_STACK.set((around_sp.start, around_sp.end));
    }
    // Also if `sp` is in another stack, as in a signal handler that is the first to capture.
    if let Some(range) = choice {
        OWN_STACK.with(|own| own.set(range, is_certain));
    }
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word of the thread control block is its own address (System V ABI,
    // thread-local storage).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags))
    };
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: copies a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags))
    };
    pointer
}

/// Calls `each` with every mapping of the process and whether it is the stack of the first thread.
/// Allocates nothing; the list is read in chunks.
fn for_each_mapping(chunk: &mut [u8], mut each: impl FnMut(Range<usize>, bool)) {
    let Ok(maps) = rustix::fs::open(MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
    let mut line = MapsLine::default();
    loop {
        let count = match rustix::io::read(&maps, &mut *chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        for byte in chunk.iter().take(count) {
            if let Some((range, is_first_stack)) = line.push(*byte) {
                each(range, is_first_stack);
            }
        }
    }
}

/// A line of `/proc/self/maps`, read byte by byte: `start-end rw-p … [stack]`.
#[derive(Default)]
struct MapsLine {
    bounds: [usize; 2],
    /// Index of the bound that is being read; 2 after both.
    part: usize,
    /// The last eight bytes.
    tail: u64,
}

impl MapsLine {
    fn push(&mut self, byte: u8) -> Option<(Range<usize>, bool)> {
        const STACK: u64 = u64::from_be_bytes(*b" [stack]");
        match byte {
            b'\n' => {
                let line = std::mem::take(self);
                let [start, end] = line.bounds;
                return (start < end).then_some((start..end, line.tail == STACK));
            }
            b'-' | b' ' if self.part < 2 => self.part += 1,
            _ => {
                if let (Some(bound), Some(digit)) =
                    (self.bounds.get_mut(self.part), char::from(byte).to_digit(16))
                {
                    *bound = *bound << 4 | digit as usize;
                }
            }
        }
        self.tail = self.tail << 8 | u64::from(byte);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines_are_parsed_byte_by_byte() {
        let mut line = MapsLine::default();
        let text =
            "7f00-8f10 rw-p 00000000 00:00 0    [stack]\n1000-2000 r--p 0 08:01 5  /a-b [stack]x\n\nzz\n";
        let mappings: Vec<_> = text.bytes().filter_map(|byte| line.push(byte)).collect();
        assert_eq!(mappings, [(0x7f00..0x8f10, true), (0x1000..0x2000, false)]);
    }

    #[test]
    fn each_thread_finds_its_own_stack() {
        let check = || {
            let local = 0_usize;
            let at = (&raw const local).addr();
            let mut work = WorkBuffer::new();
            let readable = Readable::for_current_stack(at & !7, at, at, &mut work);
            assert!(readable.contains(at) && readable.own_stack.is_empty());
            let Range { start: low, end: high } = OWN_STACK.with(OwnStackBounds::get).0;
            assert!(low <= at && at < high && high - low < 1 << 30);
            (low, high)
        };
        let this_thread = check();
        let other_thread = std::thread::spawn(check).join().unwrap();
        assert!(
            this_thread.1 <= other_thread.0 || other_thread.1 <= this_thread.0,
            "{this_thread:x?} {other_thread:x?}"
        );
    }

    #[test]
    fn memory_outside_the_stack_is_not_read() {
        let local = [1_usize, 2];
        let at = local.as_ptr().expose_provenance();
        let mut work = WorkBuffer::new();
        let readable = Readable::for_current_stack(at, at, at, &mut work);
        assert_eq!((readable.word(at), readable.word(at + 8)), (Some(1), Some(2)));
        let heap = Box::new(7_usize);
        let high = OWN_STACK.with(OwnStackBounds::get).0.end;
        for address in
            [0, 8, at + 1, at - 8, high, high - 7, usize::MAX, usize::MAX - 7, (&raw const *heap).addr()]
        {
            assert_eq!(readable.word(address), None, "{address:#x}");
        }
    }

    #[test]
    fn guard_pages_and_holes_end_a_stack_without_a_fault() {
        let pages = 3;
        // SAFETY: a new mapping, whose middle page may not be read and whose last is unmapped.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), pages * MIN_PAGE_BYTES, access, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            memory.cast::<usize>().byte_add(MIN_PAGE_BYTES - WORD_BYTES).write(7);
            assert_eq!(libc::mprotect(memory.byte_add(MIN_PAGE_BYTES), MIN_PAGE_BYTES, libc::PROT_NONE), 0);
            assert_eq!(libc::munmap(memory.byte_add(2 * MIN_PAGE_BYTES), MIN_PAGE_BYTES), 0);
            memory.expose_provenance()
        };
        let range = start..start + pages * MIN_PAGE_BYTES;
        for (uncertain, own_stack) in [(range.clone(), 0..0), (0..0, range)] {
            let mut work = WorkBuffer::new();
            let readable =
                Readable { certain: 0..0, uncertain, own_stack, window: KernelReadWindow::empty(&mut work) };
            let at = |offset| readable.word(start + offset);
            assert_eq!(
                (at(0), at(MIN_PAGE_BYTES), at(MIN_PAGE_BYTES - WORD_BYTES)),
                (Some(0), None, Some(7))
            );
            assert_eq!(
                (
                    at(2 * MIN_PAGE_BYTES - WORD_BYTES),
                    at(2 * MIN_PAGE_BYTES),
                    at(pages * MIN_PAGE_BYTES),
                    at(0)
                ),
                (None, None, None, Some(0))
            );
        }
        // SAFETY: the two pages of the mapping above that are still mapped; nothing refers to them.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), 2 * MIN_PAGE_BYTES) };
    }
}
