use proptest::prelude::*;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{EventDescriptor, ExtType};
use traceweir_format::time::ClockKind;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

use super::*;

/// The second in which the session of the tests starts.
const START: Second = Second(1_000);
const CLOCK: Clock =
    Clock { kind: ClockKind::Qpc, rate: 1_000_000_000, anchor: 0, start: FileTime(10_000_000_000) };

/// An event of a test; times are nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
struct TestEvent<'e> {
    provider: &'e str,
    name: &'e str,
    process: u32,
    thread: u32,
    opcode: u8,
    activity: u128,
    time_ns: i64,
}

const EVENT: TestEvent<'static> =
    TestEvent { provider: "Shop", name: "Brew", process: 7, thread: 70, opcode: 0, activity: 0, time_ns: 0 };

impl TestEvent<'_> {
    fn encode(&self) -> Vec<u8> {
        let traits = TraitsBuilder::new(self.provider).finish().unwrap().to_vec();
        let metadata = MetadataBuilder::new(self.name, 0).finish().unwrap().to_vec();
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: &traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: &metadata },
        ];
        let header = EventHeader {
            provider: Guid::from_provider_name(self.provider),
            process_id: self.process,
            thread_id: self.thread,
            time: self.time_ns,
            activity: Guid::from_u128(self.activity),
            descriptor: EventDescriptor { opcode: self.opcode, task: 1, ..EventDescriptor::default() },
            items: &items,
            ..EventHeader::default()
        };
        let mut bytes = Vec::new();
        header.encode(b"", &mut bytes).unwrap();
        bytes
    }
}

/// A counter with its tables.
struct TestCounter {
    counter: EventCounter,
    decoder: Decoder,
    tables: Arc<Mutex<EventTables>>,
}

impl TestCounter {
    fn new() -> Self {
        let tables = Arc::new(Mutex::new(EventTables::new(CLOCK.start)));
        let find_name = |pid: u32| (pid != 0).then(|| format!("app{pid}"));
        let counter = EventCounter::new(Arc::clone(&tables), find_name);
        Self { counter, decoder: Decoder::new(), tables }
    }

    fn count_bytes(&mut self, bytes: &[u8]) {
        let record = Record::parse(bytes, 0).unwrap();
        let time = CLOCK.file_time(record.time());
        lock(&self.tables).set_now(time);
        self.decoder.observe(&record);
        self.counter.count(&record, time, &CLOCK, &mut self.decoder);
    }

    fn count(&mut self, event: TestEvent<'_>) {
        self.count_bytes(&event.encode());
    }

    fn tables(&self) -> MutexGuard<'_, EventTables> {
        lock(&self.tables)
    }
}

#[test]
fn events_count_by_provider_name_process_and_second() {
    let mut counter = TestCounter::new();
    for (provider, name, process, time_ns) in [
        ("Shop", "Brew", 7, 0),
        ("Shop", "Brew", 7, 999_999_999),
        ("Shop", "Serve", 8, 1_000_000_000),
        ("Cafe", "Brew", 7, 2_000_000_000),
    ] {
        counter.count(TestEvent { provider, name, process, time_ns, ..EVENT });
    }
    let tables = counter.tables();
    assert_eq!(tables.total.amounts_until(Second(START.0 + 2), 3), [2, 1, 1]);
    let providers: Vec<_> =
        tables.providers.rows().map(|(_, row)| (row.name.as_deref().unwrap(), row.events.total())).collect();
    assert_eq!(providers, [("Shop", 3), ("Cafe", 1)]);
    let events: Vec<_> = tables.events.rows().map(|(_, row)| (&*row.name, row.events.total())).collect();
    assert_eq!(events, [("Brew", 2), ("Serve", 1), ("Brew", 1)]);
    let processes: Vec<_> = tables
        .processes
        .rows()
        .map(|(pid, row)| (*pid, row.name.name.as_deref(), row.events.total()))
        .collect();
    assert_eq!(processes, [(7, Some("app7"), 3), (8, Some("app8"), 1)]);
}

#[test]
fn starts_and_stops_give_latencies() {
    let mut counter = TestCounter::new();
    for (name, opcode, thread, activity, time_ns) in [
        ("BrewStart", 1, 70, 0, 1_000),
        ("BrewStop", 2, 70, 0, 3_000),
        // A stop on another thread needs the activity.
        ("BrewStart", 1, 70, 5, 10_000),
        ("BrewStop", 2, 71, 0, 11_000),
        ("BrewStop", 2, 71, 5, 18_000),
    ] {
        counter.count(TestEvent { name, opcode, thread, activity, time_ns, ..EVENT });
    }
    let tables = counter.tables();
    let [(_, row)] = &tables.tasks.rows().collect::<Vec<_>>()[..] else { panic!("not one task") };
    assert_eq!((&*row.name, row.provider_name.as_deref(), row.pairs.total()), ("Brew", Some("Shop"), 2));
    let recent = row.latencies.recent(START);
    assert_eq!((recent.percentile(100), recent.sum_ns), (Some(8_000), 10_000));
}

#[test]
fn event_without_schema_counts_by_its_numbers() {
    let mut counter = TestCounter::new();
    for (id, version) in [(5, 0), (5, 0), (5, 1)] {
        let descriptor = EventDescriptor { id, version, ..EventDescriptor::default() };
        let provider = Guid::from_u128(0xABCD);
        let header = EventHeader { provider, descriptor, process_id: 7, ..EventHeader::default() };
        let mut bytes = Vec::new();
        header.encode(b"", &mut bytes).unwrap();
        counter.count_bytes(&bytes);
    }
    let tables = counter.tables();
    let events: Vec<_> = tables.events.rows().map(|(_, row)| (&*row.name, row.events.total())).collect();
    assert_eq!(events, [("5", 2), ("5", 1)]);
    let [(_, provider)] = &tables.providers.rows().collect::<Vec<_>>()[..] else {
        panic!("not one provider")
    };
    assert_eq!((provider.name.as_deref(), provider.events.total()), (None, 3));
}

#[test]
fn time_in_the_future_counts_as_now() {
    let mut counter = TestCounter::new();
    let bytes = TestEvent { time_ns: i64::MAX, ..EVENT }.encode();
    let record = Record::parse(&bytes, 0).unwrap();
    let time = CLOCK.file_time(record.time());
    counter.counter.count(&record, time, &CLOCK, &mut counter.decoder);
    counter.count(TestEvent { time_ns: 1_000_000_000, ..EVENT });
    assert_eq!(counter.tables().total.amount_in(Second(START.0 + 1)), 2);
}

#[test]
fn invented_names_and_processes_are_limited_and_counted_in_the_rest() {
    let mut counter = TestCounter::new();
    let count = MAX_EVENTS as u32 + 10;
    for number in 0..count {
        let (provider, name) = (format!("P{number}\x1b"), format!("E{number}\x1b"));
        counter.count(TestEvent { provider: &provider, name: &name, process: number, opcode: 1, ..EVENT });
    }
    let tables = counter.tables();
    let rest = [
        tables.providers.rest().events.total(),
        tables.events.rest().events.total(),
        tables.processes.rest().events.total(),
    ];
    let expected = [MAX_PROVIDERS, MAX_EVENTS, MAX_PROCESSES].map(|limit| u64::from(count) - limit as u64);
    assert_eq!(rest, expected);
    assert!(tables.events.rows().all(|(_, row)| !row.name.contains('\x1b')));
    assert_eq!(counter.counter.open.len(), count as usize);
}

#[test]
fn starts_without_stops_do_not_end_the_pairs() {
    let mut counter = TestCounter::new();
    let start = TestEvent { name: "BrewStart", opcode: 1, ..EVENT };
    let bytes = start.encode();
    let record = Record::parse(&bytes, 0).unwrap();
    for thread in 0..MAX_OPEN_PAIRS as u32 {
        let event = PairEvent::from_record(&record, (0, thread)).unwrap();
        let span = OpenSpan { start_ns: 0, provider_name: None, name: "".into() };
        counter.counter.open.begin(&event, |_, _| span);
    }
    counter.count(start);
    assert_eq!(counter.counter.open.len(), 0, "all threads together have too many");
    counter.count(TestEvent { thread: 1, ..start });
    counter.count(TestEvent { thread: 1, name: "BrewStop", opcode: 2, ..EVENT });
    assert_eq!(counter.tables().tasks.len(), 1);
}

proptest! {
    /// Whatever the records contain, each one counts once in each table.
    #[test]
    fn every_record_counts_once(
        events in proptest::collection::vec(
            (0_usize..3, "[A-C]{0,2}", 0_u32..4, any::<u8>(), any::<i64>(), 0_u128..3), 0..60
        ),
    ) {
        let mut counter = TestCounter::new();
        for (provider, name, process, opcode, time_ns, activity) in &events {
            let provider = ["X", "Y", "Z"][*provider];
            let (process, opcode) = (*process, *opcode % 3);
            let event = TestEvent { provider, name, process, thread: 1, opcode, activity: *activity, time_ns: *time_ns };
            counter.count(event);
        }
        let tables = counter.tables();
        let count = events.len() as u64;
        prop_assert_eq!(tables.total.total(), count);
        prop_assert_eq!(tables.providers.rows().map(|(_, row)| row.events.total()).sum::<u64>(), count);
        prop_assert_eq!(tables.events.rows().map(|(_, row)| row.events.total()).sum::<u64>(), count);
        prop_assert_eq!(tables.processes.rows().map(|(_, row)| row.events.total()).sum::<u64>(), count);
    }
}
