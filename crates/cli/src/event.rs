//! One event on its way to people, whether it comes from a file or from a live session.

use std::cell::RefCell;

use traceweir_decode::actors::{Actor, Actors};
use traceweir_decode::source::Found;
use traceweir_decode::{Decoder, Undecoded};
use traceweir_format::header::Record;
use traceweir_format::stack_key::Definitions;
use traceweir_format::time::{Clock, FileTime};

use crate::images::Images;
use crate::symbols::Symbols;

/// One event of the stream.
pub(crate) struct Event<'e> {
    pub(crate) record: Record<'e>,
    /// Which trace it comes from.
    pub(crate) file: usize,
    pub(crate) time: FileTime,
    clock: &'e Clock,
    /// When the first trace starts.
    start: FileTime,
    pub(crate) found: Result<Found<'e, 'e>, Undecoded>,
    /// Whom it is about, where the header does not say so.
    pub(crate) attributed: Option<Actor>,
    /// Image name of its process.
    pub(crate) process: Option<&'e str>,
    /// Name of its provider.
    pub(crate) provider: Option<&'e str>,
    /// What its trace tells about loaded images, where somebody asks.
    pub(crate) images: Option<&'e Images>,
    /// Names for the addresses of its trace, where somebody asks.
    pub(crate) symbols: Option<&'e RefCell<Symbols>>,
    /// What its trace tells about stacks that are stored once.
    stacks: &'e Definitions,
}

impl Event<'_> {
    /// The call stack, innermost frame first; `None` where there is none, or nothing says what its key stands for.
    pub(crate) fn frames(&self) -> Option<impl Iterator<Item = u64>> {
        self.stacks.frames(&self.record)
    }

    /// What its trace tells about stacks that are stored once.
    pub(crate) const fn definitions(&self) -> &Definitions {
        self.stacks
    }

    /// Nanoseconds since the start of the first trace: to the start of this one by wall time, then on by its own clock.
    pub(crate) fn since_start(&self) -> i64 {
        let offset = self.clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        offset.saturating_add(self.clock.nanos_since_start(self.record.time()))
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
}

/// Where in the stream a record stands.
pub(crate) struct Place<'e> {
    /// Which trace it comes from.
    pub(crate) file: usize,
    /// The clock of that trace.
    pub(crate) clock: &'e Clock,
    /// The record's wall time.
    pub(crate) time: FileTime,
    /// When the first trace starts.
    pub(crate) start: FileTime,
    /// The images of that trace, where somebody asks.
    pub(crate) images: Option<&'e Images>,
    /// Names for the addresses of that trace, where somebody asks.
    pub(crate) symbols: Option<&'e RefCell<Symbols>>,
    /// The stacks that it stores once.
    pub(crate) stacks: &'e Definitions,
}

/// Says what a record is: its schema, its names, and whom it is about.
pub(crate) fn describe<'e>(
    record: &Record<'e>,
    place: Place<'e>,
    decoder: &'e mut Decoder,
    actors: &'e mut Actors,
) -> Event<'e> {
    decoder.observe(record);
    actors.follow(record);
    let located = decoder.locate(record);
    let decoder: &'e Decoder = decoder;
    let found = located.map(|l| decoder.get(&l));
    let attributed = match &found {
        Ok(found) => actors.attribute(record, found),
        Err(_) => actors.running(record),
    };
    let pid = attributed.map_or(record.process_id(), |a| a.pid);
    let process = actors.image_at(pid, record);
    let provider = match &found {
        Ok(found) => found.known.schema.names.provider.as_deref(),
        Err(_) => None,
    };
    let provider = provider.or_else(|| decoder.provider_name(&record.provider()));
    // A kernel event is one even where nothing describes its fields.
    let provider = provider.or_else(|| record.hook().map(|_| "Windows Kernel"));
    let Place { file, clock, time, start, images, symbols, stacks } = place;
    Event {
        record: *record,
        file,
        clock,
        start,
        time,
        found,
        attributed,
        process,
        provider,
        images,
        symbols,
        stacks,
    }
}
