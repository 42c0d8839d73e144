//! tdh.h as a C program uses it, on the events of the fixtures: what it prints is what the decoder says of them. Layouts, and a table of calls with their status.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::{Count, Field, Kind, Schema};
use traceweir_decode::source::{Decoder, Found};
use traceweir_decode::tdh::{Image, names_of};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::etl;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::types::{InType, OutType};

use crate::support::{C, CPP, Link, STRICT, Workshop, expect_success, here};

fn fixture(path: &str) -> PathBuf {
    here("../../fixtures").join(path)
}

/// The flags that a consumer gives a record.
fn flags(record: &Record<'_>) -> u16 {
    let width = if record.pointer_size() == 4 { 0x20 } else { 0x40 };
    width
        | match record.family() {
            Family::Event => record.flags() & 0x5,
            Family::Message => 0x8,
            _ => 0x100,
        }
}

/// A record as the program reads it: header, items, payload.
fn dump(record: &Record<'_>, out: &mut Vec<u8>) {
    let mut header = vec![0; 80];
    header[4..6].copy_from_slice(&flags(record).to_le_bytes());
    header[16..24].copy_from_slice(&record.time().to_le_bytes());
    header[24..40].copy_from_slice(&record.provider().to_bytes());
    header[40..56].copy_from_slice(&record.descriptor().to_bytes());
    out.extend_from_slice(&header);
    let items: Vec<_> = record.items().collect();
    out.extend_from_slice(&(items.len() as u16).to_le_bytes());
    out.extend_from_slice(&(record.payload().len() as u16).to_le_bytes());
    for item in items {
        out.extend_from_slice(&item.kind.0.to_le_bytes());
        out.extend_from_slice(&(item.data.len() as u16).to_le_bytes());
        out.extend_from_slice(item.data);
    }
    out.extend_from_slice(record.payload());
}

/// What the program should print of an event's fields.
#[derive(Default)]
struct Lines {
    out: String,
}

fn escaped(text: &str, out: &mut String) {
    for unit in text.encode_utf16().take_while(|unit| *unit != 0) {
        match u8::try_from(unit) {
            Ok(byte @ b' '..0x7F) => out.push(byte.into()),
            _ => write!(out, "\\u{unit:04x}").unwrap(),
        }
    }
}

/// Whether elements of an array are told as one text.
fn is_text_of_characters(field: &Field) -> bool {
    let Kind::Value { input, output, .. } = &field.kind else { return false };
    let is_narrow = matches!(*input, InType::UINT8 | InType::INT8 | InType::UINT16);
    field.count != Count::One
        && (matches!(*input, InType::UNICODECHAR | InType::ANSICHAR) || (*output == OutType::STRING && is_narrow))
}

impl<'p> Visitor<'p> for Lines {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if is_text_of_characters(field) {
            return;
        }
        let Kind::Value { map, .. } = &field.kind else { return };
        // Bits without a name make the program show the number.
        let is_named = map.as_ref().is_some_and(|map| {
            names_of(map.bits, map.entries().iter().map(|(v, _)| (*v as u32, ())), &value).is_ok()
        });
        let mut shown = Vec::new();
        text(field, &value, Style { numeric: !is_named }, &mut shown);
        self.out.push_str("  ");
        escaped(&field.name, &mut self.out);
        self.out.push('=');
        escaped(&String::from_utf8_lossy(&shown), &mut self.out);
        self.out.push('\n');
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

fn expected_fields(schema: &Schema, found: &Found<'_, '_>, pointer_size: usize) -> String {
    let mut lines = Lines::default();
    let walked = Walker::default().walk(schema, found.payload, pointer_size, &mut lines);
    if walked.is_ok() { lines.out + "  end 0\n" } else { lines.out }
}

/// Prints a trace by the C program; each event with what the decoder says of it.
fn compare(workshop: &Workshop, program: &Path, trace: &str) -> usize {
    let (manifest, tmf) = (fixture("manifests/everything.man"), fixture("tmf/sample.tmf"));
    let mut decoder = Decoder::new();
    decoder.add_manifest(&std::fs::read(&manifest).unwrap()).unwrap();
    decoder.add_tmf(&std::fs::read(&tmf).unwrap()).unwrap();
    let read = etl::Trace::open(std::fs::File::open(fixture(&format!("etl/{trace}.etl"))).unwrap()).unwrap();
    let (mut events, mut dumped, mut expected) = (read.events(), Vec::new(), Vec::new());
    while let Some(record) = events.next().unwrap() {
        if record.items_damaged() || matches!(record.family(), Family::Other(_)) {
            continue;
        }
        dump(&record, &mut dumped);
        // Metadata in front of the payload: the fields are those of the rest, which a cursor over the record does not know.
        expected.push(match decoder.find(&record) {
            Ok(found) if record.family() != Family::Message && found.payload.len() == record.payload().len() => {
                let image = Image::of(&found.known.schema);
                Some(expected_fields(image.schema(&found.known.schema), &found, record.pointer_size()))
            }
            Ok(_) => None,
            Err(_) => Some(String::new()),
        });
    }
    let file = workshop.path(&format!("{trace}.records"));
    std::fs::write(&file, dumped).unwrap();
    let output = expect_success(std::process::Command::new(program).arg(&file).arg(&manifest).arg(&tmf).env("TRACEWEIR_MANIFESTS", ""));
    let shown: Vec<_> = output.split("event: ").skip(1).collect();
    assert_eq!(shown.len(), expected.len(), "{trace}");
    let mut compared = 0;
    for (number, (shown, expected)) in shown.iter().zip(&expected).enumerate() {
        let Some(expected) = expected else { continue };
        let (head, fields) = shown.split_once('\n').unwrap();
        let fields = fields.split_once("rows: ").map_or(fields, |(fields, _)| fields);
        let fields: String = fields.lines().filter(|l| !l.ends_with("(one of a text)")).map(|l| format!("{l}\n")).collect();
        if expected.is_empty() {
            assert!(fields.is_empty() && head.parse::<u32>().is_ok(), "{trace} {number}: {shown}");
        } else if expected.ends_with("  end 0\n") {
            assert_eq!(fields, *expected, "{trace} {number}: {head}");
        } else {
            // A payload that ends too early: as far as it goes, then why.
            assert!(fields.contains("  end 15005\n") && fields.starts_with(expected.as_str()), "{trace} {number}: {shown}");
        }
        compared += 1;
    }
    compared
}

#[test]
fn a_program_prints_what_the_decoder_says() {
    let workshop = Workshop::new();
    let program = workshop.build("gcc", &here("tests/c/tdh.c"), &[], Link::Shared);
    for (trace, least) in
        [("tracelogging", 20), ("manifest", 5), ("kernel", 20), ("narrow", 3), ("undecodable", 5), ("eventsource", 1), ("merged", 1)]
    {
        let compared = compare(&workshop, &program, trace);
        assert!(compared >= least, "{trace}: {compared} events");
    }
}

#[test]
fn messages_are_told_in_words() {
    let workshop = Workshop::new();
    let program = workshop.build("gcc", &here("tests/c/tdh.c"), &[], Link::Shared);
    compare(&workshop, &program, "wpp");
    let (manifest, tmf) = (fixture("manifests/everything.man"), fixture("tmf/sample.tmf"));
    let mut command = std::process::Command::new(&program);
    let output = expect_success(command.arg(workshop.path("wpp.records")).arg(manifest).arg(tmf));
    assert!(output.contains(" source 2\n") && output.contains("QueueInsert depth is "), "{output}");
}
