//! Fuzzes relogging of any file, alone and merged with itself. Relogging must return an error and
//! leave no file, or write a file without faults that has the kept events.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use traceweir::consumer::Event;
use traceweir::relog::{EventKind, Output, Relogger, Settings, TraceEvent};
use traceweir_format::etl::{ReadAt, Rule, Trace, check};
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_fuzz::arguments::{Arguments, work_folder};

/// Relogs the input. `changes` selects what happens at every third event: nothing, it is dropped, a
/// changed copy of it is added, or a new event is added.
fn relog(input: &Path, output: &Path, times: u8, settings: Settings, changes: u8) -> traceweir::Result<u64> {
    let mut relogger = Relogger::new();
    for _ in 0..times {
        relogger.add_file(input)?;
    }
    relogger.set_output(output);
    relogger.set(settings);
    let mut number = 0_u64;
    let summary = relogger.process(|event: &Event<'_>, output: &mut Output| {
        number += 1;
        match (changes & 7, number % 3) {
            (1, 0) => return Ok(()),
            // A rejected edit leaves the output intact.
            (2, 0) => drop(change_event(event).and_then(|event| output.inject(&event))),
            (3, 0) => drop(inject_event(event, output)),
            _ => {}
        }
        output.keep(event)
    })?;
    Ok(summary.events)
}

fn change_event(event: &Event<'_>) -> traceweir::Result<TraceEvent> {
    let mut copy = TraceEvent::from_event(event)?;
    let payload = event.record.payload().to_vec();
    copy.set_payload(&payload[..payload.len() / 2])?;
    copy.set_process_id(1)?;
    copy.set_processor(event.record.cpu() ^ 1)?;
    Ok(copy)
}

fn inject_event(event: &Event<'_>, output: &mut Output) -> traceweir::Result<()> {
    let mut new = output.create_event(event.trace, EventKind::Modern)?;
    new.set_descriptor(&EventDescriptor { id: 7, ..EventDescriptor::default() })?;
    new.set_time(FileTime(event.time.0.saturating_add(1)))?;
    new.set_payload(b"made")?;
    output.inject(&new)
}

/// Returns the rules that a file breaks.
fn find_faults<R: ReadAt>(trace: &Trace<R>) -> Vec<(Rule, String)> {
    let mut faults = Vec::new();
    let checked = check(trace, &mut |finding| {
        if !finding.rule.is_remark() {
            faults.push((finding.rule, finding.detail.clone()));
        }
    });
    checked.expect("memory can be read");
    faults
}

fn check_output(path: &Path, events: u64) {
    let trace =
        Trace::open(std::fs::read(path).expect("the output can be read")).expect("the output can be opened");
    let faults = find_faults(&trace);
    assert!(faults.is_empty(), "{faults:?}");
    let mut walk = trace.events();
    let mut readable = 0_u64;
    while let Some(_record) = walk.next().expect("the events of the output can be read") {
        readable += 1;
    }
    assert!(readable >= events, "the output has {readable} of {events} events");
}

fuzz_target!(|data: &[u8]| {
    let mut arguments = Arguments(data);
    let [times, changes, size, flags] =
        [arguments.take_u8() % 3, arguments.take_u8(), arguments.take_u8(), arguments.take_u8()];
    let (input, output) = (work_folder().join("in.etl"), work_folder().join("out.etl"));
    std::fs::write(&input, arguments.0).expect("the input file can be written");
    // Removes the output of the previous run.
    let _ = std::fs::remove_file(&output);
    let from = (flags & 4 != 0).then_some(FileTime(132_000_000_500_000_000));
    let to = (flags & 8 != 0).then_some(FileTime(132_000_000_900_000_000));
    let mut settings =
        Settings::default().compressed(flags & 1 != 0).window(from, to).new_file(flags & 16 != 0);
    settings.buffer_size = (flags & 2 != 0).then(|| u32::from(size) * 1024);
    match relog(&input, &output, times, settings, changes) {
        Ok(events) => check_output(&output, events),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!output.exists(), "a failed relog must leave no file");
        }
    }
});
