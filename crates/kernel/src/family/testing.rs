//! Passes samples to handlers in tests, and checks the events that they write.

use std::fmt::Write;

use traceweir_format::Record;

use super::{Context, EventFamily};
use crate::clock::NanosecondClock;
use crate::out::{Out, RecordQueue};
use crate::record::PerfSample;
use crate::settings::EventExtras;
use crate::spec::SampleEvent;
use crate::tracefs::TracepointField;

/// Checks the events that a function writes. Each is expected as hexadecimal text without regard to
/// blanks: hook id (for a class without hooks, the event type), version, payload.
#[track_caller]
pub(crate) fn assert_written(write: impl FnOnce(&mut Out<'_>), expected: &[&str]) {
    let (mut queues, extras, mut lost_records) = ([RecordQueue::default()], EventExtras::default(), 0);
    write(&mut Out::new(&mut queues, &NanosecondClock, &extras, &mut lost_records));
    assert_eq!(lost_records, 0);
    assert_queued(&mut queues[0], expected);
}

/// Like [`assert_written`], for events that are in a queue.
#[track_caller]
pub(crate) fn assert_queued(queue: &mut RecordQueue, expected: &[&str]) {
    let mut written = Vec::new();
    while let Some(next) = queue.peek() {
        let mut bytes = vec![0; next.length];
        queue.pop_into(&mut bytes);
        let record = Record::parse(&bytes, 0).expect("invalid record");
        let descriptor = record.descriptor();
        let hook = record.hook().unwrap_or(descriptor.opcode.into());
        written.push(format!("{hook:04x}{:02x}{}", descriptor.version, to_hex(record.payload())));
    }
    let expected: Vec<String> = expected.iter().map(|event| event.replace([' ', '\n'], "")).collect();
    assert_eq!(written, expected);
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Passes a sample with tracepoint fields to the handler of the row with this name.
pub(crate) fn run_row<F: EventFamily>(
    family: &mut F,
    context: &mut Context,
    name: &str,
    sample: PerfSample<'_>,
    fields: &[&[u8]],
    out: &mut Out<'_>,
) {
    let (mut raw, mut positions) = (Vec::new(), Vec::new());
    for field in fields {
        let (offset, size) = (raw.len().try_into().unwrap(), field.len().try_into().unwrap());
        positions.push(Some(TracepointField { offset, size, is_signed: false, is_data_loc: false }));
        raw.extend_from_slice(field);
    }
    let row = F::rows().iter().find(|row| row.spec.name() == name).expect("no row has this name");
    // 19 is the profile source TotalCycles.
    let event = SampleEvent { sample: PerfSample { raw: &raw, ..sample }, fields: &positions, source_id: 19 };
    (row.on_sample)(family, &event, context, out);
}

/// Like [`run_row`], for fields that are numbers.
pub(crate) fn run_row_with_numbers<F: EventFamily>(
    family: &mut F,
    context: &mut Context,
    name: &str,
    sample: PerfSample<'_>,
    numbers: &[u64],
    out: &mut Out<'_>,
) {
    let numbers: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
    let fields: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
    run_row(family, context, name, sample, &fields, out);
}
