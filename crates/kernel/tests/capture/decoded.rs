//! Captures with payloads that are decoded by the documented layouts to the last byte.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::class;
use traceweir_kernel::CaptureSettings;

use crate::support;
use crate::support::{Fields, NanosecondClock, cpu_count};

/// A captured event with its decoded payload.
#[derive(Clone, Debug)]
pub(crate) struct DecodedEvent {
    pub(crate) cpu: u16,
    pub(crate) stamp: u64,
    pub(crate) class: Guid,
    pub(crate) opcode: u8,
    pub(crate) hook: Option<u16>,
    /// Process and thread id in the header.
    pub(crate) header_ids: (u32, u32),
    pub(crate) fields: Fields,
    pub(crate) payload: Vec<u8>,
}

impl DecodedEvent {
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.fields.number(field)
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields.text(field)
    }

    /// Returns whether this is an event of the image class with this opcode.
    pub(crate) fn is_image(&self, opcode: u8) -> bool {
        self.class == class::IMAGE && self.opcode == opcode
    }
}

/// Returns the image and configuration events of a capture during `work`, in time order. Skips the
/// test and returns `None` if the capture does not start.
pub(crate) fn capture(settings: &CaptureSettings, work: impl FnOnce()) -> Option<Vec<DecodedEvent>> {
    let (mut capture, _control) = support::start_or_skip(settings, cpu_count())?;
    let mut events = Vec::new();
    capture.poll(&NanosecondClock, false);
    work();
    capture.end(&NanosecondClock);
    for cpu in 0..cpu_count() {
        while let Some((next, bytes)) = support::pop_record(&mut capture, cpu) {
            events.extend(decode_event(&Record::parse(&bytes, cpu).expect("invalid record"), cpu, next.raw));
        }
    }
    assert_eq!(capture.lost(), 0);
    // The sort is stable: events of one processor keep their order.
    events.sort_by_key(|event: &DecodedEvent| event.stamp);
    Some(events)
}

fn decode_event(record: &Record<'_>, cpu: u16, stamp: u64) -> Option<DecodedEvent> {
    let class = record.provider();
    if ![class::IMAGE, class::IMAGE_ID, class::CONFIG, class::SYS_CONFIG_EX].contains(&class) {
        return None;
    }
    let descriptor = record.descriptor();
    Some(DecodedEvent {
        cpu,
        stamp,
        class,
        opcode: descriptor.opcode,
        hook: record.hook(),
        header_ids: (record.process_id(), record.thread_id()),
        fields: Fields::parse(record),
        payload: record.payload().to_vec(),
    })
}
