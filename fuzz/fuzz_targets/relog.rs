//! Relogging of any file, alone and with itself: an error that leaves nothing, or a file with the events that were kept and no fault that they did not have.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use traceweir::consumer::Event;
use traceweir::relog::{EventKind, Output, Relogger, Settings, TraceEvent};
use traceweir_format::etl::{ReadAt, Rule, Trace, check};
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_fuzz::given::{Given, folder};

/// What happens to events on the way.
fn relogged(
    input: &Path,
    output: &Path,
    times: u8,
    settings: Settings,
    changes: u8,
) -> traceweir::Result<u64> {
    let mut relogger = Relogger::new();
    for _ in 0..times {
        relogger.add_file(input)?;
    }
    relogger.set_output(output);
    relogger.set(settings);
    let mut number = 0_u64;
    let done = relogger.process(|event: &Event<'_>, output: &mut Output| {
        number += 1;
        match (changes & 7, number % 3) {
            (1, 0) => return Ok(()),
            // What cannot be changed may be refused; the file is whole all the same.
            (2, 0) => drop(changed(event).and_then(|event| output.inject(&event))),
            (3, 0) => drop(made(event, output)),
            _ => {}
        }
        output.keep(event)
    })?;
    Ok(done.events)
}

fn changed(event: &Event<'_>) -> traceweir::Result<TraceEvent> {
    let mut copy = TraceEvent::of(event)?;
    let payload = event.record.payload().to_vec();
    copy.set_payload(&payload[..payload.len() / 2])?;
    copy.set_process_id(1)?;
    copy.set_processor(event.record.cpu() ^ 1)?;
    Ok(copy)
}

fn made(event: &Event<'_>, output: &mut Output) -> traceweir::Result<()> {
    let mut new = output.create_event(event.trace, EventKind::Modern)?;
    new.set_descriptor(&EventDescriptor { id: 7, ..EventDescriptor::default() })?;
    new.set_time(FileTime(event.time.0.saturating_add(1)))?;
    new.set_payload(b"made")?;
    output.inject(&new)
}

/// Rules that a file breaks.
fn broken<R: ReadAt>(trace: &Trace<R>) -> Vec<(Rule, String)> {
    let mut faults = Vec::new();
    let checked = check(trace, &mut |finding| {
        if !finding.rule.is_remark() {
            faults.push((finding.rule, finding.detail.clone()));
        }
    });
    checked.expect("memory can be read");
    faults
}

fn sound(path: &Path, events: u64) {
    let trace = Trace::open(std::fs::read(path).expect("the output")).expect("an output opens");
    let faults = broken(&trace);
    assert!(faults.is_empty(), "{faults:?}");
    let mut walk = trace.events();
    let mut found = 0_u64;
    while let Some(_record) = walk.next().expect("an output is read to its end") {
        found += 1;
    }
    assert!(found >= events, "{found} of {events} events");
}

fuzz_target!(|data: &[u8]| {
    let mut given = Given(data);
    let [times, changes, size, flags] = [given.byte() % 3, given.byte(), given.byte(), given.byte()];
    let (input, output) = (folder().join("in.etl"), folder().join("out.etl"));
    std::fs::write(&input, given.0).expect("a file");
    // What was made before is not what this makes.
    let _ = std::fs::remove_file(&output);
    let settings = Settings {
        compressed: flags & 1 != 0,
        buffer_size: (flags & 2 != 0).then(|| u32::from(size) * 1024),
        from: (flags & 4 != 0).then_some(FileTime(132_000_000_500_000_000)),
        to: (flags & 8 != 0).then_some(FileTime(132_000_000_900_000_000)),
        new: flags & 16 != 0,
    };
    match relogged(&input, &output, times, settings, changes) {
        Ok(events) => sound(&output, events),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(!output.exists(), "a failure leaves nothing behind");
        }
    }
});
