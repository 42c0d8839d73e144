//! What session threads report to the service.
//!
//! A session calls back on its own thread, once. [`Promise`] makes that once certain: where a session drops its callback without
//! calling it, the service is told that the session has ended, so no client waits for ever.

use std::sync::Arc;

use traceweir_format::spec::status::Status;
use traceweir_kernel::Control;
use traceweir_session::{Error, Live, Result, Session};
use traceweir_transport::message::Properties;

use super::Asker;
use super::kernel::Change;
use crate::error::Refusal;
use crate::kernel::{Begun, Losses, Wishes};
use crate::logfile::Claim;

/// Something that a session's thread has finished.
pub(crate) enum Notice {
    /// A session runs, or could not be started.
    Started {
        /// Which.
        id: u64,
        /// It.
        outcome: Result<Started>,
    },
    /// The file of a session that there is no place for was looked at.
    Looked {
        /// Who asked.
        asker: Asker,
        /// Why there is no place.
        refusal: Refusal,
        /// Whether it could have been written.
        outcome: Result<()>,
    },
    /// A session ended by itself.
    Ended {
        /// Which.
        id: u64,
        /// Why.
        status: Status,
    },
    /// An update or a flush.
    Changed {
        /// Which.
        id: u64,
        /// Who asked.
        asker: Asker,
        /// Whether the file that came along is the session's from now on.
        keeps_file: bool,
        /// What it wished of the kernel before, where the same request has changed that.
        before: Option<Wishes>,
        /// How it is now, and that file.
        outcome: Result<(Properties, Option<Claim>)>,
    },
    /// The kernel was asked for other events.
    KernelChanged {
        /// For what.
        change: Box<Change>,
        /// Captures that have begun.
        outcome: Result<Vec<Option<Begun>>>,
    },
    /// A session's file is final and its threads are gone.
    Stopped {
        /// Which.
        id: u64,
        /// How it was.
        outcome: Result<Properties>,
    },
    /// A live consumer's queue is there.
    Opened {
        /// Of which session.
        id: u64,
        /// Who asked.
        asker: Asker,
        /// It.
        outcome: Result<Live>,
    },
    /// A change of an access list is on the disk, or could not be brought there.
    AccessSaved {
        /// Whether it is.
        outcome: Result<std::io::Result<()>>,
    },
}

/// A session that runs.
pub(crate) struct Started {
    /// It.
    pub(crate) session: Session,
    /// Its file.
    pub(crate) claim: Option<Claim>,
    /// What is captured of the kernel for it.
    pub(crate) kernel: Option<(Control, Arc<Losses>)>,
}

/// Takes notices from any thread.
pub(crate) type Post = Arc<dyn Fn(Notice) + Send + Sync>;

/// A notice that is posted once, whatever happens to its holder.
pub(super) struct Promise<T> {
    post: Post,
    make: Option<Box<dyn FnOnce(Result<T>) -> Notice + Send>>,
}

impl<T> Promise<T> {
    /// A promise to post what `make` makes of an outcome.
    pub(super) fn new(post: &Post, make: impl FnOnce(Result<T>) -> Notice + Send + 'static) -> Self {
        Self { post: Arc::clone(post), make: Some(Box::new(make)) }
    }

    /// Posts it.
    pub(super) fn keep(mut self, outcome: Result<T>) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Result<T>) {
        if let Some(make) = self.make.take() {
            (self.post)(make(outcome));
        }
    }
}

impl<T: 'static> Promise<T> {
    /// A promise of less, from which this one's outcome is made.
    pub(super) fn completed_by<U: 'static>(
        mut self,
        complete: impl FnOnce(U) -> T + Send + 'static,
    ) -> Promise<U> {
        let make = self.make.take();
        let make = make.map(|make| -> Box<dyn FnOnce(Result<U>) -> Notice + Send> {
            Box::new(move |outcome| make(outcome.map(complete)))
        });
        Promise { post: Arc::clone(&self.post), make }
    }

    /// As the callback of a session.
    pub(super) fn done(self) -> Box<dyn FnOnce(Result<T>) + Send> {
        Box::new(move |outcome| self.keep(outcome))
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.settle(Err(Error::Ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_promise_is_kept_once_even_when_it_is_dropped() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let post: Post = {
            let seen = Arc::clone(&seen);
            Arc::new(move |notice| {
                if let Notice::Stopped { id, outcome } = notice {
                    seen.lock().unwrap().push((id, outcome.is_ok()));
                }
            })
        };
        let promise = |id| Promise::new(&post, move |outcome| Notice::Stopped { id, outcome });
        promise(1).keep(Ok(Properties::default()));
        (promise(2).done())(Ok(Properties::default()));
        drop(promise(3).done());
        promise(4).completed_by(|id: u64| Properties { id, ..Properties::default() }).keep(Ok(9));
        drop(promise(5).completed_by(|(): ()| Properties::default()));
        let expected = [(1, true), (2, true), (3, false), (4, true), (5, false)];
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}
