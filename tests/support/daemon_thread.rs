//! A daemon in a thread of the test's own process.
#![allow(dead_code)] // Each test program uses only some of these functions.

use std::thread::JoinHandle;

use traceweir_daemon::{Options, Stopper, run_until};
use traceweir_transport::socket::Connection;

use super::wait::{TEST_TIMEOUT, until};

/// A daemon thread that accepts connections. Dropping this value stops the daemon, and fails the
/// test if the daemon panicked or returned an error.
pub(crate) struct DaemonThread {
    stopper: Stopper,
    thread: Option<JoinHandle<traceweir_daemon::Result<()>>>,
}

impl DaemonThread {
    #[track_caller]
    pub(crate) fn start(options: Options) -> Self {
        let socket = options.runtime.control_socket();
        let stopper = Stopper::new().unwrap();
        let thread_stopper = stopper.clone();
        let thread = std::thread::spawn(move || run_until(options, &thread_stopper));
        let daemon = Self { stopper, thread: Some(thread) };
        until("the daemon accepts connections", || {
            assert!(!daemon.has_ended(), "the daemon ended");
            Connection::connect(&socket, TEST_TIMEOUT).is_ok()
        });
        daemon
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the daemon to stop, without waiting.
    pub(crate) fn request_stop(&self) {
        self.stopper.stop();
    }

    /// Waits until the daemon has stopped by itself. Fails if the daemon panicked or returned an
    /// error.
    #[track_caller]
    pub(crate) fn wait(mut self) {
        until("the daemon ends", || self.has_ended());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon panicked").expect("the daemon returned an error");
        }
    }
}

impl Drop for DaemonThread {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let has_succeeded = thread.join().is_ok_and(|result| result.is_ok());
            assert!(has_succeeded || std::thread::panicking(), "the daemon panicked or returned an error");
        }
    }
}
