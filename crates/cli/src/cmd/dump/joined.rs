//! Lines of events that wait for their stacks.
//!
//! ```text
//!   event ──Printer──▶ its line ──┐
//!   stack of that event ──────────┴──Joiner──▶ line, frames of the kernel, frames of the program
//!   stack of none that is shown ──▶ a line of its own, as without --stacks, if the filters let it through
//! ```

use traceweir_decode::stack::{Claim, Joined, Joiner, WINDOW};
use traceweir_format::header::Record;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::FileTime;

use crate::event::{Event, Flow};
use crate::export::push_frame;
use crate::filter::Filter;
use crate::printer::Printer;

/// The line of an event and those of its stack.
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
    /// Once no more events are wanted: until when stacks of the last ones are.
    until: Option<i64>,
}

impl<'f> Lines<'f> {
    pub(super) fn new(printer: Printer<'f>, filter: &'f Filter) -> Self {
        Self { printer, filter, joiner: Joiner::default(), until: None }
    }

    /// Whether a record has to be looked at: stacks whatever the filters say, for their event may be wanted.
    pub(super) fn wants(&self, record: &Record<'_>, time: FileTime) -> bool {
        StackWalk::is_one(record) || self.until.is_some() || self.filter.wants(record, time)
    }

    /// Takes in an event and prints those whose time is over.
    pub(super) fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Flow {
        let is_of_another = !self.is_taken(event);
        if is_of_another && self.until.is_none() && self.filter.wants(&event.record, event.time) {
            self.line(event);
        }
        while let Some(joined) = self.joiner.next_ready() {
            put(&joined, out);
        }
        match self.until {
            Some(until) if event.time.0 > until || self.joiner.is_empty() => Flow::Stop,
            _ => Flow::Continue,
        }
    }

    /// Whether it is the stack of an event that waits.
    fn is_taken(&mut self, event: &Event<'_>) -> bool {
        let record = &event.record;
        let Some(walk) = StackWalk::of(record) else { return false };
        let place = (event.file, record.cpu(), event.time.0);
        self.joiner.attach(&walk, place, event.definitions(), |line| {
            let part = if walk.is_kernel() { &mut line.kernel } else { &mut line.user };
            let before = part.len();
            let who = (walk.process_id, walk.event_time);
            for (at, address) in walk.frames(event.definitions()).into_iter().flatten().enumerate() {
                push_frame(event, who, (address, at == 0), part);
            }
            part.len().saturating_sub(before)
        })
    }

    fn line(&mut self, event: &Event<'_>) {
        let mut line = Line::default();
        if self.printer.event(event, &mut line.event) == Flow::Stop {
            self.until = Some(event.time.0.saturating_add(WINDOW));
        }
        if line.event.is_empty() {
            return;
        }
        let (record, claim) = (&event.record, Claim::of(&event.record, event.file, event.time.0));
        let own: Vec<u64> = event.frames().into_iter().flatten().collect();
        // With symbols the printer has told it.
        for address in own.iter().filter(|_| event.symbols.is_none()) {
            push_frame(event, (record.process_id(), record.time()), (*address, false), &mut line.user);
        }
        let bytes = line.event.len().saturating_add(line.user.len());
        if StackWalk::is_one(record) {
            self.joiner.pass(claim, line, bytes);
        } else {
            self.joiner.expect(claim, line, bytes, own.into_iter());
        }
    }

    /// Prints what still waits, and says what could not be decoded.
    pub(super) fn end(mut self, out: &mut Vec<u8>) {
        self.joiner.end();
        while let Some(joined) = self.joiner.next_ready() {
            put(&joined, out);
        }
        self.printer.report();
    }
}

fn put(joined: &Joined<Line>, out: &mut Vec<u8>) {
    let Line { event, kernel, user } = &joined.what;
    [event, kernel, user].into_iter().for_each(|part| out.extend_from_slice(part));
}
