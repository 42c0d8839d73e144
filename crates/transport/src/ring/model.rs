//! Loom models of the ring's words. Loom runs them with every order of events that the memory model
//! allows:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p traceweir-transport --release --lib model
//! ```
//!
//! The models run the code of `words.rs` and `gate.rs`, with loom's atomics. The bytes of the ring
//! are cells in which loom finds every access that could race. A record is one cell of eight bytes.
//! The rseq writer is modelled with the guarantees of the kernel: one writer at a time, no lock,
//! and the same `find_slot` and `publish`.

mod reopen;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::words::ControlWords;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const CELLS: usize = 2;
const RING_BYTES: u64 = CELLS as u64 * 8;

struct Ring {
    head: AtomicU64,
    lock: AtomicU32,
    lost: AtomicU64,
    woken: AtomicU64,
    tail: AtomicU64,
    read: AtomicU64,
    cells: [UnsafeCell<u64>; CELLS],
}

// SAFETY: the models test the accesses to the cells: loom fails the test if two accesses to a cell
// could race.
unsafe impl Sync for Ring {}
// SAFETY: its fields are atomics and cells, none of which belongs to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            head: AtomicU64::new(0),
            lock: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            read: AtomicU64::new(0),
            cells: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn words(&self) -> ControlWords<'_> {
        ControlWords::new([&self.head, &self.lost, &self.woken, &self.tail, &self.read], &self.lock)
    }

    /// Writes while the caller excludes other writers. Returns the end of the record, if it was
    /// published.
    fn write_inside(&self, value: u64) -> Option<u64> {
        let words = self.words();
        let Some(slot) = words.find_slot(8, RING_BYTES) else {
            words.count_lost();
            return None;
        };
        // SAFETY: loom checks that no other thread has access.
        self.cells[slot.offset / 8].with_mut(|cell| unsafe { *cell = value });
        words.publish(slot.end);
        Some(slot.end)
    }

    /// Writes under the lock, like the fallback, but with one attempt: if the lock is taken, the
    /// record is counted as lost.
    fn write_locked(&self, value: u64) -> Option<u64> {
        let words = self.words();
        if !words.try_lock(1) {
            words.count_lost();
            return None;
        }
        let end = self.write_inside(value);
        words.unlock();
        end
    }

    /// Takes the published records from a position on, and gives their bytes back.
    fn drain(&self, position: &mut u64, out: &mut Vec<u64>) {
        let words = self.words();
        let head = words.load_head();
        assert!(head >= *position && head - *position <= RING_BYTES, "the head breaks R3 (ring.rs)");
        while *position < head {
            let cell = (*position % RING_BYTES / 8) as usize;
            // SAFETY: loom checks that no thread writes meanwhile.
            out.push(self.cells[cell].with(|cell| unsafe { *cell }));
            *position += 8;
        }
        words.publish_taken(*position, *position);
    }
}

#[test]
fn model_locked_writers_keep_or_count_every_record() {
    loom::model(|| {
        let ring = Ring::new();
        let writers = [1, 2].map(|value| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || u64::from(ring.write_locked(value).is_some()))
        });
        let (mut position, mut out) = (0, Vec::new());
        ring.drain(&mut position, &mut out);
        let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        ring.drain(&mut position, &mut out);
        out.sort_unstable();
        out.dedup();
        assert_eq!(out.len() as u64, written);
        assert!(out.iter().all(|value| [1, 2].contains(value)));
        assert_eq!(written + ring.lost.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn model_writer_that_wraps_around_never_races_the_reader() {
    loom::model(|| {
        let ring = Ring::new();
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                (1..=4).filter(|value| ring.write_inside(*value).is_some()).collect::<Vec<u64>>()
            })
        };
        let (mut position, mut out) = (0, Vec::new());
        ring.drain(&mut position, &mut out);
        ring.drain(&mut position, &mut out);
        let written = writer.join().unwrap();
        ring.drain(&mut position, &mut out);
        assert_eq!(out, written, "records are missing, repeated or out of order");
        assert_eq!(written.len() as u64 + ring.lost.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn model_next_sequence_continues_from_the_head() {
    loom::model(|| {
        let ring = Ring::new();
        let first = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write_inside(1))
        };
        let reader = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let (mut position, mut out) = (0, Vec::new());
                ring.drain(&mut position, &mut out);
                (position, out)
            })
        };
        // The next thread on this CPU: the context switch orders it after the first one.
        assert_eq!(first.join().unwrap(), Some(8));
        assert_eq!(ring.write_inside(2), Some(16));
        let (mut position, mut out) = reader.join().unwrap();
        ring.drain(&mut position, &mut out);
        assert_eq!(out, [1, 2]);
    });
}

#[test]
fn model_closer_with_the_lock_sees_everything_published() {
    loom::model(|| {
        let ring = Ring::new();
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.write_locked(1).is_some())
        };
        // The lock is kept, as in `Outlet::close`.
        let is_locked = ring.words().try_lock(2);
        let (mut position, mut out) = (0, Vec::new());
        if is_locked {
            ring.drain(&mut position, &mut out);
        }
        let written = writer.join().unwrap();
        if is_locked {
            assert_eq!(out.len(), usize::from(written), "a record was published after the close");
        }
    });
}

#[test]
fn model_one_of_two_writers_wakes_the_owner() {
    loom::model(|| {
        let ring = Ring::new();
        ring.head.store(16, Ordering::Relaxed);
        let other_writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || u32::from(ring.words().claim_wake(8)))
        };
        let wakes = u32::from(ring.words().claim_wake(16));
        assert_eq!(wakes + other_writer.join().unwrap(), 1);
        ring.words().publish_taken(16, 16);
        assert!(!ring.words().claim_wake(16), "records that were read woke the owner");
        assert!(ring.words().claim_wake(24));
    });
}
