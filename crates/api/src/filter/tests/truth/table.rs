//! The tested implementation: a registration, the regions of two sessions, events on the full path.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::filter::payload::{Builder, Event as FilteredEvent, Field, Operand, Shape, Type};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::PayloadOperator as Operator;

use super::super::*;
use super::rules::{CombinedRules, ID, NAME, RuleParams, TestEvent, is_event_enabled};
use crate::client::Client;
use crate::process::test_region::TestRegion;
use crate::registration::Handle;

/// Converts the parameters to those of a controller call.
pub(super) fn params(rules: &RuleParams) -> EnableParams {
    let mut filters = Vec::new();
    for (kind, filter) in
        [(EVENT_FILTER_TYPE_EVENT_ID, &rules.ids), (EVENT_FILTER_TYPE_STACKWALK, &rules.stack_ids)]
    {
        filters.extend(filter.iter().map(|(listed, filter_in)| id_filter(kind, *filter_in, listed)));
    }
    for (kind, filter) in
        [(EVENT_FILTER_TYPE_EVENT_NAME, &rules.names), (EVENT_FILTER_TYPE_STACKWALK_NAME, &rules.stack_names)]
    {
        let to_filter = |(listed, filter_in, (any, all, level)): &(Vec<&str>, bool, (u64, u64, u8))| {
            name_filter(kind, gate(*any, *all, *level, *filter_in), listed)
        };
        filters.extend(filter.iter().map(to_filter));
    }
    filters.extend(
        rules
            .stack_part
            .map(|((any, all, level), filter_in)| level_keyword_filter(gate(any, all, level, filter_in))),
    );
    filters.extend(rules.payload_up_to.map(payload_up_to));
    if rules.has_schematized {
        filters.push(schematized());
    }
    let ignore_property = if rules.ignore_keyword_0 { EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 } else { 0 };
    let property = ignore_property | if rules.wants_stacks { STACK_TRACE } else { 0 };
    let RuleParams { level, any, all, .. } = *rules;
    EnableParams { level, match_any: any, match_all: all, property, filters, ..EnableParams::default() }
}

fn payload_up_to(maximum: u64) -> Filter {
    let mut filtered_event = FilteredEvent::new(ID, 0, false);
    let field = filtered_event.add_field(Field::single(Shape::Fixed(8))).unwrap();
    let number = Type::Integer { bytes: 8, signed: false };
    filtered_event.add_predicate(field, number, Operator::LE, Operand::Number(maximum.into())).unwrap();
    let mut blob = Builder::new();
    blob.add(&filtered_event, true).unwrap();
    Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: blob.finish().unwrap() }
}

/// Returns a filter for the callback: a header without data.
fn schematized() -> Filter {
    let mut data = vec![0; 24];
    // The size of the filter, at offset 16 of EVENT_FILTER_HEADER.
    data[16] = 24;
    Filter { kind: EVENT_FILTER_TYPE_SCHEMATIZED, data }
}

pub(super) fn descriptor(e: &TestEvent) -> EventDescriptor {
    let (id, channel) = if e.is_tracelogging { (0, TRACELOGGING_CHANNEL) } else { (ID, 0) };
    EventDescriptor { channel, ..event(id, e.level, e.keyword) }
}

/// Returns the numbers of the events that arrived since the last call, and whether each has a stack.
fn take_event_numbers(region: &mut TestRegion) -> BTreeSet<(u64, bool)> {
    let mut numbers = BTreeSet::new();
    for (cpu, bytes) in region.take_records() {
        let record = Record::parse(&bytes, cpu).unwrap();
        let number = u64::from_le_bytes(*record.payload().first_chunk().unwrap());
        assert!(numbers.insert((number, record.items().stack().is_some())), "an event was written twice");
    }
    numbers
}

/// A registration with two sessions and events.
pub(super) struct RuleTable {
    handle: Handle,
    regions: [TestRegion; 2],
    events: Vec<TestEvent>,
    metadata: Vec<u8>,
}

impl RuleTable {
    /// Opens the outlets `first_outlet` and `first_outlet + 1`, one for each session.
    pub(super) fn new(first_outlet: u8, events: Vec<TestEvent>) -> Self {
        Client::get();
        Self {
            handle: Handle::claim_plain(Guid::from_u128(7), None, None).unwrap(),
            regions: [TestRegion::open(first_outlet), TestRegion::open(first_outlet + 1)],
            events,
            metadata: metadata(NAME),
        }
    }

    /// Enables, changes or disables a session.
    pub(super) fn set_enable(&self, session: usize, rules: Option<&RuleParams>) {
        let region = &self.regions[session];
        match rules {
            Some(rules) => {
                let change = self.handle.slot().enable_session(region.outlet, region.ticket, &params(rules));
                assert_eq!(change.refusal(), None, "{rules:?}");
            }
            None => {
                self.handle.slot().disable_sessions(1 << region.outlet);
            }
        }
    }

    /// Writes every event, and compares the enable checks and the arrived events with the rules.
    pub(super) fn check(&mut self, rules: [Option<&RuleParams>; 2]) {
        let sessions: Vec<&RuleParams> = rules.into_iter().flatten().collect();
        let together = CombinedRules::combine(&sessions);
        for e in &self.events {
            let (d, slot) = (descriptor(e), self.handle.slot());
            assert_eq!(slot.is_enabled(e.level, e.keyword), together.is_enabled(e), "{sessions:?} {e:?}");
            assert_eq!(slot.is_event_enabled(&d), is_event_enabled(&sessions, e), "{sessions:?} {e:?}");
            let provider = self.handle.provider().unwrap();
            let event = provider.event(&d);
            let event = if e.is_tracelogging { event.metadata(&self.metadata) } else { event };
            event.write(&[&e.number.to_le_bytes()]).unwrap();
        }
        for (region, rules) in self.regions.iter_mut().zip(rules) {
            let gets = |e: &&TestEvent| rules.is_some_and(|rules| rules.gets_event(e));
            let gets_stack = |e: &TestEvent| rules.is_some_and(|rules| rules.gets_stack(e));
            let expected = self.events.iter().filter(gets).map(|e| (e.number, gets_stack(e)));
            assert_eq!(take_event_numbers(region), expected.collect(), "{rules:?} of {sessions:?}");
        }
    }
}

impl Drop for RuleTable {
    fn drop(&mut self) {
        self.handle.slot().disable_sessions(u64::MAX);
        assert!(self.handle.retire());
        self.handle.release();
    }
}
