//! Reads the activity of traces, and compares it with reports and with the printed events.

use traceweir_analysis::report::samples::{SampleOptions, SampleReport};
use traceweir_analysis::report::switches::SwitchReport;
use traceweir_analysis::report::{
    Analysis, AnalysisOptions, CallPaths, NeededEvents, Occurrence, ThreadSelection, TimeWindow,
};
use traceweir_analysis::text::Moment;
use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;

use super::test_input::kernel_trace::{KernelWriter, MemoryChange, Packet, Switch as TestSwitch, Transfer};
use super::test_input::{FIXTURES, TestTrace, expected_events, fixture, input, sample_trace};
use super::*;

/// An event with the tables' names of what it refers to.
struct Seen {
    time_ns: i64,
    activity: Activity,
    labels: Vec<String>,
}

fn read(input: &ConvertInput) -> (Vec<Seen>, ActivitySummary) {
    let needed = NeededActivity { events: true, event_stacks: true };
    let mut seen = Vec::new();
    let summary = read_activity(input, needed, |_, event| {
        let labels = event.stack.iter().flat_map(|frame| frame.functions.iter().map(|f| frame.label(f)));
        let (time_ns, activity) = (event.time_ns, event.activity.clone());
        seen.push(Seen { time_ns, activity, labels: labels.collect() });
        Ok(())
    });
    let summary = summary.unwrap();
    assert!(seen.is_sorted_by_key(|event| event.time_ns), "events must be in time order");
    (seen, summary)
}

fn count(seen: &[Seen], is_counted: impl Fn(&Activity) -> bool) -> u64 {
    seen.iter().filter(|event| is_counted(&event.activity)).count() as u64
}

/// Reads the events of a report.
fn open_analysis(input: &ConvertInput) -> Analysis {
    let options = AnalysisOptions { files: input.files.clone(), ..AnalysisOptions::default() };
    let (transfers, network, needed) = (true, true, NeededEvents::default());
    let needed = NeededEvents { samples: true, switches: true, transfers, network, ..needed };
    Analysis::open(&options, needed, Arc::new(())).unwrap()
}

/// Compares the activity of traces with the totals of reports.
fn compare_with_reports(input: &ConvertInput) -> [u64; 5] {
    let (seen, _) = read(input);
    let mut samples = SampleReport::new(
        SampleOptions { includes_idle: false, keeps_stacks: false },
        ThreadSelection::default(),
        TimeWindow::default(),
    );
    let mut switches = SwitchReport::new(ThreadSelection::default(), TimeWindow::default());
    let (mut disk, mut network) = (0, 0);
    open_analysis(input)
        .read(|facts, joined| {
            samples.add_event(facts, joined);
            switches.add_event(facts, joined);
            disk += u64::from(matches!(joined.event.occurrence, Occurrence::Transfer(_)));
            network += u64::from(matches!(joined.event.occurrence, Occurrence::Network(_)));
        })
        .unwrap();
    let weight = |event: &Seen| match event.activity {
        Activity::Sample(Sample { weight, is_idle: false, .. }) => weight,
        _ => 0,
    };
    let found = [
        seen.iter().map(weight).sum::<u64>(),
        count(&seen, |activity| matches!(activity, Activity::Switch(_))),
        count(&seen, |activity| matches!(activity, Activity::Wake { .. })),
        count(&seen, |activity| matches!(activity, Activity::Disk { .. })),
        count(&seen, |activity| matches!(activity, Activity::Network { .. })),
    ];
    assert_eq!(found, [samples.total, switches.switches, switches.wakes, disk, network]);
    found
}

#[test]
fn totals_are_those_of_reports() {
    assert_eq!(compare_with_reports(&input(&[fixture("kernel")])), [2, 2, 1, 1, 4]);
    let trace = TestTrace::generate(1 << 20);
    let totals = compare_with_reports(&trace.input());
    assert!(totals.iter().all(|total| *total > 10), "{totals:?}");
    if let Some(path) = sample_trace("ShutdownPerfDiagLogger.etl") {
        compare_with_reports(&input(&[path]));
    }
}

#[test]
fn stacks_of_samples_are_those_of_reports() {
    let trace = TestTrace::generate(1 << 20);
    let input = trace.input();
    let (mut paths, mut expected) = (CallPaths::new(false), Vec::new());
    open_analysis(&input)
        .read(|facts, joined| {
            if let Occurrence::Sample { thread, address, is_idle: false, .. } = joined.event.occurrence {
                let thread = paths.find_thread(facts, &joined.event, &joined.stack, thread);
                let path = paths.resolve(facts, joined, thread, Some(address)).to_vec();
                // The first entry of a path is the process.
                let functions = path.iter().skip(1).rev().map(|id| paths.functions.get(*id).label());
                expected.push(functions.collect::<Vec<String>>());
            }
        })
        .unwrap();
    let (seen, _) = read(&input);
    let is_sample = |event: &&Seen| matches!(event.activity, Activity::Sample(Sample { is_idle: false, .. }));
    let found: Vec<Vec<String>> = seen.iter().filter(is_sample).map(|event| event.labels.clone()).collect();
    assert!(expected.len() > 100 && expected.iter().any(|stack| stack.len() > 2));
    assert_eq!(found, expected);
}

/// Returns names and fields of the events of a trace that are neither slices nor from the kernel.
fn names_of(seen: &[Seen]) -> Vec<String> {
    let name = |event: &Seen| match &event.activity {
        Activity::Instant { detail, .. } => Some(detail.name.to_string()),
        Activity::SliceBegin(slice) => Some(slice.detail.name.to_string()),
        Activity::SliceEnd { stop: Some(stop), .. } => Some(stop.name.to_string()),
        _ => None,
    };
    seen.iter().filter_map(name).collect()
}

#[test]
fn events_have_the_names_and_values_of_the_printed_ones() {
    for name in ["tracelogging", "eventsource"] {
        let (seen, summary) = read(&input(&[fixture(name)]));
        let is_event = |event: &&serde_json::Value| event["provider"] != "Windows Kernel";
        let expected: Vec<serde_json::Value> =
            expected_events(name).iter().filter(is_event).cloned().collect();
        assert_eq!(summary.events, expected.len() as u64, "{name}");
        let expected_names: Vec<&str> = expected.iter().filter_map(|event| event["event"].as_str()).collect();
        let found = names_of(&seen);
        let known: Vec<&str> =
            found.iter().map(String::as_str).filter(|name| !name.starts_with("event ")).collect();
        assert_eq!(known, expected_names, "{name}");
    }
    let (seen, _) = read(&input(&[fixture("tracelogging")]));
    let expected = expected_events("tracelogging");
    let mut compared = 0;
    for event in &seen {
        let Activity::Instant { detail, .. } = &event.activity else { continue };
        let candidates = || expected.iter().filter(|event| event["event"] == *detail.name);
        let mut json = Vec::new();
        crate::json::push_members(detail.fields.values.iter().map(|(n, v)| (&**n, v)), &mut json);
        let fields: serde_json::Value = serde_json::from_slice(&json).unwrap();
        if candidates().any(|event| event["fields"] == fields) {
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared} of {} events have the printed fields", seen.len());
}

#[test]
fn processes_and_threads_have_names_and_lives() {
    let (seen, summary) = read(&input(&[fixture("kernel")]));
    let lives = &summary.tables.lives;
    let child = lives.processes().iter().find(|process| process.pid == 3000).unwrap();
    assert_eq!((child.name.as_deref(), child.parent_pid), (Some("child.exe"), Some(1200)));
    assert_eq!(child.life, Life { start_ns: Some(700_000), end_ns: Some(3_700_000) });
    let thread = lives.threads().iter().find(|thread| thread.tid == 3004).unwrap();
    assert_eq!(thread.name.as_deref(), Some("renamed"));
    assert_eq!(lives.process(thread.process.unwrap()).unwrap().pid, 3000);
    let is_life = |activity: &Activity| {
        matches!(
            activity,
            Activity::ProcessStart(_)
                | Activity::ProcessEnd(_)
                | Activity::ThreadStart(_)
                | Activity::ThreadEnd(_)
        )
    };
    assert_eq!(count(&seen, is_life), 4);
}

/// Writes the start (1) or the stop (2) of a task.
fn put_activity(writer: &mut KernelWriter, time: i64, thread_id: u32, opcode: u8, activity: u128) {
    let descriptor = EventDescriptor { id: u16::from(opcode), opcode, task: 1, ..EventDescriptor::default() };
    let (provider, process_id) = (Guid::from_u128(0xAAAA), 70);
    let activity = Guid::from_u128(activity);
    let header =
        EventHeader { provider, descriptor, process_id, thread_id, time, activity, ..EventHeader::default() };
    writer.payload.clear();
    writer.put_event(&header, 0).unwrap();
}

#[test]
fn slices_are_delivered_in_time_order_with_their_begin() {
    let trace = TestTrace::write(0, |writer| {
        put_activity(writer, 10, 71, 1, 0);
        put_activity(writer, 20, 71, 1, 0xA);
        put_activity(writer, 30, 71, 2, 0xA);
        put_activity(writer, 50, 71, 1, 0xB);
        put_activity(writer, 40, 71, 2, 0);
    });
    let (seen, summary) = read(&trace.input());
    assert_eq!(summary.events, 5);
    let mut slices = Vec::new();
    for event in &seen {
        match &event.activity {
            Activity::SliceEnd { slice, stop } => {
                slices.push((slice.begin_ns / 100, event.time_ns / 100, stop.is_some()));
            }
            Activity::SliceBegin(slice) => assert_eq!(slice.begin_ns, event.time_ns),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(slices.len(), 3);
    assert!(slices.contains(&(20, 30, true)) && slices.contains(&(10, 40, true)), "{slices:?}");
}

#[test]
fn transfers_losses_and_filters_are_delivered() {
    let trace = TestTrace::write(9, |writer| {
        writer.put_process(70, "app.exe", "app --all").unwrap();
        writer.put_thread(70, 71).unwrap();
        let (tid, file) = (71, 1);
        let transfer = Transfer { tid, file, bytes: 4096, is_write: true, duration: 50 };
        writer.put_transfer(0, 100, transfer).unwrap();
        writer.put_packet(1, 200, Packet { pid: 70, bytes: 5, local_port: 1, is_sent: true }).unwrap();
        writer.put_memory(0, 250, MemoryChange { pid: 70, bytes: 1, is_freed: false }).unwrap();
        writer.flush().unwrap();
        writer.flag_loss(1).unwrap();
        let switch = TestSwitch { new_tid: 71, old_tid: 0, old_state: 2, wait_reason: 0 };
        writer.put_switch(1, 300, switch).unwrap();
    });
    let (seen, summary) = read(&trace.input());
    assert_eq!(summary.lost, (9, 0));
    let losses: Vec<&Loss> = seen
        .iter()
        .filter_map(|event| match &event.activity {
            Activity::Loss(loss) => Some(loss),
            _ => None,
        })
        .collect();
    assert_eq!(
        losses.iter().map(|loss| (loss.cpu, loss.events)).collect::<Vec<_>>(),
        [(Some(1), None), (None, Some(9))]
    );
    let disk = seen.iter().find_map(|event| match &event.activity {
        Activity::Disk { transfer, thread } => Some((transfer.bytes, transfer.duration_ns, thread.is_some())),
        _ => None,
    });
    assert_eq!(disk, Some((4096, Some(5000), true)));
    let mut filtered = trace.input();
    filtered.criteria.cpus = vec![1];
    let (seen, summary) = read(&filtered);
    assert_eq!(summary.events, 2);
    assert_eq!(count(&seen, |activity| matches!(activity, Activity::Network { .. })), 1);
    filtered.criteria.head = Some(1);
    assert_eq!(read(&filtered).1.events, 1);
    // Names are known although the events with the names are filtered out.
    let lives = &summary.tables.lives;
    assert_eq!(lives.processes()[0].command_line.as_deref(), Some("app --all"));
}

#[test]
fn damaged_traces_are_read_as_far_as_possible() {
    for name in FIXTURES {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let step = bytes.len() / 24;
        for position in (0..bytes.len()).step_by(step.max(1)) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0xFF;
            if position % 3 == 0 {
                damaged.truncate(position);
            }
            let trace = TestTrace::from_bytes(&damaged);
            let needed = NeededActivity { events: true, event_stacks: true };
            // A file whose header is damaged cannot be opened.
            let _ = read_activity(&trace.input(), needed, |_, _| Ok(()));
        }
    }
}

#[test]
fn ids_of_further_machines_differ() {
    assert_eq!(ActivityTables::output_id(0, 42), 42);
    assert_ne!(ActivityTables::output_id(1, 42), 42);
    assert!(ActivityTables::output_id(u16::MAX, u32::MAX) <= i32::MAX.cast_unsigned());
}

#[test]
fn slices_end_with_the_time_span() {
    let trace = TestTrace::write(0, |writer| {
        put_activity(writer, 10, 71, 1, 0);
        put_activity(writer, 60, 71, 2, 0);
    });
    let mut input = trace.input();
    input.criteria.to = Some(Moment::Offset(40));
    let (seen, summary) = read(&input);
    let ends = seen.iter().filter(|event| matches!(event.activity, Activity::SliceEnd { stop: None, .. }));
    assert_eq!(ends.map(|event| event.time_ns).collect::<Vec<_>>(), [4000]);
    assert_eq!((summary.end_ns, summary.events), (4000, 1));
}

#[test]
fn slices_end_with_their_stop_whatever_the_filters_select() {
    let trace = TestTrace::write(0, |writer| {
        put_activity(writer, 10, 71, 1, 0);
        put_activity(writer, 20, 71, 1, 0);
        put_activity(writer, 30, 71, 2, 0);
        put_activity(writer, 60, 71, 2, 0);
        put_activity(writer, 90, 71, 3, 0);
    });
    let mut input = trace.input();
    let describe = |input: &ConvertInput| {
        let (seen, summary) = read(input);
        let describe = |event: &Seen| match &event.activity {
            Activity::SliceEnd { slice, stop } => {
                assert!(stop.is_some());
                (slice.begin_ns / 100, event.time_ns / 100)
            }
            Activity::SliceBegin(_) => (event.time_ns / 100, 0),
            Activity::Instant { .. } => (0, event.time_ns / 100),
            other => panic!("{other:?}"),
        };
        (seen.iter().map(describe).collect::<Vec<_>>(), summary.events)
    };
    input.criteria.events = vec!["1".to_owned()];
    assert_eq!(describe(&input), (vec![(10, 0), (20, 0), (20, 30), (10, 60)], 2));
    input.criteria.head = Some(1);
    assert_eq!(describe(&input), (vec![(10, 0), (10, 60)], 1));
    input.criteria.head = None;
    // Stops of starts that are not selected stand alone.
    input.criteria.events = vec!["2".to_owned()];
    assert_eq!(describe(&input), (vec![(0, 30), (0, 60)], 2));
    input.criteria.events = vec!["3".to_owned()];
    assert_eq!(describe(&input), (vec![(0, 90)], 1));
}

#[test]
fn notes_name_the_providers_without_a_schema() {
    for (name, option) in [("wpp", "--tmf"), ("manifest", "--manifest")] {
        let (_, summary) = read(&input(&[fixture(name)]));
        let has = |text: &str| summary.notes.iter().any(|note| note.contains(text));
        assert!(has("could not be decoded") && has(option), "{:?}", summary.notes);
    }
    let mut input = input(&[fixture("wpp")]);
    input.schemas.tmf = vec![fixture("../tmf/sample").with_extension("tmf")];
    let (seen, summary) = read(&input);
    // The file has the formats of all messages except one.
    let expected = ["without fields: 1 event that", "no formats of WPP messages {0a1b2c3d-1111-"];
    assert_eq!(summary.notes.len(), expected.len(), "{:?}", summary.notes);
    assert!(
        summary.notes.iter().zip(expected).all(|(note, start)| note.starts_with(start)),
        "{:?}",
        summary.notes
    );
    let has_message = |event: &Seen| match &event.activity {
        Activity::Instant { detail, .. } => detail
            .fields
            .get("message")
            .is_some_and(|text| *text == FieldValue::Text("QueueInsert depth is -3 of 64 (100%)".into())),
        _ => false,
    };
    assert!(seen.iter().any(has_message));
}

#[test]
fn system_calls_of_unknown_threads_are_events() {
    let (seen, _) = read(&input(&[fixture("kernel")]));
    let names = names_of(&seen);
    assert!(names.iter().any(|name| name == "end of system call"), "{names:?}");
}
