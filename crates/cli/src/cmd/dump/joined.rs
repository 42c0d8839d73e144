//! Prints each event together with the stack events that follow it.
//!
//! ```text
//!   event ──Printer──▶ its line ──┐
//!   stack of that event ──────────┴──Joiner──▶ line, kernel frames, user frames
//!   stack without a shown event ──▶ its own line, as without --stacks, if it passes the filters
//! ```

use traceweir_decode::stack::{Claim, Joined, Joiner, WINDOW};
use traceweir_format::header::Record;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::FileTime;

use crate::event::{Event, Flow};
use crate::export::push_frame;
use crate::filter::Filter;
use crate::printer::Printer;

/// The printed lines of an event and of its stack.
#[derive(Default)]
struct Line {
    event: Vec<u8>,
    kernel: Vec<u8>,
    user: Vec<u8>,
}

/// Prints events with the stacks that follow them.
pub(super) struct Lines<'f> {
    printer: Printer<'f>,
    filter: &'f Filter,
    joiner: Joiner<Line>,
    /// Once `--head` is reached: the time until which stacks of the last events are still read.
    until: Option<i64>,
}

impl<'f> Lines<'f> {
    pub(super) fn new(printer: Printer<'f>, filter: &'f Filter) -> Self {
        Self { printer, filter, joiner: Joiner::default(), until: None }
    }

    /// Returns whether to read a record. Stacks are read whatever the filters are, because their
    /// event may be wanted.
    pub(super) fn wants(&self, record: &Record<'_>, time: FileTime) -> bool {
        StackWalk::is_stack_walk(record) || self.until.is_some() || self.filter.wants(record, time)
    }

    /// Adds an event, and prints the events that can have no further stack.
    pub(super) fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Flow {
        let is_separate = !self.attach_stack(event);
        if is_separate && self.until.is_none() && self.filter.wants(&event.record, event.time) {
            self.add_line(event);
        }
        while let Some(joined) = self.joiner.next_ready() {
            write_joined(&joined, out);
        }
        match self.until {
            Some(until) if event.time.0 > until || self.joiner.is_empty() => Flow::Stop,
            _ => Flow::Continue,
        }
    }

    /// Attaches the event if it is the stack of an event that waits; returns whether it is.
    fn attach_stack(&mut self, event: &Event<'_>) -> bool {
        let record = &event.record;
        let Some(walk) = StackWalk::parse(record) else { return false };
        let position = (event.file, record.cpu(), event.time.0);
        self.joiner.attach(&walk, position, event.definitions(), |line| {
            let part = if walk.is_kernel() { &mut line.kernel } else { &mut line.user };
            let before = part.len();
            let process_and_time = (walk.process_id, walk.event_time);
            for (index, address) in walk.frames(event.definitions()).into_iter().flatten().enumerate() {
                push_frame(event, process_and_time, (address, index == 0), part);
            }
            part.len().saturating_sub(before)
        })
    }

    fn add_line(&mut self, event: &Event<'_>) {
        let mut line = Line::default();
        if self.printer.event(event, &mut line.event) == Flow::Stop {
            self.until = Some(event.time.0.saturating_add(WINDOW));
        }
        if line.event.is_empty() {
            return;
        }
        let (record, claim) = (&event.record, Claim::from_record(&event.record, event.file, event.time.0));
        let own: Vec<u64> = event.frames().into_iter().flatten().collect();
        // With symbols, the printer has already printed these frames.
        for address in own.iter().filter(|_| event.symbols.is_none()) {
            push_frame(event, (record.process_id(), record.time()), (*address, false), &mut line.user);
        }
        let bytes = line.event.len().saturating_add(line.user.len());
        if StackWalk::is_stack_walk(record) {
            self.joiner.pass(claim, line, bytes);
        } else {
            self.joiner.expect(claim, line, bytes, own.into_iter());
        }
    }

    /// Prints the events that still wait, then the summary of undecoded events.
    pub(super) fn end(mut self, out: &mut Vec<u8>) {
        self.joiner.end();
        while let Some(joined) = self.joiner.next_ready() {
            write_joined(&joined, out);
        }
        self.printer.report();
    }
}

fn write_joined(joined: &Joined<Line>, out: &mut Vec<u8>) {
    let Line { event, kernel, user } = &joined.what;
    [event, kernel, user].into_iter().for_each(|part| out.extend_from_slice(part));
}
