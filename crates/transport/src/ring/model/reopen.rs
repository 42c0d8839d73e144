//! Loom models of an outlet that is closed and opened again while a thread enters or leaves it.
//!
//! ```text
//!   addresses ──▶ OLD region ──close──▶ COVER (zeros) ──open──▶ NEW region
//! ```
//!
//! The model represents the mapping by a number that is loaded again for every access, as a CPU
//! looks up every address. Acquire and release model that the kernel notifies all CPUs when it
//! changes a mapping. The model's `close` tries each step once where the real `close` waits. If a
//! step fails, `close` returns `false`, and the outlet is not opened again.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::Ring;
use crate::ring::gate::{OutletGate, Ticket};
use crate::ring::words::ControlWords;
use crate::sync::{AtomicU64, Ordering};

const OLD: usize = 0;
const COVER: usize = 1;
const NEW: usize = 2;

const FIRST: Ticket = Ticket(1);
const SECOND: Ticket = Ticket(3);

/// Thread id of the late writer.
const LATE: u32 = 1;
/// Thread id with which `close` takes locks.
const CLOSER: u32 = u32::MAX;
/// Thread id of a writer to the next region.
const NEXT: u32 = 2;

struct Outlet {
    generation: AtomicU64,
    visitors: AtomicU64,
    mapped: AtomicUsize,
    rings: [Arc<Ring>; 3],
}

impl Outlet {
    fn open() -> Arc<Self> {
        let outlet = Self {
            generation: AtomicU64::new(0),
            visitors: AtomicU64::new(0),
            mapped: AtomicUsize::new(OLD),
            rings: [Ring::new(), Ring::new(), Ring::new()],
        };
        outlet.gate().open(FIRST);
        Arc::new(outlet)
    }

    fn gate(&self) -> OutletGate<'_> {
        OutletGate::new(&self.generation, &self.visitors)
    }

    /// Returns the words that are mapped now.
    fn words(&self) -> ControlWords<'_> {
        self.rings[self.mapped.load(Ordering::Acquire)].words()
    }

    /// Writes like the fallback, with the ticket of the first opening. Returns whether the record
    /// was published.
    fn write_late(&self) -> bool {
        if !self.gate().is_open_for(FIRST) || !self.words().try_lock(LATE) {
            return false;
        }
        if !self.gate().is_open_for(FIRST) {
            self.words().unlock_if_held_by(LATE);
            return false;
        }
        let ring = &self.rings[self.mapped.load(Ordering::Acquire)];
        let published = ring.write_inside(7).is_some();
        self.words().unlock();
        published
    }

    /// Closes the outlet. Returns whether no writer or visitor was inside.
    fn close(&self) -> bool {
        assert!(self.gate().close());
        let is_quiet = self.words().try_lock(CLOSER) && self.gate().is_empty();
        self.mapped.store(COVER, Ordering::Release);
        is_quiet
    }

    fn reopen(&self) {
        self.mapped.store(NEW, Ordering::Release);
        self.gate().open(SECOND);
    }
}

#[test]
fn model_late_writer_does_not_release_locks_of_the_next_region() {
    loom::model(|| {
        let outlet = Outlet::open();
        let late = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.write_late())
        };
        if outlet.close() {
            let (mut position, mut out) = (0, Vec::new());
            outlet.rings[OLD].drain(&mut position, &mut out);
            outlet.reopen();
            let is_locked = outlet.words().try_lock(NEXT);
            if is_locked {
                assert!(outlet.rings[NEW].write_inside(8).is_some());
                let holder = outlet.rings[NEW].lock.load(Ordering::Relaxed);
                assert_eq!(holder, NEXT, "another thread released the lock");
                outlet.words().unlock();
            }
            assert_eq!(
                out.len(),
                usize::from(late.join().unwrap()),
                "the late record was published after the close"
            );
            let (mut position, mut out) = (0, Vec::new());
            outlet.rings[NEW].drain(&mut position, &mut out);
            assert_eq!(out, if is_locked { vec![8] } else { vec![] });
            assert_eq!(outlet.rings[NEW].lock.load(Ordering::Relaxed), 0, "a lock is still taken");
        } else {
            let _ = late.join().unwrap();
        }
    });
}

#[test]
fn model_closer_waits_for_visitor_or_visitor_finds_gate_closed() {
    loom::model(|| {
        let outlet = Outlet::open();
        let visitor = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(FIRST, || outlet.words().count_lost()))
        };
        let is_quiet = outlet.close();
        let counted = outlet.rings[OLD].lost.load(Ordering::Relaxed);
        if is_quiet {
            outlet.reopen();
        }
        let visited = visitor.join().unwrap();
        if is_quiet {
            assert_eq!(counted, u64::from(visited), "a loss was not counted when the close returned");
            let counted_elsewhere = [COVER, NEW].map(|at| outlet.rings[at].lost.load(Ordering::Relaxed));
            assert_eq!(counted_elsewhere, [0, 0], "a loss was counted in another region");
        }
    });
}

#[test]
fn model_late_visitor_does_not_affect_the_next_opening() {
    loom::model(|| {
        let outlet = Outlet::open();
        let late = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(FIRST, || ()))
        };
        // The outlet is opened again even if a visitor is inside, as in a forked child, where some
        // visitors cannot leave.
        assert!(outlet.gate().close());
        outlet.gate().open(SECOND);
        assert!(outlet.gate().visit(SECOND, || ()));
        let next_visitor = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(SECOND, || assert!(!outlet.gate().is_empty())))
        };
        let _ = late.join().unwrap();
        assert!(next_visitor.join().unwrap());
        assert!(outlet.gate().close() && outlet.gate().is_empty());
    });
}
