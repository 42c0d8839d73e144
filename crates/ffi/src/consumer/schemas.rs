//! What traces say about their own events, for whoever asks tdh.h about one.
//!
//! ```text
//!   events that describe others ──▶ Schemas of the trace ◀── tdh.h, about an event that the process knows nothing of
//!                                       │        │
//!                   programs that it names       the rest of its file: schemas may stand behind their events
//! ```
//!
//! 1. A trace describes its own events only. Who asks from within a callback asks the trace of the event that it was called for; who asks from elsewhere
//!    may hold an event of any trace that is open, and asks them one after the other.
//! 2. No program is opened and no file read for this before somebody asks about an event that nothing else describes; and each once.
//! 3. What a trace makes this keep is bounded by [`Decoder`], and is gone when its handle is closed.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use traceweir::consumer::{Trace, open_program};
use traceweir_decode::Decoder;
use traceweir_decode::tdh::Answer;
use traceweir_format::etl;
use traceweir_format::header::Record;

use super::handles::{self, locked};

/// What one trace says about its events.
pub(super) struct Schemas(Mutex<Said>);

struct Said {
    decoder: Decoder,
    /// The file, until it has been searched.
    file: Option<File>,
}

impl Schemas {
    /// Nothing yet. A file that cannot be held twice is not searched.
    pub(super) fn of(trace: &Trace) -> Arc<Self> {
        let file = trace.file().and_then(|file| file.try_clone().ok());
        Arc::new(Self(Mutex::new(Said { decoder: Decoder::new(), file })))
    }

    /// Learns from an event on its way to the program.
    #[cold]
    pub(super) fn observe(&self, record: &Record<'_>) {
        locked(&self.0).decoder.observe(record);
    }

    fn ask<T>(&self, question: &mut impl FnMut(&mut Decoder) -> Answer<T>) -> Answer<T> {
        let mut said = locked(&self.0);
        let mut answer = question(&mut said.decoder);
        for learn in [Said::look_into_programs, Said::search_file] {
            if answer.as_ref().err().is_some_and(|refusal| refusal.is_ignorance()) && learn(&mut said) {
                answer = question(&mut said.decoder);
            }
        }
        answer
    }
}

impl Said {
    /// Takes in the manifests of programs that the trace named; whether there were any.
    fn look_into_programs(&mut self) -> bool {
        let mut is_wiser = false;
        for told in self.decoder.take_tracked() {
            let Some(program) = open_program(Path::new(&told.path)) else { continue };
            // One that is another program now, or says nothing, leaves its events undescribed.
            is_wiser |= self.decoder.add_tracked(&told, program).is_ok_and(|events| events > 0);
        }
        is_wiser
    }

    /// Reads the whole file for what describes events, if that was not done before.
    fn search_file(&mut self) -> bool {
        let Some(trace) = self.file.take().and_then(|file| etl::Trace::open(file).ok()) else { return false };
        let mut events = trace.events();
        // What cannot be read is told by whoever delivers the events.
        while let Ok(Some(record)) = events.next() {
            self.decoder.observe(&record);
        }
        self.look_into_programs();
        true
    }
}

/// The traces that a thread delivers, and which of them the event is of that it is delivering.
pub(super) struct Delivered {
    traces: Vec<Arc<Schemas>>,
    at: Cell<usize>,
}

thread_local! {
    static DELIVERED: RefCell<Option<Rc<Delivered>>> = const { RefCell::new(None) };
}

impl Delivered {
    /// From now on this thread delivers these traces.
    pub(super) fn begin(traces: Vec<Arc<Schemas>>) -> (Rc<Self>, Ends) {
        let this = Rc::new(Self { traces, at: Cell::new(0) });
        (Rc::clone(&this), Ends(DELIVERED.replace(Some(this))))
    }

    /// The next event is of this trace.
    #[inline(always)]
    pub(super) fn turn_to(&self, trace: usize) {
        self.at.set(trace);
    }
}

/// Delivers what it delivered before when this is dropped: callbacks may process other traces.
pub(super) struct Ends(Option<Rc<Delivered>>);

impl Drop for Ends {
    fn drop(&mut self) {
        // The one that ends is dropped behind the borrow.
        let _ended = DELIVERED.replace(self.0.take());
    }
}

/// Asks the trace whose event is being delivered; where none is, all that are open until one knows. `None` if there are none.
pub(crate) fn ask<T>(mut question: impl FnMut(&mut Decoder) -> Answer<T>) -> Option<Answer<T>> {
    let delivered = DELIVERED.with_borrow(Clone::clone);
    if let Some(delivered) = delivered {
        return delivered.traces.get(delivered.at.get()).map(|schemas| schemas.ask(&mut question));
    }
    let mut last = None;
    for schemas in handles::all_schemas() {
        let answer = schemas.ask(&mut question);
        if answer.as_ref().err().is_none_or(|refusal| !refusal.is_ignorance()) {
            return Some(answer);
        }
        last = Some(answer);
    }
    last
}
