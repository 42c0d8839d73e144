//! The thread that writes eventfds for the threads of the program.
//!
//! ```text
//!   writer ──ring──▶ DOORBELL ──▶ this thread ──┬─ eventfd of the session's owner
//!   command ──ring──▶                           └─ bell of the control thread (`eventfds`)
//! ```
//!
//! The control thread starts this thread, which shares its descriptor table, where all eventfds are
//! (`eventfds`). An eventfd is written even if its outlet was closed meanwhile and serves another
//! session: that wakes the owner of the other session needlessly, which is harmless.
//!
//! This thread also starts a thread for each job that needs descriptors of this table
//! ([`Client::run_in_library`]): the control thread may be waiting for a callback, and the callback
//! for the job.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use traceweir_transport::ring::Doorbell;

use super::Client;
use super::eventfds::{Bell, WakeEventfds};
use super::shared::{ControlThreadState, LibraryJob};
use crate::process;
use crate::process::promise::Promise;

/// Rung by writers for their outlets, and by threads with requests for the control thread.
pub(super) static DOORBELL: Doorbell = Doorbell::new();

/// The descriptors of the waking thread, which the control thread can change.
#[derive(Debug)]
pub(super) struct Wakers {
    bell: Arc<Mutex<Arc<Bell>>>,
    eventfds: Arc<Mutex<WakeEventfds>>,
}

impl Wakers {
    /// Starts the waking thread, which shares the descriptor table of the calling control thread.
    pub(super) fn start(client: &'static Client) -> io::Result<Self> {
        let bell = Arc::new(Mutex::new(Arc::new(Bell::new()?)));
        let eventfds = Arc::new(Mutex::new(WakeEventfds::new()));
        let wakers = Self { bell: Arc::clone(&bell), eventfds: Arc::clone(&eventfds) };
        process::spawn_without_signals("traceweir-wake", move || {
            // While an owner waits to be woken, the rings of its region fill.
            process::raise_priority();
            loop {
                let rings = DOORBELL.wait();
                if rings.requests {
                    lock(&bell).ring();
                    client.start_jobs();
                }
                if rings.outlets != 0 && !lock(&eventfds).wake(rings.outlets) {
                    // The control thread reconnects if an eventfd is lost.
                    lock(&bell).ring();
                }
            }
        })?;
        Ok(wakers)
    }

    /// Returns the bell, which is readable when the control thread has requests.
    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&lock(&self.bell))
    }

    /// Replaces the bell if the program closed it. Called by the control thread, which then handles
    /// all requests: rings in the meantime had no effect.
    pub(super) fn renew_bell(&self) -> io::Result<()> {
        let mut bell = lock(&self.bell);
        if !bell.is_intact() {
            bell.forget();
            *bell = Arc::new(Bell::new()?);
        }
        Ok(())
    }

    pub(super) fn set(&self, outlet: u8, wake: OwnedFd) {
        if !lock(&self.eventfds).set(outlet, wake) {
            lock(&self.bell).ring();
        }
    }

    pub(super) fn clear(&self, outlets: u64) {
        lock(&self.eventfds).clear(outlets);
    }

    /// Returns the outlets that lost their eventfds to the program since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        lock(&self.eventfds).take_lost()
    }
}

impl Client {
    /// Runs `work` on a thread that shares the library's descriptors, and waits for it for at most
    /// `timeout`. `None` if `work` takes longer or panics, or if there is no such thread.
    pub(super) fn run_in_library<T: Send + 'static>(
        &'static self,
        timeout: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if process::is_library_thread() {
            return Some(work());
        }
        let mut shared = self.lock();
        self.start_thread(&mut shared, Duration::ZERO);
        if !matches!(shared.control_thread, ControlThreadState::Running) {
            return None;
        }
        let result = Promise::new();
        let promise = result.clone();
        shared.jobs.push(Box::new(move || {
            promise.fulfil(catch_unwind(AssertUnwindSafe(work)).ok());
        }));
        drop(shared);
        self.wake_control_thread();
        result.wait(timeout).flatten()
    }

    /// Starts a thread for each waiting job, or runs the job if that fails. Called on a thread that
    /// shares the library's descriptors.
    pub(super) fn start_jobs(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        for job in jobs {
            // Shared, because a thread that cannot be started drops its closure with the job.
            let job = Arc::new(Mutex::new(Some(job)));
            let run = |job: &Mutex<Option<LibraryJob>>| {
                let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
                job.into_iter().for_each(|job| job());
            };
            let job_of_thread = Arc::clone(&job);
            if process::spawn_without_signals("traceweir-priv", move || run(&job_of_thread)).is_err() {
                run(&job);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
