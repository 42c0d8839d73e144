//! Which memory is the stack of the calling thread.
//!
//! ```text
//!   /proc/self/maps    … │ guard │ lo ····· sp ····· thread pointer │ …        a thread: its control block lies on top of its stack
//!                      … │ lo ····· sp ····· hi │ [stack]                      the first thread
//!                      … │ ···· sp ···· │                                      neither: a signal stack, or one that the program made itself
//! ```
//!
//! Looked up by the first stack of a thread, which costs some tens of microseconds; remembered for the thread, whose own stack stays as long as it
//! lives. A signal stack is asked for each time (one system call). A stack that the program made itself (coroutines) may be gone tomorrow and is not
//! remembered: of it, only the page that is known to be in use is read.

use std::cell::Cell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::fs::{Mode, OFlags};

/// No machine has smaller pages.
const PAGE: usize = 4096;
/// A part of the list of mappings: little, because signal stacks are small.
const CHUNK: usize = 1024;
const MAPS: &CStr = c"/proc/self/maps";

thread_local! {
    // No destructor and no lazy start: a signal handler may look at them.
    /// The thread's own stack, as far as it is known.
    static OWN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// A stack that is none of the thread's own.
    static FOREIGN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Memory that may be read.
#[derive(Debug)]
pub(super) struct Readable {
    here: Range<usize>,
    /// The thread's own stack, while another is in use.
    own: Range<usize>,
}

impl Readable {
    /// What a thread may read whose stack pointer is `sp` and which was called from a frame that `caller` lies in.
    #[inline]
    pub(super) fn here(sp: usize, caller: usize) -> Self {
        let (low, high) = OWN.get();
        if low <= sp && sp < high {
            return Self { here: sp..high, own: 0..0 };
        }
        Self::elsewhere(sp, caller)
    }

    #[cold]
    fn elsewhere(sp: usize, caller: usize) -> Self {
        let signal = signal_stack().filter(|stack| stack.contains(&sp));
        let (foreign, own) = (FOREIGN.get(), OWN.get());
        let is_known_foreign = foreign.0 <= sp && sp < foreign.1;
        if !is_known_foreign && (signal.is_none() || own.1 == 0) {
            look(sp);
        }
        let (low, high) = OWN.get();
        if low <= sp && sp < high {
            return Self { here: sp..high, own: 0..0 };
        }
        // All frames from here to the caller's are in use, and so is the page that holds it.
        let in_use = caller.max(sp).saturating_add(1).next_multiple_of(PAGE);
        Self { here: sp..signal.map_or(in_use, |stack| stack.end), own: low..high }
    }

    #[inline]
    pub(super) fn contains(&self, address: usize) -> bool {
        self.here.contains(&address) || self.own.contains(&address)
    }

    /// A word of the stack.
    #[inline(always)]
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        let last = address.checked_add(7)?;
        let is_inside = |range: &Range<usize>| range.start <= address && last < range.end;
        if !address.is_multiple_of(8) || !(is_inside(&self.here) || is_inside(&self.own)) {
            return None;
        }
        // SAFETY: aligned, and inside the calling thread's stack: mapped and readable while the thread lives. Other threads and this one's own frames may write
        // there; the volatile read takes whatever it finds.
        Some(unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_volatile() })
    }
}

/// The signal stack of this thread.
fn signal_stack() -> Option<Range<usize>> {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: only asks; the structure is writable.
    if unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled by the call.
    let stack = unsafe { stack.assume_init() };
    let start = stack.ss_sp.addr();
    (stack.ss_flags & libc::SS_DISABLE == 0).then(|| start..start.saturating_add(stack.ss_size))
}

/// Finds the thread's own stack and remembers it, or that `sp` is in another.
fn look(sp: usize) {
    let thread = thread_pointer();
    let (mut own, mut first, mut around) = (None, None, None);
    mappings(|range, is_first_stack| {
        if range.contains(&sp) {
            around = Some(range.clone());
        }
        if range.contains(&thread) {
            own = Some(range.start..thread);
        }
        if is_first_stack {
            first = Some(range);
        }
    });
    let holds = |range: &Option<Range<usize>>| range.as_ref().is_some_and(|range| range.contains(&sp));
    let is_first = rustix::thread::gettid() == rustix::process::getpid();
    // Where `sp` is in neither, a signal handler is the first to ask: then the thread's own stack is a matter of which thread it is.
    let choice = match (holds(&own), holds(&first)) {
        (true, _) => own,
        (_, true) => first,
        _ => {
            let around = around.unwrap_or(0..0);
            FOREIGN.set((around.start, around.end));
            if is_first { first } else { own }
        }
    };
    if let Some(range) = choice {
        // A signal handler that comes in between finds nothing, and looks itself.
        OWN.set((0, 0));
        compiler_fence(Ordering::Release);
        OWN.set((range.start, range.end));
    }
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word of the thread control block is its own address (System V ABI, thread-local storage).
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

/// All mappings of the process, and whether each is the stack of its first thread. Allocates nothing.
fn mappings(mut each: impl FnMut(Range<usize>, bool)) {
    let Ok(maps) = rustix::fs::open(MAPS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
    let mut line = Line::default();
    let mut chunk = [0; CHUNK];
    loop {
        let count = match rustix::io::read(&maps, &mut chunk) {
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

/// A line of the list, read byte by byte: `start-end rw-p … [stack]`.
#[derive(Default)]
struct Line {
    bounds: [usize; 2],
    part: usize,
    /// The last eight bytes.
    tail: u64,
}

impl Line {
    fn push(&mut self, byte: u8) -> Option<(Range<usize>, bool)> {
        const STACK: u64 = u64::from_be_bytes(*b" [stack]");
        match byte {
            b'\n' => {
                let done = std::mem::take(self);
                let [start, end] = done.bounds;
                return (start < end).then_some((start..end, done.tail == STACK));
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
    fn lines_are_read_byte_by_byte() {
        let mut line = Line::default();
        let text =
            "7f00-8f10 rw-p 00000000 00:00 0    [stack]\n1000-2000 r--p 0 08:01 5  /a-b [stack]x\n\nzz\n";
        let found: Vec<_> = text.bytes().filter_map(|byte| line.push(byte)).collect();
        assert_eq!(found, [(0x7f00..0x8f10, true), (0x1000..0x2000, false)]);
    }

    #[test]
    fn each_thread_finds_its_own_stack() {
        let check = || {
            let local = 0_usize;
            let at = (&raw const local).addr();
            let readable = Readable::here(at & !7, at);
            assert!(readable.contains(at) && readable.own.is_empty());
            let (low, high) = OWN.get();
            assert!(low <= at && at < high && high - low < 1 << 30);
            (low, high)
        };
        let mine = check();
        let other = std::thread::spawn(check).join().unwrap();
        assert!(mine.1 <= other.0 || other.1 <= mine.0, "{mine:x?} {other:x?}");
    }

    #[test]
    fn nothing_else_is_read() {
        let local = [1_usize, 2];
        let at = local.as_ptr().expose_provenance();
        let readable = Readable::here(at, at);
        assert_eq!((readable.word(at), readable.word(at + 8)), (Some(1), Some(2)));
        let heap = Box::new(7_usize);
        let (_, high) = OWN.get();
        for address in
            [0, 8, at + 1, at - 8, high, high - 7, usize::MAX, usize::MAX - 7, (&raw const *heap).addr()]
        {
            assert_eq!(readable.word(address), None, "{address:#x}");
        }
    }
}
