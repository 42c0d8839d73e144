//! The thread that reads and decodes traces, and the iterator that receives its events.
//!
//! ```text
//!   traces ──deliver──▶ EventReader: schema, fields ──bounded channel──▶ Decoded::next
//! ```
//!
//! A live session delivers when its events arrive, and a file when its reader asks; the thread
//! gives both the form of an iterator.

use std::collections::HashMap;
use std::fs::File;
use std::iter::FusedIterator;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use traceweir_decode::Decoder;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::spec::status::Status;

use super::event::DecodedEvent;
use super::value::collect_fields;
use crate::consumer::{Closer, Event, Handler, Loss, Lost, Trace, TraceFile, Window, deliver};
use crate::error::{Error, Result};

/// Maximum number of events that wait for the iterator; with that many, the reading thread waits.
const MAX_WAITING_EVENTS: usize = 1024;

/// The decoded events of one or more traces, in time order.
///
/// A separate thread reads the events ahead. Dropping the iterator ends the thread and closes the
/// traces.
#[derive(Debug)]
pub struct Decoded {
    events: Option<Receiver<Result<DecodedEvent>>>,
    closers: Vec<Closer>,
    thread: Option<JoinHandle<()>>,
    lost: Arc<LostCounts>,
}

#[derive(Debug, Default)]
struct LostCounts {
    events: AtomicU64,
    buffers: AtomicU64,
}

impl LostCounts {
    fn add(&self, lost: Lost) {
        // Relaxed: the counts are read for information only.
        self.events.fetch_add(lost.events, Ordering::Relaxed);
        self.buffers.fetch_add(lost.buffers, Ordering::Relaxed);
    }
}

impl Decoded {
    pub(super) fn new(traces: Vec<Trace>, decoder: Decoder) -> Self {
        let closers = traces.iter().map(Trace::closer).collect();
        let lost = Arc::new(LostCounts::default());
        for trace in &traces {
            if trace.file().is_some() {
                let header = trace.header();
                lost.add(Lost { events: header.events_lost.into(), buffers: header.buffers_lost.into() });
            }
        }
        let (sender, events) = sync_channel(MAX_WAITING_EVENTS);
        let (error_sender, counts) = (sender.clone(), Arc::clone(&lost));
        let run = move || {
            if let Err(error) = read_traces(traces, decoder, sender.clone(), counts) {
                // No thread receives the error if the iterator was dropped.
                let _ = sender.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("traceweir-read".to_owned()).spawn(run);
        if let Err(error) = &thread {
            let reason = format!("no thread can be started to read the trace: {error}");
            let _ = error_sender.send(Err(Error::refused(Status::ERROR_NO_SYSTEM_RESOURCES, reason)));
        }
        Self { events: Some(events), closers, thread: thread.ok(), lost }
    }

    /// Returns the events and buffers that were lost: of a file, as its header counts them; of a
    /// live session, those that the reading thread, which reads ahead, has noticed so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let (events, buffers) = (&self.lost.events, &self.lost.buffers);
        Lost { events: events.load(Ordering::Relaxed), buffers: buffers.load(Ordering::Relaxed) }
    }

    /// Returns the closer of each trace, which can end the trace from another thread.
    #[must_use]
    pub fn closers(&self) -> &[Closer] {
        &self.closers
    }
}

impl Iterator for Decoded {
    type Item = Result<DecodedEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.events.as_ref()?.recv().ok();
        if next.is_none() {
            self.events = None;
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                std::panic::resume_unwind(panic);
            }
        }
        next
    }
}

impl FusedIterator for Decoded {}

impl Drop for Decoded {
    fn drop(&mut self) {
        // Without a receiver, a thread that waits for the full channel continues.
        self.events = None;
        self.closers.iter().for_each(Closer::close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_traces(
    traces: Vec<Trace>,
    decoder: Decoder,
    events: SyncSender<Result<DecodedEvent>>,
    lost: Arc<LostCounts>,
) -> Result<()> {
    let mut files = Vec::new();
    for file in traces.iter().filter_map(Trace::file) {
        files.push(file.try_clone().map_err(|e| traceweir_transport::Error::system("fcntl", e))?);
    }
    let names = HashMap::new();
    let mut reader = EventReader { files, decoder, walker: Walker::default(), names, events, lost };
    deliver(traces, &Window::default(), &mut reader)
}

/// Decodes the events of all traces and sends them to the iterator.
struct EventReader {
    /// The files whose schemas have not been read yet.
    files: Vec<File>,
    decoder: Decoder,
    walker: Walker,
    /// `Windows Kernel`, or the GUID as text, for providers that no schema names.
    names: HashMap<Guid, Arc<str>>,
    events: SyncSender<Result<DecodedEvent>>,
    lost: Arc<LostCounts>,
}

impl Handler for EventReader {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let record = event.record;
        // Events about the trace itself are left out: schemas, and the class of the header.
        if self.decoder.observe(record) || record.provider() == class::EVENT_TRACE {
            return ControlFlow::Continue(());
        }
        // The schema may follow later in a file, so all files are read once for their schemas.
        if !self.files.is_empty() && may_be_described_elsewhere(record) {
            for file in std::mem::take(&mut self.files) {
                if let Err(error) = observe_all(file, &mut self.decoder) {
                    return self.send(Err(error));
                }
            }
        }
        let decoded = self.decode(&event);
        self.send(Ok(decoded))
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        self.lost.add(loss.lost);
        ControlFlow::Continue(())
    }
}

impl EventReader {
    fn send(&self, event: Result<DecodedEvent>) -> ControlFlow<()> {
        if self.events.send(event).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn decode(&mut self, event: &Event<'_>) -> DecodedEvent {
        let record = event.record;
        let (descriptor, provider) = (record.descriptor(), record.provider());
        let mut names = (None, None);
        let located = self.decoder.locate(record);
        let (fields, undecoded, payload) = match located {
            Ok(located) => {
                let schema_match = self.decoder.get(&located);
                names = (
                    schema_match.prepared.schema.names.provider.clone(),
                    schema_match.prepared.event_name.clone(),
                );
                let (fields, undecoded) =
                    collect_fields(&mut self.walker, &schema_match, record.pointer_size());
                (fields, undecoded, schema_match.payload)
            }
            Err(reason) => (Vec::new(), Some(reason), record.payload()),
        };
        let (provider_name, name) = names;
        DecodedEvent {
            time: event.time,
            provider,
            provider_name: provider_name.unwrap_or_else(|| self.provider_name(record)),
            name: name.unwrap_or_else(|| format!("Event {}", descriptor.id).into()),
            descriptor,
            process_id: record.process_id(),
            thread_id: record.thread_id(),
            cpu: record.cpu(),
            activity: record.activity(),
            trace: event.trace,
            fields,
            undecoded,
            payload: payload.to_owned(),
        }
    }

    fn provider_name(&mut self, record: &Record<'_>) -> Arc<str> {
        let (provider, decoder) = (record.provider(), &self.decoder);
        if let Some(name) = decoder.provider_name(&provider) {
            return name.into();
        }
        let is_kernel = record.hook().is_some();
        let make_name = || if is_kernel { "Windows Kernel".into() } else { provider.to_string().into() };
        self.names.entry(provider).or_insert_with(make_name).clone()
    }
}

/// Returns whether the schema of an event may be elsewhere in its trace, also after the event.
fn may_be_described_elsewhere(record: &Record<'_>) -> bool {
    match record.family() {
        Family::Event => record.items().data_of(ExtType::EVENT_SCHEMA_TL).is_none(),
        Family::Full | Family::Instance => true,
        Family::System | Family::Compact | Family::PerfInfo | Family::Message | Family::Other(_) => false,
    }
}

/// Reads all schemas that a file carries.
fn observe_all(file: File, decoder: &mut Decoder) -> Result<()> {
    let trace = traceweir_format::etl::Trace::open(TraceFile::from(file))?;
    let mut events = trace.events();
    while let Some(record) = events.next()? {
        decoder.observe(&record);
    }
    Ok(())
}
