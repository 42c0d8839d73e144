//! A thread that reads the unwind tables of programs and can be abandoned if it hangs.
//!
//! ```text
//!   request ──▶ requests, in order ──▶ thread ──▶ answers, in the same order ──▶ next_answer
//!                                        └ hangs: stuck_file names the file; dropping the reader
//!                                          abandons the thread, and the unwinder starts another
//! ```
//!
//! - T1 No caller waits longer than its timeout. After a timeout, no caller waits again before an
//!   answer has come.
//! - T2 Answers come in the order of requests, so the thread is working on the oldest pending one.
//! - T3 An abandoned thread sends no answer, reads no further file and ends when its read returns.
//! - T4 A thread that has ended is detected at once.
//! - T5 All captures together have at most [`MAX_ABANDONED`] abandoned threads. Beyond that no
//!   thread is started.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::program::UnwindTables;
use crate::blocking::{self, READ_TIMEOUT};

/// The largest number of requests that wait for the thread.
const MAX_REQUESTS: usize = 64;
/// The largest number of abandoned threads that have not ended.
const MAX_ABANDONED: usize = 8;

/// A file, independent of where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModuleFileKey {
    /// Major and minor number of the device.
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
}
/// The tables of a file, if it has trusted ones; the outer `None` means that it was not found.
pub(super) type TableAnswer = Option<Option<Arc<UnwindTables>>>;
/// A function that reads the tables of a file mapped by a process.
pub(super) type ReadTables = Arc<dyn Fn(u32, &ModuleMapping) -> Option<Option<UnwindTables>> + Send + Sync>;

/// A part of a file that a process has mapped as executable.
#[derive(Clone, Debug)]
pub(super) struct ModuleMapping {
    pub(super) range: Range<u64>,
    pub(super) offset: u64,
    pub(super) file: ModuleFileKey,
    pub(super) path: String,
}

/// Counts of threads and of readers that own one.
struct ThreadCounts {
    threads: usize,
    readers: usize,
}

impl ThreadCounts {
    const ZERO: Self = Self { threads: 0, readers: 0 };

    /// Returns the number of threads without a reader.
    fn abandoned_threads(&self) -> usize {
        self.threads.saturating_sub(self.readers)
    }
}

/// The counts of all captures together.
static COUNTS: Mutex<ThreadCounts> = Mutex::new(ThreadCounts::ZERO);

fn lock_counts(counts: &Mutex<ThreadCounts>) -> MutexGuard<'_, ThreadCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a thread while it runs, however it ends.
struct RunningThread(&'static Mutex<ThreadCounts>);

impl Drop for RunningThread {
    fn drop(&mut self) {
        let mut counts = lock_counts(self.0);
        counts.threads = counts.threads.saturating_sub(1);
    }
}

/// A thread that reads tables. Dropping this value abandons the thread.
pub(super) struct TableReader {
    requests: SyncSender<(u32, ModuleMapping)>,
    answers: Receiver<(ModuleFileKey, TableAnswer)>,
    /// Files that were requested and not answered yet.
    pending: VecDeque<ModuleFileKey>,
    /// The time since which the thread has been working on the first pending file.
    reading_since: Instant,
    /// Whether a wait has timed out and no answer has come since.
    has_timed_out: bool,
    /// Whether the thread has ended while reading the first pending file.
    has_thread_ended: bool,
    counts: &'static Mutex<ThreadCounts>,
}

impl TableReader {
    /// Starts a thread. Returns `None` if that fails or too many threads hang.
    pub(super) fn start(read: &ReadTables) -> Option<Self> {
        Self::start_with_counts(&COUNTS, read)
    }

    fn start_with_counts(counts: &'static Mutex<ThreadCounts>, read: &ReadTables) -> Option<Self> {
        let running = {
            let mut locked = lock_counts(counts);
            if locked.abandoned_threads() >= MAX_ABANDONED {
                return None;
            }
            locked.threads = locked.threads.saturating_add(1);
            locked.readers = locked.readers.saturating_add(1);
            RunningThread(counts)
        };
        let (requests, request_receiver) = sync_channel::<(u32, ModuleMapping)>(MAX_REQUESTS);
        let (answer_sender, answers) = sync_channel(MAX_REQUESTS);
        let (reading_since, has_timed_out, has_thread_ended) = (Instant::now(), false, false);
        // If no thread can be started, dropping `reader` and `running` corrects the counts.
        let pending = VecDeque::new();
        let reader =
            Self { requests, answers, pending, reading_since, has_timed_out, has_thread_ended, counts };
        let read = Arc::clone(read);
        let answer_requests = move || {
            let _running = running;
            for (process, mapping) in request_receiver {
                let tables = read(process, &mapping);
                if answer_sender.send((mapping.file, tables.map(|tables| tables.map(Arc::new)))).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("weir-unwind".into()).spawn(answer_requests).ok()?;
        Some(reader)
    }

    /// Requests a file, unless it is pending already. Returns whether an answer may come.
    pub(super) fn request(&mut self, process: u32, mapping: &ModuleMapping) -> bool {
        if self.pending.contains(&mapping.file) {
            return true;
        }
        // If the thread is late or hangs, a later stack requests the file again.
        if self.requests.try_send((process, mapping.clone())).is_err() {
            return false;
        }
        if self.pending.is_empty() {
            self.reading_since = Instant::now();
        }
        self.pending.push_back(mapping.file);
        true
    }

    /// Returns the next answer. With `should_wait` it waits for a moment, except in the case of T1.
    pub(super) fn next_answer(&mut self, should_wait: bool) -> Option<(ModuleFileKey, TableAnswer)> {
        let answer =
            if should_wait && !self.has_timed_out { self.wait_for_answer() } else { self.poll_answer() };
        if answer.is_some() {
            self.has_timed_out = false;
            self.pending.pop_front();
            self.reading_since = Instant::now();
        }
        answer
    }

    fn poll_answer(&mut self) -> Option<(ModuleFileKey, TableAnswer)> {
        let answer = self.answers.try_recv();
        self.has_thread_ended = answer.as_ref().is_err_and(|error| *error == TryRecvError::Disconnected);
        answer.ok()
    }

    fn wait_for_answer(&mut self) -> Option<(ModuleFileKey, TableAnswer)> {
        let timeout = blocking::allowed_timeout(READ_TIMEOUT, None)?;
        let start = Instant::now();
        let answer = self.answers.recv_timeout(timeout);
        self.has_thread_ended = answer.as_ref().is_err_and(|error| *error == RecvTimeoutError::Disconnected);
        self.has_timed_out = answer.is_err();
        blocking::charge_budget(start.elapsed(), None, self.has_timed_out);
        answer.ok()
    }

    /// Returns the file that the thread has been reading for longer than `timeout`, or the file at
    /// which the thread has ended.
    pub(super) fn stuck_file(&self, timeout: Duration) -> Option<ModuleFileKey> {
        self.pending
            .front()
            .copied()
            .filter(|_| self.has_thread_ended || self.reading_since.elapsed() > timeout)
    }
}

impl Drop for TableReader {
    fn drop(&mut self) {
        let mut counts = lock_counts(self.counts);
        counts.readers = counts.readers.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn file(inode: u64) -> ModuleFileKey {
        ModuleFileKey { device: (0, 0), inode }
    }

    fn build_mapping(inode: u64) -> ModuleMapping {
        ModuleMapping { range: 0..1, offset: 0, file: file(inode), path: String::new() }
    }

    #[test]
    fn hanging_threads_are_bounded_and_end_when_released() {
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let read: ReadTables = Arc::new(move |_, _| {
            let _ = released.lock().map(|released| released.recv());
            None
        });
        static TEST_COUNTS: Mutex<ThreadCounts> = Mutex::new(ThreadCounts::ZERO);
        let mut hanging_count = 0;
        while let Some(mut reader) = TableReader::start_with_counts(&TEST_COUNTS, &read) {
            let [first, second] = [build_mapping(7), build_mapping(8)];
            assert!(reader.request(1, &first) && reader.request(1, &first) && reader.request(1, &second));
            assert_eq!(reader.pending, [file(7), file(8)], "a file was requested twice");
            assert_eq!(reader.stuck_file(Duration::ZERO), Some(file(7)));
            hanging_count += 1;
            assert!(hanging_count <= MAX_ABANDONED, "too many threads hang");
        }
        assert_eq!(hanging_count, MAX_ABANDONED);
        drop(release);
        let deadline = Instant::now() + Duration::from_secs(60);
        while TableReader::start_with_counts(&TEST_COUNTS, &read).is_none() {
            assert!(Instant::now() < deadline, "the released threads did not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn panic_while_reading_is_detected_at_once() {
        const ONE_HOUR: Duration = Duration::from_secs(3600);
        for should_wait in [true, false] {
            let read: ReadTables = Arc::new(|_, mapping| match mapping.file.inode {
                6 => None,
                _ => panic!("intended by this test"),
            });
            let mut reader = TableReader::start(&read).expect("the reader thread does not start");
            assert!(reader.request(1, &build_mapping(6)) && reader.request(1, &build_mapping(7)));
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut answer_count = 0;
            while reader.stuck_file(ONE_HOUR).is_none() {
                assert!(Instant::now() < deadline, "the end of the thread was not detected");
                answer_count += usize::from(reader.next_answer(should_wait).is_some());
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(
                (answer_count, reader.stuck_file(ONE_HOUR)),
                (1, Some(file(7))),
                "not the file on which the thread panicked"
            );
        }
    }
}
