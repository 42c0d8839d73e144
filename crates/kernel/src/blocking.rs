//! Runs reads that other processes can block, with a timeout.
//!
//! ```text
//!   run_with_timeout ──▶ a worker thread runs the job ──answer──▶ the caller, if it still waits
//!                              └ blocks: the caller goes on, another worker runs the next job
//! ```
//!
//! A program can serve a file system and never answer. The memory of a process can be mapped from
//! such a file system: reading the command line, the mappings or the program of the process can
//! block forever.
//!
//! A poll of a capture has a budget for such waits ([`begin_poll`], [`end_poll`]).
//!
//! - P1 No caller waits longer than its timeout.
//! - P2 After the timeout nothing waits for the worker. It is idle again when its work returns.
//! - P3 There are at most [`MAX_WORKERS`] workers. When all are blocked, nothing more is read, and
//!   calls return at once.
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

/// The usual timeout of a read: a thousand times its usual duration, for busy machines.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The budget for all waits in one poll.
const POLL_BUDGET: Duration = Duration::from_millis(500);
/// The part of each answered wait that does not reduce the budget. No shorter wait is begun.
const FREE_WAIT: Duration = Duration::from_millis(1);
/// The largest number of workers, including blocked ones.
const MAX_WORKERS: usize = 16;
/// Stack size of a worker, which only reads files.
const WORKER_STACK_BYTES: usize = 256 << 10;
const WORKER_NAME: &str = "weir-read";

type ReadJob = Box<dyn FnOnce() + Send>;

/// The worker threads of this process.
struct Workers {
    idle: Vec<Sender<ReadJob>>,
    count: usize,
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), count: 0 });

fn lock_workers() -> MutexGuard<'static, Workers> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The remaining budget of the poll on this thread.
#[derive(Debug)]
struct PollBudget {
    remaining: Duration,
    /// Processes that caused a timeout.
    blocked_processes: HashSet<u32>,
    abandoned_reads: u64,
}

thread_local! {
    /// The budget of the poll that runs on this thread; `None` outside of a poll, where callers
    /// wait for their full timeout.
    static CURRENT_POLL: RefCell<Option<PollBudget>> = const { RefCell::new(None) };
}

/// Begins a poll on this thread, with a full budget.
pub(crate) fn begin_poll() {
    CURRENT_POLL.set(Some(PollBudget {
        remaining: POLL_BUDGET,
        blocked_processes: HashSet::new(),
        abandoned_reads: 0,
    }));
}

/// Ends the poll on this thread. Returns how many reads were given up.
pub(crate) fn end_poll() -> u64 {
    CURRENT_POLL.take().map_or(0, |budget| budget.abandoned_reads)
}

/// Returns how much of a timeout the budget allows now. Returns `None`, and counts a read that was
/// given up, if the budget is exhausted or the process has caused a timeout in this poll.
pub(crate) fn allowed_timeout(timeout: Duration, process: Option<u32>) -> Option<Duration> {
    CURRENT_POLL.with_borrow_mut(|poll| {
        let Some(budget) = poll else { return Some(timeout) };
        let allowed = timeout.min(budget.remaining.checked_div(2).unwrap_or_default());
        let is_blocked = process.is_some_and(|process| budget.blocked_processes.contains(&process));
        if is_blocked || allowed < FREE_WAIT {
            budget.abandoned_reads = budget.abandoned_reads.saturating_add(1);
            return None;
        }
        Some(allowed)
    })
}

/// Subtracts a wait from the budget. `is_abandoned` is whether the read was given up.
pub(crate) fn charge_budget(duration: Duration, process: Option<u32>, is_abandoned: bool) {
    CURRENT_POLL.with_borrow_mut(|poll| {
        let Some(budget) = poll else { return };
        let free_wait = if is_abandoned { Duration::ZERO } else { FREE_WAIT };
        budget.remaining = budget.remaining.saturating_sub(duration.saturating_sub(free_wait));
        if is_abandoned {
            budget.abandoned_reads = budget.abandoned_reads.saturating_add(1);
            budget.blocked_processes.extend(process);
        }
    });
}

/// Runs `work` on a worker thread and returns its result, or `None` if it timed out, panicked or
/// was not started (P3, P5, P6).
pub(crate) fn run_with_timeout<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    run_job(timeout, None, work)
}

/// Like [`run_with_timeout`], for work that reads something of a process (P6).
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
        charge_budget(Duration::ZERO, None, true);
        return None;
    };
    match receiver.recv_timeout(timeout).ok() {
        // The duration is that of the work itself, without delays from other load on this machine.
        Some((answer, duration)) => {
            charge_budget(duration, process, false);
            Some(answer)
        }
        // A job that panicked is charged like one that timed out.
        None => {
            charge_budget(timeout, process, true);
            None
        }
    }
}

/// Starts work on a worker, which sends the result and the duration of the work.
fn start_job<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Receiver<(T, Duration)>> {
    let worker = take_idle_worker()?;
    let (sender, receiver) = channel();
    let job: ReadJob = Box::new(move || {
        let start = Instant::now();
        let answer = work();
        // This fails if the caller no longer waits.
        let _ = sender.send((answer, start.elapsed()));
    });
    worker.send(job).ok()?;
    Some(receiver)
}

/// Returns whether this thread is a worker, which survives panics.
pub fn is_blocking_worker() -> bool {
    std::thread::current().name() == Some(WORKER_NAME)
}

/// Takes a worker that has nothing to do. Starts a new worker if none is idle and one more is
/// allowed.
fn take_idle_worker() -> Option<Sender<ReadJob>> {
    let mut workers = lock_workers();
    if let Some(idle) = workers.idle.pop() {
        return Some(idle);
    }
    if workers.count >= MAX_WORKERS {
        return None;
    }
    let (sender, jobs) = channel::<ReadJob>();
    let idle_sender = sender.clone();
    let run_jobs = move || {
        for job in jobs {
            // A job that panics sends no answer. The worker goes on with the next job.
            let _ = catch_unwind(AssertUnwindSafe(job));
            lock_workers().idle.push(idle_sender.clone());
        }
    };
    std::thread::Builder::new()
        .name(WORKER_NAME.into())
        .stack_size(WORKER_STACK_BYTES)
        .spawn(run_jobs)
        .ok()?;
    workers.count = workers.count.saturating_add(1);
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    /// Repeats work until a worker runs it. All tests share the workers, and a worker that has sent
    /// an answer is not idle at once.
    fn run_until_served<T: Send + 'static>(work: impl Fn() -> T + Clone + Send + 'static) -> T {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(answer) = run_with_timeout(Duration::from_secs(60), work.clone()) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no worker is available");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn blocked_work_times_out_and_other_work_runs() {
        assert_eq!(run_until_served(|| 7), 7);
        let (release, released) = channel::<()>();
        let start = Instant::now();
        let blocked = run_with_timeout(Duration::from_millis(20), move || {
            let _ = released.recv();
        });
        assert_eq!(blocked, None);
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(run_until_served(|| 8), 8, "no other worker ran the second job");
        drop(release);
    }

    #[test]
    fn worker_survives_a_panic() {
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(120);
        while PANICS.load(Relaxed) < 2 * MAX_WORKERS {
            assert!(Instant::now() < deadline, "no worker is available");
            let answer = run_with_timeout::<()>(Duration::from_secs(60), || {
                PANICS.fetch_add(1, Relaxed);
                panic!("intended by this test")
            });
            assert_eq!(answer, None);
        }
        assert!(run_until_served(is_blocking_worker));
        assert!(!is_blocking_worker());
    }

    #[test]
    fn waits_of_a_poll_stay_within_its_budget() {
        begin_poll();
        let start = Instant::now();
        let (release, released) = channel::<()>();
        assert_eq!(run_for_process(7, READ_TIMEOUT, move || released.recv().is_ok()), None);
        let after_timeout = start.elapsed();
        for _ in 0..1000 {
            assert_eq!(run_for_process(7, READ_TIMEOUT, || 1), None, "a blocked process was read again");
        }
        assert!(start.elapsed() - after_timeout < READ_TIMEOUT, "calls for a blocked process waited");
        drop(release);
        let slow = || std::thread::sleep(Duration::from_millis(10));
        let served =
            (0..1000).filter(|number| run_for_process(100 + number, READ_TIMEOUT, slow).is_some()).count();
        assert!(served < 100, "{served} slow reads exceed the budget");
        assert!(allowed_timeout(READ_TIMEOUT, None).is_none());
        // The timeout, the calls for the blocked process, and the slow reads that were refused.
        assert!(end_poll() >= 1 + 1000 + 900);
        assert_eq!(allowed_timeout(READ_TIMEOUT, Some(7)), Some(READ_TIMEOUT), "limited outside of a poll");
        begin_poll();
        assert_eq!(
            allowed_timeout(READ_TIMEOUT, Some(7)),
            Some(READ_TIMEOUT),
            "the next poll does not have a full budget"
        );
        assert_eq!(end_poll(), 0);
    }
}
