//! An event that is ready for output, from a file or from a live session.

use std::cell::RefCell;

use traceweir_decode::actors::{Actor, Actors};
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::walk::Walker;
use traceweir_decode::{Decoder, Undecoded};
use traceweir_format::Guid;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{EventDescriptor, class};
use traceweir_format::stack_key::Definitions;
use traceweir_format::time::{Clock, FileTime};

use crate::images::LoadedImages;
use crate::symbols::TraceSymbols;

/// An event with its schema, names and attribution.
pub struct DescribedEvent<'e> {
    /// The record of the event.
    pub record: Record<'e>,
    /// Whether the event may have extended data items other than those of its schema.
    pub may_have_items: bool,
    /// Index of the trace.
    pub file: usize,
    /// Wall time of the event.
    pub time: FileTime,
    clock: &'e Clock,
    /// When the first trace starts.
    start: FileTime,
    /// The schema and the payload, or the reason why there is none.
    pub schema_match: Result<SchemaMatch<'e, 'e>, Undecoded>,
    /// The process and thread that the event concerns, if they differ from those in the header.
    pub actor: Option<Actor>,
    /// Image name of the process.
    pub process: Option<&'e str>,
    /// Name of the provider, if it is known.
    pub provider: Option<&'e str>,
    /// Loaded images of the trace, if needed.
    pub images: Option<&'e LoadedImages>,
    /// Symbols for the addresses of the trace, if needed.
    pub symbols: Option<&'e RefCell<TraceSymbols>>,
    /// Definitions of stack keys.
    stacks: &'e Definitions,
}

impl DescribedEvent<'_> {
    /// Returns the call stack, innermost frame first; `None` for an event without a stack, or
    /// with an undefined stack key.
    pub fn frames(&self) -> Option<impl Iterator<Item = u64>> {
        self.stacks.frames(&self.record)
    }

    /// Returns the names and the descriptor of the event.
    pub fn identity(&self) -> EventIdentity<'_> {
        let schema_match = self.schema_match.as_ref().ok();
        EventIdentity {
            provider: self.record.provider(),
            provider_name: self.provider,
            event_name: schema_match.and_then(|found| found.prepared.event_name.as_deref()),
            descriptor: self.record.descriptor(),
            is_kernel: self.record.hook().is_some(),
        }
    }

    /// Returns the process and thread that the event concerns: those that a kernel event names, otherwise
    /// those that wrote the event.
    pub fn concerned_ids(&self) -> (u32, u32) {
        let writer = (self.record.process_id(), self.record.thread_id());
        self.actor.map_or(writer, |actor| (actor.pid, actor.tid))
    }

    /// Returns the stack definitions of the trace.
    pub const fn definitions(&self) -> &Definitions {
        self.stacks
    }

    /// Returns nanoseconds since the start of the first trace. The time between the starts of the
    /// traces is wall time; the time since the start of this trace is by its clock.
    pub fn ns_since_start(&self) -> i64 {
        let offset = self.clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        offset.saturating_add(self.clock.nanos_since_start(self.record.time()))
    }
}

/// The names and the descriptor of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventIdentity<'n> {
    /// GUID of the provider; for kernel events, of their class.
    pub provider: Guid,
    /// Name of the provider, if it is known.
    pub provider_name: Option<&'n str>,
    /// Name of the event, if its schema is known.
    pub event_name: Option<&'n str>,
    /// Id, level, keyword and so on.
    pub descriptor: EventDescriptor,
    /// Whether this is a kernel event.
    pub is_kernel: bool,
}

/// Returns whether an event describes the log file: its header, the processes that wrote to it, and
/// similar events, which the session itself writes and does not count.
///
/// This function defines what "events" means in all counts for people: every event of the file
/// except these. Two events of the class `EVENT_TRACE` come from the capture of kernel events, and
/// the session counts them: the end of the first rundown, and the groups at the end of the session.
#[inline]
pub fn describes_file(record: &Record<'_>) -> bool {
    let is_captured = |hook: u16| [hook::RUNDOWN_COMPLETE, hook::END_GROUP_MASKS].contains(&hook);
    (record.provider() == class::EVENT_TRACE && !record.hook().is_some_and(is_captured))
        || is_attached_process(record)
}

/// Returns whether an event describes a process that wrote to the session: the session itself puts
/// it at the front of the file and does not count it. Unlike the kernel's rundown of processes, it
/// has the id of the process in its header.
#[inline]
fn is_attached_process(record: &Record<'_>) -> bool {
    record.hook() == Some(hook::PROCESS_DC_START)
        && record.thread_id() == NO_ID
        && record.process_id() != NO_ID
}

/// Whether to continue reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFlow {
    /// Read the next event.
    Continue,
    /// Read no further events.
    Stop,
}

/// Context of a record in its trace.
pub struct EventContext<'e> {
    /// Index of the trace.
    pub file: usize,
    /// The clock of the trace.
    pub clock: &'e Clock,
    /// Wall time of the record.
    pub time: FileTime,
    /// When the first trace starts.
    pub start: FileTime,
    /// Loaded images of the trace, if needed.
    pub images: Option<&'e LoadedImages>,
    /// Symbols for the addresses of the trace, if needed.
    pub symbols: Option<&'e RefCell<TraceSymbols>>,
    /// Definitions of stack keys.
    pub stacks: &'e Definitions,
}

/// Finds schema, names and attribution of a record, with the schemas that the decoder has learned.
pub fn describe_record<'e>(
    record: &Record<'e>,
    context: EventContext<'e>,
    decoder: &'e mut Decoder,
    actors: &'e mut Actors,
) -> DescribedEvent<'e> {
    actors.follow(record);
    let located = decoder.locate_at(record, context.time);
    let decoder: &'e Decoder = decoder;
    let schema_match = located.map(|location| decoder.get(&location));
    let actor = match &schema_match {
        Ok(schema_match) => actors.attribute(record, schema_match),
        Err(_) => actors.running(record),
    };
    build_event(record, context, decoder, actors, schema_match, actor)
}

/// Like [`describe_record`], for an event whose schema [`Decoder::find_repeated`] found. No such event
/// concerns a process other than that in its header.
#[inline(always)]
pub fn describe_repeated<'e>(
    record: &Record<'e>,
    context: EventContext<'e>,
    decoder: &'e Decoder,
    actors: &'e Actors,
    schema_match: SchemaMatch<'e, 'e>,
) -> DescribedEvent<'e> {
    let provider = schema_match.prepared.schema.names.provider.as_deref();
    let EventContext { file, clock, time, start, images, symbols, stacks } = context;
    DescribedEvent {
        record: *record,
        may_have_items: false,
        file,
        clock,
        start,
        time,
        schema_match: Ok(schema_match),
        actor: None,
        process: actors.image_of(record.process_id(), record.time()),
        provider: provider.or_else(|| decoder.provider_name(&record.provider())),
        images,
        symbols,
        stacks,
    }
}

/// Like [`describe_record`], for a thread that does not follow context switches: `running` is the
/// thread that ran on the processor of the event.
pub fn describe_copy<'e>(
    record: &Record<'e>,
    context: EventContext<'e>,
    decoder: &'e mut Decoder,
    actors: &'e Actors,
    running: Option<u32>,
    walker: &mut Walker,
) -> DescribedEvent<'e> {
    let located = decoder.locate_at(record, context.time);
    let decoder: &'e Decoder = decoder;
    let schema_match = located.map(|location| decoder.get(&location));
    let actor = match &schema_match {
        Ok(schema_match) => actors.attribute_with(record, schema_match, running, walker),
        Err(_) => actors.to_actor(running, record),
    };
    build_event(record, context, decoder, actors, schema_match, actor)
}

fn build_event<'e>(
    record: &Record<'e>,
    context: EventContext<'e>,
    decoder: &'e Decoder,
    actors: &'e Actors,
    schema_match: Result<SchemaMatch<'e, 'e>, Undecoded>,
    actor: Option<Actor>,
) -> DescribedEvent<'e> {
    let pid = actor.map_or(record.process_id(), |actor| actor.pid);
    let process = actors.image_at(pid, record);
    let provider = match &schema_match {
        Ok(schema_match) => schema_match.prepared.schema.names.provider.as_deref(),
        Err(_) => None,
    };
    let provider = provider.or_else(|| decoder.provider_name(&record.provider()));
    // A kernel event belongs to the kernel even if its fields are unknown.
    let provider = provider.or_else(|| record.hook().map(|_| "Windows Kernel"));
    let EventContext { file, clock, time, start, images, symbols, stacks } = context;
    DescribedEvent {
        record: *record,
        may_have_items: true,
        file,
        clock,
        start,
        time,
        schema_match,
        actor,
        process,
        provider,
        images,
        symbols,
        stacks,
    }
}
