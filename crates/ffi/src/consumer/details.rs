//! What can be queried about an open trace while it is processed.

use std::sync::{Arc, Mutex};

use traceweir::consumer::{Kind, Trace};
use traceweir_format::buffer::MAX_PROCESSOR;

use super::layout::TraceLogfileHeader;
use super::locked;
use super::schemas::Schemas;

/// The details of an open trace, shared by its handle and the thread that processes it.
pub(super) struct Details {
    pub(super) kind: Kind,
    /// The schemas that the trace contains.
    pub(super) schemas: Arc<Schemas>,
    changing: Mutex<Changing>,
}

struct Changing {
    header: TraceLogfileHeader,
    /// The stamp of the last loss on each processor, or 0.
    drops: Vec<i64>,
}

impl Details {
    pub(super) fn new(trace: &Trace) -> Arc<Self> {
        let header = TraceLogfileHeader::from(trace.header());
        let drops = vec![0; processors(&header)];
        let changing = Mutex::new(Changing { header, drops });
        let details = Self { kind: trace.kind(), schemas: Schemas::new(trace), changing };
        for (cpu, stamp) in trace.last_losses() {
            details.record_drop(cpu, stamp);
        }
        Arc::new(details)
    }

    pub(super) fn header(&self) -> TraceLogfileHeader {
        locked(&self.changing).header
    }

    pub(super) fn set_header(&self, header: TraceLogfileHeader) {
        let mut changing = locked(&self.changing);
        changing.header = header;
        changing.drops.resize(processors(&header), 0);
    }

    /// Records the stamp of a loss on a processor.
    pub(super) fn record_drop(&self, cpu: u16, stamp: i64) {
        if let Some(at) = locked(&self.changing).drops.get_mut(usize::from(cpu)) {
            *at = stamp;
        }
    }

    pub(super) fn drops(&self) -> Vec<i64> {
        locked(&self.changing).drops.clone()
    }
}

/// Returns the number of processors in a header, limited to what a buffer can name.
fn processors(header: &TraceLogfileHeader) -> usize {
    (header.number_of_processors as usize).clamp(1, usize::from(MAX_PROCESSOR).saturating_add(1))
}
