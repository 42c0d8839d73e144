//! The tested implementation: a registration, the memory of two sessions, events on the full path.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::filter::payload::{Builder, Event as Of, Field, Operand, Shape, Type};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::PayloadOperator as Op;

use super::super::*;
use super::rules::{Asked, ID, NAME, Offered, Together, event_enabled};
use crate::client::Client;
use crate::process::memory::Memory;
use crate::registration::Handle;

/// Converts the parameters to those of a controller call.
pub(super) fn params(asked: &Asked) -> EnableParams {
    let mut filters = Vec::new();
    for (kind, filter) in
        [(EVENT_FILTER_TYPE_EVENT_ID, &asked.ids), (EVENT_FILTER_TYPE_STACKWALK, &asked.stack_ids)]
    {
        filters.extend(filter.iter().map(|(listed, filter_in)| ids(kind, *filter_in, listed)));
    }
    for (kind, filter) in
        [(EVENT_FILTER_TYPE_EVENT_NAME, &asked.names), (EVENT_FILTER_TYPE_STACKWALK_NAME, &asked.stack_names)]
    {
        let made = |(listed, filter_in, (any, all, level)): &(Vec<&str>, bool, (u64, u64, u8))| {
            names(kind, gate(*any, *all, *level, *filter_in), listed)
        };
        filters.extend(filter.iter().map(made));
    }
    filters.extend(
        asked
            .stack_part
            .map(|((any, all, level), filter_in)| level_keyword(gate(any, all, level, filter_in))),
    );
    filters.extend(asked.payload_up_to.map(payload_up_to));
    if asked.schematized {
        filters.push(schematized());
    }
    let ignored = if asked.ignore_keyword_0 { EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 } else { 0 };
    let property = ignored | if asked.stacks { STACK_TRACE } else { 0 };
    let Asked { level, any, all, .. } = *asked;
    EnableParams { level, match_any: any, match_all: all, property, filters, ..EnableParams::default() }
}

fn payload_up_to(most: u64) -> Filter {
    let mut of = Of::new(ID, 0, false);
    let field = of.field(Field::one(Shape::Fixed(8))).unwrap();
    let number = Type::Integer { bytes: 8, signed: false };
    of.predicate(field, number, Op::LE, Operand::Number(most.into())).unwrap();
    let mut blob = Builder::new();
    blob.add(&of, true).unwrap();
    Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: blob.finish().unwrap() }
}

/// Returns a filter for the callback: a header without data.
fn schematized() -> Filter {
    let mut data = vec![0; 24];
    data[16] = 24;
    Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data }
}

/// Returns the descriptor of an event of the table.
pub(super) fn descriptor(e: &Offered) -> EventDescriptor {
    let (id, channel) = if e.tracelogging { (0, TRACELOGGING) } else { (ID, 0) };
    EventDescriptor { channel, ..event(id, e.level, e.keyword) }
}

/// Returns the numbers of the events that arrived since the last call, and whether with a stack.
fn numbers(memory: &mut Memory) -> BTreeSet<(u64, bool)> {
    let mut numbers = BTreeSet::new();
    for (cpu, bytes) in memory.arrived() {
        let record = Record::parse(&bytes, cpu).unwrap();
        let number = u64::from_le_bytes(*record.payload().first_chunk().unwrap());
        assert!(numbers.insert((number, record.items().stack().is_some())), "written twice");
    }
    numbers
}

/// A registration with two sessions and events.
pub(super) struct Table {
    handle: Handle,
    memories: [Memory; 2],
    offered: Vec<Offered>,
    metadata: Vec<u8>,
}

impl Table {
    /// Uses the outlets of this number and the next one.
    pub(super) fn new(first_outlet: u8, offered: Vec<Offered>) -> Self {
        Client::get();
        Self {
            handle: Handle::claim(Guid::from_u128(7), None, None).unwrap(),
            memories: [Memory::open(first_outlet), Memory::open(first_outlet + 1)],
            offered,
            metadata: metadata(NAME),
        }
    }

    /// Enables, changes or disables a session.
    pub(super) fn ask(&self, session: usize, asked: Option<&Asked>) {
        let memory = &self.memories[session];
        match asked {
            Some(asked) => {
                let change = self.handle.slot().enable_session(memory.outlet, memory.ticket, &params(asked));
                assert_eq!(change.refusal(), None, "{asked:?}");
            }
            None => {
                self.handle.slot().disable_sessions(1 << memory.outlet);
            }
        }
    }

    /// Writes every event, and compares the enable checks and the arrived events with the rules.
    pub(super) fn check(&mut self, asked: [Option<&Asked>; 2]) {
        let sessions: Vec<&Asked> = asked.into_iter().flatten().collect();
        let together = Together::combine(&sessions);
        for e in &self.offered {
            let (d, slot) = (descriptor(e), self.handle.slot());
            assert_eq!(slot.enabled(e.level, e.keyword), together.enabled(e), "{sessions:?} {e:?}");
            assert_eq!(slot.event_enabled(&d), event_enabled(&sessions, e), "{sessions:?} {e:?}");
            let provider = self.handle.provider().unwrap();
            let event = provider.event(&d);
            let event = if e.tracelogging { event.metadata(&self.metadata) } else { event };
            event.write(&[&e.number.to_le_bytes()]).unwrap();
        }
        for (memory, asked) in self.memories.iter_mut().zip(asked) {
            let gets = |e: &&Offered| asked.is_some_and(|asked| asked.gets(e));
            let gets_stack = |e: &Offered| asked.is_some_and(|asked| asked.gets_stack(e));
            let due = self.offered.iter().filter(gets).map(|e| (e.number, gets_stack(e)));
            assert_eq!(numbers(memory), due.collect(), "{asked:?} of {sessions:?}");
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.handle.slot().disable_sessions(u64::MAX);
        assert!(self.handle.retire());
        self.handle.release();
    }
}
