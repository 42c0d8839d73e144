//! Looks at what strangers can make hang, without waiting for them.
//!
//! ```text
//!   within(patience, look) ──▶ a worker does it ──answer──▶ whoever asked, if he still waits
//!                                    └ hangs: it is left alone; another worker serves the next
//! ```
//!
//! A file may lie on a file system that a program serves, and so may the memory of a process: reading its arguments, its mappings or the size of its program can take for ever.
//!
//! A look at many things has a purse ([`begin`], [`end`]): what strangers make slow is paid from it.
//!
//! P1 Nobody waits longer than his patience. P2 A worker that hangs is not waited for and comes back by itself when it is let go. P3 There are at most
//! [`MAX_WORKERS`]: when all hang, nothing more is looked at, and asking costs nothing. P4 What a late worker finds is dropped. P5 One
//! look waits at most half of what is left in its purse, so that many that are slow cannot take for ever together; when it is empty nothing more is looked at until the next. P6 A process
//! that was waited for in vain is not asked for again in the same look. P7 What was not read is counted.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a look may take, on a machine that is busy: a thousand times what it does.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);
/// What all waiting in one look may take.
const PURSE: Duration = Duration::from_millis(500);
/// What takes no longer costs nothing.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Workers at most, those that hang included.
const MAX_WORKERS: usize = 16;
/// Stack of a worker: it reads files.
const STACK: usize = 256 << 10;
/// Name of a worker.
const WORKER: &str = "weir-look";

type Job = Box<dyn FnOnce() + Send>;

struct Workers {
    idle: Vec<Sender<Job>>,
    all: usize,
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), all: 0 });

fn workers() -> MutexGuard<'static, Workers> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a look on this thread may still wait for.
#[derive(Debug)]
struct Purse {
    left: Duration,
    /// Processes that were waited for in vain.
    silent: HashSet<u32>,
    unread: u64,
}

thread_local! {
    /// Who is in no look waits as long as he says.
    static LOOK: RefCell<Option<Purse>> = const { RefCell::new(None) };
}

/// A look begins on this thread.
pub(crate) fn begin() {
    LOOK.set(Some(Purse { left: PURSE, silent: HashSet::new(), unread: 0 }));
}

/// It ends; what was not read because that took too long.
pub(crate) fn end() -> u64 {
    LOOK.take().map_or(0, |purse| purse.unread)
}

/// How long may be waited now, of this patience; `None`: not at all, which is counted.
pub(crate) fn allowed(patience: Duration, process: Option<u32>) -> Option<Duration> {
    LOOK.with_borrow_mut(|look| {
        let Some(purse) = look else { return Some(patience) };
        let allowed = patience.min(purse.left.checked_div(2).unwrap_or_default());
        let is_silent = process.is_some_and(|process| purse.silent.contains(&process));
        if is_silent || allowed < AT_ONCE {
            purse.unread = purse.unread.saturating_add(1);
            return None;
        }
        Some(allowed)
    })
}

/// So long it took; `in_vain`: there was no answer.
pub(crate) fn pay(took: Duration, process: Option<u32>, in_vain: bool) {
    LOOK.with_borrow_mut(|look| {
        let Some(purse) = look else { return };
        let free = if in_vain { Duration::ZERO } else { AT_ONCE };
        purse.left = purse.left.saturating_sub(took.saturating_sub(free));
        if in_vain {
            purse.unread = purse.unread.saturating_add(1);
            purse.silent.extend(process);
        }
    });
}

/// Does something, on another thread, and gives what it gives; `None` where that takes too long.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    ask(patience, None, work)
}

/// The same, about a process.
pub(crate) fn within_of<T: Send + 'static>(
    process: u32,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    ask(patience, Some(process), work)
}

fn ask<T: Send + 'static>(
    patience: Duration,
    process: Option<u32>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let patience = allowed(patience, process)?;
    let Some(told) = send(work) else {
        pay(Duration::ZERO, None, true);
        return None;
    };
    match told.recv_timeout(patience).ok() {
        // What it took the worker, not how long this machine was busy with others.
        Some((answer, took)) => {
            pay(took, process, false);
            Some(answer)
        }
        None => {
            pay(patience, process, true);
            None
        }
    }
}

/// Has a worker do something, which tells what came of it and how long it took.
fn send<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<(T, Duration)>> {
    let worker = take()?;
    let (tell, told) = channel();
    let job: Job = Box::new(move || {
        let begun = Instant::now();
        let answer = work();
        // Nobody may be waiting any more.
        let _ = tell.send((answer, begun.elapsed()));
    });
    worker.send(job).ok()?;
    Some(told)
}

/// Whether this thread is a worker, which survives what panics.
pub fn is_patient_worker() -> bool {
    std::thread::current().name() == Some(WORKER)
}

/// A worker that has nothing to do.
fn take() -> Option<Sender<Job>> {
    let mut workers = workers();
    if let Some(idle) = workers.idle.pop() {
        return Some(idle);
    }
    if workers.all >= MAX_WORKERS {
        return None;
    }
    let (ask, asked) = channel::<Job>();
    let own = ask.clone();
    let serve = move || {
        for job in asked {
            // What panics has no answer, and the next job is served all the same.
            let _ = catch_unwind(AssertUnwindSafe(job));
            self::workers().idle.push(own.clone());
        }
    };
    std::thread::Builder::new().name(WORKER.into()).stack_size(STACK).spawn(serve).ok()?;
    workers.all = workers.all.saturating_add(1);
    Some(ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    /// Asks until a worker serves: those of all tests are the same, and one that has answered is not idle at once.
    fn serve<T: Send + 'static>(work: impl Fn() -> T + Clone + Send + 'static) -> T {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(answer) = within(Duration::from_secs(60), work.clone()) {
                return answer;
            }
            assert!(Instant::now() < deadline, "nobody serves");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_hangs_is_left_alone_and_others_are_served() {
        assert_eq!(serve(|| 7), 7);
        let (hold, held) = channel::<()>();
        let begun = Instant::now();
        let hangs = within(Duration::from_millis(20), move || {
            let _ = held.recv();
        });
        assert_eq!(hangs, None);
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(serve(|| 8), 8, "another serves");
        drop(hold);
    }

    #[test]
    fn a_worker_survives_what_panics() {
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(120);
        while PANICS.load(Relaxed) < 2 * MAX_WORKERS {
            assert!(Instant::now() < deadline, "nobody serves");
            let answer = within::<()>(Duration::from_secs(60), || {
                PANICS.fetch_add(1, Relaxed);
                panic!("a test makes it")
            });
            assert_eq!(answer, None);
        }
        assert!(serve(is_patient_worker));
        assert!(!is_patient_worker());
    }

    #[test]
    fn a_look_waits_for_all_together_no_longer_than_its_purse() {
        begin();
        let begun = Instant::now();
        let (hold, held) = channel::<()>();
        assert_eq!(within_of(7, PATIENCE, move || held.recv().is_ok()), None);
        let after_one = begun.elapsed();
        for _ in 0..1000 {
            assert_eq!(within_of(7, PATIENCE, || 1), None, "it was silent once");
        }
        assert!(begun.elapsed() - after_one < PATIENCE, "which costs no time");
        drop(hold);
        let slow = || std::thread::sleep(Duration::from_millis(10));
        let served = (0..1000).filter(|number| within_of(100 + number, PATIENCE, slow).is_some()).count();
        assert!(served < 100, "{served}");
        assert!(allowed(PATIENCE, None).is_none());
        assert!(end() >= 1 + 1000 + 900);
        assert_eq!(allowed(PATIENCE, Some(7)), Some(PATIENCE), "in no look");
        begin();
        assert_eq!(allowed(PATIENCE, Some(7)), Some(PATIENCE), "the next look begins anew");
        assert_eq!(end(), 0);
    }
}
