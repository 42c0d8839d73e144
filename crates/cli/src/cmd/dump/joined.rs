//! Prints each event together with the stack events that follow it.
//!
//! ```text
//!   event ──EventPrinter──▶ text ─┐
//!   stack of that event ──────────┴──Joiner──▶ text, kernel frames, user frames
//!   stack without a shown event ──▶ its own text, as without --stacks, if it passes the filters
//! ```

use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::filter::EventFilter;
use traceweir_decode::stack::{Joined, Joiner, StackClaim, WINDOW_100NS};
use traceweir_format::header::Record;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::FileTime;

use super::event_output::EventOutput;
use crate::export::push_frame;
use crate::printer::EventPrinter;

/// The printed lines of an event and of its stack.
#[derive(Default)]
struct EventText {
    event: Vec<u8>,
    kernel: Vec<u8>,
    user: Vec<u8>,
}

/// Prints events with the stacks that follow them.
pub(super) struct JoinedPrinter<'f> {
    printer: EventPrinter<'f>,
    filter: &'f EventFilter,
    joiner: Joiner<EventText>,
    /// After `--head` events: the time until which stacks of the last events are still read.
    read_until: Option<i64>,
}

impl<'f> JoinedPrinter<'f> {
    pub(super) fn new(printer: EventPrinter<'f>, filter: &'f EventFilter) -> Self {
        Self { printer, filter, joiner: Joiner::default(), read_until: None }
    }

    /// Returns whether to read a record. Stacks are always read, because their event may pass the
    /// filters. After `--head` events, every record is read, because its time may end the reading.
    pub(super) fn needs_record(&self, record: &Record<'_>, time: FileTime) -> bool {
        StackWalk::is_stack_walk(record)
            || self.read_until.is_some()
            || self.filter.accepts_header(record, time)
    }

    /// Adds an event, and prints the earlier events that can get no further stack.
    pub(super) fn add_event(&mut self, event: &DescribedEvent<'_>, out: &mut EventOutput<'_>) -> ReadFlow {
        let stands_alone = !self.attach_stack(event);
        if stands_alone && self.read_until.is_none() && self.filter.accepts_header(&event.record, event.time)
        {
            self.add_text(event);
        }
        while let Some(joined) = self.joiner.next_ready() {
            write_joined(&joined, out);
        }
        match self.read_until {
            Some(until) if event.time.0 > until || self.joiner.is_empty() => ReadFlow::Stop,
            _ => ReadFlow::Continue,
        }
    }

    /// Attaches a stack to its event; returns `false` for other records and for stacks without a
    /// shown event.
    fn attach_stack(&mut self, event: &DescribedEvent<'_>) -> bool {
        let record = &event.record;
        let Some(walk) = StackWalk::parse(record) else { return false };
        let position = (event.file, record.cpu(), event.time.0);
        self.joiner.attach(&walk, position, event.definitions(), |text| {
            let frames_text = if walk.is_kernel() { &mut text.kernel } else { &mut text.user };
            let old_len = frames_text.len();
            let process_and_time = (walk.process_id, walk.event_time);
            for (index, address) in walk.frames(event.definitions()).into_iter().flatten().enumerate() {
                // The first frame is an exact instruction address, the others are return addresses.
                push_frame(event, process_and_time, (address, index == 0), frames_text);
            }
            frames_text.len().saturating_sub(old_len)
        })
    }

    fn add_text(&mut self, event: &DescribedEvent<'_>) {
        let mut text = EventText::default();
        if self.printer.print_event(event, &mut text.event) == ReadFlow::Stop {
            self.read_until = Some(event.time.0.saturating_add(WINDOW_100NS));
        }
        if text.event.is_empty() {
            return;
        }
        let record = &event.record;
        let claim = StackClaim::from_record(record, event.file, event.time.0);
        let frames: Vec<u64> = event.frames().into_iter().flatten().collect();
        // With symbols, the printer has already printed these frames.
        for address in frames.iter().filter(|_| event.symbols.is_none()) {
            push_frame(event, (record.process_id(), record.time()), (*address, false), &mut text.user);
        }
        let bytes = text.event.len().saturating_add(text.user.len());
        if StackWalk::is_stack_walk(record) {
            self.joiner.add_without_stack(claim, text, bytes);
        } else {
            self.joiner.expect(claim, text, bytes, frames.into_iter());
        }
    }

    /// Prints the events that still wait for stacks, then the summary of undecoded events.
    pub(super) fn end(mut self, out: &mut EventOutput<'_>) {
        self.joiner.end();
        while let Some(joined) = self.joiner.next_ready() {
            write_joined(&joined, out);
        }
        self.printer.report_undecoded();
    }
}

fn write_joined(joined: &Joined<EventText>, out: &mut EventOutput<'_>) {
    let EventText { event, kernel, user } = &joined.event;
    out.write_event(|out| [event, kernel, user].into_iter().for_each(|part| out.extend_from_slice(part)));
}
