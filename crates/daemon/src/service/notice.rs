//! Threads that work for the service, and their reports.
//!
//! A session must call the callback of a request exactly once, on one of its threads. If it drops
//! the callback uncalled, [`NoticePromise`] posts [`Error::Ended`] to the service, so no client
//! waits forever.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_kernel::CaptureControl;
use traceweir_session::{Error, OpenedConsumer, Result, Session};
use traceweir_transport::map::check_headroom;
use traceweir_transport::message::{EnableParams, Properties};

use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::kernel::{CaptureLosses, OpenCapture, RequestedGroups};
use crate::log::log_warning;
use crate::logfile::FileClaim;

/// A report of another thread that its work has finished.
pub(crate) enum ThreadNotice {
    /// A session runs, or could not be started.
    Started { id: u64, outcome: Result<StartedSession> },
    /// The file of a session that is about to be refused was checked.
    FileChecked {
        reply_to: ReplyTo,
        /// The reason for refusing the session.
        refusal: Refusal,
        /// Whether the file could have been written.
        outcome: Result<()>,
    },
    /// A session ended by itself.
    Ended { id: u64, status: Status },
    /// A change of a session, such as an update or flush, has finished.
    Changed {
        id: u64,
        reply_to: ReplyTo,
        /// Whether the session keeps the file that came with the request.
        keeps_file: bool,
        /// The kernel groups before the request, if it has changed them; restored after a failure.
        before: Option<RequestedGroups>,
        outcome: Result<(Properties, Option<FileClaim>)>,
    },
    /// The settings of kernel captures were changed, or could not be changed.
    KernelChanged { outcome: Result<Vec<Option<OpenCapture>>> },
    /// An enable of one of the kernel's manifest providers was applied, or refused.
    ProvidersApplied { applied: AppliedEnable, outcome: Result<()> },
    /// The capture has the enables from before a refused enable again, or could not be changed.
    ProvidersRestored { outcome: Result<()> },
    /// A session's file is final and its threads have ended.
    Stopped { id: u64, outcome: Result<Properties> },
    /// The queue of a live consumer was created, or could not be created.
    ConsumerOpened { id: u64, reply_to: ReplyTo, outcome: Result<OpenedConsumer> },
    /// A change of an access list was saved, or could not be saved.
    AccessSaved { outcome: Result<std::io::Result<()>> },
}

/// An enable or disable of one of the kernel's manifest providers.
pub(crate) struct AppliedEnable {
    pub(super) reply_to: ReplyTo,
    /// Id of the session whose enables changed.
    pub(super) id: u64,
    pub(super) provider: Guid,
    /// The enable before the call.
    pub(super) before: Option<EnableParams>,
    /// Bytes of user stack that the session requests with each stack.
    pub(super) stack_bytes: u32,
}

pub(crate) struct StartedSession {
    pub(crate) session: Session,
    pub(crate) claim: Option<FileClaim>,
    pub(crate) kernel: Option<(CaptureControl, Arc<CaptureLosses>)>,
}

/// Accepts notices from any thread.
pub(crate) type NoticeSender = Arc<dyn Fn(ThreadNotice) + Send + Sync>;

/// A notice that is posted exactly once, even if its holder drops it.
pub(super) struct NoticePromise<T> {
    post: NoticeSender,
    make: Option<Box<dyn FnOnce(Result<T>) -> ThreadNotice + Send>>,
}

impl<T> NoticePromise<T> {
    /// Creates a promise that posts the notice that `make` builds from the outcome.
    pub(super) fn new(
        post: &NoticeSender,
        make: impl FnOnce(Result<T>) -> ThreadNotice + Send + 'static,
    ) -> Self {
        Self { post: Arc::clone(post), make: Some(Box::new(make)) }
    }

    pub(super) fn deliver(mut self, outcome: Result<T>) {
        self.post_once(outcome);
    }

    fn post_once(&mut self, outcome: Result<T>) {
        if let Some(make) = self.make.take() {
            (self.post)(make(outcome));
        }
    }
}

impl<T: 'static> NoticePromise<T> {
    /// Returns a promise of a partial outcome, which `complete` converts to the outcome of this
    /// promise.
    pub(super) fn completed_by<U: 'static>(
        mut self,
        complete: impl FnOnce(U) -> T + Send + 'static,
    ) -> NoticePromise<U> {
        let make = self.make.take();
        let make = make.map(|make| -> Box<dyn FnOnce(Result<U>) -> ThreadNotice + Send> {
            Box::new(move |outcome| make(outcome.map(complete)))
        });
        NoticePromise { post: Arc::clone(&self.post), make }
    }

    pub(super) fn into_callback(self) -> Box<dyn FnOnce(Result<T>) + Send> {
        Box::new(move |outcome| self.deliver(outcome))
    }
}

impl<T> Drop for NoticePromise<T> {
    fn drop(&mut self) {
        self.post_once(Err(Error::Ended));
    }
}

/// Stack size of a thread for file operations.
pub(super) const FILE_THREAD_STACK_BYTES: usize = 2 << 20;

/// Runs work that may block, such as file operations, on a separate thread. If no thread can be
/// created, the closure is dropped, and its promise with it.
pub(super) fn spawn_file_thread(work: impl FnOnce() + Send + 'static) {
    // A new thread that finds no memory for its signal stack aborts the process.
    if let Err(e) = check_headroom(FILE_THREAD_STACK_BYTES) {
        log_warning!("cannot start a thread for blocking work: {e}");
        return;
    }
    if let Err(e) =
        std::thread::Builder::new().name("weir-file".into()).stack_size(FILE_THREAD_STACK_BYTES).spawn(work)
    {
        log_warning!("cannot start a thread for blocking work: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn promise_posts_once_even_when_dropped() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let post: NoticeSender = {
            let seen = Arc::clone(&seen);
            Arc::new(move |notice| {
                if let ThreadNotice::Stopped { id, outcome } = notice {
                    seen.lock().unwrap().push((id, outcome.is_ok()));
                }
            })
        };
        let promise = |id| NoticePromise::new(&post, move |outcome| ThreadNotice::Stopped { id, outcome });
        promise(1).deliver(Ok(Properties::default()));
        (promise(2).into_callback())(Ok(Properties::default()));
        drop(promise(3).into_callback());
        promise(4).completed_by(|id: u64| Properties { id, ..Properties::default() }).deliver(Ok(9));
        drop(promise(5).completed_by(|(): ()| Properties::default()));
        let expected = [(1, true), (2, true), (3, false), (4, true), (5, false)];
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}
