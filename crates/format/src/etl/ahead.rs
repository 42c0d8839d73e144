//! Opens buffers on other threads before the merge needs them.
//!
//! ```text
//!   merge opens buffer 7 of a CPU ──request 8 and 9──▶ queue ──▶ thread: load, decompress, scan
//!   merge needs buffer 8 ──take──▶ the opened buffer, or none if no thread has begun with it
//! ```
//!
//! The events are the same with and without these threads: a buffer that is not taken from here is
//! opened by the merge itself, also after an error.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::ReadAt;
use super::index::BufferRef;
use super::lane::{Lane, OpenAhead, OpenedBuffer};
use super::load::{LoadedBuffer, Loader};

/// The most bytes of buffers that are opened ahead, of all files together.
const MAX_AHEAD_BYTES: usize = 32 << 20;

/// The bytes that are reserved for a smaller buffer: a request takes memory too.
const MIN_RESERVED_BYTES: usize = 64 << 10;

type Job = Box<dyn FnOnce(&mut Loader) + Send>;

/// Threads that open buffers ahead, for any number of traces. They end when this value is dropped.
pub struct BufferThreads {
    queue: Arc<JobQueue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<QueueState>,
    has_changed: Condvar,
    /// The sizes in memory of all requested buffers that have not been taken, or whose job waits.
    ahead_bytes: AtomicUsize,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    is_ended: bool,
}

impl fmt::Debug for BufferThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferThreads").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl BufferThreads {
    /// Starts this many threads, or fewer if the system refuses more.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let queue = Arc::<JobQueue>::default();
        let start_one = |_| {
            let queue = queue.clone();
            std::thread::Builder::new().name("load".into()).spawn(move || queue.run_jobs()).ok()
        };
        let threads = (0..count).map_while(start_one).collect();
        Self { queue, threads }
    }

    /// Prepares opening the buffers of one trace; `None` without threads.
    pub(super) fn requests<R: ReadAt + Clone + Send + 'static>(
        &self,
        source: &R,
        session_size: u32,
        has_short_instance_headers: bool,
    ) -> Option<Box<dyn OpenAhead>> {
        if self.threads.is_empty() {
            return None;
        }
        Some(Box::new(Requests {
            source: source.clone(),
            queue: self.queue.clone(),
            session_size,
            has_short_instance_headers,
            pending: HashMap::new(),
        }))
    }
}

impl Drop for BufferThreads {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_ended = true;
        state.jobs.clear();
        drop(state);
        self.queue.has_changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed; the merge opens the buffers itself.
            drop(thread.join());
        }
    }
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether buffers of this many bytes may be opened ahead, and counts them if so.
    fn reserve(&self, bytes: usize) -> bool {
        let add = |total: usize| total.checked_add(bytes).filter(|total| *total <= MAX_AHEAD_BYTES);
        self.ahead_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn push(&self, job: Job) {
        let mut state = self.lock();
        if !state.is_ended {
            state.jobs.push_back(job);
            self.has_changed.notify_one();
        }
    }

    fn run_jobs(&self) {
        let mut loader = Loader::default();
        loop {
            let mut state = self.lock();
            let job = loop {
                if state.is_ended {
                    return;
                }
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None => state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            job(&mut loader);
        }
    }
}

/// The requests of one trace.
struct Requests<R> {
    source: R,
    queue: Arc<JobQueue>,
    session_size: u32,
    has_short_instance_headers: bool,
    /// Requested buffers, by position in `Trace::buffers`.
    pending: HashMap<usize, Arc<Slot>>,
}

impl<R> Drop for Requests<R> {
    fn drop(&mut self) {
        self.pending.values().for_each(|slot| slot.withdraw());
    }
}

impl<R> fmt::Debug for Requests<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// The place of a requested buffer. Its bytes are reserved until neither the merge nor the queue has
/// it, so that jobs which wait for a slow disk are bounded too.
struct Slot {
    state: Mutex<SlotState>,
    is_done: Condvar,
    queue: Arc<JobQueue>,
    reserved_bytes: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.queue.release(self.reserved_bytes);
    }
}

#[derive(Default)]
enum SlotState {
    #[default]
    Requested,
    Opening,
    /// `None` if the buffer could not be read.
    Opened(Option<Box<OpenedBuffer>>),
    /// The merge needed the buffer before a thread began with it.
    Withdrawn,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the request still stands, and marks it as begun.
    fn begin(&self) -> bool {
        let mut state = self.lock();
        let stands = matches!(*state, SlotState::Requested);
        if stands {
            *state = SlotState::Opening;
        }
        stands
    }

    /// Takes the request back, unless a thread has begun with it.
    fn withdraw(&self) {
        let mut state = self.lock();
        if matches!(*state, SlotState::Requested) {
            *state = SlotState::Withdrawn;
        }
    }

    fn finish(&self, opened: Option<Box<OpenedBuffer>>) {
        *self.lock() = SlotState::Opened(opened);
        self.is_done.notify_one();
    }

    /// Returns the opened buffer, and waits for it if a thread has begun.
    fn take(&self) -> Option<OpenedBuffer> {
        let mut state = self.lock();
        while matches!(*state, SlotState::Opening) {
            state = self.is_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match core::mem::replace(&mut *state, SlotState::Withdrawn) {
            SlotState::Opened(opened) => opened.map(|opened| *opened),
            _ => None,
        }
    }
}

/// Finishes a slot even if opening its buffer panics, so that the merge does not wait for ever.
struct BegunSlot(Arc<Slot>);

impl Drop for BegunSlot {
    fn drop(&mut self) {
        if matches!(*self.0.lock(), SlotState::Opening) {
            self.0.finish(None);
        }
    }
}

impl<R: ReadAt + Clone + Send + 'static> OpenAhead for Requests<R> {
    fn request(&mut self, index: usize, buffer: &BufferRef, loader: &mut Loader) {
        let reserved_bytes = buffer.loading_bytes().max(MIN_RESERVED_BYTES);
        if self.pending.contains_key(&index) || !self.queue.reserve(reserved_bytes) {
            return;
        }
        let slot = Arc::new(Slot {
            state: Mutex::default(),
            is_done: Condvar::new(),
            queue: self.queue.clone(),
            reserved_bytes,
        });
        self.pending.insert(index, slot.clone());
        let spare = loader.give_spare().filter(|spare| spare.capacity() <= reserved_bytes);
        let (source, buffer) = (self.source.clone(), *buffer);
        let (session_size, is_short) = (self.session_size, self.has_short_instance_headers);
        self.queue.push(Box::new(move |loader| {
            if !slot.begin() {
                return;
            }
            let slot = BegunSlot(slot);
            if let Some(bytes) = spare {
                loader.recycle(LoadedBuffer { bytes, ..LoadedBuffer::default() });
            }
            let opened = loader.load(&source, &buffer, session_size).ok().map(|(loaded, damage)| {
                // The buffer begins with a stamp, so no record inherits the time before it.
                let (lane, scan) = Lane::open(index, buffer.cpu, loaded, buffer.first_time, is_short);
                Box::new(OpenedBuffer { lane, defects: [damage, scan.err()] })
            });
            slot.0.finish(opened);
        }));
    }

    fn take(&mut self, index: usize) -> Option<OpenedBuffer> {
        self.pending.remove(&index)?.take()
    }
}
