//! What a real capture told, with payloads taken apart by the published shapes to their last byte.
#![allow(dead_code)] // Each test program uses its part.

use std::collections::HashMap;

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::kernel::{FieldShape, Repeat, Ty, shape_of};
use traceweir_format::spec::event::class;
use traceweir_kernel::{Capture, Clock, Group, Groups, Wanted};

#[path = "../../../../tests/support/skip.rs"]
pub(crate) mod skip;

/// Everything in nanoseconds.
struct Plain;

impl Clock for Plain {
    fn raw(&self, ns: u64) -> u64 {
        ns
    }
    fn stamp(&self, ns: u64) -> i64 {
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
    fn ticks(&self, ns: u64) -> u64 {
        ns
    }
}

/// One event of a class that has a shape.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) cpu: u16,
    pub(crate) raw: u64,
    pub(crate) class: Guid,
    pub(crate) opcode: u8,
    pub(crate) hook: Option<u16>,
    pub(crate) header: (u32, u32),
    pub(crate) numbers: HashMap<&'static str, u64>,
    pub(crate) texts: HashMap<&'static str, String>,
    pub(crate) lists: HashMap<&'static str, Vec<u64>>,
    pub(crate) payload: Vec<u8>,
}

impl Told {
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.numbers[field]
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        &self.texts[field]
    }

    /// Whether it is that event of the image class.
    pub(crate) fn is_image(&self, opcode: u8) -> bool {
        self.class == class::IMAGE && self.opcode == opcode
    }
}

pub(crate) fn groups(wanted: &[Group]) -> Groups {
    let mut mask = [0_u32; 8];
    for Group(group) in wanted {
        mask[(group >> 29) as usize] |= group & 0x1FFF_FFFF;
    }
    Groups(mask)
}

pub(crate) fn cpus() -> u16 {
    // SAFETY: asks for a number.
    u16::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
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
    let (shape, _) = shape_of(&class, descriptor.opcode, descriptor.version).expect("a shape");
    assert!(shape.version <= descriptor.version, "the version of {class} {}", descriptor.opcode);
    let mut told = Told {
        cpu,
        raw,
        class,
        opcode: descriptor.opcode,
        hook: record.hook(),
        header: (record.process_id(), record.thread_id()),
        numbers: HashMap::new(),
        texts: HashMap::new(),
        lists: HashMap::new(),
        payload: record.payload().to_vec(),
    };
    let payload = told.payload.clone();
    let mut rest = &payload[..];
    for field in shape.fields {
        field_of(field, &mut rest, &mut told);
    }
    assert!(rest.is_empty(), "{} bytes behind the last field of {told:?}", rest.len());
    Some(told)
}

fn field_of(field: &FieldShape, rest: &mut &[u8], told: &mut Told) {
    let count = match field.repeat {
        Repeat::One => {
            value_of(field, rest, told);
            return;
        }
        Repeat::Times(count) => u64::from(count),
        Repeat::By(name) => told.numbers[name],
        Repeat::ToEnd => panic!("none of these classes has such a field"),
    };
    for _ in 0..count {
        value_of(field, rest, told);
        let number = told.numbers[field.name];
        told.lists.entry(field.name).or_default().push(number);
    }
}

fn value_of(field: &FieldShape, rest: &mut &[u8], told: &mut Told) {
    let take = |rest: &mut &[u8], length: usize| {
        let (value, behind) = rest.split_at_checked(length).expect("a whole field");
        *rest = behind;
        value.to_vec()
    };
    let wide = |bytes: &[u8]| {
        let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|it| u16::from_le_bytes(*it)).collect();
        String::from_utf16(units.split(|unit| *unit == 0).next().unwrap()).expect("UTF-16")
    };
    match field.ty {
        Ty::Wz => {
            let length = rest.as_chunks::<2>().0.iter().position(|it| *it == [0, 0]).expect("an end") * 2;
            let text = wide(&take(rest, length + 2));
            told.texts.insert(field.name, text);
        }
        Ty::Utf8z | Ty::Az => {
            let length = rest.iter().position(|it| *it == 0).expect("an end");
            let text = take(rest, length + 1);
            told.texts.insert(field.name, String::from_utf8(text[..length].to_vec()).expect("UTF-8"));
        }
        Ty::W(_) => {
            let text = wide(&take(rest, field.ty.size(8).unwrap()));
            told.texts.insert(field.name, text);
        }
        ty => {
            let bytes = take(rest, ty.size(8).expect("a fixed size"));
            let mut word = [0; 8];
            let length = bytes.len().min(8);
            word[..length].copy_from_slice(&bytes[..length]);
            told.numbers.insert(field.name, u64::from_le_bytes(word));
        }
    }
}
