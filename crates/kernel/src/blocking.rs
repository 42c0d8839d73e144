//! Runs reads that other processes can block, with a timeout.
//!
//! ```text
//!   run(timeout, work) ──▶ a worker thread runs it ──answer──▶ the caller, if it still waits
//!                                  └ blocks: the caller goes on, another worker runs the next work
//! ```
//!
//! A file may lie on a file system served by a program, and so may the memory of a process: reading
//! its command line, its mappings or the size of its program can block forever.
//!
//! A poll of a capture has a budget for such waits ([`begin_poll`], [`end_poll`]).
//!
//! - P1 No caller waits longer than its timeout.
//! - P2 Nothing waits for a blocked worker. It becomes available again when its work returns.
//! - P3 There are at most [`MAX_WORKERS`]. When all are blocked, nothing more is read, and calls
//!   return at once.
//! - P4 The answer of a late worker is dropped.
//! - P5 A single wait takes at most half of the remaining budget of the poll, so that many slow
//!   reads stay bounded together. With an exhausted budget nothing more is read until the next
//!   poll.
//! - P6 After a timeout, nothing more is read about that process in the same poll.
//! - P7 Reads that were given up are counted.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The usual timeout of a read, on a busy machine: a thousand times its usual duration.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The budget for all waits in one poll.
const BUDGET: Duration = Duration::from_millis(500);
/// Answers within this time do not reduce the budget.
const AT_ONCE: Duration = Duration::from_millis(1);
/// The largest number of workers, including blocked ones.
const MAX_WORKERS: usize = 16;
/// Stack size of a worker, which only reads files.
const STACK: usize = 256 << 10;
/// Thread name of a worker.
const WORKER: &str = "weir-read";

type Job = Box<dyn FnOnce() + Send>;

/// The worker threads of this process.
struct Workers {
    idle: Vec<Sender<Job>>,
    all: usize,
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), all: 0 });

fn workers() -> MutexGuard<'static, Workers> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The remaining budget of the poll on this thread.
#[derive(Debug)]
struct Budget {
    left: Duration,
    /// Processes that caused a timeout.
    blocked: HashSet<u32>,
    abandoned: u64,
}

thread_local! {
    /// `None` outside of a poll, where callers wait for their full timeout.
    static POLL: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// Begins a poll on this thread, with a full budget.
pub(crate) fn begin_poll() {
    POLL.set(Some(Budget { left: BUDGET, blocked: HashSet::new(), abandoned: 0 }));
}

/// Ends the poll on this thread. Returns how many reads were given up.
pub(crate) fn end_poll() -> u64 {
    POLL.take().map_or(0, |budget| budget.abandoned)
}

/// Returns how much of a timeout the budget allows now. Returns `None`, and counts a read that was
/// given up, if the budget is exhausted or the process has caused a timeout.
pub(crate) fn allowed_timeout(timeout: Duration, process: Option<u32>) -> Option<Duration> {
    POLL.with_borrow_mut(|poll| {
        let Some(budget) = poll else { return Some(timeout) };
        let allowed = timeout.min(budget.left.checked_div(2).unwrap_or_default());
        let is_blocked = process.is_some_and(|process| budget.blocked.contains(&process));
        if is_blocked || allowed < AT_ONCE {
            budget.abandoned = budget.abandoned.saturating_add(1);
            return None;
        }
        Some(allowed)
    })
}

/// Subtracts a wait from the budget. `is_timeout` is whether there was no answer.
pub(crate) fn charge(took: Duration, process: Option<u32>, is_timeout: bool) {
    POLL.with_borrow_mut(|poll| {
        let Some(budget) = poll else { return };
        let free = if is_timeout { Duration::ZERO } else { AT_ONCE };
        budget.left = budget.left.saturating_sub(took.saturating_sub(free));
        if is_timeout {
            budget.abandoned = budget.abandoned.saturating_add(1);
            budget.blocked.extend(process);
        }
    });
}

/// Runs `work` on a worker thread and returns its result, or `None` on a timeout.
pub(crate) fn run<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    run_job(timeout, None, work)
}

/// Like [`run`], for work that reads something of a process (P6).
pub(crate) fn run_for_process<T: Send + 'static>(
    process: u32,
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    run_job(timeout, Some(process), work)
}

fn run_job<T: Send + 'static>(
    timeout: Duration,
    process: Option<u32>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let timeout = allowed_timeout(timeout, process)?;
    let Some(receiver) = start_job(work) else {
        charge(Duration::ZERO, None, true);
        return None;
    };
    match receiver.recv_timeout(timeout).ok() {
        // The time that the worker took, without delays from other load on this machine.
        Some((answer, took)) => {
            charge(took, process, false);
            Some(answer)
        }
        None => {
            charge(timeout, process, true);
            None
        }
    }
}

/// Starts work on a worker, which sends the result and how long it took.
fn start_job<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Receiver<(T, Duration)>> {
    let worker = idle_worker()?;
    let (sender, receiver) = channel();
    let job: Job = Box::new(move || {
        let begun = Instant::now();
        let answer = work();
        // This fails if the caller no longer waits.
        let _ = sender.send((answer, begun.elapsed()));
    });
    worker.send(job).ok()?;
    Some(receiver)
}

/// Returns whether this thread is a worker, which survives panics.
pub fn is_blocking_worker() -> bool {
    std::thread::current().name() == Some(WORKER)
}

/// Returns a worker that has nothing to do, starting one if necessary and allowed.
fn idle_worker() -> Option<Sender<Job>> {
    let mut workers = workers();
    if let Some(idle) = workers.idle.pop() {
        return Some(idle);
    }
    if workers.all >= MAX_WORKERS {
        return None;
    }
    let (sender, jobs) = channel::<Job>();
    let own = sender.clone();
    let serve = move || {
        for job in jobs {
            // A job that panics sends no answer. The worker goes on with the next job.
            let _ = catch_unwind(AssertUnwindSafe(job));
            self::workers().idle.push(own.clone());
        }
    };
    std::thread::Builder::new().name(WORKER.into()).stack_size(STACK).spawn(serve).ok()?;
    workers.all = workers.all.saturating_add(1);
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    /// Repeats work until a worker runs it. All tests share the workers, and a worker that has sent
    /// an answer is not idle at once.
    fn serve<T: Send + 'static>(work: impl Fn() -> T + Clone + Send + 'static) -> T {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(answer) = run(Duration::from_secs(60), work.clone()) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no worker is available");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn blocked_work_times_out_and_other_work_runs() {
        assert_eq!(serve(|| 7), 7);
        let (hold, held) = channel::<()>();
        let begun = Instant::now();
        let blocked = run(Duration::from_millis(20), move || {
            let _ = held.recv();
        });
        assert_eq!(blocked, None);
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(serve(|| 8), 8, "another worker runs it");
        drop(hold);
    }

    #[test]
    fn worker_survives_a_panic() {
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(120);
        while PANICS.load(Relaxed) < 2 * MAX_WORKERS {
            assert!(Instant::now() < deadline, "no worker is available");
            let answer = run::<()>(Duration::from_secs(60), || {
                PANICS.fetch_add(1, Relaxed);
                panic!("intended by this test")
            });
            assert_eq!(answer, None);
        }
        assert!(serve(is_blocking_worker));
        assert!(!is_blocking_worker());
    }

    #[test]
    fn waits_of_a_poll_stay_within_its_budget() {
        begin_poll();
        let begun = Instant::now();
        let (hold, held) = channel::<()>();
        assert_eq!(run_for_process(7, READ_TIMEOUT, move || held.recv().is_ok()), None);
        let after_one = begun.elapsed();
        for _ in 0..1000 {
            assert_eq!(run_for_process(7, READ_TIMEOUT, || 1), None, "the process has caused a timeout");
        }
        assert!(begun.elapsed() - after_one < READ_TIMEOUT, "these calls return at once");
        drop(hold);
        let slow = || std::thread::sleep(Duration::from_millis(10));
        let served =
            (0..1000).filter(|number| run_for_process(100 + number, READ_TIMEOUT, slow).is_some()).count();
        assert!(served < 100, "{served}");
        assert!(allowed_timeout(READ_TIMEOUT, None).is_none());
        assert!(end_poll() >= 1 + 1000 + 900);
        assert_eq!(allowed_timeout(READ_TIMEOUT, Some(7)), Some(READ_TIMEOUT), "outside of a poll");
        begin_poll();
        assert_eq!(
            allowed_timeout(READ_TIMEOUT, Some(7)),
            Some(READ_TIMEOUT),
            "the next poll has a full budget"
        );
        assert_eq!(end_poll(), 0);
    }
}
