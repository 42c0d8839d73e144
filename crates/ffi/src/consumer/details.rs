//! Properties of an open trace that can be queried while a thread processes the trace.

use std::sync::{Arc, Mutex};

use traceweir::consumer::{Kind, Trace};
use traceweir_format::buffer::MAX_PROCESSOR;

use super::layout::TraceLogfileHeader;
use super::lock;
use super::schemas::TraceSchemas;

/// The queryable properties of an open trace, shared by its handle and the thread that processes
/// it.
pub(super) struct TraceDetails {
    pub(super) kind: Kind,
    /// The schemas that the trace contains.
    pub(super) schemas: Arc<TraceSchemas>,
    changing: Mutex<ChangingDetails>,
}

struct ChangingDetails {
    header: TraceLogfileHeader,
    /// The stamp of the last loss on each processor, or 0.
    last_loss_stamps: Vec<i64>,
}

impl TraceDetails {
    pub(super) fn new(trace: &Trace) -> Arc<Self> {
        let header = TraceLogfileHeader::from(trace.header());
        let last_loss_stamps = vec![0; processor_count(&header)];
        let changing = Mutex::new(ChangingDetails { header, last_loss_stamps });
        let details = Self { kind: trace.kind(), schemas: TraceSchemas::new(trace), changing };
        for (cpu, stamp) in trace.last_losses() {
            details.record_loss(cpu, stamp);
        }
        Arc::new(details)
    }

    pub(super) fn header(&self) -> TraceLogfileHeader {
        lock(&self.changing).header
    }

    pub(super) fn set_header(&self, header: TraceLogfileHeader) {
        let mut changing = lock(&self.changing);
        changing.header = header;
        changing.last_loss_stamps.resize(processor_count(&header), 0);
    }

    /// Records the stamp of a loss on a processor.
    pub(super) fn record_loss(&self, cpu: u16, stamp: i64) {
        if let Some(last) = lock(&self.changing).last_loss_stamps.get_mut(usize::from(cpu)) {
            *last = stamp;
        }
    }

    pub(super) fn last_loss_stamps(&self) -> Vec<i64> {
        lock(&self.changing).last_loss_stamps.clone()
    }
}

/// Returns the number of processors in a header, at least 1 and at most the number that buffer
/// headers allow.
fn processor_count(header: &TraceLogfileHeader) -> usize {
    (header.number_of_processors as usize).clamp(1, usize::from(MAX_PROCESSOR).saturating_add(1))
}
