//! Relogging that drops, changes or adds events.

use super::*;
use traceweir::relog::{Callback, EventKind, TraceEvent};
use traceweir::{EventDescriptor, Status};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

fn write_three_events(folder: &Path) -> PathBuf {
    let records = [
        (0, encode_event(6_000, 1, b"one")),
        (1, encode_kernel_event(7_000, hook::SAMPLED_PROFILE, b"two")),
        (0, encode_event(8_000, 3, b"three")),
    ];
    write_file(&folder.join("in.etl"), options(), &records, ended_after(9))
}

fn new_relogger(folder: &Path) -> (Relogger, PathBuf) {
    let mut relogger = Relogger::new();
    relogger.add_file(&write_three_events(folder)).unwrap();
    let out = folder.join("out.etl");
    relogger.set_output(&out);
    (relogger, out)
}

#[test]
fn events_that_are_not_kept_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (relogger, out) = new_relogger(folder.path());
    let keep_process_3 = |event: &Event<'_>, output: &mut Output| {
        if event.record.process_id() == 3 { output.keep(event) } else { Ok(()) }
    };
    // The log-file header and the event of process 3.
    assert_eq!(relogger.process(keep_process_3).unwrap().events, 2);
    // The record has 0x50 bytes of header and 5 of payload; the padding after it is cut off.
    assert_eq!(read_events(&out), [(0, 8_000, encode_event(8_000, 3, b"three")[..0x55].to_vec())]);
}

#[test]
fn copied_event_can_be_changed_field_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let (relogger, out) = new_relogger(folder.path());
    let (provider, activity) = (Guid::from_u128(77), Guid::from_u128(88));
    let descriptor = EventDescriptor { id: 9, level: 2, keyword: 5, ..EventDescriptor::default() };
    let summary = relogger
        .process(|event: &Event<'_>, output: &mut Output| {
            if event.record.process_id() != 1 {
                return Ok(());
            }
            let mut copy = TraceEvent::from_event(event)?;
            copy.set_payload(b"another payload")?;
            copy.set_descriptor(&descriptor)?;
            copy.set_process_id(11)?;
            copy.set_thread_id(12)?;
            copy.set_thread_times(13, 14)?;
            copy.set_processor(3)?;
            copy.set_provider_id(&provider)?;
            copy.set_activity_id(&activity)?;
            copy.set_time(FileTime(START_TIME + 4_321))?;
            output.inject(&copy)
        })
        .unwrap();
    assert_eq!((summary.events, summary.injected), (2, 1));
    let events = read_events(&out);
    // The clock has the value 5,000 at the start, so the new time is 5,000 + 4,321.
    let [(3, 9_321, bytes)] = &events[..] else { panic!("{events:?}") };
    let record = Record::parse(bytes, 3).unwrap();
    assert_eq!(record.payload(), b"another payload");
    assert_eq!((record.process_id(), record.thread_id(), record.cpu_times()), (11, 12, Some((13, 14))));
    assert_eq!((record.provider(), record.activity()), (provider, Some(activity)));
    assert_eq!(record.descriptor(), descriptor);
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

#[test]
fn field_that_the_header_lacks_is_refused_without_change() {
    let folder = tempfile::tempdir().unwrap();
    let (relogger, out) = new_relogger(folder.path());
    relogger
        .process(|event: &Event<'_>, output: &mut Output| {
            if event.record.hook().is_none() {
                return Ok(());
            }
            let mut copy = TraceEvent::from_event(event)?;
            let refusals = [
                copy.set_process_id(1),
                copy.set_thread_id(1),
                copy.set_thread_times(1, 1),
                copy.set_provider_id(&PROVIDER),
                copy.set_activity_id(&PROVIDER),
            ];
            for refusal in refusals {
                assert_eq!(refusal.unwrap_err().status(), Status::ERROR_NOT_SUPPORTED);
            }
            assert_eq!(copy.set_processor(2048).unwrap_err().status(), Status::ERROR_INVALID_PARAMETER);
            assert_eq!(copy.set_payload(&[0; 0x1_0000]).unwrap_err().status(), Status::ERROR_MORE_DATA);
            output.inject(&copy)
        })
        .unwrap();
    // The record has 0x10 bytes of header and 3 of payload; the padding after it is cut off.
    assert_eq!(
        read_events(&out),
        [(1, 7_000, encode_kernel_event(7_000, hook::SAMPLED_PROFILE, b"two")[..0x13].to_vec())]
    );
}

/// Adds an event at the beginning and at the end, and records its calls.
struct MarkingCallback<'m>(&'m mut Vec<&'static str>);

impl Callback for MarkingCallback<'_> {
    fn begin(&mut self, header: &Event<'_>, output: &mut Output) -> traceweir::Result<()> {
        assert_eq!(header.record.hook(), Some(0));
        self.0.push("begin");
        let mut mark = output.create_event(0, EventKind::Modern)?;
        mark.set_provider_id(&PROVIDER)?;
        mark.set_payload(b"begin")?;
        output.inject(&mark)
    }

    fn event(&mut self, event: &Event<'_>, output: &mut Output) -> traceweir::Result<()> {
        self.0.push("event");
        output.keep(event)
    }

    fn finish(&mut self, output: &mut Output) -> traceweir::Result<()> {
        self.0.push("finish");
        let mut mark = output.create_event(0, EventKind::Classic)?;
        mark.set_payload(b"end")?;
        output.inject(&mark)?;
        assert!(output.create_event(1, EventKind::Modern).is_err(), "a missing input was accepted");
        Ok(())
    }
}

#[test]
fn new_event_gets_the_time_of_the_previous_event() {
    let folder = tempfile::tempdir().unwrap();
    let (relogger, out) = new_relogger(folder.path());
    let mut calls = Vec::new();
    let summary = relogger.process(MarkingCallback(&mut calls)).unwrap();
    assert_eq!(calls, ["begin", "event", "event", "event", "finish"]);
    assert_eq!((summary.events, summary.injected), (6, 2));
    let times: Vec<i64> = read_events(&out).iter().map(|(_, time, _)| *time).collect();
    assert_eq!(times, [5_000, 6_000, 7_000, 8_000, 8_000]);
    assert_eq!(broken_rules(&out), Vec::<String>::new());
}

#[test]
fn event_can_be_kept_more_than_once() {
    let folder = tempfile::tempdir().unwrap();
    let (relogger, out) = new_relogger(folder.path());
    let keep_twice = |event: &Event<'_>, output: &mut Output| {
        output.keep(event)?;
        output.inject(&TraceEvent::from_event(event)?)
    };
    relogger.process(keep_twice).unwrap();
    let events = read_events(&out);
    assert_eq!(events.len(), 6);
    assert!(events.chunks(2).all(|pair| pair[0] == pair[1]), "{events:?}");
}
