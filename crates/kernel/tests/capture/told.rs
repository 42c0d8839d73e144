//! What a real capture told, with payloads taken apart by the published shapes to their last byte.
#![allow(dead_code)] // Each test program uses its part.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::class;
use traceweir_kernel::{Capture, Wanted};

use crate::support::{Fields, Plain, cpus, skip};

/// One event of a class that has a shape.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) cpu: u16,
    pub(crate) raw: u64,
    pub(crate) class: Guid,
    pub(crate) opcode: u8,
    pub(crate) hook: Option<u16>,
    pub(crate) header: (u32, u32),
    pub(crate) fields: Fields,
    pub(crate) payload: Vec<u8>,
}

impl Told {
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.fields.number(field)
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields.text(field)
    }

    /// Whether it is that event of the image class.
    pub(crate) fn is_image(&self, opcode: u8) -> bool {
        self.class == class::IMAGE && self.opcode == opcode
    }
}

/// Takes all events of classes that count here, while `work` runs, in the order of time.
pub(crate) fn capture(wanted: &Wanted, work: impl FnOnce()) -> Option<Vec<Told>> {
    let (mut capture, _control) = match Capture::start(wanted, cpus(), cpus()) {
        Ok(started) => started,
        Err(error) => {
            skip::skip("kernel events", &error.to_string());
            return None;
        }
    };
    let mut told = Vec::new();
    capture.look(&Plain, false);
    work();
    capture.end(&Plain);
    for cpu in 0..cpus() {
        while let Some(next) = capture.peek(cpu) {
            let mut bytes = vec![0; next.length];
            capture.take(cpu, &mut bytes);
            told.extend(read(&Record::parse(&bytes, cpu).expect("a record"), cpu, next.raw));
        }
    }
    assert_eq!(capture.lost(), 0);
    // What one processor told stays in its order.
    told.sort_by_key(|it: &Told| it.raw);
    Some(told)
}

fn read(record: &Record<'_>, cpu: u16, raw: u64) -> Option<Told> {
    let class = record.provider();
    if ![class::IMAGE, class::IMAGE_ID, class::CONFIG, class::SYS_CONFIG_EX].contains(&class) {
        return None;
    }
    let descriptor = record.descriptor();
    Some(Told {
        cpu,
        raw,
        class,
        opcode: descriptor.opcode,
        hook: record.hook(),
        header: (record.process_id(), record.thread_id()),
        fields: Fields::of(record),
        payload: record.payload().to_vec(),
    })
}
