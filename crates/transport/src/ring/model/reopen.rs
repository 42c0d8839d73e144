//! An outlet that is closed and opened again while somebody is on the way in or out.
//!
//! ```text
//!   addresses ──▶ OLD region ──close──▶ COVER (zeros) ──open──▶ NEW region
//! ```
//!
//! What the addresses stand for is a number here, loaded anew for every access, as the processor does: acquire and release, because
//! the kernel changes a mapping only with all processors told. Whoever closes tries each thing once where the real one waits: a try
//! that fails is a close that is not quiet, after which the addresses are not used again.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::Ring;
use crate::ring::gate::Gate;
use crate::ring::words::Words;
use crate::sync::{AtomicU64, Ordering};

const OLD: usize = 0;
const COVER: usize = 1;
const NEW: usize = 2;

const FIRST: u64 = 1;
const SECOND: u64 = 3;

/// Numbers by which locks are held.
const LATE: u32 = 1;
const CLOSER: u32 = u32::MAX;
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

    fn gate(&self) -> Gate<'_> {
        Gate::of(&self.generation, &self.visitors)
    }

    /// The words at the addresses now.
    fn words(&self) -> Words<'_> {
        self.rings[self.mapped.load(Ordering::Acquire)].words()
    }

    /// Writes as the fallback does, by the ticket of the first opening; whether it was published.
    fn write_late(&self) -> bool {
        if !self.gate().is_open_for(FIRST) || !self.words().try_lock(LATE) {
            return false;
        }
        if !self.gate().is_open_for(FIRST) {
            self.words().unlock_if_ours(LATE);
            return false;
        }
        let ring = &self.rings[self.mapped.load(Ordering::Acquire)];
        let published = ring.write_inside(7).is_some();
        self.words().unlock();
        published
    }

    /// Closes; whether it was quiet.
    fn close(&self) -> bool {
        assert!(self.gate().shut());
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
fn model_a_late_comer_leaves_the_locks_of_the_next_region_alone() {
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
                assert_eq!(held, NEXT, "somebody else gave our lock back");
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
fn model_a_visitor_is_waited_for_or_finds_the_gate_shut() {
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
            assert_eq!(elsewhere, [0, 0], "a count reached another session");
        }
    });
}

#[test]
fn model_a_visitor_that_leaves_after_the_next_opening_changes_nothing_there() {
    loom::model(|| {
        let outlet = Outlet::open();
        let late = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(FIRST, || ()))
        };
        // Quiet or not: in a forked child nobody waits for visitors that cannot leave.
        assert!(outlet.gate().shut());
        outlet.gate().open(SECOND);
        assert!(outlet.gate().visit(SECOND, || ()));
        let other = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || outlet.gate().visit(SECOND, || assert!(!outlet.gate().is_empty())))
        };
        let _ = late.join().unwrap();
        assert!(other.join().unwrap());
        assert!(outlet.gate().shut() && outlet.gate().is_empty());
    });
}
