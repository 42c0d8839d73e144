//! The thread that reads the tables of programs, and what becomes of one that hangs.
//!
//! ```text
//!   ask ──▶ requests, in order ──▶ thread ──▶ answers, in the same order ──▶ next
//!                                    └ hangs: hangs_at says over which file; who drops the reader leaves the thread alone and starts another
//! ```
//!
//! T1 Nobody waits longer than his patience, and not again before there was an answer. T2 Answers come in the order of requests, so the oldest request that waits is the one that the thread is about. T3 A thread that is left
//! alone answers nobody, reads nothing further and ends when it is let go. T4 A thread that is gone is found at once. T5 At most [`MAX_LEFT_ALONE`] of those are there, of all captures together: past that no other is started.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::program::Tables;
use crate::patient::{self, PATIENCE};

/// Requests that may wait for the thread.
const MAX_REQUESTS: usize = 64;
/// Threads that hang, or have not noticed yet that nobody needs them, at most.
const MAX_LEFT_ALONE: usize = 8;

/// Which file, wherever it is mapped: device and inode.
pub(super) type FileKey = (u32, u32, u64);
/// What was read of a file: its tables, if it has some that are believed; `None`: it was not found.
pub(super) type Answer = Option<Option<Arc<Tables>>>;
/// Reads the tables of what a process has mapped.
pub(super) type ReadTables = Arc<dyn Fn(u32, &Mapping) -> Option<Option<Tables>> + Send + Sync>;

/// A part of a file that a process has mapped to run.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    pub(super) offset: u64,
    pub(super) file: FileKey,
    pub(super) path: String,
}

/// How many there are.
struct Numbers {
    threads: usize,
    readers: usize,
}

impl Numbers {
    const NONE: Self = Self { threads: 0, readers: 0 };

    /// Threads that no reader has any more.
    fn left_alone(&self) -> usize {
        self.threads.saturating_sub(self.readers)
    }
}

/// Those of all captures.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers::NONE);

fn locked(numbers: &Mutex<Numbers>) -> MutexGuard<'_, Numbers> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a thread for as long as it runs, however it ends.
struct Running(&'static Mutex<Numbers>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut numbers = locked(self.0);
        numbers.threads = numbers.threads.saturating_sub(1);
    }
}

/// A thread that reads. Dropping this leaves it alone.
pub(super) struct Reader {
    ask: SyncSender<(u32, Mapping)>,
    told: Receiver<(FileKey, Answer)>,
    /// What it was asked for and has not answered.
    asked: VecDeque<FileKey>,
    /// Since when it is about the first of those.
    since: Instant,
    /// It was waited for in vain, and has not answered since.
    is_late: bool,
    /// It has ended over the first of those: nobody will answer.
    is_gone: bool,
    numbers: &'static Mutex<Numbers>,
}

impl Reader {
    /// Starts a thread; `None` where none can be had, or too many hang.
    pub(super) fn start(read: &ReadTables) -> Option<Self> {
        Self::start_among(&NUMBERS, read)
    }

    fn start_among(numbers: &'static Mutex<Numbers>, read: &ReadTables) -> Option<Self> {
        let running = {
            let mut counted = locked(numbers);
            if counted.left_alone() >= MAX_LEFT_ALONE {
                return None;
            }
            counted.threads = counted.threads.saturating_add(1);
            counted.readers = counted.readers.saturating_add(1);
            Running(numbers)
        };
        let (ask, asked) = sync_channel::<(u32, Mapping)>(MAX_REQUESTS);
        let (tell, told) = sync_channel(MAX_REQUESTS);
        let (since, is_late, is_gone) = (Instant::now(), false, false);
        // Counts itself out where there is no thread, and so does what the thread would have done.
        let reader = Self { ask, told, asked: VecDeque::new(), since, is_late, is_gone, numbers };
        let read = Arc::clone(read);
        let serve = move || {
            let _running = running;
            for (process, mapping) in asked {
                let tables = read(process, &mapping);
                if tell.send((mapping.file, tables.map(|it| it.map(Arc::new)))).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("weir-unwind".into()).spawn(serve).ok()?;
        Some(reader)
    }

    /// Asks for a file, if it is not asked for already. Whether an answer may come.
    pub(super) fn ask(&mut self, process: u32, mapping: &Mapping) -> bool {
        if self.asked.contains(&mapping.file) {
            return true;
        }
        // Where it is behind, or hangs, it is asked with a later stack.
        if self.ask.try_send((process, mapping.clone())).is_err() {
            return false;
        }
        if self.asked.is_empty() {
            self.since = Instant::now();
        }
        self.asked.push_back(mapping.file);
        true
    }

    /// The next answer; `waits`: if it comes in a moment.
    pub(super) fn next(&mut self, waits: bool) -> Option<(FileKey, Answer)> {
        let answer = if waits && !self.is_late { self.wait() } else { self.at_once() };
        if answer.is_some() {
            self.is_late = false;
            self.asked.pop_front();
            self.since = Instant::now();
        }
        answer
    }

    fn at_once(&mut self) -> Option<(FileKey, Answer)> {
        let answer = self.told.try_recv();
        self.is_gone = answer.as_ref().is_err_and(|it| *it == TryRecvError::Disconnected);
        answer.ok()
    }

    fn wait(&mut self) -> Option<(FileKey, Answer)> {
        let patience = patient::allowed(PATIENCE, None)?;
        let begun = Instant::now();
        let answer = self.told.recv_timeout(patience);
        self.is_gone = answer.as_ref().is_err_and(|it| *it == RecvTimeoutError::Disconnected);
        self.is_late = answer.is_err();
        patient::pay(begun.elapsed(), None, self.is_late);
        answer.ok()
    }

    /// The file that it has been about for longer than this, or over which it has ended.
    pub(super) fn hangs_at(&self, longest: Duration) -> Option<FileKey> {
        self.asked.front().copied().filter(|_| self.is_gone || self.since.elapsed() > longest)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut numbers = locked(self.numbers);
        numbers.readers = numbers.readers.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn mapping(inode: u64) -> Mapping {
        Mapping { range: 0..1, offset: 0, file: (0, 0, inode), path: String::new() }
    }

    #[test]
    fn threads_that_hang_are_bounded_and_come_back_when_they_are_let_go() {
        let (hold, held) = channel::<()>();
        let held = Mutex::new(held);
        let read: ReadTables = Arc::new(move |_, _| {
            let _ = held.lock().map(|held| held.recv());
            None
        });
        static OWN: Mutex<Numbers> = Mutex::new(Numbers::NONE);
        let mut hanging = 0;
        while let Some(mut reader) = Reader::start_among(&OWN, &read) {
            assert!(reader.ask(1, &mapping(7)) && reader.ask(1, &mapping(7)) && reader.ask(1, &mapping(8)));
            assert_eq!(reader.asked, [(0, 0, 7), (0, 0, 8)], "a file is asked for once");
            assert_eq!(reader.hangs_at(Duration::ZERO), Some((0, 0, 7)));
            hanging += 1;
            assert!(hanging <= MAX_LEFT_ALONE, "there is a bound");
        }
        assert_eq!(hanging, MAX_LEFT_ALONE);
        drop(hold);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Reader::start_among(&OWN, &read).is_none() {
            assert!(Instant::now() < deadline, "they are back");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_panics_while_it_is_read_is_found_at_once() {
        const LONG: Duration = Duration::from_secs(3600);
        for waits in [true, false] {
            let read: ReadTables = Arc::new(|_, mapping| match mapping.file {
                (0, 0, 6) => None,
                _ => panic!("a test makes it"),
            });
            let mut reader = Reader::start(&read).expect("a thread");
            assert!(reader.ask(1, &mapping(6)) && reader.ask(1, &mapping(7)));
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut answered = 0;
            while reader.hangs_at(LONG).is_none() {
                assert!(Instant::now() < deadline, "it is found");
                answered += usize::from(reader.next(waits).is_some());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!((answered, reader.hangs_at(LONG)), (1, Some((0, 0, 7))), "not what was read before");
        }
    }
}
