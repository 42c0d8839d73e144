//! Loom models of an outlet that is closed and opened again while a thread enters or leaves it.
//!
//! ```text
//!   addresses ──▶ OLD region ──close──▶ COVER (zeros) ──open──▶ NEW region
//! ```
//!
//! The mapping is a number here, loaded again for every access, as the CPU does: with acquire and
//! release, because the kernel changes a mapping only after notifying all CPUs. `close` tries each
//! step once where the real one waits: after a failed try, the close is not quiet, and the
//! addresses are not used again.

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

    /// Writes like the fallback, with the ticket of the first opening. Returns whether it was
    /// published.
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

    /// Closes the outlet. Returns whether it was quiet.
    fn close(&self) -> bool {
        assert!(self.gate().close());
        let quiet = self.words().try_lock(CLOSER) && self.gate().is_empty();
        self.mapped.store(COVER, Ordering::Release);
        quiet
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
            let locked = outlet.words().try_lock(NEXT);
            if locked {
                assert!(outlet.rings[NEW].write_inside(8).is_some());
                let held = outlet.rings[NEW].lock.load(Ordering::Relaxed);
                assert_eq!(held, NEXT, "no other thread releases this lock");
                outlet.words().unlock();
            }
            assert_eq!(
                out.len(),
                usize::from(late.join().unwrap()),
                "published before the close, or not at all"
            );
            let (mut position, mut out) = (0, Vec::new());
            outlet.rings[NEW].drain(&mut position, &mut out);
            assert_eq!(out, if locked { vec![8] } else { vec![] });
            assert_eq!(outlet.rings[NEW].lock.load(Ordering::Relaxed), 0, "all locks are free again");
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
        let quiet = outlet.close();
        let counted = outlet.rings[OLD].lost.load(Ordering::Relaxed);
        if quiet {
            outlet.reopen();
        }
        let visited = visitor.join().unwrap();
        if quiet {
            assert_eq!(counted, u64::from(visited), "all is counted when the close returns");
            let elsewhere = [COVER, NEW].map(|at| outlet.rings[at].lost.load(Ordering::Relaxed));
            assert_eq!(elsewhere, [0, 0], "no count reaches another region");
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
        // Quiet or not: a forked child does not wait for visitors that cannot leave.
        assert!(outlet.gate().close());
        outlet.gate().open(SECOND);
        assert!(outlet.gate().visit(SECOND, || ()));
        let other = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(SECOND, || assert!(!outlet.gate().is_empty())))
        };
        let _ = late.join().unwrap();
        assert!(other.join().unwrap());
        assert!(outlet.gate().close() && outlet.gate().is_empty());
    });
}
