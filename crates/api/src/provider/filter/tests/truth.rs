//! The whole table: levels, keywords, masks, properties and filters of one and of two sessions, against the published rules written down plainly.
//!
//! Events go the whole way: what counts is what lies in the memory of each session afterwards.

use std::collections::BTreeSet;

use traceweir_format::Guid;
use traceweir_format::filter::payload::{Builder, Event as Of, Field, Operand, Shape, Type};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::PayloadOperator as Op;
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::ring::RegionReader;

use super::*;
use crate::client::{Client, outlets};
use crate::provider::registration::Handle;

const LEVELS: [u8; 5] = [0, 1, 4, 5, 255];
const NAME: &str = "seven";

/// The level/keyword part of a filter: any, all, level.
type Part = (u64, u64, u8);

/// What a controller asks for; the rules below are about this, not about bytes.
#[derive(Clone, Debug, Default)]
struct Asked {
    level: u8,
    any: u64,
    all: u64,
    ignore_keyword_0: bool,
    /// Listed ids, and whether these or all others pass.
    ids: Option<(Vec<u16>, bool)>,
    /// Listed names, whether these or all others pass, and the part of events that is looked at: any, all, level.
    names: Option<(Vec<&'static str>, bool, Part)>,
    /// Payloads of event 7 up to this number.
    payload_up_to: Option<u64>,
}

/// An event of the test. Manifest events have id 7; the others have a name.
#[derive(Clone, Copy, Debug)]
struct Offered {
    level: u8,
    keyword: u64,
    tracelogging: bool,
    number: u64,
}

/// "pass = level_ok && keyword_ok", and all filters.
fn gets(s: &Asked, e: &Offered) -> bool {
    passes_level_and_keyword(s, e) && passes_ids(s, e) && passes_names(s, e) && passes_payload(s, e)
}

fn passes_level_and_keyword(s: &Asked, e: &Offered) -> bool {
    let level_ok = s.level == 0 || e.level <= s.level;
    let any = if s.any == 0 { u64::MAX } else { s.any };
    let keyword_ok = if e.keyword == 0 {
        !s.ignore_keyword_0
    } else {
        (e.keyword & any) != 0 && (e.keyword & s.all) == s.all
    };
    level_ok && keyword_ok
}

/// "only the listed ids; false: all but"; "ignored for TraceLogging".
fn passes_ids(s: &Asked, e: &Offered) -> bool {
    match &s.ids {
        Some((ids, filter_in)) if !e.tracelogging => ids.contains(&7) == *filter_in,
        _ => true,
    }
}

/// "The level/keyword part limits which events the name test looks at; events outside it are not affected."
fn passes_names(s: &Asked, e: &Offered) -> bool {
    let Some((names, filter_in, (any, all, level))) = &s.names else { return true };
    let level_ok = *level == 0 || e.level <= *level;
    let keyword_ok = *any == 0 || e.keyword == 0 || (e.keyword & any != 0 && e.keyword & all == *all);
    !e.tracelogging || !level_ok || !keyword_ok || names.contains(&NAME) == *filter_in
}

fn passes_payload(s: &Asked, e: &Offered) -> bool {
    e.tracelogging || s.payload_up_to.is_none_or(|most| e.number <= most)
}

/// The enabled test "on the combined values".
fn enabled(sessions: &[&Asked], e: &Offered) -> bool {
    let level = sessions.iter().map(|s| if s.level == 0 { 255 } else { s.level }).max();
    let any = sessions.iter().map(|s| if s.any == 0 { u64::MAX } else { s.any }).fold(0, |a, b| a | b);
    let all = sessions.iter().map(|s| s.all).fold(u64::MAX, |a, b| a & b);
    let strict = sessions.iter().all(|s| s.ignore_keyword_0);
    level.is_some_and(|level| e.level <= level)
        && if e.keyword == 0 { !strict } else { (e.keyword & any) != 0 && (e.keyword & all) == all }
}

/// As `enabled`, and "also looks at id filters": where every session has filters.
fn event_enabled(sessions: &[&Asked], e: &Offered) -> bool {
    let filtered = |s: &&Asked| s.ids.is_some() || s.names.is_some() || s.payload_up_to.is_some();
    let by_id = sessions.iter().any(|s| passes_level_and_keyword(s, e) && passes_ids(s, e));
    enabled(sessions, e) && (!sessions.iter().all(filtered) || e.tracelogging || by_id)
}

/// Every filter absent, passing and failing, alone and with others.
fn with_filters(asked: &Asked) -> Vec<Asked> {
    let ids = |ids: &[u16], filter_in| Some((ids.to_vec(), filter_in));
    let names = |names: &[&'static str], filter_in, part| Some((names.to_vec(), filter_in, part));
    let all = (0, 0, 0);
    let plain = || asked.clone();
    vec![
        plain(),
        Asked { ids: ids(&[3, 7], true), ..plain() },
        Asked { ids: ids(&[3, 7], false), ..plain() },
        Asked { ids: ids(&[8], true), ..plain() },
        Asked { ids: ids(&[8], false), ..plain() },
        Asked { names: names(&["six", NAME], true, all), ..plain() },
        Asked { names: names(&["six", NAME], false, all), ..plain() },
        Asked { names: names(&["eight"], true, all), ..plain() },
        Asked { names: names(&["eight"], true, (1, 2, 4)), ..plain() },
        Asked { names: names(&[NAME], false, (0, 2, 1)), ..plain() },
        Asked { payload_up_to: Some(u64::MAX), ..plain() },
        Asked { payload_up_to: Some(20), ..plain() },
        Asked {
            ids: ids(&[7], true),
            names: names(&[NAME], true, all),
            payload_up_to: Some(u64::MAX),
            ..plain()
        },
        Asked {
            ids: ids(&[7], true),
            names: names(&[NAME], false, (4, 0, 0)),
            payload_up_to: Some(9),
            ..plain()
        },
    ]
}

fn params(asked: &Asked) -> EnableParams {
    let mut filters = Vec::new();
    if let Some((listed, filter_in)) = &asked.ids {
        filters.push(ids(EVENT_FILTER_TYPE_EVENT_ID, *filter_in, listed));
    }
    if let Some((listed, filter_in, (any, all, level))) = &asked.names {
        filters.push(names(EVENT_FILTER_TYPE_EVENT_NAME, gate(*any, *all, *level, *filter_in), listed));
    }
    if let Some(most) = asked.payload_up_to {
        let mut of = Of::new(7, 0, false);
        let field = of.field(Field::one(Shape::Fixed(8))).unwrap();
        let number = Type::Integer { bytes: 8, signed: false };
        of.predicate(field, number, Op::LE, Operand::Number(most.into())).unwrap();
        let mut blob = Builder::new();
        blob.add(&of, true).unwrap();
        filters.push(Filter { kind: EVENT_FILTER_TYPE_PAYLOAD, data: blob.finish().unwrap() });
    }
    let property = if asked.ignore_keyword_0 { EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 } else { 0 };
    let Asked { level, any, all, .. } = *asked;
    EnableParams { level, match_any: any, match_all: all, property, filters, ..EnableParams::default() }
}

fn offered() -> Vec<Offered> {
    let mut all = Vec::new();
    for level in LEVELS {
        for keyword in 0..8 {
            for tracelogging in [false, true] {
                all.push(Offered { level, keyword, tracelogging, number: all.len() as u64 });
            }
        }
    }
    all
}

fn sessions() -> Vec<Asked> {
    let mut all = Vec::new();
    for level in LEVELS {
        for masks in 0..64 {
            for ignore_keyword_0 in [false, true] {
                let (any, all_of) = (masks % 8, masks / 8);
                all.push(Asked { level, any, all: all_of, ignore_keyword_0, ..Asked::default() });
            }
        }
    }
    all
}

/// Memory of a session in this process.
struct Memory {
    outlet: u8,
    ticket: Ticket,
    reader: RegionReader,
}

impl Memory {
    fn open(outlet: u8) -> Self {
        let params = RegionParams {
            layout: Layout::new(cpu::possible(), 1 << 16).unwrap(),
            clock: Counter::best(),
            wake_at: 1 << 16,
            max_record: 65_535,
        };
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let (ticket, reader) = outlets::get(outlet).open_private(&params, wake).unwrap();
        Self { outlet, ticket, reader }
    }

    /// The numbers of the events that arrived since the last look.
    fn arrived(&mut self) -> BTreeSet<u64> {
        let mut numbers = BTreeSet::new();
        for ring in self.reader.rings() {
            ring.look().unwrap();
            while let Some(head) = ring.peek().unwrap() {
                let mut bytes = vec![0; head.length];
                ring.take(&mut bytes);
                let record = Record::parse(&bytes, head.cpu).unwrap();
                let payload = record.payload();
                assert!(numbers.insert(u64::from_le_bytes(*payload.first_chunk().unwrap())), "written twice");
            }
            ring.release();
        }
        assert_eq!(self.reader.lost(), 0);
        numbers
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        assert!(outlets::get(self.outlet).close());
    }
}

/// A registration, two sessions, all events.
struct Table {
    handle: Handle,
    memories: [Memory; 2],
    offered: Vec<Offered>,
    metadata: Vec<u8>,
}

impl Table {
    fn new(first_outlet: u8) -> Self {
        Client::get();
        Self {
            handle: Handle::claim(Guid::from_u128(7), None, None).unwrap(),
            memories: [Memory::open(first_outlet), Memory::open(first_outlet + 1)],
            offered: offered(),
            metadata: metadata(NAME),
        }
    }

    fn enable(&self, session: usize, asked: &Asked) {
        let memory = &self.memories[session];
        let change = self.handle.slot().wish(memory.outlet, memory.ticket, &params(asked));
        assert_eq!(change.refusal(), None, "{asked:?}");
    }

    fn disable(&self, session: usize) {
        self.handle.slot().unwish(1 << self.memories[session].outlet);
    }

    /// Offers every event, and compares what is said and what arrives with the rules.
    fn check(&mut self, asked: [Option<&Asked>; 2]) {
        let sessions: Vec<&Asked> = asked.into_iter().flatten().collect();
        for e in &self.offered {
            let id = if e.tracelogging { 0 } else { 7 };
            let channel = if e.tracelogging { 11 } else { 0 };
            let d = EventDescriptor { channel, ..event(id, e.level, e.keyword) };
            let slot = self.handle.slot();
            assert_eq!(slot.enabled(e.level, e.keyword), enabled(&sessions, e), "{sessions:?} {e:?}");
            assert_eq!(slot.event_enabled(&d), event_enabled(&sessions, e), "{sessions:?} {e:?}");
            let metadata = e.tracelogging.then_some(self.metadata.as_slice());
            self.handle.write(&d, metadata, None, None, &[&e.number.to_le_bytes()]).unwrap();
        }
        for (memory, asked) in self.memories.iter_mut().zip(asked) {
            let wanted = |e: &&Offered| asked.is_some_and(|asked| gets(asked, e));
            let wanted: BTreeSet<u64> = self.offered.iter().filter(wanted).map(|e| e.number).collect();
            assert_eq!(memory.arrived(), wanted, "{asked:?} of {sessions:?}");
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.handle.slot().unwish(u64::MAX);
        assert!(self.handle.retire());
        self.handle.release();
    }
}

#[test]
fn one_session_gets_what_the_rules_say() {
    let mut table = Table::new(40);
    table.check([None, None]);
    for (index, plain) in sessions().iter().enumerate() {
        for asked in with_filters(plain) {
            table.enable(0, &asked);
            table.check([Some(&asked), None]);
        }
        if index % 16 == 0 {
            table.disable(0);
            table.check([None, None]);
        }
    }
}

#[test]
fn two_sessions_get_what_the_rules_say_of_each() {
    let mut table = Table::new(42);
    let sessions = sessions();
    // Neighbours in one list meet strangers of the other: steps that have no divisor in common with the lists.
    for step in 0..sessions.len() * 6 {
        let one = &sessions[step * 7 % sessions.len()];
        let two = &sessions[(step * 211 + 5) % sessions.len()];
        let (one, two) = (with_filters(one), with_filters(two));
        let (one, two) = (&one[step % one.len()], &two[(step / 3 + step * 5) % two.len()]);
        table.enable(0, one);
        table.enable(1, two);
        table.check([Some(one), Some(two)]);
        if step % 32 == 0 {
            table.disable(step / 32 % 2);
            table.check(if step / 32 % 2 == 0 { [None, Some(two)] } else { [Some(one), None] });
        }
    }
}
