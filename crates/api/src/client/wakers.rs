//! The thread that writes eventfds for the threads of the program.
//!
//! ```text
//!   writer ──ring──▶ DOORBELL ──▶ this thread ──┬─ eventfd of the session's owner
//!   command ──ring──▶                           └─ eventfd of the control thread
//! ```
//!
//! The thread is started by the control thread and shares its descriptor table, in which all eventfds are. An eventfd is written although its outlet was
//! closed meanwhile and serves another session: that wakes the owner of the other session for nothing, and harms nobody.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use traceweir_transport::ring::Doorbell;

use super::outlets::{OUTLETS, numbers};
use super::process;

/// Rung by writers for their outlets and by threads that ask something of the control thread.
pub(super) static DOORBELL: Doorbell = Doorbell::new();

/// The eventfds of outlets, which both threads know.
type Descriptors = [Option<OwnedFd>; OUTLETS];

/// The control thread's side.
#[derive(Debug)]
pub(super) struct Wakers {
    /// Readable when the control thread is asked for something.
    pub(super) requests: Arc<OwnedFd>,
    descriptors: Arc<Mutex<Descriptors>>,
}

impl Wakers {
    /// Starts the thread that wakes. Called by the control thread, whose descriptor table it will share.
    pub(super) fn start() -> io::Result<Self> {
        let requests = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let descriptors = Arc::new(Mutex::new([const { None }; OUTLETS]));
        let wakers = Self { requests: Arc::clone(&requests), descriptors: Arc::clone(&descriptors) };
        process::spawn_quiet("traceweir-wake", move || {
            loop {
                let rings = DOORBELL.wait();
                if rings.requests {
                    wake(&requests);
                }
                if rings.outlets != 0 {
                    let descriptors = lock(&descriptors);
                    let rung = numbers(rings.outlets).filter_map(|at| descriptors[usize::from(at)].as_ref());
                    rung.for_each(wake);
                }
            }
        })?;
        Ok(wakers)
    }

    /// Has an outlet's rings written to this eventfd.
    pub(super) fn set(&self, outlet: u8, wake: OwnedFd) {
        lock(&self.descriptors)[usize::from(outlet) % OUTLETS] = Some(wake);
    }

    /// Closes the eventfds of outlets.
    pub(super) fn clear(&self, outlets: u64) {
        let mut descriptors = lock(&self.descriptors);
        for outlet in numbers(outlets) {
            descriptors[usize::from(outlet)] = None;
        }
    }
}

fn lock(descriptors: &Mutex<Descriptors>) -> MutexGuard<'_, Descriptors> {
    descriptors.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(eventfd: &OwnedFd) {
    // A counter that is full wakes as well.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}
