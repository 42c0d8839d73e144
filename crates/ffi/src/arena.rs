//! The memory of this library's own code in a program that replaces `malloc`.
//!
//! Such a program may call this library from inside its allocator, while it holds the allocator's
//! lock: for example, it may register a provider during the first allocation. So in such a program
//! the library takes its memory from the kernel and never calls the program's `malloc`. In all
//! other programs it uses the C library's `malloc`.
//!
//! ```text
//!   size ≤ 64 KiB   a class for each power of two from 16 bytes: a list of free blocks, and a span
//!                   from which blocks are cut; spans are never returned
//!   larger          a mapping of its own, which ends with the block
//! ```
//!
//! Invariants
//!
//! 1. The choice between this memory and `malloc` never changes in a process, so a block is freed
//!    where it was allocated: [`is_malloc_replaced`] depends only on what the loader bound.
//! 2. A forked child finds every lock free, because the kernel zeroes the memory of the locks in a
//!    child (if it supports MADV_WIPEONFORK). A change of a class takes effect with its last store,
//!    so the child finds a consistent class even if another thread was changing it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use traceweir::load::is_malloc_replaced;

/// The binary logarithms of the smallest and the largest size of a class.
const MIN_SHIFT: u32 = 4;
const MAX_SHIFT: u32 = 16;
const CLASS_COUNT: usize = (MAX_SHIFT - MIN_SHIFT + 1) as usize;
/// Bytes that a class maps at a time: a multiple of the block size of every class.
const SPAN_BYTES: usize = 256 * 1024;
/// Blocks of a class are aligned to their size, at most to this.
const PAGE_BYTES: usize = 4096;
/// Attempts to take a lock before the thread sleeps.
const SPINS: u32 = 64;
/// The time that a thread sleeps if a lock is taken, in nanoseconds.
const SLEEP_NS: i64 = 20_000;

/// A free block; the first bytes hold the next one.
#[repr(C)]
struct FreeBlock {
    next: *mut FreeBlock,
}

/// One size of blocks. The lock with the same index protects it.
struct Class {
    free: Cell<*mut FreeBlock>,
    /// The next block of the current span; 0 if the span is used up.
    next: Cell<usize>,
    /// The end of the current span.
    end: Cell<usize>,
}

/// The allocator of this library.
pub(crate) struct Arena {
    classes: [Class; CLASS_COUNT],
}

// SAFETY: a thread uses a class only while it holds the lock of the class.
unsafe impl Sync for Arena {}

#[global_allocator]
static ARENA: Arena = Arena {
    classes: [const { Class { free: Cell::new(null_mut()), next: Cell::new(0), end: Cell::new(0) } };
        CLASS_COUNT],
};

type Locks = [AtomicU32; CLASS_COUNT];

/// Used if the kernel cannot zero memory in a forked child.
static STATIC_LOCKS: Locks = [const { AtomicU32::new(0) }; CLASS_COUNT];
static LOCKS: AtomicPtr<Locks> = AtomicPtr::new(null_mut());

/// Returns the locks. They are mapped by the first allocation of the process.
fn locks() -> &'static Locks {
    let mut current = LOCKS.load(Ordering::Acquire);
    if current.is_null() {
        let mapped = map_locks();
        // Another thread may have been faster: its locks count, and these stay unused.
        current = match LOCKS.compare_exchange(null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => mapped,
            Err(other) => other,
        };
    }
    // SAFETY: `STATIC_LOCKS` or a page that stays mapped; zeros are valid locks.
    unsafe { &*current }
}

/// Maps locks that are free in a forked child.
fn map_locks() -> *mut Locks {
    let page = map(PAGE_BYTES);
    // SAFETY: the page that was mapped just now.
    if !page.is_null() && unsafe { libc::madvise(page.cast(), PAGE_BYTES, libc::MADV_WIPEONFORK) } == 0 {
        return page.cast();
    }
    (&raw const STATIC_LOCKS).cast_mut()
}

/// A lock that is released when this is dropped.
struct LockGuard(&'static AtomicU32);

impl LockGuard {
    fn take(lock: &'static AtomicU32) -> Self {
        let mut attempts = 0_u32;
        while lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            attempts = attempts.saturating_add(1);
            if attempts < SPINS {
                std::hint::spin_loop();
            } else {
                let pause = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS };
                // SAFETY: reads the time and writes nothing.
                unsafe { libc::nanosleep(&raw const pause, null_mut()) };
            }
        }
        Self(lock)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Maps zeroed memory; null if the kernel has none.
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a new private anonymous mapping; nothing else is touched.
    let at = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { null_mut() } else { at.cast() }
}

/// The place where the block of a layout is allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    Class(u32),
    /// A mapping of its own, of this many bytes.
    Mapping(usize),
    /// No place: the size exceeds all memory, or nothing in this library has such an alignment.
    Nowhere,
}

impl Placement {
    fn for_size(size: usize, align: usize) -> Self {
        let bytes = size.max(align).max(1 << MIN_SHIFT);
        if align > PAGE_BYTES {
            return Self::Nowhere;
        }
        match bytes.checked_next_power_of_two() {
            Some(class) if class <= 1 << MAX_SHIFT => {
                Self::Class(class.trailing_zeros().saturating_sub(MIN_SHIFT))
            }
            _ => bytes.checked_next_multiple_of(PAGE_BYTES).map_or(Self::Nowhere, Self::Mapping),
        }
    }
}

impl Class {
    fn allocate(&self, block_bytes: usize) -> *mut u8 {
        let first = self.free.get();
        if !first.is_null() {
            // SAFETY: blocks in the list are free and hold the next one.
            self.free.set(unsafe { (*first).next });
            return first.cast();
        }
        if self.next.get() == 0 {
            let span = map(SPAN_BYTES);
            if span.is_null() {
                return null_mut();
            }
            let start = span.expose_provenance();
            self.end.set(start.saturating_add(SPAN_BYTES));
            // Orders the stores for a forked child (invariant 2).
            fence(Ordering::Release);
            self.next.set(start);
        }
        let block = self.next.get();
        let next = block.saturating_add(block_bytes);
        self.next.set(if next < self.end.get() { next } else { 0 });
        ptr::with_exposed_provenance_mut(block)
    }

    fn free(&self, block: *mut FreeBlock) {
        // SAFETY: the block was allocated in this class and is not used any more.
        unsafe { (*block).next = self.free.get() };
        // As in `allocate`.
        fence(Ordering::Release);
        self.free.set(block);
    }
}

// SAFETY: a block is memory of at least its layout's size and alignment that no other block uses
// until it is freed. It is aligned because mappings begin at a page, and `Placement` refuses larger
// alignments. Nothing here panics or allocates.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_malloc_replaced() {
            // SAFETY: the caller fulfils the contract of `GlobalAlloc`, as below.
            return unsafe { System.alloc(layout) };
        }
        match Placement::for_size(layout.size(), layout.align()) {
            Placement::Class(number) => {
                let (Some(class), Some(lock)) =
                    (self.classes.get(number as usize), locks().get(number as usize))
                else {
                    return null_mut();
                };
                let _lock = LockGuard::take(lock);
                class.allocate(1 << number.saturating_add(MIN_SHIFT))
            }
            Placement::Mapping(bytes) => map(bytes),
            Placement::Nowhere => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_malloc_replaced() {
            // SAFETY: as in `alloc`.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as in `alloc`.
        let block = unsafe { self.alloc(layout) };
        // New mappings are zero.
        if !block.is_null()
            && matches!(Placement::for_size(layout.size(), layout.align()), Placement::Class(_))
        {
            // SAFETY: the block has this many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_malloc_replaced() {
            // SAFETY: as in `alloc`; the block is of `System`, since the choice never changes.
            return unsafe { System.dealloc(block, layout) };
        }
        match Placement::for_size(layout.size(), layout.align()) {
            Placement::Class(number) => {
                if let (Some(class), Some(lock)) =
                    (self.classes.get(number as usize), locks().get(number as usize))
                {
                    let _lock = LockGuard::take(lock);
                    class.free(block.cast());
                }
            }
            // SAFETY: the whole mapping of this block.
            Placement::Mapping(bytes) => unsafe {
                libc::munmap(block.cast(), bytes);
            },
            Placement::Nowhere => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_malloc_replaced() {
            // SAFETY: as in `dealloc`.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        let (from, to) = (
            Placement::for_size(layout.size(), layout.align()),
            Placement::for_size(new_size, layout.align()),
        );
        if from == to {
            return block;
        }
        if let (Placement::Mapping(old), Placement::Mapping(new)) = (from, to) {
            // SAFETY: the whole mapping of this block, which the caller does not use any more.
            let at = unsafe { libc::mremap(block.cast(), old, new, libc::MREMAP_MAYMOVE) };
            return if at == libc::MAP_FAILED { null_mut() } else { at.cast() };
        }
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else { return null_mut() };
        // SAFETY: as in `alloc`. The copy has the size of the smaller block, and the blocks do not
        // overlap. The old block is not used any more.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
