//! The words of one ring's control block and the only places where they are read and written in Rust. The models run this code.
//!
//! ```text
//!   writer: lock? ─ place ─ copy ─ publish ─ unlock          reader: published ─ copy ─ taken
//!                    ▲ tail                └────── head ──────────▲              │ tail, read
//!                    └───────────────────────────────────────────────────────────┘
//! ```
//!
//! The rseq writer does `place` and `publish` in assembly, with the same loads and stores in the same order. The fields are private, so
//! there are no others.

#[cfg(not(loom))]
use crate::abi;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A ring's words.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    head: &'a AtomicU64,
    lock: &'a AtomicU32,
    lost: &'a AtomicU64,
    woken: &'a AtomicU64,
    tail: &'a AtomicU64,
    read: &'a AtomicU64,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where a skip marker goes first, if the record does not fit before the ring's end.
    pub(crate) marker: Option<usize>,
    /// Where the record goes.
    pub(crate) offset: usize,
    /// Position behind it.
    pub(crate) end: u64,
}

impl Place {
    /// The place of `size` bytes in a ring with this head and tail; `None` when there is no room (R3, R4).
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
impl<'a> Words<'a> {
    /// The words of a model.
    pub(crate) fn of([head, lost, woken, tail, read]: [&'a AtomicU64; 5], lock: &'a AtomicU32) -> Self {
        Self { head, lock, lost, woken, tail, read }
    }
}

impl Words<'_> {
    /// Takes the ring's lock, or finds it taken.
    pub(crate) fn try_lock(&self, thread: u32) -> bool {
        // Acquire pairs with the release in `unlock`: the head that the last writer stored is the one we go on from (R2).
        self.lock.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self) {
        // Pairs with the acquire in `try_lock` (R2).
        self.lock.store(0, Ordering::Release);
    }

    /// Gives the lock back if it is still the one that this thread took. For whoever finds the outlet closed only after it took the lock:
    /// the region may have gone from these addresses meanwhile, and another one come, whose locks are not ours.
    pub(crate) fn unlock_if_ours(&self, thread: u32) {
        // Release as in `unlock`, though nothing was done inside. Failing is as good: then the lock went with its region.
        let _ = self.lock.compare_exchange(thread, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Where `size` bytes go. Only inside the lock; outside it is a guess.
    pub(crate) fn place(&self, size: u64, ring_bytes: u64) -> Option<Place> {
        // Only whoever holds the lock stores the head, so its own value needs no order.
        let head = self.head.load(Ordering::Relaxed);
        // Acquire pairs with the release in `taken`: the reader's copies out of the bytes we may now overwrite are done (R3).
        Place::find(head, self.tail.load(Ordering::Acquire), size, ring_bytes)
    }

    /// Publishes everything up to `end`. Only inside the lock.
    pub(crate) fn publish(&self, end: u64) {
        // Pairs with the acquire in `published`: whoever sees the head sees the record (R1).
        self.head.store(end, Ordering::Release);
    }

    /// Counts a record that was offered and not published (R8).
    pub(crate) fn count_lost(&self) {
        // Relaxed, here and in `lost`: a number that orders nothing. What is read after a close is all there is, because `close` waits
        // for visitors and its end is told by a system call.
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the owner takes nothing for now. For whoever found no room, to tell why.
    #[cfg(not(loom))]
    pub(crate) fn is_shut(&self) -> bool {
        // Relaxed: nothing is done by it.
        self.tail.load(Ordering::Relaxed) & abi::SHUT != 0
    }

    /// What was counted so far.
    #[cfg(not(loom))]
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether `wake_at` bytes or more are unread, and nobody has woken the owner for that: a plain look, all that most records pay.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn wake_may_be_due(&self, end: u64, wake_at: u32) -> bool {
        // Relaxed, as in `wake_is_due`, which decides.
        let read = self.read.load(Ordering::Relaxed);
        end.wrapping_sub(read) >= u64::from(wake_at)
            && self.woken.load(Ordering::Relaxed) != read.wrapping_add(1)
    }

    /// Whether whoever published up to `end` must wake the owner: once for each position that the owner has read to (R6).
    pub(crate) fn wake_is_due(&self, end: u64) -> bool {
        // Relaxed, here and in `taken`: a position to compare with. No bytes are given back by it, and an old value costs at most a wake that
        // the owner makes good by looking once more before it sleeps.
        let read = self.read.load(Ordering::Relaxed);
        let woken = self.woken.load(Ordering::Relaxed);
        let mark = read.wrapping_add(1);
        // `end` is behind `read` when the owner has taken the record meanwhile.
        let unread = end.wrapping_sub(read).cast_signed() > 0;
        // Relaxed: the exchange only elects one of several writers; the wake itself is a system call, which orders by itself.
        unread
            && woken != mark
            && self.woken.compare_exchange(woken, mark, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The position up to which records can be read.
    pub(crate) fn published(&self) -> u64 {
        // Pairs with the release in `publish`, and with the last store of the rseq sequence (R1).
        self.head.load(Ordering::Acquire)
    }

    /// The owner has read up to `read`, and bytes up to `tail` may be overwritten.
    pub(crate) fn taken(&self, read: u64, tail: u64) {
        // Before the tail, and so covered by its release: whoever sees the tail sees a `read` that is not behind it.
        self.read.store(read, Ordering::Relaxed);
        // Pairs with the acquire in `place`, and with the load of the tail in the rseq sequence (R3).
        self.tail.store(tail, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl Words<'_> {
    /// The words of a control block.
    ///
    /// # Safety
    /// `control` is the beginning of a control block, a multiple of eight, mapped for as long as the words are used.
    #[inline]
    pub(crate) unsafe fn at(control: *mut u8) -> Self {
        // SAFETY: the caller promises a mapped, aligned control block; all offsets lie inside it and every access to these words, here
        // and in the other process, is atomic.
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
impl<'a> Words<'a> {
    /// The words of a control block inside a mapping; `None` where it is not inside.
    pub(crate) fn within(map: &'a crate::map::Mapping, control: usize) -> Option<Self> {
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
