//! The schemas that traces contain for their own events, for queries through tdh.h.
//!
//! ```text
//!   events that describe others ──▶ schemas of the trace ◀── tdh.h, if the process has no schema
//!                                       │        │
//!          programs that the trace names         its whole file: schemas may follow events
//! ```
//!
//! 1. A trace describes only its own events. A query from a callback asks the trace of the event
//!    that the callback received. A query from elsewhere may be about an event of any open trace,
//!    and asks them one after the other.
//! 2. Programs are opened and files are read only for a query about an event that nothing else
//!    describes, and each program and file only once.
//! 3. [`QueryDecoder`] bounds the memory that a trace can use here. Closing the handle frees it.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use traceweir::consumer::{Trace, open_program};
use traceweir_decode::tdh::{Answer, QueryDecoder};
use traceweir_format::etl;
use traceweir_format::header::Record;

use super::lock;

/// The schemas that one trace contains.
pub(super) struct TraceSchemas(Mutex<LearnedSchemas>);

struct LearnedSchemas {
    queries: QueryDecoder,
    /// The file, until it is searched.
    file: Option<File>,
}

impl TraceSchemas {
    /// Starts without schemas. The file is not searched if its descriptor cannot be duplicated.
    pub(super) fn new(trace: &Trace) -> Arc<Self> {
        let file = trace.file().and_then(|file| file.try_clone().ok());
        Arc::new(Self(Mutex::new(LearnedSchemas { queries: QueryDecoder::default(), file })))
    }

    /// Learns from an event before it is delivered to the program.
    #[cold]
    pub(super) fn observe(&self, record: &Record<'_>) {
        lock(&self.0).queries.decoder.observe(record);
    }

    /// Asks a question. While the schema is missing, learns further schemas and asks again.
    pub(super) fn ask<T>(&self, question: &mut impl FnMut(&mut QueryDecoder) -> Answer<T>) -> Answer<T> {
        let mut learned = lock(&self.0);
        let mut answer = question(&mut learned.queries);
        for learn in [LearnedSchemas::load_programs, LearnedSchemas::search_file] {
            if answer.as_ref().err().is_some_and(|refusal| refusal.is_missing_schema()) && learn(&mut learned)
            {
                answer = question(&mut learned.queries);
            }
        }
        answer
    }
}

impl LearnedSchemas {
    /// Loads the manifests of the programs that the trace names. Returns whether one of them
    /// describes events.
    fn load_programs(&mut self) -> bool {
        let mut has_learned = false;
        for tracked in self.queries.decoder.take_tracked() {
            let Some(program) = open_program(Path::new(&tracked.path)) else { continue };
            // The events stay undescribed if the program has been replaced or has no manifest.
            has_learned |= self.queries.decoder.add_tracked(&tracked, program).is_ok_and(|events| events > 0);
        }
        has_learned
    }

    /// Reads the whole file for events that describe others, unless it was read before. Returns
    /// whether the file was read.
    fn search_file(&mut self) -> bool {
        let Some(trace) = self.file.take().and_then(|file| etl::Trace::open(file).ok()) else { return false };
        let mut events = trace.events();
        // `ProcessTrace` reports read errors when it delivers the events.
        while let Ok(Some(record)) = events.next() {
            self.queries.decoder.observe(&record);
        }
        self.load_programs();
        true
    }
}

/// The traces that a thread delivers, and the index of the trace whose event it delivers now.
pub(super) struct ThreadDelivery {
    traces: Vec<Arc<TraceSchemas>>,
    current: Cell<usize>,
}

thread_local! {
    static DELIVERING: RefCell<Option<Rc<ThreadDelivery>>> = const { RefCell::new(None) };
}

impl ThreadDelivery {
    /// Begins the delivery of traces by this thread.
    pub(super) fn begin(traces: Vec<Arc<TraceSchemas>>) -> (Rc<Self>, EndDelivery) {
        let delivery = Rc::new(Self { traces, current: Cell::new(0) });
        (Rc::clone(&delivery), EndDelivery(DELIVERING.replace(Some(delivery))))
    }

    /// Returns the traces that this thread delivers, if it runs a callback of a delivery.
    pub(super) fn of_this_thread() -> Option<Rc<Self>> {
        DELIVERING.with_borrow(Clone::clone)
    }

    /// Returns the schemas of the trace whose event is being delivered.
    pub(super) fn current_schemas(&self) -> Option<&TraceSchemas> {
        self.traces.get(self.current.get()).map(Arc::as_ref)
    }

    /// Selects the trace of the next event.
    #[inline(always)]
    pub(super) fn select_trace(&self, trace: usize) {
        self.current.set(trace);
    }
}

/// Restores the previous delivery of the thread when dropped: callbacks may process other traces.
pub(super) struct EndDelivery(Option<Rc<ThreadDelivery>>);

impl Drop for EndDelivery {
    fn drop(&mut self) {
        // The delivery that ends is dropped after the borrow.
        let _ended = DELIVERING.replace(self.0.take());
    }
}
