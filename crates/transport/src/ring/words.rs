//! The words of one ring's control block. Only this file accesses them in Rust; the loom models run
//! this code.
//!
//! ```text
//!   writer: lock? ─ find_slot ─ copy ─ publish ─ unlock   reader: load_head ─ copy ─ publish_taken
//!                    ▲ tail                └────── head ───────▲              │ tail, read
//!                    └────────────────────────────────────────────────────────┘
//! ```
//!
//! The rseq writer does `find_slot` and `publish` in assembly, with the same loads and stores in
//! the same order. The fields are private, so there are no other accesses. R1 to R8 are the
//! invariants in ring.rs.

#[cfg(not(loom))]
use crate::abi;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The control words of a ring.
#[derive(Clone, Copy)]
pub(crate) struct ControlWords<'a> {
    head: &'a AtomicU64,
    lock: &'a AtomicU32,
    lost: &'a AtomicU64,
    woken: &'a AtomicU64,
    tail: &'a AtomicU64,
    read: &'a AtomicU64,
}

/// Position of a record to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordSlot {
    /// Offset of a skip marker, if the record does not fit before the ring's end.
    pub(crate) marker: Option<usize>,
    /// Offset of the record.
    pub(crate) offset: usize,
    /// Position after the record.
    pub(crate) end: u64,
}

impl RecordSlot {
    /// Finds the slot of `size` bytes in a ring with this head and tail; `None` if it does not fit
    /// (R3, R4).
    pub(crate) fn find(head: u64, tail: u64, size: u64, ring_bytes: u64) -> Option<Self> {
        let at = head & ring_bytes.checked_sub(1)?;
        let left = ring_bytes - at;
        let (marker, at, pad) = if size > left { (usize::try_from(at).ok(), 0, left) } else { (None, at, 0) };
        let end = head.wrapping_add(pad).wrapping_add(size);
        let fits = end.wrapping_sub(tail) <= ring_bytes;
        fits.then_some(Self { marker, offset: usize::try_from(at).ok()?, end })
    }
}

#[cfg(loom)]
impl<'a> ControlWords<'a> {
    /// Creates the words of a model.
    pub(crate) fn new([head, lost, woken, tail, read]: [&'a AtomicU64; 5], lock: &'a AtomicU32) -> Self {
        Self { head, lock, lost, woken, tail, read }
    }
}

impl ControlWords<'_> {
    /// Tries to take the ring's lock. Returns whether it was free.
    pub(crate) fn try_lock(&self, thread: u32) -> bool {
        // Acquire pairs with the release in `unlock`: this writer continues from the head that the
        // last writer stored (R2).
        self.lock.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn unlock(&self) {
        // Pairs with the acquire in `try_lock` (R2).
        self.lock.store(0, Ordering::Release);
    }

    /// Releases the lock if this thread still holds it. A writer calls this if it finds the outlet
    /// closed only after it took the lock: another region, with locks of other threads, may be at
    /// these addresses by now.
    pub(crate) fn unlock_if_held_by(&self, thread: u32) {
        // Release as in `unlock`, although this thread wrote nothing while it held the lock. On
        // failure there is nothing to release: the locked word was replaced with its region.
        let _ = self.lock.compare_exchange(thread, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Finds the slot of `size` bytes. The result is exact only while the caller holds the lock;
    /// otherwise it is a guess.
    pub(crate) fn find_slot(&self, size: u64, ring_bytes: u64) -> Option<RecordSlot> {
        // Only the holder of the lock stores the head, so its own value needs no order.
        let head = self.head.load(Ordering::Relaxed);
        // Acquire pairs with the release in `publish_taken`: the reader has finished copying the
        // bytes that may now be overwritten (R3).
        RecordSlot::find(head, self.tail.load(Ordering::Acquire), size, ring_bytes)
    }

    /// Publishes everything up to `end`. The caller must hold the lock.
    pub(crate) fn publish(&self, end: u64) {
        // Pairs with the acquire in `load_head`: a thread that sees the head sees the record (R1).
        self.head.store(end, Ordering::Release);
    }

    /// Counts a record that was offered and not published (R8).
    pub(crate) fn count_lost(&self) {
        // Relaxed, here and in `lost`: the number orders no other access. A read after a close is
        // complete: `close` waits for visitors, and the owner learns of the close by a system call.
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the owner has closed the ring, for a writer that found the ring full.
    #[cfg(not(loom))]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: nothing depends on its order.
        self.tail.load(Ordering::Relaxed) & abi::STORE_FULL != 0
    }

    #[cfg(not(loom))]
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns whether at least `wake_at` bytes are unread and no thread has woken the owner since
    /// its last read. For most records, these two plain loads are the only cost of waking.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn may_need_wake(&self, end: u64, wake_at: u32) -> bool {
        // Relaxed, as in `claim_wake`, which decides.
        let read = self.read.load(Ordering::Relaxed);
        end.wrapping_sub(read) >= u64::from(wake_at)
            && self.woken.load(Ordering::Relaxed) != read.wrapping_add(1)
    }

    /// Returns whether the thread that published up to `end` must wake the owner: once for each
    /// position that the owner has read to (R6).
    pub(crate) fn claim_wake(&self, end: u64) -> bool {
        // Relaxed, here and in `publish_taken`: the position is only compared; it frees no bytes.
        // An old value costs at most a missed wake, and the owner polls once more before it sleeps.
        let read = self.read.load(Ordering::Relaxed);
        let woken = self.woken.load(Ordering::Relaxed);
        // `woken` is 1 more than the `read` of the last wake; 0 means that there was none.
        let mark = read.wrapping_add(1);
        // `end` is not above `read` if the owner has taken the record meanwhile.
        let is_unread = end.wrapping_sub(read).cast_signed() > 0;
        // Relaxed: the exchange only elects one of several writers; the wake itself is a system
        // call, which orders by itself.
        is_unread
            && woken != mark
            && self.woken.compare_exchange(woken, mark, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns the position up to which records can be read.
    pub(crate) fn load_head(&self) -> u64 {
        // Pairs with the release in `publish`, and with the last store of the rseq sequence (R1).
        self.head.load(Ordering::Acquire)
    }

    /// Stores that the owner has read up to `read`, and that bytes up to `tail` may be overwritten.
    pub(crate) fn publish_taken(&self, read: u64, tail: u64) {
        // `read` is stored before the release of the tail: a thread that sees the tail sees a
        // `read` that is not below it.
        self.read.store(read, Ordering::Relaxed);
        // Pairs with the acquire in `find_slot`, and with the load of the tail in the rseq sequence
        // (R3).
        self.tail.store(tail, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl ControlWords<'_> {
    /// Returns the words of a control block.
    ///
    /// # Safety
    /// `control` is the beginning of a control block, a multiple of eight, mapped for as long as
    /// the words are used.
    #[inline]
    pub(crate) unsafe fn from_control(control: *mut u8) -> Self {
        // SAFETY: the caller promises a mapped, aligned control block; all offsets lie inside it
        // and every access to these words, here and in the other process, is atomic.
        unsafe {
            let word = |offset| AtomicU64::from_ptr(control.add(offset).cast());
            Self {
                head: word(abi::control::HEAD),
                lock: AtomicU32::from_ptr(control.add(abi::control::LOCK).cast()),
                lost: word(abi::control::LOST),
                woken: word(abi::control::WOKEN),
                tail: word(abi::control::TAIL),
                read: word(abi::control::READ),
            }
        }
    }
}

#[cfg(not(loom))]
impl<'a> ControlWords<'a> {
    /// Returns the words of a control block inside a mapping; `None` if it is not inside.
    pub(crate) fn from_mapping(map: &'a crate::map::Mapping, control: usize) -> Option<Self> {
        let word = |offset: usize| map.word(control.checked_add(offset)?);
        Some(Self {
            head: word(abi::control::HEAD)?,
            lock: map.half(control.checked_add(abi::control::LOCK)?)?,
            lost: word(abi::control::LOST)?,
            woken: word(abi::control::WOKEN)?,
            tail: word(abi::control::TAIL)?,
            read: word(abi::control::READ)?,
        })
    }
}
