//! Looks at what strangers can make hang, without waiting for them.
//!
//! ```text
//!   within(patience, look) ──▶ a worker does it ──answer──▶ whoever asked, if he still waits
//!                                    └ hangs: it is left alone; another worker serves the next
//! ```
//!
//! A file may lie on a file system that a program serves, and so may the memory of a process: reading its arguments, its mappings or the size of its program can take for ever.
//!
//! P1 Nobody waits longer than his patience. P2 A worker that hangs is not waited for and comes back by itself when it is let go. P3 There are at most
//! [`MAX_WORKERS`]: when all hang, nothing more is looked at, and asking costs nothing. P4 What a late worker finds is dropped.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a look may take, on a machine that is busy: a thousand times what it does.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);
/// Workers at most, those that hang included.
const MAX_WORKERS: usize = 16;
/// Stack of a worker: it reads files.
const STACK: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

struct Workers {
    idle: Vec<Sender<Job>>,
    all: usize,
}

static WORKERS: Mutex<Workers> = Mutex::new(Workers { idle: Vec::new(), all: 0 });

fn workers() -> MutexGuard<'static, Workers> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something, on another thread, and gives what it gives; `None` where that takes too long.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let worker = take()?;
    let (tell, told) = channel();
    let job: Job = Box::new(move || {
        // Nobody may be waiting any more.
        let _ = tell.send(work());
    });
    worker.send(job).ok()?;
    told.recv_timeout(patience).ok()
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
            job();
            self::workers().idle.push(own.clone());
        }
    };
    std::thread::Builder::new().name("weir-look".into()).stack_size(STACK).spawn(serve).ok()?;
    workers.all = workers.all.saturating_add(1);
    Some(ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_hangs_is_left_alone_and_others_are_served() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (hold, held) = channel::<()>();
        let begun = Instant::now();
        let hangs = within(Duration::from_millis(20), move || {
            let _ = held.recv();
        });
        assert_eq!(hangs, None);
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(within(Duration::from_secs(60), || 8), Some(8), "another serves");
        drop(hold);
    }
}
